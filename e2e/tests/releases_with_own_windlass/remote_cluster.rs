//! Releases in another cluster, which may be deleted.

use anyhow::{Context as _, Result, ensure};
use e2e::control_plane::{self, ControlPlane};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, FollowedGitRepository, NEVER, condition};
use e2e::harness::{Story, StoryObject, WindlassProcess, await_until, release_audits};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{Api, DynamicObject, ListParams};
use serde_json::{Value, json};

/// The `kubeConfig` of a spec for a control plane, with its Secret in the story's namespace.
async fn kubeconfig(story: &Story, plane: &ControlPlane) -> Result<Value> {
    secret(story, "remote", std::fs::read_to_string(plane.operator_kubeconfig())?).await
}

/// Writes a kubeconfig into a Secret with a name. Returns the `kubeConfig` of a spec.
async fn secret(story: &Story, name: &str, text: String) -> Result<Value> {
    story
        .apply_value(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
            "stringData": {"value": text}}))
        .await?;
    Ok(json!({"secretRef": {"name": name}}))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_in_another_cluster_is_complete_and_its_end_delays_no_other() -> Result<()> {
    let story = Story::begin("release-remote").await?;
    let _windlass = WindlassProcess::start_for(&story, &[]).await?;
    let plane = ControlPlane::start().await?;
    let remote = control_plane::client(&plane.kubeconfig()).await?;
    let maps = Api::<ConfigMap>::namespaced(remote.clone(), "default");
    let secrets = Api::<Secret>::namespaced(remote.clone(), "default");
    let there = kubeconfig(&story, &plane).await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let mut spec = json!({"releaseName": "far", "targetNamespace": "default",
        "storageNamespace": "default", "driftDetection": {"mode": "enabled"}});
    spec["kubeConfig"] = there;
    let far = charts.release("far", spec).await?;
    story.await_revision(&far, 1).await?;
    ensure!(maps.get_opt("far-config").await?.is_some(), "it does not exist");
    ensure!(secrets.get_opt("sh.helm.release.v1.far.v1").await?.is_some(), "no record is there");
    let here = StoryObject::config_map("far-config").in_namespace("default");
    ensure!(story.read(&here).await?.is_none(), "it is here");

    // windlass restores an object that a user deletes there.
    maps.delete("far-config", &Default::default()).await?;
    await_until("the ConfigMap in the other cluster", DEFAULT_WAIT_TIMEOUT, async || {
        Ok(maps.get_opt("far-config").await?.map(drop))
    })
    .await?;
    story.merge(&far, json!({"spec": {"values": {"value": "two"}}})).await?;
    story.await_revision(&far, 2).await?;

    drop(plane);
    story.merge(&far, json!({"spec": {"values": {"value": "three"}}})).await?;
    let near = charts.release("near", json!({})).await?;
    story.await_revision(&near, 1).await?;
    story.await_condition(&far, "Ready", "False", 2 * DEFAULT_WAIT_TIMEOUT).await?;
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
    let _windlass = WindlassProcess::start_for(&story, &[]).await?;
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
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let spec = json!({"kubeConfig": there, "serviceAccountName": "tenant"});
    let far = charts.release("far", spec).await?;
    story.await_revision(&far, 1).await?;
    let maps = Api::<ConfigMap>::namespaced(remote.clone(), own);
    ensure!(maps.get_opt("far-config").await?.is_some(), "it does not exist");
    story.delete(&far).await?;
    story.await_gone(&far, DEFAULT_WAIT_TIMEOUT).await?;
    ensure!(maps.get_opt("far-config").await?.is_none(), "it was left behind");
    story.end().await
}

/// A Helmfile whose context `east` is another cluster.
async fn helmfile(story: &Story, there: &Value) -> Result<StoryObject> {
    let api = "helmfile.windlass.dev/v1alpha1";
    story
        .apply_value(json!({"apiVersion": api, "kind": "Helmfile", "metadata": {"name": "shop"},
            "spec": {"interval": NEVER, "prune": true, "kubeContexts": {"east": there},
                "sourceRef": {"kind": "GitRepository", "name": "shop"}}}))
        .await?;
    Ok(StoryObject::new(api, "Helmfile", "shop"))
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

/// Another context of the same cluster has the same records. So nothing there is uninstalled, whether the helmfile uses it
/// instead or in addition.
async fn moves(
    story: &Story,
    (shop, there): (&StoryObject, &Value),
    maps: &Api<ConfigMap>,
    upstream: &FollowedGitRepository<'_>,
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
    story.await_object(shop, DEFAULT_WAIT_TIMEOUT, is_moved).await?;
    ensure!(maps.get("app-config").await?.metadata.uid == before, "it was uninstalled");
    upstream.push(&[("helmfile.yaml", both)]).await?;
    let text = story.await_failure(shop, "HelmfileError").await?;
    ensure!(text.contains("are one, because both contexts have the same kubeconfig"), "{text}");
    ensure!(maps.get("app-config").await?.metadata.uid == before, "it was uninstalled");
    Ok(())
}

/// If two contexts lead to the same cluster, the one that owns a release keeps it. The other one changes nothing in any
/// reconciliation.
async fn two_kubeconfigs(
    story: &Story,
    (shop, plane): (&StoryObject, &ControlPlane),
    upstream: &FollowedGitRepository<'_>,
    [both, one]: [String; 2],
) -> Result<()> {
    let remote = control_plane::client(&plane.kubeconfig()).await?;
    let secrets = Api::<Secret>::namespaced(remote, &story.namespace);
    let records = async || -> Result<Vec<String>> {
        let labels = ListParams::default().labels("owner=helm,name=app");
        let all = secrets.list_metadata(&labels).await?.items;
        Ok(all.iter().map(|it| format!("{:?}", it.metadata.resource_version)).collect())
    };
    // The same kubeconfig with other bytes.
    let text = std::fs::read_to_string(plane.operator_kubeconfig())?;
    let there = secret(story, "north", format!("# north\n{text}")).await?;
    story.merge(shop, json!({"spec": {"kubeContexts": {"north": there}}})).await?;
    let before = records().await?;
    upstream.push(&[("helmfile.yaml", both)]).await?;
    let own = &story.namespace;
    let wanted = format!(
        "releases south/{own}/app and north/{own}/app are one, because both contexts name one cluster"
    );
    let has_message = |object: &DynamicObject| {
        let text = condition(object, "Ready")["message"].as_str().unwrap_or_default().to_owned();
        text.contains(&wanted)
    };
    story.await_object(shop, DEFAULT_WAIT_TIMEOUT, has_message).await?;
    story.rerun(shop).await?;
    ensure!(records().await? == before, "its records were written: {:?}", records().await?);
    // Without the second context, the release continues, and nothing is uninstalled.
    upstream.push(&[("helmfile.yaml", one)]).await?;
    let is_one = |object: &DynamicObject| {
        rows(object).len() == 3 && condition(object, "Ready")["status"] == "True"
    };
    story.await_object(shop, DEFAULT_WAIT_TIMEOUT, is_one).await?;
    ensure!(records().await? == before, "its records were written: {:?}", records().await?);
    Ok(())
}

/// Releases in unusable clusters fail, but others do not. The others are upgraded, uninstalled and deleted.
async fn dead_clusters(
    story: &Story,
    (shop, plane): (&StoryObject, &ControlPlane),
    upstream: &FollowedGitRepository<'_>,
    [more, fewer]: [String; 2],
) -> Result<()> {
    let spare = StoryObject::config_map("spare-config");
    upstream.push(&[("helmfile.yaml", more)]).await?;
    story
        .await_until("the spare release", DEFAULT_WAIT_TIMEOUT, async || {
            Ok(story.read(&spare).await?.map(drop))
        })
        .await?;
    let text = std::fs::read_to_string(plane.operator_kubeconfig())?;
    let (first, rest) = text.split_once("https://").context("it has an address")?;
    let rest = rest.split_once('\n').context("and more")?.1;
    let dead = secret(story, "dead", format!("{first}https://127.0.0.1:1\n{rest}")).await?;
    let missing = json!({"secretRef": {"name": "missing"}});
    let contexts = json!({"spec": {"kubeContexts": {"dead": dead, "broken": missing}}});
    story.merge(shop, contexts).await?;
    upstream.push(&[("helmfile.yaml", fewer)]).await?;
    story.await_event("Helmfile", "shop", "kubeContext south: Helm upgrade succeeded").await?;
    story.await_gone(&spare, DEFAULT_WAIT_TIMEOUT).await?;
    let has_message = |object: &DynamicObject| {
        let found = rows(object);
        let has = |wanted: &str| found.iter().any(|it| it == wanted);
        has("dead/other null Failed")
            && has("broken/lost null Failed")
            && has("south/app 3 Ready")
            && found.len() == 5
    };
    let object = story.await_object(shop, DEFAULT_WAIT_TIMEOUT, has_message).await?;
    ensure!(object.data["status"].to_string().contains("secret '"), "{}", object.data["status"]);
    let audits = release_audits::audits(story).await?;
    let of_context = |context: &str| {
        let releases = audits.iter().filter_map(|it| it.spec.subject.release.as_ref());
        releases.filter(|it| it.kube_context == context && it.name == "app").count()
    };
    ensure!(of_context("south") > 0 && of_context("") > 0, "audits do not name the context");
    Ok(())
}

/// All releases of a Helmfile with `spec.kubeConfig` are in that cluster. The Helmfile waits for releases of another Helmfile,
/// each in its own cluster.
async fn far(story: &Story, there: &Value, maps: &Api<ConfigMap>) -> Result<()> {
    let own = &story.namespace;
    let needs = format!("Helmfile/shop#{own}/app, Helmfile/shop#south/{own}/app");
    let api = "helmfile.windlass.dev/v1alpha1";
    story
        .apply_value(json!({"apiVersion": api, "kind": "Helmfile", "metadata": {"name": "far",
            "annotations": {"windlass.dev/depends-on": needs}},
            "spec": {"interval": NEVER, "prune": true, "kubeConfig": there, "path": "far",
                "sourceRef": {"kind": "GitRepository", "name": "shop"}}}))
        .await?;
    let far = StoryObject::new(api, "Helmfile", "far");
    let object = story.await_ready(&far).await?;
    ensure!(rows(&object) == ["/far 1 Ready"], "{:?}", rows(&object));
    ensure!(maps.get_opt("far-config").await?.is_some(), "it is not there");
    ensure!(story.read(&StoryObject::config_map("far-config")).await?.is_none(), "it is here");
    maps.delete("far-config", &Default::default()).await?;
    await_until("the ConfigMap in the other cluster", DEFAULT_WAIT_TIMEOUT, async || {
        Ok(maps.get_opt("far-config").await?.map(drop))
    })
    .await?;
    story.delete(&far).await?;
    story.await_gone(&far, DEFAULT_WAIT_TIMEOUT).await?;
    ensure!(maps.get_opt("far-config").await?.is_none(), "it was left there");
    Ok(())
}

/// A deleted Helmfile uninstalls all releases that it can. When the remaining clusters are gone for good, the Helmfile is
/// deleted.
async fn ends(story: &Story, shop: &StoryObject, maps: &Api<ConfigMap>) -> Result<()> {
    let own = &story.namespace;
    story.delete(shop).await?;
    await_until("the releases to be gone there", DEFAULT_WAIT_TIMEOUT, async || {
        Ok(maps.get_opt("app-config").await?.is_none().then_some(()))
    })
    .await?;
    story.await_gone(&StoryObject::config_map("app-config"), DEFAULT_WAIT_TIMEOUT).await?;
    let lost = format!(
        "unable to uninstall release broken/{own}/lost: Secret 'missing' not found; it is left"
    );
    story.await_event("Helmfile", "shop", &lost).await?;
    let is_left = |object: &DynamicObject| rows(object) == ["dead/other null Uninstalling"];
    story.await_object(shop, DEFAULT_WAIT_TIMEOUT, is_left).await?;
    story.delete(&StoryObject::new("v1", "Secret", "dead")).await?;
    story.await_gone(shop, DEFAULT_WAIT_TIMEOUT).await?;
    // The event is recorded in parallel with the reconciliation, and may come later.
    let lost = format!("unable to uninstall release dead/{own}/other");
    story.await_event("Helmfile", "shop", &lost).await?;
    let event_texts = story.events("Helmfile", "shop").await?;
    let of = |release: &str| {
        let text = format!("unable to uninstall release {release}");
        event_texts.iter().filter(|it| it.contains(&text)).count()
    };
    let counts = [of(&format!("broken/{own}/lost")), of(&format!("dead/{own}/other"))];
    ensure!(counts == [1, 1], "{event_texts:#?}");
    Ok(())
}

/// windlass corrects drift in the other cluster. A change there makes no revision here, and a release that was removed from the
/// helmfile is uninstalled there.
async fn changed_there(
    story: &Story,
    shop: &StoryObject,
    maps: &Api<ConfigMap>,
    push: impl AsyncFnOnce() -> Result<()>,
) -> Result<()> {
    maps.delete("app-config", &Default::default()).await?;
    await_until("the ConfigMap in the other cluster", DEFAULT_WAIT_TIMEOUT, async || {
        Ok(maps.get_opt("app-config").await?.map(drop))
    })
    .await?;
    push().await?;
    await_until("the value in the other cluster", DEFAULT_WAIT_TIMEOUT, async || {
        let map = maps.get_opt("app-config").await?.and_then(|it| it.data);
        let value = map.and_then(|data| data.get("value").cloned());
        Ok(value.filter(|it| it == "new").map(drop))
    })
    .await?;
    let is_pruned = |object: &DynamicObject| {
        let mut found = rows(object);
        found.sort();
        found == ["/app 1 Ready", "/front 1 Ready", "east/app 2 Ready"]
    };
    story.await_object(shop, DEFAULT_WAIT_TIMEOUT, is_pruned).await?;
    ensure!(maps.get_opt("extra-config").await?.is_none(), "it was not pruned");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn releases_of_a_helmfile_are_in_the_clusters_that_their_contexts_name() -> Result<()> {
    let story = Story::begin("helmfile-contexts").await?;
    let policy = story.without_deletion_budget().await?;
    let _windlass = WindlassProcess::start_for(&story, &[]).await?;
    let plane = ControlPlane::start().await?;
    let remote = control_plane::client(&plane.kubeconfig()).await?;
    let maps = Api::<ConfigMap>::namespaced(remote.clone(), &story.namespace);
    let there = kubeconfig(&story, &plane).await?;
    let own = story.namespace.clone();
    // Both clusters have the same namespace and name, and a release here needs one there.
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
                (
                    "far/helmfile.yaml",
                    format!("releases:\n- {{name: far, namespace: {own}, chart: ../app}}\n"),
                ),
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
    ensure!(
        story.read(&StoryObject::config_map("app-config")).await?.is_none(),
        "it was installed"
    );

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
    ensure!(story.read(&StoryObject::config_map("extra-config")).await?.is_none(), "it is here");

    changed_there(&story, &shop, &maps, async || {
        upstream.push(&[("helmfile.yaml", file("east", "new", ""))]).await.map(drop)
    })
    .await?;

    let both = format!(
        "{}- {{name: app, namespace: {own}, kubeContext: east, chart: ./app}}\n",
        file("south", "new", "")
    );
    moves(&story, (&shop, &there), &maps, &upstream, [file("south", "new", ""), both]).await?;

    let north = format!(
        "{}- {{name: app, namespace: {own}, kubeContext: north, chart: ./app, values: [{{value: other}}]}}\n",
        file("south", "new", "")
    );
    two_kubeconfigs(&story, (&shop, &plane), &upstream, [north, file("south", "new", "")]).await?;
    far(&story, &there, &maps).await?;
    let more = format!("- {{name: spare, namespace: {own}, chart: ./app}}\n");
    let unusable = format!(
        "- {{name: other, namespace: {own}, kubeContext: dead, chart: ./app}}\n\
         - {{name: lost, namespace: {own}, kubeContext: broken, chart: ./app}}\n"
    );
    let texts = [file("south", "new", &more), file("south", "newest", &unusable)];
    dead_clusters(&story, (&shop, &plane), &upstream, texts).await?;
    ends(&story, &shop, &maps).await?;
    story.delete(&policy).await?;
    story.end().await
}
