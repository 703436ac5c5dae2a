//! Readiness and health with CEL expressions: kinds whose health only an expression can judge, and dependencies that need more
//! than Ready.
//!
//! Every interval and retry is ten minutes long.

use anyhow::{Result, ensure};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition, revision};
use e2e::harness::manifests::{config_map, widget, widget_crd};
use e2e::harness::{Story, StoryObject};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_of_its_own_is_healthy_when_its_expression_says_so() -> Result<()> {
    let story = Story::with_windlass("expressions").await?;
    let group = format!("{}.test", story.namespace);
    story.apply(&widget_crd(&group)).await?;
    let upstream = story.follow("app", &[("a.yaml", widget(&group, "wheel"))]).await?;
    let checks = json!([{
        "apiVersion": format!("{group}/v1"),
        "kind": "Widget",
        "inProgress": "!has(status.phase) || status.phase == 'Turning'",
        "failed": "status.phase == 'Broken'",
        "current": "status.phase == 'Done'",
    }]);
    story.kustomization("app", "app", json!({"wait": true, "healthCheckExprs": checks})).await?;
    let first = revision(&upstream.repository.hash("main")?);
    story.await_waiting("app", &first).await?;
    let wheel = StoryObject::new(&format!("{group}/v1"), "Widget", "wheel");
    story.merge_status(&wheel, json!({"status": {"phase": "Broken"}})).await?;
    let app = StoryObject::kustomization("app");
    let message = story.await_failure(&app, "HealthCheckFailed").await?;
    ensure!(message.contains("Widget/"), "{message}");
    story.merge_status(&wheel, json!({"status": {"phase": "Done"}})).await?;
    story.await_ready(&app).await?;
    let crd = format!("widgets.{group}");
    story
        .delete(&StoryObject::new("apiextensions.k8s.io/v1", "CustomResourceDefinition", &crd))
        .await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dependency_is_ready_when_its_expression_says_so() -> Result<()> {
    let story = Story::with_windlass("ready-expr").await?;
    let files = [("base/a.yaml", config_map("base", "1")), ("app/b.yaml", config_map("app", "1"))];
    let _upstream = story.follow("app", &files).await?;
    story.kustomization("base", "app", json!({"path": "base"})).await?;
    story.await_ready(&StoryObject::kustomization("base")).await?;
    let depends = |expression: &str| json!({"path": "app", "dependsOn": [{"name": "base", "readyExpr": expression}]});
    let open = "has(dep.metadata.labels) && dep.metadata.labels['open'] == self.metadata.name";
    story.kustomization("app", "app", depends(open)).await?;
    let app = StoryObject::kustomization("app");
    let message = story.await_failure(&app, "DependencyNotReady").await?;
    ensure!(message.contains("base"), "{message}");
    ensure!(story.read(&StoryObject::config_map("app")).await?.is_none(), "it did not wait");
    let labelled = json!({"metadata": {"labels": {"open": "app"}}});
    story.merge(&StoryObject::kustomization("base"), labelled).await?;
    story.request(&app).await?;
    story.await_ready(&app).await?;

    story.kustomization("app", "app", depends("dep.status.")).await?;
    let stalled = story.await_condition(&app, "Stalled", "True", DEFAULT_WAIT_TIMEOUT).await?;
    ensure!(
        condition(&stalled, "Stalled")["reason"] == "InvalidCELExpression",
        "{:?}",
        stalled.data["status"]
    );
    story.end().await
}
