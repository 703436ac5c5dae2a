//! The command that `windlass why` prints fixes the failure. `windlass why` also groups everything that is not ready by cause.
//!
//! In the folder: missing Secrets and ConfigMaps (`secrets`), deleted objects, change windows and retries (`runs`), corrections
//! in Git or in a spec (`corrections`).

mod blocked_and_exhausted_runs;
mod git_and_spec_corrections;
mod secrets;

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use e2e::harness::charts_and_helm_releases::{StoryChartRepository, by_value};
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use e2e::operator_process;
use serde_json::{Value, json};
use testbed::binaries::TestbedBinaries;

use crate::cli::why_causes::await_cause;
use crate::cli::windlass;

/// The advice of `windlass why` for an object.
pub(crate) fn advice(story: &Story, object: &str) -> Result<Value> {
    Ok(windlass(story, &["why", object, "-o", "json"])?.json(1)?["advice"].clone())
}

/// Runs the command that `windlass why` prints for an object, and fills in the values that only the user knows. While another
/// attempt is running, there is no command.
pub(super) async fn mend(story: &Story, object: &str, known: &[(&str, &str)]) -> Result<()> {
    let mut last = Value::Null;
    let what = format!("`why {object}` to print a command");
    let command = story.await_until(&what, DEFAULT_WAIT_TIMEOUT, async || {
        last = windlass(story, &["why", object, "-o", "json"])?.json(1)?;
        Ok(last["advice"]["command"].as_str().map(str::to_owned))
    });
    let command = command.await;
    let mut command = command.with_context(|| format!("{last:#}"))?;
    for (word, meaning) in known {
        command = command.replace(word, meaning);
    }
    let binaries = TestbedBinaries::ensure()?;
    let programs = [binaries.path("kubectl")?.to_path_buf(), operator_process::binary()?];
    let mut path: Vec<_> =
        programs.iter().filter_map(|it| Some(it.parent()?.to_path_buf())).collect();
    path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let output = Command::new("sh")
        .args(["-c", &command])
        .env("KUBECONFIG", story.kubeconfig())
        .env("PATH", std::env::join_paths(path)?)
        .output()?;
    ensure!(output.status.success(), "`{command}`: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_why_prints_mends_the_case() -> Result<()> {
    let story = Story::with_windlass("why-fixes").await?;
    let _upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    let account = json!({"serviceAccountName": "deployer"});
    story.kustomization("account", "app", account).await?;
    let parts = ["ServiceAccount/{ns}/deployer does not exist"];
    await_cause(&story, "ks/account", "Missing", &parts).await?;
    mend(&story, "ks/account", &[]).await?;
    story.await_ready(&StoryObject::kustomization("account")).await?;

    let _rights = story.follow("rights", &[("b.yaml", config_map("b", "1"))]).await?;
    story.apply("{apiVersion: v1, kind: ServiceAccount, metadata: {name: tenant}}").await?;
    story.kustomization("rights", "rights", json!({"serviceAccountName": "tenant"})).await?;
    await_cause(&story, "ks/rights", "Apply", &["configmaps", "is forbidden"]).await?;
    mend(&story, "ks/rights", &[]).await?;
    story.await_ready(&StoryObject::kustomization("rights")).await?;

    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", by_value().as_str())]).await?;
    charts.seen().await?;
    let file = std::env::temp_dir().join(format!("{}.yaml", story.namespace));
    std::fs::write(&file, "value: mended\n")?;
    let path = file.display().to_string();
    for (name, from, parts, known) in [
        (
            "absent",
            json!([{"kind": "Secret", "name": "absent"}]),
            ["Secret/{ns}/absent does not exist"],
            ("PATH", path.as_str()),
        ),
        (
            "keyless",
            json!([{"kind": "ConfigMap", "name": "keyless", "valuesKey": "prod.yaml"}]),
            ["ConfigMap/{ns}/keyless has no key `prod.yaml`"],
            ("VALUE", "value: mended"),
        ),
    ] {
        if name == "keyless" {
            story.apply(&config_map(name, "x")).await?;
        }
        let values = json!({"valuesFrom": from, "values": {"name": name}});
        let release = charts.release(name, values).await?;
        await_cause(&story, &format!("hr/{name}"), "Missing", &parts).await?;
        mend(&story, &format!("hr/{name}"), &[known]).await?;
        story.await_ready(&release).await?;
    }
    std::fs::remove_file(&file)?;
    windlass(&story, &["suspend", "ks/account"])?.ended(0)?;
    mend(&story, "ks/account", &[]).await?;
    story.await_ready(&StoryObject::kustomization("account")).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_is_not_ready_is_grouped_by_its_cause() -> Result<()> {
    let story = Story::with_windlass("why-all").await?;
    let said = windlass(&story, &["why"])?;
    ensure!(said.code == Some(0) && said.out.contains("there are no such objects"), "{said:?}");
    for name in ["one", "two", "three"] {
        story.kustomization(name, "missing", json!({})).await?;
    }
    let provider = json!({"apiVersion": "notification.toolkit.fluxcd.io/v1beta3", "kind": "Provider",
        "metadata": {"name": "slack"}, "spec": {"type": "slack", "secretRef": {"name": "hook"}}});
    story.apply_value(provider).await?;
    story
        .await_until("both causes", DEFAULT_WAIT_TIMEOUT, async || {
            let why = windlass(&story, &["why", "all", "-o", "json"])?.json(1)?;
            let causes = why["causes"].as_array().cloned().unwrap_or_default();
            let counts: Vec<usize> =
                causes.iter().map(|it| it["objects"].as_array().map_or(0, Vec::len)).collect();
            Ok((counts == [3, 1] && why["notReady"] == 4).then_some(()))
        })
        .await?;
    let said = windlass(&story, &["why"])?;
    ensure!(
        said.code == Some(1)
            && said.out.contains("4 of 4 objects")
            && said.out.contains("causes: 2"),
        "{said:?}"
    );
    story.end().await
}
