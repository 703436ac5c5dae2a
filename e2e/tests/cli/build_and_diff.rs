//! `build`, `diff` and `resume --plan` for objects of the cluster, with the artifacts of their sources.

use anyhow::{Result, ensure};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository};
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject, await_until};
use kube::api::DynamicObject;
use serde_json::json;

use crate::cli::windlass;

const SECRET: &str = "{apiVersion: v1, kind: Secret, metadata: {name: hidden}, stringData: {password: hunter2-and-more}}\n";

async fn await_artifact(story: &Story, source: &StoryObject, revision: &str) -> Result<()> {
    let is_new = |object: &DynamicObject| object.data["status"]["artifact"]["revision"] == revision;
    story.await_object(source, DEFAULT_WAIT_TIMEOUT, is_new).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kustomization_is_built_and_resumed_with_a_plan() -> Result<()> {
    let story = Story::with_windlass("built").await?;
    let variables =
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: variables}, data: {which: one}}";
    story.apply(variables).await?;
    let files = [("a.yaml", config_map("a", "${which}")), ("secret.yaml", SECRET.to_owned())];
    let upstream = story.follow("app", &files).await?;
    let from = json!({"substituteFrom": [{"kind": "ConfigMap", "name": "variables"}]});
    story.kustomization("app", "app", json!({"postBuild": from})).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;

    let built = windlass(&story, &["build", "ks/app"])?.ended(0)?;
    ensure!(built.contains("value: one") && built.contains("password: '****'"), "{built}");
    ensure!(!built.contains("hunter2") && built.matches("---\n").count() == 1, "{built}");
    let missing = windlass(&story, &["build", "ks/ap"])?;
    ensure!(missing.code == Some(2) && missing.err.contains("did you mean `app`"), "{missing:?}");
    let said = windlass(&story, &["diff", "ks/app"])?.ended(0)?;
    ensure!(said == "2 unchanged\n", "{said}");

    windlass(&story, &["suspend", "ks/app"])?.ended(0)?;
    let second = upstream.push(&[("a.yaml", config_map("a", "${which} and two"))]).await?;
    await_artifact(&story, &StoryObject::git_repository("app"), &second).await?;
    let field = "/data/value: \"one\" -> \"one and two\"";
    let plan = windlass(&story, &["resume", "ks/app", "--plan"])?;
    ensure!(plan.code == Some(1) && plan.out.contains(field), "{plan:?}");
    ensure!(plan.err.contains("nothing was resumed"), "{plan:?}");
    let object = story.expect(&StoryObject::kustomization("app")).await?;
    ensure!(object.data["spec"]["suspend"] == true, "{object:?}");
    story.await_value("a", "one").await?;
    let said = windlass(&story, &["resume", "ks/app", "--plan", "--silent", "--wait"])?;
    ensure!(said.code == Some(0) && said.out.contains(field), "{said:?}");
    story.await_value("a", "one and two").await?;
    let wrong = windlass(&story, &["resume", "ks/app", "--silent"])?;
    ensure!(wrong.code == Some(2) && wrong.err.contains("--plan"), "{wrong:?}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_rendered_and_resumed_with_a_plan() -> Result<()> {
    let story = Story::with_windlass("built-release").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let hook = "
apiVersion: v1
kind: ConfigMap
metadata: {name: before, annotations: {helm.sh/hook: pre-upgrade}}
";
    let hidden = CONFIG.replace("-config", "-hidden");
    let files = [("templates/a.yaml", CONFIG), ("templates/hook.yaml", hook)];
    charts.publish("1.0.0", &files).await?;
    charts.seen().await?;
    let values = "{apiVersion: v1, kind: Secret, metadata: {name: values}, stringData: {values.yaml: 'value: hunter2-and-more'}}";
    story.apply(values).await?;
    let from = json!([{"kind": "Secret", "name": "values"}]);
    let app = charts.release("app", json!({"valuesFrom": from})).await?;
    story.await_revision(&app, 1).await?;
    let built = windlass(&story, &["build", "hr", "app"])?.ended(0)?;
    for part in ["name: app-config", "chart: 1.0.0", "helm.sh/hook: pre-upgrade", "value: '****'"] {
        ensure!(built.contains(part), "{part}: {built}");
    }
    ensure!(!built.contains("hunter2"), "{built}");

    windlass(&story, &["suspend", "hr/app"])?.ended(0)?;
    let next = [&files[..], &[("templates/b.yaml", hidden.as_str())]].concat();
    charts.publish("1.1.0", &next).await?;
    let chart = StoryObject::helm_chart(&format!("{}-app", story.namespace));
    await_artifact(&story, &chart, "1.1.0").await?;
    let plan = windlass(&story, &["resume", "hr/app", "--plan"])?;
    ensure!(plan.code == Some(1) && plan.out.contains("created ConfigMap"), "{plan:?}");
    ensure!(plan.out.contains("/data/chart: \"1.0.0\" -> \"1.1.0\""), "{plan:?}");
    let newest = story.expect(&app).await?;
    ensure!(newest.data["status"]["history"][0]["version"] == 1, "{newest:?}");
    windlass(&story, &["resume", "hr/app", "--plan", "--silent", "--wait"])?.ended(0)?;
    story.await_revision(&app, 2).await?;
    let said = windlass(&story, &["diff", "hr/app"])?.ended(0)?;
    ensure!(said == "2 unchanged\n", "{said}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shell_completes_names_of_the_cluster() -> Result<()> {
    let story = Story::begin("completes").await?;
    story.apply(&config_map("blue", "1")).await?;
    story.apply(&config_map("green", "1")).await?;
    let offered = |words: &[&str]| -> Result<String> {
        let output = std::process::Command::new(e2e::operator_process::binary()?)
            .env("WINDLASS_COMPLETE", "fish")
            .args([&["--", "windlass"], words].concat())
            .output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let kubeconfig = format!("--kubeconfig={}", story.kubeconfig().display());
    let ns = story.namespace.as_str();
    // A shell waits only briefly, so on a busy machine there may be no answer in time.
    let answered = async |words: &[&str]| {
        await_until("the cluster to answer in time", DEFAULT_WAIT_TIMEOUT, async || {
            Ok(Some(offered(words)?).filter(|it| !it.trim().is_empty()))
        })
        .await
    };
    let names = answered(&["why", "-n", ns, &kubeconfig, "configmap/b"]).await?;
    ensure!(names.trim() == "configmap/blue", "{names}");
    let all = answered(&["get", "-n", ns, &kubeconfig, "cm/"]).await?;
    ensure!(all.contains("cm/blue\n") && all.contains("cm/green"), "{all}");
    let namespaces = answered(&["get", "ks", &kubeconfig, "-n", ns]).await?;
    ensure!(namespaces.contains(ns), "{namespaces}");
    let nowhere = offered(&["get", "--kubeconfig=/nowhere", "ks/"])?;
    ensure!(nowhere.trim().is_empty(), "{nowhere}");
    story.end().await
}
