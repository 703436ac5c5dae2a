//! Each object's own status reports its problem. All other objects continue, and secrets stay secret.

use anyhow::{Result, ensure};
use e2e::git_server::{GitReadAccess, GitServer};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

/// A secret of a story. No status, event or log line may contain it.
fn password(story: &Story, what: &str) -> String {
    format!("hunter2-{what}-{}", story.namespace)
}

async fn secret(story: &Story, name: &str, data: Value) -> Result<()> {
    let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data});
    story.apply_value(object).await.map(drop)
}

/// Checks that the log of windlass, and all statuses and events of the story, do not contain a text.
async fn ensure_not_leaked(story: &Story, secrets: &[&str]) -> Result<()> {
    let mut messages = vec![("the log".to_owned(), story.windlass().await?.operator.log()?)];
    for (group, version, kind) in [
        ("source.toolkit.fluxcd.io", "v1", "GitRepository"),
        ("kustomize.toolkit.fluxcd.io", "v1", "Kustomization"),
    ] {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api =
            Api::<DynamicObject>::namespaced_with(story.client.clone(), &story.namespace, &kind);
        for object in api.list(&ListParams::default()).await? {
            let name = object.metadata.name.unwrap_or_default();
            messages.push((format!("the status of {name}"), object.data["status"].to_string()));
        }
    }
    let events = Api::<Event>::namespaced(story.client.clone(), &story.namespace);
    for event in events.list(&ListParams::default()).await? {
        messages.push(("an event".to_owned(), event.message.unwrap_or_default()));
    }
    for (place, text) in &messages {
        for secret in secrets {
            let line = text.lines().find(|line| line.contains(secret));
            ensure!(line.is_none(), "{place} tells a secret: {line:?}");
        }
    }
    Ok(())
}

/// Sixteen levels with nine references each.
fn alias_bomb() -> String {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..16 {
        let references = vec![format!("*a{}", level - 1); 9].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{references}]\n"));
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_manifest_or_path_is_reported_where_it_is_and_stalls_only_itself() -> Result<()> {
    let story = Story::with_windlass("bad-files").await?;
    let leaked = "31415926535897";
    let wrong_secret = format!(
        "{{apiVersion: v1, kind: Secret, metadata: {{name: s}}, stringData: {{password: {leaked}}}}}"
    );
    let files = [
        ("good/a.yaml", config_map("good", "1")),
        (
            "syntax/broken.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: [a\n".to_owned(),
        ),
        ("shape/list.yaml", format!("{}---\nhello: world\n", config_map("shape", "1"))),
        ("double/one.yaml", config_map("double", "1")),
        ("double/two.yaml", config_map("double", "2")),
        ("bomb/bomb.yaml", alias_bomb()),
        ("deep/deep.yaml", "[".repeat(200_000)),
        (
            "field/field.yaml",
            "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replica: 1}}"
                .to_owned(),
        ),
        (
            "kind/kind.yaml",
            "{apiVersion: example.com/v1, kind: Unheard, metadata: {name: of}}".to_owned(),
        ),
        ("secret/secret.yaml", wrong_secret),
    ];
    let upstream = story.follow("app", &files).await?;
    let cases = [
        ("syntax", "./syntax", "BuildFailed", vec!["broken.yaml", "line 3"]),
        ("shape", "./shape", "BuildFailed", vec!["list.yaml"]),
        ("double", "./double", "BuildFailed", vec!["ConfigMap.v1", "double"]),
        ("bomb", "./bomb", "BuildFailed", vec!["bomb.yaml"]),
        ("deep", "./deep", "BuildFailed", vec!["deep.yaml"]),
        ("missing", "./not/here", "ArtifactFailed", vec!["not/here"]),
        ("outside", "../../etc", "ArtifactFailed", vec!["../../etc"]),
        ("file", "./good/a.yaml", "ArtifactFailed", vec!["good/a.yaml"]),
        ("field", "./field", "ReconciliationFailed", vec!["Deployment/", "/web"]),
        ("kind", "./kind", "ReconciliationFailed", vec!["Unheard", "example.com/v1"]),
        ("secret", "./secret", "BuildFailed", vec!["Secret/", "stringData.password"]),
    ];
    for (name, path, ..) in &cases {
        story.kustomization(name, "app", json!({"path": path})).await?;
    }
    story.kustomization("good", "app", json!({"path": "./good"})).await?;
    for (name, _, reason, strings) in &cases {
        let message = story.await_failure(&StoryObject::kustomization(name), reason).await?;
        for text in strings {
            ensure!(message.contains(text), "{name}: `{text}` is not in: {message}");
        }
        ensure!(message.len() < 2000, "{name}: a message of {} bytes", message.len());
        story.await_event("Kustomization", name, reason).await?;
    }
    let last = upstream.push(&[("good/a.yaml", config_map("good", "2"))]).await?;
    story.await_applied("good", &last).await?;
    story.await_value("good", "2").await?;
    ensure_not_leaked(&story, &[leaked]).await?;
    ensure!(story.windlass().await?.operator.is_running()?, "windlass ended");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_that_does_not_give_says_why_and_tells_no_secret() -> Result<()> {
    let story = Story::with_windlass("bad-remotes").await?;
    let good = story.follow("good", &[("a.yaml", config_map("good", "1"))]).await?;
    let right = password(&story, "right");
    let guarded =
        GitServer::start(GitReadAccess::Basic { user: "bob".into(), password: right.clone() })?;
    let repository = guarded.repository("app")?;
    repository.commit(&[("a.yaml", "")], "first")?;
    let url = guarded.url(&repository);
    let wrong = password(&story, "wrong");
    secret(&story, "wrong", json!({"username": "bob", "password": wrong})).await?;
    let in_url = password(&story, "url");
    let with_password = url.replace("http://", &format!("http://bob:{in_url}@"));

    // `known_hosts` contains the key of another server for this host.
    let ssh = good.server.ssh()?;
    let host = ssh.known_hosts()?;
    let host = host.split(' ').next().unwrap_or_default();
    let ssh_secret = json!({"identity": ssh.identity()?, "known_hosts": format!("{host} {}", ssh.identity_public()?)});
    secret(&story, "ssh", ssh_secret).await?;

    let by = |secret: &str| json!({"secretRef": {"name": secret}});
    let slow = json!({"timeout": "2s"});
    let cases = [
        (
            "nobody",
            "http://127.0.0.1:1/app.git".to_owned(),
            json!({}),
            "GitOperationFailed",
            "127.0.0.1:1",
        ),
        ("stalls", good.server.slow_url(&good.repository), slow, "GitOperationFailed", "2s"),
        ("nameless", url.clone(), json!({}), "AuthenticationFailed", "Secret"),
        ("wrong", url.clone(), by("wrong"), "AuthenticationFailed", "credentials"),
        ("in-url", with_password, json!({}), "AuthenticationFailed", "credentials"),
        ("lacks", url, by("absent"), "AuthenticationFailed", "absent"),
        ("stranger", ssh.url(&good.repository), by("ssh"), "GitOperationFailed", "known_hosts"),
        (
            "branchless",
            good.server.url(&good.repository),
            json!({"ref": {"branch": "nope"}}),
            "GitOperationFailed",
            "nope",
        ),
    ];
    for (name, url, more, ..) in &cases {
        story.git_repository(name, url, more.clone()).await?;
    }
    story.kustomization("good", "good", json!({})).await?;
    for (name, _, _, reason, text) in &cases {
        let message = story.await_failure(&StoryObject::git_repository(name), reason).await?;
        ensure!(message.contains(text), "{name}: `{text}` is not in: {message}");
        story.await_event("GitRepository", name, reason).await?;
    }
    let last = good.push(&[("a.yaml", config_map("good", "2"))]).await?;
    story.await_applied("good", &last).await?;
    let identity = ssh.identity()?;
    let key_line = identity.lines().nth(2).unwrap_or("no key");
    ensure_not_leaked(&story, &[&right, &wrong, &in_url, key_line]).await?;
    ensure!(story.windlass().await?.operator.is_running()?, "windlass ended");

    // It is enough to create the missing Secret.
    secret(&story, "absent", json!({"username": "bob", "password": right})).await?;
    story.await_ready(&StoryObject::git_repository("lacks")).await?;
    ensure_not_leaked(&story, &[&right]).await?;
    story.end().await
}
