//! Committed objects are applied. Objects that are removed from the repository are deleted, unless they ask to stay.

use anyhow::{Result, ensure};
use e2e::harness::flux_objects::{inventory, revision};
use e2e::harness::manifests::{annotated, config_map};
use e2e::harness::{Story, StoryObject, flux_objects::DEFAULT_WAIT_TIMEOUT};
use kube::ResourceExt;
use serde_json::json;

const PRUNE: &str = "kustomize.toolkit.fluxcd.io/prune";
const RECONCILE: &str = "kustomize.toolkit.fluxcd.io/reconcile";
const SSA: &str = "kustomize.toolkit.fluxcd.io/ssa";

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_becomes_objects_with_owner_labels_and_an_inventory() -> Result<()> {
    let story = Story::with_windlass("apply").await?;
    let files = [
        ("app/one.yaml", config_map("one", "1")),
        ("app/deep/two.yml", config_map("two", "1")),
        ("app/readme.txt", "not a manifest".to_owned()),
        ("elsewhere/three.yaml", config_map("three", "1")),
    ];
    let upstream = story.follow("app", &files).await?;
    story.kustomization("app", "app", json!({"path": "./app"})).await?;
    let first = revision(&upstream.repository.hash("main")?);
    let applied = story.await_applied("app", &first).await?;

    let namespace = &story.namespace;
    let expected = [format!("{namespace}_one__ConfigMap"), format!("{namespace}_two__ConfigMap")];
    ensure!(inventory(&applied) == expected, "{:?}", inventory(&applied));
    ensure!(applied.data["status"]["inventory"]["entries"][0]["v"] == "v1", "{:?}", applied.data);
    ensure!(applied.data["status"]["lastAttemptedRevision"] == first, "{:?}", applied.data);
    for name in ["one", "two"] {
        let object = story.expect(&StoryObject::config_map(name)).await?;
        let label = |key: &str| object.labels().get(&format!("kustomize.toolkit.fluxcd.io/{key}"));
        ensure!(label("name").is_some_and(|it| it == "app"), "{:?}", object.labels());
        ensure!(label("namespace") == Some(namespace), "{:?}", object.labels());
        let managers = object.managed_fields().iter().filter_map(|it| it.manager.as_deref());
        ensure!(managers.eq(["kustomize-controller"]), "{:?}", object.managed_fields());
    }
    ensure!(story.read(&StoryObject::config_map("three")).await?.is_none(), "beyond spec.path");
    let created = format!("ConfigMap/{namespace}/one created");
    story.await_event("Kustomization", "app", &created).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_commit_configures_what_changed_and_prunes_what_is_gone() -> Result<()> {
    let story = Story::with_windlass("prune").await?;
    let files =
        ["same", "changing", "leaving", "lasting"].map(|name| (name, config_map(name, "1")));
    let files = files.map(|(name, text)| (format!("{name}.yaml"), text));
    let files: Vec<_> = files.iter().map(|(path, text)| (&**path, text.clone())).collect();
    let upstream = story.follow("app", &files).await?;
    story.kustomization("app", "app", json!({})).await?;
    story.await_value("same", "1").await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    let before = story.expect(&StoryObject::config_map("same")).await?;

    // The file of `lasting` is removed, too, but the object asks to stay.
    let lasting = annotated("lasting", "1", PRUNE, "disabled");
    let marked = upstream.push(&[("lasting.yaml", lasting)]).await?;
    story.await_applied("app", &marked).await?;
    upstream.repository.delete(&["leaving.yaml", "lasting.yaml"], "gone")?;
    let last = upstream.push(&[("changing.yaml", config_map("changing", "2"))]).await?;
    let applied = story.await_applied("app", &last).await?;

    let namespace = &story.namespace;
    let expected = ["changing", "same"].map(|name| format!("{namespace}_{name}__ConfigMap"));
    ensure!(inventory(&applied) == expected, "{:?}", inventory(&applied));
    story.await_gone(&StoryObject::config_map("leaving"), DEFAULT_WAIT_TIMEOUT).await?;
    story.expect(&StoryObject::config_map("lasting")).await?;
    story.await_value("changing", "2").await?;
    let after = story.expect(&StoryObject::config_map("same")).await?;
    ensure!(before.resource_version() == after.resource_version(), "an equal object was written");
    for line in ["changing configured", "leaving deleted"] {
        let line = format!("ConfigMap/{namespace}/{line}");
        story.await_event("Kustomization", "app", &line).await?;
    }
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_prune_what_is_gone_is_forgotten_and_stays() -> Result<()> {
    let story = Story::with_windlass("forget").await?;
    let files = ["kept", "dropped"].map(|name| (name, config_map(name, "1")));
    let upstream = story
        .follow(
            "app",
            &files.map(|(name, text)| (if name == "kept" { "a.yaml" } else { "b.yaml" }, text)),
        )
        .await?;
    story.kustomization("app", "app", json!({"prune": false})).await?;
    let both = story.await_ready(&StoryObject::kustomization("app")).await?;
    ensure!(inventory(&both).len() == 2, "{:?}", inventory(&both));
    let last = upstream.remove(&["b.yaml"]).await?;
    let applied = story.await_applied("app", &last).await?;
    let expected = [format!("{}_kept__ConfigMap", story.namespace)];
    ensure!(inventory(&applied) == expected, "{:?}", inventory(&applied));
    story.expect(&StoryObject::config_map("dropped")).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_that_ask_to_be_left_alone_are_left_alone() -> Result<()> {
    let story = Story::with_windlass("alone").await?;
    let all = |value: &str| {
        [
            ("once.yaml", annotated("once", value, SSA, "IfNotPresent")),
            ("ignored.yaml", annotated("ignored", value, SSA, "Ignore")),
            ("disabled.yaml", annotated("disabled", value, RECONCILE, "Disabled")),
            ("claimed.yaml", config_map("claimed", value)),
            ("usual.yaml", config_map("usual", value)),
        ]
    };
    let upstream = story.follow("app", &all("1")).await?;
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    for name in ["ignored", "disabled"] {
        ensure!(story.read(&StoryObject::config_map(name)).await?.is_none(), "{name} was created");
    }
    // A user excludes an object in the cluster from reconciliation.
    let hands_off = json!({"metadata": {"annotations": {RECONCILE: "disabled"}}});
    story.merge(&StoryObject::config_map("claimed"), hands_off).await?;

    let last = upstream.push(&all("2")).await?;
    story.await_applied("app", &last).await?;
    story.await_value("usual", "2").await?;
    story.await_value("once", "1").await?;
    story.await_value("claimed", "1").await?;
    for name in ["ignored", "disabled"] {
        ensure!(story.read(&StoryObject::config_map(name)).await?.is_none(), "{name} was created");
    }
    // When the objects leave the manifests, only the one with the excluding annotation stays.
    let empty = upstream.remove(&["once.yaml", "claimed.yaml"]).await?;
    story.await_applied("app", &empty).await?;
    story.await_gone(&StoryObject::config_map("once"), DEFAULT_WAIT_TIMEOUT).await?;
    story.expect(&StoryObject::config_map("claimed")).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_folder_deletes_nothing_while_an_annotation_or_the_budget_forbids_it()
-> Result<()> {
    let story = Story::with_windlass("emptied").await?;
    let files = [("app/a.yaml", config_map("kept", "1")), ("app/readme.txt", "folder".to_owned())];
    let upstream = story.follow("app", &files).await?;
    story.kustomization("app", "app", json!({"path": "./app"})).await?;
    let app = StoryObject::kustomization("app");
    let guard = |says: Option<&str>| json!({"metadata": {"annotations": {"windlass.dev/allow-empty": says}}});
    story.merge(&app, guard(Some("false"))).await?;
    story.await_ready(&app).await?;
    let empty = upstream.remove(&["app/a.yaml"]).await?;
    let message = story.await_failure(&app, "BuildFailed").await?;
    ensure!(message.contains("restore the manifests or correct spec.path"), "{message}");
    story.expect(&StoryObject::config_map("kept")).await?;
    // The deletion is held without the annotation, and also with an annotation that allows it. A build without objects is
    // beyond the budget.
    for says in [None, Some("true")] {
        story.merge(&app, guard(says)).await?;
        story.await_held("app", &empty, 1).await?;
        story.expect(&StoryObject::config_map("kept")).await?;
    }
    // A failed build does not release the held deletion.
    story.merge(&app, guard(Some("false"))).await?;
    story.await_failure(&app, "BuildFailed").await?;
    ensure!(story.plans().await?.len() == 1, "the Plan is gone");
    story.merge(&app, guard(None)).await?;
    story.await_held("app", &empty, 1).await?;
    // Without a deletion budget, the annotation has the same meaning as in Flux.
    let policy = story.without_deletion_budget().await?;
    story.await_gone(&StoryObject::config_map("kept"), DEFAULT_WAIT_TIMEOUT).await?;
    story.await_not_held("app").await?;
    story.delete(&policy).await?;
    story.end().await
}
