//! Deletions beyond the budget are held until a user approves them. Then exactly these deletions are carried out.
//!
//! Elsewhere: killing windlass between approval and deletion (`restarts`).

use anyhow::{Context as _, Result, ensure};
use crds::windlass_release::{Plan, PlanPolicy};
use e2e::harness::flux_objects::{
    DEFAULT_WAIT_TIMEOUT, FollowedGitRepository, condition, inventory,
};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

/// The names of this many ConfigMaps, `map-00` and so on.
fn names(count: usize) -> Vec<String> {
    (0..count).map(|at| format!("map-{at:02}")).collect()
}

/// A file for each ConfigMap in a folder.
fn files(folder: &str, names: &[String]) -> Vec<(String, String)> {
    names.iter().map(|name| (format!("{folder}/{name}.yaml"), config_map(name, "1"))).collect()
}

fn borrowed(files: &[(String, String)]) -> Vec<(&str, String)> {
    files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect()
}

fn paths(files: &[(String, String)]) -> Vec<&str> {
    files.iter().map(|(path, _)| path.as_str()).collect()
}

/// A StatefulSet `db` with claims. It is of a protected kind.
fn set_with_claims() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
        "spec": {"replicas": 0, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
            "template": {"metadata": {"labels": {"app": "db"}},
                "spec": {"containers": [{"name": "db", "image": "db"}]}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}}}]}})
}

/// The repository `app` with these files. A Kustomization `app` has applied its folder `app`.
async fn applied<'s>(
    story: &'s Story,
    first: &[(String, String)],
) -> Result<FollowedGitRepository<'s>> {
    let upstream = story.follow("app", &borrowed(first)).await?;
    story.kustomization("app", "app", json!({"path": "./app"})).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    Ok(upstream)
}

/// The repository `app` with ConfigMaps of these names, and one more that stays.
async fn applied_beside_kept<'s>(
    story: &'s Story,
    names: &[String],
) -> Result<FollowedGitRepository<'s>> {
    let mut first = files("app", names);
    first.push(("app/kept.yaml".to_owned(), config_map("kept", "1")));
    applied(story, &first).await
}

/// Waits until ConfigMaps are deleted and the Kustomization holds nothing.
async fn await_deleted(story: &Story, names: &[String]) -> Result<()> {
    for name in names {
        story.await_gone(&StoryObject::config_map(name), DEFAULT_WAIT_TIMEOUT).await?;
    }
    story.await_not_held("app").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_is_emptied_loses_no_object_until_a_user_approves() -> Result<()> {
    let story = Story::with_windlass("budget").await?;
    let all = names(12);
    let upstream = applied_beside_kept(&story, &all).await?;
    let app = StoryObject::kustomization("app");

    let gone = files("app", &all);
    upstream.repository.delete(&paths(&gone), "the folder moves")?;
    let revision = upstream.push(&[("app/kept.yaml", config_map("kept", "2"))]).await?;
    let plan = story.await_held("app", &revision, 12).await?;
    story.await_value("kept", "2").await?;
    story.ensure_config_maps(&all).await?;
    let object = story.expect(&app).await?;
    ensure!(inventory(&object).len() == 13, "{:?}", inventory(&object));
    let message = condition(&object, "DeletionHeld")["message"].to_string();
    let command = format!("windlass approve plan/{} -n {}", plan.name_any(), story.namespace);
    ensure!(message.contains("12 objects") && message.contains(&command), "{message}");
    ensure!(message.contains("more than 10 objects"), "{message}");
    story.await_event("Kustomization", "app", "12 objects that left the manifests").await?;
    let why = story.windlass_says(&["why", "ks/app", "-n", &story.namespace], true)?;
    ensure!(why.contains("windlass approve plan/"), "{why}");
    let shown = story.windlass_says(&["get", "plans", "-n", &story.namespace], true)?;
    ensure!(shown.contains("12 deletions of Kustomization/app wait for approval"), "{shown}");

    // A further reconciliation changes nothing, and there is no second event.
    story.rerun(&app).await?;
    story.ensure_config_maps(&all).await?;
    let events = story.events("Kustomization", "app").await?;
    let held = events.iter().filter(|it| it.contains("objects that left the manifests")).count();
    ensure!(held == 1, "{events:?}");

    let said = story.approve("ks/app")?;
    ensure!(said.contains("the deletion of 12 objects by Kustomization/app is approved"), "{said}");
    await_deleted(&story, &all).await?;
    let object = story.await_applied("app", &revision).await?;
    ensure!(inventory(&object).len() == 1, "{:?}", inventory(&object));
    story.expect(&StoryObject::config_map("kept")).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_of_few_objects_that_is_emptied_is_held_and_one_that_keeps_an_object_is_not()
-> Result<()> {
    let story = Story::with_windlass("budget-empty").await?;
    let all = names(3);
    let mut first = files("app", &all);
    first.push(("app/README.md".to_owned(), "What keeps the folder.\n".to_owned()));
    let upstream = applied(&story, &first).await?;
    // One object is removed, and two stay, which is within the budget.
    let revision = upstream.remove(&["app/map-02.yaml"]).await?;
    story.await_applied("app", &revision).await?;
    story.await_gone(&StoryObject::config_map("map-02"), DEFAULT_WAIT_TIMEOUT).await?;
    let revision = upstream.remove(&["app/map-00.yaml", "app/map-01.yaml"]).await?;
    let plan = story.await_held("app", &revision, 2).await?;
    ensure!(plan.spec.rules == ["the build has no objects at all"], "{:?}", plan.spec.rules);
    story.ensure_config_maps(&all[..2]).await?;
    story.approve("ks/app")?;
    await_deleted(&story, &all[..2]).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_and_appliers_are_held_each_and_nothing_is_when_they_return() -> Result<()> {
    let story = Story::with_windlass("budget-kinds").await?;
    let set = set_with_claims();
    let child = json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {"name": "child"},
        "spec": {"interval": "1h", "path": "./child", "prune": true, "targetNamespace": story.namespace,
            "sourceRef": {"kind": "GitRepository", "name": "app"}}});
    let below = names(3);
    let mut first = files("child", &below);
    first.push(("app/kept.yaml".to_owned(), config_map("kept", "1")));
    first.push(("app/db.yaml".to_owned(), set.to_string()));
    first.push(("app/child.yaml".to_owned(), child.to_string()));
    let upstream = applied(&story, &first).await?;
    let app = StoryObject::kustomization("app");
    story.await_ready(&StoryObject::kustomization("child")).await?;
    story.ensure_config_maps(&below).await?;

    let revision = upstream.remove(&["app/db.yaml"]).await?;
    let plan = story.await_held("app", &revision, 1).await?;
    ensure!(plan.spec.rules.join(" ").contains("StatefulSet/"), "{:?}", plan.spec.rules);
    // The objects of an applier count together with the applier.
    let revision = upstream.remove(&["app/child.yaml"]).await?;
    let plan = story.await_held("app", &revision, 2).await?;
    ensure!(plan.spec.following == 3, "{:?}", plan.spec);
    story.expect(&StoryObject::new("apps/v1", "StatefulSet", "db")).await?;
    story.ensure_config_maps(&below).await?;

    let both = [("app/db.yaml", set.to_string()), ("app/child.yaml", child.to_string())];
    let revision = upstream.push(&both).await?;
    story.await_applied("app", &revision).await?;
    story.await_not_held("app").await?;
    story.ensure_config_maps(&below).await?;
    // A user who deletes the Kustomization wants this.
    story.delete(&app).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    story
        .await_gone(&StoryObject::new("apps/v1", "StatefulSet", "db"), DEFAULT_WAIT_TIMEOUT)
        .await?;
    story.await_gone(&StoryObject::config_map("map-00"), DEFAULT_WAIT_TIMEOUT).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_leaves_the_manifests_keeps_all_that_is_in_it_until_a_user_approves()
-> Result<()> {
    let story = Story::with_windlass("budget-namespace").await?;
    let inner = format!("{}-inner", story.namespace);
    let map = |name: &str, namespace: &str| {
        let metadata = json!({"name": name, "namespace": namespace});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}).to_string()
    };
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": inner}});
    let first = [
        ("kept.yaml", map("kept", &story.namespace)),
        ("inner.yaml", namespace.to_string()),
        ("map.yaml", map("map", &inner)),
    ];
    let upstream = story.follow("app", &first).await?;
    story.kustomization("app", "app", json!({"targetNamespace": null})).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    let within = StoryObject::config_map("map").in_namespace(&inner);
    story.expect(&within).await?;

    let revision = upstream.remove(&["inner.yaml", "map.yaml"]).await?;
    let plan = story.await_held("app", &revision, 2).await?;
    ensure!(plan.spec.rules.join(" ").contains(&format!("Namespace/{inner}")), "{:?}", plan.spec);
    let map = story.expect(&within).await?;
    ensure!(map.metadata.deletion_timestamp.is_none(), "the ConfigMap is being deleted");
    story.approve("ks/app")?;
    story.await_gone(&StoryObject::new("v1", "Namespace", &inner), DEFAULT_WAIT_TIMEOUT).await?;
    story.await_not_held("app").await?;
    story.expect(&StoryObject::config_map("kept")).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kustomization_that_is_renamed_in_the_repository_loses_no_object() -> Result<()> {
    let story = Story::with_windlass("budget-rename").await?;
    let child = |name: &str| {
        json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": name},
            "spec": {"interval": "1h", "path": "./apps", "prune": true, "targetNamespace": story.namespace,
                "sourceRef": {"kind": "GitRepository", "name": "app"}}})
        .to_string()
    };
    let below = names(3);
    let mut first = files("apps", &below);
    first.push(("root/apps.yaml".to_owned(), child("apps")));
    let upstream = story.follow("app", &borrowed(&first)).await?;
    story.kustomization("root", "app", json!({"path": "./root"})).await?;
    story.await_ready(&StoryObject::kustomization("root")).await?;
    let old = StoryObject::kustomization("apps");
    story.await_ready(&old).await?;

    let revision = upstream.push(&[("root/apps.yaml", child("applications"))]).await?;
    let plan = story.await_held("root", &revision, 1).await?;
    ensure!(plan.spec.rules.join(" ").contains("Kustomization/"), "{:?}", plan.spec.rules);
    story.await_ready(&StoryObject::kustomization("applications")).await?;
    story.expect(&old).await?;
    story.ensure_config_maps(&below).await?;
    // The other Kustomization owns the objects by now, so they stay when the old one is deleted.
    story.approve("ks/root")?;
    story.await_gone(&old, DEFAULT_WAIT_TIMEOUT).await?;
    story.await_not_held("root").await?;
    story.ensure_config_maps(&below).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn former_versions_of_generated_objects_are_deleted_however_many_change() -> Result<()> {
    let story = Story::with_windlass("budget-generated").await?;
    let generated = |value: &str| {
        let one = |at: usize| json!({"name": format!("generated-{at:02}"), "literals": [format!("key={value}")]});
        let all: Vec<Value> = (0..12).map(one).collect();
        json!({"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
            "configMapGenerator": all})
        .to_string()
    };
    let upstream = story.follow("app", &[("app/kustomization.yaml", generated("1"))]).await?;
    story.kustomization("app", "app", json!({"path": "./app"})).await?;
    let app = StoryObject::kustomization("app");
    story.await_ready(&app).await?;
    let object = story.expect(&app).await?;
    let before = inventory(&object);
    ensure!(before.len() == 12, "{before:?}");
    let revision = upstream.push(&[("app/kustomization.yaml", generated("2"))]).await?;
    let next = story.await_applied("app", &revision).await?;
    let after = inventory(&next);
    ensure!(after.len() == 12, "{after:?}");
    ensure!(before.iter().all(|id| !after.contains(id)), "{before:?} {after:?}");
    ensure!(condition(&next, "DeletionHeld").is_null(), "{:?}", next.data["status"]);
    ensure!(story.plans().await?.is_empty(), "a Plan was written");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_set_that_changed_after_the_approval_needs_another_one() -> Result<()> {
    let story = Story::with_windlass("budget-change").await?;
    let all = names(13);
    let first = files("app", &all);
    let upstream = applied(&story, &first).await?;
    let app = StoryObject::kustomization("app");
    let revision = upstream.remove(&paths(&first)[..11]).await?;
    let plan = story.await_held("app", &revision, 11).await?;

    // The approval comes during a suspension, and then another object is removed from the manifests.
    story.merge(&app, json!({"spec": {"suspend": true}})).await?;
    story.approve(&format!("plan/{}", plan.name_any()))?;
    let revision = upstream.remove(&paths(&first)[11..12]).await?;
    let is_fetched =
        |object: &DynamicObject| object.data["status"]["artifact"]["revision"] == revision.as_str();
    let source = StoryObject::git_repository("app");
    story.await_object(&source, DEFAULT_WAIT_TIMEOUT, is_fetched).await?;
    story.merge(&app, json!({"spec": {"suspend": false}})).await?;
    let next = story.await_held("app", &revision, 12).await?;
    ensure!(next.name_any() != plan.name_any(), "{}", next.name_any());
    ensure!(next.status.unwrap_or_default().approvals.is_empty(), "the approval was kept");
    story.ensure_config_maps(&all).await?;
    let old = story.windlass_says(
        &["approve", &format!("plan/{}", plan.name_any()), "-n", &story.namespace],
        false,
    )?;
    ensure!(old.contains("does not exist"), "{old}");

    story.approve("ks/app")?;
    await_deleted(&story, &all[..12]).await?;
    story.ensure_config_maps(&all[12..]).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_and_an_annotation_decide_how_many_are_held() -> Result<()> {
    let story = Story::with_windlass("budget-policy").await?;
    let all = names(8);
    let first = files("app", &all);
    let upstream = applied(&story, &first).await?;
    let app = StoryObject::kustomization("app");
    let annotation = |budget: Option<&str>| json!({"metadata": {"annotations": {"windlass.dev/deletion-budget": budget}}});
    story.merge(&app, annotation(Some("0"))).await?;
    let revision = upstream.remove(&["app/map-00.yaml"]).await?;
    let plan = story.await_held("app", &revision, 1).await?;
    ensure!(plan.spec.policies.is_empty() && plan.spec.budget.max_objects == 0, "{:?}", plan.spec);
    // Without the annotation, the deletion is within the default budget.
    story.merge(&app, annotation(None)).await?;
    story.await_gone(&StoryObject::config_map("map-00"), DEFAULT_WAIT_TIMEOUT).await?;
    story.await_not_held("app").await?;

    let policy = story.plan_policy(json!({"maxObjects": 2})).await?;
    let revision = upstream.remove(&["app/map-01.yaml", "app/map-02.yaml"]).await?;
    let plan = story.await_held("app", &revision, 2).await?;
    ensure!(plan.spec.policies == [story.namespace.clone()], "{:?}", plan.spec.policies);
    let rules = plan.spec.rules.join(" ");
    ensure!(
        rules.contains("in which 1 were deleted before"),
        "what was deleted before counts: {rules}"
    );
    story.delete(&policy).await?;
    for name in ["map-01", "map-02"] {
        story.await_gone(&StoryObject::config_map(name), DEFAULT_WAIT_TIMEOUT).await?;
    }
    story.await_not_held("app").await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_an_approval_keeps_leaves_the_inventory_and_stays_in_the_cluster()
-> Result<()> {
    let story = Story::with_windlass("budget-keep").await?;
    let all = names(12);
    let upstream = applied_beside_kept(&story, &all).await?;
    let app = StoryObject::kustomization("app");
    let before = story.expect(&StoryObject::config_map("map-03")).await?.metadata.uid;
    let revision = upstream.remove(&paths(&files("app", &all))).await?;
    story.await_held("app", &revision, 12).await?;

    let place = ["-n", story.namespace.as_str()];
    let strange = ["approve", "ks/app", "--keep", "ConfigMap/other"];
    let refused = story.windlass_says(&[&strange[..], &place[..]].concat(), false)?;
    ensure!(refused.contains("does not list ConfigMap/other"), "{refused}");
    let named = format!("ConfigMap/{}/map-03", story.namespace);
    let keeping = ["approve", "ks/app", "--keep", named.as_str()];
    let said = story.windlass_says(&[&keeping[..], &place[..]].concat(), true)?;
    ensure!(said.contains("except for 1 that stay in the cluster"), "{said}");
    for name in all.iter().filter(|it| *it != "map-03") {
        story.await_gone(&StoryObject::config_map(name), DEFAULT_WAIT_TIMEOUT).await?;
    }
    story.await_not_held("app").await?;
    let object = story.await_applied("app", &revision).await?;
    ensure!(inventory(&object).len() == 1, "{:?}", inventory(&object));
    let kept = story.expect(&StoryObject::config_map("map-03")).await?.metadata;
    ensure!(kept.uid == before && kept.deletion_timestamp.is_none(), "{kept:?}");
    // The object is not deleted together with the Kustomization either.
    story.delete(&app).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    story.ensure_config_maps(&["map-03".to_owned()]).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn exempt_objects_are_deleted_at_once_while_others_are_held() -> Result<()> {
    let story = Story::with_windlass("budget-exempt").await?;
    let exempt = json!([
        {"kind": "ConfigMap", "matchLabels": {"tier": "cache"}},
        {"group": "apps", "kind": "StatefulSet"},
    ]);
    let policy = story.plan_policy(json!({"exempt": exempt})).await?;
    let cached = |at: usize| {
        let name = format!("cache-{at:02}");
        let metadata = json!({"name": name, "labels": {"tier": "cache"}});
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        (format!("app/{name}.yaml"), object.to_string())
    };
    let set = set_with_claims();
    let mut gone: Vec<(String, String)> = (0..12).map(cached).collect();
    let mut first = gone.clone();
    first.push(("app/db.yaml".to_owned(), set.to_string()));
    first.push(("app/kept.yaml".to_owned(), config_map("kept", "1")));
    let (_, last) = cached(99);
    first.push(("last/map.yaml".to_owned(), last));
    first.push(("last/README.md".to_owned(), "What keeps the folder.\n".to_owned()));
    let upstream = story.follow("app", &borrowed(&first)).await?;
    story.kustomization("app", "app", json!({"path": "./app"})).await?;
    story.kustomization("last", "app", json!({"path": "./last"})).await?;
    story.await_ready(&StoryObject::kustomization("last")).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;

    gone.push(("app/db.yaml".to_owned(), String::new()));
    let revision = upstream.remove(&paths(&gone)).await?;
    // A protected kind is not exempt from the budget.
    let plan = story.await_held("app", &revision, 1).await?;
    ensure!(plan.spec.objects[0].ends_with("_db_apps_StatefulSet"), "{:?}", plan.spec);
    ensure!(plan.spec.budget.exempt.len() == 2, "{:?}", plan.spec.budget);
    for at in 0..12 {
        let map = StoryObject::config_map(&format!("cache-{at:02}"));
        story.await_gone(&map, DEFAULT_WAIT_TIMEOUT).await?;
    }
    let set_now = story.expect(&StoryObject::new("apps/v1", "StatefulSet", "db")).await?;
    ensure!(set_now.metadata.deletion_timestamp.is_none(), "the StatefulSet is being deleted");
    story.expect(&StoryObject::config_map("kept")).await?;

    // The deletions do not count for the hourly budget either, of which twelve would be too many.
    let revision = upstream.push(&[("app/db.yaml", set.to_string())]).await?;
    story.await_applied("app", &revision).await?;
    story.await_not_held("app").await?;
    let revision = upstream.remove(&["app/kept.yaml"]).await?;
    story.await_applied("app", &revision).await?;
    story.await_gone(&StoryObject::config_map("kept"), DEFAULT_WAIT_TIMEOUT).await?;
    story.await_not_held("app").await?;

    // A build without objects exempts no object.
    let revision = upstream.remove(&["last/map.yaml"]).await?;
    story.await_held("last", &revision, 1).await?;
    story.ensure_config_maps(&["cache-99".to_owned()]).await?;
    story.delete(&policy).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_turns_the_budget_off_does_not_free_the_deletions_of_its_kustomization()
-> Result<()> {
    let story = Story::with_windlass("budget-own").await?;
    let all = names(11);
    // Each story has its own namespace, because a PlanPolicy is cluster-scoped.
    let map = |name: &str| {
        let metadata = json!({"name": name, "namespace": story.namespace});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}).to_string()
    };
    let file = |name: &String| (format!("app/{name}.yaml"), map(name));
    let mut first: Vec<(String, String)> = all.iter().map(file).collect();
    first.push(("app/kept.yaml".to_owned(), map("kept")));
    first.push(("other/map.yaml".to_owned(), map("other")));
    first.push(("other/README.md".to_owned(), "What keeps the folder.\n".to_owned()));
    let upstream = story.follow("app", &borrowed(&first)).await?;
    story.kustomization("app", "app", json!({"path": "./app", "targetNamespace": null})).await?;
    story.kustomization("other", "app", json!({"path": "./other"})).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    story.await_ready(&StoryObject::kustomization("other")).await?;

    let labels = json!({"kubernetes.io/metadata.name": story.namespace});
    let policy = json!({"apiVersion": "release.windlass.dev/v1alpha1", "kind": "PlanPolicy",
        "metadata": {"name": story.namespace},
        "spec": {"namespaceSelector": {"matchLabels": labels}, "deletionBudget": {"enabled": false}}});
    let gone = files("app", &all);
    upstream.repository.delete(&paths(&gone), "the folder is emptied")?;
    let revision = upstream.push(&[("app/policy.yaml", policy.to_string())]).await?;
    let plan = story.await_held("app", &revision, 11).await?;
    ensure!(plan.spec.policies.is_empty(), "{:?}", plan.spec.policies);
    story.ensure_config_maps(&all).await?;
    // A later reconciliation, when the policy is known, deletes nothing either.
    let app = StoryObject::kustomization("app");
    story.rerun(&app).await?;
    story.ensure_config_maps(&all).await?;

    // The policy applies to another Kustomization.
    let revision = upstream.remove(&["other/map.yaml"]).await?;
    story.await_applied("other", &revision).await?;
    story.await_gone(&StoryObject::config_map("other"), DEFAULT_WAIT_TIMEOUT).await?;
    story.ensure_config_maps(&all).await?;
    story.approve("ks/app")?;
    await_deleted(&story, &all).await?;
    story.delete(&StoryObject::of::<PlanPolicy>(&story.namespace)).await?;
    story.end().await
}

/// Creates PlanPolicies with the default budget for the namespace of a story.
async fn limiting_policies(story: &Story, count: usize) -> Result<Vec<StoryObject>> {
    let mut made = Vec::new();
    for at in 0..count {
        let name = format!("{}-{at}", story.namespace);
        let labels = json!({"kubernetes.io/metadata.name": story.namespace});
        let spec = json!({"namespaceSelector": {"matchLabels": labels}, "deletionBudget": {"maxObjects": 10}});
        let policy = json!({"apiVersion": "release.windlass.dev/v1alpha1", "kind": "PlanPolicy",
            "metadata": {"name": name}, "spec": spec});
        story.apply_value(policy).await?;
        made.push(StoryObject::of::<PlanPolicy>(&name));
    }
    Ok(made)
}

/// Creates a ServiceAccount with all rights in the cluster, as windlass may have.
async fn account(story: &Story, name: &str) -> Result<StoryObject> {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
    story.apply_value(account).await?;
    let full = format!("{}-{name}", story.namespace);
    let rbac = "rbac.authorization.k8s.io/v1";
    let subject = json!({"kind": "ServiceAccount", "name": name, "namespace": story.namespace});
    story
        .apply_value(json!({"apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": {"name": full},
            "subjects": [subject],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}}))
        .await?;
    Ok(StoryObject::new(rbac, "ClusterRoleBinding", &full))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_of_a_service_account_is_refused_and_does_not_count() -> Result<()> {
    let story = Story::with_windlass("budget-account").await?;
    let mut made = limiting_policies(&story, 3).await?;
    let all = names(11);
    let upstream = applied_beside_kept(&story, &all).await?;
    let app = StoryObject::kustomization("app");
    let gone = files("app", &all);
    let revision = upstream.remove(&paths(&gone)).await?;
    let plan = story.await_held("app", &revision, 11).await?;
    let name = plan.name_any();
    ensure!(plan.spec.policies.len() == 3, "{:?}", plan.spec.policies);

    // Without the admission policy, the approval does not count.
    let robot = format!("system:serviceaccount:{}:robot", story.namespace);
    let approval = json!({"status": {"approvals": [{"user": robot}]}});
    story.merge_status(&StoryObject::of::<Plan>(&name), approval.clone()).await?;
    story.rerun(&app).await?;
    story.ensure_config_maps(&all).await?;
    story
        .merge_status(&StoryObject::of::<Plan>(&name), json!({"status": {"approvals": []}}))
        .await?;

    // With the admission policy, the approval is refused, whatever rights the ServiceAccount has.
    made.extend(story.enforce(include_str!("../../../deploy/policies/plans.yaml")).await?);
    made.push(account(&story, "robot").await?);
    let kubeconfig = story.bed.account_kubeconfig(&story.namespace, "robot").await?;
    let as_robot =
        Api::<Plan>::namespaced(e2e::control_plane::client(&kubeconfig).await?, &story.namespace);
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    let request = async || as_robot.patch_status(&name, &dry_run, &Patch::Merge(&approval)).await;
    story.await_refusal("ServiceAccounts cannot approve", request).await?;
    // A user may not approve in the name of another user either.
    let administrator = Api::<Plan>::namespaced(story.client.clone(), &story.namespace);
    let forged = json!({"status": {"approvals": [{"user": "alice"}]}});
    let refused = administrator.patch_status(&name, &dry_run, &Patch::Merge(&forged)).await;
    let refused = refused.err().context("it was approved for alice")?.to_string();
    ensure!(refused.contains("users approve for themselves only"), "{refused}");
    // A user with the right for all PlanPolicies approves, and windlass may delete the Plan.
    story.approve(&format!("plan/{name}"))?;
    await_deleted(&story, &all).await?;
    ensure!(administrator.delete(&name, &DeleteParams::default()).await.is_err(), "it is there");
    for target in made {
        story.delete(&target).await?;
    }
    story.end().await
}
