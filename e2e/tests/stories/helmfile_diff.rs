//! `windlass helmfile diff` predicts what an upgrade would change in releases that Helm has made.

use std::fs;

use anyhow::{Result, ensure};
use e2e::harness::{Story, StoryObject};
use serde_json::json;

const TEMPLATE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n\
    data: {color: {{ .Values.color }}}\n---\n\
    apiVersion: v1\nkind: Secret\nmetadata: {name: login}\nstringData: {password: {{ .Values.password }}}\n";
const VALUES: &str = "color: blue\npassword: correct-horse\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_diff_shows_changes_of_the_helmfile_and_of_the_cluster() -> Result<()> {
    let story = Story::begin("helmfile-diff").await?;
    let folder = tempfile::tempdir()?;
    let write = |path: &str, text: &str| fs::write(folder.path().join(path), text);
    fs::create_dir_all(folder.path().join("app/templates"))?;
    write("app/Chart.yaml", "apiVersion: v2\nname: app\nversion: 1.0.0\n")?;
    write("app/values.yaml", VALUES)?;
    write("app/templates/all.yaml", TEMPLATE)?;
    let helmfile = |more: &str| {
        let namespace = &story.namespace;
        format!("releases:\n- {{name: shop, chart: ./app, namespace: {namespace}{more}}}\n")
    };
    write("helmfile.yaml", &helmfile(""))?;
    let file = folder.path().join("helmfile.yaml").display().to_string();
    let chart = folder.path().join("app").display().to_string();
    let diff = |flags: &[&str], is_success: bool| {
        let arguments = [&["helmfile", "--file", &file, "diff"], flags].concat();
        story.windlass_says(&arguments, is_success)
    };

    let text = diff(&[], true)?;
    ensure!(text.contains("settings, ConfigMap (v1) has been added:\n"), "{text}");
    ensure!(text.contains("shop (app) UPDATED") && !text.contains("correct-horse"), "{text}");
    ensure!(
        story.read(&StoryObject::new("v1", "ConfigMap", "settings")).await?.is_none(),
        "written"
    );

    story.helm_says(&["install", "shop", &chart])?;
    let text = diff(&["--detailed-exitcode"], true)?;
    ensure!(text == "No affected releases\n", "{text}");

    story
        .merge(&StoryObject::new("v1", "ConfigMap", "settings"), json!({"data": {"color": "red"}}))
        .await?;
    let text = diff(&["--detailed-exitcode"], false)?;
    ensure!(text.contains("-   color: red\n+   color: blue\n"), "{text}");

    write("helmfile.yaml", &helmfile(", values: [{password: battery-staple}]"))?;
    let text = diff(&["--context", "1"], true)?;
    let masked = "-   password: '*** (before)'\n+   password: '*** (after)'\n";
    ensure!(text.contains(masked) && !text.contains("battery"), "{text}");

    write("helmfile.yaml", &helmfile(", installed: false"))?;
    let text = diff(&[], true)?;
    ensure!(text.contains("login, Secret (v1) has been removed:\n"), "{text}");
    ensure!(text.contains("shop (app) DELETED") && !text.contains("Y29ycmVjdC1ob3JzZQ"), "{text}");
    story.end().await
}
