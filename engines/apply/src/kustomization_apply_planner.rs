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
//! `kustomization_apply_planner/health_wait.rs`. Elsewhere: dry-runs, writes and status (the program), judging one object's
//! health ([`crate::health`]).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use objects::ObjectId;
use reconcile::{
    NextRunTrigger, ObjectKey, PlannerDecision, ReconcilePlanner, RunOutcome, Time,
    condition_reason,
};
use sha2::{Digest, Sha256};

use crate::deletion_order::{DeletionPredecessors, PendingDeletions};
use crate::health::ObjectHealth;
use crate::{ApplyStage, ObjectInventory, dry_run_refusal};

mod health_wait;

pub(crate) use health_wait::stage_text;
pub use health_wait::{AWAITING_TERMINATION, health_text, stage_reason};
use health_wait::{HealthWaitState, node_of};

/// How many of the awaited objects a message names.
const MAX_NAMED_DEPENDENTS: usize = 10;

/// How often a run checks whether the awaited objects still exist, in addition to watching them.
const DEPENDENTS_RECHECK: Duration = Duration::from_secs(10);

/// The objects for whose health a run waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HealthWaitScope {
    /// The run waits for no object.
    None,
    /// The run waits for all applied objects, except the Kustomization itself and the objects that an annotation
    /// excludes.
    All,
    /// The run waits for these objects, whether windlass applied them or not, except the Kustomization itself.
    These(Vec<ObjectId>),
}

/// The complete desired state of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct ApplyDesiredState {
    /// The Kustomization itself, for whose health it must not wait.
    pub own: ObjectId,
    /// The objects to apply, from [`crate::stages()`].
    pub stages: Vec<ApplyStage>,
    /// Whether a build without any object is intended, and not an accident.
    ///
    /// It is true when a Kustomization is deleted: the desired state then has no stages.
    pub empty_is_intended: bool,
    /// Whether objects that left the manifests are deleted. Otherwise windlass only removes them from the inventory.
    pub prune: bool,
    /// Whether objects that left the manifests are deleted only once the applied objects are healthy. Until then, a
    /// rollback to the previous result may need them.
    pub prunes_after_health: bool,
    /// The objects for whose health the run waits.
    pub health: HealthWaitScope,
    /// Whether one failed object ends the wait, even while others are on their way.
    pub fail_fast: bool,
    /// The revision of the source, for messages.
    pub revision: String,
    /// How long the run waits for health.
    pub timeout: Duration,
    /// How long the run waits for a stage of CRDs or classes.
    pub stage_timeout: Duration,
    /// After which time a failed run is repeated.
    pub retry: Duration,
}

/// The observed state of a run.
///
/// # Assumes
/// Stages are observed in order, up to the first one that [`is_passed`] denies. Later stages cannot be tried before
/// that, so an absent entry means "not observed", never "in sync". Objects were read from the cluster and not from a
/// cache. `recorded` is the inventory that was written last.
#[derive(Debug, Clone, PartialEq)]
pub struct ApplyObservedState {
    /// The time of the run.
    pub now: Time,
    /// The inventory in the status: `status.inventory`.
    pub recorded: ObjectInventory,
    /// The objects of the observed stages, and those for whose health the run waits.
    pub objects: BTreeMap<ObjectId, ObservedObject>,
    /// Recorded ids that need no deletion any more. The object does not exist, its deletion was accepted, it belongs to
    /// another owner, or it is protected from pruning.
    pub gone: BTreeSet<ObjectId>,
    /// Recorded ids whose deletion was accepted. The run waits until these objects are gone.
    pub leaving: BTreeSet<ObjectId>,
    /// For each recorded id that has predecessors: the objects that have to be deleted before it.
    pub predecessors: BTreeMap<ObjectId, DeletionPredecessors>,
    /// Recorded ids whose deletion waits for the approval of a user: they stay in the cluster and in the inventory.
    pub held: BTreeSet<ObjectId>,
    /// Since when this revision has waited for health, or until the objects in `leaving` are gone. `None` before the
    /// wait.
    pub waiting_since: Option<Time>,
    /// Since when this revision has waited for its current stage. `None` before the wait.
    pub stage_waiting_since: Option<Time>,
    /// The last failed health wait of this revision and spec, until the wait is repeated.
    pub failed_wait: Option<FailedHealthWait>,
    /// Whether exactly this build was applied completely before, so that a difference is drift.
    pub is_correction: bool,
    /// Objects that another client changes repeatedly, each with its message and the time of the next run.
    pub contested: BTreeMap<ObjectId, (String, Time)>,
}

/// A wait for health that failed. It counts as failed until its objects are healthy or the wait is repeated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedHealthWait {
    /// The message about the failed wait.
    pub text: String,
    /// The objects for which the run waited.
    pub on: BTreeSet<ObjectKey>,
    /// The time at which the wait is repeated.
    pub until: Time,
}

/// One object as the run observed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedObject {
    /// How it compares with its manifest.
    pub state: LiveObjectDriftState,
    /// Its health, if the plan waits for it.
    pub health: Option<ObjectHealth>,
}

/// How a live object compares with its manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LiveObjectDriftState {
    /// The object matches its manifest, or this run applied it. If another client changes it after that, the next run
    /// corrects it. Otherwise two writers could keep a run from ever ending.
    InSync,
    /// The object does not exist, and would be created.
    Missing,
    /// The object differs, and would be changed.
    Differs,
    /// An immutable field would change, and the object or the Kustomization allows windlass to recreate it.
    MustBeRecreated,
    /// An annotation excludes the object.
    Skipped,
    /// The object is a Job that expires ([`crate::owner_labels_and_apply_annotations::expires`]). It was applied for this revision, and
    /// does not exist any more.
    Finished,
    /// The API server refused the dry-run. The message comes from [`crate::dry_run_refusal::describe`].
    Refused(String),
    /// The program's CRD guard refuses the CustomResourceDefinition, because it is incompatible with existing objects.
    /// The text is its message.
    Incompatible(String),
    /// The object is not in the manifests. The run only observes its health.
    Unmanaged,
}

/// One write to the cluster or to the status, with object ids and digests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApplyStep {
    /// Adds ids to the inventory in the status, before any of their objects is applied.
    Record {
        /// Ids with API versions.
        add: Vec<(ObjectId, String)>,
    },
    /// Applies objects of one stage, in the order of `ids`.
    Apply {
        /// The index of the stage in the desired state.
        stage: usize,
        /// The ids of the objects to apply.
        ids: Vec<ObjectId>,
        /// The ids of the objects that are deleted and created again. The run waits until each is gone in between.
        recreate: Vec<ObjectId>,
        /// A digest of the content of all manifests in `ids`.
        digest: String,
    },
    /// Deletes objects that left the manifests, in this order. An object is only deleted if its owner labels still name
    /// this Kustomization.
    Prune {
        /// The ids, each with the API version in the inventory.
        ids: Vec<(ObjectId, String)>,
    },
    /// Replaces the inventory in the status. The new inventory has every object that may still exist.
    Shrink {
        /// The new inventory.
        to: ObjectInventory,
    },
}

/// Plans the writes that apply the objects of a Kustomization.
///
/// # Guarantees
/// After every single write, the recorded inventory has every live object that the Kustomization owns. No object of a
/// stage is written while another one of it is refused. Only if all of the stage was applied before, the drift of the
/// other objects is corrected all the same. No object is deleted because a value could not be computed.
#[derive(Debug, Clone, Copy)]
pub struct KustomizationApplyPlanner;

impl ReconcilePlanner for KustomizationApplyPlanner {
    type DesiredState = ApplyDesiredState;
    type ObservedState = ApplyObservedState;
    type PlanStep = ApplyStep;

    fn plan(
        desired: &ApplyDesiredState,
        observed: &ApplyObservedState,
    ) -> PlannerDecision<ApplyStep> {
        let recorded = observed.recorded.len();
        if desired.stages.is_empty() && recorded > 0 && !desired.empty_is_intended {
            let text = format!(
                "the build has no objects, and the {recorded} in the inventory would be deleted; restore the \
                 manifests or correct spec.path; to delete them all, delete the Kustomization"
            );
            return failed(
                desired,
                observed,
                condition_reason::BUILD_FAILED,
                text,
                BTreeSet::new(),
            );
        }
        (0..desired.stages.len())
            .find_map(|stage| at_stage(desired, observed, stage))
            .or_else(|| unproven(desired, observed))
            .or_else(|| clear_away(desired, observed))
            .unwrap_or_else(|| at_end(desired, observed))
    }
}

/// Whether all objects of a stage are applied and the wait for it is over, so that the next stage can be observed.
pub fn is_passed(desired: &ApplyDesiredState, observed: &ApplyObservedState, stage: usize) -> bool {
    at_stage(desired, observed, stage).is_none()
}

fn failed(
    desired: &ApplyDesiredState,
    observed: &ApplyObservedState,
    why: reconcile::ConditionReason,
    text: String,
    on: BTreeSet<ObjectKey>,
) -> PlannerDecision<ApplyStep> {
    let wake = NextRunTrigger { at: Some(later(observed.now, desired.retry)), on };
    PlannerDecision::Outcome(RunOutcome::Failed(why, text, wake))
}

/// The outcome of a run whose wait for health failed, now or earlier.
fn failed_wait(
    desired: &ApplyDesiredState,
    observed: &ApplyObservedState,
    failed: FailedHealthWait,
) -> PlannerDecision<ApplyStep> {
    let until = failed.until.min(later(observed.now, desired.retry));
    let wake = NextRunTrigger { at: Some(until), on: failed.on };
    PlannerDecision::Outcome(RunOutcome::Failed(
        condition_reason::HEALTH_CHECK_FAILED,
        failed.text,
        wake,
    ))
}

fn later(time: Time, by: Duration) -> Time {
    time.saturating_add(by).unwrap_or(Time::MAX)
}

/// The next steps or the outcome for a stage that is not passed. `None` if the stage is passed.
fn at_stage(
    desired: &ApplyDesiredState,
    observed: &ApplyObservedState,
    at: usize,
) -> Option<PlannerDecision<ApplyStep>> {
    let stage = desired.stages.get(at)?;
    let mut refused = Vec::new();
    let mut unseen = Vec::new();
    let mut why = condition_reason::RECONCILIATION_FAILED;
    let mut add = Vec::new();
    let mut ids = Vec::new();
    let mut recreate = Vec::new();
    let mut hash = Sha256::new();
    let mut waited = Vec::new();
    for manifest in &stage.objects {
        let id = &manifest.id;
        let state =
            observed.objects.get(id).map_or(&LiveObjectDriftState::Unmanaged, |seen| &seen.state);
        match state {
            LiveObjectDriftState::Unmanaged => unseen.push(id.subject()),
            LiveObjectDriftState::Refused(text) => refused.push((id, text.as_str())),
            LiveObjectDriftState::Incompatible(text) => {
                why = condition_reason::CRD_INCOMPATIBLE;
                refused.push((id, text.as_str()));
            }
            LiveObjectDriftState::Missing
            | LiveObjectDriftState::Differs
            | LiveObjectDriftState::MustBeRecreated => {
                hash.update(format!("{id}\n{}\n", manifest.digest));
                ids.push(id.clone());
            }
            // Differs(flux): what is excluded by annotation is not waited for in a stage either.
            LiveObjectDriftState::Skipped | LiveObjectDriftState::Finished => {}
            LiveObjectDriftState::InSync => waited.push(id),
        }
        if *state == LiveObjectDriftState::MustBeRecreated {
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
        let why = condition_reason::RECONCILIATION_FAILED;
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
        return Some(PlannerDecision::Act(steps));
    }
    if !stage.kind.is_waited_for() {
        return None;
    }
    let since = observed.stage_waiting_since;
    match health_wait::judge(&waited, desired, observed, since, desired.stage_timeout) {
        HealthWaitState::Over => None,
        HealthWaitState::On(wake) => {
            let text = stage_text(stage, &desired.revision, desired.stage_timeout);
            Some(PlannerDecision::Outcome(RunOutcome::Running(
                stage_reason(stage.kind),
                text,
                wake,
            )))
        }
        // Differs(flux): the reason there is ReconciliationFailed; but nothing failed to be applied.
        HealthWaitState::Failed(wait) => Some(failed_wait(desired, observed, wait)),
    }
}

/// Deletes objects that left the manifests and removes them from the inventory. Held objects stay in it. `None` if the
/// inventory needs no change and no deleted object is awaited.
fn clear_away(
    desired: &ApplyDesiredState,
    observed: &ApplyObservedState,
) -> Option<PlannerDecision<ApplyStep>> {
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
        return Some(PlannerDecision::Act(steps));
    }
    if !is_waiting {
        return (!dependents.is_empty()).then(|| awaiting_dependents(dependents, observed.now));
    }
    let nodes = observed.leaving.iter().filter(|id| leaving(id)).map(node_of);
    let text = "Waiting for the termination of deleted objects".to_owned();
    let wake = NextRunTrigger::on(nodes).and_at(deadline);
    Some(PlannerDecision::Outcome(RunOutcome::Running(AWAITING_TERMINATION, text, wake)))
}

/// The outcome of a run that waits until other objects are gone. These objects are in the program's own cluster, so the
/// program watches them and wakes the run. A timer repeats the run, too.
fn awaiting_dependents(dependents: BTreeSet<ObjectKey>, now: Time) -> PlannerDecision<ApplyStep> {
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
    PlannerDecision::Outcome(RunOutcome::Running(condition_reason::AWAITING_DEPENDENTS, text, wake))
}

/// The failure of a run whose drift cannot be corrected, because the API server or the CRD guard refuses objects. All
/// other objects match their manifests. `None` if no object is refused.
fn uncorrected(
    desired: &ApplyDesiredState,
    observed: &ApplyObservedState,
) -> Option<PlannerDecision<ApplyStep>> {
    let manifests = desired.stages.iter().flat_map(|stage| &stage.objects);
    let mut why = condition_reason::RECONCILIATION_FAILED;
    let refused =
        manifests.filter_map(|manifest| match &observed.objects.get(&manifest.id)?.state {
            LiveObjectDriftState::Refused(text) => Some((&manifest.id, text.as_str())),
            LiveObjectDriftState::Incompatible(text) => {
                why = condition_reason::CRD_INCOMPATIBLE;
                Some((&manifest.id, text.as_str()))
            }
            _ => None,
        });
    let refused: Vec<_> = refused.collect();
    (!refused.is_empty()).then(|| {
        failed(desired, observed, why, dry_run_refusal::together(&refused), BTreeSet::new())
    })
}

/// The outcome when everything is applied: settled, or failed while another client changes objects repeatedly.
fn settled(
    desired: &ApplyDesiredState,
    observed: &ApplyObservedState,
) -> PlannerDecision<ApplyStep> {
    let manifests = desired.stages.iter().flat_map(|stage| &stage.objects);
    let contested: Vec<&(String, Time)> =
        manifests.filter_map(|manifest| observed.contested.get(&manifest.id)).collect();
    let strings: Vec<&str> = contested.iter().map(|(text, _)| text.as_str()).collect();
    match contested.iter().map(|(_, at)| *at).min() {
        Some(at) => {
            let outcome = RunOutcome::Failed(
                condition_reason::CONTESTED,
                strings.join("\n"),
                NextRunTrigger::at(at),
            );
            PlannerDecision::Outcome(outcome)
        }
        None => {
            let text = format!("Applied revision: {}", desired.revision);
            PlannerDecision::Outcome(RunOutcome::Settled(
                condition_reason::RECONCILIATION_SUCCEEDED,
                text,
            ))
        }
    }
}

/// The outcome while deletions wait for the health of the applied objects. `None` if the deletions do not wait.
fn unproven(
    desired: &ApplyDesiredState,
    observed: &ApplyObservedState,
) -> Option<PlannerDecision<ApplyStep>> {
    if !desired.prunes_after_health {
        return None;
    }
    uncorrected(desired, observed).or_else(|| awaited(desired, observed))
}

/// The outcome when everything is applied and pruned: the run waits for health, or settles.
fn at_end(
    desired: &ApplyDesiredState,
    observed: &ApplyObservedState,
) -> PlannerDecision<ApplyStep> {
    uncorrected(desired, observed)
        .or_else(|| awaited(desired, observed))
        .unwrap_or_else(|| settled(desired, observed))
}

/// The wait for health; `None` if it is over.
fn awaited(
    desired: &ApplyDesiredState,
    observed: &ApplyObservedState,
) -> Option<PlannerDecision<ApplyStep>> {
    let manifests = desired.stages.iter().flat_map(|stage| &stage.objects);
    let is_waited_for = |id: &&ObjectId| {
        let state = observed.objects.get(*id).map(|seen| &seen.state);
        let is_done = match state {
            Some(LiveObjectDriftState::Finished) => true,
            Some(LiveObjectDriftState::Skipped) => desired.health == HealthWaitScope::All,
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
            Some(PlannerDecision::Outcome(RunOutcome::Running(
                condition_reason::PROGRESSING,
                text,
                wake,
            )))
        }
        HealthWaitState::Failed(wait) => Some(failed_wait(desired, observed, wait)),
    }
}

#[cfg(test)]
mod tests;
