//! What the next operation of a HelmRelease would change: an upgrade, or an installation where there is no release.
//!
//! Elsewhere: rendering (`render`), how objects are read and written (`helm_controller::release_runner`).

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use apply::three_way_merge;
use futures::stream::{self, StreamExt as _};
use objects::{Gvk, Object, ObjectId, SecretMasking};
use release::{OperationKind as Operation, ReleaseRecord};
use serde_json::json;

use super::change::{
    ComparisonResult, DiffAction, DiffChange, DiffReport, PlannedCrdsAndNamespaces, taken_over,
};
use crate::render::helm_release::RenderedHelmRelease;
use helm_controller::release_runner::MANAGER;
use helm_controller::release_runner::action_options::ActionOptions;
use helm_controller::release_runner::manifest_objects::{self, ManifestObject, POLICY};
use windlass_cluster::objects::DryRunMode;
use windlass_cluster::{ClusterConnection, ClusterError};
use windlass_serve::settings::OperatorSettings;

/// Compares what a HelmRelease renders with what it released.
///
/// # Errors
/// Its last release cannot be read.
pub(super) async fn diff(
    cluster: &ClusterConnection,
    rendered: RenderedHelmRelease,
) -> anyhow::Result<DiffReport> {
    let RenderedHelmRelease {
        target,
        base,
        operation,
        options,
        definitions,
        objects,
        secrets,
        settings,
        ..
    } = rendered;
    let comparison = HelmReleaseComparison {
        cluster,
        name: &target.name,
        namespace: &target.namespace,
        operation,
        options,
        is_server_side: options.is_server_side(operation, base.as_deref()),
        was_merged: base.as_deref().is_some_and(|base| !base.is_server_side()),
        overrides: overrides(&settings),
        planned: PlannedCrdsAndNamespaces::of(definitions.iter()),
        secrets,
    };
    let width = usize::from(settings.concurrent_ssa);
    comparison.difference(objects, base.as_deref(), width).await
}

/// Field managers whose fields become those of windlass.
fn overrides(settings: &OperatorSettings) -> Vec<String> {
    let ours = ["helm", MANAGER].map(str::to_owned).into_iter();
    ours.chain(settings.override_manager.iter().cloned()).collect()
}

/// What objects are compared with, and how they would be written.
struct HelmReleaseComparison<'c> {
    cluster: &'c ClusterConnection,
    name: &'c str,
    namespace: &'c str,
    operation: Operation,
    options: ActionOptions,
    is_server_side: bool,
    was_merged: bool,
    overrides: Vec<String>,
    planned: PlannedCrdsAndNamespaces,
    secrets: SecretMasking,
}

impl HelmReleaseComparison<'_> {
    async fn difference(
        mut self,
        wanted: Vec<Object>,
        base: Option<&ReleaseRecord>,
        width: usize,
    ) -> anyhow::Result<DiffReport> {
        let mut difference = DiffReport::default();
        if let Some(namespace) = self.new_namespace().await? {
            self.planned.namespaces.insert(self.namespace.to_owned());
            difference.changes.push(DiffChange::of(DiffAction::Created, &namespace));
        }
        let mut originals = BTreeMap::new();
        let before = base.map_or("", |base| &base.manifest);
        for object in manifest_objects::read(before).map_err(anyhow::Error::msg)? {
            let id = object.id();
            let namespace = base.map_or(self.namespace, |base| &base.namespace);
            match manifest_objects::reached(self.cluster, object, namespace).await {
                Ok(Some(member)) => {
                    originals.insert(member.id.clone(), member);
                }
                Ok(None) => {}
                Err(error) => difference.problems.push(self.refused(&id, &error)),
            }
        }
        let mut placed = Vec::new();
        let mut ids = BTreeSet::new();
        for object in wanted {
            let mut id = object.id();
            match manifest_objects::placed(self.cluster, object.clone(), self.namespace).await {
                Ok((resource, mut object)) => {
                    manifest_objects::owned(&mut object, self.name, self.namespace);
                    id = object.id();
                    placed.push(ManifestObject { id: id.clone(), object, resource });
                }
                Err(ClusterError::NoSuchKind { .. }) if self.planned.has_kind_of(&object) => {
                    difference.changes.push(DiffChange::of(DiffAction::Created, &object));
                }
                Err(error) => difference.problems.push(self.refused(&id, &error)),
            }
            ids.insert(id);
        }
        let compared: Vec<_> =
            placed.iter().map(|it| self.compare(it, originals.get(&it.id))).collect();
        let compared: Vec<_> = stream::iter(compared).buffered(width).collect().await;
        compared.into_iter().for_each(|it| difference.add(it));
        let gone: Vec<_> = originals.values().filter(|it| !ids.contains(&it.id)).collect();
        let removed: Vec<_> = gone.into_iter().map(|it| self.removed(it)).collect();
        let removed: Vec<_> = stream::iter(removed).buffered(width).collect().await;
        removed.into_iter().flatten().for_each(|it| difference.add(it));
        Ok(difference)
    }

    /// The namespace that an installation creates, if it is missing.
    async fn new_namespace(&self) -> anyhow::Result<Option<Object>> {
        if self.operation != Operation::Install || !self.options.create_namespace {
            return Ok(None);
        }
        let resource = self.cluster.resource(&Gvk::new("v1", "Namespace")).await?;
        let live = self.cluster.get(&resource, "", self.namespace).await;
        if live.with_context(|| format!("cannot read namespace {}", self.namespace))?.is_some() {
            return Ok(None);
        }
        let metadata = json!({"name": self.namespace, "labels": {"name": self.namespace}});
        let value = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
        Ok(Some(Object::new(value)?))
    }

    /// How an object would change; the error says why it cannot be compared.
    async fn compare(
        &self,
        member: &ManifestObject,
        original: Option<&ManifestObject>,
    ) -> Result<ComparisonResult, String> {
        let ManifestObject { id, object, resource } = member;
        let refused = |error: ClusterError| self.refused(id, &error);
        let live = self.cluster.get(resource, &id.namespace, &id.name).await.map_err(refused)?;
        let Some(live) = live else {
            let created =
                Ok(ComparisonResult::Changes(DiffChange::of(DiffAction::Created, object)));
            return match self.try_to_create(member).await {
                Err(error) if error.is_not_found() && self.is_planned(id) => created,
                tried => tried.map_err(refused).and(created),
            };
        };
        let options = self.options.of_action(self.operation);
        let foreign = manifest_objects::foreign(&live, self.name, self.namespace);
        if let Some(fault) = foreign.filter(|_| !options.take_ownership && original.is_none()) {
            return Err(fault);
        }
        let mut taken = None;
        let after = if self.is_server_side {
            taken = apply::take_over(&live, MANAGER, &self.overrides).filter(|_| self.was_merged);
            self.try_to_apply(member).await
        } else if self.options.forces(self.operation) {
            self.try_to_replace(member, &live).await
        } else {
            let patch = three_way_merge::patch(original.map(|it| &it.object), object, &live);
            let Some(patch) = patch else { return Ok(ComparisonResult::Same) };
            let cluster = self.cluster;
            cluster.try_merge_patch(resource, &id.namespace, &id.name, &patch, MANAGER).await
        };
        let after = after.map_err(refused)?;
        if taken.is_none() && !apply::drift_comparison::has_drifted(&live, &after) {
            return Ok(ComparisonResult::Same);
        }
        let (after, note) =
            taken_over(self.cluster, resource, taken.as_ref(), after, MANAGER).await;
        let change = DiffChange::between(&live, &after, &self.secrets);
        Ok(ComparisonResult::Changes(change.noted(note)))
    }

    /// Whether a namespace is created before.
    fn is_planned(&self, id: &ObjectId) -> bool {
        self.planned.namespaces.contains(&id.namespace)
    }

    async fn try_to_create(&self, member: &ManifestObject) -> Result<Object, ClusterError> {
        if self.is_server_side {
            return self.try_to_apply(member).await;
        }
        let ManifestObject { object, resource, .. } = member;
        let strict = !self.options.of_action(self.operation).disable_openapi;
        self.cluster.create_object(resource, object, &dry(), strict).await
    }

    async fn try_to_apply(&self, member: &ManifestObject) -> Result<Object, ClusterError> {
        let ManifestObject { object, resource, .. } = member;
        let strict = !self.options.of_action(self.operation).disable_openapi;
        self.cluster.apply_checked(resource, object, MANAGER, DryRunMode::DryRun, strict).await
    }

    async fn try_to_replace(
        &self,
        member: &ManifestObject,
        live: &Object,
    ) -> Result<Object, ClusterError> {
        let mut whole = member.object.clone();
        if let Some(version) = live.meta("resourceVersion").cloned() {
            whole.metadata_mut().insert("resourceVersion".to_owned(), version);
        }
        self.cluster.replace_object(&member.resource, &whole, &dry()).await
    }

    /// The removal of an object that only the revision before has; `None` if it is gone, or another release has it.
    async fn removed(&self, member: &ManifestObject) -> Option<Result<ComparisonResult, String>> {
        let ManifestObject { id, resource, .. } = member;
        let live = match self.cluster.get(resource, &id.namespace, &id.name).await {
            Ok(live) => live?,
            Err(error) => return Some(Err(self.refused(id, &error))),
        };
        if manifest_objects::is_of_another(&live, self.name, self.namespace) {
            return None;
        }
        Some(Ok(match live.annotation(POLICY) == Some("keep") {
            true => ComparisonResult::Skipped,
            false => ComparisonResult::Changes(DiffChange::of(DiffAction::Removed, &live)),
        }))
    }

    /// Why an object cannot be compared. The API server may quote it.
    fn refused(&self, id: &ObjectId, error: &ClusterError) -> String {
        format!("{}: {}", id.subject(), self.secrets.mask(&error.to_string()))
    }
}

/// The field manager of a write that is only tried.
fn dry() -> String {
    format!("{MANAGER}&dryRun=All")
}
