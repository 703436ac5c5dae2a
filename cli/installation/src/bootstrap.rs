//! `windlass bootstrap`: writes the manifests of windlass to a Git repository, installs windlass, and makes it follow that
//! repository.
//!
//! The files and objects are those of `flux bootstrap`, so existing Flux repositories work unchanged.
//! windlass writes to the cluster only after the repository contains all files. A second run changes only what differs.
//! Below: the files ([`layout`]), the user's `git` ([`repository`]), credentials ([`credentials`]), hosting services
//! ([`forge`]), clusters that followed another repository before ([`repository_move`]).

mod credentials;
mod forge;
mod layout;
mod repository;
mod repository_move;

use std::collections::BTreeMap;
use std::io::{BufRead as _, IsTerminal as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::{Args as ClapArgs, Subcommand};
use objects::{Gvk, Object};
use serde_json::json;
use tokio::time::Instant;
use url::Url;

use self::credentials::{GitCredentialsArgs, RepositoryCredentials};
use self::forge::{ForgeBootstrapArgs, ForgeRepository, ForgeService};
use self::layout::BootstrapFileLayout;
use self::repository::{BootstrapRepository, CommitAuthor};
use self::repository_move::RepositoryMove;
use super::cluster_operators::ClusterOperators;
use super::install::manifests::InstallManifestFlags;
use super::install::{self, MANAGER, POLL_INTERVAL, crd_replacement};
use windlass_cli_runtime::connection::{
    ProgressGlyph, WindlassConnectionFlags, block_on, print, say,
};
use windlass_cluster::ClusterConnection;
use windlass_serve::settings::parse_duration;

/// The flags of `windlass bootstrap`.
#[derive(Debug, Clone, ClapArgs)]
pub struct BootstrapArgs {
    #[command(subcommand)]
    provider: BootstrapCommand,
}

#[derive(Debug, Clone, Subcommand)]
enum BootstrapCommand {
    /// Use any Git server, over SSH or HTTPS
    Git(Box<GitBootstrapArgs>),
    /// Use a GitHub repository; it is created if it does not exist
    #[command(name = "github")]
    GitHub(Box<ForgeBootstrapArgs>),
    /// Use a GitLab repository; it is created if it does not exist
    #[command(name = "gitlab")]
    GitLab(Box<ForgeBootstrapArgs>),
    /// Use a Gitea or Forgejo repository; it is created if it does not exist
    Gitea(Box<ForgeBootstrapArgs>),
}

/// Where windlass is in the repository, how it is followed, and who commits.
#[derive(Debug, Clone, ClapArgs)]
struct BootstrapSyncArgs {
    /// Branch of the repository
    #[arg(long, default_value = "main", value_name = "BRANCH")]
    branch: String,
    /// Folder of this cluster in the repository
    #[arg(long, default_value = "", value_name = "PATH")]
    path: String,
    /// How often the repository is read
    #[arg(long, default_value = "1m", value_name = "DURATION", value_parser = parse_duration)]
    interval: Duration,
    /// Author of the commit
    #[arg(long, default_value = "windlass", value_name = "NAME")]
    author_name: String,
    /// Email address of the author of the commit
    #[arg(long, default_value = "", value_name = "ADDRESS")]
    author_email: String,
    /// Text after the message of the commit, such as [ci skip]
    #[arg(long, value_name = "TEXT")]
    commit_message_appendix: Option<String>,
    /// Certificates that the server's certificate is verified with
    #[arg(long, value_name = "PATH")]
    ca_file: Option<PathBuf>,
}

impl BootstrapSyncArgs {
    /// The certificates in the file of `--ca-file`.
    fn ca(&self) -> anyhow::Result<Option<String>> {
        let read = |path: &PathBuf| {
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
        };
        self.ca_file.as_ref().map(read).transpose()
    }
}

/// The flags of `windlass bootstrap git`.
#[derive(Debug, Clone, ClapArgs)]
struct GitBootstrapArgs {
    #[command(flatten)]
    connection: WindlassConnectionFlags,
    #[command(flatten)]
    manifests: InstallManifestFlags,
    #[command(flatten)]
    given: GitCredentialsArgs,
    /// URL of the repository, ssh:// or https://
    #[arg(long, value_name = "URL")]
    url: Url,
    /// Permit URLs that begin with http://
    #[arg(long)]
    allow_insecure_http: bool,
    /// Assume that the generated deploy key has access to the repository
    #[arg(short, long)]
    silent: bool,
    #[command(flatten)]
    following: BootstrapSyncArgs,
}

/// Bootstraps a cluster.
///
/// # Errors
/// Something prevents the bootstrap, or an object did not become ready in time.
pub fn run(args: &BootstrapArgs) -> anyhow::Result<()> {
    let (service, args) = match &args.provider {
        BootstrapCommand::Git(args) => {
            credentials::check(&args.url, args.allow_insecure_http)?;
            return block_on(bootstrap(args, None));
        }
        BootstrapCommand::GitHub(args) => (ForgeService::GitHub, args),
        BootstrapCommand::GitLab(args) => (ForgeService::GitLab, args),
        BootstrapCommand::Gitea(args) => (ForgeService::Gitea, args),
    };
    let forge = ForgeRepository::new(service, args)?;
    block_on(bootstrap(&args.as_git(&forge)?, Some(&forge)))
}

/// Bootstraps from any Git server. If the server is a hosting service, the repository is created there, and a new deploy key is
/// registered there.
async fn bootstrap(args: &GitBootstrapArgs, forge: Option<&ForgeRepository>) -> anyhow::Result<()> {
    let namespace = &args.connection.namespace;
    let components = args.manifests.yaml(namespace)?;
    let wanted = args.manifests.objects(namespace)?;
    args.manifests.can_manage_itself()?;
    let layout = BootstrapFileLayout::new(&args.following.path, namespace)?;
    let deadline = Instant::now() + args.connection.timeout;
    let (cluster, version) = args.connection.open().await?;
    super::check::is_supported(&version)?;
    crd_replacement::check(&cluster, &wanted, false).await?;
    ClusterOperators::find(&cluster).await?.permit_installation(namespace)?;
    install::leader_wait::permit_leases(&cluster, namespace, &wanted).await?;
    let ca = args.following.ca()?;
    let access =
        RepositoryCredentials::find(&cluster, namespace, &args.url, &args.given, ca.clone())
            .await?;
    let asks = forge.is_none() && !args.silent;
    if access.is_generated() && asks && !std::io::stdin().is_terminal() {
        bail!(
            "a deploy key would be generated, but stdin is not a terminal, so its access cannot be confirmed: pass \
             --private-key-file, or --silent if the key in Secret {namespace}/{} gets access later",
            args.given.secret_name
        );
    }
    let sync = layout.sync(args, &access);
    let (objects, commit) = match forge {
        Some(forge) => {
            forge.ensure_repository().await?;
            let given = forge.given(&args.given.secret_name);
            let pushing = RepositoryCredentials::of_http(&given, BTreeMap::new(), ca)?;
            publish(args, &forge.url()?, &pushing, &layout, &components, &sync).await?
        }
        None => publish(args, &args.url, &access, &layout, &components, &sync).await?,
    };
    match (access.generated_key(), forge) {
        (Some(key), Some(forge)) => {
            let title = format!("{namespace}-{}-{}", args.following.branch, layout.shown());
            forge.register(key, &title).await?;
        }
        (Some(key), None) if asks => await_access(key, &args.url)?,
        _ => {}
    }
    install_from(&cluster, args, &access, objects, &commit, deadline).await?;
    await_commit(&cluster, namespace, &commit, deadline).await?;
    say(ProgressGlyph::Success, &format!("windlass follows {} at {}", args.url, layout.shown()));
    Ok(())
}

/// Pushes the files to the repository. Returns the objects that a build of the files yields, and the commit.
async fn publish(
    args: &GitBootstrapArgs,
    url: &Url,
    access: &RepositoryCredentials,
    layout: &BootstrapFileLayout,
    components: &str,
    sync: &[Object],
) -> anyhow::Result<(Vec<Object>, String)> {
    let following = &args.following;
    let branch = &following.branch;
    say(ProgressGlyph::Action, &format!("cloning branch {branch} of {url}"));
    let repository =
        BootstrapRepository::clone(url, branch, access, args.connection.timeout).await?;
    let changed = layout.write(repository.folder(), components, sync)?;
    let objects = layout.build(repository.folder(), sync)?;
    if changed.is_empty() {
        say(ProgressGlyph::Success, "the repository is up to date");
    } else {
        let mut message = format!("Add windlass v{} manifests", env!("CARGO_PKG_VERSION"));
        if let Some(appendix) = &following.commit_message_appendix {
            message.push_str("\n\n");
            message.push_str(appendix);
        }
        let author =
            CommitAuthor { name: &following.author_name, address: &following.author_email };
        repository.commit_and_push(&changed, author, &message).await?;
        say(ProgressGlyph::Success, &format!("pushed {} to branch {branch}", changed.join(", ")));
    }
    let commit = repository.head().await?;
    Ok((objects, commit))
}

/// Shows a new deploy key, and waits until the user confirms that the key has access.
fn await_access(key: &str, url: &Url) -> anyhow::Result<()> {
    print(&format!("{}\n", key.trim()))?;
    say(ProgressGlyph::Waiting, &format!("give this key read access to {url}, then press Enter"));
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line).context("cannot ask: add --silent")?;
    ensure!(read > 0, "the key was not confirmed: run the command again");
    Ok(())
}

/// Applies the built objects. The Secret is applied before the objects that refer to it.
async fn install_from(
    cluster: &ClusterConnection,
    args: &GitBootstrapArgs,
    access: &RepositoryCredentials,
    objects: Vec<Object>,
    commit: &str,
    deadline: Instant,
) -> anyhow::Result<()> {
    let namespace = &args.connection.namespace;
    say(ProgressGlyph::Action, &format!("installing windlass in namespace {namespace}"));
    let (sync, components): (Vec<_>, Vec<_>) =
        objects.into_iter().partition(|it| layout::is_sync(it, namespace));
    let moving = RepositoryMove::begin(cluster, namespace, &sync).await?;
    let written = install_components(cluster, args, access, components, deadline).await;
    match moving {
        Some(moving) => moving.end(written, commit, deadline).await?,
        None => written?,
    }
    install::apply(cluster, sync, deadline).await
}

/// Applies windlass itself, and the Secret with which windlass reads the repository.
async fn install_components(
    cluster: &ClusterConnection,
    args: &GitBootstrapArgs,
    access: &RepositoryCredentials,
    components: Vec<Object>,
    deadline: Instant,
) -> anyhow::Result<()> {
    install::apply(cluster, components, deadline).await?;
    let namespace = &args.connection.namespace;
    if let Some(secret) = access.secret(namespace, &args.given.secret_name)? {
        let resource = cluster.resource(&secret.gvk()).await?;
        let mode = windlass_cluster::untyped_objects::DryRunMode::Write;
        cluster.apply_checked(&resource, &secret, MANAGER, mode, true).await?;
        say(ProgressGlyph::Success, &format!("{} written", install::name(&secret)));
    }
    Ok(())
}

/// Waits until windlass has applied a commit.
async fn await_commit(
    cluster: &ClusterConnection,
    namespace: &str,
    commit: &str,
    deadline: Instant,
) -> anyhow::Result<()> {
    let source = Gvk::new("source.toolkit.fluxcd.io/v1", "GitRepository");
    let resource = cluster.resource(&source).await?;
    let now = jiff::Timestamp::now().to_string();
    let request = json!({"metadata": {"annotations": {"reconcile.fluxcd.io/requestedAt": now}}});
    cluster.merge_patch(&resource, namespace, layout::NAME, &request, MANAGER).await?;
    let kustomization = Gvk::new("kustomize.toolkit.fluxcd.io/v1", "Kustomization");
    let resource = cluster.resource(&kustomization).await?;
    say(
        ProgressGlyph::Waiting,
        &format!("Kustomization/{namespace}/{} applies {commit}", layout::NAME),
    );
    loop {
        let found = cluster.get(&resource, namespace, layout::NAME).await?;
        let status = found.as_ref().and_then(|it| it.get("status"));
        let applied = status.and_then(|it| it["lastAppliedRevision"].as_str());
        let (_, hash) = applied.unwrap_or_default().rsplit_once(':').unwrap_or_default();
        if hash == commit {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let conditions =
                status.and_then(|it| it["conditions"].as_array()).into_iter().flatten();
            let ready = conditions.into_iter().find(|it| it["type"] == "Ready");
            let message = ready.and_then(|it| it["message"].as_str()).unwrap_or("it has no status");
            bail!(
                "Kustomization/{namespace}/{} has not applied {commit} in time: {message}; `windlass check` and \
                 `flux logs` show more",
                layout::NAME
            );
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
