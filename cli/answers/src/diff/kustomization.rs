//! Predicts what the next reconciliation of a Kustomization would change.
//!
//! Elsewhere: building (`render`), predicting each object (`windlass_cli_plan::object_prediction`).

use anyhow::ensure;
use apply::{ManifestToApply, ObjectInventory, switches};
use crds::kustomize::Kustomization;
use futures::stream::{self, StreamExt as _};
use objects::Object;

use super::predicted_changes::DiffReport;
use crate::render::kustomization::KustomizationBuild;
use windlass_cli_plan::object_prediction::PlannedCrdsAndNamespaces;
use windlass_cli_plan::object_prediction::kustomization::KustomizationObjectPredictor;
use windlass_cluster::ClusterConnection;

/// Compares the built objects of a Kustomization with its inventory.
///
/// # Errors
/// The inventory cannot be read, or the build has no objects.
pub(super) async fn diff(
    cluster: &ClusterConnection,
    built: &KustomizationBuild,
) -> anyhow::Result<DiffReport> {
    let KustomizationBuild { object, desired_kustomization, settings } = built;
    let recorded = recorded(object)?;
    let manifests: Vec<&ManifestToApply> = built.manifests().collect();
    ensure!(
        !manifests.is_empty()
            || recorded.is_empty()
            || desired_kustomization.desired.empty_is_intended,
        "the build has no objects, and windlass does not delete the {} in the inventory for that",
        recorded.len()
    );
    let planned = PlannedCrdsAndNamespaces::of(manifests.iter().map(|manifest| &manifest.object));
    let secrets = &desired_kustomization.secrets;
    let comparison = KustomizationObjectPredictor {
        cluster,
        object,
        applied: &recorded,
        rules: &desired_kustomization.ignore,
        overrides: &settings.override_manager,
        secrets,
        planned: &planned,
    };
    let width = usize::from(settings.concurrent_ssa);
    let mut difference = DiffReport::default();
    let compared: Vec<_> = manifests.iter().map(|it| comparison.predict(&it.object)).collect();
    let compared: Vec<_> = stream::iter(compared).buffered(width).collect().await;
    compared.into_iter().for_each(|it| difference.add(it, secrets));
    if object.spec.prune {
        let wanted: ObjectInventory =
            manifests.iter().map(|it| (it.id.clone(), it.object.gvk().version)).collect();
        let stale = recorded.minus(&wanted);
        let left: Vec<_> = stale.iter().map(|(id, version)| comparison.left(id, version)).collect();
        let left: Vec<_> = stream::iter(left).buffered(width).collect().await;
        let desired = &desired_kustomization.desired;
        let has_left = |live: &Object| !desired.wants_cluster_scoped(&live.id());
        for left in left {
            let left = left.map(|live| live.filter(has_left));
            difference.add_left(left, |live| switches(live).skips_prune());
        }
    }
    Ok(difference)
}

/// The inventory of the Kustomization.
fn recorded(object: &Kustomization) -> anyhow::Result<ObjectInventory> {
    let entries = object.status.as_ref().and_then(|status| status.inventory.as_ref());
    let entries = entries.into_iter().flat_map(|it| &it.entries);
    let entries: Vec<_> = entries.map(|it| (it.id.clone(), it.version.clone())).collect();
    let (recorded, unreadable) = ObjectInventory::from_entries(&entries);
    ensure!(
        unreadable.is_empty(),
        "status.inventory has invalid entries: {}; correct or remove them",
        unreadable.join(", ")
    );
    Ok(recorded)
}
