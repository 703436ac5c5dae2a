//! Corrections in Git or in a spec: after the user follows the advice, the object becomes ready.

use anyhow::{Context as _, Result, ensure};
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::manifests::{config_map, widget, widget_crd};
use e2e::harness::{Story, StoryObject};
use serde_json::{Value, json};

use crate::cli::why_advice::advice;
use crate::cli::why_causes::await_cause;

/// The part of an object's advice between two texts.
fn advised(story: &Story, object: &str, before: &str, after: &str) -> Result<String> {
    let advice = advice(story, object)?;
    let text = advice["text"].as_str().unwrap_or_default();
    let rest = text.split_once(before).map(|(_, rest)| rest);
    let found = rest.and_then(|rest| rest.split_once(after)).map(|(found, _)| found.to_owned());
    found.with_context(|| format!("`{text}` has nothing between `{before}` and `{after}`"))
}

/// A ConfigMap that is immutable, with an annotation (`key: value`) or none.
fn sealed(value: &str, annotation: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: sealed, annotations: {{{annotation}}}}}, immutable: true, \
         data: {{value: \"{value}\"}}}}\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_may_not_change_is_created_again_where_it_is_annotated() -> Result<()> {
    let story = Story::with_windlass("why-immutable").await?;
    let upstream = story.follow("app", &[("deploy/a.yaml", sealed("1", ""))]).await?;
    story.kustomization("app", "app", json!({"path": "./deploy"})).await?;
    story.await_value("sealed", "1").await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    upstream.push(&[("deploy/a.yaml", sealed("2", ""))]).await?;
    let parts = ["ConfigMap/{ns}/sealed", "immutable"];
    await_cause(&story, "ks/app", "Apply", &parts).await?;

    let source = format!(" of GitRepository/{}/app", story.namespace);
    let folder = advised(&story, "ks/app", "in folder ", &source)?;
    let subject = format!("have ConfigMap/{}/sealed deleted and created again: ", story.namespace);
    // The annotation is at the end of the sentence.
    let text = advice(&story, "ks/app")?["text"].as_str().unwrap_or_default().to_owned();
    let (_, annotation) = text.split_once("annotate it there with ").context(text.clone())?;
    ensure!(text.contains(&subject), "{text}");
    let last = upstream.push(&[(&format!("{folder}/a.yaml"), sealed("2", annotation))]).await?;
    story.await_applied("app", &last).await?;
    story.await_value("sealed", "2").await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_does_not_exist_is_corrected_in_the_field_that_is_named() -> Result<()> {
    let story = Story::with_windlass("why-branch").await?;
    let upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    let url = upstream.server.url(&upstream.repository);
    story.git_repository("wrong", &url, json!({"ref": {"branch": "mian"}})).await?;
    story.kustomization("wrong", "wrong", json!({})).await?;
    await_cause(&story, "ks/wrong", "Fetch", &["GitRepository/{ns}/wrong", "mian"]).await?;

    let field = advised(&story, "ks/wrong", "correct ", " `mian`, or push")?;
    let main = Value::from("main");
    let patch = field.rsplit('.').fold(main, |value, key| json!({key: value}));
    story.merge(&StoryObject::git_repository("wrong"), patch).await?;
    story.await_ready(&StoryObject::kustomization("wrong")).await?;
    story.await_value("a", "1").await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_that_does_not_exist_is_applied_once_its_definition_is_beside_it() -> Result<()> {
    let story = Story::with_windlass("why-kind").await?;
    let group = format!("{}.test", story.namespace);
    let upstream = story.follow("app", &[("a.yaml", widget(&group, "a"))]).await?;
    story.kustomization("app", "app", json!({})).await?;
    await_cause(&story, "ks/app", "Apply", &["no matches for kind", "Widget"]).await?;
    let advice = advice(&story, "ks/app")?;
    let text = advice["text"].as_str().unwrap_or_default();
    let expected = format!(
        "install the CustomResourceDefinition of kind Widget: by Kustomization/{}/app itself",
        story.namespace
    );
    ensure!(text.starts_with(&expected), "{text}");
    let last = upstream.push(&[("crd.yaml", widget_crd(&group))]).await?;
    story.await_applied("app", &last).await?;
    let widget = StoryObject::new(&format!("{group}/v1"), "Widget", "a");
    story.expect(&widget).await?;
    // The CRD is deleted together with the Kustomization.
    let app = StoryObject::kustomization("app");
    story.delete(&app).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    story.end().await
}
