//! Appliers with a source, and their progress with its artifact, as their statuses show it.
//!
//! Elsewhere: the meaning of statuses (`changes::member_state`).

use std::sync::Arc;

use changes::member_state::{
    MemberNewVersion, MemberState, ObservedMember, ObservedReadyCondition, next_state,
};
use crds::helmfile::Helmfile;
use crds::kustomize::{CrossNamespaceSourceReference, Kustomization};
use crds::windlass_release::Quarantine;
use crds::{Applier as _, Artifact, KubeConfigReference, ReconciledObject};
use kube_core::ResourceExt as _;
use quarantine::build_inputs_record::BuildInputsRecord;
use reconcile::{ObjectKey, READY, RECONCILING, Time, condition_reason};
use rollout::wave_decision::MemberProgress;

use windlass_cluster::windlass_kind::WindlassKind;
use windlass_runtime::lifecycle::watched_object_cache::WatchedObjectCache;
use windlass_runtime::object_hold::is_suspended;
use windlass_runtime::run_context::RunContext;
use windlass_runtime::source_reference::source_node;

use super::rollout_definition::Labels;

/// An applier with a source.
#[derive(Debug, Clone)]
pub(crate) enum ObservedApplier {
    Kustomization(Arc<Kustomization>),
    Helmfile(Arc<Helmfile>),
}

/// The revisions in a status, if they are about this artifact.
#[derive(Debug, Clone, Copy, Default)]
struct StatusRevisions<'o> {
    attempted: Option<&'o str>,
    applied: Option<&'o str>,
}

/// The inputs of the newest good result of a revision, from the history of a Kustomization. `None` if the history does not
/// have them.
#[must_use]
pub fn facts_of_revision(object: &Kustomization, revision: &str) -> Option<BuildInputsRecord> {
    let history = object.status.iter().flat_map(|status| &status.history);
    let mut of_revision = history
        .filter(|it| it.metadata.get("revision").map(String::as_str) == Some(revision))
        .filter(|it| {
            it.last_reconciled_status == condition_reason::RECONCILIATION_SUCCEEDED.as_str()
        });
    of_revision.find_map(|it| BuildInputsRecord::of_entry(&it.digest, &it.metadata))
}

impl ObservedApplier {
    /// All appliers that the watches saw, except those that are being deleted.
    pub(crate) fn all(context: &RunContext) -> Vec<Self> {
        let kustomizations = context.store::<Kustomization>().state().into_iter();
        let helmfiles = context.store::<Helmfile>().state().into_iter();
        let mut all: Vec<Self> = kustomizations
            .filter(|it| it.metadata.deletion_timestamp.is_none())
            .map(Self::Kustomization)
            .collect();
        let lives = |it: &Arc<Helmfile>| {
            it.metadata.deletion_timestamp.is_none() && it.spec.source_ref.is_some()
        };
        all.extend(helmfiles.filter(lives).map(Self::Helmfile));
        all
    }

    /// The applier as its watch saw it last. `None` if it is gone.
    pub(crate) fn newest(&self, context: &RunContext) -> Option<Self> {
        let ObjectKey { namespace, name, .. } = self.key();
        match self {
            Self::Kustomization(_) => {
                context.seen::<Kustomization>(&namespace, &name).map(Self::Kustomization)
            }
            Self::Helmfile(_) => context.seen::<Helmfile>(&namespace, &name).map(Self::Helmfile),
        }
    }

    /// The key by which the appliers of a rollout are sorted. The watches have no order, and a restart would change it. In a
    /// fixed order, the first decision after a restart releases the appliers that were released before it, unless appliers were
    /// added or became unhealthy meanwhile.
    pub(crate) fn order(&self) -> (&str, &str, bool) {
        let metadata = match self {
            Self::Kustomization(object) => &object.metadata,
            Self::Helmfile(object) => &object.metadata,
        };
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let name = metadata.name.as_deref().unwrap_or_default();
        (namespace, name, matches!(self, Self::Helmfile(_)))
    }

    pub(crate) fn key(&self) -> ObjectKey {
        fn key_of<K: WindlassKind>(object: &K) -> ObjectKey {
            let namespace = object.namespace().unwrap_or_default();
            ObjectKey::new(&K::group(&()), &K::kind(&()), &namespace, &object.name_any())
        }
        match self {
            Self::Kustomization(object) => key_of(&**object),
            Self::Helmfile(object) => key_of(&**object),
        }
    }

    pub(crate) fn labels(&self) -> &Labels {
        match self {
            Self::Kustomization(object) => object.labels(),
            Self::Helmfile(object) => object.labels(),
        }
    }

    /// The source that the applier names. `None` if it may not name it.
    pub(crate) fn source(&self, context: &RunContext) -> Option<ObjectKey> {
        let own = self.key().namespace;
        let node = source_node(&own, self.source_ref()?);
        let is_denied = context.settings.no_cross_namespace_refs && node.namespace != own;
        (!is_denied).then_some(node)
    }

    fn source_ref(&self) -> Option<&CrossNamespaceSourceReference> {
        match self {
            Self::Kustomization(object) => Some(&object.spec.source_ref),
            Self::Helmfile(object) => object.spec.source_ref.as_ref(),
        }
    }

    pub(crate) fn kube_config(&self) -> Option<&KubeConfigReference> {
        match self {
            Self::Kustomization(object) => object.kube_config(),
            Self::Helmfile(object) => object.kube_config(),
        }
    }

    pub(crate) fn service_account_name(&self) -> Option<&str> {
        match self {
            Self::Kustomization(object) => object.service_account_name(),
            Self::Helmfile(object) => object.service_account_name(),
        }
    }

    /// The name of the applier's cluster, by the Secret with its kubeconfig. Empty for windlass's own cluster.
    pub(crate) fn cluster(&self) -> String {
        let secret = self.kube_config().and_then(|it| it.secret_ref.as_ref());
        let namespace = || self.key().namespace;
        secret.map(|it| format!("{}/{}", namespace(), it.name)).unwrap_or_default()
    }

    /// Whether a Quarantine keeps the applier from an artifact that it has attempted before.
    pub(crate) fn is_quarantined(&self, context: &RunContext, artifact: &Artifact) -> bool {
        let Self::Kustomization(object) = self else { return false };
        let key = self.key();
        let table = context.shared::<WatchedObjectCache<Quarantine>>();
        let uid = object.uid().unwrap_or_default();
        let own = windlass_quarantine::of_applier(table.of(&key.namespace), &key, &uid);
        own.iter().any(|it| {
            let result = &it.spec.result;
            windlass_quarantine::is_in_force(it)
                && result.revision == artifact.revision
                && result.artifact_digest == artifact.digest
        })
    }

    /// The progress of the applier with an artifact.
    pub(crate) fn progress(&self, artifact: &Artifact, now: Time) -> MemberProgress {
        match self {
            Self::Kustomization(object) => {
                let status = object.status.as_ref();
                let facts = facts_of_revision(object, &artifact.revision);
                let is_other = facts.is_some_and(|it| it.artifact_digest != artifact.digest);
                let revisions = StatusRevisions {
                    attempted: status.and_then(|it| it.last_attempted_revision.as_deref()),
                    applied: status.and_then(|it| it.last_applied_revision.as_deref()),
                };
                // The same revision may have another artifact, for example after a change of `spec.ignore`.
                let revisions = if is_other { StatusRevisions::default() } else { revisions };
                progress(&**object, revisions, &artifact.revision, now)
            }
            Self::Helmfile(object) => {
                let status = object.status.as_ref();
                let revisions = StatusRevisions {
                    attempted: status.and_then(|it| it.last_attempted_revision.as_deref()),
                    applied: status.and_then(|it| it.last_applied_revision.as_deref()),
                };
                progress(&**object, revisions, &artifact.revision, now)
            }
        }
    }
}

/// The progress of an object with a revision.
fn progress<K: WindlassKind + ReconciledObject>(
    object: &K,
    revisions: StatusRevisions<'_>,
    revision: &str,
    now: Time,
) -> MemberProgress {
    let ready = object.condition(READY);
    let reconciling = object.condition(RECONCILING);
    let generation = object.meta().generation.unwrap_or_default();
    let observed = ObservedMember {
        is_suspended: is_suspended(object, now),
        is_reconciling: reconciling.is_some_and(|it| {
            it.status == "True" && it.reason != condition_reason::PROGRESSING_WITH_RETRY.as_str()
        }),
        generation,
        ready: ready.map(|it| ObservedReadyCondition {
            status: &it.status,
            reason: &it.reason,
            generation: it.observed_generation,
        }),
        attempted: revisions.attempted,
        applied: revisions.applied,
        waits_for_wave: false,
        quarantine: None,
    };
    let has_begun = revisions.attempted == Some(revision);
    match next_state(None, &observed, MemberNewVersion::Revision(revision)) {
        MemberState::Succeeded => MemberProgress::Updated,
        MemberState::Skipped => MemberProgress::Suspended,
        MemberState::Failed | MemberState::RolledBack => MemberProgress::Failed,
        MemberState::Progressing | MemberState::Waiting if has_begun => MemberProgress::UnderWay,
        MemberState::Progressing | MemberState::Waiting => {
            let is_new = |of: Option<i64>| of.is_none_or(|of| of >= generation);
            let is_ready =
                ready.is_some_and(|it| it.status == "True" && is_new(it.observed_generation));
            MemberProgress::Pending { is_ready }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::*;

    pub(crate) fn artifact(revision: &str) -> Artifact {
        Artifact {
            digest: format!("sha256:{revision}"),
            last_update_time: crds::Time(Time::UNIX_EPOCH),
            metadata: BTreeMap::new(),
            path: String::new(),
            revision: revision.to_owned(),
            size: None,
            url: String::new(),
        }
    }

    pub(crate) fn applier(
        attempted: &str,
        ready: &str,
        suspend: bool,
        digest: &str,
    ) -> ObservedApplier {
        let condition = json!({"type": "Ready", "status": ready, "reason": "R", "message": "",
            "observedGeneration": 2, "lastTransitionTime": "2026-11-30T09:00:00Z"});
        let metadata = json!({"revision": "2", "windlass.dev/ArtifactPath": "p",
            "windlass.dev/ArtifactDigest": digest, "windlass.dev/SpecDigest": "s"});
        let entry = json!({"digest": "b", "firstReconciled": "2026-11-30T09:00:00Z",
            "lastReconciled": "2026-11-30T09:00:00Z", "lastReconciledDuration": "1s",
            "lastReconciledStatus": "ReconciliationSucceeded", "totalReconciliations": 1,
            "metadata": metadata});
        let object: Value = json!({"metadata": {"name": "a", "namespace": "shop", "generation": 2},
            "spec": {"interval": "1m", "prune": true, "suspend": suspend,
                "sourceRef": {"kind": "GitRepository", "name": "g"},
                "kubeConfig": {"secretRef": {"name": "east"}}},
            "status": {"lastAttemptedRevision": attempted, "lastAppliedRevision": attempted,
                "history": [entry], "conditions": [condition]}});
        ObservedApplier::Kustomization(Arc::new(serde_json::from_value(object).unwrap()))
    }

    #[test]
    fn only_a_status_about_this_artifact_says_that_an_applier_is_updated() {
        let of = |attempted: &str, ready: &str, digest: &str| {
            applier(attempted, ready, false, digest).progress(&artifact("2"), Time::UNIX_EPOCH)
        };
        assert_eq!(of("2", "True", "sha256:2"), MemberProgress::Updated);
        assert_eq!(of("2", "False", "sha256:2"), MemberProgress::Failed);
        assert_eq!(of("2", "Unknown", "sha256:2"), MemberProgress::UnderWay);
        assert_eq!(of("1", "True", "sha256:2"), MemberProgress::Pending { is_ready: true });
        assert_eq!(of("1", "False", "sha256:2"), MemberProgress::Pending { is_ready: false });
        let other = of("2", "True", "sha256:3");
        assert_eq!(other, MemberProgress::Pending { is_ready: true }, "another artifact");
    }

    #[test]
    fn appliers_have_an_order_that_a_restart_does_not_change() {
        let named = |namespace: &str, name: &str| {
            let source = json!({"kind": "GitRepository", "name": "g"});
            let object = json!({"metadata": {"name": name, "namespace": namespace},
                "spec": {"interval": "1m", "prune": true, "sourceRef": source}});
            ObservedApplier::Kustomization(Arc::new(serde_json::from_value(object).unwrap()))
        };
        let mut all = [named("shop", "b"), named("shop", "a"), named("apps", "c")];
        all.sort_by(|one, other| one.order().cmp(&other.order()));
        let keys = all.map(|it| it.key().to_string());
        assert_eq!(keys, ["Kustomization/apps/c", "Kustomization/shop/a", "Kustomization/shop/b"]);
    }

    #[test]
    fn a_suspended_applier_is_left_out_and_a_cluster_is_named_by_its_secret() {
        let suspended = applier("1", "True", true, "");
        let progress = suspended.progress(&artifact("2"), Time::UNIX_EPOCH);
        assert_eq!(progress, MemberProgress::Suspended);
        assert_eq!(suspended.cluster(), "shop/east");
    }
}
