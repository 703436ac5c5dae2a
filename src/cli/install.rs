//! `windlass install`: applies what is embedded in the program, waits until it is ready, and says what comes next.
//!
//! Run again, it upgrades. Below: the manifests and their flags (`install/manifests.rs`), when a CRD may be replaced
//! (`install/definitions.rs`), what a file of Flux has beyond them (`install/kept.rs`).

pub(super) mod definitions;
mod kept;
pub(super) mod manifests;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use apply::health::{self, Health};
use apply::stages::{Stage, stages};
use clap::Args as ClapArgs;
use objects::Object;
use similar::TextDiff;
use tokio::time::Instant;

use self::manifests::Manifests;
use super::connection::{Connection, Mark, block_on, print, say};
use super::operators::Operators;
use windlass_cluster::objects::Mode;
use windlass_cluster::{Cluster, ClusterError};

/// The field manager of installed objects.
pub(super) const MANAGER: &str = "windlass";
/// How often is read what is waited for.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Fields that the API server sets on every write.
const SERVER_FIELDS: [&str; 4] =
    ["managedFields", "resourceVersion", "generation", "creationTimestamp"];

/// The flags of `windlass install`.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct Args {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    manifests: Manifests,
    /// Print the manifests, and do nothing
    #[arg(long)]
    export: bool,
    /// With --export: also print what this file with manifests of Flux has beyond what windlass replaces, such as the
    /// image controllers
    #[arg(long, value_name = "PATH", requires = "export")]
    keep: Option<PathBuf>,
    /// Show what would change in the cluster, and change nothing
    #[arg(long, conflicts_with = "export")]
    dry_run: bool,
    /// Also replace CRDs of a newer version
    #[arg(long)]
    force: bool,
}

/// Installs or upgrades windlass.
///
/// # Errors
/// The cluster cannot have it, or it did not become ready in time.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let namespace = &args.connection.namespace;
    let objects = args.manifests.objects(namespace)?;
    if args.export {
        let kept = args.keep.as_deref().map(|path| kept::beyond(path, &objects)).transpose()?;
        return print(&(args.manifests.yaml(namespace)? + &kept.unwrap_or_default()));
    }
    block_on(async {
        let (cluster, version) = args.connection.open().await?;
        super::check::is_supported(&version)?;
        Operators::find(&cluster).await?.permit_installation(namespace)?;
        definitions::check(&cluster, &objects, args.force).await?;
        if args.dry_run {
            return preview(&cluster, &objects).await;
        }
        say(
            Mark::Action,
            &format!("installing windlass in namespace {namespace} (Kubernetes {version})"),
        );
        apply(&cluster, objects, Instant::now() + args.connection.timeout).await?;
        say(Mark::Success, "windlass is installed");
        say(Mark::Action, "next: `windlass check`, then docs/getting-started.md");
        Ok(())
    })
}

/// Applies the objects of an installation in their order, and waits until they are ready.
///
/// # Errors
/// The API server refuses one, or it is not ready in time.
pub(super) async fn apply(
    cluster: &Cluster,
    objects: Vec<Object>,
    deadline: Instant,
) -> anyhow::Result<()> {
    for stage in stages(objects, &[])? {
        apply_stage(cluster, &stage).await?;
        await_stage(cluster, &stage, deadline).await?;
    }
    Ok(())
}

async fn apply_stage(cluster: &Cluster, stage: &Stage) -> anyhow::Result<()> {
    for wanted in stage.objects.iter().map(|manifest| &manifest.object) {
        let id = name(wanted);
        let before = definitions::read(cluster, wanted).await.with_context(|| id.clone())?;
        let after = write(cluster, wanted, Mode::Write).await.with_context(|| id.clone())?;
        // Not by version: controllers write statuses meanwhile.
        let what = match before {
            None => "created",
            Some(before) if text(&before)? != text(&after)? => "configured",
            Some(_) => "unchanged",
        };
        say(Mark::Success, &format!("{id} {what}"));
    }
    Ok(())
}

async fn write(cluster: &Cluster, wanted: &Object, mode: Mode) -> Result<Object, ClusterError> {
    let resource = cluster.resource(&wanted.gvk()).await?;
    cluster.apply_checked(&resource, wanted, MANAGER, mode, true).await
}

/// Waits until every object of a stage is ready.
async fn await_stage(cluster: &Cluster, stage: &Stage, deadline: Instant) -> anyhow::Result<()> {
    let mut told = String::new();
    for wanted in stage.objects.iter().map(|manifest| &manifest.object) {
        loop {
            let id = name(wanted);
            let found = definitions::read(cluster, wanted).await.with_context(|| id.clone())?;
            let found = found.with_context(|| format!("{id} was deleted meanwhile"))?;
            let report = health::compute(&found, jiff::Timestamp::now())?;
            if report.is_current() {
                break;
            }
            let text = format!("{id}: {}", report.message);
            if report.status == Health::Failed {
                bail!("{text}");
            }
            if Instant::now() >= deadline {
                bail!("not ready in time: {text}; `windlass check` and `flux logs` show more");
            }
            if told != text {
                say(Mark::Waiting, &text);
                told = text;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
    Ok(())
}

/// Prints what an installation would change, as a unified diff.
async fn preview(cluster: &Cluster, objects: &[Object]) -> anyhow::Result<()> {
    for wanted in objects {
        let id = name(wanted);
        let before = definitions::read(cluster, wanted).await.with_context(|| id.clone())?;
        let after = match write(cluster, wanted, Mode::DryRun).await {
            Ok(after) => after,
            // Its namespace or its kind is among what is not there yet.
            Err(error) if before.is_none() && (error.is_not_found() || is_unknown(&error)) => {
                wanted.clone()
            }
            Err(error) => return Err(error).with_context(|| id.clone()),
        };
        let before = before.as_ref().map(text).transpose()?.unwrap_or_default();
        let after = text(&after)?;
        if before != after {
            let diff = TextDiff::from_lines(&before, &after);
            print(
                &diff
                    .unified_diff()
                    .header(&format!("live/{id}"), &format!("new/{id}"))
                    .to_string(),
            )?;
        }
    }
    Ok(())
}

fn is_unknown(error: &ClusterError) -> bool {
    matches!(error, ClusterError::NoSuchKind { .. })
}

/// An object as people compare it.
fn text(object: &Object) -> anyhow::Result<String> {
    let mut object = object.clone();
    for field in SERVER_FIELDS {
        object.metadata_mut().remove(field);
    }
    object.fields_mut().remove("status");
    Ok(goyaml::emit::emit(&object.into_value())?)
}

/// An object as progress names it.
pub(super) fn name(object: &Object) -> String {
    match object.namespace() {
        "" => format!("{}/{}", object.kind(), object.name()),
        namespace => format!("{}/{namespace}/{}", object.kind(), object.name()),
    }
}
