//! Decides whether a source has to be fetched, in the same way for every kind of source.
//!
//! Here: the decision. Elsewhere: asking the remote and fetching (one module a protocol), the store.

use std::collections::BTreeMap;

use reconcile::{ConditionReason, PlannerDecision, ReconcilePlanner, RunOutcome};
use serde_json::Value;

/// The marker type for the decisions of a run of a source.
pub struct SourceFetchPlanner;

/// The fields of the spec that change the content of an artifact, by name. A change of one makes a new artifact of the
/// same revision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArtifactInputs(BTreeMap<&'static str, Value>);

impl ArtifactInputs {
    /// Adds the value of a field, unless it is absent, false, an empty text or an empty list.
    #[must_use]
    pub fn with(mut self, field: &'static str, value: impl Into<Value>) -> Self {
        let value = value.into();
        if !says_nothing(&value) {
            self.0.insert(field, value);
        }
        self
    }

    /// The value of a field. `None` if the field is empty.
    #[must_use]
    pub fn get(&self, field: &str) -> Option<&Value> {
        self.0.get(field)
    }
}

/// Whether a value in a spec or a status means that the field is not set: null, false, an empty text, an empty list.
pub(crate) fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::Object(_) => false,
    }
}

/// The desired state of the artifact of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactDesiredState {
    /// The fields of the spec that change the archive.
    pub shape: ArtifactInputs,
}

/// The state of the remote and of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactObservedState {
    /// Revision that the remote has now.
    pub remote: String,
    /// The stored artifact, if its file exists and has its digest.
    pub kept: Option<KeptArtifact>,
    /// The reason and the message of `Ready` when both agree.
    pub settled: (ConditionReason, String),
}

/// An artifact whose bytes can be fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptArtifact {
    /// Revision that it was made from.
    pub revision: String,
    /// The inputs from which the artifact was made.
    pub shape: ArtifactInputs,
}

/// The next step of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceFetchStep {
    /// Fetch the present revision of the remote, pack it and store it.
    Fetch {
        /// The revision that made it necessary.
        revision: String,
    },
}

impl ReconcilePlanner for SourceFetchPlanner {
    type DesiredState = ArtifactDesiredState;
    type ObservedState = ArtifactObservedState;
    type PlanStep = SourceFetchStep;

    fn plan(
        desired: &ArtifactDesiredState,
        observed: &ArtifactObservedState,
    ) -> PlannerDecision<SourceFetchStep> {
        match &observed.kept {
            Some(kept) if kept.revision == observed.remote && kept.shape == desired.shape => {
                let (reason, text) = observed.settled.clone();
                PlannerDecision::Outcome(RunOutcome::Settled(reason, text))
            }
            Some(_) | None => PlannerDecision::Act(vec![SourceFetchStep::Fetch {
                revision: observed.remote.clone(),
            }]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reconcile::condition_reason::SUCCEEDED;
    use serde_json::json;

    fn acts(remote: &str, kept: Option<(&str, &ArtifactInputs)>, shape: &ArtifactInputs) -> bool {
        let kept = kept.map(|(revision, shape)| KeptArtifact {
            revision: revision.to_owned(),
            shape: shape.clone(),
        });
        let settled = (SUCCEEDED, "stored".to_owned());
        let observed =
            ArtifactObservedState { remote: remote.to_owned(), kept, settled: settled.clone() };
        let desired = ArtifactDesiredState { shape: shape.clone() };
        match SourceFetchPlanner::plan(&desired, &observed) {
            PlannerDecision::Act(_) => true,
            PlannerDecision::Outcome(outcome) => {
                assert_eq!(outcome, RunOutcome::Settled(settled.0, settled.1));
                false
            }
        }
    }

    #[test]
    fn only_a_new_revision_another_shape_or_lost_bytes_are_fetched() {
        let plain = ArtifactInputs::default();
        let one = "main@sha1:1";
        assert!(acts(one, None, &plain));
        assert!(!acts(one, Some((one, &plain)), &plain));
        assert!(acts("main@sha1:2", Some((one, &plain)), &plain));
        let include = |digest: &str| json!([{"name": "lib", "digest": digest}]);
        let shapes = [
            ArtifactInputs::default().with("ignore", "*.md"),
            ArtifactInputs::default().with("recurseSubmodules", true),
            ArtifactInputs::default().with("sparseCheckout", vec!["app"]),
            ArtifactInputs::default().with("include", include("sha256:1")),
            ArtifactInputs::default().with("include", include("sha256:2")),
        ];
        for (number, shape) in shapes.iter().enumerate() {
            for other in shapes[..number].iter().chain([&plain]) {
                assert!(acts(one, Some((one, other)), shape), "{shape:?} {other:?}");
            }
            assert!(!acts(one, Some((one, shape)), shape), "{shape:?}");
        }
    }

    #[test]
    fn what_says_nothing_is_as_if_it_were_absent() {
        let shape =
            ArtifactInputs::default().with("a", None::<String>).with("b", false).with("c", "");
        assert_eq!(shape.with("d", Vec::<String>::new()), ArtifactInputs::default());
    }
}
