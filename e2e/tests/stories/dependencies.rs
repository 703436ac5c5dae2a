//! Objects wait for objects of other kinds in `spec.dependsOn`, both appliers and other kinds.
//!
//! The waits are shorter than `--requeue-dependency`, after which windlass reads a dependency again without a reason. So a
//! success shows that a change of the dependency woke the object.
//! Elsewhere: cycles in one kind (`dependency_cycle.rs`), `windlass.dev/depends-on` (`releases/depends_on.rs`), other
//! namespaces (`object_references.rs`).

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, NEVER, condition};
use e2e::harness::manifests::{config_map, widget, widget_crd};
use e2e::harness::{Story, StoryObject, widgets};
use kube::api::DynamicObject;
use serde_json::{Value, json};

/// A time that is shorter than `--requeue-dependency`.
const WAKE_TIMEOUT: Duration = Duration::from_secs(20);

fn says(object: &DynamicObject) -> String {
    condition(object, "Ready")["message"].as_str().unwrap_or_default().to_owned()
}

async fn await_message(story: &Story, target: &StoryObject, part: &str) -> Result<()> {
    let is_there = |object: &DynamicObject| says(object).contains(part);
    story.await_object(target, DEFAULT_WAIT_TIMEOUT, is_there).await.map(drop)
}

async fn await_woken(story: &Story, target: &StoryObject) -> Result<()> {
    story.await_condition(target, "Ready", "True", WAKE_TIMEOUT).await.map(drop)
}

fn on(api_version: &str, kind: &str, name: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "name": name})
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_that_applies_waits_for_each_other_one() -> Result<()> {
    let story = Story::with_windlass("kinds-in-order").await?;
    let place = story.namespace.clone();
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/config.yaml", CONFIG)]).await?;
    let chart = "apiVersion: v2\nname: part\nversion: 1.0.0\n".to_owned();
    let files = [
        ("base/map.yaml", config_map("base", "1")),
        ("app/map.yaml", config_map("app", "1")),
        ("shop/part/Chart.yaml", chart),
        ("shop/part/templates/map.yaml", config_map("shop", "1")),
        ("shop/helmfile.yaml", "releases:\n- {name: part, chart: ./part}\n".to_owned()),
    ];
    let _upstream = story.follow("files", &files).await?;
    let kustomization = |name: &str| on("kustomize.toolkit.fluxcd.io/v1", "Kustomization", name);
    let release = |name: &str| on("helm.toolkit.fluxcd.io/v2", "HelmRelease", name);

    // The objects are created from the last to the first, so each finds its dependency missing.
    let shop = on("helmfile.windlass.dev/v1alpha1", "Helmfile", "shop");
    let last = charts.release("last", json!({"dependsOn": [shop]})).await?;
    await_message(&story, &last, &format!("dependency 'Helmfile/{place}/shop' not found")).await?;
    let shop = StoryObject::new("helmfile.windlass.dev/v1alpha1", "Helmfile", "shop");
    let spec = json!({"interval": NEVER, "prune": true, "path": "shop", "targetNamespace": place,
        "dependsOn": [kustomization("app")], "sourceRef": {"kind": "GitRepository", "name": "files"}});
    let helmfile = json!({"apiVersion": "helmfile.windlass.dev/v1alpha1", "kind": "Helmfile",
        "metadata": {"name": "shop"}, "spec": spec});
    story.apply_value(helmfile).await?;
    await_message(&story, &shop, &format!("dependency 'Kustomization/{place}/app' not found"))
        .await?;
    let app = StoryObject::kustomization("app");
    story
        .kustomization("app", "files", json!({"path": "app", "dependsOn": [release("web")]}))
        .await?;
    await_message(&story, &app, &format!("dependency 'HelmRelease/{place}/web' not found")).await?;
    let web = charts.release("web", json!({"dependsOn": [kustomization("base")]})).await?;
    await_message(&story, &web, &format!("dependency 'Kustomization/{place}/base' not found"))
        .await?;
    let base = StoryObject::kustomization("base");
    story.kustomization("base", "files", json!({"path": "base", "suspend": true})).await?;
    let waits = format!("dependency 'Kustomization/{place}/base' is not ready");
    await_message(&story, &web, &waits).await?;
    ensure!(story.read(&StoryObject::config_map("app")).await?.is_none(), "it was applied");

    story.merge(&base, json!({"spec": {"suspend": false}})).await?;
    for target in [&base, &web, &app, &shop, &last] {
        await_woken(&story, target).await?;
    }
    story.await_value("shop", "1").await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_waits_for_a_kind_that_comes_later_and_for_what_it_asks_of_its_objects()
-> Result<()> {
    let story = Story::with_windlass("any-kind").await?;
    let place = story.namespace.clone();
    let group = format!("{place}.test");
    let version = format!("{group}/v1");
    let names = ["exists", "ready", "asked", "without"];
    let files = names.map(|name| (format!("{name}/map.yaml"), config_map(name, "1")));
    let files: Vec<(&str, String)> =
        files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let _upstream = story.follow("files", &files).await?;
    let depend = async |name: &str, widget: &str, more: Value| {
        let mut entry = on(&version, "Widget", widget);
        for (key, value) in more.as_object().into_iter().flatten() {
            entry[key] = value.clone();
        }
        story.kustomization(name, "files", json!({"path": name, "dependsOn": [entry]})).await?;
        anyhow::Ok(StoryObject::kustomization(name))
    };
    let exists = depend("exists", "wheel", json!({})).await?;
    let asked = depend("asked", "wheel", json!({"readyExpr": "dep.status.turns >= 2"})).await?;
    let without = depend("without", "plain", json!({"ready": true})).await?;
    for target in [&exists, &asked, &without] {
        await_message(&story, target, "no matches for kind \"Widget\"").await?;
    }
    story.apply(&widget_crd(&group)).await?;
    let missing = format!("dependency 'Widget/{place}/wheel' not found");
    for target in [&exists, &asked] {
        await_message(&story, target, &missing).await?;
    }

    // It is enough that the first object exists. The second has no conditions, and counts as ready.
    story.apply(&widget(&group, "plain")).await?;
    await_woken(&story, &without).await?;
    story.apply(&widget(&group, "wheel")).await?;
    await_woken(&story, &exists).await?;
    // With a failing expression, the object waits and says why.
    let wheel = widgets::widget(&group, "wheel");
    await_message(&story, &asked, "no such key: status").await?;
    story.merge_status(&wheel, json!({"status": {"turns": 1}})).await?;
    await_message(&story, &asked, "readyExpr evaluated to false").await?;
    story.merge_status(&wheel, json!({"status": {"turns": 2}})).await?;
    await_woken(&story, &asked).await?;

    // An object with conditions is ready if its own conditions say so.
    let gear = widgets::widget(&group, "gear");
    story.apply(&widget(&group, "gear")).await?;
    let turning = |status: &str| {
        let condition = json!({"type": "Ready", "status": status, "message": "it is stuck"});
        json!({"status": {"conditions": [condition]}})
    };
    story.merge_status(&gear, turning("False")).await?;
    let ready = depend("ready", "gear", json!({"ready": true})).await?;
    let waits = format!("dependency 'Widget/{place}/gear' is not ready: it is stuck");
    await_message(&story, &ready, &waits).await?;
    story.merge_status(&gear, turning("True")).await?;
    await_woken(&story, &ready).await?;

    // windlass also notices the deletion of a dependency.
    story.delete(&wheel).await?;
    await_message(&story, &exists, &missing).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn releases_wait_for_custom_resources_with_and_without_conditions_of_a_kind_that_comes_later()
-> Result<()> {
    let story = Story::with_windlass("any-kind-releases").await?;
    let place = story.namespace.clone();
    let group = format!("{place}.test");
    let version = format!("{group}/v1");
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/config.yaml", CONFIG)]).await?;
    let files = [
        ("shop/part/Chart.yaml", "apiVersion: v2\nname: part\nversion: 1.0.0\n".to_owned()),
        ("shop/part/templates/map.yaml", config_map("shop", "1")),
        ("shop/helmfile.yaml", "releases:\n- {name: part, chart: ./part}\n".to_owned()),
    ];
    let _upstream = story.follow("files", &files).await?;
    let ready = |name: &str| {
        let mut entry = on(&version, "Widget", name);
        entry["ready"] = json!(true);
        entry
    };
    let depends_on = json!([ready("plain"), ready("gear")]);
    let web = charts.release("web", json!({"dependsOn": depends_on})).await?;
    let shop = StoryObject::new("helmfile.windlass.dev/v1alpha1", "Helmfile", "shop");
    let spec = json!({"interval": NEVER, "prune": true, "path": "shop", "targetNamespace": place,
        "dependsOn": depends_on, "sourceRef": {"kind": "GitRepository", "name": "files"}});
    story
        .apply_value(json!({"apiVersion": "helmfile.windlass.dev/v1alpha1", "kind": "Helmfile",
            "metadata": {"name": "shop"}, "spec": spec}))
        .await?;
    for target in [&web, &shop] {
        await_message(&story, target, "no matches for kind \"Widget\"").await?;
    }
    story.apply(&widget_crd(&group)).await?;
    for target in [&web, &shop] {
        for name in ["plain", "gear"] {
            let missing = format!("dependency 'Widget/{place}/{name}' not found");
            await_message(&story, target, &missing).await?;
        }
    }
    let gear = widgets::widget(&group, "gear");
    let turning = |status: &str| {
        let condition = json!({"type": "Ready", "status": status, "message": "it is stuck"});
        json!({"status": {"conditions": [condition]}})
    };
    story.apply(&widget(&group, "gear")).await?;
    story.merge_status(&gear, turning("False")).await?;
    // The other object has no conditions, and counts as ready.
    story.apply(&widget(&group, "plain")).await?;
    let waits = format!("dependency 'Widget/{place}/gear' is not ready: it is stuck");
    for target in [&web, &shop] {
        await_message(&story, target, &waits).await?;
    }
    for name in ["web-config", "shop"] {
        let applied = story.read(&StoryObject::config_map(name)).await?;
        ensure!(applied.is_none(), "{name} was applied");
    }
    story.merge_status(&gear, turning("True")).await?;
    for target in [&web, &shop] {
        await_woken(&story, target).await?;
    }
    for name in ["web-config", "shop"] {
        story.expect(&StoryObject::config_map(name)).await?;
    }
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_does_not_learn_whether_what_it_may_not_read_exists() -> Result<()> {
    let story = Story::with_windlass("hidden-dependency").await?;
    let place = story.namespace.clone();
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "tenant"}});
    story.apply_value(account).await?;
    allow(&story, "maps", json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}))
        .await?;
    let login = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login"},
        "stringData": {"password": "hunter2"}});
    story.apply_value(login).await?;
    let files = [
        ("there/map.yaml", config_map("there", "1")),
        ("missing/map.yaml", config_map("missing", "1")),
    ];
    let _upstream = story.follow("files", &files).await?;
    for (name, secret) in [("there", "login"), ("missing", "logout")] {
        let mut entry = on("v1", "Secret", secret);
        entry["readyExpr"] = json!("dep.metadata.name == 'login'");
        let spec = json!({"path": name, "serviceAccountName": "tenant", "dependsOn": [entry]});
        story.kustomization(name, "files", spec).await?;
        let text = format!(
            "dependency 'Secret/{place}/{secret}' not found, or ServiceAccount '{place}/tenant' may not get it"
        );
        await_message(&story, &StoryObject::kustomization(name), &text).await?;
    }
    allow(
        &story,
        "secrets",
        json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}),
    )
    .await?;
    await_woken(&story, &StoryObject::kustomization("there")).await?;

    // An expression cannot read the data of a Secret.
    let mut entry = on("v1", "Secret", "login");
    entry["readyExpr"] = json!("int(dep.data.password) > 0");
    let spec = json!({"path": "there", "serviceAccountName": "tenant", "dependsOn": [entry]});
    story.kustomization("there", "files", spec).await?;
    await_message(&story, &StoryObject::kustomization("there"), "no such key: data").await?;
    story.end().await
}

/// Gives the ServiceAccount `tenant` a right in the namespace of the story.
async fn allow(story: &Story, name: &str, rule: Value) -> Result<()> {
    let api = "rbac.authorization.k8s.io";
    let role = json!({"apiVersion": format!("{api}/v1"), "kind": "Role", "metadata": {"name": name},
        "rules": [rule]});
    story.apply_value(role).await?;
    let binding = json!({"apiVersion": format!("{api}/v1"), "kind": "RoleBinding",
        "metadata": {"name": name}, "roleRef": {"apiGroup": api, "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": story.namespace}]});
    story.apply_value(binding).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cycle_across_kinds_is_reported_with_its_path_and_an_entry_without_a_kind_is_refused()
-> Result<()> {
    let story = Story::with_windlass("cycle-of-kinds").await?;
    let place = story.namespace.clone();
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/config.yaml", CONFIG)]).await?;
    let _upstream = story.follow("files", &[("one/map.yaml", config_map("one", "1"))]).await?;
    let two = charts.release("two", json!({"suspend": true})).await?;
    let annotation = json!({"windlass.dev/depends-on": "Kustomization/one"});
    story.merge(&two, json!({"metadata": {"annotations": annotation}})).await?;
    story.merge(&two, json!({"spec": {"suspend": false}})).await?;
    let entry = on("helm.toolkit.fluxcd.io/v2", "HelmRelease", "two");
    story.kustomization("one", "files", json!({"path": "one", "dependsOn": [entry]})).await?;
    let one = StoryObject::kustomization("one");
    let text = story.await_failure(&one, "DependencyCycle").await?;
    let path =
        format!("Kustomization/{place}/one → HelmRelease/{place}/two → Kustomization/{place}/one");
    ensure!(text.contains(&path), "{text}");

    let entry = json!({"kind": "HelmRelease", "name": "two"});
    story.kustomization("one", "files", json!({"path": "one", "dependsOn": [entry]})).await?;
    let text = story.await_failure(&one, "InvalidDependency").await?;
    ensure!(text.contains("spec.dependsOn[0]") && text.contains("apiVersion"), "{text}");
    story.kustomization("one", "files", json!({"path": "one"})).await?;
    story.await_ready(&one).await?;
    story.await_ready(&two).await?;
    story.end().await
}
