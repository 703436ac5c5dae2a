//! Other programs answer LifecycleEvents: a controller, and a shell script with kubectl. They have only the rights that the
//! documentation names.

use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use crds::operation_lifecycle::{LifecycleEventSpec, LifecyclePhase};
use e2e::harness::Story;
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository};
use e2e::harness::release_audits::await_audits;
use e2e::lifecycle_handler::{LifecycleHandlerFinding, handle};
use serde_json::json;
use testbed::binaries::TestbedBinaries;

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_and_a_shell_script_answer_for_their_lifecycles() -> Result<()> {
    let story = Story::with_windlass("handlers").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let checked = story.lifecycle("checked", &["PreInstall", "PreUpgrade"], json!({})).await?;
    story.bind(&checked, json!({"parameters": {"least": "1.0.0"}})).await?;
    let scripted = story.lifecycle("scripted", &["PostInstall"], json!({})).await?;
    story.bind(&scripted, json!({"parameters": {"rate": "200"}})).await?;
    let find = async |asked: &LifecycleEventSpec| {
        let version = asked.to.as_ref().and_then(|it| it.chart_version.clone());
        let version = version.context("an upgrade has a version")?;
        let is_good = version != "1.1.0";
        Ok(LifecycleHandlerFinding { is_good, message: format!("version {version} was checked") })
    };
    tokio::select! {
        ended = handle(story.client.clone(), &story.namespace, "checked", find) => {
            bail!("the controller ended: {ended:?}");
        }
        release_result = releases(&story, &charts) => release_result?,
    }
    story.end_lifecycles().await
}

/// Makes an installation that both programs allow, and an upgrade that the controller does not allow.
async fn releases(story: &Story, charts: &StoryChartRepository<'_>) -> Result<()> {
    let app = charts.release("app", json!({})).await?;
    story.await_asked(LifecyclePhase::PostInstall).await?;
    let kubectl = TestbedBinaries::ensure()?.path("kubectl")?.to_owned();
    let folder = kubectl.parent().context("kubectl has no folder")?;
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/testbed/lifecycle-handler.sh");
    let output = Command::new(script)
        .args([&story.namespace, "scripted", "grep -q '\"rate\":\"200\"' && echo 'load is fine'"])
        .env("PATH", path)
        .env("KUBECONFIG", story.kubeconfig())
        .output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    story.await_revision(&app, 1).await?;
    let install = await_audits(story, 1).await?.remove(0).spec;
    let messages: Vec<&str> =
        install.lifecycles.iter().filter_map(|it| it.message.as_deref()).collect();
    ensure!(messages == ["version 1.0.0 was checked", "load is fine"], "{messages:?}");
    charts.publish("1.1.0", &[("templates/a.yaml", CONFIG)]).await?;
    let text = story.await_message(&app, "version 1.1.0 was checked").await?;
    ensure!(text.starts_with("LifecycleFailed"), "{text}");
    Ok(())
}
