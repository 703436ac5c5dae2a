//! windlass takes over objects that `kubectl` created. The target namespace and common metadata override the manifests.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use e2e::harness::flux_objects::inventory;
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use kube::ResourceExt;
use serde_json::json;
use testbed::binaries::TestbedBinaries;

fn kubectl(story: &Story, arguments: &[&str], input: &str) -> Result<()> {
    let binaries = TestbedBinaries::ensure()?;
    let mut child = Command::new(binaries.path("kubectl")?)
        .arg(format!("--kubeconfig={}", story.kubeconfig().display()))
        .args(["-n", &story.namespace])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .context("cannot start `kubectl`")?;
    child.stdin.take().context("no input")?.write_all(input.as_bytes())?;
    ensure!(child.wait()?.success(), "`kubectl {}` failed", arguments.join(" "));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_that_kubectl_set_and_the_manifest_lacks_go_away() -> Result<()> {
    let story = Story::with_windlass("take-over").await?;
    let with_more = |name: &str| {
        format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, labels: {{by: hand}}}}, data: {{value: \"0\", more: \"0\"}}}}"
        )
    };
    kubectl(&story, &["apply", "-f", "-"], &with_more("client-side"))?;
    kubectl(&story, &["apply", "--server-side", "-f", "-"], &with_more("server-side"))?;
    kubectl(&story, &["create", "-f", "-"], &with_more("created"))?;
    let names = ["client-side", "server-side", "created"];
    let files = [
        ("a.yaml", config_map(names[0], "1")),
        ("b.yaml", config_map(names[1], "1")),
        ("c.yaml", config_map(names[2], "1")),
    ];
    let _upstream = story.follow("app", &files).await?;
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    for name in names {
        let object = story.expect(&StoryObject::config_map(name)).await?;
        ensure!(object.data["data"] == json!({"value": "1"}), "{name}: {}", object.data["data"]);
        ensure!(!object.labels().contains_key("by"), "{name}: {:?}", object.labels());
        let annotations = object.annotations();
        ensure!(annotations.is_empty(), "{name}: {annotations:?}");
        let managers: Vec<_> =
            object.managed_fields().iter().filter_map(|it| it.manager.as_deref()).collect();
        ensure!(managers == ["kustomize-controller"], "{name}: {managers:?}");
    }
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_target_namespace_and_common_metadata_go_over_what_manifests_say() -> Result<()> {
    let story = Story::with_windlass("common").await?;
    let text = "
apiVersion: v1
kind: ConfigMap
metadata: {name: a, namespace: default, labels: {team: one, own: yes-it-is}}
";
    let _upstream = story.follow("app", &[("a.yaml", text.to_owned())]).await?;
    let common = json!({"labels": {"team": "two"}, "annotations": {"example.com/note": "hello"}});
    story.kustomization("app", "app", json!({"commonMetadata": common})).await?;
    let applied = story.await_ready(&StoryObject::kustomization("app")).await?;
    let expected = [format!("{}_a__ConfigMap", story.namespace)];
    ensure!(inventory(&applied) == expected, "{:?}", inventory(&applied));
    let object = story.expect(&StoryObject::config_map("a")).await?;
    let label = |key: &str| object.labels().get(key).map(String::as_str);
    ensure!(
        label("team") == Some("two") && label("own") == Some("yes-it-is"),
        "{:?}",
        object.labels()
    );
    let note = object.annotations().get("example.com/note").map(String::as_str);
    ensure!(note == Some("hello"), "{:?}", object.annotations());
    story.end().await
}
