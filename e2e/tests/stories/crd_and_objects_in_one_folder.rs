//! CRDs and the objects that need them are in one folder, and are applied together.

use anyhow::{Result, ensure};
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::manifests::{config_map, widget, widget_crd};
use e2e::harness::{Story, StoryObject};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_crd_its_object_and_a_namespace_become_ready_in_one_go() -> Result<()> {
    let story = Story::with_windlass("one-go").await?;
    let inner = format!("{}-inner", story.namespace);
    let group = format!("{}.test", story.namespace);
    let into_inner =
        |text: String| text.replace("metadata: {", &format!("metadata: {{namespace: {inner}, "));
    let role = format!(
        "{{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {{name: {inner}}}, \
         rules: [{{apiGroups: [{group}], resources: [widgets], verbs: [get]}}]}}\n"
    );
    let namespace = format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {inner}}}}}\n");
    // Sorted by name, the objects come before the CRDs and namespaces that they need.
    let files = [
        ("a-widget.yaml", into_inner(widget(&group, "wheel"))),
        ("b-settings.yaml", into_inner(config_map("settings", "1"))),
        ("c-role.yaml", role),
        ("d-definition.yaml", widget_crd(&group)),
        ("e-namespace.yaml", namespace),
    ];
    let _upstream = story.follow("all", &files).await?;
    story.kustomization("all", "all", json!({"targetNamespace": null, "wait": true})).await?;
    let all = StoryObject::kustomization("all");
    let applied = story.await_ready(&all).await?;

    let history = &applied.data["status"]["history"];
    let statuses: Vec<_> =
        history.as_array().into_iter().flatten().map(|it| &it["lastReconciledStatus"]).collect();
    ensure!(statuses == ["ReconciliationSucceeded"], "{history}");
    let events = story.events("Kustomization", "all").await?;
    ensure!(events.iter().all(|it| it.starts_with("Normal")), "{events:#?}");
    let wheel = StoryObject::new(&format!("{group}/v1"), "Widget", "wheel").in_namespace(&inner);
    story.expect(&wheel).await?;

    // All objects are deleted, although the namespace takes a while to become empty.
    story.delete(&all).await?;
    story.await_gone(&all, DEFAULT_WAIT_TIMEOUT).await?;
    for (api_version, kind, name) in [
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition", format!("widgets.{group}")),
        ("rbac.authorization.k8s.io/v1", "ClusterRole", inner.clone()),
        ("v1", "Namespace", inner.clone()),
    ] {
        story.await_gone(&StoryObject::new(api_version, kind, &name), DEFAULT_WAIT_TIMEOUT).await?;
    }
    story.end().await
}
