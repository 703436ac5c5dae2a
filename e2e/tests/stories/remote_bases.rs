//! Bases in other repositories are followed at the interval, and reported if they are missing. They do not delay other objects.

use anyhow::{Result, ensure};
use e2e::git_server::{GitReadAccess, GitServer, StoryGitRepository};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use kube::api::DynamicObject;
use serde_json::json;

/// A repository with a folder `base`, which contains a ConfigMap.
fn base(server: &GitServer, map: &str, value: &str) -> Result<StoryGitRepository> {
    let repository = server.repository("bases")?;
    let files = [
        ("base/kustomization.yaml", "resources: [map.yaml]\n"),
        ("base/map.yaml", &config_map(map, value)),
    ];
    repository.commit(&files, "a base")?;
    Ok(repository)
}

fn overlay(base: &str) -> (&'static str, String) {
    ("kustomization.yaml", format!("resources: [\"{base}\"]\n"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_base_in_another_repository_is_followed_at_the_interval() -> Result<()> {
    let story = Story::with_windlass("far-base").await?;
    let far = GitServer::start(GitReadAccess::Open)?;
    let repository = base(&far, "map", "1")?;
    let url = format!("{}//base?ref=main", far.url(&repository));
    let upstream = story.follow("app", &[overlay(&url)]).await?;
    story.kustomization("app", "app", json!({"interval": "3s"})).await?;
    let app = StoryObject::kustomization("app");
    story.await_ready(&app).await?;
    story.await_value("map", "1").await?;

    // No artifact shows that the base has changed.
    repository.commit(&[("base/map.yaml", &config_map("map", "2"))], "moved")?;
    story.await_value("map", "2").await?;

    // The condition names a reference that does not exist, and the applied objects stay. The address shows no password.
    let secret = far.base_url().replace("http://", "http://bob:s3cret@");
    for (url, expected) in [
        (
            format!("{}//base?ref=gone", far.url(&repository)),
            "branch, tag or commit `gone` not found",
        ),
        (format!("{secret}/bases.git//base"), "accessed anonymously"),
        (format!("{}//gone", far.url(&repository)), "gone: no such file or directory"),
    ] {
        upstream.push(&[overlay(&url)]).await?;
        let has_message = |object: &DynamicObject| {
            let ready = condition(object, "Ready");
            let message = ready["message"].as_str().unwrap_or_default();
            ready["reason"] == "BuildFailed"
                && message.starts_with("kustomize build failed: ")
                && message.contains(expected)
                && !message.contains("s3cret")
        };
        story.await_object(&app, DEFAULT_WAIT_TIMEOUT, has_message).await?;
        story.await_value("map", "2").await?;
    }
    upstream.push(&[overlay(&format!("{}//base", far.url(&repository)))]).await?;
    story.await_ready(&app).await?;
    story.end().await
}

/// The number of places for builds. A namespace may use all of them for other servers at once.
const SLOW: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn bases_on_a_server_that_does_not_answer_delay_no_other_object() -> Result<()> {
    let story = Story::with_windlass("slow-base").await?;
    let far = GitServer::start(GitReadAccess::Open)?;
    let repository = base(&far, "far", "1")?;
    let url = format!("{}//base?ref=main", far.slow_url(&repository));
    let slow = story.follow("slow", &[overlay(&url)]).await?;
    for at in 0..SLOW {
        let spec = json!({"nameSuffix": format!("-{at}"), "retryInterval": "2s"});
        story.kustomization(&format!("slow-{at}"), "slow", spec).await?;
    }
    let all = async || Ok((far.waiting() >= SLOW).then_some(()));
    story.await_until("all ask", DEFAULT_WAIT_TIMEOUT, all).await?;
    let _own = story.follow("app", &[("map.yaml", config_map("map", "1"))]).await?;
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    for at in 0..SLOW {
        let object = story.expect(&StoryObject::kustomization(&format!("slow-{at}"))).await?;
        ensure!(condition(&object, "Ready")["status"] != "True", "slow-{at} did not have to wait");
    }
    far.release();
    for at in 0..SLOW {
        story.await_ready(&StoryObject::kustomization(&format!("slow-{at}"))).await?;
        story.await_value(&format!("far-{at}"), "1").await?;
    }
    drop(slow);
    story.end().await
}
