//! Holds: annotations that record who suspended an object, why, and until when.
//!
//! Here: [`ObjectHold`], read from the annotations, and whether its end is valid, read from `managedFields`.
//! Elsewhere: the suspension itself (`run_gate.rs`), ending a hold (the program).

use serde_json::Value;

use crate::Time;

/// The annotation with the owner of a suspension.
pub const SUSPENDED_BY: &str = "windlass.dev/suspended-by";
/// The annotation with the reason of a suspension.
pub const SUSPENDED_REASON: &str = "windlass.dev/suspended-reason";
/// The annotation with the end of a suspension.
pub const SUSPENDED_UNTIL: &str = "windlass.dev/suspended-until";

/// Longest name and reason that are repeated, in characters.
const MAX_TEXT_CHARACTERS: usize = 500;

/// The path of `spec.suspend` in `managedFields`.
pub const SUSPEND_FIELD: [&str; 2] = ["f:spec", "f:suspend"];

/// The fields that one field manager owns: an entry of `managedFields`.
#[derive(Debug, Clone, Copy)]
pub struct ManagerOwnedFields<'o> {
    /// The field manager.
    pub manager: &'o str,
    /// Whether the field manager sets the fields by server-side apply.
    pub is_applied: bool,
    /// `fieldsV1`
    pub fields: &'o Value,
}

impl<'o> ManagerOwnedFields<'o> {
    /// Reads the value of `metadata.managedFields`, one item for each entry. There are no items if the value is absent or not a
    /// list.
    pub fn listed(entries: Option<&'o Value>) -> impl Iterator<Item = Self> {
        entries.and_then(Value::as_array).into_iter().flatten().map(|entry| Self {
            manager: entry["manager"].as_str().unwrap_or_default(),
            is_applied: entry["operation"] == "Apply",
            fields: &entry["fieldsV1"],
        })
    }

    /// Whether the field manager owns a field, such as [`SUSPEND_FIELD`].
    pub fn has(&self, path: &[&str]) -> bool {
        path.iter().try_fold(self.fields, |at, key| at.get(*key)).is_some()
    }
}

/// Whether the given field managers may end a suspension. One of them must have set `spec.suspend`, and no other manager may
/// declare that field by server-side apply.
///
/// Because of this, a hold cannot end a later suspension of another user, or one that a GitOps operator declares.
pub fn may_end_suspension<'o>(
    owners: impl IntoIterator<Item = ManagerOwnedFields<'o>>,
    is_ending: impl Fn(&str) -> bool,
) -> bool {
    let setters = owners.into_iter().filter(|it| it.has(&SUSPEND_FIELD));
    let (ending, others): (Vec<_>, Vec<_>) = setters.partition(|it| is_ending(it.manager));
    !ending.is_empty() && !others.iter().any(|it| it.is_applied)
}

/// A suspension with an owner, a reason or an end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectHold {
    by: Option<String>,
    reason: Option<String>,
    until: HoldEnd,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum HoldEnd {
    Resumed,
    At(Time),
    /// The end cannot be read, so the hold does not end by itself.
    Malformed(String),
    /// The end belongs to another suspension, so the present suspension does not end.
    OfAnother(Time),
}

impl ObjectHold {
    /// Reads the hold from the annotations of an object and its `managedFields`; `None` if it has no annotation of a hold.
    ///
    /// An end is valid only if its field manager has also set `spec.suspend` ([`may_end_suspension`]). If another program
    /// resumes the object, the annotation remains, and it must not end a later suspension.
    pub fn of<'o>(
        annotation: impl Fn(&str) -> Option<&'o str>,
        owners: impl IntoIterator<Item = ManagerOwnedFields<'o>>,
    ) -> Option<Self> {
        let [by, reason, until] = [SUSPENDED_BY, SUSPENDED_REASON, SUSPENDED_UNTIL];
        let hold = Self::parse(annotation(by), annotation(reason), annotation(until))?;
        let HoldEnd::At(time) = hold.until else { return Some(hold) };
        let owners: Vec<ManagerOwnedFields<'o>> = owners.into_iter().collect();
        let field = format!("f:{SUSPENDED_UNTIL}");
        let path = ["f:metadata", "f:annotations", field.as_str()];
        let is_ending =
            |manager: &str| owners.iter().any(|it| it.manager == manager && it.has(&path));
        match may_end_suspension(owners.iter().copied(), is_ending) {
            true => Some(hold),
            false => Some(Self { until: HoldEnd::OfAnother(time), ..hold }),
        }
    }

    /// Reads the hold from the values of `windlass.dev/suspended-by`, `-reason` and `-until`, and treats its end as valid.
    /// `None` if all three are absent.
    pub fn parse(by: Option<&str>, reason: Option<&str>, until: Option<&str>) -> Option<Self> {
        by.or(reason).or(until)?;
        let shown = |text: Option<&str>| {
            let text = text.map(str::trim).filter(|text| !text.is_empty())?;
            Some(text.chars().take(MAX_TEXT_CHARACTERS).collect::<String>())
        };
        let until = match until.map(str::trim) {
            None => HoldEnd::Resumed,
            Some(text) => text.parse().map_or_else(
                |_| HoldEnd::Malformed(text.chars().take(MAX_TEXT_CHARACTERS).collect()),
                HoldEnd::At,
            ),
        };
        Some(Self { by: shown(by), reason: shown(reason), until })
    }

    /// The user who suspended the object; `None` if the hold names no user.
    pub fn owner(&self) -> Option<&str> {
        self.by.as_deref()
    }

    /// The time at which the hold ends; `None` if it has no valid end.
    pub fn expires_at(&self) -> Option<Time> {
        match self.until {
            HoldEnd::At(time) => Some(time),
            HoldEnd::Resumed | HoldEnd::Malformed(_) | HoldEnd::OfAnother(_) => None,
        }
    }

    /// Whether the hold has expired.
    pub fn is_expired(&self, now: Time) -> bool {
        self.expires_at().is_some_and(|at| at <= now)
    }

    /// Whether the text of a hold names the same owner as this hold. If this hold names no owner, whether the text names none.
    pub fn has_owner_of(&self, text: &str) -> bool {
        let rest = text.strip_prefix(self.head().as_str());
        rest.is_some_and(|rest| {
            rest.is_empty() || [" until ", ": ", "; "].iter().any(|it| rest.starts_with(*it))
        })
    }

    /// The beginning of the hold's text.
    fn head(&self) -> String {
        self.by.as_ref().map_or_else(|| "suspended".to_owned(), |by| format!("suspended by {by}"))
    }

    /// The name of the hold in messages, such as `the hold of alice`.
    pub fn name(&self) -> String {
        self.by.as_ref().map_or_else(|| "the hold".to_owned(), |by| format!("the hold of {by}"))
    }
}

/// Shown while the hold is in force, such as `suspended by alice until 2026-11-23T21:00:00Z: reason`.
impl std::fmt::Display for ObjectHold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.head())?;
        if let HoldEnd::At(time) = &self.until {
            write!(f, " until {}", crate::time::whole_seconds(*time))?;
        }
        if let Some(reason) = &self.reason {
            write!(f, ": {reason}")?;
        }
        if let HoldEnd::Malformed(text) = &self.until {
            write!(
                f,
                "; windlass.dev/suspended-until `{text}` is not a time such as 2026-11-23T21:00:00Z, so the \
                 suspension does not expire"
            )?;
        }
        if let HoldEnd::OfAnother(time) = &self.until {
            write!(
                f,
                "; windlass.dev/suspended-until {} was not set by the field manager that set spec.suspend, so the suspension \
                 does not expire",
                crate::time::whole_seconds(*time)
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn time(text: &str) -> Time {
        text.parse().unwrap()
    }

    #[test]
    fn a_hold_says_who_until_when_and_why() {
        let text = |by, reason, until| ObjectHold::parse(by, reason, until).unwrap().to_string();
        let until = Some("2026-11-23T22:00:00.5+01:00");
        assert_eq!(
            text(Some("alice"), Some("migration"), until),
            "suspended by alice until 2026-11-23T21:00:00Z: migration"
        );
        assert_eq!(text(None, Some("migration"), None), "suspended: migration");
        assert_eq!(text(Some(" "), None, until), "suspended until 2026-11-23T21:00:00Z");
        assert!(ObjectHold::parse(None, None, None).is_none());
    }

    #[test]
    fn the_text_of_a_hold_tells_whether_another_one_has_the_same_owner() {
        let hold = |by, reason, until| ObjectHold::parse(by, reason, until).unwrap();
        let until = Some("2026-11-23T21:00:00Z");
        let alice = hold(Some("alice"), Some("rollback to revision 3"), None);
        let unknown = hold(None, Some("rollback to revision 3"), None);
        for (reason, until) in
            [(None, None), (Some("migration"), None), (None, until), (None, Some("soon"))]
        {
            let text = hold(Some("alice"), reason, until).to_string();
            assert!(alice.has_owner_of(&text) && !unknown.has_owner_of(&text), "{text}");
            let text = hold(Some("alice2"), reason, until).to_string();
            assert!(!alice.has_owner_of(&text), "{text}");
        }
        assert!(unknown.has_owner_of("suspended: migration"));
        assert!(!alice.has_owner_of("suspended: migration"));
    }

    #[test]
    fn a_hold_ends_at_its_time_and_not_before() {
        let hold = ObjectHold::parse(Some("alice"), None, Some("2026-11-23T21:00:00Z")).unwrap();
        assert!(!hold.is_expired(time("2026-11-23T20:59:59.999Z")));
        assert!(hold.is_expired(time("2026-11-23T21:00:00Z")));
        assert_eq!(hold.name(), "the hold of alice");
    }

    #[test]
    fn a_time_that_cannot_be_read_holds_for_ever_and_is_said() {
        for until in ["tomorrow", "", "2026-11-23", "2026-11-23T21:00:00"] {
            let hold = ObjectHold::parse(Some("alice"), None, Some(until)).unwrap();
            assert!(!hold.is_expired(Time::MAX), "{until}");
            assert!(hold.to_string().contains(&format!("`{until}` is not a time")), "{hold}");
        }
    }

    const CLI_MANAGER: &str = "windlass-cli";

    /// The fields that a field manager owns, of `spec.suspend` and the end.
    fn entry(manager: &str, operation: &str, suspends: bool, ends: bool) -> Value {
        let mut fields = json!({"f:spec": {"f:interval": {}}, "f:metadata": {"f:annotations": {}}});
        if suspends {
            fields["f:spec"]["f:suspend"] = json!({});
        }
        if ends {
            fields["f:metadata"]["f:annotations"]["f:windlass.dev/suspended-until"] = json!({});
        }
        json!({"manager": manager, "operation": operation, "fieldsV1": fields})
    }

    fn hold(entries: &Value) -> ObjectHold {
        let until = |key: &str| (key == SUSPENDED_UNTIL).then_some("2026-11-23T21:00:00Z");
        ObjectHold::of(until, ManagerOwnedFields::listed(Some(entries))).unwrap()
    }

    #[test]
    fn an_end_counts_only_from_the_field_manager_that_set_the_suspension() {
        let is_ended = |entries: Value| hold(&entries).is_expired(Time::MAX);
        // As `windlass suspend` leaves it, also where it is extended in another version of the API.
        assert!(is_ended(json!([entry(CLI_MANAGER, "Update", true, true)])));
        assert!(is_ended(json!([
            entry(CLI_MANAGER, "Update", true, false),
            entry(CLI_MANAGER, "Update", false, true),
            entry("flux", "Update", false, false),
        ])));
        // All of it is in a manifest.
        assert!(is_ended(json!([entry("kustomize-controller", "Apply", true, true)])));
        // Resumed and suspended by another program, which does not know the annotation.
        for manager in ["flux", "kubectl-patch"] {
            let later =
                [entry(CLI_MANAGER, "Update", false, true), entry(manager, "Update", true, false)];
            assert!(!is_ended(json!(later)), "{manager}");
        }
        // A manifest that declares the suspension: with a hold of another field manager beside it, before it, or alone.
        let declared = entry("kustomize-controller", "Apply", true, false);
        assert!(!is_ended(json!([declared, entry("kubectl-annotate", "Update", false, true)])));
        assert!(!is_ended(json!([declared, entry(CLI_MANAGER, "Update", true, true)])));
        // Taken out of the manifest again, the hold is what remains.
        let undeclared = entry("kustomize-controller", "Apply", false, false);
        assert!(is_ended(json!([undeclared, entry(CLI_MANAGER, "Update", true, true)])));
        // The owners of the fields are not known.
        assert!(!is_ended(json!([])));
        assert!(!is_ended(json!([entry(CLI_MANAGER, "Update", false, true)])));
    }

    #[test]
    fn an_end_that_does_not_count_is_not_shown_as_one() {
        let later = json!([
            entry(CLI_MANAGER, "Update", false, true),
            entry("flux", "Update", true, false)
        ]);
        let hold = hold(&later);
        assert_eq!(hold.expires_at(), None);
        assert_eq!(
            hold.to_string(),
            "suspended; windlass.dev/suspended-until 2026-11-23T21:00:00Z was not set by the field manager that set \
             spec.suspend, so the suspension does not expire"
        );
    }

    #[test]
    fn long_strings_are_cut() {
        let hold =
            ObjectHold::parse(Some(&"ä".repeat(9000)), Some(&"ö".repeat(9000)), None).unwrap();
        assert!(hold.to_string().chars().count() < 1100);
    }
}
