//! windlass is killed, stopped and started again without any effect for users. Also tests of its flags.
//!
//! The stories have their own process, because each has its own windlass that watches only the story's namespace.
//! Below: Freezes (`freezes`). Elsewhere: stories that share one windlass (`stories.rs`).

mod freezes;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use crds::operation_lifecycle::LifecyclePhase;
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository, newest};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, NEVER, condition, inventory, revision};
use e2e::harness::manifests::{PodBehavior, config_map, deployment};
use e2e::harness::quarantines::web_and_map;
use e2e::harness::{Story, StoryObject, WindlassProcess};
use e2e::servers::registry::RegistryServer;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, ListParams};
use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;

/// Fetches the artifact of a Ready GitRepository, and checks its digest.
async fn ensure_fetchable(story: &Story, name: &str) -> Result<()> {
    let object = story.await_ready(&StoryObject::git_repository(name)).await?;
    let artifact = &object.data["status"]["artifact"];
    let url = artifact["url"].as_str().context("no artifact")?;
    let answer = reqwest::get(url).await?.error_for_status()?;
    let digest: String =
        Sha256::digest(answer.bytes().await?).iter().map(|byte| format!("{byte:02x}")).collect();
    ensure!(artifact["digest"] == format!("sha256:{digest}"), "{artifact}");
    Ok(())
}

async fn await_fetchable(story: &Story, name: &str) -> Result<()> {
    story
        .await_until("the artifact to be served", DEFAULT_WAIT_TIMEOUT, async || {
            ensure_fetchable(story, name).await.map(Some)
        })
        .await
}

fn config_maps(count: usize, value: &str) -> Vec<(String, String)> {
    (0..count)
        .map(|at| (format!("{at:03}.yaml"), config_map(&format!("map-{at:03}"), value)))
        .collect()
}

fn borrowed(files: &[(String, String)]) -> Vec<(&str, String)> {
    files.iter().map(|(path, text)| (&**path, text.clone())).collect()
}

/// The names of all ConfigMaps that windlass owns.
async fn owned(story: &Story) -> Result<Vec<String>> {
    let api = Api::<ConfigMap>::namespaced(story.client.clone(), &story.namespace);
    let list = api.list(&ListParams::default().labels("kustomize.toolkit.fluxcd.io/name")).await?;
    Ok(list.items.iter().map(ResourceExt::name_any).collect())
}

/// The value of a metric of windlass with these labels. It is zero if the metric does not exist.
async fn metric(windlass: &WindlassProcess, series: &str) -> Result<usize> {
    let metrics = windlass.metrics().await?;
    let value = |line: &str| line.strip_prefix(series)?.trim().parse().ok();
    Ok(metrics.lines().find_map(value).unwrap_or_default())
}

/// Waits until windlass has kept the comparison of a Kustomization in its storage folder.
async fn await_kept(story: &Story, windlass: &WindlassProcess) -> Result<()> {
    let folder = windlass.storage().join(".comparisons");
    let is_kept = async || {
        let entries = std::fs::read_dir(&folder)?.flatten();
        let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        Ok(names.any(|name| name.starts_with("Kustomization-")).then_some(()))
    };
    story.await_until("a kept comparison", DEFAULT_WAIT_TIMEOUT, is_kept).await
}

#[tokio::test(flavor = "multi_thread")]
async fn unchanged_objects_need_no_comparison_after_a_restart_and_drift_is_corrected() -> Result<()>
{
    const DRY_RUNS: &str = "windlass_api_requests_total{verb=\"dry-run\"}";
    const RUNS: &str = "windlass_reconcile_duration_seconds_count{kind=\"Kustomization\"}";
    let story = Story::begin("confirmed").await?;
    let mut windlass = WindlassProcess::start_for(&story, &[]).await?;
    let _upstream = story.follow("app", &borrowed(&config_maps(5, "1"))).await?;
    story.kustomization("app", "app", json!({"wait": true})).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    ensure!(metric(&windlass, DRY_RUNS).await? >= 5, "each object was compared");
    await_kept(&story, &windlass).await?;
    windlass.operator.kill()?;
    windlass.resume().await?;
    let has_run = async || Ok((metric(&windlass, RUNS).await? > 0).then_some(()));
    story.await_until("a run", DEFAULT_WAIT_TIMEOUT, has_run).await?;
    ensure!(metric(&windlass, DRY_RUNS).await? == 0, "nothing has changed");
    story.await_ready(&StoryObject::kustomization("app")).await?;

    windlass.operator.kill()?;
    let drift = json!({"data": {"value": "drifted"}});
    story.merge(&StoryObject::config_map("map-000"), drift).await?;
    story.delete(&StoryObject::config_map("map-001")).await?;
    windlass.resume().await?;
    story.await_value("map-000", "1").await?;
    story.await_value("map-001", "1").await?;
    story.await_value("map-002", "1").await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_stays_after_a_restart() -> Result<()> {
    let story = Story::begin("quarantine-restart").await?;
    let mut windlass = WindlassProcess::start_for(&story, &[]).await?;
    let upstream = story.follow("app", &web_and_map(PodBehavior::Ready, "1")).await?;
    let app = story.rolling_back_app(json!({"timeout": "30s"})).await?;
    story.await_good_result(&app).await?;
    let second = upstream.push(&web_and_map(PodBehavior::CrashLoop, "2")).await?;
    let message = story.await_failure(&app, "Quarantined").await?;
    ensure!(message.contains(&second), "{message}");
    story.await_value("a", "1").await?;
    windlass.operator.kill()?;
    story.merge(&StoryObject::config_map("a"), json!({"data": {"value": "drifted"}})).await?;
    windlass.resume().await?;
    let token = story.request(&app).await?;
    let is_handled =
        |object: &DynamicObject| object.data["status"]["lastHandledReconcileAt"] == token.as_str();
    let object = story.await_object(&app, DEFAULT_WAIT_TIMEOUT, is_handled).await?;
    ensure!(condition(&object, "Ready")["reason"] == "Quarantined", "{:?}", object.data["status"]);
    story.await_value("a", "1").await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_last_good_artifact_that_is_lost_comes_back_from_git() -> Result<()> {
    let story = Story::begin("quarantine-lost").await?;
    let mut windlass = WindlassProcess::start_for(&story, &[]).await?;
    let upstream = story.follow("app", &web_and_map(PodBehavior::Ready, "1")).await?;
    let app = story.rolling_back_app(json!({"timeout": "30s"})).await?;
    let object = story.await_good_result(&app).await?;
    let path = &object.data["status"]["history"][0]["metadata"]["windlass.dev/ArtifactPath"];
    let path = windlass.storage().join(path.as_str().context("a path")?);
    upstream.push(&web_and_map(PodBehavior::CrashLoop, "2")).await?;
    story.await_failure(&app, "Quarantined").await?;
    story.await_value("a", "1").await?;
    // The storage is empty, like an `emptyDir` after the Pod was moved.
    windlass.operator.kill()?;
    ensure!(path.exists(), "the last good artifact is kept");
    std::fs::remove_dir_all(windlass.storage().join("gitrepository"))?;
    story.merge(&StoryObject::config_map("a"), json!({"data": {"value": "drifted"}})).await?;
    windlass.resume().await?;
    story.await_value("a", "1").await?;
    story.await_failure(&app, "Quarantined").await?;
    ensure!(path.exists(), "it was fetched again");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_was_rolled_back_stays_so_after_a_restart() -> Result<()> {
    let story = Story::begin("quarantine-release").await?;
    let mut windlass = WindlassProcess::start_for(&story, &[]).await?;
    let charts = StoryChartRepository::of(&story).await?;
    let web = |pods| deployment("web", pods);
    charts.publish("1.0.0", &[("templates/d.yaml", &web(PodBehavior::Ready))]).await?;
    let app = charts.release("app", json!({"upgrade": {"timeout": "3s"}})).await?;
    story.roll_back_failures(&app).await?;
    story.await_revision(&app, 1).await?;
    charts.publish("1.1.0", &[("templates/d.yaml", &web(PodBehavior::CrashLoop))]).await?;
    story.await_failure(&app, "Quarantined").await?;
    let before = story.history("app")?;
    windlass.operator.kill()?;
    // Flux would forget the failure and release the same chart again.
    story.merge(&app, json!({"spec": {"interval": "30m"}})).await?;
    windlass.resume().await?;
    story.await_failure(&app, "Quarantined").await?;
    ensure!(story.history("app")? == before, "{:?}", story.history("app")?);
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_it_applies_it_loses_no_object_and_finishes_afterwards() -> Result<()> {
    const COUNT: usize = 150;
    let story = Story::begin("killed").await?;
    let mut windlass = WindlassProcess::start_for(&story, &[]).await?;
    let upstream = story.follow("app", &borrowed(&config_maps(COUNT, "1"))).await?;
    story.kustomization("app", "app", json!({})).await?;
    let is_begun = async || Ok((!owned(&story).await?.is_empty()).then_some(()));
    story.await_until("the first object", DEFAULT_WAIT_TIMEOUT, is_begun).await?;
    windlass.operator.kill()?;

    let app = story.expect(&StoryObject::kustomization("app")).await?;
    for name in owned(&story).await? {
        let id = format!("{}_{name}__ConfigMap", story.namespace);
        ensure!(inventory(&app).contains(&&*id), "{name} is in the cluster and in no inventory");
    }
    // Objects that were already applied are removed from the repository meanwhile. windlass must still delete them.
    let sha = upstream.repository.delete(&["000.yaml", "001.yaml"], "two less")?;
    windlass.resume().await?;
    story.request(&StoryObject::git_repository("app")).await?;
    let app = story.await_applied("app", &revision(&sha)).await?;
    ensure!(inventory(&app).len() == COUNT - 2, "{} objects", inventory(&app).len());
    ensure!(owned(&story).await?.len() == COUNT - 2, "{:?}", owned(&story).await?);
    ensure_fetchable(&story, "app").await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_between_an_approval_and_its_deletions_it_carries_out_exactly_these() -> Result<()> {
    const COUNT: usize = 14;
    let story = Story::begin("killed-approval").await?;
    let mut windlass = WindlassProcess::start_for(&story, &[]).await?;
    let files = config_maps(COUNT, "1");
    let upstream = story.follow("app", &borrowed(&files)).await?;
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    let gone: Vec<&str> = files.iter().skip(2).map(|(path, _)| path.as_str()).collect();
    let revision = upstream.remove(&gone).await?;
    story.await_held("app", &revision, 12).await?;
    ensure!(owned(&story).await?.len() == COUNT, "{:?}", owned(&story).await?);
    windlass.operator.kill()?;
    let said = story.approve("ks/app")?;
    ensure!(said.contains("the deletion of 12 objects"), "{said}");
    ensure!(owned(&story).await?.len() == COUNT, "{:?}", owned(&story).await?);
    windlass.resume().await?;
    story.await_not_held("app").await?;
    let app = story.await_applied("app", &revision).await?;
    ensure!(inventory(&app).len() == 2, "{:?}", inventory(&app));
    ensure!(owned(&story).await? == ["map-000", "map-001"], "{:?}", owned(&story).await?);
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_between_the_approval_of_a_plan_and_the_first_write_it_applies_exactly_that()
-> Result<()> {
    const COUNT: usize = 3;
    let story = Story::begin("killed-plan").await?;
    let mut windlass = WindlassProcess::start_for(&story, &[]).await?;
    let first = config_maps(COUNT, "1");
    let upstream = story.follow("app", &borrowed(&first)).await?;
    story.kustomization("app", "app", json!({})).await?;
    let app = StoryObject::kustomization("app");
    story.await_ready(&app).await?;
    story
        .merge(&app, json!({"metadata": {"annotations": {"windlass.dev/plan": "Approve"}}}))
        .await?;
    let second = config_maps(COUNT, "2");
    let revision = upstream.push(&borrowed(&second)).await?;
    let plan = story.await_pending(&app, &revision).await?;
    windlass.operator.kill()?;
    windlass.resume().await?;
    // The Plan is the same after a restart, and nothing was written.
    let again = story.await_pending(&app, &revision).await?;
    ensure!(again.uid() == plan.uid(), "{:?}", again.spec);
    windlass.operator.kill()?;
    story.approve("ks/app")?;
    story.await_value("map-000", "1").await?;
    windlass.resume().await?;
    story.await_applied("app", &revision).await?;
    story.await_value("map-000", "2").await?;
    story.await_no_plans().await?;
    // An approval counts once, so the way back needs another one.
    let revision = upstream.push(&borrowed(&first)).await?;
    story.await_pending(&app, &revision).await?;
    story.await_value("map-000", "2").await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_between_an_approval_and_its_upgrade_it_deletes_exactly_these() -> Result<()> {
    const COUNT: usize = 12;
    let story = Story::begin("killed-upgrade").await?;
    let mut windlass = WindlassProcess::start_for(&story, &[]).await?;
    let charts = StoryChartRepository::of(&story).await?;
    let files = config_maps(COUNT, "1");
    let maps: Vec<(String, &str)> = files
        .iter()
        .enumerate()
        .map(|(at, (_, text))| (format!("templates/map-{at}.yaml"), text.as_str()))
        .collect();
    let maps: Vec<(&str, &str)> = maps.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    let config = [("templates/a.yaml", CONFIG)];
    charts.publish("1.0.0", &[&config[..], &maps[..]].concat()).await?;
    let app = charts.release("app", json!({})).await?;
    story.await_revision(&app, 1).await?;
    charts.publish("1.1.0", &config).await?;
    story.await_held_release(&app, 12).await?;
    windlass.operator.kill()?;
    let said = story.approve("hr/app")?;
    ensure!(said.contains("the deletion of 12 objects"), "{said}");
    ensure!(story.history("app")?.len() == 1, "{:?}", story.history("app")?);
    story.expect(&StoryObject::config_map("map-000")).await?;
    windlass.resume().await?;
    story.await_revision(&app, 2).await?;
    story.await_free(&app).await?;
    for at in 0..COUNT {
        let map = StoryObject::config_map(&format!("map-{at:03}"));
        story.await_gone(&map, DEFAULT_WAIT_TIMEOUT).await?;
    }
    story.expect(&StoryObject::config_map("app-config")).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_lifecycles_are_asked_it_asks_none_of_them_twice() -> Result<()> {
    let story = Story::begin("lifecycle-killed").await?;
    let mut windlass = WindlassProcess::start_for(&story, &[]).await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let phases = [LifecyclePhase::PreInstall, LifecyclePhase::PostInstall, LifecyclePhase::Promote];
    let check = story.lifecycle("check", &phases.map(LifecyclePhase::as_str), json!({})).await?;
    story.bind(&check, json!({})).await?;
    let app = charts.release("app", json!({})).await?;
    for phase in phases {
        let event = story.await_asked(phase).await?;
        windlass.operator.kill()?;
        windlass.resume().await?;
        // The event is answered while windlass is stopped again.
        let again = story.await_asked(phase).await?;
        ensure!(again.uid() == event.uid(), "{phase} was asked anew");
        windlass.operator.kill()?;
        story.answer(&event, "Succeeded", "").await?;
        windlass.resume().await?;
    }
    story.await_revision(&app, 1).await?;
    story.await_no_events().await?;
    let created = story.creations(&["lifecycleevents", "releaseaudits"])?;
    ensure!(created.len() == 4 && created.values().all(|count| *count == 1), "{created:?}");
    story.end_lifecycles().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_that_was_requested_while_it_was_away_is_done_when_it_is_back() -> Result<()> {
    let story = Story::begin("rollback-away").await?;
    let mut windlass = WindlassProcess::start_for(&story, &[]).await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let app = charts.release("app", json!({"values": {"value": "1"}})).await?;
    story.await_revision(&app, 1).await?;
    charts.release("app", json!({"values": {"value": "2"}})).await?;
    story.await_revision(&app, 2).await?;
    windlass.operator.kill()?;
    let run = |arguments: &[&str]| crate::cli::windlass(&story, arguments);
    let said = run(&["rollback", "hr/app", "--owner", "alice", "--timeout", "3s"])?;
    ensure!(said.code == Some(2) && said.err.contains("requested and not yet done"), "{said:?}");
    let text = run(&["why", "hr/app"])?.ended(1)?;
    let what = "the rollback from revision 2 to 1 is requested and not yet done";
    ensure!(text.contains(what) && !text.contains("it was rolled back"), "{text}");

    windlass.resume().await?;
    let is_done = |object: &DynamicObject| {
        newest(object)["version"] == 3
            && condition(object, "Ready")["reason"] == "RollbackSucceeded"
    };
    story.await_object(&app, DEFAULT_WAIT_TIMEOUT, is_done).await?;
    story.await_value("app-config", "1").await?;
    let text = run(&["why", "hr/app"])?.ended(1)?;
    ensure!(text.contains("it was rolled back") && !text.contains("not yet done"), "{text}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_that_was_ended_while_it_was_away_does_not_end_a_later_suspension() -> Result<()> {
    let story = Story::begin("hold-away").await?;
    let mut windlass = WindlassProcess::start_for(&story, &[]).await?;
    let _upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    story.kustomization("app", "app", json!({})).await?;
    let app = StoryObject::kustomization("app");
    story.await_ready(&app).await?;
    windlass.operator.kill()?;
    let arguments = ["suspend", "ks/app", "--until", "2s", "--owner", "alice"];
    crate::cli::windlass(&story, &arguments)?.ended(0)?;
    // Another program resumes the object, and suspends it again without an end.
    story.merge(&app, json!({"spec": {"suspend": null}})).await?;
    let object = story.merge(&app, json!({"spec": {"suspend": true}})).await?;
    let until =
        object.annotations().get("windlass.dev/suspended-until").context("it has an end")?;
    let until: jiff::Timestamp = until.parse()?;
    let is_past = async || Ok((jiff::Timestamp::now() > until).then_some(()));
    story.await_until("the end of the hold", DEFAULT_WAIT_TIMEOUT, is_past).await?;
    windlass.resume().await?;
    let hold = "windlass.dev/Hold";
    let object = story.await_condition(&app, hold, "True", DEFAULT_WAIT_TIMEOUT).await?;
    let message = condition(&object, hold)["message"].as_str().unwrap_or_default();
    ensure!(message.ends_with("so the suspension does not expire"), "{message}");
    ensure!(object.data["spec"]["suspend"] == true, "{:?}", object.data["spec"]);
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_changes_nothing_and_artifacts_are_served_as_before() -> Result<()> {
    let story = Story::begin("restart").await?;
    let mut windlass = WindlassProcess::start_for(&story, &[]).await?;
    let upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    story.kustomization("app", "app", json!({})).await?;
    let before = story.await_ready(&StoryObject::kustomization("app")).await?;
    let map = story.await_value("a", "1").await?;

    let status = windlass.operator.stop(Duration::from_secs(5))?;
    ensure!(status.success(), "it ended with {status}");
    windlass.resume().await?;
    ensure_fetchable(&story, "app").await?;
    // A request compares all objects, so after it, no further correction is expected.
    let after = story.rerun(&StoryObject::kustomization("app")).await?;
    for field in ["inventory", "conditions", "history", "lastAppliedRevision"] {
        let [old, new] = [&before, &after].map(|object| &object.data["status"][field]);
        ensure!(old == new, "{field} was {old} and is {new}");
    }
    let now = story.await_value("a", "1").await?;
    ensure!(map.resource_version() == now.resource_version(), "an equal object was written");

    // Drift that happened while windlass was stopped is corrected after the start.
    windlass.operator.stop(Duration::from_secs(5))?;
    story.merge(&StoryObject::config_map("a"), json!({"data": {"value": "edited"}})).await?;
    let sha = upstream.repository.commit(&[("b.yaml", &config_map("b", "1"))], "second")?;
    windlass.resume().await?;
    story.await_value("a", "1").await?;
    story.await_applied("app", &revision(&sha)).await?;
    story.await_value("b", "1").await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_in_a_readiness_wait_it_keeps_the_deadline() -> Result<()> {
    let story = Story::begin("killed-waiting").await?;
    let mut windlass = WindlassProcess::start_for(&story, &[]).await?;
    let upstream =
        story.follow("app", &[("web.yaml", deployment("web", PodBehavior::Unready))]).await?;
    story.kustomization("app", "app", json!({"wait": true, "timeout": NEVER})).await?;
    let first = revision(&upstream.repository.hash("main")?);
    let healthy = |object: &DynamicObject| condition(object, "Healthy").clone();
    let since = healthy(&story.await_waiting("app", &first).await?);
    windlass.operator.kill()?;
    windlass.resume().await?;
    let object = story.rerun(&StoryObject::kustomization("app")).await?;
    ensure!(healthy(&object) == since, "waiting since {} and not {since}", healthy(&object));
    let mended = upstream.push(&[("web.yaml", deployment("web", PodBehavior::Ready))]).await?;
    story.await_applied("app", &mended).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn asked_to_stop_in_the_middle_it_ends_soon_and_well() -> Result<()> {
    let story = Story::begin("stopped").await?;
    let mut windlass = WindlassProcess::start_for(&story, &[]).await?;
    let upstream =
        story.follow("slow", &[("web.yaml", deployment("web", PodBehavior::Unready))]).await?;
    story.kustomization("web", "slow", json!({"wait": true, "timeout": NEVER})).await?;
    story.await_waiting("web", "main@sha1:").await?;
    // One object waits for Pods that never become ready, and another for a server that does not answer.
    story
        .git_repository(
            "stalled",
            &upstream.server.slow_url(&upstream.repository),
            json!({"timeout": "60s"}),
        )
        .await?;
    let has_finalizer = |object: &DynamicObject| !object.finalizers().is_empty();
    story
        .await_object(&StoryObject::git_repository("stalled"), DEFAULT_WAIT_TIMEOUT, has_finalizer)
        .await?;
    let status = windlass.operator.stop(Duration::from_secs(5))?;
    ensure!(status.success(), "it ended with {status}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn artifacts_that_were_lost_while_it_was_down_are_fetched_again() -> Result<()> {
    let story = Story::begin("wiped").await?;
    let mut windlass = WindlassProcess::start_for(&story, &[]).await?;
    let upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    windlass.operator.kill()?;
    std::fs::remove_dir_all(windlass.storage())?;
    windlass.resume().await?;
    await_fetchable(&story, "app").await?;
    // A Kustomization that found the artifact missing is reconciled when the artifact is available again.
    let app = StoryObject::kustomization("app");
    let token = story.request(&app).await?;
    let is_well = |object: &DynamicObject| {
        object.data["status"]["lastHandledReconcileAt"] == token
            && condition(object, "Ready")["status"] == "True"
    };
    story.await_object(&app, DEFAULT_WAIT_TIMEOUT, is_well).await?;
    let last = upstream.push(&[("a.yaml", config_map("a", "2"))]).await?;
    story.await_applied("app", &last).await?;
    story.await_value("a", "2").await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storage_that_is_reached_by_another_address_is_reported() -> Result<()> {
    let story = Story::begin("moved").await?;
    let folder = tempfile::tempdir()?;
    let storage = format!("--storage-path={}", folder.path().display());
    let mut first = WindlassProcess::start_for(&story, &[&storage]).await?;
    let _upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    ensure_fetchable(&story, "app").await?;
    first.operator.stop(Duration::from_secs(5))?;
    // The second windlass uses other addresses.
    let _second = WindlassProcess::start_for(&story, &[&storage]).await?;
    await_fetchable(&story, "app").await?;
    story.end().await
}

/// A server that records the bodies of requests, and answers the first request with 503.
async fn events_server(bodies: Arc<Mutex<Vec<Value>>>) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    let refusals = Arc::new(AtomicUsize::new(1));
    let take = async move |Json(body): Json<Value>| {
        if refusals.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
            return StatusCode::SERVICE_UNAVAILABLE;
        }
        bodies.lock().push(body);
        StatusCode::ACCEPTED
    };
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/", post(take))).await });
    Ok(url)
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_posted_to_events_addr_as_fluxs_controllers_post_them() -> Result<()> {
    let story = Story::begin("events-addr").await?;
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let url = events_server(bodies.clone()).await?;
    let _windlass = WindlassProcess::start_for(&story, &[&format!("--events-addr={url}")]).await?;
    let _upstream = story.follow("app", &[("map.yaml", config_map("map", "1"))]).await?;
    story.kustomization("app", "app", json!({})).await?;
    let app = StoryObject::kustomization("app");
    story.await_ready(&app).await?;
    let find = |kind: &str, reason: &str| {
        let all = bodies.lock();
        all.iter()
            .find(|it| it["involvedObject"]["kind"] == kind && it["reason"] == reason)
            .cloned()
    };
    let is_stored = async || Ok(find("GitRepository", "NewArtifact"));
    let stored =
        story.await_until("the event of the artifact", DEFAULT_WAIT_TIMEOUT, is_stored).await?;
    ensure!(stored["reportingController"] == "source-controller", "{stored}");
    let is_done = async || Ok(find("Kustomization", "ReconciliationSucceeded"));
    let done = story.await_until("the event of the run", DEFAULT_WAIT_TIMEOUT, is_done).await?;
    let about = &done["involvedObject"];
    let metadata = &done["metadata"];
    let object = story.expect(&app).await?;
    ensure!(about["uid"] == json!(object.metadata.uid) && about["namespace"] == story.namespace);
    ensure!(about["apiVersion"] == "kustomize.toolkit.fluxcd.io/v1", "{done}");
    ensure!(done["severity"] == "info" && done["reportingController"] == "kustomize-controller");
    let revision = &metadata["kustomize.toolkit.fluxcd.io/revision"];
    ensure!(*revision == object.data["status"]["lastAppliedRevision"], "{done}");
    // The same event is recorded in the cluster.
    let message = done["message"].as_str().unwrap_or_default();
    story.await_event("Kustomization", "app", message).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tags_of_an_image_are_known_after_a_restart_though_its_registry_is_gone() -> Result<()>
{
    let story = Story::begin("restarted-images").await?;
    let mut windlass = WindlassProcess::start_for(&story, &[]).await?;
    let registry = RegistryServer::start().await?;
    registry.push_files("app", "1.0.0", &[("a.yaml", "a: 1\n")], json!({})).await?;
    let image = format!("{}/app", registry.host());
    let group_version = "image.toolkit.fluxcd.io/v1";
    let repository = json!({"apiVersion": group_version, "kind": "ImageRepository",
        "metadata": {"name": "app"}, "spec": {"image": image, "interval": "1h"}});
    story.apply_value(repository).await?;
    story.await_ready(&StoryObject::new(group_version, "ImageRepository", "app")).await?;
    windlass.operator.kill()?;
    drop(registry);

    windlass.resume().await?;
    let policy = json!({"apiVersion": group_version, "kind": "ImagePolicy",
        "metadata": {"name": "app"},
        "spec": {"imageRepositoryRef": {"name": "app"}, "policy": {"semver": {"range": "*"}}}});
    story.apply_value(policy).await?;
    let policy = StoryObject::new(group_version, "ImagePolicy", "app");
    let object = story.await_ready(&policy).await?;
    let latest = &object.data["status"]["latestRef"];
    ensure!(*latest == json!({"name": image, "tag": "1.0.0"}), "{latest}");
    story.end().await
}
