//! A Kustomization is Ready when its applied objects are healthy. Otherwise, it names the unhealthy ones.

use anyhow::{Result, ensure};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition, revision};
use e2e::harness::manifests::{
    PodBehavior, UNBOUND_CLAIM, config_map, job, widget, widget_crd, workload,
};
use e2e::harness::{Story, StoryObject};
use kube::api::DynamicObject;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn it_waits_for_everything_that_it_applied() -> Result<()> {
    let story = Story::with_windlass("wait-all").await?;
    let group = format!("{}.test", story.namespace);
    let files = [
        ("claim.yaml", UNBOUND_CLAIM.to_owned()),
        ("daemon-set.yaml", workload("DaemonSet", "daemon", PodBehavior::Ready)),
        ("definition.yaml", widget_crd(&group)),
        ("deployment.yaml", workload("Deployment", "web", PodBehavior::Ready)),
        ("job.yaml", job("work", PodBehavior::Ready)),
        ("settings.yaml", config_map("settings", "1")),
        ("stateful-set.yaml", workload("StatefulSet", "store", PodBehavior::Ready)),
        ("widget.yaml", widget(&group, "wheel")),
    ];
    let upstream = story.follow("app", &files).await?;
    story.kustomization("app", "app", json!({"wait": true, "timeout": "10m"})).await?;
    let first = revision(&upstream.repository.hash("main")?);
    let waiting = story.await_waiting("app", &first).await?;
    ensure!(condition(&waiting, "Reconciling")["status"] == "True", "{:?}", waiting.data);
    ensure!(condition(&waiting, "Healthy")["status"] == "Unknown", "{:?}", waiting.data);
    story
        .await_condition(
            &StoryObject::new("batch/v1", "Job", "work"),
            "Complete",
            "True",
            DEFAULT_WAIT_TIMEOUT,
        )
        .await?;
    let app = StoryObject::kustomization("app");
    let waiting = story.expect(&app).await?;
    ensure!(condition(&waiting, "Ready")["status"] == "Unknown", "nothing has bound the claim yet");

    let volume = StoryObject::new("v1", "PersistentVolume", &story.namespace);
    let claim = json!({"namespace": story.namespace, "name": "claim"});
    let spec = json!({
        "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "",
        "claimRef": claim, "hostPath": {"path": "/nowhere"},
    });
    let metadata = json!({"name": story.namespace});
    let object =
        json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec});
    story.apply_value(object).await?;
    let applied = story.await_applied("app", &first).await?;
    let healthy = condition(&applied, "Healthy");
    ensure!(healthy["status"] == "True", "{healthy}");
    let message = healthy["message"].as_str().unwrap_or_default();
    ensure!(message.starts_with("Health check passed in "), "{message}");
    story.await_event("Kustomization", "app", "Progressing: Health check passed in ").await?;
    story.delete(&volume).await?;
    story.end().await
}

/// kstatus does not know the conditions of AWS controllers, and treats each of these objects as Current.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_whose_status_only_the_health_library_knows_is_waited_for() -> Result<()> {
    let story = Story::with_windlass("health-library").await?;
    let group = format!("{}.services.k8s.aws", story.namespace);
    let crd = StoryObject::new(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        &format!("widgets.{group}"),
    );
    story.apply(&widget_crd(&group)).await?;
    story.await_condition(&crd, "Established", "True", DEFAULT_WAIT_TIMEOUT).await?;
    let wheel = StoryObject::new(&format!("{group}/v1"), "Widget", "wheel");
    let says = |kind: &str, message: &str| {
        let condition = json!({"type": kind, "status": "True", "message": message});
        json!({"status": {"conditions": [condition]}})
    };
    story.apply(&widget(&group, "wheel")).await?;
    story.merge_status(&wheel, says("ACK.Recoverable", "no permission")).await?;

    // No controller writes into the other object, so windlass does not wait for it.
    let files = [("a.yaml", widget(&group, "wheel")), ("b.yaml", widget(&group, "spare"))];
    let upstream = story.follow("app", &files).await?;
    story.kustomization("app", "app", json!({"wait": true, "timeout": "10m"})).await?;
    let first = revision(&upstream.repository.hash("main")?);
    // The controller of the object tries again, so this is no failure.
    story.await_waiting("app", &first).await?;

    story.merge_status(&wheel, says("ACK.Terminal", "the name is taken")).await?;
    let app = StoryObject::kustomization("app");
    let message = story.await_failure(&app, "HealthCheckFailed").await?;
    ensure!(message.contains("Widget/") && message.contains("the name is taken"), "{message}");
    ensure!(!message.contains("spare"), "{message}");
    story.merge_status(&wheel, says("ACK.ResourceSynced", "")).await?;
    story.await_applied("app", &first).await?;
    story.delete(&crd).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn it_waits_for_the_objects_of_the_spec_even_if_others_made_them() -> Result<()> {
    let story = Story::with_windlass("wait-named").await?;
    let group = format!("{}.test", story.namespace);
    let crd = StoryObject::new(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        &format!("widgets.{group}"),
    );
    story.apply(&widget_crd(&group)).await?;
    story.await_condition(&crd, "Established", "True", DEFAULT_WAIT_TIMEOUT).await?;
    let ready = |status: &str| json!({"status": {"conditions": [{"type": "Ready", "status": status, "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    story.apply(&widget(&group, "wheel")).await?;
    let api_version = format!("{group}/v1");
    let wheel = StoryObject::new(&api_version, "Widget", "wheel");
    story.merge_status(&wheel, ready("False")).await?;

    let files = [("web.yaml", workload("Deployment", "web", PodBehavior::Unready))];
    let upstream = story.follow("app", &files).await?;
    let checks = json!([{"apiVersion": api_version, "kind": "Widget", "name": "wheel", "namespace": story.namespace}]);
    story.kustomization("app", "app", json!({"healthChecks": checks, "timeout": "10m"})).await?;
    let first = revision(&upstream.repository.hash("main")?);
    story.await_waiting("app", &first).await?;
    // The Deployment is not in the list of health checks, so the Kustomization does not wait for it.
    story.merge_status(&wheel, ready("True")).await?;
    story.await_applied("app", &first).await?;
    story.delete(&crd).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_become_healthy_in_time_is_named() -> Result<()> {
    let story = Story::with_windlass("unhealthy").await?;
    let _upstream = story
        .follow("app", &[("a.yaml", workload("DaemonSet", "slow", PodBehavior::Unready))])
        .await?;
    // A shorter timeout is impossible, because Flux replaces shorter ones with 30 seconds.
    story.kustomization("app", "app", json!({"wait": true, "timeout": "30s"})).await?;
    let app = StoryObject::kustomization("app");
    story.await_waiting("app", "main@sha1:").await?;
    let gives_up = |object: &DynamicObject| condition(object, "Healthy")["status"] == "False";
    let object = story.await_object(&app, DEFAULT_WAIT_TIMEOUT * 2, gives_up).await?;
    let ready = condition(&object, "Ready");
    ensure!(ready["reason"] == "HealthCheckFailed" && ready["status"] == "False", "{ready}");
    let subject = format!("DaemonSet/{}/slow", story.namespace);
    ensure!(ready["message"].as_str().is_some_and(|it| it.contains(&subject)), "{ready}");
    story.await_event("Kustomization", "app", &subject).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_loop_ends_the_wait_early_and_is_named() -> Result<()> {
    let story = Story::with_windlass("crash-loop").await?;
    let text = workload("StatefulSet", "store", PodBehavior::CrashLoop);
    let _upstream = story.follow("app", &[("a.yaml", text)]).await?;
    story.kustomization("app", "app", json!({"wait": true, "timeout": "10m"})).await?;
    let message =
        story.await_failure(&StoryObject::kustomization("app"), "HealthCheckFailed").await?;
    ensure!(message.contains(&format!("StatefulSet/{}/store", story.namespace)), "{message}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_job_ends_the_wait_early_and_a_fixed_one_recovers() -> Result<()> {
    let story = Story::with_windlass("failed-job").await?;
    let upstream = story.follow("app", &[("job.yaml", job("work", PodBehavior::Fail))]).await?;
    let more = json!({"wait": true, "timeout": "10m", "force": true});
    story.kustomization("app", "app", more).await?;
    let message =
        story.await_failure(&StoryObject::kustomization("app"), "HealthCheckFailed").await?;
    ensure!(message.contains(&format!("Job/{}/work", story.namespace)), "{message}");

    let fixed = upstream.push(&[("job.yaml", job("work", PodBehavior::Ready))]).await?;
    story.await_applied("app", &fixed).await?;
    story.end().await
}

/// How often a Kustomization was reconciled.
async fn reconciliations(story: &Story, name: &str) -> Result<u64> {
    let text = story.windlass().await?.metrics().await?;
    let of = [format!("name=\"{name}\""), format!("namespace=\"{}\"", story.namespace)];
    let is_it = |line: &&str| {
        line.starts_with("gotk_reconcile_duration_seconds_count")
            && line.contains("kind=\"Kustomization\"")
            && of.iter().all(|label| line.contains(label))
    };
    let line = text.lines().find(is_it).unwrap_or_default();
    Ok(line.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or_default())
}

/// Changes an object whose health windlass awaits, and waits until the Kustomization was reconciled after that.
async fn seen(story: &Story, operation: impl Future<Output = Result<DynamicObject>>) -> Result<()> {
    let before = reconciliations(story, "app").await?;
    operation.await?;
    story
        .await_until("a run", DEFAULT_WAIT_TIMEOUT, async || {
            Ok((reconciliations(story, "app").await? > before).then_some(()))
        })
        .await
}

/// A story with a CRD of Widgets, and Widgets that windlass did not apply and that are not ready.
async fn widgets(name: &str, names: &[&str]) -> Result<(Story, StoryObject, Vec<StoryObject>)> {
    let story = Story::with_windlass(name).await?;
    let group = format!("{}.test", story.namespace);
    let crd = format!("widgets.{group}");
    let crd = StoryObject::new("apiextensions.k8s.io/v1", "CustomResourceDefinition", &crd);
    story.apply(&widget_crd(&group)).await?;
    story.await_condition(&crd, "Established", "True", DEFAULT_WAIT_TIMEOUT).await?;
    let mut targets = Vec::new();
    for name in names {
        story.apply(&widget(&group, name)).await?;
        let target = StoryObject::new(&format!("{group}/v1"), "Widget", name);
        story.merge_status(&target, ready("False")).await?;
        targets.push(target);
    }
    Ok((story, crd, targets))
}

fn ready(status: &str) -> serde_json::Value {
    let ready = json!({"type": "Ready", "status": status, "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    json!({"status": {"conditions": [ready]}})
}

#[tokio::test(flavor = "multi_thread")]
async fn what_falls_ill_while_others_are_awaited_is_waited_for_again() -> Result<()> {
    let (story, crd, all) = widgets("relapse", &["early", "late"]).await?;
    let [early, late] = &all[..] else { anyhow::bail!("two were made") };
    let group = format!("{}.test", story.namespace);
    let files = [("a.yaml", widget(&group, "early")), ("b.yaml", widget(&group, "late"))];
    let upstream = story.follow("app", &files).await?;
    story.kustomization("app", "app", json!({"wait": true, "timeout": "10m"})).await?;
    let first = revision(&upstream.repository.hash("main")?);
    let app = StoryObject::kustomization("app");
    story.await_waiting("app", &first).await?;
    seen(&story, story.merge_status(early, ready("True"))).await?;
    // An earlier reconciliation may have been counted, so another one is requested.
    seen(&story, story.merge_status(late, json!({"status": {"round": 2}}))).await?;
    story.merge_status(early, ready("False")).await?;
    seen(&story, story.merge_status(late, ready("True"))).await?;
    seen(&story, story.merge_status(early, json!({"status": {"round": 2}}))).await?;
    let object = story.expect(&app).await?;
    ensure!(condition(&object, "Ready")["status"] == "Unknown", "{:?}", object.data["status"]);
    story.merge_status(early, ready("True")).await?;
    story.await_applied("app", &first).await?;
    story.delete(&crd).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_failed_stays_failed_while_its_objects_move() -> Result<()> {
    let (story, crd, all) = widgets("fails", &["wheel"]).await?;
    let group = format!("{}.test", story.namespace);
    let upstream = story.follow("app", &[("a.yaml", widget(&group, "wheel"))]).await?;
    story.kustomization("app", "app", json!({"wait": true, "timeout": "10m"})).await?;
    let first = revision(&upstream.repository.hash("main")?);
    story.await_waiting("app", &first).await?;
    let stalled = json!({"type": "Stalled", "status": "True", "reason": "R", "message": "broken", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    story.merge_status(&all[0], json!({"status": {"conditions": [stalled]}})).await?;
    let app = StoryObject::kustomization("app");
    story.await_failure(&app, "HealthCheckFailed").await?;
    let failed = story.expect(&app).await?;
    for round in 0..3 {
        // Each update makes a real change, because an update without a change reaches no watch.
        let mut unready = ready("False");
        unready["status"]["conditions"][0]["message"] = format!("round {round}").into();
        seen(&story, story.merge_status(&all[0], unready)).await?;
        let still = story.expect(&app).await?;
        let status = &still.data["status"];
        ensure!(condition(&still, "Ready") == condition(&failed, "Ready"), "{status:?}");
        let touched = json!({"status": {"round": round}});
        seen(&story, story.merge_status(&all[0], touched)).await?;
    }
    let still = story.expect(&app).await?;
    ensure!(still.metadata.resource_version == failed.metadata.resource_version, "it was written");
    story.merge_status(&all[0], ready("True")).await?;
    story.await_applied("app", &first).await?;
    story.delete(&crd).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_others_are_asked_about_at_the_interval() -> Result<()> {
    let (story, crd, all) = widgets("others", &["wheel"]).await?;
    let group = format!("{}.test", story.namespace);
    story.merge_status(&all[0], ready("True")).await?;
    let upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    let checks = json!([{"apiVersion": format!("{group}/v1"), "kind": "Widget", "name": "wheel", "namespace": story.namespace}]);
    let more = json!({"healthChecks": checks, "timeout": "10m", "interval": "2s"});
    story.kustomization("app", "app", more).await?;
    let first = revision(&upstream.repository.hash("main")?);
    story.await_applied("app", &first).await?;
    story.merge_status(&all[0], ready("False")).await?;
    story.await_waiting("app", &first).await?;
    story.merge_status(&all[0], ready("True")).await?;
    story.await_applied("app", &first).await?;
    story.delete(&crd).await?;
    story.end().await
}
