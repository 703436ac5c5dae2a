//! Notices that the appliers of a wave which took an artifact have come to their end, so that the next wave begins at once.
//!
//! A pass reads all appliers of all rollouts. This reads only those that the last pass waited for. Elsewhere: the progress of
//! an applier (`observed_appliers`).

use std::time::{Duration, Instant};

use crds::Artifact;
use reconcile::Time;
use rollout::wave_decision::MemberProgress;

use windlass_runtime::run_context::RunContext;

use super::WAVE_END_REST_FACTOR;
use super::observed_appliers::ObservedApplier;

/// How often the appliers are read, if that takes little time.
const WAVE_END_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The appliers of one source that took its artifact and had not come to their end in the last pass. There is at least one.
#[derive(Debug)]
pub(crate) struct AppliersTakingArtifact {
    pub(crate) artifact: Artifact,
    pub(crate) appliers: Vec<ObservedApplier>,
}

impl AppliersTakingArtifact {
    /// The place of the last applier at or before `from` that has not come to its end. `None` if all of these have. `newest`
    /// reads an applier.
    fn blocker(
        &self,
        from: usize,
        newest: impl Fn(&ObservedApplier) -> Option<ObservedApplier>,
        now: Time,
    ) -> Option<usize> {
        let is_on_the_way = |applier: ObservedApplier| {
            matches!(
                applier.progress(&self.artifact, now),
                MemberProgress::UnderWay | MemberProgress::Pending { .. }
            )
        };
        (0..=from)
            .rev()
            .find(|place| self.appliers.get(*place).and_then(&newest).is_some_and(is_on_the_way))
    }
}

/// The rest after a check. It limits the checks to a tenth of a core.
fn rest_after(check: Duration) -> Duration {
    check.saturating_mul(WAVE_END_REST_FACTOR).max(WAVE_END_CHECK_INTERVAL)
}

/// Waits until all appliers that took the artifact of one of these sources have come to their end. Does not end if there are no
/// sources.
pub(crate) async fn ended(context: &RunContext, taking: &[AppliersTakingArtifact]) {
    if taking.is_empty() {
        return std::future::pending().await;
    }
    // The last ones usually end last, and one that has not ended decides, so the next check begins there.
    let mut blockers: Vec<usize> =
        taking.iter().map(|it| it.appliers.len().saturating_sub(1)).collect();
    loop {
        let began = Instant::now();
        let now = jiff::Timestamp::now();
        let has_ended = taking.iter().zip(&mut blockers).any(|(of_source, blocker)| {
            let Some(place) = of_source.blocker(*blocker, |it| it.newest(context), now) else {
                return true;
            };
            *blocker = place;
            false
        });
        if has_ended {
            return;
        }
        tokio::time::sleep(rest_after(began.elapsed())).await;
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
        let blocker =
            |now: Option<ObservedApplier>| taking.blocker(1, |_| now.clone(), Time::UNIX_EPOCH);
        assert_eq!(blocker(Some(old())), Some(1));
        assert_eq!(blocker(Some(applier("2", "Unknown", false, "sha256:2"))), Some(1));
        assert_eq!(blocker(Some(applier("2", "True", false, "sha256:2"))), None);
        assert_eq!(blocker(Some(applier("2", "False", false, "sha256:2"))), None, "it failed");
        assert_eq!(blocker(None), None, "they are gone");
    }

    #[test]
    fn a_check_begins_with_the_applier_that_had_not_ended_and_a_slow_one_rests_longer() {
        let old = || applier("1", "True", false, "");
        let taking =
            AppliersTakingArtifact { artifact: artifact("2"), appliers: vec![old(), old(), old()] };
        let reads = std::cell::Cell::new(0);
        let newest = |it: &ObservedApplier| {
            reads.set(reads.get() + 1);
            Some(it.clone())
        };
        assert_eq!(taking.blocker(1, newest, Time::UNIX_EPOCH), Some(1));
        assert_eq!(reads.get(), 1);
        assert_eq!(rest_after(Duration::from_millis(1)), WAVE_END_CHECK_INTERVAL);
        assert_eq!(rest_after(Duration::from_millis(10)), Duration::from_millis(90));
    }
}
