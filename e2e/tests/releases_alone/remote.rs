//! Releases in another cluster, which may go.

use anyhow::{Result, ensure};
use e2e::control_plane::{self, ControlPlane};
use e2e::harness::flux::{NEVER, SOON, Upstream};
use e2e::harness::release::{CONFIG, Charts};
use e2e::harness::{Story, Target, Windlass, await_until};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{Api, DynamicObject};
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

/// A Helmfile whose context `east` is another cluster.
async fn helmfile(story: &Story, there: &Value) -> Result<Target> {
    let api = "helmfile.windlass.dev/v1alpha1";
    story
        .apply_value(json!({"apiVersion": api, "kind": "Helmfile", "metadata": {"name": "shop"},
            "spec": {"interval": NEVER, "prune": true, "kubeContexts": {"east": there},
                "sourceRef": {"kind": "GitRepository", "name": "shop"}}}))
        .await?;
    Ok(Target::new(api, "Helmfile", "shop"))
}

/// `CONTEXT REVISION STATE` of each release, in order.
fn rows(object: &DynamicObject) -> Vec<String> {
    let rows = object.data["status"]["releases"].as_array();
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let line = |row: &Value| {
        format!(
            "{}/{} {} {}",
            text(row, "kubeContext"),
            text(row, "name"),
            row["revision"],
            text(row, "state")
        )
    };
    rows.into_iter().flatten().map(line).collect()
}

/// Another context of the same cluster has the same records: nothing there is uninstalled, whether the helmfile names it
/// instead or besides.
async fn moves(
    story: &Story,
    (shop, there): (&Target, &Value),
    maps: &Api<ConfigMap>,
    upstream: &Upstream<'_>,
    [moved, both]: [String; 2],
) -> Result<()> {
    let before = maps.get("app-config").await?.metadata.uid;
    story.merge(shop, json!({"spec": {"kubeContexts": {"south": there}}})).await?;
    upstream.push(&[("helmfile.yaml", moved)]).await?;
    let is_moved = |object: &DynamicObject| {
        let found = rows(object);
        let is_it = |it: &String| it.starts_with("south/app") && it.ends_with("Ready");
        found.len() == 3 && found.iter().any(is_it)
    };
    story.await_object(shop, SOON, is_moved).await?;
    ensure!(maps.get("app-config").await?.metadata.uid == before, "it was uninstalled");
    upstream.push(&[("helmfile.yaml", both)]).await?;
    let text = story.await_failure(shop, "HelmfileError").await?;
    ensure!(text.contains("are one, because both contexts have the same kubeconfig"), "{text}");
    ensure!(maps.get("app-config").await?.metadata.uid == before, "it was uninstalled");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn releases_of_a_helmfile_are_in_the_clusters_that_their_contexts_name() -> Result<()> {
    let story = Story::begin("helmfile-contexts").await?;
    let _windlass = Windlass::start_for(&story, &[]).await?;
    let plane = ControlPlane::start().await?;
    let remote = control_plane::client(&plane.kubeconfig()).await?;
    let maps = Api::<ConfigMap>::namespaced(remote.clone(), &story.namespace);
    let there = kubeconfig(&story, &plane).await?;
    let own = story.namespace.clone();
    // The same namespace and name in both clusters, and a release here that needs one there.
    let file = |context: &str, value: &str, more: &str| {
        format!(
            "releases:\n- {{name: front, namespace: {own}, chart: ./app, needs: [{context}/{own}/app]}}\n\
             - {{name: app, namespace: {own}, chart: ./app, values: [{{value: here}}]}}\n\
             - {{name: app, namespace: {own}, kubeContext: {context}, chart: ./app, values: [{{value: {value}}}]}}\n{more}"
        )
    };
    let extra = format!("- {{name: extra, namespace: {own}, kubeContext: east, chart: ./app}}\n");
    let upstream = story
        .follow(
            "shop",
            &[
                ("app/Chart.yaml", "apiVersion: v2\nname: app\nversion: 1.0.0\n".to_owned()),
                ("app/templates/config.yaml", CONFIG.to_owned()),
                ("helmfile.yaml", file("west", "there", "")),
            ],
        )
        .await?;
    let shop = helmfile(&story, &there).await?;
    let text = story.await_failure(&shop, "HelmfileError").await?;
    ensure!(
        text.contains("`west` is not declared") && text.contains("spec.kubeContexts"),
        "{text}"
    );
    ensure!(story.read(&Target::config_map("app-config")).await?.is_none(), "it was installed");

    upstream.push(&[("helmfile.yaml", file("east", "there", &extra))]).await?;
    let object = story.await_ready(&shop).await?;
    let mut found = rows(&object);
    ensure!(found.last().is_some_and(|it| it == "/front 1 Ready"), "{found:?}");
    found.sort();
    let wanted = ["/app 1 Ready", "/front 1 Ready", "east/app 1 Ready", "east/extra 1 Ready"];
    ensure!(found == wanted, "{found:?}");
    let value = async |name: &str| -> Result<Option<String>> {
        let map = maps.get_opt(name).await?.and_then(|it| it.data);
        Ok(map.and_then(|data| data.get("value").cloned()))
    };
    ensure!(value("app-config").await?.as_deref() == Some("there"), "it is not there");
    story.await_value("app-config", "here").await?;
    ensure!(story.read(&Target::config_map("extra-config")).await?.is_none(), "it is here");

    // Drift there is put right, and a change there is no revision here.
    maps.delete("app-config", &Default::default()).await?;
    await_until("the ConfigMap in the other cluster", SOON, async || {
        Ok(maps.get_opt("app-config").await?.map(drop))
    })
    .await?;
    upstream.push(&[("helmfile.yaml", file("east", "new", ""))]).await?;
    await_until("the value in the other cluster", SOON, async || {
        Ok(value("app-config").await?.filter(|it| it == "new").map(drop))
    })
    .await?;
    let is_pruned = |object: &DynamicObject| {
        let mut found = rows(object);
        found.sort();
        found == ["/app 1 Ready", "/front 1 Ready", "east/app 2 Ready"]
    };
    story.await_object(&shop, SOON, is_pruned).await?;
    ensure!(maps.get_opt("extra-config").await?.is_none(), "it was not pruned");

    let both = format!(
        "{}- {{name: app, namespace: {own}, kubeContext: east, chart: ./app}}\n",
        file("south", "new", "")
    );
    moves(&story, (&shop, &there), &maps, &upstream, [file("south", "new", ""), both]).await?;

    story.delete(&shop).await?;
    story.await_gone(&shop, SOON).await?;
    ensure!(maps.get_opt("app-config").await?.is_none(), "it was left there");
    ensure!(story.read(&Target::config_map("app-config")).await?.is_none(), "it was left here");
    story.end().await
}
