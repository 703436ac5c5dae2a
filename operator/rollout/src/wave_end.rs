//! Notices that the appliers of a wave which took an artifact have come to their end, so that the next wave begins at once.
//!
//! A pass reads all appliers of all rollouts. This reads only those that the last pass waited for. Elsewhere: the progress of
//! an applier (`observed_appliers`).

use std::time::Duration;

use crds::Artifact;
use reconcile::Time;
use rollout::wave_decision::MemberProgress;

use windlass_runtime::run_context::RunContext;

use super::observed_appliers::ObservedApplier;

/// How often the appliers are read.
const WAVE_END_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The appliers of one source that took its artifact and had not come to their end in the last pass.
#[derive(Debug)]
pub(crate) struct AppliersTakingArtifact {
    pub(crate) artifact: Artifact,
    pub(crate) appliers: Vec<ObservedApplier>,
}

impl AppliersTakingArtifact {
    /// Whether all of them have come to their end since then. False if there were none. `newest` reads an applier.
    fn have_ended(
        &self,
        newest: impl Fn(&ObservedApplier) -> Option<ObservedApplier>,
        now: Time,
    ) -> bool {
        let has_ended = |applier: ObservedApplier| {
            !matches!(
                applier.progress(&self.artifact, now),
                MemberProgress::UnderWay | MemberProgress::Pending { .. }
            )
        };
        // The last ones usually end last, and one that has not ended decides.
        !self.appliers.is_empty()
            && self.appliers.iter().rev().all(|it| newest(it).is_none_or(has_ended))
    }
}

/// Waits until all appliers that took the artifact of one of these sources have come to their end.
pub(crate) async fn ended(context: &RunContext, taking: &[AppliersTakingArtifact]) {
    let has_ended = |of_source: &AppliersTakingArtifact| {
        of_source.have_ended(|it| it.newest(context), jiff::Timestamp::now())
    };
    while !taking.iter().any(has_ended) {
        tokio::time::sleep(WAVE_END_CHECK_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::super::observed_appliers::tests::{applier, artifact};
    use super::*;

    #[test]
    fn a_wave_has_ended_once_no_applier_takes_the_artifact_any_more() {
        let old = || applier("1", "True", false, "");
        let taking =
            AppliersTakingArtifact { artifact: artifact("2"), appliers: vec![old(), old()] };
        let ended =
            |now: Option<ObservedApplier>| taking.have_ended(|_| now.clone(), Time::UNIX_EPOCH);
        assert!(!ended(Some(old())));
        assert!(!ended(Some(applier("2", "Unknown", false, "sha256:2"))));
        assert!(ended(Some(applier("2", "True", false, "sha256:2"))));
        assert!(ended(Some(applier("2", "False", false, "sha256:2"))), "it failed");
        assert!(ended(None), "they are gone");
        let none = AppliersTakingArtifact { artifact: artifact("2"), appliers: Vec::new() };
        assert!(!none.have_ended(|_| None, Time::UNIX_EPOCH));
    }
}
