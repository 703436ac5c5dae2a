//! The confirmed deletion of a CRD: windlass exports its objects, and `windlass crd restore` creates them again.

use anyhow::{Context as _, Result, ensure};
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::manifests::{config_map, widget, widget_crd};
use e2e::harness::widgets::{crd, widget as own};
use e2e::harness::{Story, StoryObject};
use e2e::random_sequence::RandomSequence;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{Api, DynamicObject, ListParams};
use serde_json::{Value, json};

/// Confirms the deletion of a CRD. Returns its UID.
async fn confirm(story: &Story, group: &str) -> Result<String> {
    let uid = story.expect(&crd(group)).await?.metadata.uid.context("no uid")?;
    let confirmed = json!({"metadata": {"annotations": {"windlass.dev/crd-removal": uid}}});
    story.merge(&crd(group), confirmed).await?;
    Ok(uid)
}

/// The parts of an object that an export has to keep.
fn kept(object: &DynamicObject) -> Value {
    json!({"labels": object.metadata.labels, "annotations": object.metadata.annotations,
        "finalizers": object.metadata.finalizers, "spec": object.data["spec"],
        "status": object.data["status"]})
}

/// Removes the finalizers of objects that wait for another controller.
async fn let_go(story: &Story, group: &str, name: &str) -> Result<()> {
    let is_leaving = |it: &DynamicObject| it.metadata.deletion_timestamp.is_some();
    story.await_object(&own(group, name), DEFAULT_WAIT_TIMEOUT, is_leaving).await?;
    story.merge(&own(group, name), json!({"metadata": {"finalizers": null}})).await.map(drop)
}

/// One of 64 letters, so that a text of them can hardly be compressed.
fn letter(random: &mut RandomSequence) -> char {
    let all = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    all.get(random.below(all.len())).copied().map_or('A', char::from)
}

/// The Secrets of a CRD's exports.
async fn secrets(story: &Story, uid: &str) -> Result<Vec<String>> {
    let all = Api::<Secret>::namespaced(story.client.clone(), "flux-system");
    let of_it = ListParams::default().labels(&format!("windlass.dev/crd-export={uid}"));
    Ok(all.list_metadata(&of_it).await?.items.into_iter().map(|it| it.name_any()).collect())
}

/// Deletes the Secrets of a CRD's exports.
async fn forget(story: &Story, uid: &str) -> Result<()> {
    for name in secrets(story, uid).await? {
        story.delete(&StoryObject::new("v1", "Secret", &name).in_namespace("flux-system")).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_whose_end_is_confirmed_is_exported_and_restored_with_every_object()
-> Result<()> {
    let story = Story::with_windlass("guard-export").await?;
    let group = format!("{}.test", story.namespace);
    let name = format!("widgets.{group}");
    let _upstream = story.follow("app", &[("crd.yaml", widget_crd(&group))]).await?;
    story.kustomization("app", "app", json!({})).await?;
    let app = StoryObject::kustomization("app");
    story.await_ready(&app).await?;
    story.await_condition(&crd(&group), "Established", "True", DEFAULT_WAIT_TIMEOUT).await?;
    story.apply(&widget(&group, "plain")).await?;
    // The owner has to exist. The garbage collector deletes an object with a missing owner as soon as it knows the kind, even
    // before the export.
    let owner = story.expect(&StoryObject::new("v1", "Namespace", &story.namespace)).await?;
    story
        .apply_value(json!({"apiVersion": format!("{group}/v1"), "kind": "Widget",
            "metadata": {"name": "held", "labels": {"a": "b"}, "annotations": {"c": "d\ne"},
                "finalizers": ["example.com/held"],
                "ownerReferences": [{"apiVersion": "v1", "kind": "Namespace", "name": story.namespace,
                    "uid": owner.metadata.uid}]},
            "spec": {"size": 1.5, "list": [null, {"deep": [[1]]}], "text": "é\n"}}))
        .await?;
    story.merge_status(&own(&group, "held"), json!({"status": {"id": "i-1"}})).await?;
    let mut before = Vec::new();
    for name in ["plain", "held"] {
        before.push(kept(&story.expect(&own(&group, name)).await?));
    }
    let definition = story.expect(&crd(&group)).await?.data["spec"].clone();

    let uid = confirm(&story, &group).await?;
    story.delete(&app).await?;
    story.await_event("Kustomization", "app", "CRDExported").await?;
    let_go(&story, &group, "held").await?;
    story.await_gone(&crd(&group), DEFAULT_WAIT_TIMEOUT).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;

    let tried = story.windlass_says(&["crd", "restore", &name, "--dry-run"], true)?;
    ensure!(tried.contains("objects would be created: 2"), "{tried}");
    ensure!(story.read(&crd(&group)).await?.is_none(), "a dry run created it");
    let said = story.windlass_says(&["crd", "restore", &name, "-o", "json"], true)?;
    let said: Value = serde_json::from_str(&said)?;
    let export = said["export"].as_str().unwrap_or_default();
    ensure!(export.starts_with(&uid) && said["definitionCreated"] == true, "{said}");
    ensure!(said["created"] == 2 && said["withoutOwners"] == 1, "{said}");
    let live = story.expect(&crd(&group)).await?;
    ensure!(live.data["spec"] == definition, "{}", live.data["spec"]);
    let labels = live.metadata.labels.unwrap_or_default();
    ensure!(labels.keys().all(|it| !it.starts_with("kustomize")), "{labels:?}");
    for (name, before) in ["plain", "held"].into_iter().zip(&before) {
        let after = kept(&story.expect(&own(&group, name)).await?);
        ensure!(after == *before, "{after} was {before}");
    }
    // The next owner owns all restored fields and can remove them. The status has no owner.
    let live = story.expect(&own(&group, "held")).await?;
    let managers = live.metadata.managed_fields.unwrap_or_default();
    let managers: Vec<_> = managers.iter().map(|it| (&it.manager, &it.subresource)).collect();
    ensure!(managers == [(&Some("kubectl-windlass".to_owned()), &None)], "{managers:?}");
    // Existing objects stay as they are, and missing ones are created.
    story.merge(&own(&group, "held"), json!({"spec": {"size": 2}})).await?;
    story.delete(&own(&group, "plain")).await?;
    let again = story.windlass_says(&["crd", "restore", &name, "--export", &uid], true)?;
    ensure!(again.contains("objects created: 1\n") && again.contains("exist, and stay"), "{again}");
    ensure!(story.expect(&own(&group, "held")).await?.data["spec"]["size"] == 2, "it was written");
    let other = story.windlass_says(&["crd", "restore", &name, "--export", "other"], false)?;
    ensure!(other.contains("no export other"), "{other}");

    // Objects are restored into a different CRD only on demand, and never without some of their fields.
    story.delete(&own(&group, "plain")).await?;
    let closed = json!({"spec": {"versions": [{"name": "v1", "served": true, "storage": true,
        "subresources": {"status": {}}, "schema": {"openAPIV3Schema": {"type": "object",
            "properties": {"spec": {"type": "object", "properties": {"text": {"type": "string"}}}}}}}]}});
    story.merge(&crd(&group), closed).await?;
    let refused = story.windlass_says(&["crd", "restore", &name], false)?;
    ensure!(refused.contains("is not the exported one: /spec/versions"), "{refused}");
    let flags = ["crd", "restore", &name, "--accept-definition"];
    story
        .await_until("the API server to use the new schema", DEFAULT_WAIT_TIMEOUT, async || {
            if let Ok(refused) = story.windlass_says(&flags, false) {
                ensure!(refused.contains("unknown field \"spec.size\""), "{refused}");
                return Ok(Some(()));
            }
            // The object was restored with the old schema.
            story.delete(&own(&group, "plain")).await.map(|()| None)
        })
        .await?;
    ensure!(story.read(&own(&group, "plain")).await?.is_none(), "it was created without a field");

    story.delete(&own(&group, "held")).await?;
    let_go(&story, &group, "held").await?;
    story.delete(&crd(&group)).await?;
    forget(&story, &uid).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_whose_objects_are_too_large_for_an_export_is_not_deleted() -> Result<()> {
    let story = Story::with_windlass("guard-too-large").await?;
    // The deletion budget holds the deletion of a CRD before the CRD guard is asked about it.
    let budget = story.without_deletion_budget().await?;
    let group = format!("{}.test", story.namespace);
    let files = [("crd.yaml", widget_crd(&group)), ("map.yaml", config_map("map", "1"))];
    let upstream = story.follow("app", &files).await?;
    story.kustomization("app", "app", json!({"retryInterval": "2s"})).await?;
    let app = StoryObject::kustomization("app");
    story.await_ready(&app).await?;
    story.await_condition(&crd(&group), "Established", "True", DEFAULT_WAIT_TIMEOUT).await?;
    let mut random = RandomSequence::new(1);
    let names: Vec<String> = (0..22).map(|at| format!("large-{at}")).collect();
    for name in &names {
        let text: String = (0..1_000_000).map(|_| letter(&mut random)).collect();
        story.apply(&widget(&group, name).replace("size: 1", &format!("text: \"{text}\""))).await?;
    }
    let uid = confirm(&story, &group).await?;
    let revision = upstream.remove(&["crd.yaml"]).await?;
    let text = story.await_failure(&app, "PruneFailed").await?;
    let why = "its objects cannot be exported: they are more than 14400 KiB when packed";
    ensure!(text.contains(why) && text.contains("windlass.dev/crd-removal"), "{text}");
    let live = story.expect(&crd(&group)).await?;
    ensure!(live.metadata.deletion_timestamp.is_none(), "it is being deleted");
    for name in &names {
        story.expect(&own(&group, name)).await?;
    }
    // The cause is removed, and the deletion goes on.
    for name in &names[2..] {
        story.delete(&own(&group, name)).await?;
    }
    story.await_gone(&crd(&group), DEFAULT_WAIT_TIMEOUT).await?;
    story.await_applied("app", &revision).await?;
    let name = format!("widgets.{group}");
    let said = story.windlass_says(&["crd", "restore", &name], true)?;
    ensure!(said.contains("objects created: "), "{said}");
    story.expect(&own(&group, &names[0])).await?;
    story.delete(&crd(&group)).await?;
    forget(&story, &uid).await?;
    story.delete(&budget).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kustomization_removes_from_a_restored_definition_what_its_manifest_has_no_more()
-> Result<()> {
    let story = Story::with_windlass("guard-restored").await?;
    let group = format!("{}.test", story.namespace);
    let name = format!("widgets.{group}");
    let noted = |note: &str| {
        widget_crd(&group)
            .replace("metadata: {", &format!("metadata: {{annotations: {{{note}: x}}, "))
    };
    let upstream = story.follow("app", &[("crd.yaml", noted("old"))]).await?;
    let app = StoryObject::kustomization("app");
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&app).await?;
    story.await_condition(&crd(&group), "Established", "True", DEFAULT_WAIT_TIMEOUT).await?;
    story.apply(&widget(&group, "mine")).await?;
    let uid = confirm(&story, &group).await?;
    story.delete(&app).await?;
    story.await_gone(&crd(&group), DEFAULT_WAIT_TIMEOUT).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    story.windlass_says(&["crd", "restore", &name], true)?;
    let notes = |it: &DynamicObject| it.metadata.annotations.clone().unwrap_or_default();
    ensure!(notes(&story.expect(&crd(&group)).await?).contains_key("old"));

    upstream.push(&[("crd.yaml", noted("new"))]).await?;
    story.kustomization("app", "app", json!({})).await?;
    let is_new =
        |it: &DynamicObject| notes(it).contains_key("new") && !notes(it).contains_key("old");
    story.await_object(&crd(&group), DEFAULT_WAIT_TIMEOUT, is_new).await?;
    story.expect(&own(&group, "mine")).await?;
    story.delete(&own(&group, "mine")).await?;
    story.delete(&app).await?;
    story.await_gone(&crd(&group), DEFAULT_WAIT_TIMEOUT).await?;
    forget(&story, &uid).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_that_cannot_be_stored_whole_leaves_nothing_behind() -> Result<()> {
    let story = Story::with_windlass("guard-half").await?;
    let budget = story.without_deletion_budget().await?;
    let group = format!("{}.test", story.namespace);
    let files = [("crd.yaml", widget_crd(&group)), ("map.yaml", config_map("map", "1"))];
    let upstream = story.follow("app", &files).await?;
    story.kustomization("app", "app", json!({"retryInterval": "2s"})).await?;
    let app = StoryObject::kustomization("app");
    story.await_ready(&app).await?;
    story.await_condition(&crd(&group), "Established", "True", DEFAULT_WAIT_TIMEOUT).await?;
    let mut random = RandomSequence::new(2);
    for name in ["a", "b"] {
        let text: String = (0..1_000_000).map(|_| letter(&mut random)).collect();
        story.apply(&widget(&group, name).replace("size: 1", &format!("text: \"{text}\""))).await?;
    }
    // The API server rejects the second part of the export.
    let policy = format!("half.{group}");
    let is_second = format!(
        "has(object.metadata.annotations) && 'windlass.dev/crd-name' in object.metadata.annotations && \
         object.metadata.annotations['windlass.dev/crd-name'] == 'widgets.{group}' && object.metadata.name.endsWith('-1')"
    );
    let admission = "admissionregistration.k8s.io/v1";
    story
        .apply_value(json!({"apiVersion": admission, "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": policy}, "spec": {"failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
                    "operations": ["CREATE"], "resources": ["secrets"]}]},
                "validations": [{"expression": format!("!({is_second})"), "message": "no second parts"}]}}))
        .await?;
    story
        .apply_value(json!({"apiVersion": admission, "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": policy}, "spec": {"policyName": policy, "validationActions": ["Deny"]}}))
        .await?;
    let probe = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "probe-1",
        "annotations": {"windlass.dev/crd-name": format!("widgets.{group}")}}});
    story
        .await_until("the policy", DEFAULT_WAIT_TIMEOUT, async || {
            if story.apply_value(probe.clone()).await.is_err() {
                return Ok(Some(()));
            }
            story.delete(&StoryObject::new("v1", "Secret", "probe-1")).await.map(|()| None)
        })
        .await?;
    let uid = confirm(&story, &group).await?;
    upstream.remove(&["crd.yaml"]).await?;
    let text = story.await_failure(&app, "PruneFailed").await?;
    ensure!(text.contains("no second parts"), "{text}");
    story
        .await_until("the first part to be deleted", DEFAULT_WAIT_TIMEOUT, async || {
            Ok(secrets(&story, &uid).await?.is_empty().then_some(()))
        })
        .await?;
    story.expect(&own(&group, "a")).await?;
    for kind in ["ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"] {
        story.delete(&StoryObject::new(admission, kind, &policy)).await?;
    }
    story.await_gone(&crd(&group), DEFAULT_WAIT_TIMEOUT).await?;
    forget(&story, &uid).await?;
    story.delete(&budget).await?;
    story.end().await
}
