//! Drift is corrected object by object. An object that cannot be corrected does not affect the others.

use anyhow::{Result, ensure};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use e2e::servers::admission_webhook::{AdmissionWebhookAnswer, AdmissionWebhookServer};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::{Value, json};

/// A webhook that the API server calls when windlass writes a ClusterRole.
fn about(webhook: &AdmissionWebhookServer, story: &Story, role: &str) -> Value {
    let mut configuration = webhook.configuration(&story.namespace, 10);
    let asked = &mut configuration["webhooks"][0];
    asked["namespaceSelector"] = json!({});
    asked["rules"] = json!([{
        "apiGroups": ["rbac.authorization.k8s.io"], "apiVersions": ["v1"], "operations": ["UPDATE"],
        "resources": ["clusterroles"], "scope": "Cluster",
    }]);
    let is_ours =
        format!("request.name == '{role}' && request.userInfo.username.contains('windlass')");
    asked["matchConditions"] = json!([{"name": "ours", "expression": is_ours}]);
    configuration
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_is_refused_does_not_keep_later_stages_from_being_corrected() -> Result<()> {
    let story = Story::with_windlass("drift").await?;
    let name = format!("{}-role", story.namespace);
    let yaml = format!(
        "{{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {{name: {name}}}, \
         rules: [{{apiGroups: [\"\"], resources: [configmaps], verbs: [get]}}]}}\n"
    );
    // The ClusterRole belongs to an earlier stage than the ConfigMap.
    let files = [("role.yaml", yaml), ("map.yaml", config_map("map", "1"))];
    let _upstream = story.follow("app", &files).await?;
    story.kustomization("app", "app", json!({})).await?;
    let app = StoryObject::kustomization("app");
    story.await_ready(&app).await?;

    let role = StoryObject::new("rbac.authorization.k8s.io/v1", "ClusterRole", &name);
    let map = StoryObject::config_map("map");
    let webhook = AdmissionWebhookServer::start(AdmissionWebhookAnswer::RefuseWrites(
        "frozen by a webhook".to_owned(),
    ))
    .await?;
    story.apply_value(about(&webhook, &story, &name)).await?;
    // The API server calls a webhook only some time after its registration. So the story edits the role until windlass does not
    // correct it.
    let rule = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]});
    story
        .await_until("a correction to be refused", DEFAULT_WAIT_TIMEOUT, async || {
            story.merge(&role, json!({"rules": [rule]})).await?;
            let object = story.expect(&app).await?;
            let ready = condition(&object, "Ready");
            Ok(ready["message"].as_str().unwrap_or_default().contains("frozen").then_some(()))
        })
        .await?;
    story.merge(&map, json!({"data": {"value": "edited"}})).await?;
    story.await_value("map", "1").await?;
    let object = story.expect(&app).await?;
    let ready = condition(&object, "Ready");
    ensure!(ready["status"] == "False", "{ready}");

    webhook.set(AdmissionWebhookAnswer::Admit);
    story.request(&app).await?;
    story.await_ready(&app).await?;
    let kind = "ValidatingWebhookConfiguration";
    let configuration = StoryObject::new("admissionregistration.k8s.io/v1", kind, &story.namespace);
    story.delete(&configuration).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kustomization_that_applies_another_leaves_its_finalizer() -> Result<()> {
    let story = Story::with_windlass("nested").await?;
    let child = format!(
        "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata:\n  name: child\nspec:\n  \
         interval: 1h\n  path: ./child\n  prune: true\n  targetNamespace: {}\n  \
         sourceRef: {{kind: GitRepository, name: app}}\n",
        story.namespace
    );
    let files = [("apps/child.yaml", child), ("child/map.yaml", config_map("map", "1"))];
    let _upstream = story.follow("app", &files).await?;
    story.kustomization("app", "app", json!({"path": "./apps"})).await?;
    let parent = StoryObject::kustomization("app");
    let child = StoryObject::kustomization("child");
    story.await_ready(&parent).await?;
    story.await_value("map", "1").await?;
    story.await_ready(&child).await?;

    // A comparison of all objects. A finalizer that windlass took over would be removed by it.
    let before = story.expect(&child).await?;
    story.rerun(&parent).await?;
    let after = story.expect(&child).await?;
    // windlass takes over fields that the applying manager updated. The next apply removes them if no manifest contains them.
    let updated = |entry: &&ManagedFieldsEntry| entry.operation.as_deref() == Some("Update");
    let entries = after.metadata.managed_fields.iter().flatten();
    let managers: Vec<_> = entries.filter(updated).map(|it| it.manager.as_deref()).collect();
    ensure!(!managers.contains(&Some("kustomize-controller")), "{managers:?}");
    ensure!(
        before.metadata.resource_version == after.metadata.resource_version,
        "it was written: {:?}",
        after.metadata.managed_fields
    );
    story.end().await
}
