//! Releases, objects and records that others made. windlass takes them over, leaves them to their owners, or corrects them.

use anyhow::{Result, ensure};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository, hook, newest};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, NEVER, condition};
use e2e::harness::manifests::{PodBehavior, config_map};
use e2e::harness::{Story, StoryObject};
use serde_json::json;

fn record(revision: i64) -> StoryObject {
    StoryObject::new("v1", "Secret", &format!("sh.helm.release.v1.app.v{revision}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_that_claim_one_release_the_second_says_whose_it_is() -> Result<()> {
    let story = Story::with_windlass("release-claims").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let app = charts.release("app", json!({})).await?;
    story.await_revision(&app, 1).await?;
    let other =
        charts.release("other", json!({"releaseName": "app", "values": {"value": "x"}})).await?;
    let text = story.await_failure(&other, "StateError").await?;
    ensure!(text.contains(&format!("belongs to HelmRelease {}/app", story.namespace)), "{text}");
    ensure!(story.history("app")?.len() == 1, "the second one did something");
    // Deleting the HelmRelease does not delete the object either.
    story.delete(&other).await?;
    story.await_gone(&other, DEFAULT_WAIT_TIMEOUT).await?;
    story.expect(&StoryObject::config_map("app-config")).await?;
    ensure!(story.history("app")?.len() == 1);
    // After the first one is deleted, the next one is the only owner.
    let other =
        charts.release("other", json!({"releaseName": "app", "values": {"value": "x"}})).await?;
    story.await_failure(&other, "StateError").await?;
    story.delete(&app).await?;
    story.await_gone(&app, DEFAULT_WAIT_TIMEOUT).await?;
    story.await_revision(&other, 1).await?;
    let config = story.expect(&StoryObject::config_map("app-config")).await?;
    ensure!(config.data["data"]["value"] == "x", "{:?}", config.data);
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_that_one_commit_creates_one_installs_the_release_and_the_other_says_whose_it_is()
-> Result<()> {
    let story = Story::with_windlass("release-claims-at-once").await?;
    let charts = StoryChartRepository::of(&story).await?;
    // During the first installation, the status has no history yet.
    let slow = hook("slow", "pre-install", 0, "", PodBehavior::Unready);
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG), ("templates/h.yaml", &slow)]).await?;
    let manifest = |name: &str| {
        let chart = json!({"spec": {"chart": "app", "version": "*",
            "sourceRef": {"kind": "HelmRepository", "name": "charts"}}});
        let object = json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "metadata": {"name": name},
            "spec": {"interval": NEVER, "releaseName": "app", "chart": chart}});
        object.to_string()
    };
    let files = [("one.yaml", manifest("one")), ("two.yaml", manifest("two"))];
    let _upstream = story.follow("claims", &files).await?;
    story.kustomization("claims", "claims", json!({})).await?;
    let refused = story
        .await_until("one of both to be refused", DEFAULT_WAIT_TIMEOUT, async || {
            for name in ["one", "two"] {
                let object = story.read(&StoryObject::helm_release(name)).await?;
                if object.is_some_and(|it| condition(&it, "Ready")["reason"] == "StateError") {
                    return Ok(Some(name));
                }
            }
            Ok(None)
        })
        .await?;
    let owner = if refused == "one" { "two" } else { "one" };
    let job = StoryObject::new("batch/v1", "Job", "slow");
    story.let_complete("slow").await?;
    let begun = story.expect(&job).await?.metadata.uid;
    story.await_revision(&StoryObject::helm_release(owner), 1).await?;
    let refused = StoryObject::helm_release(refused);
    story.request(&refused).await?;
    let text = story.await_failure(&refused, "StateError").await?;
    let belongs = format!("belongs to HelmRelease {}/{owner}", story.namespace);
    ensure!(text.contains(&belongs), "{text}");
    let history = story.history("app")?;
    ensure!(history == ["1 | deployed | app-1.0.0 | Install complete"], "{history:?}");
    ensure!(story.expect(&job).await?.metadata.uid == begun, "the hook ran twice");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_others_are_taken_over_unless_the_spec_forbids_it() -> Result<()> {
    let story = Story::with_windlass("release-take-over").await?;
    let charts = StoryChartRepository::of(&story).await?;
    story.apply(&config_map("app-config", "theirs")).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let app = charts.release("app", json!({"install": {"disableTakeOwnership": true}})).await?;
    let text = story.await_failure(&app, "InstallFailed").await?;
    let refusal = format!(
        "Unable to continue with install: ConfigMap \"app-config\" in namespace \"{}\" exists and cannot be imported \
         into the current release: invalid ownership metadata; label validation error: missing key \
         \"app.kubernetes.io/managed-by\": must be set to \"Helm\"",
        story.namespace
    );
    ensure!(text.contains(&refusal), "{text}");
    let config = StoryObject::config_map("app-config");
    ensure!(story.expect(&config).await?.data["data"]["value"] == "theirs");
    ensure!(story.read(&record(1)).await?.is_none(), "there is a record of what was not begun");
    story.merge(&app, json!({"spec": {"install": null}})).await?;
    story.await_revision(&app, 1).await?;
    let live = story.expect(&config).await?;
    ensure!(live.data["data"]["value"] == "none", "{:?}", live.data);
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_of_the_stock_helm_is_adopted_and_what_helm_does_by_hand_is_put_right()
-> Result<()> {
    let story = Story::with_windlass("release-by-hand").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let chart = format!("{}/app-1.0.0.tgz", charts.server.url());
    story.helm_says(&["install", "app", &chart, "--set", "value=theirs"])?;
    let config = StoryObject::config_map("app-config");
    let before = story.expect(&config).await?.metadata.uid;
    let app = charts.release("app", json!({"values": {"value": "ours"}})).await?;
    story.await_revision(&app, 2).await?;
    let live = story.expect(&config).await?;
    ensure!(live.data["data"]["value"] == "ours" && live.metadata.uid == before, "{:?}", live.data);
    ensure!(
        story.history("app")?
            == [
                "1 | superseded | app-1.0.0 | Install complete",
                "2 | deployed | app-1.0.0 | Upgrade complete",
            ]
    );

    story.helm_says(&["rollback", "app", "1", "--force-conflicts"])?;
    ensure!(story.expect(&config).await?.data["data"]["value"] == "theirs");
    story.request(&app).await?;
    story.await_revision(&app, 4).await?;
    ensure!(story.expect(&config).await?.data["data"]["value"] == "ours");

    story.helm_says(&["uninstall", "app"])?;
    ensure!(story.read(&config).await?.is_none());
    story.request(&app).await?;
    story.await_revision(&app, 1).await?;
    ensure!(story.expect(&config).await?.data["data"]["value"] == "ours");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_another_client_left_pending_is_unlocked() -> Result<()> {
    let story = Story::with_windlass("release-pending").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let slow = hook("slow", "pre-install", 0, "", PodBehavior::Unready);
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG), ("templates/h.yaml", &slow)]).await?;
    let chart = format!("{}/app-1.0.0.tgz", charts.server.url());
    let job = StoryObject::new("batch/v1", "Job", "slow");
    story
        .helm_killed(&["install", "app", &chart], async || Ok(story.read(&job).await?.is_some()))
        .await?;
    ensure!(story.history("app")?[0].starts_with("1 | pending-install"));
    charts.publish("1.1.0", &[("templates/a.yaml", CONFIG)]).await?;
    charts.seen().await?;
    let app = charts.release("app", json!({})).await?;
    story.await_revision(&app, 2).await?;
    story.await_event("HelmRelease", "app", "in pending-install state").await?;
    let history = story.history("app")?;
    let unlocked =
        "1 | superseded | app-1.0.0 | Release unlocked from stale 'pending-install' state";
    ensure!(history[0] == unlocked, "{history:?}");
    ensure!(history[1].starts_with("2 | deployed | app-1.1.0"), "{history:?}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_cannot_be_read_is_named_and_nothing_is_done_until_it_can() -> Result<()> {
    let story = Story::with_windlass("release-corrupt").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let app = charts.release("app", json!({})).await?;
    story.await_revision(&app, 1).await?;
    let data = story.expect(&record(1)).await?.data["data"]["release"].clone();
    for broken in ["aGVsbG8=", ""] {
        story.merge(&record(1), json!({"data": {"release": broken}})).await?;
        story.request(&app).await?;
        let text = story.await_failure(&app, "StateError").await?;
        let secret = format!("Secret {}/sh.helm.release.v1.app.v1", story.namespace);
        ensure!(text.contains(&secret) && text.contains("restore the Secret"), "{text}");
        story.merge(&app, json!({"spec": {"values": {"value": format!("x{broken}")}}})).await?;
        story.await_failure(&app, "StateError").await?;
        story.expect(&record(1)).await?;
        let live = story.expect(&StoryObject::config_map("app-config")).await?;
        ensure!(live.data["data"]["value"] == "none", "{:?}", live.data);
    }
    story.merge(&record(1), json!({"data": {"release": data}})).await?;
    story.request(&app).await?;
    let object = story.await_revision(&app, 2).await?;
    ensure!(newest(&object)["status"] == "deployed", "{}", newest(&object));
    ensure!(condition(&object, "Stalled").is_null(), "{:?}", object.data);
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_whose_names_make_one_helm_chart_the_second_says_whose_it_is() -> Result<()> {
    let story = Story::with_windlass("release-one-chart").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    // The names are `NAMESPACE/b-app` and `NAMESPACE-b/app`.
    let first = charts.release("b-app", json!({})).await?;
    story.await_revision(&first, 1).await?;
    let other = format!("{}-b", story.namespace);
    let namespace = StoryObject::new("v1", "Namespace", &other);
    story
        .apply_value(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}}))
        .await?;
    let source = json!({"kind": "HelmRepository", "name": "charts", "namespace": story.namespace});
    let spec = json!({"interval": "10m", "chart": {"spec": {"chart": "app", "sourceRef": source}}});
    story
        .apply_value(json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "metadata": {"name": "app", "namespace": other}, "spec": spec}))
        .await?;
    let second = StoryObject::helm_release("app").in_namespace(&other);
    let text = story.await_failure(&second, "ArtifactFailed").await?;
    ensure!(
        text.contains(&format!("belongs to HelmRelease '{}/b-app'", story.namespace)),
        "{text}"
    );
    let chart = StoryObject::helm_chart(&format!("{}-b-app", story.namespace));
    let labels = story.expect(&chart).await?.metadata.labels.unwrap_or_default();
    ensure!(
        labels.get("helm.toolkit.fluxcd.io/name").is_some_and(|it| it == "b-app"),
        "{labels:?}"
    );
    // The first release keeps working. After it is deleted, the second gets a chart.
    charts.publish("1.1.0", &[("templates/a.yaml", CONFIG)]).await?;
    story.await_revision(&first, 2).await?;
    story.delete(&first).await?;
    story.await_gone(&first, DEFAULT_WAIT_TIMEOUT).await?;
    story.await_revision(&second, 1).await?;
    story.expect(&chart).await?;
    story.delete(&second).await?;
    story.await_gone(&second, DEFAULT_WAIT_TIMEOUT).await?;
    story.await_gone(&chart, DEFAULT_WAIT_TIMEOUT).await?;
    story.delete(&namespace).await?;
    story.end().await
}
