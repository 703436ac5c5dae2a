//! Decides whether a source has to be fetched: the same for every kind of source.
//!
//! Here: the decision. Elsewhere: asking the remote and fetching (one module a protocol), the store.

use reconcile::{Kind, Rest, Verdict, reason};

/// Marks the decision of a source's run.
pub struct Fetching;

/// What the artifact of a source should be like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Desired {
    /// Rules that shape the archive besides the content: `spec.ignore`.
    pub ignore: Option<String>,
}

/// What the remote has, and what is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// Revision that the remote has now.
    pub remote: String,
    /// The artifact that is kept, if its bytes are there and are what its digest says.
    pub kept: Option<Kept>,
}

/// An artifact whose bytes can be fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Revision that it was made from.
    pub revision: String,
    /// Rules that it was made with.
    pub ignore: Option<String>,
}

/// What a run may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Fetch the remote as it is now, pack it and keep it.
    Fetch {
        /// The revision that made it necessary.
        revision: String,
    },
}

impl Kind for Fetching {
    type Desired = Desired;
    type Observed = Observed;
    type Step = Step;

    fn plan(desired: &Desired, observed: &Observed) -> Verdict<Step> {
        match &observed.kept {
            Some(kept) if kept.revision == observed.remote && kept.ignore == desired.ignore => {
                let text = format!("stored artifact for revision '{}'", kept.revision);
                Verdict::Rest(Rest::Settled(reason::SUCCEEDED, text))
            }
            Some(_) | None => Verdict::Act(vec![Step::Fetch { revision: observed.remote.clone() }]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(remote: &str, kept: Option<(&str, Option<&str>)>, ignore: Option<&str>) -> bool {
        let kept = kept.map(|(revision, ignore)| Kept {
            revision: revision.to_owned(),
            ignore: ignore.map(str::to_owned),
        });
        let observed = Observed { remote: remote.to_owned(), kept };
        let desired = Desired { ignore: ignore.map(str::to_owned) };
        matches!(Fetching::plan(&desired, &observed), Verdict::Act(_))
    }

    #[test]
    fn only_a_new_revision_other_rules_or_lost_bytes_are_fetched() {
        assert!(plan("main@sha1:1", None, None));
        assert!(!plan("main@sha1:1", Some(("main@sha1:1", None)), None));
        assert!(plan("main@sha1:2", Some(("main@sha1:1", None)), None));
        assert!(plan("main@sha1:1", Some(("main@sha1:1", None)), Some("*.md")));
    }
}
