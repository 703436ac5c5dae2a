//! A run of a Kustomization that may not go on now: where it stopped, and which changes are pending.
//!
//! Elsewhere: the gate (engine `reconcile`, `gate`), annotations (`windlass_runtime::change_window`, `hold`), which Freezes
//! deny (`windlass_runtime::freeze`).

use std::sync::Arc;

use crds::kustomize::Kustomization;
use crds::{Artifact, ReconciledObject as _};
use kube_core::{Resource as _, ResourceExt as _};
use objects::Object;
use reconcile::{
    FreezeHold, NextRunTrigger, RemovalCause, RemovalGate, RemovalPermit, RemovalRefusal,
    RunOutcome, Time, condition_reason,
};

use super::last_attempts::BuildIdentity;
use super::{KustomizationSession, report};
use windlass_runtime::applier_run::PendingChanges;
use windlass_runtime::approval_plan::{self, DeletionSubject};
use windlass_runtime::{change_window, hold_conditions, object_hold, source_reference};

/// The outcome with which a running run has to stop before its next step. `None` if the run may continue.
pub(super) fn stop(object: &Kustomization, revision: &str, retry_at: Time) -> Option<RunOutcome> {
    let now = jiff::Timestamp::now();
    let is_deleted = object.meta().deletion_timestamp.is_some();
    if object_hold::is_suspended(object, now) {
        let text = match is_deleted {
            true => "suspended while it is being deleted: what it applied stays".to_owned(),
            false => {
                format!("suspended while applying revision {revision}, which continues on resume")
            }
        };
        return Some(RunOutcome::Blocked(
            condition_reason::SUSPENDED,
            text,
            NextRunTrigger::at(retry_at),
        ));
    }
    // Deletion waits for no window.
    let state = change_window::state(object, now).filter(|_| !is_deleted)?;
    state.outcome(&format!("the remainder of revision {revision}"))
}

/// The gate of removals for the objects of a Kustomization. It does not check the annotations of each object. It does not
/// check Freezes either, because the beginning of a run does.
pub(super) fn removal_gate(object: &Kustomization, cause: RemovalCause, now: Time) -> RemovalGate {
    RemovalGate {
        cause,
        is_owner_suspended: object_hold::is_suspended(object, now),
        is_suspended: false,
        closes: change_window::closes(object, now),
        is_frozen: false,
    }
}

/// Whether an object of a Kustomization may be removed. An object with the annotation that keeps it is not pruned.
///
/// # Errors
/// The reason why the object may not be removed.
pub(super) fn permit_removal(
    gate: RemovalGate,
    live: &Object,
    now: Time,
) -> Result<RemovalPermit, RemovalRefusal> {
    // Parity(flux): an object is recreated also if it is not to be pruned.
    let is_kept = gate.cause != RemovalCause::Recreated && apply::switches(live).skips_prune();
    RemovalGate { is_suspended: is_kept, ..gate }.permit(now)
}

impl KustomizationSession<'_> {
    /// The changes that a run would make if the windows were open.
    pub(super) async fn pending(&self, object: &Kustomization) -> PendingChanges {
        // The request is answered at once, and carried out when the next window opens.
        if hold_conditions::is_asked(object) {
            self.memory().verify_at = None;
        }
        let own = &self.node.namespace;
        let source = &object.spec.source_ref;
        let newest = source_reference::artifact(&self.context, own, source, self.began).ok();
        let artifact = match newest {
            Some(newest) => match self.pinned_or_newest(object, newest).await {
                Some(artifact) => Some(artifact),
                None => return PendingChanges::Nothing,
            },
            None => None,
        };
        let revision = artifact.as_ref().map(|artifact| artifact.revision.as_str());
        // An applied build is observed until it is healthy, since observing changes nothing. Every other step would be
        // refused.
        let back = artifact.as_ref().and_then(|it| self.way_back_revision(object, it));
        let mut applied = revision.into_iter().chain(back.as_deref());
        if applied.any(|revision| awaits_health(object, revision)) {
            return PendingChanges::Observing;
        }
        let is_held_back = |artifact: &Artifact| self.is_held_back(object, artifact);
        if is_current(object, revision) || artifact.as_ref().is_some_and(is_held_back) {
            return PendingChanges::Nothing;
        }
        if let Some(artifact) = artifact.as_ref().filter(|_| is_current(object, None))
            && let Ok(files) = self.files(object, artifact).await
            && self.reads_the_same(object, &files)
        {
            return PendingChanges::Nothing;
        }
        PendingChanges::Change(revision.map_or_else(
            || "the next revision of its source".to_owned(),
            |revision| format!("revision {revision}"),
        ))
    }

    /// Checks Freezes for a run that goes on. `None` if the run may do everything. If it may only correct drift, the result is
    /// the Freeze that holds deletions.
    ///
    /// # Errors
    /// The outcome of a run that may not begin to apply its build. The source may have got a newer revision since the gate was
    /// asked. A build whose health is awaited is under way, and comes to its end.
    pub(super) async fn freeze_of(
        &self,
        object: &Kustomization,
        judged: &BuildIdentity,
        is_correction: bool,
    ) -> Result<Option<Arc<FreezeHold>>, RunOutcome> {
        // `Ready` is False if the last attempt was stopped before it applied anything, also if health was awaited before.
        let is_running = object.condition("Ready").is_some_and(|it| it.status == "Unknown");
        if is_running && awaits_health(object, &judged.revision) && self.awaits_build(judged) {
            return Ok(None);
        }
        // Deletions that wait for approval belong to a revision that is otherwise applied.
        let uid = object.uid().unwrap_or_default();
        let has_plans =
            || approval_plan::has_plans(&self.context, &DeletionSubject::of(&self.node, &uid));
        let is_new = !is_correction || has_plans();
        let revision = is_new.then_some(judged.revision.as_str());
        let Some(freeze) = self.frozen(object, revision).await else { return Ok(None) };
        match is_correction && freeze.corrects_drift {
            true => Ok(Some(freeze)),
            false => Err(freeze.outcome(&format!("revision {}", judged.revision))),
        }
    }

    /// Whether the awaited health can be that of this build. Another value of a variable makes another build of the same
    /// revision and spec. A wait without an end must not let such builds pass. After a restart, the former build is not known.
    fn awaits_build(&self, judged: &BuildIdentity) -> bool {
        let memory = self.memory();
        may_be_awaited(memory.healthy.as_ref().map(|(of, _)| of), judged)
    }

    /// Whether a tree has the same files that the last build read. False if no build is remembered.
    fn reads_the_same(&self, object: &Kustomization, files: &tree::MemoryTree) -> bool {
        let memory = self.memory();
        let generation = object.meta().generation.unwrap_or_default();
        let settled = memory.settled.as_ref().filter(|settled| settled.generation == generation);
        settled.is_some_and(|settled| settled.trace.is_same_in(files))
    }
}

/// The text about where a run was when its object was suspended.
pub(super) fn where_stopped(object: &Kustomization) -> String {
    let attempted = object.status.as_ref().and_then(|it| it.last_attempted_revision.as_deref());
    // The edit that suspends the Kustomization makes a new generation, and the wait was of the generation before.
    let is_awaiting = object.condition("Healthy").is_some_and(|it| it.status == "Unknown");
    let place = match attempted {
        Some(revision) if is_awaiting => {
            format!("while waiting for the health of revision {revision}")
        }
        Some(revision) => {
            format!("during a reconciliation; last attempted revision: {revision}")
        }
        None => "before the first revision was applied".to_owned(),
    };
    format!("suspended {place}")
}

/// Whether the object waits for the health of a revision of which some or all stages were applied. If its Plan waits for
/// approval, the attempt has not begun, although the health of an earlier build may still be awaited.
fn awaits_health(object: &Kustomization, revision: &str) -> bool {
    let Some(status) = object.status.as_ref() else { return false };
    let is_attempted = status.last_attempted_revision.as_deref() == Some(revision);
    let is_of_this_spec = object
        .condition("Healthy")
        .is_some_and(|it| it.observed_generation == object.meta().generation);
    is_attempted
        && is_of_this_spec
        && !report::waits_for_plan(object)
        && report::waiting(object).is_some()
}

/// Whether a build can be the one whose health is awaited. It may be unknown which build that is.
fn may_be_awaited(awaited: Option<&BuildIdentity>, judged: &BuildIdentity) -> bool {
    awaited.is_none_or(|awaited| awaited.is_same_build(judged))
}

/// Whether an object is ready, of this spec, and at a revision if one is named.
fn is_current(object: &Kustomization, revision: Option<&str>) -> bool {
    let applied = object.status.as_ref().and_then(|it| it.last_applied_revision.as_deref());
    object.condition("Ready").is_some_and(|it| it.status == "True")
        && object.observed_generation() == object.meta().generation
        && revision.is_none_or(|revision| applied == Some(revision))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// What may be in the way of a removal.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum RemovalObstacle {
        None,
        Suspended,
        HoldExpired,
        Kept,
        WindowClosed,
        WindowInvalid,
    }

    const OBSTACLES: [RemovalObstacle; 6] = [
        RemovalObstacle::None,
        RemovalObstacle::Suspended,
        RemovalObstacle::HoldExpired,
        RemovalObstacle::Kept,
        RemovalObstacle::WindowClosed,
        RemovalObstacle::WindowInvalid,
    ];

    fn kustomization(obstacle: RemovalObstacle, is_deleted: bool) -> Kustomization {
        let annotations = match obstacle {
            RemovalObstacle::WindowClosed => json!({"windlass.dev/window": "0 0 30 6 * 1m"}),
            RemovalObstacle::WindowInvalid => json!({"windlass.dev/window": "never"}),
            RemovalObstacle::HoldExpired => json!({
                "windlass.dev/suspended-by": "alice",
                "windlass.dev/suspended-until": "1970-01-01T00:00:00Z",
            }),
            RemovalObstacle::None | RemovalObstacle::Suspended | RemovalObstacle::Kept => json!({}),
        };
        let fields = json!({"f:spec": {"f:suspend": {}},
            "f:metadata": {"f:annotations": {"f:windlass.dev/suspended-until": {}}}});
        let managed =
            json!([{"manager": "windlass-cli", "operation": "Update", "fieldsV1": fields}]);
        let is_suspended =
            matches!(obstacle, RemovalObstacle::Suspended | RemovalObstacle::HoldExpired);
        let deleted = if is_deleted { json!("1970-01-02T00:00:00Z") } else { Value::Null };
        serde_json::from_value(json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": "app", "namespace": "ns", "annotations": annotations, "deletionTimestamp": deleted,
                "managedFields": managed},
            "spec": {"interval": "10m", "prune": true, "suspend": is_suspended,
                "sourceRef": {"kind": "GitRepository", "name": "r"}},
        }))
        .unwrap()
    }

    fn live(obstacle: RemovalObstacle) -> Object {
        let value = if obstacle == RemovalObstacle::Kept { "disabled" } else { "enabled" };
        let annotations = json!({"kustomize.toolkit.fluxcd.io/prune": value});
        let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "c", "annotations": annotations}});
        Object::new(manifest).unwrap()
    }

    #[test]
    fn other_values_of_the_same_revision_are_not_the_build_whose_health_is_awaited() {
        let build = |generation: i64, digest: &str| BuildIdentity {
            generation,
            digest: digest.to_owned(),
            revision: "main@sha1:1".to_owned(),
        };
        let awaited = build(1, "a");
        assert!(may_be_awaited(Some(&awaited), &build(1, "a")));
        assert!(!may_be_awaited(Some(&awaited), &build(1, "b")));
        assert!(!may_be_awaited(Some(&awaited), &build(2, "a")));
        assert!(may_be_awaited(None, &build(1, "b")), "windlass was started anew");
    }

    #[test]
    fn a_revision_whose_plan_waits_is_not_under_way() {
        let waiting = |ready: &str| {
            let condition = |kind: &str, reason: &str| {
                json!({"type": kind, "status": "Unknown", "reason": reason, "message": "",
                    "observedGeneration": 1, "lastTransitionTime": "2026-01-02T03:04:05Z"})
            };
            let mut object = kustomization(RemovalObstacle::None, false);
            object.metadata.generation = Some(1);
            let conditions = [condition("Ready", ready), condition("Healthy", "Progressing")];
            let status = json!({"lastAttemptedRevision": "main@sha1:1", "conditions": conditions});
            object.status = Some(serde_json::from_value(status).unwrap());
            awaits_health(&object, "main@sha1:1")
        };
        assert!(waiting("Progressing"));
        assert!(!waiting("PlanPending"), "what was applied before is awaited");
        assert!(!waiting("PlanRejected"), "nor is one whose Plan was rejected");
    }

    #[test]
    fn every_removal_of_a_kustomization_asks_about_everything_in_its_way() {
        let now = Time::from_second(1_000_000).unwrap();
        for cause in [RemovalCause::OwnerDeleted, RemovalCause::Pruned, RemovalCause::Recreated] {
            for obstacle in OBSTACLES {
                let is_deleted = cause == RemovalCause::OwnerDeleted;
                let object = kustomization(obstacle, is_deleted);
                let gate = removal_gate(&object, cause, now);
                let permitted = permit_removal(gate, &live(obstacle), now);
                let expected = match obstacle {
                    RemovalObstacle::None | RemovalObstacle::HoldExpired => None,
                    RemovalObstacle::Suspended => Some(RemovalRefusal::Suspended),
                    RemovalObstacle::Kept if cause == RemovalCause::Recreated => None,
                    RemovalObstacle::Kept => Some(RemovalRefusal::Suspended),
                    RemovalObstacle::WindowClosed | RemovalObstacle::WindowInvalid
                        if is_deleted =>
                    {
                        None
                    }
                    RemovalObstacle::WindowClosed | RemovalObstacle::WindowInvalid => {
                        Some(RemovalRefusal::WindowClosed)
                    }
                };
                assert_eq!(permitted.err(), expected, "{cause:?} {obstacle:?}");
            }
        }
    }

    #[test]
    fn a_run_stops_at_a_suspension_also_if_the_kustomization_is_being_deleted() {
        let stopped = |obstacle, is_deleted| {
            let outcome =
                stop(&kustomization(obstacle, is_deleted), "main@sha1:1", Time::UNIX_EPOCH);
            outcome.map(|outcome| outcome.reason())
        };
        for is_deleted in [false, true] {
            assert_eq!(
                stopped(RemovalObstacle::Suspended, is_deleted),
                Some(condition_reason::SUSPENDED)
            );
            assert_eq!(stopped(RemovalObstacle::None, is_deleted), None);
        }
        assert!(stopped(RemovalObstacle::WindowInvalid, false).is_some());
        assert_eq!(
            stopped(RemovalObstacle::WindowInvalid, true),
            None,
            "deletion waits for no window"
        );
    }
}
