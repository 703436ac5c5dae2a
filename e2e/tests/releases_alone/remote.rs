//! Releases in another cluster, which may go.

use anyhow::{Result, ensure};
use e2e::control_plane::{self, ControlPlane};
use e2e::harness::flux::SOON;
use e2e::harness::release::{CONFIG, Charts};
use e2e::harness::{Story, Target, Windlass, await_until};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::Api;
use serde_json::{Value, json};

/// What a spec's `kubeConfig` says of a control plane, in a Secret of the story's namespace.
async fn kubeconfig(story: &Story, plane: &ControlPlane) -> Result<Value> {
    let text = std::fs::read_to_string(plane.operator_kubeconfig())?;
    story
        .apply_value(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "remote"},
            "stringData": {"value": text}}))
        .await?;
    Ok(json!({"secretRef": {"name": "remote"}}))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_in_another_cluster_is_all_there_and_its_end_holds_nobody_up() -> Result<()> {
    let story = Story::begin("release-remote").await?;
    let _windlass = Windlass::start_for(&story, &[]).await?;
    let plane = ControlPlane::start().await?;
    let remote = control_plane::client(&plane.kubeconfig()).await?;
    let maps = Api::<ConfigMap>::namespaced(remote.clone(), "default");
    let secrets = Api::<Secret>::namespaced(remote.clone(), "default");
    let there = kubeconfig(&story, &plane).await?;
    let charts = Charts::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let mut spec = json!({"releaseName": "far", "targetNamespace": "default",
        "storageNamespace": "default", "driftDetection": {"mode": "enabled"}});
    spec["kubeConfig"] = there;
    let far = charts.release("far", spec).await?;
    story.await_revision(&far, 1).await?;
    ensure!(maps.get_opt("far-config").await?.is_some(), "it does not exist");
    ensure!(secrets.get_opt("sh.helm.release.v1.far.v1").await?.is_some(), "no record is there");
    let here = Target::config_map("far-config").in_namespace("default");
    ensure!(story.read(&here).await?.is_none(), "it is here");

    // What somebody deletes there comes back.
    maps.delete("far-config", &Default::default()).await?;
    await_until("the ConfigMap in the other cluster", SOON, async || {
        Ok(maps.get_opt("far-config").await?.map(drop))
    })
    .await?;
    story.merge(&far, json!({"spec": {"values": {"value": "two"}}})).await?;
    story.await_revision(&far, 2).await?;

    drop(plane);
    story.merge(&far, json!({"spec": {"values": {"value": "three"}}})).await?;
    let near = charts.release("near", json!({})).await?;
    story.await_revision(&near, 1).await?;
    story.await_condition(&far, "Ready", "False", 2 * SOON).await?;
    story.end().await
}

async fn create<K>(api: &Api<K>, object: Value) -> Result<()>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + serde::Serialize,
{
    let object: K = serde_json::from_value(object)?;
    api.create(&Default::default(), &object).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_made_as_an_account_of_another_cluster_is_removed_by_it() -> Result<()> {
    let story = Story::begin("release-remote-account").await?;
    let _windlass = Windlass::start_for(&story, &[]).await?;
    let plane = ControlPlane::start().await?;
    let remote = control_plane::client(&plane.kubeconfig()).await?;
    let own = story.namespace.as_str();
    let namespaces = Api::<Namespace>::all(remote.clone());
    create(&namespaces, json!({"metadata": {"name": own}})).await?;
    let accounts = Api::<ServiceAccount>::namespaced(remote.clone(), own);
    create(&accounts, json!({"metadata": {"name": "tenant"}})).await?;
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
        "name": "cluster-admin"});
    let tenant = json!([{"kind": "ServiceAccount", "name": "tenant", "namespace": own}]);
    let binding = json!({"metadata": {"name": "tenant"}, "roleRef": role, "subjects": tenant});
    create(&Api::<ClusterRoleBinding>::all(remote.clone()), binding).await?;
    let there = kubeconfig(&story, &plane).await?;
    let charts = Charts::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let spec = json!({"kubeConfig": there, "serviceAccountName": "tenant"});
    let far = charts.release("far", spec).await?;
    story.await_revision(&far, 1).await?;
    let maps = Api::<ConfigMap>::namespaced(remote.clone(), own);
    ensure!(maps.get_opt("far-config").await?.is_some(), "it does not exist");
    story.delete(&far).await?;
    story.await_gone(&far, SOON).await?;
    ensure!(maps.get_opt("far-config").await?.is_none(), "it was left behind");
    story.end().await
}
