//! What the next reconciliation of a Kustomization would change.
//!
//! Each object is compared as a run compares it of which nothing is remembered. Elsewhere: building (`render`),
//! how a run compares and writes (its `executor`), switches and rules (`apply`).

use anyhow::ensure;
use apply::dry_run_refusal::{describe, may_be_immutable};
use apply::managed_metadata::{ServerSideApplyPolicy, expires, switches_for_apply};
use apply::{ManifestToApply, ObjectInventory, is_owned, switches};
use crds::kustomize::Kustomization;
use futures::stream::{self, StreamExt as _};
use kube_core::ResourceExt as _;
use objects::{Object, ObjectId};

use super::change::{
    ComparisonResult, DiffAction, DiffChange, DiffReport, PlannedCrdsAndNamespaces, taken_over,
};
use crate::render::kustomization::KustomizationBuild;
use kustomize_controller::kustomization::MANAGER;
use kustomize_controller::kustomization::validated_spec::DesiredKustomization;
use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::objects::DryRunMode;
use windlass_cluster::{ClusterConnection, ClusterError};
use windlass_runtime::crd_guard::is_definition;
use windlass_serve::settings::OperatorSettings;

const RECREATED: &str = "an immutable field changes: the object is deleted and created again";
const EXPIRED: &str =
    "a Job that was deleted after its end is created again at the interval, or when it changes";

/// Compares what a Kustomization builds with what it applied.
///
/// # Errors
/// Its inventory cannot be read, or nothing is built.
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
    let comparison =
        KustomizationComparison { cluster, object, desired_kustomization, settings, planned };
    let width = usize::from(settings.concurrent_ssa);
    let mut difference = DiffReport::default();
    let compared: Vec<_> = manifests.iter().map(|it| comparison.compare(it)).collect();
    let compared: Vec<_> = stream::iter(compared).buffered(width).collect().await;
    compared.into_iter().for_each(|it| difference.add(it));
    if object.spec.prune {
        let wanted: ObjectInventory =
            manifests.iter().map(|it| (it.id.clone(), it.object.gvk().version)).collect();
        let stale = recorded.minus(&wanted);
        let removed: Vec<_> =
            stale.into_iter().map(|(id, version)| comparison.removed(id, version)).collect();
        let removed: Vec<_> = stream::iter(removed).buffered(width).collect().await;
        removed.into_iter().flatten().for_each(|it| difference.add(it));
    }
    Ok(difference)
}

/// What the Kustomization has applied.
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

/// What objects are compared with, and by which rules.
struct KustomizationComparison<'c> {
    cluster: &'c ClusterConnection,
    object: &'c Kustomization,
    desired_kustomization: &'c DesiredKustomization,
    settings: &'c OperatorSettings,
    planned: PlannedCrdsAndNamespaces,
}

impl KustomizationComparison<'_> {
    /// How an object would change; the error says why it cannot be compared.
    async fn compare(&self, manifest: &ManifestToApply) -> Result<ComparisonResult, String> {
        let ManifestToApply { id, object, .. } = manifest;
        let created = |note| {
            ComparisonResult::Changes(DiffChange::of(DiffAction::Created, object).noted(note))
        };
        let resource = match self.cluster.resource(&object.gvk()).await {
            Ok(resource) => resource,
            Err(ClusterError::NoSuchKind { .. }) if self.planned.has_kind_of(object) => {
                return Ok(created(None));
            }
            Err(error) => return Err(self.refused(id, &error)),
        };
        if resource.namespaced == id.namespace.is_empty() {
            let text = match resource.namespaced {
                true => "namespace not specified: set metadata.namespace or spec.targetNamespace",
                false => "turned out to be cluster-scoped; try again",
            };
            return Err(format!("{} {text}", id.subject()));
        }
        if switches_for_apply(object, None).skips_apply(false) {
            return Ok(ComparisonResult::Skipped);
        }
        let live = self.cluster.get(&resource, &id.namespace, &id.name).await;
        let live = live.map_err(|error| self.refused(id, &error))?;
        if switches_for_apply(object, live.as_ref()).skips_apply(live.is_some()) {
            return Ok(ComparisonResult::Skipped);
        }
        match (self.try_to_apply(&resource, object).await, live) {
            (Ok(_), None) => {
                let is_known = self.was_applied(id) && expires(object);
                Ok(created(is_known.then_some(EXPIRED)))
            }
            (Ok(dry), Some(live)) => self.changed(manifest, &resource, live, dry).await,
            (Err(error), None) if self.comes_later(id, &error) => Ok(created(None)),
            (Err(error), live) => self.recreated(manifest, &resource, live, &error).await,
        }
    }

    async fn try_to_apply(
        &self,
        resource: &ApiResourceLocation,
        object: &Object,
    ) -> Result<Object, ClusterError> {
        self.cluster.apply(resource, object, MANAGER, DryRunMode::DryRun).await
    }

    fn was_applied(&self, id: &ObjectId) -> bool {
        recorded(self.object).is_ok_and(|recorded| recorded.contains(id))
    }

    /// Whether what is missing is the namespace, and that is among the manifests.
    fn comes_later(&self, id: &ObjectId, error: &ClusterError) -> bool {
        error.is_not_found() && self.planned.namespaces.contains(&id.namespace)
    }

    async fn changed(
        &self,
        manifest: &ManifestToApply,
        resource: &ApiResourceLocation,
        live: Object,
        dry: Object,
    ) -> Result<ComparisonResult, String> {
        let ManifestToApply { id, object, .. } = manifest;
        let rules = &self.desired_kustomization.ignore;
        let overrides = &self.settings.override_manager;
        let is_merged = switches_for_apply(object, Some(&live)).ssa == ServerSideApplyPolicy::Merge;
        let taken = rules.take_over(object, &live, MANAGER, overrides).filter(|_| !is_merged);
        if taken.is_none() && !rules.have_drifted(&live, &dry) {
            return Ok(ComparisonResult::Same);
        }
        let dry = match rules.leave_alone(object) {
            true => dry,
            false => {
                let payload = rules.payload(object, &live, MANAGER);
                let dry = self.try_to_apply(resource, &payload).await;
                dry.map_err(|error| self.refused(id, &error))?
            }
        };
        let (after, note) = taken_over(self.cluster, resource, taken.as_ref(), dry, MANAGER).await;
        let change = DiffChange::between(&live, &after, &self.desired_kustomization.secrets);
        Ok(ComparisonResult::Changes(change.noted(note)))
    }

    /// A dry-run that was refused: the object is recreated if that was asked for and would help.
    async fn recreated(
        &self,
        manifest: &ManifestToApply,
        resource: &ApiResourceLocation,
        live: Option<Object>,
        error: &ClusterError,
    ) -> Result<ComparisonResult, String> {
        let ManifestToApply { id, object, .. } = manifest;
        let force = self.object.spec.force || switches_for_apply(object, live.as_ref()).force;
        let may_be_recreated = force && !is_definition(object);
        let is_immutable = may_be_immutable(word(error), &error.to_string());
        let Some(live) = live.filter(|_| may_be_recreated && is_immutable) else {
            return Err(self.refused(id, error));
        };
        // As a run does it: under another name it must be accepted.
        let mut probe = object.clone();
        let name = format!("{}-windlass-probe", id.name);
        let begin = name.char_indices().rev().nth(59).map_or(0, |(at, _)| at);
        let name = name[begin..].trim_start_matches(['-', '.']);
        probe.metadata_mut().insert("name".into(), name.into());
        match self.try_to_apply(resource, &probe).await {
            Ok(_) => {
                let change = DiffChange::of(DiffAction::Recreated, &live);
                Ok(ComparisonResult::Changes(change.noted(Some(RECREATED))))
            }
            Err(_) => Err(self.refused(id, error)),
        }
    }

    /// The removal of an object that left the manifests; `None` if it is gone or being deleted.
    async fn removed(
        &self,
        id: ObjectId,
        version: String,
    ) -> Option<Result<ComparisonResult, String>> {
        let live = match self.cluster.get_by_id(&id, &version).await {
            Ok(live) => live?,
            Err(error) => return Some(Err(self.refused(&id, &error))),
        };
        let own = self.object.namespace().unwrap_or_default();
        let is_ours = is_owned(&live, &self.object.name_any(), &own);
        let is_going = live.meta("deletionTimestamp").is_some_and(|it| !it.is_null());
        let is_wanted = self.desired_kustomization.desired.wants_cluster_scoped(&live.id());
        if !is_ours || is_going || is_wanted {
            return None;
        }
        Some(Ok(match switches(&live).skips_prune() {
            true => ComparisonResult::Skipped,
            false => ComparisonResult::Changes(DiffChange::of(DiffAction::Removed, &live)),
        }))
    }

    /// Why an object cannot be compared. The API server may quote it.
    fn refused(&self, id: &ObjectId, error: &ClusterError) -> String {
        describe(id, word(error), &self.desired_kustomization.secrets.mask(&error.to_string()))
    }
}

/// The API server's own word for a refusal.
fn word(error: &ClusterError) -> &str {
    match error {
        ClusterError::Refused(status) => &status.reason,
        _ => "",
    }
}
