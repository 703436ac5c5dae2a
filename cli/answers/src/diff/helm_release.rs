//! Predicts what the next operation of a HelmRelease would change. The operation is an upgrade, or an installation if there is
//! no release.
//!
//! Elsewhere: rendering (`render`), predicting each object (`windlass_cli_plan::object_prediction`).

use std::collections::BTreeSet;

use anyhow::Context as _;
use futures::stream::{self, StreamExt as _};
use objects::{Gvk, Object, ObjectId};
use release::OperationKind as Operation;
use serde_json::json;

use super::predicted_changes::{DiffAction, DiffChange, DiffReport};
use crate::render::helm_release::RenderedHelmRelease;
use helm_controller::release_runner::manifest_objects::POLICY;
use windlass_cli_plan::object_prediction::PlannedCrdsAndNamespaces;
use windlass_cli_plan::object_prediction::helm_release::{
    HelmReleaseObjectPredictor, LiveReleaseObjects, PredictedOperation, PredictedReleaseObject,
};
use windlass_cluster::ClusterConnection;

/// Compares the rendered objects of a HelmRelease with its last release.
///
/// # Errors
/// The last release cannot be read.
pub(super) async fn diff(
    cluster: &ClusterConnection,
    rendered: RenderedHelmRelease,
) -> anyhow::Result<DiffReport> {
    let mut difference = DiffReport::default();
    let mut planned = PlannedCrdsAndNamespaces::of(rendered.definitions.iter());
    if let Some(namespace) = new_namespace(cluster, &rendered).await? {
        planned.add_namespace(namespace.name());
        difference.changes.push(DiffChange::of(DiffAction::Created, &namespace));
    }
    let RenderedHelmRelease {
        target, base, operation, options, objects, secrets, settings, ..
    } = rendered;
    let predicted = PredictedOperation {
        name: &target.name,
        namespace: &target.namespace,
        operation,
        options,
        base: base.as_deref(),
        overrides: &settings.override_manager,
    };
    let comparison = HelmReleaseObjectPredictor::new(cluster, &predicted, planned, secrets.clone());
    let width = usize::from(settings.concurrent_ssa);
    let recorded =
        LiveReleaseObjects::of(cluster, base.as_deref()).await.map_err(anyhow::Error::msg)?;
    let LiveReleaseObjects { members: originals, unread } = recorded;
    difference.problems.extend(unread.iter().map(|(id, error)| comparison.described(id, error)));
    let compared: Vec<_> =
        objects.into_iter().map(|object| comparison.predict(object, &originals)).collect();
    let compared: Vec<PredictedReleaseObject> =
        stream::iter(compared).buffered(width).collect().await;
    let mut ids: BTreeSet<ObjectId> = BTreeSet::new();
    for PredictedReleaseObject { id, prediction, .. } in compared {
        difference.add(prediction, &secrets);
        ids.insert(id);
    }
    let gone: Vec<_> = originals.values().filter(|it| !ids.contains(&it.id)).collect();
    let left: Vec<_> = gone.into_iter().map(|it| comparison.left(it)).collect();
    let left: Vec<_> = stream::iter(left).buffered(width).collect().await;
    for left in left {
        difference.add_left(left, |live| live.annotation(POLICY) == Some("keep"));
    }
    Ok(difference)
}

/// The namespace that an installation creates if it is missing.
async fn new_namespace(
    cluster: &ClusterConnection,
    rendered: &RenderedHelmRelease,
) -> anyhow::Result<Option<Object>> {
    if rendered.operation != Operation::Install || !rendered.options.create_namespace {
        return Ok(None);
    }
    let name = &rendered.target.namespace;
    let resource = cluster.resource(&Gvk::new("v1", "Namespace")).await?;
    let live = cluster.get(&resource, "", name).await;
    if live.with_context(|| format!("cannot read namespace {name}"))?.is_some() {
        return Ok(None);
    }
    let metadata = json!({"name": name, "labels": {"name": name}});
    let value = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
    Ok(Some(Object::new(value)?))
}
