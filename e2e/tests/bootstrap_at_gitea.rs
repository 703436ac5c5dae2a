//! `windlass bootstrap gitea` with a real Gitea. The command creates the repository and registers the key. A second run changes
//! nothing.
//!
//! The stories have their own process, because CRDs and ClusterRoles are cluster-scoped.
//! Elsewhere: other Git servers (`bootstrap.rs`), notifications to Gitea (`notification_services/gitea.rs`).

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use e2e::certificate_authority::TestCertificateAuthority;
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, revision};
use e2e::harness::installed_windlass::deployment;
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use e2e::servers::gitea::{GiteaServer, USER};
use e2e::tls_proxy::TlsProxyListener;
use reqwest::Method;
use serde_json::{Value, json};

/// A Gitea behind TLS, because the command requires TLS.
struct GiteaBootstrapSetup {
    story: Story,
    gitea: GiteaServer,
    hostname: String,
    ssh_hostname: String,
    ca: tempfile::NamedTempFile,
    _front: TlsProxyListener,
}

impl GiteaBootstrapSetup {
    async fn begin() -> Result<Self> {
        let story = Story::begin("bootstrap-gitea").await?;
        let gitea = GiteaServer::start().await?;
        let authority = TestCertificateAuthority::generate()?;
        let front = TlsProxyListener::start(gitea.address(), &authority, false).await?;
        let ca = tempfile::NamedTempFile::new()?;
        std::fs::write(ca.path(), authority.certificate())?;
        let hostname = format!("--hostname={}", front.address());
        let ssh_hostname = format!("--ssh-hostname={}", gitea.ssh_address());
        Ok(Self { story, gitea, hostname, ssh_hostname, ca, _front: front })
    }

    /// Runs `windlass bootstrap gitea` for the repository `fleet`.
    fn bootstrap(&self, token: &str, more: &[&str], is_success: bool) -> Result<String> {
        let token_flag = format!("--token={token}");
        let ca = format!("--ca-file={}", self.ca.path().display());
        let fixed = ["bootstrap", "gitea", "-n", &self.story.namespace, "--repository=fleet"];
        let server = [&*self.hostname, &self.ssh_hostname, &ca, &token_flag];
        let arguments = [&fixed[..], &server[..], &["--path=clusters/one"], more].concat();
        // While the command runs, this process starts windlass in place of a Pod, and needs a thread for that.
        let text =
            tokio::task::block_in_place(|| self.story.windlass_says(&arguments, is_success))?;
        ensure!(!text.contains(token), "the output has the token: {text}");
        Ok(text)
    }

    /// The newest commit of the branch `main`.
    async fn head(&self, owner: &str) -> Result<String> {
        let branch = self.gitea.get(&format!("repos/{owner}/fleet/branches/main")).await?;
        branch["commit"]["id"].as_str().map(str::to_owned).context("main has no commit")
    }

    /// The ids of the deploy keys, and whether each key is read-only.
    async fn keys(&self, owner: &str) -> Result<Vec<(u64, bool)>> {
        let keys = self.gitea.get(&format!("repos/{owner}/fleet/keys")).await?;
        let keys = keys.as_array().context("Gitea answered with no list")?;
        let key = |it: &Value| Some((it["id"].as_u64()?, it["read_only"].as_bool()?));
        keys.iter().map(key).collect::<Option<_>>().context("a key has no id")
    }

    /// Commits a ConfigMap beside the manifests of windlass, and waits until it is applied.
    async fn follows(&self, owner: &str, name: &str) -> Result<String> {
        let namespace = &self.story.namespace;
        let map = config_map(name, "1")
            .replace("metadata: {", &format!("metadata: {{namespace: {namespace}, "));
        let body = json!({"content": STANDARD.encode(map), "message": "a map", "branch": "main"});
        let path = format!("repos/{owner}/fleet/contents/clusters/one/{name}.yaml");
        self.gitea.ask(Method::POST, &path, body).await?;
        let commit = self.head(owner).await?;
        self.story.request(&StoryObject::git_repository("flux-system")).await?;
        self.story.await_applied("flux-system", &revision(&commit)).await?;
        self.story.await_value(name, "1").await?;
        Ok(commit)
    }

    async fn spec_of_source(&self) -> Result<Value> {
        let source = self.story.expect(&StoryObject::git_repository("flux-system")).await?;
        Ok(source.data["spec"].clone())
    }
}

/// Bootstraps with the repository of a user. The cluster reads it with a deploy key.
async fn with_a_key(scene: &GiteaBootstrapSetup) -> Result<()> {
    let story = &scene.story;
    let gitea = &scene.gitea;
    let owner = format!("--owner={USER}");
    let flags = [&*owner, "--personal"];
    let wrong = scene.bootstrap("wr0ng-token", &flags, false)?;
    ensure!(wrong.contains(&format!("cannot read repository {USER}/fleet on Gitea")), "{wrong}");
    ensure!(wrong.contains("401") && wrong.contains("invalid username, password or token"));

    let token = gitea.token("bootstrap").await?;
    let text = scene.bootstrap(&token, &flags, true)?;
    ensure!(text.contains(&format!("repository {USER}/fleet created")), "{text}");
    ensure!(text.contains("deploy key `") && text.contains("may read the repository"), "{text}");
    let repository = gitea.get(&format!("repos/{USER}/fleet")).await?;
    ensure!(repository["private"] == true, "{repository}");
    let keys = scene.keys(USER).await?;
    ensure!(matches!(keys[..], [(_, true)]), "{keys:?}");
    let url = format!("ssh://git@{}/{USER}/fleet.git", gitea.ssh_address());
    let spec = scene.spec_of_source().await?;
    ensure!(spec["url"] == url, "{spec}");
    let commit = scene.follows(USER, "by-key").await?;

    let before = story.expect(&deployment(&story.namespace)).await?;
    let text = scene.bootstrap(&token, &flags, true)?;
    ensure!(text.contains("the repository is up to date"), "{text}");
    ensure!(!text.contains("created") && !text.contains("deploy key"), "{text}");
    ensure!(!text.contains("Secret/") && !text.contains("configured"), "{text}");
    ensure!(scene.head(USER).await? == commit, "it was committed to");
    ensure!(scene.keys(USER).await? == keys, "the keys changed");
    let after = story.expect(&deployment(&story.namespace)).await?;
    ensure!(before.metadata.generation == after.metadata.generation, "it was changed");
    Ok(())
}

/// Bootstraps with the repository of an organization. The cluster reads it with the token.
async fn with_the_token(scene: &GiteaBootstrapSetup) -> Result<()> {
    let gitea = &scene.gitea;
    let token = gitea.token("organization").await?;
    let flags = ["--owner=acme", "--token-auth"];
    let text = scene.bootstrap(&token, &flags, false)?;
    ensure!(text.contains("Gitea rejected creating repository acme/fleet: 404"), "{text}");
    gitea.ask(Method::POST, "orgs", json!({"username": "acme"})).await?;
    let text = scene.bootstrap(&token, &flags, true)?;
    ensure!(text.contains("repository acme/fleet created"), "{text}");
    ensure!(!text.contains("deploy key"), "{text}");
    let keys = scene.keys("acme").await?;
    ensure!(keys.is_empty(), "{keys:?}");
    ensure!(text.contains("suspended") && text.contains("resumed"), "{text}");
    let spec = scene.spec_of_source().await?;
    ensure!(spec["url"].as_str().is_some_and(|it| it.starts_with("https://")), "{spec}");
    // The old commit names the old repository, and nothing restores it.
    let source = StoryObject::git_repository("flux-system");
    let before = scene.story.expect(&source).await?.metadata.generation;
    scene.follows("acme", "by-token").await?;
    scene.story.await_gone(&StoryObject::config_map("by-key"), DEFAULT_WAIT_TIMEOUT).await?;
    let after = scene.story.expect(&source).await?.metadata.generation;
    ensure!(before == after, "the source was changed again");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(feature = "thorough"), ignore = "builds gitea: cargo xtask test --thorough")]
async fn a_cluster_is_bootstrapped_from_repositories_that_are_created_at_gitea() -> Result<()> {
    let scene = GiteaBootstrapSetup::begin().await?;
    let namespace = &scene.story.namespace;
    // Pods run no processes here, so a process with the token of the installation takes their place.
    let install = ["install", "-n", namespace];
    let (_, mut windlass) = scene.story.windlass_installs(&install, &deployment(namespace)).await?;
    with_a_key(&scene).await?;
    with_the_token(&scene).await?;
    windlass.operator.stop(Duration::from_secs(10))?;
    Ok(())
}
