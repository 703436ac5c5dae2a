//! Determines the state of each member of a change, from the objects that the watches last saw.
//!
//! Elsewhere: the meaning of statuses (`changes::member_state`).

use std::sync::Arc;
use std::time::Duration;

use changes::change_set_member_lines::MemberKind;
use changes::member_state::{
    self, MemberNewVersion, MemberState, ObservedMember, ObservedReadyCondition, QuarantineEffect,
};
use crds::ReconciledObject;
use crds::helm::HelmRelease;
use crds::helmfile::{Helmfile, mumoshu_helmfile};
use crds::kustomize::Kustomization;
use crds::windlass_release::{Quarantine, QuarantineAction};
use kube_core::ResourceExt as _;
use reconcile::{ObjectKey, Time, condition_reason};

use windlass_cluster::ClusterError;
use windlass_cluster::windlass_kind::WindlassKind;
use windlass_runtime::lifecycle::watched_object_cache::WatchedObjectCache;
use windlass_runtime::object_hold::is_suspended;
use windlass_runtime::run_context::RunContext;

use super::observed_sources::SourceConsumer;

/// How long a Kustomization that is pinned to an earlier revision may take to build the revision of a change. While it stays
/// pinned, its status does not show that build.
const PINNED_PATIENCE: Duration = Duration::from_secs(60);

/// The earlier state of a member.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EarlierMemberState {
    pub(crate) state: Option<MemberState>,
    /// How long the member has been known.
    pub(crate) age: Duration,
}

/// The revisions in the status of an applier.
#[derive(Debug, Clone, Copy, Default)]
struct StatusRevisions<'o> {
    attempted: Option<&'o str>,
    applied: Option<&'o str>,
}

impl SourceConsumer {
    /// The group, kind, namespace and name of the applier.
    pub(crate) fn key(&self) -> ObjectKey {
        match self {
            Self::Kustomization(object) => key_of(&**object),
            Self::Helmfile(object) => key_of(&**object),
        }
    }

    /// The state of the applier for a revision of its source.
    pub(crate) fn state(
        &self,
        context: &RunContext,
        revision: &str,
        earlier: EarlierMemberState,
        now: Time,
    ) -> MemberState {
        let target = MemberNewVersion::Revision(revision);
        match self {
            Self::Kustomization(object) => {
                let status = object.status.as_ref();
                let revisions = StatusRevisions {
                    attempted: status.and_then(|it| it.last_attempted_revision.as_deref()),
                    applied: status.and_then(|it| it.last_applied_revision.as_deref()),
                };
                let own = quarantines_in_force(context, object);
                let pinned = quarantine_of(&own, object, revision).or_else(|| {
                    let is_pinned = earlier.age >= PINNED_PATIENCE;
                    own.iter().find(|it| is_pinned && stays_back(object, it, revision))
                });
                let effect = pinned.map(|it| effect_of(object, it));
                let observed = observed(&**object, revisions, effect, now);
                member_state::next_state(earlier.state, &observed, target)
            }
            Self::Helmfile(object) => {
                let status = object.status.as_ref();
                let revisions = StatusRevisions {
                    attempted: status.and_then(|it| it.last_attempted_revision.as_deref()),
                    applied: status.and_then(|it| it.last_applied_revision.as_deref()),
                };
                let observed = observed(&**object, revisions, None, now);
                member_state::next_state(earlier.state, &observed, target)
            }
        }
    }
}

fn key_of<K: WindlassKind>(object: &K) -> ObjectKey {
    let namespace = object.namespace().unwrap_or_default();
    ObjectKey::new(&K::group(&()), &K::kind(&()), &namespace, &object.name_any())
}

/// The digest of a Kustomization's last build of a revision. `None` if its history does not have one.
pub(crate) fn built_of<'o>(object: &'o Kustomization, revision: &str) -> Option<&'o str> {
    let mut history = object.status.iter().flat_map(|status| &status.history);
    let built =
        history.find(|it| it.metadata.get("revision").map(String::as_str) == Some(revision));
    built.map(|it| it.digest.as_str())
}

/// The Quarantines of a Kustomization that are in force.
pub(crate) fn quarantines_in_force(
    context: &RunContext,
    object: &Kustomization,
) -> Vec<Arc<Quarantine>> {
    let node = key_of(object);
    let table = context.shared::<WatchedObjectCache<Quarantine>>();
    let uid = object.uid().unwrap_or_default();
    let mut own = windlass_quarantine::of_applier(table.of(&node.namespace), &node, &uid);
    own.retain(|it| windlass_quarantine::is_in_force(it));
    own
}

/// The Quarantine of a Kustomization's build of a revision. With other variables, the same revision may have another build.
/// `None` if that build is not quarantined.
fn quarantine_of<'q>(
    own: &'q [Arc<Quarantine>],
    object: &Kustomization,
    revision: &str,
) -> Option<&'q Arc<Quarantine>> {
    let built = built_of(object, revision);
    own.iter().find(|it| {
        let result = &it.spec.result;
        result.revision == revision && built.is_none_or(|digest| digest == result.digest)
    })
}

/// The effect of a Quarantine on its applier.
fn effect_of<'q>(object: &Kustomization, quarantine: &'q Quarantine) -> QuarantineEffect<'q> {
    match (quarantine.spec.action, &quarantine.spec.last_good) {
        (QuarantineAction::RollBack, Some(good)) => QuarantineEffect::RollsBack {
            revision: &good.revision,
            is_applied: windlass_quarantine::has_applied_last(object, good),
        },
        (QuarantineAction::RollBack | QuarantineAction::Hold, _) => QuarantineEffect::Held,
    }
}

/// Whether a Kustomization reports that the Quarantine of an earlier revision pins it for `revision`, too, and has the result
/// that the Quarantine goes back to. One that waits for a dependency or for its wave may apply `revision` later.
fn stays_back(object: &Kustomization, quarantine: &Quarantine, revision: &str) -> bool {
    let Some(good) = quarantine.spec.last_good.as_ref() else { return false };
    let ready = object.condition(reconcile::READY);
    let attempted = object.status.as_ref().and_then(|it| it.last_attempted_revision.as_ref());
    ready.is_some_and(|it| it.reason == condition_reason::QUARANTINED.as_str())
        && !waits_for_wave(object)
        && good.revision != revision
        && attempted == Some(&good.revision)
}

/// Whether the status reports that the newest revision waits for its wave.
fn waits_for_wave<K: ReconciledObject>(object: &K) -> bool {
    object.condition(reconcile::WAVE).is_some_and(|it| it.status == "True")
}

/// Whether a Kustomization waits for a dependency and has never begun to apply a revision. If it awaits the health of another
/// one, that one may be applied in part.
pub(crate) fn never_began(object: &Kustomization, revision: &str) -> bool {
    let Some(status) = object.status.as_ref() else { return false };
    let is_known = [&status.last_attempted_revision, &status.last_applied_revision]
        .into_iter()
        .any(|it| it.as_deref() == Some(revision));
    let waits_for_dependency = object.condition(reconcile::READY).is_some_and(|it| {
        it.status == "False"
            && it.reason == condition_reason::DEPENDENCY_NOT_READY.as_str()
            && it.observed_generation == object.metadata.generation
    });
    let awaits_health = object.condition("Healthy").is_some_and(|it| it.status == "Unknown");
    waits_for_dependency
        && !awaits_health
        && !waits_for_wave(object)
        && !is_known
        && built_of(object, revision).is_none()
}

/// The facts about an object that its state depends on.
fn observed<'o, K: WindlassKind + ReconciledObject>(
    object: &'o K,
    revisions: StatusRevisions<'o>,
    quarantine: Option<QuarantineEffect<'o>>,
    now: Time,
) -> ObservedMember<'o> {
    let ready = object.condition(reconcile::READY).map(|it| ObservedReadyCondition {
        status: &it.status,
        reason: &it.reason,
        generation: it.observed_generation,
    });
    let reconciling = object.condition(reconcile::RECONCILING);
    ObservedMember {
        is_suspended: is_suspended(object, now),
        // A failed attempt has ended, even if it is repeated later.
        is_reconciling: reconciling.is_some_and(|it| {
            it.status == "True" && it.reason != condition_reason::PROGRESSING_WITH_RETRY.as_str()
        }),
        generation: object.meta().generation.unwrap_or_default(),
        ready,
        attempted: revisions.attempted,
        applied: revisions.applied,
        waits_for_wave: waits_for_wave(object),
        quarantine,
    }
}

/// The state of a member whose spec another member applied. `None` if the watch does not see it.
pub(crate) fn child_state(
    context: &RunContext,
    key: &ObjectKey,
    generation: i64,
    now: Time,
) -> Option<MemberState> {
    fn seen<K: WindlassKind + ReconciledObject>(
        context: &RunContext,
        key: &ObjectKey,
        generation: i64,
        now: Time,
    ) -> Option<MemberState> {
        let object = context.seen::<K>(&key.namespace, &key.name)?;
        let target = MemberNewVersion::Generation(generation);
        let observed = observed(&*object, StatusRevisions::default(), None, now);
        Some(member_state::next_state(None, &observed, target))
    }
    match MemberKind::of(&key.group, &key.kind)? {
        MemberKind::Kustomization => seen::<Kustomization>(context, key, generation, now),
        MemberKind::HelmRelease => seen::<HelmRelease>(context, key, generation, now),
        MemberKind::Helmfile => seen::<Helmfile>(context, key, generation, now),
        MemberKind::OperatorHelmfile => {
            seen::<mumoshu_helmfile::Helmfile>(context, key, generation, now)
        }
    }
}

/// The current generation of an object's spec, by a read. The watch may not have seen it yet. `None` if the object does not
/// exist.
///
/// # Errors
/// The API server refuses the request or does not respond.
pub(crate) async fn generation_of(
    context: &RunContext,
    key: &ObjectKey,
) -> Result<Option<i64>, ClusterError> {
    async fn read<K: WindlassKind>(
        context: &RunContext,
        key: &ObjectKey,
    ) -> Result<Option<i64>, ClusterError> {
        let object = context.cluster.read::<K>(&key.namespace, &key.name).await?;
        Ok(object.map(|it| it.meta().generation.unwrap_or_default()))
    }
    match MemberKind::of(&key.group, &key.kind) {
        Some(MemberKind::Kustomization) => read::<Kustomization>(context, key).await,
        Some(MemberKind::HelmRelease) => read::<HelmRelease>(context, key).await,
        Some(MemberKind::Helmfile) => read::<Helmfile>(context, key).await,
        Some(MemberKind::OperatorHelmfile) => {
            read::<mumoshu_helmfile::Helmfile>(context, key).await
        }
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use crds::kustomize::HistoryEntry;
    use serde_json::{Value, json};

    use super::*;

    fn kustomization(ready: &Value, reconciling: &Value) -> Kustomization {
        let condition = |type_: &str, it: &Value| {
            json!({"type": type_, "status": it[0], "reason": it[1], "message": "",
                "observedGeneration": 2, "lastTransitionTime": "2026-11-30T09:00:00Z"})
        };
        let conditions = json!([condition("Ready", ready), condition("Reconciling", reconciling)]);
        serde_json::from_value(json!({"metadata": {"name": "shop", "generation": 2},
            "spec": {"interval": "1m", "prune": true, "sourceRef": {"kind": "GitRepository", "name": "g"}},
            "status": {"lastAttemptedRevision": "2", "lastAppliedRevision": "1", "conditions": conditions}}))
        .unwrap()
    }

    #[test]
    fn an_attempt_that_failed_has_ended_also_where_it_is_repeated() {
        let of = |ready: Value, reconciling: Value| {
            let revisions = StatusRevisions { attempted: Some("2"), applied: Some("1") };
            let object = kustomization(&ready, &reconciling);
            let observed = observed(&object, revisions, None, Time::UNIX_EPOCH);
            member_state::next_state(None, &observed, MemberNewVersion::Revision("2"))
        };
        let retried = json!(["True", "ProgressingWithRetry"]);
        assert_eq!(of(json!(["False", "BuildFailed"]), retried.clone()), MemberState::Failed);
        assert_eq!(of(json!(["False", "WindowClosed"]), retried), MemberState::Waiting);
        let running = json!(["True", "Progressing"]);
        assert_eq!(of(json!(["Unknown", "Progressing"]), running), MemberState::Progressing);
    }

    fn succeeded(digest: &str, revision: &str) -> HistoryEntry {
        let entry = json!({"digest": digest, "firstReconciled": "2026-11-30T09:00:00Z",
            "lastReconciled": "2026-11-30T09:00:00Z", "lastReconciledDuration": "1s",
            "lastReconciledStatus": "ReconciliationSucceeded", "totalReconciliations": 1,
            "metadata": {"revision": revision}});
        serde_json::from_value(entry).unwrap()
    }

    fn quarantine(digest: &str) -> Arc<Quarantine> {
        let spec = json!({"subject": {"kind": "Kustomization", "name": "shop"}, "action": "RollBack",
            "result": {"digest": digest, "revision": "2"}, "lastGood": {"digest": "b1", "revision": "1"}});
        serde_json::from_value(json!({"metadata": {"name": "q"}, "spec": spec}))
            .map(Arc::new)
            .unwrap()
    }

    #[test]
    fn a_quarantine_counts_for_what_was_built_last_of_its_revision() {
        let running = json!(["False", "Progressing"]);
        let mut object = kustomization(&json!(["True", "ReconciliationSucceeded"]), &running);
        let own = [quarantine("b2")];
        assert!(quarantine_of(&own, &object, "2").is_some(), "its history does not say");
        assert!(quarantine_of(&own, &object, "3").is_none());
        let status = object.status.as_mut().unwrap();
        status.history = vec![succeeded("c2", "2")];
        assert_eq!(built_of(&object, "2"), Some("c2"));
        assert_eq!(built_of(&object, "3"), None);
        assert!(quarantine_of(&own, &object, "2").is_none(), "a variable was mended");
        let effect = QuarantineEffect::RollsBack { revision: "1", is_applied: false };
        assert_eq!(effect_of(&object, &own[0]), effect);
    }

    #[test]
    fn what_went_back_and_waits_for_a_dependency_that_did_too_is_back() {
        let retried = json!(["True", "ProgressingWithRetry"]);
        let mut object = kustomization(&json!(["False", "DependencyNotReady"]), &retried);
        let quarantine = quarantine("b2");
        let status = object.status.as_mut().unwrap();
        status.last_attempted_revision = Some("1".to_owned());
        status.history = vec![succeeded("b2", "2"), succeeded("b1", "1")];
        let state = |object: &Kustomization| {
            let revisions = StatusRevisions { attempted: Some("1"), applied: Some("1") };
            let effect = Some(effect_of(object, &quarantine));
            let observed = observed(object, revisions, effect, Time::UNIX_EPOCH);
            let before = Some(MemberState::Succeeded);
            member_state::next_state(before, &observed, MemberNewVersion::Revision("2"))
        };
        assert_eq!(state(&object), MemberState::Waiting);
        object.status.as_mut().unwrap().history.reverse();
        assert_eq!(state(&object), MemberState::RolledBack);
        assert!(!stays_back(&object, &quarantine, "3"), "it may begin revision 3");
    }

    #[test]
    fn what_is_pinned_by_an_earlier_revision_is_at_the_one_before_it() {
        let running = json!(["False", "Progressing"]);
        let mut object = kustomization(&json!(["False", "Quarantined"]), &running);
        let pinned = quarantine("b2");
        assert!(!stays_back(&object, &pinned, "3"), "nothing was changed");
        let status = object.status.as_mut().unwrap();
        status.last_attempted_revision = Some("1".to_owned());
        let mut wave = status.conditions[0].clone();
        assert!(stays_back(&object, &pinned, "3"));
        assert!(!stays_back(&object, &pinned, "1"), "the source went back itself");
        wave.type_ = reconcile::WAVE.to_owned();
        wave.status = "True".to_owned();
        object.status.as_mut().unwrap().conditions.push(wave);
        assert!(!stays_back(&object, &pinned, "3"), "its wave has not begun");
    }

    #[test]
    fn what_waits_for_a_dependency_never_began_a_revision_that_its_status_does_not_know() {
        let retried = json!(["True", "ProgressingWithRetry"]);
        let of = |reason: &str| kustomization(&json!(["False", reason]), &retried);
        let waits = of("DependencyNotReady");
        assert!(never_began(&waits, "3"));
        assert!(!never_began(&of("WindowClosed"), "3"));
        assert!(!never_began(&waits, "2"), "it attempted that one");
        assert!(!never_began(&waits, "1"), "it has that one");
        let mut built = waits.clone();
        built.status.as_mut().unwrap().history = vec![succeeded("b3", "3")];
        assert!(!never_began(&built, "3"));
        let mut edited = waits.clone();
        edited.metadata.generation = Some(3);
        assert!(!never_began(&edited, "3"));
        for (kind, status) in [("Healthy", "Unknown"), (reconcile::WAVE, "True")] {
            let mut other = waits.clone();
            let conditions = &mut other.status.as_mut().unwrap().conditions;
            let mut condition = conditions[0].clone();
            condition.type_ = kind.to_owned();
            condition.status = status.to_owned();
            conditions.push(condition);
            assert!(!never_began(&other, "3"), "{kind}");
        }
    }
}
