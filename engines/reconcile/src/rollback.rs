//! Rollbacks that a person asks for by annotation.
//!
//! Here: [`Rollback`], from the text of the annotation. Elsewhere: when it is done (engine `release`).

use std::fmt;

/// The annotation that asks a suspended object to roll a release back.
pub const ROLLBACK: &str = "windlass.dev/rollback";
/// The annotation that says who asked last for a rollback or a reconciliation, or resumed the object.
pub const REQUESTED_BY: &str = "windlass.dev/requested-by";
/// The annotation that says why.
pub const REQUESTED_REASON: &str = "windlass.dev/requested-reason";

/// A release goes back from its newest revision to an earlier one.
///
/// It is asked for only as long as `from` is the newest revision, so it is done once, and not at all where something else
/// was done meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rollback {
    /// The newest revision.
    pub from: i64,
    /// The revision whose manifest is applied again.
    pub to: i64,
}

impl Rollback {
    /// What the annotation asks of the release: `5->3`; of an object with several releases, it begins with the full name of one
    /// of them: `apps/web:5->3`. `None` if it asks nothing of this one.
    pub fn of(annotation: &str, release: Option<&str>) -> Option<Self> {
        let revisions = match release {
            None => annotation,
            Some(release) => annotation.strip_prefix(release)?.strip_prefix(':')?,
        };
        let (from, to) = revisions.split_once("->")?;
        let [from, to] = [from, to].map(|it| it.parse::<i64>().ok().filter(|it| *it > 0));
        Some(Self { from: from?, to: to? }).filter(|it| it.to < it.from)
    }

    /// The annotation that asks for it.
    pub fn annotation(&self, release: Option<&str>) -> String {
        release.map_or_else(|| self.to_string(), |release| format!("{release}:{self}"))
    }
}

impl fmt::Display for Rollback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}->{}", self.from, self.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_annotation_names_both_revisions_and_the_release_where_there_are_several() {
        let wanted = Rollback { from: 5, to: 3 };
        for release in [None, Some("apps/web"), Some("arn:aws:eks:eu:1:cluster/a/apps/web")] {
            assert_eq!(Rollback::of(&wanted.annotation(release), release), Some(wanted));
        }
        assert_eq!(wanted.annotation(Some("apps/web")), "apps/web:5->3");
        assert_eq!(Rollback::of("apps/web:5->3", Some("apps/api")), None);
        assert_eq!(Rollback::of("apps/web:5->3", None), None);
        assert_eq!(Rollback::of("5->3", Some("apps/web")), None);
    }

    #[test]
    fn what_is_no_rollback_asks_for_nothing() {
        for text in ["", "3", "5->", "->3", "5->5", "3->5", "5->0", "5->-1", "a->b", "5 -> 3"] {
            assert_eq!(Rollback::of(text, None), None, "{text}");
        }
    }
}
