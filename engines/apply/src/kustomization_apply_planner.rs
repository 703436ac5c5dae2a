//! The decision of one run: which writes come next, or the outcome of the run.
//!
//! ```text
//!   observe a stage ─ refused? ─ Record ─ Apply ─ wait for CRDs and classes ─┐
//!         ▲                                                                         │
//!         └────────────────────────── next stage ───────────────────────────────────┤
//!                                                Shrink ─ Prune ─ Shrink ─ health ◄─┘
//! ```
//!
//! Where a result that fails is rolled back, health comes first: the result before it may need what would be pruned.
//!
//! Here: the desired state, the run, the steps, [`KustomizationApplyPlanner`]. Waiting for health is in
//! `plan/health_wait.rs`. Elsewhere: dry-runs, writes and status (the program), judging one object's health
//! ([`crate::health`]).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use objects::ObjectId;
use reconcile::{
    NextRunTrigger, ObjectKey, PlanVerdict, ReconcilePlanner, RunOutcome, Time, reason,
};
use sha2::{Digest, Sha256};

use crate::deletion_order::{DeletionPredecessors, PendingDeletions};
use crate::health::HealthReport;
use crate::{ApplyStage, ObjectInventory, dry_run_refusal};

mod health_wait;

pub(crate) use health_wait::stage_text;
pub use health_wait::{AWAITING_TERMINATION, health_text, stage_reason};
use health_wait::{HealthWaitState, node_of};

/// How many of the objects that are awaited a message names.
const MAX_NAMED_DEPENDENTS: usize = 10;

/// How often it is checked that objects which are awaited are still there, besides watching them.
const DEPENDENTS_RECHECK: Duration = Duration::from_secs(10);

/// The objects for whose health a run waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HealthWaitScope {
    /// No object's.
    None,
    /// Everything that was applied, except what is excluded by annotation and the Kustomization itself.
    All,
    /// These, applied by us or not, except the Kustomization itself.
    These(Vec<ObjectId>),
}

/// The complete desired state of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct ApplyDesiredState {
    /// The Kustomization itself, for whose health it must not wait.
    pub own: ObjectId,
    /// What to apply, from [`crate::stages()`].
    pub stages: Vec<ApplyStage>,
    /// Whether a build without a single object is meant, rather than an accident.
    ///
    /// Deleting a Kustomization is a desired state without stages for which this is true.
    pub empty_is_intended: bool,
    /// Whether objects that left the manifests are deleted; otherwise they are forgotten.
    pub prune: bool,
    /// Whether objects that left the manifests are deleted only once what is applied is healthy, because a result that fails
    /// is rolled back.
    pub prunes_after_health: bool,
    /// Whose health to wait for.
    pub health: HealthWaitScope,
    /// Whether one failed object ends the wait, even while others are on their way.
    pub fail_fast: bool,
    /// Revision of the source, for messages.
    pub revision: String,
    /// How long to wait for health.
    pub timeout: Duration,
    /// How long to wait for a stage of CRDs or classes.
    pub stage_timeout: Duration,
    /// When a failed run is repeated.
    pub retry: Duration,
}

/// The observed state of a run.
///
/// # Assumes
/// Stages are observed in order, up to the first that [`is_passed`] denies,
/// because what comes later cannot be tried before: an absent entry means "not observed", never "in sync".
/// Reads are live, and `recorded` is the last inventory that was written.
#[derive(Debug, Clone, PartialEq)]
pub struct ApplyObservedState {
    /// The time of the run.
    pub now: Time,
    /// `status.inventory`.
    pub recorded: ObjectInventory,
    /// Objects of the stages observed, and those whose health is waited for.
    pub objects: BTreeMap<ObjectId, ObservedObject>,
    /// Recorded ids that need no deleting any more: not found, deletion accepted, no longer ours,
    /// or protected from pruning.
    pub gone: BTreeSet<ObjectId>,
    /// Recorded ids whose deletion was accepted and whose removal is waited for.
    pub leaving: BTreeSet<ObjectId>,
    /// What comes before the deletion of recorded ids, of those that have predecessors.
    pub predecessors: BTreeMap<ObjectId, DeletionPredecessors>,
    /// Recorded ids whose deletion waits for the approval of a user: they stay in the cluster and in the inventory.
    pub held: BTreeSet<ObjectId>,
    /// Since when this revision has waited for health, or for the end of `leaving`; `None` before that.
    pub waiting_since: Option<Time>,
    /// Since when this revision has waited for the stage it is at; `None` before that.
    pub stage_waiting_since: Option<Time>,
    /// The wait of this revision and spec that failed last, until it is repeated.
    pub failed_wait: Option<FailedHealthWait>,
    /// This very build was applied to its end before, so what differs now is drift.
    pub is_correction: bool,
    /// Objects that another client changes again and again, with the message about it and when to run again.
    pub contested: BTreeMap<ObjectId, (String, Time)>,
}

/// A wait for health that failed, and stays so until its objects are well or it is repeated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedHealthWait {
    /// The message about it.
    pub text: String,
    /// The objects that it was about.
    pub on: BTreeSet<ObjectKey>,
    /// When it is repeated.
    pub until: Time,
}

/// One object as the run found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedObject {
    /// How it compares with its manifest.
    pub state: LiveObjectState,
    /// Its health, if the plan waits for it.
    pub health: Option<HealthReport>,
}

/// How a live object compares with its manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LiveObjectState {
    /// As it should be, or applied by this run. A change by another client after that is left to the next run, else two
    /// writers would keep a run from ever ending.
    InSync,
    /// Not there; would be created.
    Missing,
    /// Would be configured.
    Differs,
    /// An immutable field would change, and its author or the Kustomization says to recreate it.
    MustBeRecreated,
    /// Excluded by annotation.
    Skipped,
    /// A Job that expires ([`crate::managed_metadata::expires`]), was applied for this revision, and is no longer
    /// there.
    Finished,
    /// The API server refused the dry-run; the message is made by [`crate::dry_run_refusal::describe`].
    Refused(String),
    /// The CRD guard of the program refuses it, because it is incompatible with existing objects; with the message.
    Incompatible(String),
    /// Not one of our manifests: only its health is of interest.
    Unmanaged,
}

/// One change of the cluster or of the status, by ids and digests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApplyStep {
    /// Adds to the inventory in status, before anything of it is applied.
    Record {
        /// Ids with API versions.
        add: Vec<(ObjectId, String)>,
    },
    /// Applies objects of one stage, in this order.
    Apply {
        /// Which of the desired stages.
        stage: usize,
        /// What to apply.
        ids: Vec<ObjectId>,
        /// Which of them to delete, wait for, and create again.
        recreate: Vec<ObjectId>,
        /// Names the content of all manifests in `ids`.
        digest: String,
    },
    /// Deletes objects that left the manifests, in this order, where their owner labels still name us.
    Prune {
        /// Ids with the API versions they were recorded in.
        ids: Vec<(ObjectId, String)>,
    },
    /// Replaces the inventory in status; holds everything that may still be there.
    Shrink {
        /// What it becomes.
        to: ObjectInventory,
    },
}

/// Applying the objects of a Kustomization.
///
/// # Guarantees
/// After every single write, what is live and ours is in the recorded inventory.
/// Nothing of a stage is written while one of its objects is refused, unless all of it was applied before: one
/// object that cannot be compared does not keep the drift of others.
/// Nothing is deleted because something could not be computed.
#[derive(Debug, Clone, Copy)]
pub struct KustomizationApplyPlanner;

impl ReconcilePlanner for KustomizationApplyPlanner {
    type DesiredState = ApplyDesiredState;
    type ObservedState = ApplyObservedState;
    type PlanStep = ApplyStep;

    fn plan(desired: &ApplyDesiredState, observed: &ApplyObservedState) -> PlanVerdict<ApplyStep> {
        let recorded = observed.recorded.len();
        if desired.stages.is_empty() && recorded > 0 && !desired.empty_is_intended {
            let text = format!(
                "the build has no objects, and the {recorded} in the inventory would be deleted; restore the \
                 manifests or correct spec.path; to delete them all, delete the Kustomization"
            );
            return failed(desired, observed, reason::BUILD_FAILED, text, BTreeSet::new());
        }
        (0..desired.stages.len())
            .find_map(|stage| at_stage(desired, observed, stage))
            .or_else(|| unproven(desired, observed))
            .or_else(|| clear_away(desired, observed))
            .unwrap_or_else(|| at_end(desired, observed))
    }
}

/// Whether a stage is done and well, so that the next one can be observed.
pub fn is_passed(desired: &ApplyDesiredState, observed: &ApplyObservedState, stage: usize) -> bool {
    at_stage(desired, observed, stage).is_none()
}

fn failed(
    desired: &ApplyDesiredState,
    observed: &ApplyObservedState,
    why: reconcile::ConditionReason,
    text: String,
    on: BTreeSet<ObjectKey>,
) -> PlanVerdict<ApplyStep> {
    let wake = NextRunTrigger { at: Some(later(observed.now, desired.retry)), on };
    PlanVerdict::Outcome(RunOutcome::Failed(why, text, wake))
}

/// A wait that failed, now or earlier.
fn failed_wait(
    desired: &ApplyDesiredState,
    observed: &ApplyObservedState,
    failed: FailedHealthWait,
) -> PlanVerdict<ApplyStep> {
    let until = failed.until.min(later(observed.now, desired.retry));
    let wake = NextRunTrigger { at: Some(until), on: failed.on };
    PlanVerdict::Outcome(RunOutcome::Failed(reason::HEALTH_CHECK_FAILED, failed.text, wake))
}

fn later(time: Time, by: Duration) -> Time {
    time.saturating_add(by).unwrap_or(Time::MAX)
}

/// What a stage still needs; `None` when it is passed.
fn at_stage(
    desired: &ApplyDesiredState,
    observed: &ApplyObservedState,
    at: usize,
) -> Option<PlanVerdict<ApplyStep>> {
    let stage = desired.stages.get(at)?;
    let mut refused = Vec::new();
    let mut unseen = Vec::new();
    let mut why = reason::RECONCILIATION_FAILED;
    let mut add = Vec::new();
    let mut ids = Vec::new();
    let mut recreate = Vec::new();
    let mut hash = Sha256::new();
    let mut waited = Vec::new();
    for manifest in &stage.objects {
        let id = &manifest.id;
        let state =
            observed.objects.get(id).map_or(&LiveObjectState::Unmanaged, |seen| &seen.state);
        match state {
            LiveObjectState::Unmanaged => unseen.push(id.subject()),
            LiveObjectState::Refused(text) => refused.push((id, text.as_str())),
            LiveObjectState::Incompatible(text) => {
                why = reason::CRD_INCOMPATIBLE;
                refused.push((id, text.as_str()));
            }
            LiveObjectState::Missing
            | LiveObjectState::Differs
            | LiveObjectState::MustBeRecreated => {
                hash.update(format!("{id}\n{}\n", manifest.digest));
                ids.push(id.clone());
            }
            // Differs(flux): what is excluded by annotation is not waited for in a stage either.
            LiveObjectState::Skipped | LiveObjectState::Finished => {}
            LiveObjectState::InSync => waited.push(id),
        }
        if *state == LiveObjectState::MustBeRecreated {
            recreate.push(id.clone());
        }
        if !observed.recorded.contains(id) {
            add.push((id.clone(), manifest.object.gvk().version));
        }
    }
    if !refused.is_empty() && !observed.is_correction {
        let text = dry_run_refusal::together(&refused);
        return Some(failed(desired, observed, why, text, BTreeSet::new()));
    }
    if !unseen.is_empty() {
        let text = format!("not observed: {}", unseen.join(", "));
        let why = reason::RECONCILIATION_FAILED;
        return Some(failed(desired, observed, why, text, BTreeSet::new()));
    }
    let mut steps = Vec::new();
    if !add.is_empty() {
        steps.push(ApplyStep::Record { add });
    }
    if !ids.is_empty() {
        steps.push(ApplyStep::Apply {
            stage: at,
            ids,
            recreate,
            digest: hex::encode(hash.finalize()),
        });
    }
    if !steps.is_empty() {
        return Some(PlanVerdict::Act(steps));
    }
    if !stage.kind.is_waited_for() {
        return None;
    }
    let since = observed.stage_waiting_since;
    match health_wait::judge(&waited, desired, observed, since, desired.stage_timeout) {
        HealthWaitState::Over => None,
        HealthWaitState::On(wake) => {
            let text = stage_text(stage, &desired.revision, desired.stage_timeout);
            Some(PlanVerdict::Outcome(RunOutcome::Running(stage_reason(stage.kind), text, wake)))
        }
        // Differs(flux): the reason there is ReconciliationFailed; but nothing failed to be applied.
        HealthWaitState::Failed(wait) => Some(failed_wait(desired, observed, wait)),
    }
}

/// Deletes and forgets what is no longer wanted; `None` when the inventory is what it should be. What is held stays in it.
fn clear_away(
    desired: &ApplyDesiredState,
    observed: &ApplyObservedState,
) -> Option<PlanVerdict<ApplyStep>> {
    let manifests = desired.stages.iter().flat_map(|stage| &stage.objects);
    let wanted: ObjectInventory =
        manifests.map(|m| (m.id.clone(), m.object.gvk().version)).collect();
    let since = observed.waiting_since.unwrap_or(observed.now);
    let deadline = later(since, desired.timeout);
    // Parity(flux): a run that waits for deleted objects goes on after the timeout.
    let leaving = |id: &ObjectId| observed.leaving.contains(id) && !observed.gone.contains(id);
    let is_over =
        |id: &ObjectId| observed.gone.contains(id) || (leaving(id) && observed.now >= deadline);
    let kept: ObjectInventory = if desired.prune {
        let stale = observed.recorded.minus(&wanted).into_iter();
        stale.filter(|(id, _)| !is_over(id)).collect()
    } else {
        ObjectInventory::default()
    };
    let mut steps = Vec::new();
    let pending = PendingDeletions {
        predecessors: &observed.predecessors,
        leaving: &observed.leaving,
        held: &observed.held,
    };
    let stale: Vec<&ObjectId> = kept.ids().collect();
    let due = pending.due(stale.iter().copied());
    let dependents = pending.awaited(stale.iter().copied());
    let is_waiting = kept.ids().any(leaving);
    let to = kept.union(&wanted);
    if !due.is_empty() || to != observed.recorded {
        let version = |id: &ObjectId| observed.recorded.version(id).unwrap_or_default().to_owned();
        let ids: Vec<_> = due.into_iter().map(|id| (id.clone(), version(&id))).collect();
        if to != observed.recorded {
            steps.push(ApplyStep::Shrink { to });
        }
        if !ids.is_empty() {
            steps.push(ApplyStep::Prune { ids });
        }
        return Some(PlanVerdict::Act(steps));
    }
    if !is_waiting {
        return (!dependents.is_empty()).then(|| awaiting_dependents(dependents, observed.now));
    }
    let nodes = observed.leaving.iter().filter(|id| leaving(id)).map(node_of);
    let text = "Waiting for the termination of deleted objects".to_owned();
    let wake = NextRunTrigger::on(nodes).and_at(deadline);
    Some(PlanVerdict::Outcome(RunOutcome::Running(AWAITING_TERMINATION, text, wake)))
}

/// The outcome of a run that waits until other objects are gone. They are in the cluster of the program, which has to wake the run
/// for them.
fn awaiting_dependents(dependents: BTreeSet<ObjectKey>, now: Time) -> PlanVerdict<ApplyStep> {
    let mut names: Vec<String> =
        dependents.iter().take(MAX_NAMED_DEPENDENTS).map(ObjectKey::to_string).collect();
    if dependents.len() > MAX_NAMED_DEPENDENTS {
        names.push(format!("{} more", dependents.len() - MAX_NAMED_DEPENDENTS));
    }
    let text = format!(
        "Waiting for the deletion of {}, which need objects that are deleted after them",
        names.join(", ")
    );
    let wake = NextRunTrigger::at(later(now, DEPENDENTS_RECHECK));
    PlanVerdict::Outcome(RunOutcome::Running(reason::AWAITING_DEPENDENTS, text, wake))
}

/// Drift that cannot be corrected: the objects that the API server refuses while everything else is as it should be.
fn uncorrected(
    desired: &ApplyDesiredState,
    observed: &ApplyObservedState,
) -> Option<PlanVerdict<ApplyStep>> {
    let manifests = desired.stages.iter().flat_map(|stage| &stage.objects);
    let mut why = reason::RECONCILIATION_FAILED;
    let refused =
        manifests.filter_map(|manifest| match &observed.objects.get(&manifest.id)?.state {
            LiveObjectState::Refused(text) => Some((&manifest.id, text.as_str())),
            LiveObjectState::Incompatible(text) => {
                why = reason::CRD_INCOMPATIBLE;
                Some((&manifest.id, text.as_str()))
            }
            _ => None,
        });
    let refused: Vec<_> = refused.collect();
    (!refused.is_empty()).then(|| {
        failed(desired, observed, why, dry_run_refusal::together(&refused), BTreeSet::new())
    })
}

/// Everything is applied: the outcome is settled, or failed while another client changes objects again and again.
fn settled(desired: &ApplyDesiredState, observed: &ApplyObservedState) -> PlanVerdict<ApplyStep> {
    let manifests = desired.stages.iter().flat_map(|stage| &stage.objects);
    let contested: Vec<&(String, Time)> =
        manifests.filter_map(|manifest| observed.contested.get(&manifest.id)).collect();
    let strings: Vec<&str> = contested.iter().map(|(text, _)| text.as_str()).collect();
    match contested.iter().map(|(_, at)| *at).min() {
        Some(at) => {
            let outcome =
                RunOutcome::Failed(reason::CONTESTED, strings.join("\n"), NextRunTrigger::at(at));
            PlanVerdict::Outcome(outcome)
        }
        None => {
            let text = format!("Applied revision: {}", desired.revision);
            PlanVerdict::Outcome(RunOutcome::Settled(reason::RECONCILIATION_SUCCEEDED, text))
        }
    }
}

/// Everything is applied: what keeps objects that left the manifests from being deleted, if that waits for health.
fn unproven(
    desired: &ApplyDesiredState,
    observed: &ApplyObservedState,
) -> Option<PlanVerdict<ApplyStep>> {
    if !desired.prunes_after_health {
        return None;
    }
    uncorrected(desired, observed).or_else(|| awaited(desired, observed))
}

/// Everything is applied and cleared away: waits for health, or settles.
fn at_end(desired: &ApplyDesiredState, observed: &ApplyObservedState) -> PlanVerdict<ApplyStep> {
    uncorrected(desired, observed)
        .or_else(|| awaited(desired, observed))
        .unwrap_or_else(|| settled(desired, observed))
}

/// The wait for health; `None` if it is over.
fn awaited(
    desired: &ApplyDesiredState,
    observed: &ApplyObservedState,
) -> Option<PlanVerdict<ApplyStep>> {
    let manifests = desired.stages.iter().flat_map(|stage| &stage.objects);
    let is_waited_for = |id: &&ObjectId| {
        let state = observed.objects.get(*id).map(|seen| &seen.state);
        let is_done = match state {
            Some(LiveObjectState::Finished) => true,
            Some(LiveObjectState::Skipped) => desired.health == HealthWaitScope::All,
            _ => false,
        };
        !is_done && **id != desired.own
    };
    let ids: Vec<&ObjectId> = match &desired.health {
        HealthWaitScope::None => Vec::new(),
        HealthWaitScope::All => manifests.map(|m| &m.id).filter(is_waited_for).collect(),
        HealthWaitScope::These(ids) => {
            let unique: BTreeSet<_> = ids.iter().filter(is_waited_for).collect();
            unique.into_iter().collect()
        }
    };
    match health_wait::judge(&ids, desired, observed, observed.waiting_since, desired.timeout) {
        HealthWaitState::Over => None,
        HealthWaitState::On(wake) => {
            let text = health_text(&desired.revision, desired.timeout);
            Some(PlanVerdict::Outcome(RunOutcome::Running(reason::PROGRESSING, text, wake)))
        }
        HealthWaitState::Failed(wait) => Some(failed_wait(desired, observed, wait)),
    }
}

#[cfg(test)]
mod tests;
