//! Change windows: outside of them, windlass applies, corrects and prunes nothing, whatever the trigger. These stories are
//! early in the list, because some wait for a certain minute.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::{PodBehavior, config_map, deployment};
use e2e::harness::{Story, StoryObject};
use jiff::{SignedDuration, Timestamp};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

const WINDOW: &str = "windlass.dev/Window";

/// How long an action may take that happens at a full minute: up to two minutes, and the following steps.
const MINUTES: Duration = Duration::from_secs(150);

/// A window that opened some time ago, and opens again in about a day.
fn closed() -> String {
    let opened = Timestamp::now() - SignedDuration::from_hours(3);
    format!("{} 1h", opened.strftime("%M %H * * *"))
}

async fn annotate(story: &Story, target: &StoryObject, annotations: Value) -> Result<()> {
    story.merge(target, json!({"metadata": {"annotations": annotations}})).await.map(drop)
}

/// Waits until the condition about windows has a status. Returns its message.
async fn await_window(story: &Story, target: &StoryObject, status: &str) -> Result<String> {
    let object = story.await_condition(target, WINDOW, status, DEFAULT_WAIT_TIMEOUT).await?;
    let message = condition(&object, WINDOW)["message"].as_str().context("no message")?;
    Ok(message.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn outside_its_window_everything_waits_until_the_glass_is_broken() -> Result<()> {
    let story = Story::with_windlass("window").await?;
    let files = |value: &str| {
        [
            ("a/guarded.yaml", config_map("guarded", value)),
            ("a/kept.yaml", config_map("kept", value)),
            ("b/free.yaml", config_map("free", value)),
        ]
    };
    let upstream = story.follow("app", &files("1")).await?;
    story.kustomization("guarded", "app", json!({"path": "a"})).await?;
    story.kustomization("free", "app", json!({"path": "b"})).await?;
    let guarded = StoryObject::kustomization("guarded");
    let ready = story.await_ready(&guarded).await?;
    let first = ready.data["status"]["lastAppliedRevision"].clone();
    story.await_ready(&StoryObject::kustomization("free")).await?;

    // Without a change, the object stays Ready and says when the window opens.
    annotate(&story, &guarded, json!({"windlass.dev/window": closed()})).await?;
    let opening = await_window(&story, &guarded, "False").await?;
    ensure!(opening.starts_with("the next opening is 20"), "{opening}");
    story.merge(&StoryObject::config_map("guarded"), json!({"data": {"value": "drifted"}})).await?;
    let object = story.rerun(&guarded).await?;
    ensure!(condition(&object, "Ready")["status"] == "True", "{:?}", object.data["status"]);

    // A change in another folder is no change for this object.
    let elsewhere = upstream.push(&[("b/free.yaml", config_map("free", "1.1"))]).await?;
    story.await_applied("free", &elsewhere).await?;
    let object = story.expect(&guarded).await?;
    ensure!(condition(&object, "Ready")["status"] == "True", "{:?}", object.data["status"]);

    let second = upstream.push(&files("2")).await?;
    let third = upstream.remove(&["a/kept.yaml"]).await?;
    story.await_applied("free", &third).await?;
    let names_newest = |object: &DynamicObject| {
        let ready = condition(object, "Ready");
        ready["reason"] == "WindowClosed"
            && ready["message"].as_str().is_some_and(|it| it.contains(&third))
    };
    let object = story.await_object(&guarded, DEFAULT_WAIT_TIMEOUT, names_newest).await?;
    let message = condition(&object, "Ready")["message"].as_str().unwrap_or_default();
    ensure!(message.starts_with("outside the window '"), "{message}");
    ensure!(message.ends_with(&opening), "{message} should end with {opening}");
    ensure!(!message.contains(&second), "{message}");
    ensure!(object.data["status"]["lastAppliedRevision"] == first, "{:?}", object.data["status"]);
    story.await_value("guarded", "drifted").await?;
    story.await_value("kept", "1").await?;

    let until = Timestamp::now() + SignedDuration::from_hours(1);
    annotate(&story, &guarded, json!({"windlass.dev/break-glass": until.to_string()})).await?;
    story.await_applied("guarded", &third).await?;
    story.await_value("guarded", "2").await?;
    story.await_gone(&StoryObject::config_map("kept"), DEFAULT_WAIT_TIMEOUT).await?;
    let message = await_window(&story, &guarded, "True").await?;
    ensure!(message.contains("opened by windlass.dev/break-glass until"), "{message}");

    annotate(&story, &guarded, json!({"windlass.dev/window": null})).await?;
    story
        .await_object(&guarded, DEFAULT_WAIT_TIMEOUT, |it| condition(it, WINDOW).is_null())
        .await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_opening_what_waited_is_applied_by_itself() -> Result<()> {
    let story = Story::with_windlass("opening").await?;
    let upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    let app = StoryObject::kustomization("app");
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&app).await?;
    // Twenty seconds are enough to see that the window is closed.
    let opening = Timestamp::now() + SignedDuration::from_secs(80);
    let window = format!("{} 1h", opening.strftime("%M %H * * *"));
    annotate(&story, &app, json!({"windlass.dev/window": window})).await?;
    await_window(&story, &app, "False").await?;
    let second = upstream.push(&[("a.yaml", config_map("a", "2"))]).await?;
    let message = story.await_failure(&app, "WindowClosed").await?;
    ensure!(message.contains(&opening.strftime("%Y-%m-%dT%H:%M:00Z").to_string()), "{message}");
    story.await_value("a", "1").await?;

    story.await_applied_within("app", &second, MINUTES).await?;
    story.await_value("a", "2").await?;
    await_window(&story, &app, "True").await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_has_a_source_reconciled_between_its_intervals() -> Result<()> {
    let story = Story::with_windlass("schedule").await?;
    let upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    let source = StoryObject::git_repository("app");
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    annotate(&story, &source, json!({"windlass.dev/schedule": "nonsense"})).await?;
    let wrong = "windlass.dev/Schedule";
    let object = story.await_condition(&source, wrong, "False", DEFAULT_WAIT_TIMEOUT).await?;
    let message = condition(&object, wrong)["message"].as_str().unwrap_or_default();
    ensure!(message.contains("five fields"), "{message}");
    ensure!(condition(&object, "Ready")["status"] == "True", "{:?}", object.data["status"]);

    annotate(&story, &source, json!({"windlass.dev/schedule": "* * * * * Europe/Berlin"})).await?;
    story.await_object(&source, DEFAULT_WAIT_TIMEOUT, |it| condition(it, wrong).is_null()).await?;
    // No webhook and no request announces this commit.
    upstream.repository.commit(&[("a.yaml", &config_map("a", "2"))], "second")?;
    let has_second = |object: &DynamicObject| object.data["data"]["value"] == "2";
    story.await_object(&StoryObject::config_map("a"), MINUTES, has_second).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_that_cannot_be_read_lets_nothing_through_but_deletion() -> Result<()> {
    let story = Story::with_windlass("malformed").await?;
    let upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    let app = StoryObject::kustomization("app");
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&app).await?;
    annotate(&story, &app, json!({"windlass.dev/window": "0 22 * * MON-XYZ 4h"})).await?;
    let message = story.await_failure(&app, "InvalidWindow").await?;
    ensure!(
        message.starts_with("windlass.dev/window: `MON-XYZ` is not a day of week"),
        "{message}"
    );
    let object = story.expect(&app).await?;
    ensure!(condition(&object, "Stalled")["status"] == "True", "{:?}", object.data["status"]);
    upstream.push(&[("a.yaml", config_map("a", "2"))]).await?;
    story.merge(&StoryObject::config_map("a"), json!({"data": {"value": "drifted"}})).await?;

    // After the annotation is corrected, the object waits with the commit that came meanwhile. A deletion is still allowed.
    annotate(&story, &app, json!({"windlass.dev/window": closed()})).await?;
    story.await_failure(&app, "WindowClosed").await?;
    story.await_value("a", "drifted").await?;
    story.delete(&app).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    story.await_gone(&StoryObject::config_map("a"), DEFAULT_WAIT_TIMEOUT).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_under_way_is_followed_to_its_end_but_not_corrected() -> Result<()> {
    let story = Story::with_windlass("rollout").await?;
    let files = [
        ("a/web.yaml", deployment("web", PodBehavior::Unready)),
        ("b/job.yaml", deployment("job", PodBehavior::Unready)),
    ];
    let upstream = story.follow("app", &files).await?;
    let first = e2e::harness::flux_objects::revision(&upstream.repository.hash("main")?);
    for (name, path) in [("web", "a"), ("job", "b")] {
        let spec = json!({"path": path, "wait": true, "timeout": "10m"});
        story.kustomization(name, "app", spec).await?;
        story.await_waiting(name, &first).await?;
        let target = StoryObject::kustomization(name);
        annotate(&story, &target, json!({"windlass.dev/window": closed()})).await?;
    }
    // Drift that happens meanwhile stops at the step that would correct it.
    let job = StoryObject::new("apps/v1", "Deployment", "job");
    story.merge(&job, json!({"spec": {"replicas": 3}})).await?;
    let message = story.await_failure(&StoryObject::kustomization("job"), "WindowClosed").await?;
    ensure!(message.contains(&first), "{message}");
    ensure!(story.expect(&job).await?.data["spec"]["replicas"] == 3, "it was corrected");

    let pods: Api<k8s_openapi::api::core::v1::Pod> =
        Api::namespaced(story.client.clone(), &story.namespace);
    for pod in pods.list(&ListParams::default().labels("app=web")).await?.items {
        let name = pod.metadata.name.context("no name")?;
        let ready = |kind: &str| json!({"type": kind, "status": "True"});
        let status = json!({"status": {"conditions": [ready("Ready"), ready("ContainersReady")]}});
        pods.patch_status(&name, &PatchParams::default(), &Patch::Strategic(&status)).await?;
    }
    story.await_applied("web", &first).await?;
    let object = story.expect(&StoryObject::kustomization("web")).await?;
    ensure!(condition(&object, WINDOW)["status"] == "False", "{:?}", object.data["status"]);
    story.end().await
}
