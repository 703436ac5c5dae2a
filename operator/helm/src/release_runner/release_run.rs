//! A run of one release. It performs the engine's steps until the run has an outcome, and leaves state to the next run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apply::contested_object_corrections::ContestedObjectCorrections;
use apply::unanswered_writes::UnansweredWrites;
use objects::ObjectId;
use parking_lot::{Mutex, MutexGuard};
use reconcile::{DependencyEdge, NextRunTrigger, ObjectKey, RefusedAttempts, RunOutcome, Time};
use release::HelmReleasePlanner;
use release::status::{DRIFT_CORRECTION_FAILED, STATE_ERROR};

use super::executor::ReleaseExecutor;
use super::hook_watch::HookWatch;
use super::quarantined_releases::FailedReleaseRecords;
use super::storage::ReleaseStorage;
use super::{DesiredRelease, ReleaseStatusOwner};
use windlass_cluster::run_permits::PermitPriority;
use windlass_runtime::applier_run::WaitObservation;
use windlass_runtime::approval_plan::BUDGET_EXCEEDED;
use windlass_runtime::approval_plan::change_approval::PLAN_PENDING;
use windlass_runtime::cluster_target::ClusterTarget;
use windlass_runtime::run_context::RunContext;

/// The state of a release that this process keeps between runs. State that must survive a crash is in the records and the
/// journal.
#[derive(Default)]
pub struct ReleaseRunnerState(Mutex<ReleaseStateBetweenRuns>);

#[derive(Default)]
struct ReleaseStateBetweenRuns {
    /// The wait of the last run.
    wait: Option<PendingReleaseWait>,
    /// The watch of the hook that is due.
    hook_watch: Option<Arc<HookWatch>>,
    /// Whether an operation is under way, as far as this process knows.
    under_way: Option<bool>,
    /// Objects that another manager changes again and again.
    contests: Arc<Mutex<ContestedObjectCorrections>>,
    /// Corrections of drift that the API server did not answer.
    unanswered: Arc<Mutex<UnansweredWrites>>,
    /// Runs that failed in a row.
    retries: RefusedAttempts,
}

/// The results of a waiting run that the next one uses.
struct PendingReleaseWait {
    /// The identity of the desired state. The wait is not valid for any other.
    desired_identity: String,
    observation: WaitObservation,
    /// Objects that were ready while others were awaited, with their resourceVersions at that time.
    healthy: BTreeMap<ObjectId, u64>,
    records: Option<Arc<ReleaseStorage>>,
}

impl ReleaseRunnerState {
    fn of(&self) -> MutexGuard<'_, ReleaseStateBetweenRuns> {
        self.0.lock()
    }

    /// The last observation while the release waits for its objects. `None` if no wait is in progress.
    pub(crate) fn observation(&self) -> Option<WaitObservation> {
        self.of().wait.as_ref().map(|wait| wait.observation)
    }

    /// Whether an operation is under way, as far as this process knows; `None` if it does not know.
    pub fn under_way(&self) -> Option<bool> {
        self.of().under_way
    }

    /// Notes whether an operation is under way, by the journal.
    pub(crate) fn set_under_way(&self, is_under_way: bool) {
        self.of().under_way = Some(is_under_way);
    }

    /// Delays the next run after failures that do not count as a failed release (`StateError`, `DriftCorrectionFailed`).
    /// `again` is the time of the next run.
    fn with_backoff(
        &self,
        outcome: RunOutcome,
        is_asked: bool,
        again: impl FnOnce(&mut RefusedAttempts) -> Time,
    ) -> RunOutcome {
        let mut state = self.of();
        if is_asked {
            state.retries.end();
        }
        match outcome {
            RunOutcome::Failed(why @ (STATE_ERROR | DRIFT_CORRECTION_FAILED), text, _) => {
                RunOutcome::Failed(why, text, NextRunTrigger::at(again(&mut state.retries)))
            }
            // A failure to reach the API server says nothing about the requests that it refused before.
            RunOutcome::Failed(..) => outcome,
            _ => {
                state.retries.end();
                outcome
            }
        }
    }

    /// Ends the contests about objects of a suspended release.
    pub fn end_contests(&self) {
        self.of().contests.lock().end_all();
    }

    /// Ends the watch of a hook, because the release does not wait any more.
    pub(crate) fn waits_no_more(&self) {
        self.of().hook_watch = None;
    }
}

/// The result of a run.
pub struct ReleaseRunnerReport {
    /// The outcome, with the triggers of the next run.
    pub outcome: RunOutcome,
    /// The current step of the operation in progress, as text.
    pub running: Option<String>,
    /// Whether the operation waits for objects or a hook, so that the next run only has to observe them.
    pub(crate) is_waiting: bool,
    /// Facts from the records of a release that has failed as often as it may.
    pub(crate) records: FailedReleaseRecords,
    /// The digest of the versions of the records. `None` if the versions do not stand for the content.
    pub(crate) record_versions: Option<String>,
    /// Whether the API server did not answer. Then other releases in the same cluster need not try.
    pub is_unanswered: bool,
}

/// Runs a release at a target: performs the steps of the engine until there is an outcome. `None` if the owner changed
/// meanwhile.
///
/// `node` is the release in the graph of objects, under which its objects are watched and which they wake. `memory` is the
/// state of the same release at the same target. Unless the outcome is settled, [`ReleaseStatusOwner::settle`] was called by
/// the end.
pub async fn drive<O: ReleaseStatusOwner>(
    context: &Arc<RunContext>,
    target: &Arc<ClusterTarget>,
    node: &ObjectKey,
    owner: &Arc<O>,
    desired_release: &Arc<DesiredRelease>,
    memory: &ReleaseRunnerState,
) -> Option<ReleaseRunnerReport> {
    target.watcher().begins_observing(node);
    let priority =
        if memory.of().wait.is_some() { PermitPriority::Resume } else { PermitPriority::New };
    let permit = target.applying().run_permit_in(priority, &node.namespace).await;
    desired_release.preparing.end();
    let (contests, unanswered) = {
        let memory = memory.of();
        (memory.contests.clone(), memory.unanswered.clone())
    };
    let executor = ReleaseExecutor {
        context: context.clone(),
        target: target.clone(),
        permit,
        node: node.clone(),
        owner: owner.clone(),
        desired_release: desired_release.clone(),
        contests,
        unanswered,
        known: Mutex::default(),
    };
    let desired = &desired_release.desired;
    let desired_identity = format!("{} {} {}", desired.owner, desired.inputs, desired.generation);
    let (wait, hook_watch) = {
        let mut memory = memory.of();
        (
            memory.wait.take().filter(|it| it.desired_identity == desired_identity),
            memory.hook_watch.take(),
        )
    };
    let before = wait.as_ref().map(|it| it.observation);
    if let Some(wait) = wait {
        executor.resume(wait.healthy, wait.records);
    }
    executor.known().hook_watch = hook_watch;
    if !desired_release.is_observed() {
        target.watcher().release_objects(node);
    }
    let (_, outcome) =
        reconcile::drive::<HelmReleasePlanner>(&desired_release.desired, &executor).await;
    let hook_watch = executor.known().hook_watch.take();
    let is_hook_watched = hook_watch.as_ref().is_some_and(|it| it.wakes());
    {
        let mut memory = memory.of();
        (memory.hook_watch, memory.under_way) = (hook_watch, executor.known().under_way);
    }
    let outcome = match outcome.is_settled() {
        true => executor.dismiss_plans(outcome).await,
        false => owner.settle().await.err().unwrap_or(outcome),
    };
    if executor.is_outdated() {
        return None;
    }
    let outcome = memory.with_backoff(outcome, owner.is_asked(), |retries| {
        let now = jiff::Timestamp::now();
        let seed = reconcile::seed(&desired.owner);
        retries.refused(&desired_identity, now, desired.retry, desired.interval, seed)
    });
    // Another owner, missing rights and a budget are not objects of the target, so they are no dependencies.
    let waits = match &outcome {
        RunOutcome::Blocked(_, _, wake) => wake.on.clone(),
        RunOutcome::Failed(..) | RunOutcome::Running(BUDGET_EXCEEDED | PLAN_PENDING, ..) => {
            executor.lacked()
        }
        _ => BTreeSet::new(),
    };
    context.work_queue.set_edges(node, DependencyEdge::Waits, waits);
    let awaited = outcome.wake().map(|wake| executor.awaited(wake)).unwrap_or_default();
    target.watcher().await_objects(node, &awaited);
    let is_waiting =
        matches!(outcome, RunOutcome::Running(..)) && (is_hook_watched || !awaited.is_empty());
    if is_waiting {
        let (healthy, records) = executor.left();
        let observation = WaitObservation::again(before);
        memory.of().wait =
            Some(PendingReleaseWait { desired_identity, observation, healthy, records });
    }
    let is_unanswered = !outcome.is_settled() && executor.is_unanswered();
    let records = executor.failed_records(&outcome);
    let record_versions = executor.record_versions();
    let running = executor.running();
    Some(ReleaseRunnerReport {
        outcome,
        running,
        is_waiting,
        records,
        record_versions,
        is_unanswered,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use reconcile::condition_reason;
    use release::status::RECONCILE_ERROR;

    use super::*;

    #[test]
    fn a_correction_that_fails_is_repeated_less_and_less_often() {
        let memory = ReleaseRunnerState::default();
        let at = |second: i64| Time::from_second(1_800_000_000 + second).unwrap();
        let failed = || {
            let text = "namespace shop is being terminated".to_owned();
            RunOutcome::Failed(DRIFT_CORRECTION_FAILED, text, NextRunTrigger::at(at(0)))
        };
        // In how many seconds a run follows on one that ended in this second.
        let next = |second: i64, outcome: RunOutcome, is_asked: bool| {
            let outcome = memory.with_backoff(outcome, is_asked, |retries| {
                let [retry, interval] = [1, 600].map(Duration::from_secs);
                retries.refused("a", at(second), retry, interval, 1)
            });
            let wake = outcome.wake().and_then(NextRunTrigger::earliest);
            wake.map_or(0., |wake| wake.duration_since(at(second)).as_secs_f64())
        };
        let is_about = |delay: f64, nominal: f64| (delay - nominal).abs() <= nominal * 0.11;
        for (second, nominal) in [(0, 1.), (10, 2.), (20, 4.), (30, 8.)] {
            let delay = next(second, failed(), false);
            assert!(is_about(delay, nominal), "{delay}");
        }
        // An API server that does not answer neither ends that nor is waited for as long.
        let silent = RunOutcome::Failed(RECONCILE_ERROR, String::new(), NextRunTrigger::at(at(52)));
        assert!(is_about(next(50, silent, false), 2.));
        assert!(is_about(next(60, failed(), false), 16.));
        assert!(is_about(next(100, failed(), true), 1.), "a user asks");
        next(110, RunOutcome::Settled(condition_reason::SUCCEEDED, String::new()), false);
        assert!(is_about(next(120, failed(), false), 1.), "it was well since");
    }
}
