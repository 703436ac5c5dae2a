//! Incidents of data loss that are known from GitOps clusters. Objects that are missing for a moment, or leave the
//! repository by mistake, are not deleted.
//!
//! At its end, each story compares the UIDs of the objects, and checks that windlass sent no deletion.
//! Here: the objects, and finding lost ones. Elsewhere: the deletion budget itself (`stories/deletion_budget.rs`), charts
//! that lose objects (`releases`), an unreachable or slow API server (`api_server_refusals.rs`).
//!
//! The stories have their own process, because each has its own windlass or Flux's controllers.

mod commits_removing_objects;
mod missing_secrets;
mod objects_lost_with_flux;
mod wrong_api_server_answers;
mod wrong_bucket_listings;
mod wrong_fetch_answers;

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use e2e::api_server_fault_proxy::ApiServerFaultProxy;
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject, WindlassProcess};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{Api, DynamicObject, ListParams};

/// The number of objects. It is larger than the deletion budget allows to delete.
const COUNT: usize = 12;

/// The Kustomization that applies the objects.
const ROOT: &str = "root";

/// The ConfigMap that Kubernetes creates in each namespace.
const OF_KUBERNETES: &str = "kube-root-ca.crt";

/// The name of a ConfigMap.
fn map(number: usize) -> String {
    format!("map-{number:02}")
}

/// A file for each ConfigMap, in a folder that ends with `/` or is empty.
fn files(folder: &str) -> Vec<(String, String)> {
    (0..COUNT).map(|at| (format!("{folder}{}.yaml", map(at)), config_map(&map(at), "1"))).collect()
}

/// The same files without what owns them.
fn borrowed(files: &[(String, String)]) -> Vec<(&str, String)> {
    files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect()
}

/// ConfigMaps that are not being deleted, with their UIDs.
type ConfigMapUids = BTreeMap<String, String>;

/// The ConfigMaps of a namespace.
async fn uids(story: &Story, namespace: &str) -> Result<ConfigMapUids> {
    let api = Api::<ConfigMap>::namespaced(story.client.clone(), namespace);
    let list = api.list(&ListParams::default()).await?;
    let staying = list.items.into_iter().filter(|it| it.metadata.deletion_timestamp.is_none());
    let made = staying.filter(|it| it.name_any() != OF_KUBERNETES);
    Ok(made.map(|it| (it.name_any(), it.uid().unwrap_or_default())).collect())
}

/// The ConfigMaps that were deleted or created again since `before`.
async fn lost(story: &Story, namespace: &str, before: &ConfigMapUids) -> Result<Vec<String>> {
    let now = uids(story, namespace).await?;
    let lost = before.iter().filter(|(name, uid)| now.get(*name) != Some(*uid));
    Ok(lost.map(|(name, _)| name.clone()).collect())
}

/// Checks that all objects are the same as before, and that windlass requested no deletion. Objects of windlass's own groups,
/// such as Plans, and old release records do not count.
async fn ensure_nothing_is_lost(
    story: &Story,
    proxy: &ApiServerFaultProxy,
    namespace: &str,
    before: &ConfigMapUids,
) -> Result<()> {
    let lost = lost(story, namespace, before).await?;
    ensure!(lost.is_empty(), "{lost:?} were deleted");
    let mut writes = proxy.writes();
    let is_record = |write: &str| {
        ["windlass.dev/", "/secrets/sh.helm.release."].iter().any(|it| write.contains(it))
    };
    writes.retain(|write| write.starts_with("DELETE ") && !is_record(write));
    ensure!(writes.is_empty(), "deletions were requested: {writes:?}");
    Ok(())
}

/// Starts windlass behind a proxy that records its writes.
async fn windlass(story: &Story) -> Result<(ApiServerFaultProxy, WindlassProcess)> {
    let proxy = ApiServerFaultProxy::start(story.bed.operator_kubeconfig())?;
    let windlass = WindlassProcess::start_for(story, &[&proxy.flag()]).await?;
    Ok((proxy, windlass))
}

/// Waits until a Kustomization holds deletions.
async fn await_deletion_held(story: &Story, name: &str) -> Result<()> {
    let is_held = |object: &DynamicObject| condition(object, "DeletionHeld")["status"] == "True";
    let target = StoryObject::kustomization(name);
    story.await_object(&target, DEFAULT_WAIT_TIMEOUT, is_held).await.map(drop)
}

/// Requests a reconciliation, and waits until the object is Ready after it.
async fn reconcile(story: &Story, target: &StoryObject) -> Result<DynamicObject> {
    let token = story.request(target).await?;
    let is_handled = |object: &DynamicObject| {
        object.data["status"]["lastHandledReconcileAt"] == token.as_str()
            && condition(object, "Ready")["status"] == "True"
    };
    story.await_object(target, DEFAULT_WAIT_TIMEOUT, is_handled).await
}
