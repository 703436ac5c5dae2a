//! Objects are applied from an archive on a web server, through an ExternalArtifact.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use e2e::servers::web::FileWebServer;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

const GROUP: &str = "source.windlass.dev/v1alpha1";

fn archive(name: &str) -> StoryObject {
    StoryObject::new(GROUP, "HTTPArchive", name)
}

fn external(name: &str) -> StoryObject {
    StoryObject::new("source.toolkit.fluxcd.io/v1", "ExternalArtifact", name)
}

async fn follow(story: &Story, name: &str, url: &str, more: Value) -> Result<()> {
    let mut object = json!({
        "apiVersion": GROUP, "kind": "HTTPArchive", "metadata": {"name": name},
        "spec": {"interval": "10m", "url": url},
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        object["spec"][key] = value.clone();
    }
    story.apply_value(object).await.map(drop)
}

/// Packs files with `tar` and gzip. Returns the bytes of the archive.
fn packed(files: &[(&str, String)]) -> Result<Vec<u8>> {
    let folder = tempfile::tempdir()?;
    for (path, text) in files {
        std::fs::write(folder.path().join(path), text)?;
    }
    let output = Command::new("tar").args(["-cz", "-C"]).arg(folder.path()).arg(".").output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(output.stdout)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_becomes_objects_and_one_changed_file_one_changed_object() -> Result<()> {
    let story = Story::with_windlass("http-archive").await?;
    let server = FileWebServer::start().await?;
    let files =
        |value: &str| [("a.yaml", config_map("a", value)), ("b.yaml", config_map("b", "1"))];
    let url = server.put("app.tar.gz", packed(&files("1"))?);
    follow(&story, "app", &url, json!({})).await?;
    let source = json!({"sourceRef": {"kind": "ExternalArtifact", "name": "app"}});
    story.kustomization("app", "app", source).await?;
    story.await_value("a", "1").await?;
    let untouched = story.await_value("b", "1").await?.resource_version();
    let first = story.await_ready(&archive("app")).await?;

    // Without a change, there is one answer without a body.
    server.answers();
    story.request(&archive("app")).await?;
    story
        .await_until("a run", DEFAULT_WAIT_TIMEOUT, async || {
            let answers = server.answers();
            ensure!(answers.iter().all(|(_, status)| *status == 304), "{answers:?}");
            Ok((!answers.is_empty()).then_some(()))
        })
        .await?;

    server.put("app.tar.gz", packed(&files("2"))?);
    story.request(&archive("app")).await?;
    story.await_value("a", "2").await?;
    let other = story.expect(&StoryObject::config_map("b")).await?;
    ensure!(other.resource_version() == untouched, "`b` was written");
    let second = story.await_ready(&archive("app")).await?;
    let revision =
        |object: &kube::api::DynamicObject| object.data["status"]["artifact"]["revision"].clone();
    ensure!(revision(&first) != revision(&second), "{:?}", revision(&second));
    let offered = story.expect(&external("app")).await?;
    ensure!(revision(&offered) == revision(&second), "{:?}", revision(&offered));

    story.delete(&archive("app")).await?;
    story.await_gone(&archive("app"), DEFAULT_WAIT_TIMEOUT).await?;
    story.await_gone(&external("app"), DEFAULT_WAIT_TIMEOUT).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_turns_us_away_for_a_while_is_asked_again_by_itself() -> Result<()> {
    let story = Story::with_windlass("http-busy").await?;
    let server = FileWebServer::start().await?;
    let url = server.put("app.yaml", config_map("a", "1"));
    server.turn_away(3);
    follow(&story, "app", &url, json!({})).await?;
    let ready = story.await_ready(&archive("app")).await?;
    ensure!(condition(&ready, "Ready")["reason"] == "Succeeded", "{:?}", ready.data["status"]);
    let answers: Vec<u16> = server.answers().into_iter().map(|(_, status)| status).collect();
    ensure!(answers.starts_with(&[429, 429, 429, 200]), "{answers:?}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_external_artifact_of_another_owner_is_not_changed() -> Result<()> {
    let story = Story::with_windlass("http-foreign").await?;
    let server = FileWebServer::start().await?;
    let url = server.put("app.yaml", config_map("a", "1"));
    let foreign = json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "ExternalArtifact",
        "metadata": {"name": "app"}, "spec": {},
    });
    story.apply_value(foreign).await?;
    let uid = story.expect(&external("app")).await?.uid().context("no uid")?;
    follow(&story, "app", &url, json!({})).await?;
    let message = story.await_failure(&archive("app"), "ExternalArtifactFailed").await?;
    ensure!(message.contains("is not owned by this HTTPArchive"), "{message}");
    let left = story.expect(&external("app")).await?;
    ensure!(left.uid().as_ref() == Some(&uid) && left.data["status"].is_null(), "{:?}", left.data);

    // After the artifact is deleted, no request is needed.
    story.delete(&external("app")).await?;
    story.await_ready(&archive("app")).await?;
    ensure!(story.expect(&external("app")).await?.uid() != Some(uid), "it is the old one");
    story.end().await
}

/// A server that sends a byte from time to time and never ends.
async fn dripping() -> Result<(String, tokio::task::JoinHandle<()>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/app.tar.gz", listener.local_addr()?);
    let serving = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut next: &[u8] = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n";
                while stream.write_all(next).await.is_ok() {
                    next = b"#";
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            });
        }
    });
    Ok((url, serving))
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_drip_hold_up_no_other_namespace() -> Result<()> {
    let story = Story::with_windlass("drip").await?;
    let (url, serving) = dripping().await?;
    for at in 0..6 {
        follow(&story, &format!("drip-{at}"), &url, json!({"timeout": "60m"})).await?;
    }
    // Objects with a permit report that they fetch, and the others wait for a permit.
    story
        .await_until("two archives to be fetched", DEFAULT_WAIT_TIMEOUT, async || {
            let mut fetching = 0;
            for at in 0..6 {
                let object = story.expect(&archive(&format!("drip-{at}"))).await?;
                fetching += usize::from(condition(&object, "Reconciling")["status"] == "True");
            }
            Ok((fetching >= 2).then_some(()))
        })
        .await?;
    let other = Story::with_windlass("beside-drip").await?;
    let _upstream = other.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    other.kustomization("app", "app", json!({})).await?;
    other.await_value("a", "1").await?;
    other.end().await?;
    serving.abort();
    for at in 0..6 {
        story.delete(&archive(&format!("drip-{at}"))).await?;
    }
    story.end().await
}
