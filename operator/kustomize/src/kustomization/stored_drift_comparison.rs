//! What a Kustomization keeps across a restart, so that its first run needs no request if nothing has changed.
//!
//! Elsewhere: the files, and what is concluded from them (`windlass_cluster::object_watcher`).

use std::collections::BTreeMap;
use std::sync::Arc;

use apply::HealthWaitScope;
use crds::ReconciledObject as _;
use crds::kustomize::Kustomization;
use objects::ObjectId;
use reconcile::READY;

use super::executor::DriftCheckScope;
use super::validated_spec::{self, DesiredKustomization};
use super::{KustomizationRunReport, KustomizationSession};
use windlass_cluster::object_watcher::{OwnerVersion, StoredRunFacts};
use windlass_runtime::cluster_target::ClusterTarget;

impl KustomizationSession<'_> {
    /// Keeps the comparison of the applied objects after a run that found or made all of them as desired.
    pub(super) fn keep_comparison(
        &self,
        object: &Arc<Kustomization>,
        ended: &KustomizationRunReport,
        desired_kustomization: &DesiredKustomization,
        target: &ClusterTarget,
    ) {
        if !ended.outcome.is_settled() {
            return;
        }
        let spec = &object.spec;
        let reads_nothing = validated_spec::inputs(spec).is_empty()
            && spec.decryption.is_none()
            && spec.depends_on.iter().all(|entry| entry.kind.is_none());
        let stages = &desired_kustomization.desired.stages;
        let count: usize = stages.iter().map(|stage| stage.objects.len()).sum();
        let is_free = reads_nothing
            && !desired_kustomization.is_remote
            && !desired_kustomization.asks_others()
            && target.watcher().tracked_count(&self.node) == count;
        let is_waited_for = stages.iter().any(|stage| stage.kind.is_waited_for());
        let reads_health =
            is_waited_for || !matches!(desired_kustomization.desired.health, HealthWaitScope::None);
        let version = OwnerVersion::of(&**object);
        let facts = StoredRunFacts { version, is_free, reads_health, note: String::new() };
        target.watcher().keep_comparison(&self.node, facts);
    }

    /// The objects whose health the first run after a start need not read, with their versions: the Kustomization was ready
    /// with this build, and the objects have not changed since.
    pub(super) fn confirmed_health(
        &self,
        object: &Kustomization,
        verify: DriftCheckScope,
        is_correction: bool,
        target: &ClusterTarget,
    ) -> BTreeMap<ObjectId, u64> {
        let is_confirmed = target.watcher().take_note(&self.node).is_some();
        let is_ready = object.condition(READY).is_some_and(|it| it.status == "True");
        if is_confirmed && is_ready && is_correction && verify == DriftCheckScope::Moved {
            target.watcher().unmoved_versions(&self.node)
        } else {
            BTreeMap::new()
        }
    }
}
