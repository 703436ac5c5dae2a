//! CRDs in the manifests of a Kustomization. windlass writes and deletes them only if the existing objects allow it.

use anyhow::{Result, ensure};
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::manifests::{config_map, widget, widget_crd};
use e2e::harness::widgets::{crd, widget as own};
use e2e::harness::{Story, StoryObject};
use serde_json::{Value, json};

/// The CRD with another schema for `spec`.
fn with_spec(group: &str, spec: &str) -> String {
    let open = "spec: {type: object, x-kubernetes-preserve-unknown-fields: true}";
    widget_crd(group).replace(open, &format!("spec: {spec}"))
}

fn annotated(definition: &str, policy: &str) -> String {
    definition.replace(
        "metadata: {",
        &format!("metadata: {{annotations: {{windlass.dev/crd-policy: \"{policy}\"}}, "),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_does_not_fit_is_written_by_force_only() -> Result<()> {
    let story = Story::with_windlass("guard-force").await?;
    let group = format!("{}.test", story.namespace);
    let wide = with_spec(
        &group,
        "{type: object, properties: {size: {type: integer}, old: {type: string}}}",
    );
    let small = with_spec(&group, "{type: object, properties: {size: {type: integer}}}");
    let upstream =
        story.follow("app", &[("crd.yaml", wide), ("map.yaml", config_map("map", "1"))]).await?;
    story.kustomization("app", "app", json!({"retryInterval": "5m"})).await?;
    let app = StoryObject::kustomization("app");
    story.await_ready(&app).await?;
    story.await_condition(&crd(&group), "Established", "True", DEFAULT_WAIT_TIMEOUT).await?;
    story.apply(&widget(&group, "a").replace("size: 1", "size: 1, old: x")).await?;

    upstream.push(&[("crd.yaml", small.clone()), ("map.yaml", config_map("map", "2"))]).await?;
    let text = story.await_failure(&app, "CRDIncompatible").await?;
    let found = format!(
        "v1 spec.old is no field of the new schema, and would be dropped (1 object: {}/a)",
        story.namespace
    );
    ensure!(text.contains(&found), "{text}");
    story.await_value("map", "1").await?;

    // With `Skip`, the CRD stays unchanged.
    upstream.push(&[("crd.yaml", annotated(&small, "Skip"))]).await?;
    story.await_value("map", "2").await?;
    ensure!(story.expect(&own(&group, "a")).await?.data["spec"]["old"] == "x", "it was written");

    // The annotation names the UID and generation of the live CRD, which forces the write.
    let live = story.expect(&crd(&group)).await?.metadata;
    let uid = live.uid.unwrap_or_default();
    let generation = live.generation.unwrap_or_default();
    let forced = annotated(&small, &format!("Force={uid}@{generation}"));
    let revision = upstream.push(&[("crd.yaml", forced)]).await?;
    story.await_applied("app", &revision).await?;
    ensure!(story.expect(&own(&group, "a")).await?.data["spec"]["old"].is_null());
    story.delete(&app).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    story.expect(&own(&group, "a")).await?;
    story.delete(&crd(&group)).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_of_definitions_that_moves_to_another_kustomization_loses_no_object() -> Result<()>
{
    let story = Story::with_windlass("guard-folder").await?;
    // The deletion budget holds the deletion of a CRD before the CRD guard is asked about it.
    let policy = story.without_deletion_budget().await?;
    let group = format!("{}.test", story.namespace);
    let files = [
        ("one/crd.yaml", widget_crd(&group)),
        ("one/map.yaml", config_map("one", "1")),
        ("two/map.yaml", config_map("two", "1")),
    ];
    let upstream = story.follow("app", &files).await?;
    let in_cluster = |path: &str| json!({"path": path, "retryInterval": "2s"});
    story.kustomization("one", "app", in_cluster("./one")).await?;
    story.kustomization("two", "app", in_cluster("./two")).await?;
    story.await_ready(&StoryObject::kustomization("one")).await?;
    story.await_ready(&StoryObject::kustomization("two")).await?;
    story.await_condition(&crd(&group), "Established", "True", DEFAULT_WAIT_TIMEOUT).await?;
    story.apply(&widget(&group, "mine")).await?;
    let before = story.expect(&crd(&group)).await?.metadata.uid;
    upstream.remove(&["one/crd.yaml"]).await?;
    story.await_event("Kustomization", "one", "CRDReleased").await?;
    let managers = story.expect(&crd(&group)).await?.metadata.managed_fields.unwrap_or_default();
    let is_applied = managers.iter().any(|it| it.operation.as_deref() == Some("Apply"));
    ensure!(!is_applied, "a release leaves no claim: {managers:?}");
    let revision = upstream.push(&[("two/crd.yaml", widget_crd(&group))]).await?;
    story.await_applied("two", &revision).await?;
    story.await_applied("one", &revision).await?;
    let live = story.expect(&crd(&group)).await?.metadata;
    ensure!(live.uid == before, "it was created again");
    let owner = live.labels.as_ref().and_then(|it| it.get("kustomize.toolkit.fluxcd.io/name"));
    ensure!(owner.is_some_and(|it| it == "two"), "{:?}", live.labels);
    story.expect(&own(&group, "mine")).await?;

    // An annotation on the CRD itself confirms its deletion.
    let uid = before.unwrap_or_default();
    let confirmed = json!({"metadata": {"annotations": {"windlass.dev/crd-removal": uid}}});
    story.merge(&crd(&group), confirmed).await?;
    story.delete(&StoryObject::kustomization("two")).await?;
    story.await_gone(&crd(&group), DEFAULT_WAIT_TIMEOUT).await?;
    story.delete(&policy).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_version_is_dropped_after_its_objects_were_moved() -> Result<()> {
    let story = Story::with_windlass("guard-versions").await?;
    let group = format!("{}.test", story.namespace);
    let mut both: Value = serde_saphyr::from_str(&widget_crd(&group))?;
    let mut old = both["spec"]["versions"][0].clone();
    (old["name"], old["storage"]) = (json!("v1alpha1"), json!(true));
    both["spec"]["versions"][0]["storage"] = json!(false);
    if let Some(versions) = both["spec"]["versions"].as_array_mut() {
        versions.push(old);
    }
    let upstream = story.follow("app", &[("crd.yaml", both.to_string())]).await?;
    story.kustomization("app", "app", json!({"force": true, "retryInterval": "5m"})).await?;
    let app = StoryObject::kustomization("app");
    story.await_ready(&app).await?;
    story.await_condition(&crd(&group), "Established", "True", DEFAULT_WAIT_TIMEOUT).await?;
    story.apply(&widget(&group, "mine")).await?;
    upstream.push(&[("crd.yaml", widget_crd(&group))]).await?;
    story
        .await_object(&crd(&group), DEFAULT_WAIT_TIMEOUT, |object| {
            object.data["status"]["storedVersions"] == json!(["v1"])
                && object.data["spec"]["versions"].as_array().is_some_and(|it| it.len() == 1)
        })
        .await?;
    story.await_ready(&app).await?;
    story.expect(&own(&group, "mine")).await?;

    // Objects cannot be migrated to a version that is not served yet. The CRD is not recreated for this.
    upstream.push(&[("crd.yaml", widget_crd(&group).replace("name: v1\n", "name: v2\n"))]).await?;
    let text = story.await_failure(&app, "CRDIncompatible").await?;
    ensure!(text.contains("v1 is dropped, and objects may be stored in it"), "{text}");
    story.expect(&own(&group, "mine")).await?;
    story.delete(&own(&group, "mine")).await?;
    story.delete(&app).await?;
    story.await_gone(&crd(&group), DEFAULT_WAIT_TIMEOUT).await?;
    story.end().await
}
