//! Objects that are deleted together end before their dependencies, across kinds. The audit log of the API server shows the
//! order.
//!
//! Every wait is shorter than `--requeue-dependency`, so each step was triggered by the previous one.
//! Elsewhere: dependents in other namespaces that do not end (`tenant_dependents_delay_platform_deletions.rs`), kills at
//! every write (`cargo xtask crash`).

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, ensure};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, NEVER, condition};
use e2e::harness::manifests::{config_map, widget, widget_crd};
use e2e::harness::{Story, StoryObject};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, DynamicObject};
use serde_json::{Value, json};

/// A ConfigMap whose deletion waits for the finalizer of another controller.
fn held(name: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, finalizers: [example.com/held]}}}}\n"
    )
}

async fn let_go(story: &Story, name: &str) -> Result<()> {
    let released = json!({"metadata": {"finalizers": null}});
    story.merge(&StoryObject::config_map(name), released).await.map(drop)
}

fn ks(name: &str) -> Value {
    json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "name": name})
}

fn hr(name: &str) -> Value {
    json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": name})
}

fn hf(name: &str) -> Value {
    json!({"apiVersion": "helmfile.windlass.dev/v1alpha1", "kind": "Helmfile", "name": name})
}

/// A file with an object of the kind and name in `reference`.
fn applier(reference: &Value, spec: Value) -> String {
    let metadata = json!({"name": reference["name"]});
    let object = json!({"apiVersion": reference["apiVersion"], "kind": reference["kind"],
        "metadata": metadata, "spec": spec});
    format!("{object}\n")
}

fn kustomization_file(place: &str, name: &str, depends_on: &[Value]) -> String {
    let source = json!({"kind": "GitRepository", "name": "files"});
    let spec = json!({"interval": NEVER, "prune": true, "path": format!("parts/{name}"),
        "targetNamespace": place, "sourceRef": source, "dependsOn": depends_on});
    applier(&ks(name), spec)
}

fn release_file(name: &str, depends_on: &[Value]) -> String {
    let source = json!({"kind": "HelmRepository", "name": "charts"});
    let chart = json!({"spec": {"chart": "app", "version": "*", "sourceRef": source}});
    applier(&hr(name), json!({"interval": NEVER, "chart": chart, "dependsOn": depends_on}))
}

fn helmfile_file(place: &str, name: &str, depends_on: &[Value]) -> String {
    let source = json!({"kind": "GitRepository", "name": "files"});
    let spec = json!({"interval": NEVER, "prune": true, "path": format!("parts/{name}"),
        "targetNamespace": place, "sourceRef": source, "dependsOn": depends_on});
    applier(&hf(name), spec)
}

fn says(object: &DynamicObject) -> String {
    condition(object, "Ready")["message"].as_str().unwrap_or_default().to_owned()
}

async fn await_message(story: &Story, target: &StoryObject, part: &str) -> Result<()> {
    let is_there = |object: &DynamicObject| says(object).contains(part);
    story.await_object(target, DEFAULT_WAIT_TIMEOUT, is_there).await.map(drop)
}

async fn await_gone(story: &Story, target: &StoryObject) -> Result<()> {
    story.await_gone(target, DEFAULT_WAIT_TIMEOUT).await
}

/// Checks in the audit log that windlass deleted the objects of each pair, the first one before the second.
async fn ensure_removed_in_order(story: &Story, pairs: &[(&str, &str)]) -> Result<()> {
    story.await_log().await?;
    let mut changes = story.timed_changes()?;
    changes.sort();
    let removed_at = |name: &str| {
        let wanted = format!("removed configmaps/{name}");
        let at = changes.iter().find(|(_, change)| *change == wanted).map(|(at, _)| at.clone());
        at.with_context(|| format!("{name} was not deleted: {changes:?}"))
    };
    for (before, after) in pairs {
        ensure!(removed_at(before)? < removed_at(after)?, "{after} was deleted before {before}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_appliers_in_four_levels_leave_in_one_commit_from_the_last_to_the_first() -> Result<()>
{
    let story = Story::with_windlass("eight-appliers").await?;
    let place = story.namespace.clone();
    let budget = story.without_deletion_budget().await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/config.yaml", CONFIG)]).await?;
    let chart = "apiVersion: v2\nname: part\nversion: 1.0.0\n".to_owned();
    let helmfile = "releases:\n- {name: app, chart: ./part}\n".to_owned();
    let mut files = vec![
        ("parts/base/map.yaml", config_map("base", "1")),
        ("parts/crds/map.yaml", config_map("crds", "1")),
        ("parts/cache/map.yaml", config_map("cache", "1")),
        ("parts/api/map.yaml", config_map("api", "1")),
        ("parts/shop/map.yaml", config_map("shop", "1")),
        ("parts/app/part/Chart.yaml", chart),
        ("parts/app/part/templates/map.yaml", config_map("app", "1")),
        ("parts/app/helmfile.yaml", helmfile),
        ("root/keep.yaml", config_map("keep", "1")),
    ];
    let appliers = [
        ("root/base.yaml", kustomization_file(&place, "base", &[])),
        ("root/crds.yaml", kustomization_file(&place, "crds", &[])),
        ("root/db.yaml", release_file("db", &[ks("base")])),
        ("root/cache.yaml", kustomization_file(&place, "cache", &[ks("base"), ks("crds")])),
        ("root/app.yaml", helmfile_file(&place, "app", &[hr("db")])),
        ("root/api.yaml", kustomization_file(&place, "api", &[hr("db"), ks("cache")])),
        ("root/web.yaml", release_file("web", &[ks("api")])),
        ("root/shop.yaml", kustomization_file(&place, "shop", &[hf("app"), ks("api")])),
    ];
    let paths = appliers.each_ref().map(|(path, _)| *path);
    files.extend(appliers.clone());
    let upstream = story.follow("files", &files).await?;
    story.kustomization("root", "files", json!({"path": "root"})).await?;
    let web = StoryObject::helm_release("web");
    let shop = StoryObject::kustomization("shop");
    story.await_ready(&web).await?;
    story.await_ready(&shop).await?;

    let revision = upstream.remove(&paths).await?;
    story.await_applied("root", &revision).await?;
    for name in ["base", "crds", "cache", "api", "shop"] {
        await_gone(&story, &StoryObject::kustomization(name)).await?;
    }
    for name in ["db", "web"] {
        await_gone(&story, &StoryObject::helm_release(name)).await?;
    }
    await_gone(&story, &StoryObject::new("helmfile.windlass.dev/v1alpha1", "Helmfile", "app"))
        .await?;
    story.await_value("keep", "1").await?;
    let pairs = [
        ("web-config", "api"),
        ("shop", "api"),
        ("shop", "app"),
        ("api", "cache"),
        ("api", "db-config"),
        ("app", "db-config"),
        ("cache", "base"),
        ("cache", "crds"),
        ("db-config", "base"),
    ];
    ensure_removed_in_order(&story, &pairs).await?;
    story.delete(&budget).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_names_what_it_waits_for_in_whichever_order_users_delete() -> Result<()> {
    let story = Story::with_windlass("awaits-dependents").await?;
    let place = story.namespace.clone();
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/config.yaml", CONFIG)]).await?;
    let files = [("base/map.yaml", config_map("base", "1")), ("slow/map.yaml", held("slow"))];
    let _upstream = story.follow("files", &files).await?;
    let base = StoryObject::kustomization("base");
    story.kustomization("base", "files", json!({"path": "base"})).await?;
    let web = charts.release("web", json!({"dependsOn": [ks("base")]})).await?;
    let slow = StoryObject::kustomization("slow");
    let spec = json!({"path": "slow", "deletionPolicy": "WaitForTermination", "timeout": "10m",
        "dependsOn": [hr("web")]});
    story.kustomization("slow", "files", spec).await?;
    story.await_ready(&slow).await?;

    // A dependent that is not deleted delays nothing. A deleted dependent does, across kinds.
    story.delete(&slow).await?;
    story.delete(&web).await?;
    story.delete(&base).await?;
    await_message(&story, &web, &format!("Kustomization/{place}/slow, which depend on this"))
        .await?;
    await_message(&story, &base, &format!("HelmRelease/{place}/web, which depend on this")).await?;
    ensure!(story.read(&StoryObject::config_map("web-config")).await?.is_some(), "too early");
    ensure!(story.read(&StoryObject::config_map("base")).await?.is_some(), "too early");
    // The source stays as long as a deleted object still needs it.
    let source = StoryObject::git_repository("files");
    story.delete(&source).await?;
    await_message(&story, &source, "which depend on this object").await?;

    let_go(&story, "slow").await?;
    for target in [&slow, &web, &base, &source] {
        await_gone(&story, target).await?;
    }
    ensure_removed_in_order(&story, &[("slow", "web-config"), ("web-config", "base")]).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_deletes_nothing_and_what_stays_is_not_awaited_and_a_cycle_ends() -> Result<()> {
    let story = Story::with_windlass("not-awaited").await?;
    let files = ["base", "kept", "stays", "held", "one", "two"]
        .map(|name| (format!("{name}/map.yaml"), config_map(name, "1")));
    let files: Vec<(&str, String)> =
        files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let _upstream = story.follow("files", &files).await?;
    let depend = async |name: &str, more: Value| {
        let mut spec = json!({"path": name, "dependsOn": [{"name": "base"}]});
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        story.kustomization(name, "files", spec).await?;
        anyhow::Ok(StoryObject::kustomization(name))
    };
    let base = StoryObject::kustomization("base");
    story.kustomization("base", "files", json!({"path": "base"})).await?;
    let orphaning = depend("kept", json!({"deletionPolicy": "Orphan"})).await?;
    let suspended = depend("held", json!({})).await?;
    let staying = depend("stays", json!({})).await?;
    for target in [&orphaning, &suspended, &staying] {
        story.await_ready(target).await?;
    }
    story.merge(&suspended, json!({"spec": {"suspend": true}})).await?;
    // Both remain until another controller removes its finalizers.
    for target in [&orphaning, &suspended] {
        let object = story.expect(target).await?;
        let mut all = object.metadata.finalizers.unwrap_or_default();
        all.push("example.com/held".to_owned());
        story.merge(target, json!({"metadata": {"finalizers": all}})).await?;
        story.delete(target).await?;
    }
    story.delete(&base).await?;
    await_gone(&story, &base).await?;
    await_gone(&story, &StoryObject::config_map("base")).await?;
    for target in [&orphaning, &suspended] {
        story.merge(target, json!({"metadata": {"finalizers": null}})).await?;
    }

    let one = StoryObject::kustomization("one");
    let two = StoryObject::kustomization("two");
    story.kustomization("one", "files", json!({"path": "one"})).await?;
    story.kustomization("two", "files", json!({"path": "two", "dependsOn": [ks("one")]})).await?;
    story.await_ready(&two).await?;
    story.merge(&one, json!({"spec": {"dependsOn": [ks("two")]}})).await?;
    story.await_failure(&one, "DependencyCycle").await?;
    story.delete(&one).await?;
    story.delete(&two).await?;
    for name in ["one", "two"] {
        await_gone(&story, &StoryObject::kustomization(name)).await?;
        await_gone(&story, &StoryObject::config_map(name)).await?;
    }
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_applier_needs_leaves_after_it_and_what_custom_resources_need_after_them()
-> Result<()> {
    let story = Story::with_windlass("needed-last").await?;
    let place = story.namespace.clone();
    let budget = story.without_deletion_budget().await?;
    let group = format!("{place}.example.com");
    let rbac = "rbac.authorization.k8s.io";
    let role = json!({"apiVersion": format!("{rbac}/v1"), "kind": "Role",
        "metadata": {"name": "tenant", "namespace": place},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"],
            "verbs": ["get", "create", "update", "patch", "delete"]}]});
    let binding = json!({"apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding",
        "metadata": {"name": "tenant", "namespace": place},
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "tenant"},
        "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": place}]});
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "tenant"}});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "values"},
        "stringData": {"word": "open"}});
    let source = json!({"kind": "GitRepository", "name": "files"});
    let substitute = json!({"substituteFrom": [{"kind": "Secret", "name": "values"}]});
    let app = json!({"interval": NEVER, "prune": true, "path": "app", "targetNamespace": place,
        "serviceAccountName": "tenant", "sourceRef": source, "timeout": "10m",
        "deletionPolicy": "WaitForTermination", "postBuild": substitute});
    let files = [
        ("app/map.yaml", held("app")),
        ("root/account.yaml", format!("{account}\n")),
        ("root/role.yaml", format!("{role}\n")),
        ("root/secret.yaml", format!("{secret}\n")),
        ("root/definition.yaml", widget_crd(&group)),
        ("root/wheel.yaml", widget(&group, "wheel")),
        ("root/operator.yaml", config_map("operator", "1")),
    ];
    let upstream = story.follow("files", &files).await?;
    story.kustomization("root", "files", json!({"path": "root", "timeout": "10m"})).await?;
    let root = StoryObject::kustomization("root");
    story.await_ready(&root).await?;
    // A dry-run of a RoleBinding needs its Role.
    let later = [
        ("root/binding.yaml", format!("{binding}\n")),
        ("root/app.yaml", applier(&ks("app"), app)),
    ];
    let revision = upstream.push(&later).await?;
    story.await_applied("root", &revision).await?;
    let app = StoryObject::kustomization("app");
    story.await_ready(&app).await?;

    story.delete(&root).await?;
    await_message(&story, &app, "termination").await?;
    let needed = [
        StoryObject::new("v1", "ServiceAccount", "tenant"),
        StoryObject::new("v1", "Secret", "values"),
        StoryObject::new("rbac.authorization.k8s.io/v1", "RoleBinding", "tenant"),
        StoryObject::new("rbac.authorization.k8s.io/v1", "Role", "tenant"),
        StoryObject::config_map("operator"),
        e2e::harness::widgets::crd(&group),
    ];
    for target in &needed {
        let object = story.expect(target).await?;
        ensure!(object.metadata.deletion_timestamp.is_none(), "{target} was deleted too early");
    }
    let_go(&story, "app").await?;
    for target in needed.iter().chain([&app, &root]) {
        await_gone(&story, target).await?;
    }
    // No object was left behind because of the missing ServiceAccount.
    await_gone(&story, &StoryObject::config_map("app")).await?;
    ensure_removed_in_order(&story, &[("app", "operator")]).await?;
    story.delete(&budget).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_ends_and_a_user_with_the_right_change_the_order() -> Result<()> {
    let story = Story::with_windlass("skip-order").await?;
    let files = [("base/map.yaml", config_map("base", "1")), ("slow/map.yaml", held("slow"))];
    let _upstream = story.follow("files", &files).await?;
    let base = StoryObject::kustomization("base");
    let slow = StoryObject::kustomization("slow");
    story.kustomization("base", "files", json!({"path": "base"})).await?;
    let spec = json!({"path": "slow", "deletionPolicy": "WaitForTermination", "timeout": "10m",
        "dependsOn": [{"name": "base"}]});
    story.kustomization("slow", "files", spec).await?;
    story.await_ready(&slow).await?;
    story.delete(&slow).await?;
    story.delete(&base).await?;
    await_message(&story, &base, "which depend on this object").await?;

    // Without its admission policy, the annotation proves nothing.
    let skip = |why: &str| json!({"metadata": {"annotations": {"windlass.dev/skip-order": why}}});
    story.merge(&base, skip("incident-1234")).await?;
    await_message(&story, &base, "skip-order.yaml").await?;
    story.await_value("base", "1").await?;
    let policy = story.enforce_skip_order().await?;
    let attempts = AtomicUsize::new(0);
    story
        .await_until("the policy and the annotation to count", DEFAULT_WAIT_TIMEOUT, async || {
            if story.read(&base).await?.is_none() {
                return Ok(Some(()));
            }
            // Each change of the annotation makes windlass look for the policy again.
            let attempt = attempts.fetch_add(1, Ordering::Relaxed);
            story.merge(&base, skip(&format!("incident-{attempt}"))).await.ok();
            Ok(None)
        })
        .await?;
    story.await_event("Kustomization", "base", "windlass.dev/skip-order").await?;
    await_gone(&story, &StoryObject::config_map("base")).await?;
    story.expect(&slow).await?;
    for object in &policy {
        story.delete(object).await?;
    }

    // The namespace is deleted. Dependents are deleted with it, whichever object is deleted first.
    let_go(&story, "slow").await?;
    await_gone(&story, &slow).await?;
    story.kustomization("base", "files", json!({"path": "base"})).await?;
    let spec = json!({"path": "slow", "dependsOn": [{"name": "base"}]});
    story.kustomization("slow", "files", spec).await?;
    story.await_ready(&slow).await?;
    let namespaces = Api::<Namespace>::all(story.client.clone());
    namespaces.delete(&story.namespace, &DeleteParams::background()).await?;
    await_gone(&story, &slow).await?;
    await_gone(&story, &base).await?;
    Ok(())
}
