//! Decides whether a rollback to the last good result helps.
//!
//! A rollback restores only the source. If a Secret, a ConfigMap or the spec differs from the last good result, an older
//! revision together with it would be a combination that was never tested. It would also hide the cause of the failure.

use crate::build_inputs_record::BuildInputsRecord;
use crate::on_failure_annotation::OnFailurePolicy;

/// Why there is no rollback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoRollbackReason {
    /// The user chose `Hold` in the annotation.
    Requested,
    /// There was no good result before, or its inputs are unknown.
    NoLastGood,
    /// The spec is another.
    Spec,
    /// The content of a Secret or ConfigMap changed. The list names all that the build reads.
    Inputs(Vec<String>),
    /// The spec, the inputs and the source are all unchanged.
    NothingDiffers,
    /// The spec of the release does not undo its last failure.
    NotUndone,
}

impl NoRollbackReason {
    /// The cause as a text for users.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Requested => "annotation windlass.dev/on-failure says Hold".to_owned(),
            Self::NoLastGood => "no result is known that was applied and healthy before".to_owned(),
            Self::Spec => {
                "the spec differs from that of the last good result; correct the spec".to_owned()
            }
            Self::Inputs(read) => format!(
                "what is read beside the source differs from the last good result: {}; correct it there",
                read.join(", ")
            ),
            Self::NotUndone => "the spec of the release does not undo its last failure, or that failed".to_owned(),
            Self::NothingDiffers => {
                "the source, the spec and what they read are those of the last good result, so the cause is elsewhere"
                    .to_owned()
            }
        }
    }
}

/// The reaction to a failed result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FailureConsequence {
    /// The result is quarantined, and this earlier result is applied.
    RollBack(BuildInputsRecord),
    /// The result is quarantined, and nothing is applied.
    Hold(Vec<NoRollbackReason>),
}

/// Decides the reaction to a failed result that is to be quarantined. `read` names the Secrets and ConfigMaps that the build
/// reads.
#[must_use]
pub fn consequence(
    asked: OnFailurePolicy,
    failed: &BuildInputsRecord,
    last_good: Option<&BuildInputsRecord>,
    read: &[String],
) -> FailureConsequence {
    if asked != OnFailurePolicy::RollBack {
        return FailureConsequence::Hold(vec![NoRollbackReason::Requested]);
    }
    let Some(good) = last_good else {
        return FailureConsequence::Hold(vec![NoRollbackReason::NoLastGood]);
    };
    let mut causes = Vec::new();
    if failed.spec != good.spec {
        causes.push(NoRollbackReason::Spec);
    }
    if failed.inputs != good.inputs {
        causes.push(NoRollbackReason::Inputs(read.to_vec()));
    }
    // Two revisions may have the same files. Then the cause of the failure is elsewhere.
    if causes.is_empty() && failed.digest == good.digest {
        causes.push(NoRollbackReason::NothingDiffers);
    }
    match causes.is_empty() {
        true => FailureConsequence::RollBack(good.clone()),
        false => FailureConsequence::Hold(causes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(of: &str) -> BuildInputsRecord {
        BuildInputsRecord {
            digest: format!("sha256:{of}"),
            revision: format!("main@sha1:{of}"),
            artifact_digest: format!("sha256:artifact-{of}"),
            artifact_path: format!("gitrepository/apps/app/{of}.tar.gz"),
            spec: "sha256:spec".to_owned(),
            inputs: "hmac-sha256:inputs".to_owned(),
            images: Vec::new(),
        }
    }

    fn of(
        asked: OnFailurePolicy,
        failed: &BuildInputsRecord,
        good: Option<&BuildInputsRecord>,
    ) -> FailureConsequence {
        consequence(asked, failed, good, &["Secret/apps/values".to_owned()])
    }

    #[test]
    fn the_source_goes_back_if_it_is_the_only_difference() {
        let good = facts("1");
        let verdict = of(OnFailurePolicy::RollBack, &facts("2"), Some(&good));
        assert_eq!(verdict, FailureConsequence::RollBack(good));
    }

    #[test]
    fn a_spec_or_a_secret_that_differs_is_named_and_nothing_goes_back() {
        let good = facts("1");
        let spec = BuildInputsRecord { spec: "sha256:other".to_owned(), ..facts("2") };
        let inputs = BuildInputsRecord { inputs: "hmac-sha256:other".to_owned(), ..facts("2") };
        let both = BuildInputsRecord { inputs: "hmac-sha256:other".to_owned(), ..spec.clone() };
        let read = NoRollbackReason::Inputs(vec!["Secret/apps/values".to_owned()]);
        for (failed, causes) in [
            (spec, vec![NoRollbackReason::Spec]),
            (inputs, vec![read.clone()]),
            (both, vec![NoRollbackReason::Spec, read.clone()]),
        ] {
            let verdict = of(OnFailurePolicy::RollBack, &failed, Some(&good));
            assert_eq!(verdict, FailureConsequence::Hold(causes));
        }
        assert!(read.text().contains("Secret/apps/values"), "{}", read.text());
        // The same revision may fail with another Secret.
        let again = BuildInputsRecord { inputs: "hmac-sha256:other".to_owned(), ..facts("1") };
        let verdict = of(OnFailurePolicy::RollBack, &again, Some(&good));
        assert_eq!(verdict, FailureConsequence::Hold(vec![read]));
    }

    #[test]
    fn the_only_revision_that_ever_was_is_held() {
        let verdict = of(OnFailurePolicy::RollBack, &facts("1"), None);
        assert_eq!(verdict, FailureConsequence::Hold(vec![NoRollbackReason::NoLastGood]));
    }

    #[test]
    fn a_result_that_equals_the_last_good_one_does_not_go_back_to_itself() {
        let other_commit = BuildInputsRecord { revision: "main@sha1:3".to_owned(), ..facts("1") };
        let verdict = of(OnFailurePolicy::RollBack, &other_commit, Some(&facts("1")));
        assert_eq!(verdict, FailureConsequence::Hold(vec![NoRollbackReason::NothingDiffers]));
    }

    #[test]
    fn hold_goes_back_nowhere() {
        for asked in [OnFailurePolicy::Hold, OnFailurePolicy::Never] {
            let verdict = of(asked, &facts("2"), Some(&facts("1")));
            assert_eq!(verdict, FailureConsequence::Hold(vec![NoRollbackReason::Requested]));
        }
    }
}
