//! Fields that name a Secret or ConfigMap: after the user creates the object with the command that `windlass why` prints, the
//! referring object becomes ready.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use e2e::forward_proxy::TestForwardProxy;
use e2e::git_server::{GitReadAccess, GitServer};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, NEVER};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use e2e::servers::charts::ChartServer;
use e2e::servers::registry::{PASSWORD, RegistryServer, USER};
use e2e::servers::s3::{ACCESS, S3Server, SECRET};
use e2e::servers::web::FileWebServer;
use e2e::signing_key::SigningKey;
use serde_json::{Value, json};

use crate::cli::why_advice::{advice, mend};
use crate::cli::why_causes::await_cause;
use crate::cli::windlass;
use crate::stories::decryption::{borrowed, decryption, recorded};

const SOURCES: &str = "source.toolkit.fluxcd.io/v1";
const NOTIFICATIONS: &str = "notification.toolkit.fluxcd.io/v1beta3";

/// The text that a user puts in the place of a placeholder in a command.
struct CommandPlaceholderValue<'a> {
    word: &'a str,
    means: &'a str,
}

/// Lets `windlass why` name the missing object, runs the command that it prints, and waits until nothing is missing.
async fn create(
    story: &Story,
    object: &str,
    missing: &str,
    meanings: &[CommandPlaceholderValue<'_>],
) -> Result<()> {
    let text = format!("{missing} does not exist");
    await_cause(story, object, "Missing", &[&text]).await?;
    let known: Vec<(&str, &str)> = meanings.iter().map(|it| (it.word, it.means)).collect();
    mend(story, object, &known).await?;
    let what = format!("{object} to be well");
    let is_well = async || {
        let said = windlass(story, &["why", object, "--timeout", "2s"])?;
        Ok((said.code == Some(0)).then_some(()))
    };
    let is_well = story.await_until(&what, DEFAULT_WAIT_TIMEOUT, is_well).await;
    is_well.with_context(|| format!("{:?}", windlass(story, &["why", object])))
}

async fn apply(story: &Story, version: &str, kind: &str, name: &str, spec: Value) -> Result<()> {
    let object =
        json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec});
    story.apply_value(object).await.map(drop)
}

fn path(folder: &Path, name: &str, content: &str) -> Result<String> {
    let path = folder.join(name);
    fs::write(&path, content)?;
    Ok(path.to_str().context("a path that is no text")?.to_owned())
}

fn meaning<'a>(word: &'a str, means: &'a str) -> CommandPlaceholderValue<'a> {
    CommandPlaceholderValue { word, means }
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_of_git_and_of_repositories_mend_their_sources() -> Result<()> {
    let story = Story::with_windlass("why-keys").await?;
    let folder = tempfile::tempdir()?;
    let user = "git".to_owned();
    let password = "right".to_owned();
    let server = GitServer::start(GitReadAccess::Basic { user, password })?;
    let repository = server.repository("app")?;
    repository.commit(&[("a.yaml", config_map("a", "1").as_str())], "begin")?;
    let secret = |name: &str| json!({"secretRef": {"name": name}});
    let credentials = [meaning("USERNAME", "git"), meaning("PASSWORD", "right")];

    story.git_repository("web", &server.url(&repository), secret("web-key")).await?;
    create(&story, "gitrepo/web", "Secret/{ns}/web-key", &credentials).await?;

    let ssh = server.ssh()?;
    story.git_repository("ssh", &ssh.url(&repository), secret("ssh-key")).await?;
    let identity = format!("identity={}", path(folder.path(), "identity", &ssh.identity()?)?);
    let hosts = format!("known_hosts={}", path(folder.path(), "hosts", &ssh.known_hosts()?)?);
    let files = [meaning("identity=PATH", &identity), meaning("known_hosts=PATH", &hosts)];
    create(&story, "gitrepo/ssh", "Secret/{ns}/ssh-key", &files).await?;

    let charts = ChartServer::start(Some(("git", "right")))?;
    charts.publish(&[("Chart.yaml", "apiVersion: v2\nname: app\nversion: 1.0.0\n")])?;
    let spec = json!({"interval": NEVER, "url": charts.url(), "secretRef": {"name": "charts-key"}});
    apply(&story, SOURCES, "HelmRepository", "charts", spec).await?;
    create(&story, "helmrepo/charts", "Secret/{ns}/charts-key", &credentials).await?;

    let web = FileWebServer::start().await?;
    web.protect(&format!("Basic {}", BASE64_STANDARD.encode("git:right")));
    let url = web.put("app.yaml", config_map("a", "1").into_bytes());
    let spec = json!({"interval": NEVER, "url": url, "secretRef": {"name": "archive-key"}});
    apply(&story, "source.windlass.dev/v1alpha1", "HTTPArchive", "archive", spec).await?;
    create(&story, "httparchive/archive", "Secret/{ns}/archive-key", &credentials).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_of_registries_buckets_and_proxies_mend_their_sources() -> Result<()> {
    let story = Story::with_windlass("why-registries").await?;
    let folder = tempfile::tempdir()?;
    let registry = RegistryServer::start_tls().await?;
    registry.push_files("app", "v1", &[("a.yaml", "a: 1\n")], json!({})).await?;
    let spec = json!({"interval": NEVER, "url": registry.url("app"), "ref": {"tag": "v1"},
        "secretRef": {"name": "login"}, "certSecretRef": {"name": "authority"}});
    apply(&story, SOURCES, "OCIRepository", "registry", spec).await?;
    let authority = registry.authority().context("no authority")?.certificate().to_owned();
    let ca = path(folder.path(), "ca", &authority)?;
    // The stories create both, one after the other. The command for the second does not depend on the first.
    await_cause(&story, "ocirepo/registry", "Missing", &["Secret/{ns}/authority does not exist"])
        .await?;
    mend(&story, "ocirepo/registry", &[("PATH", &ca)]).await?;
    let login = [
        meaning("SERVER", registry.host()),
        meaning("USERNAME", USER),
        meaning("PASSWORD", PASSWORD),
    ];
    create(&story, "ocirepo/registry", "Secret/{ns}/login", &login).await?;

    let s3 = S3Server::start().await?;
    s3.bucket("app").await?;
    s3.put("app", "a.yaml", config_map("a", "1")).await?;
    let spec = json!({"interval": NEVER, "endpoint": s3.endpoint(), "bucketName": "app",
        "insecure": true, "secretRef": {"name": "bucket-key"}});
    apply(&story, SOURCES, "Bucket", "bucket", spec).await?;
    let keys = [meaning("ACCESSKEY", ACCESS), meaning("SECRETKEY", SECRET)];
    create(&story, "bucket/bucket", "Secret/{ns}/bucket-key", &keys).await?;

    let proxy = TestForwardProxy::start("user", "secret").await?;
    let upstream = story.follow("plain", &[("a.yaml", config_map("a", "1"))]).await?;
    let url = upstream.server.url(&upstream.repository);
    story.git_repository("proxy", &url, json!({"proxySecretRef": {"name": "way"}})).await?;
    let address = proxy.url().replace("http://", "http://user:secret@");
    create(&story, "gitrepo/proxy", "Secret/{ns}/way", &[meaning("ADDRESS", &address)]).await?;
    ensure!(!proxy.passed().is_empty(), "it was fetched beside the proxy");

    let signer = SigningKey::gpg()?;
    signer.sign(&upstream.repository)?;
    upstream.repository.commit(&[("a.yaml", &config_map("a", "2"))], "signed")?;
    let verify = json!({"verify": {"mode": "HEAD", "secretRef": {"name": "authors"}}});
    story.git_repository("signed", &url, verify).await?;
    let author = path(folder.path(), "author", signer.public().1)?;
    create(&story, "gitrepo/signed", "Secret/{ns}/authors", &[meaning("PATH", &author)]).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_of_receivers_providers_and_kustomizations_mend_them() -> Result<()> {
    let story = Story::with_windlass("why-secrets").await?;
    let folder = tempfile::tempdir()?;
    let encrypted = recorded("build-resource-secret", "app")?;
    let wrong = recorded("build-resource-wrongkey", "app")?;
    let mut files = borrowed(&encrypted.files);
    let variable =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\ndata: {value: '${COLOUR}'}\n";
    files.push(("plain/a.yaml", config_map("a", "1")));
    files.push(("variable/b.yaml", variable.to_owned()));
    let _upstream = story.follow("app", &files).await?;

    let resources = json!([{"kind": "GitRepository", "name": "app"}]);
    let spec = json!({"type": "generic", "secretRef": {"name": "token"}, "resources": resources});
    apply(&story, "notification.toolkit.fluxcd.io/v1", "Receiver", "hook", spec).await?;
    create(&story, "receiver/hook", "Secret/{ns}/token", &[meaning("TOKEN", "s3cret")]).await?;

    let spec = json!({"type": "slack", "secretRef": {"name": "hook-address"}});
    apply(&story, NOTIFICATIONS, "Provider", "chat", spec).await?;
    let address = [meaning("ADDRESS", "https://chat.example.com/hook")];
    create(&story, "provider/chat", "Secret/{ns}/hook-address", &address).await?;
    let spec = json!({"type": "github", "address": "https://git.example.com/a/b",
        "secretRef": {"name": "status-token"}});
    apply(&story, NOTIFICATIONS, "Provider", "status", spec).await?;
    let token = [meaning("TOKEN", "s3cret")];
    create(&story, "provider/status", "Secret/{ns}/status-token", &token).await?;

    let remote = json!({"path": "./plain", "kubeConfig": {"secretRef": {"name": "cluster"}}});
    story.kustomization("remote", "app", remote).await?;
    let kubeconfig = story.kubeconfig().display().to_string();
    create(&story, "ks/remote", "Secret/{ns}/cluster", &[meaning("PATH", &kubeconfig)]).await?;

    let from = json!([{"kind": "ConfigMap", "name": "colours"}]);
    let spec = json!({"path": "./variable", "postBuild": {"substituteFrom": from}});
    story.kustomization("variable", "app", spec).await?;
    let colour = [meaning("KEY=VALUE", "COLOUR=blue")];
    create(&story, "ks/variable", "ConfigMap/{ns}/colours", &colour).await?;
    story.await_value("b", "blue").await?;

    // First without a key, and then with a key that does not fit the files.
    story.kustomization("app", "app", decryption("app", "age")).await?;
    let key = |name: &str, keys: &[(String, String)]| {
        path(folder.path(), name, &keys.first().context("no key")?.1)
    };
    let other = key("other", &wrong.keys)?;
    await_cause(&story, "ks/app", "Missing", &["Secret/{ns}/age does not exist"]).await?;
    mend(&story, "ks/app", &[("PATH", &other)]).await?;
    await_cause(&story, "ks/app", "Build", &["decrypt"]).await?;
    mend(&story, "ks/app", &[("PATH", &key("right", &encrypted.keys)?)]).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_a_field_without_effect_names_is_not_missed() -> Result<()> {
    let story = Story::with_windlass("why-without-effect").await?;
    let _upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    let spec = json!({"kubeConfig": {"configMapRef": {"name": "cluster"}}});
    story.kustomization("app", "app", spec).await?;
    await_cause(&story, "ks/app", "Spec", &["Kustomization/{ns}/app", "configMapRef"]).await?;
    let advice = advice(&story, "ks/app")?;
    let expected = format!("correct the spec of Kustomization/{}/app", story.namespace);
    ensure!(advice["text"] == expected, "{advice}");
    let app = StoryObject::kustomization("app");
    story.merge(&app, json!({"spec": {"kubeConfig": null}})).await?;
    story.await_ready(&app).await?;
    story.end().await
}
