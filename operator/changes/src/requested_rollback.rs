//! Carries out the rollback of a change that a user requested. Each Kustomization of the source in its namespace is pinned to
//! its earlier build, by a Quarantine of its build of the revision. Children follow.
//!
//! A Kustomization stays pinned until the source has a new revision, or a user lifts the Quarantine. Going back passes the
//! same gates as any other result. Elsewhere: going back (`kustomize_controller`), and the request (`windlass rollback`).

use std::sync::Arc;

use crds::kustomize::{HistoryEntry, Kustomization};
use crds::windlass_release::{ChangeSet, ChangeSetRollbackRequest, Quarantine, QuarantineAction};
use kube_core::{Resource as _, ResourceExt as _};
use quarantine::build_inputs_record::BuildInputsRecord;
use quarantine::rollback_decision::FailureConsequence;
use reconcile::{ObjectKey, condition_reason};

use windlass_cluster::ClusterError;
use windlass_cluster::metrics::WakeReason;
use windlass_quarantine::FailedResult;
use windlass_runtime::lifecycle::known_quarantines;
use windlass_runtime::lifecycle::watched_object_cache::WatchedObjectCache;
use windlass_runtime::run_context::RunContext;

use super::change_set_writer::of_source;
use super::followed_change::FollowedChange;
use super::observed_members::built_of;
use super::observed_sources::SourceConsumer;
use changes::change_set_member_lines::subject_of;
use changes::member_state::MemberState;

/// The prefix of the user names of ServiceAccounts, whose requests do not count. windlass applies objects as ServiceAccounts,
/// so a commit could otherwise roll another one back.
const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// The most members that are listed as left unchanged.
const MAX_LEFT: usize = 32;

/// The rollback of a change that a user requested. `None` without a request. The request of a ServiceAccount does not count,
/// even if no admission policy refuses it.
pub(crate) fn request(object: &ChangeSet) -> Option<&ChangeSetRollbackRequest> {
    let asked = object.status.as_ref()?.rollback.as_ref()?;
    let counts = !asked.user.is_empty() && !asked.user.starts_with(SERVICE_ACCOUNT_PREFIX);
    counts.then_some(asked)
}

/// The reason why a member is not rolled back.
enum RollbackObstacle {
    /// The member stays as it is, for this reason.
    Stays(&'static str),
    /// A request failed, so the rollback is retried.
    Failed(ClusterError),
}

/// Pins the members of a change to their earlier builds. The rollback is complete when all members of the namespace are known
/// and none is under way.
pub(crate) async fn carry_out(
    context: &RunContext,
    change: &mut FollowedChange,
    asked: &ChangeSetRollbackRequest,
    consumers: &[SourceConsumer],
) {
    let mut left = Vec::new();
    let mut elsewhere = 0_usize;
    // The next pass sees members that are pinned now.
    let mut is_unfinished = !change.is_own_namespace_closed();
    for consumer in consumers {
        let key = consumer.key();
        let Some(state) = change.state_of(&key) else { continue };
        if matches!(state, MemberState::RolledBack | MemberState::Skipped) {
            continue;
        }
        // A user who may roll back in this namespace has no say in others.
        if key.namespace != change.namespace {
            elsewhere += 1;
            continue;
        }
        if !state.has_ended() {
            is_unfinished = true;
            continue;
        }
        let ended = match consumer {
            // Otherwise the Kustomization would go back to a build before an earlier change.
            SourceConsumer::Kustomization(_) if !change.is_known_to_change(&key) => {
                Err(RollbackObstacle::Stays("whether the revision changed it is not known"))
            }
            SourceConsumer::Kustomization(object) => {
                pin(context, change, asked, object, &key).await
            }
            SourceConsumer::Helmfile(_) => {
                Err(RollbackObstacle::Stays("a Helmfile has no last good result to go back to"))
            }
        };
        match ended {
            Ok(()) => is_unfinished = true,
            Err(RollbackObstacle::Stays(why)) => {
                let subject = subject_of(&key.group, &key.kind, &key.name).unwrap_or_default();
                left.push(format!("{subject}: {why}"));
            }
            Err(RollbackObstacle::Failed(error)) => {
                is_unfinished = true;
                tracing::warn!(
                    name = key.name,
                    namespace = key.namespace,
                    error = %error,
                    "failed to roll back a member of a change, retrying later"
                );
            }
        }
    }
    if is_unfinished {
        return;
    }
    left.truncate(MAX_LEFT - 1);
    if elsewhere > 0 {
        left.push(format!("{elsewhere} members of other namespaces: they are rolled back there"));
    }
    change.rolled_back(left, jiff::Timestamp::now());
}

/// The newest successful entry in a Kustomization's history that is another build than `result` and not quarantined. `None` if
/// there is no such entry.
fn good_entry<'o>(
    object: &'o Kustomization,
    result: &str,
    own: &[Arc<Quarantine>],
) -> Option<&'o HistoryEntry> {
    let mut history = object.status.iter().flat_map(|status| &status.history);
    history.find(|it| {
        it.last_reconciled_status == condition_reason::RECONCILIATION_SUCCEEDED.as_str()
            && it.digest != result
            && windlass_quarantine::of_result(own, &it.digest).is_none()
    })
}

/// The newest successful build of a Kustomization that is not its build of the revision. `None` if there is no such build, or
/// if its inputs are not known.
fn good_before(
    context: &RunContext,
    change: &FollowedChange,
    object: &Kustomization,
    result: &str,
    own: &[Arc<Quarantine>],
) -> Option<BuildInputsRecord> {
    let good = good_entry(object, result, own)?;
    if let Some(facts) = BuildInputsRecord::of_entry(&good.digest, &good.metadata) {
        return Some(facts);
    }
    // The earlier change records the artifact of that revision.
    let revision = good.metadata.get("revision")?;
    let table = context.shared::<WatchedObjectCache<ChangeSet>>();
    let earlier = of_source(&table, &change.namespace, &change.spec.source.uid);
    let earlier = earlier.iter().rev().find(|it| it.spec.revision == *revision)?;
    Some(BuildInputsRecord {
        digest: good.digest.clone(),
        revision: revision.clone(),
        artifact_digest: earlier.spec.digest.clone(),
        artifact_path: earlier.spec.path.clone(),
        ..BuildInputsRecord::default()
    })
}

/// Pins a Kustomization to its build before a change.
async fn pin(
    context: &RunContext,
    change: &FollowedChange,
    asked: &ChangeSetRollbackRequest,
    object: &Kustomization,
    key: &ObjectKey,
) -> Result<(), RollbackObstacle> {
    let revision = &change.spec.revision;
    let digest = built_of(object, revision).ok_or(RollbackObstacle::Stays(
        "it applied nothing of the revision, so that there is nothing to take back: revert the commit",
    ))?;
    let uid = object.uid().unwrap_or_default();
    let table = context.shared::<WatchedObjectCache<Quarantine>>();
    let own = windlass_quarantine::of_applier(table.of(&key.namespace), key, &uid);
    let known = windlass_quarantine::of_result(&own, digest);
    if known.is_some_and(|it| it.spec.action == QuarantineAction::RollBack) {
        return Err(RollbackObstacle::Stays(
            "it is pinned, and did not go back; its condition Ready says why",
        ));
    }
    let good = good_before(context, change, object, digest, &own).ok_or(RollbackObstacle::Stays(
        "its history has no good result before the revision, or the artifact of it is not known",
    ))?;
    let facts = BuildInputsRecord {
        digest: digest.to_owned(),
        revision: revision.clone(),
        artifact_digest: change.spec.digest.clone(),
        artifact_path: change.spec.path.clone(),
        ..BuildInputsRecord::default()
    };
    let why = asked.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    let mut quarantine = windlass_quarantine::quarantine(&FailedResult {
        node: key,
        uid: &uid,
        facts: &facts,
        reason: condition_reason::FAILED,
        message: &format!("{} rolled back change {}{why}", asked.user, change.name),
        consequence: &FailureConsequence::RollBack(good),
    });
    quarantine.metadata.owner_references = object.owner_ref(&()).map(|owner| vec![owner]);
    let recorded = windlass_quarantine::record(&context.cluster, quarantine, &own).await;
    let recorded = recorded.map_err(RollbackObstacle::Failed)?;
    known_quarantines::insert_written(context, recorded);
    // The watch does not announce a change that the cache already has.
    context.work_queue.wake(key, WakeReason::Waiting);
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn change_set(user: &str) -> ChangeSet {
        let mut object = ChangeSet::new("a", crds::windlass_release::ChangeSetSpec::default());
        object.status =
            serde_json::from_value(json!({"verdict": "Failed", "rollback": {"user": user}}))
                .unwrap();
        object
    }

    fn kustomization(history: &Value) -> Kustomization {
        serde_json::from_value(json!({"metadata": {"name": "shop"},
            "spec": {"interval": "1m", "prune": true, "sourceRef": {"kind": "GitRepository", "name": "g"}},
            "status": {"history": history}}))
        .unwrap()
    }

    fn entry(digest: &str, revision: &str, status: &str) -> Value {
        json!({"digest": digest, "firstReconciled": "2026-11-30T09:00:00Z",
            "lastReconciled": "2026-11-30T09:00:00Z", "lastReconciledDuration": "1s",
            "lastReconciledStatus": status, "totalReconciliations": 1,
            "metadata": {"revision": revision}})
    }

    #[test]
    fn only_users_roll_back() {
        assert!(request(&change_set("alice")).is_some());
        assert!(request(&change_set("system:serviceaccount:shop:robot")).is_none());
        assert!(request(&change_set("")).is_none());
    }

    #[test]
    fn it_goes_back_to_the_last_good_result_that_is_not_quarantined_itself() {
        let object = kustomization(&json!([
            entry("sha256:3", "main@sha1:3", "ReconciliationSucceeded"),
            entry("sha256:2", "main@sha1:2", "ReconciliationSucceeded"),
            entry("sha256:x", "main@sha1:x", "HealthCheckFailed"),
            entry("sha256:1", "main@sha1:1", "ReconciliationSucceeded"),
        ]));
        let digest = |own: &[Arc<Quarantine>]| {
            good_entry(&object, "sha256:3", own).map(|it| it.digest.clone())
        };
        assert_eq!(digest(&[]).as_deref(), Some("sha256:2"));
        let mut pinned = Quarantine::default();
        pinned.spec.result.digest = "sha256:2".to_owned();
        assert_eq!(digest(&[Arc::new(pinned)]).as_deref(), Some("sha256:1"));
        assert_eq!(built_of(&object, "main@sha1:2"), Some("sha256:2"));
    }
}
