//! Connections to a Git server through a proxy, and with a private certificate.

use anyhow::{Context, Result, ensure};
use e2e::forward_proxy::TestForwardProxy;
use e2e::git_server::{GitReadAccess, GitServer};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use serde_json::{Value, json};

async fn secret(story: &Story, name: &str, data: Value) -> Result<()> {
    let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data});
    story.apply_value(object).await.map(drop)
}

/// Checks that no output of windlass contains a secret.
async fn ensure_hidden(story: &Story, name: &str, secrets: &[&str]) -> Result<()> {
    let object = story.expect(&StoryObject::git_repository(name)).await?;
    let status = serde_json::to_string(&object.data["status"])?;
    let events = story.events("GitRepository", name).await?.join("\n");
    let log = story.windlass().await?.operator.log()?;
    for (place, text) in [("status", &status), ("events", &events), ("log", &log)] {
        for secret in secrets {
            ensure!(!text.contains(secret), "the {place} of {name} shows a secret");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_is_fetched_through_the_proxy_of_its_secret() -> Result<()> {
    let story = Story::with_windlass("proxy").await?;
    let proxy = TestForwardProxy::start("walker", "pr0xy-passw0rd").await?;
    for (name, server) in [
        ("plain", GitServer::start(GitReadAccess::Open)?),
        ("tls", GitServer::start_tls(GitReadAccess::Open)?),
    ] {
        let repository = server.repository(name)?;
        repository.commit(&[("a.yaml", &config_map(name, "1"))], "first")?;
        let ca = server.authority().map(|it| json!({"ca.crt": it.certificate()}));
        secret(&story, name, ca.unwrap_or_else(|| json!({"unused": "x"}))).await?;
        let way = format!("{name}-way");
        let data = |password: &str| json!({"address": proxy.url(), "username": "walker", "password": password});
        secret(&story, &way, data("wr0ng-passw0rd")).await?;
        let more = json!({"secretRef": {"name": name}, "proxySecretRef": {"name": way}});
        story.git_repository(name, &server.url(&repository), more).await?;
        let target = StoryObject::git_repository(name);
        let message = story.await_failure(&target, "AuthenticationFailed").await?;
        ensure!(message.contains("proxy") && message.contains(&proxy.url()), "{message}");
        let before = proxy.passed().len();

        // windlass watches the Secret, so no request is needed.
        secret(&story, &way, data("pr0xy-passw0rd")).await?;
        story.kustomization(name, name, json!({})).await?;
        story.await_value(name, "1").await?;
        let passed = proxy.passed().split_off(before);
        let method = if name == "tls" { "CONNECT " } else { "GET http://" };
        ensure!(passed.iter().any(|line| line.starts_with(method)), "{name}: {passed:?}");
        ensure_hidden(&story, name, &["pr0xy-passw0rd", "wr0ng-passw0rd"]).await?;
    }
    let more = json!({"proxySecretRef": {"name": "plain-way"}, "secretRef": {"name": "key"}});
    secret(&story, "key", json!({"identity": "x", "known_hosts": "x"})).await?;
    story.git_repository("ssh", "ssh://git@127.0.0.1/app.git", more).await?;
    let message =
        story.await_failure(&StoryObject::git_repository("ssh"), "UnsupportedField").await?;
    ensure!(message.contains("spec.proxySecretRef"), "{message}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_wants_a_certificate_gets_that_of_the_secret() -> Result<()> {
    let story = Story::with_windlass("mutual-tls").await?;
    let server = GitServer::start_mutual_tls(GitReadAccess::Open)?;
    let repository = server.repository("app")?;
    repository.commit(&[("a.yaml", &config_map("app", "1"))], "first")?;
    let url = server.url(&repository);
    let authority = server.authority().context("no TLS")?;
    let issued = authority.issue_user("windlass", &[])?;
    let ca = authority.certificate();
    let secrets = issued.key.lines().filter(|line| !line.contains("PRIVATE KEY"));
    let secrets: Vec<&str> = secrets.collect();

    secret(&story, "none", json!({"ca.crt": ca})).await?;
    story.git_repository("none", &url, json!({"secretRef": {"name": "none"}})).await?;
    story.await_failure(&StoryObject::git_repository("none"), "GitOperationFailed").await?;

    secret(&story, "half", json!({"ca.crt": ca, "tls.key": issued.key})).await?;
    story.git_repository("half", &url, json!({"secretRef": {"name": "half"}})).await?;
    let half = StoryObject::git_repository("half");
    let message = story.await_failure(&half, "AuthenticationFailed").await?;
    ensure!(message.contains("`tls.key` requires `tls.crt`"), "{message}");

    let whole = json!({"ca.crt": ca, "tls.crt": issued.certificate, "tls.key": issued.key});
    secret(&story, "half", whole).await?;
    story.kustomization("app", "half", json!({})).await?;
    story.await_value("app", "1").await?;

    let older = json!({"caFile": ca, "certFile": issued.certificate, "keyFile": issued.key});
    secret(&story, "older", older).await?;
    story.git_repository("older", &url, json!({"secretRef": {"name": "older"}})).await?;
    story.await_ready(&StoryObject::git_repository("older")).await?;
    for name in ["none", "half", "older"] {
        ensure_hidden(&story, name, &secrets).await?;
    }
    story.end().await
}
