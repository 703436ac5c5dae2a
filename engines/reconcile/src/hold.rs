//! Holds: who suspended an object, why, and until when.
//!
//! Here: [`Hold`], from the strings of the annotations. Elsewhere: suspension itself (`gate.rs`), lifting a hold
//! (the program).

use crate::Time;

/// The annotation that says who suspended an object.
pub const SUSPENDED_BY: &str = "windlass.dev/suspended-by";
/// The annotation that says why.
pub const SUSPENDED_REASON: &str = "windlass.dev/suspended-reason";
/// The annotation that says until when.
pub const SUSPENDED_UNTIL: &str = "windlass.dev/suspended-until";

/// Longest name and reason that are repeated, in characters.
const MAX_TEXT_CHARACTERS: usize = 500;

/// A suspension about which more is known than that it is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    by: Option<String>,
    reason: Option<String>,
    until: Until,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Until {
    Resumed,
    At(Time),
    /// It cannot be read, so it is not known when the hold ends: it does not.
    Malformed(String),
}

impl Hold {
    /// From the annotations of an object; `None` if it has none of a hold.
    pub fn of<'o>(annotation: impl Fn(&str) -> Option<&'o str>) -> Option<Self> {
        let [by, reason, until] = [SUSPENDED_BY, SUSPENDED_REASON, SUSPENDED_UNTIL];
        Self::parse(annotation(by), annotation(reason), annotation(until))
    }

    /// From the values of `windlass.dev/suspended-by`, `-reason` and `-until`; `None` if there are none.
    pub fn parse(by: Option<&str>, reason: Option<&str>, until: Option<&str>) -> Option<Self> {
        by.or(reason).or(until)?;
        let shown = |text: Option<&str>| {
            let text = text.map(str::trim).filter(|text| !text.is_empty())?;
            Some(text.chars().take(MAX_TEXT_CHARACTERS).collect::<String>())
        };
        let until = match until.map(str::trim) {
            None => Until::Resumed,
            Some(text) => text.parse().map_or_else(
                |_| Until::Malformed(text.chars().take(MAX_TEXT_CHARACTERS).collect()),
                Until::At,
            ),
        };
        Some(Self { by: shown(by), reason: shown(reason), until })
    }

    /// Who suspended it.
    pub fn owner(&self) -> Option<&str> {
        self.by.as_deref()
    }

    /// When it ends by itself.
    pub fn expires_at(&self) -> Option<Time> {
        match self.until {
            Until::At(time) => Some(time),
            Until::Resumed | Until::Malformed(_) => None,
        }
    }

    /// Whether it has ended by itself.
    pub fn is_expired(&self, now: Time) -> bool {
        self.expires_at().is_some_and(|at| at <= now)
    }

    /// What to call it, such as `the hold of alice`.
    pub fn name(&self) -> String {
        self.by.as_ref().map_or_else(|| "the hold".to_owned(), |by| format!("the hold of {by}"))
    }
}

/// What it says while it is in force, such as `suspended by alice until 2026-11-23T21:00:00Z: reason`.
impl std::fmt::Display for Hold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("suspended")?;
        if let Some(by) = &self.by {
            write!(f, " by {by}")?;
        }
        if let Until::At(time) = &self.until {
            write!(f, " until {}", crate::time::whole_seconds(*time))?;
        }
        if let Some(reason) = &self.reason {
            write!(f, ": {reason}")?;
        }
        if let Until::Malformed(text) = &self.until {
            write!(
                f,
                "; windlass.dev/suspended-until `{text}` is not a time such as 2026-11-23T21:00:00Z, so the \
                 suspension does not expire"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Time {
        text.parse().unwrap()
    }

    #[test]
    fn a_hold_says_who_until_when_and_why() {
        let text = |by, reason, until| Hold::parse(by, reason, until).unwrap().to_string();
        let until = Some("2026-11-23T22:00:00.5+01:00");
        assert_eq!(
            text(Some("alice"), Some("migration"), until),
            "suspended by alice until 2026-11-23T21:00:00Z: migration"
        );
        assert_eq!(text(None, Some("migration"), None), "suspended: migration");
        assert_eq!(text(Some(" "), None, until), "suspended until 2026-11-23T21:00:00Z");
        assert!(Hold::parse(None, None, None).is_none());
    }

    #[test]
    fn a_hold_ends_at_its_time_and_not_before() {
        let hold = Hold::parse(Some("alice"), None, Some("2026-11-23T21:00:00Z")).unwrap();
        assert!(!hold.is_expired(time("2026-11-23T20:59:59.999Z")));
        assert!(hold.is_expired(time("2026-11-23T21:00:00Z")));
        assert_eq!(hold.name(), "the hold of alice");
    }

    #[test]
    fn a_time_that_cannot_be_read_holds_for_ever_and_is_said() {
        for until in ["tomorrow", "", "2026-11-23", "2026-11-23T21:00:00"] {
            let hold = Hold::parse(Some("alice"), None, Some(until)).unwrap();
            assert!(!hold.is_expired(Time::MAX), "{until}");
            assert!(hold.to_string().contains(&format!("`{until}` is not a time")), "{hold}");
        }
    }

    #[test]
    fn long_strings_are_cut() {
        let hold = Hold::parse(Some(&"ä".repeat(9000)), Some(&"ö".repeat(9000)), None).unwrap();
        assert!(hold.to_string().chars().count() < 1100);
    }
}
