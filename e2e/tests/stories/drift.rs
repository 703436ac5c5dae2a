//! Drift is corrected object by object: one that cannot be corrected keeps no other from it.

use anyhow::{Result, ensure};
use e2e::harness::flux::{SOON, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, Target};
use e2e::servers::webhook::{Answer, Webhook};
use serde_json::{Value, json};

/// Has the API server ask a webhook about what windlass does to a ClusterRole.
fn about(webhook: &Webhook, story: &Story, role: &str) -> Value {
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
    // The ClusterRole is of an earlier stage than the ConfigMap.
    let files = [("role.yaml", yaml), ("map.yaml", config_map("map", "1"))];
    let _upstream = story.follow("app", &files).await?;
    story.kustomization("app", "app", json!({})).await?;
    let app = Target::kustomization("app");
    story.await_ready(&app).await?;

    let role = Target::new("rbac.authorization.k8s.io/v1", "ClusterRole", &name);
    let map = Target::config_map("map");
    let webhook = Webhook::start(Answer::RefuseWrites("frozen by a webhook".to_owned())).await?;
    story.apply_value(about(&webhook, &story, &name)).await?;
    // A webhook is asked a moment after it was registered, so the role is edited until that is not put back.
    let rule = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]});
    story
        .await_until("a correction to be refused", SOON, async || {
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

    webhook.set(Answer::Admit);
    story.request(&app).await?;
    story.await_ready(&app).await?;
    let kind = "ValidatingWebhookConfiguration";
    let configuration = Target::new("admissionregistration.k8s.io/v1", kind, &story.namespace);
    story.delete(&configuration).await?;
    story.end().await
}
