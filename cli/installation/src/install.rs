//! `windlass install`: applies the manifests that are embedded in the program, waits until windlass is ready, and prints the
//! next steps. If windlass is already installed, the command upgrades it.
//!
//! Below: the manifests and their flags (`install/manifests.rs`), replacing CRDs (`install/crd_replacement.rs`), Flux
//! manifests that windlass does not replace (`install/unreplaced_flux_manifests.rs`), waiting for the leader
//! (`install/leader_wait.rs`).

pub(super) mod crd_replacement;
pub(super) mod leader_wait;
pub(super) mod manifests;
mod unreplaced_flux_manifests;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use apply::health::{self, HealthStatus};
use apply::stages::{ApplyStage, stages};
use clap::Args as ClapArgs;
use objects::Object;
use similar::TextDiff;
use tokio::time::Instant;

use self::manifests::InstallManifestFlags;
use super::check::arguments;
use super::cluster_operators::ClusterOperators;
use windlass_cli_runtime::connection::{
    ProgressGlyph, WindlassConnectionFlags, block_on, print, say,
};
use windlass_cli_runtime::table::clean;
use windlass_cluster::untyped_objects::DryRunMode;
use windlass_cluster::{ClusterConnection, ClusterError};

/// The field manager of installed objects.
pub(super) const MANAGER: &str = "windlass";
/// How often the command reads an object for which it waits.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The fields that the API server sets on every write.
const SERVER_FIELDS: [&str; 4] =
    ["managedFields", "resourceVersion", "generation", "creationTimestamp"];

/// The flags of `windlass install`.
#[derive(Debug, Clone, ClapArgs)]
pub struct InstallArgs {
    #[command(flatten)]
    connection: WindlassConnectionFlags,
    #[command(flatten)]
    manifests: InstallManifestFlags,
    /// Print the manifests, and do nothing
    #[arg(long)]
    export: bool,
    /// With --export: also print what this file with manifests of Flux has beyond what windlass replaces, such as another
    /// controller
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
/// The cluster cannot run windlass, or windlass did not become ready in time.
pub fn run(args: &InstallArgs) -> anyhow::Result<()> {
    let namespace = &args.connection.namespace;
    let objects = args.manifests.objects(namespace)?;
    if args.export {
        let kept = args
            .keep
            .as_deref()
            .map(|path| unreplaced_flux_manifests::beyond(path, &objects))
            .transpose()?;
        return print(&(args.manifests.yaml(namespace)? + &kept.unwrap_or_default()));
    }
    block_on(async {
        let (cluster, version) = args.connection.open().await?;
        super::check::is_supported(&version)?;
        ClusterOperators::find(&cluster).await?.permit_installation(namespace)?;
        leader_wait::permit_leases(&cluster, namespace, &objects).await?;
        crd_replacement::check(&cluster, &objects, args.force).await?;
        say_lost_flags(&cluster, &objects).await?;
        if args.dry_run {
            return preview(&cluster, &objects).await;
        }
        say(
            ProgressGlyph::Action,
            &format!("installing windlass in namespace {namespace} (Kubernetes {version})"),
        );
        let deadline = Instant::now() + args.connection.timeout;
        apply_windlass(&cluster, namespace, objects, deadline).await?;
        say(ProgressGlyph::Success, "windlass is installed");
        say(ProgressGlyph::Action, "next: `windlass check`, then docs/getting-started.md");
        Ok(())
    })
}

/// Warns about current flags of windlass that the new manifests do not contain.
///
/// # Errors
/// The API server refuses to read a workload.
async fn say_lost_flags(cluster: &ClusterConnection, objects: &[Object]) -> anyhow::Result<()> {
    for wanted in manifests::workloads(objects) {
        let id = name(wanted);
        let found = crd_replacement::read(cluster, wanted).await.with_context(|| id.clone())?;
        for flag in found.iter().flat_map(|found| lost_flags(found, wanted)) {
            let text = format!("{id} loses its flag `{flag}`: add `-- {flag}` to keep it");
            say(ProgressGlyph::Warning, &clean(&text));
        }
    }
    Ok(())
}

/// The flags of a workload that the replacing workload does not have.
fn lost_flags(found: &Object, wanted: &Object) -> Vec<String> {
    let kept: BTreeSet<&str> = arguments(wanted).map(flag_name).collect();
    let lost = arguments(found).filter(|it| it.starts_with("--") && !kept.contains(flag_name(it)));
    lost.map(str::to_owned).collect()
}

fn flag_name(flag: &str) -> &str {
    flag.split_once('=').map_or(flag, |(name, _)| name)
}

/// Applies the objects of an installation, and waits until they are ready and one of the Pods is active.
///
/// # Errors
/// The API server refuses an object, an object is not ready in time, or no Pod becomes active in time.
pub(super) async fn apply_windlass(
    cluster: &ClusterConnection,
    namespace: &str,
    objects: Vec<Object>,
    deadline: Instant,
) -> anyhow::Result<()> {
    let leases = leader_wait::leases_of(&objects);
    apply(cluster, objects, deadline).await?;
    leader_wait::await_leader(cluster, namespace, &leases, deadline).await
}

/// Applies objects in their order, and waits until they are ready.
///
/// # Errors
/// The API server refuses an object, or an object is not ready in time.
pub(super) async fn apply(
    cluster: &ClusterConnection,
    objects: Vec<Object>,
    deadline: Instant,
) -> anyhow::Result<()> {
    for stage in stages(objects, &[])? {
        apply_stage(cluster, &stage).await?;
        await_stage(cluster, &stage, deadline).await?;
    }
    Ok(())
}

async fn apply_stage(cluster: &ClusterConnection, stage: &ApplyStage) -> anyhow::Result<()> {
    for wanted in stage.objects.iter().map(|manifest| &manifest.object) {
        let id = name(wanted);
        let before = crd_replacement::read(cluster, wanted).await.with_context(|| id.clone())?;
        let after = write(cluster, wanted, DryRunMode::Write).await.with_context(|| id.clone())?;
        // The comparison does not use resourceVersions, because controllers write statuses meanwhile.
        let what = match before {
            None => "created",
            Some(before) if text(&before)? != text(&after)? => "configured",
            Some(_) => "unchanged",
        };
        say(ProgressGlyph::Success, &format!("{id} {what}"));
    }
    Ok(())
}

async fn write(
    cluster: &ClusterConnection,
    wanted: &Object,
    mode: DryRunMode,
) -> Result<Object, ClusterError> {
    let resource = cluster.resource(&wanted.gvk()).await?;
    cluster.apply_checked(&resource, wanted, MANAGER, mode, true).await
}

/// Waits until all objects of a stage are ready.
async fn await_stage(
    cluster: &ClusterConnection,
    stage: &ApplyStage,
    deadline: Instant,
) -> anyhow::Result<()> {
    let mut last_text = String::new();
    for wanted in stage.objects.iter().map(|manifest| &manifest.object) {
        loop {
            let id = name(wanted);
            let found = crd_replacement::read(cluster, wanted).await.with_context(|| id.clone())?;
            let found = found.with_context(|| format!("{id} was deleted meanwhile"))?;
            let report = health::compute(&found, jiff::Timestamp::now())?;
            if report.is_current() {
                break;
            }
            let text = format!("{id}: {}", report.message);
            if report.status == HealthStatus::Failed {
                bail!("{text}");
            }
            if Instant::now() >= deadline {
                bail!("not ready in time: {text}; `windlass check` and `flux logs` show more");
            }
            if last_text != text {
                say(ProgressGlyph::Waiting, &text);
                last_text = text;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
    Ok(())
}

/// Prints what an installation would change, as a unified diff.
async fn preview(cluster: &ClusterConnection, objects: &[Object]) -> anyhow::Result<()> {
    for wanted in objects {
        let id = name(wanted);
        let before = crd_replacement::read(cluster, wanted).await.with_context(|| id.clone())?;
        let after = match write(cluster, wanted, DryRunMode::DryRun).await {
            Ok(after) => after,
            // The namespace or the kind of this object would be created by the same installation.
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

/// An object as text for a comparison.
fn text(object: &Object) -> anyhow::Result<String> {
    let mut object = object.clone();
    for field in SERVER_FIELDS {
        object.metadata_mut().remove(field);
    }
    object.fields_mut().remove("status");
    Ok(goyaml::emit::emit(&object.into_value())?)
}

/// The name of an object in progress messages.
pub(super) fn name(object: &Object) -> String {
    match object.namespace() {
        "" => format!("{}/{}", object.kind(), object.name()),
        namespace => format!("{}/{namespace}/{}", object.kind(), object.name()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_upgrade_tells_which_flags_it_drops() {
        let workload = |flags: &[&str]| {
            let container = json!({"name": "manager", "args": flags});
            Object::new(
                json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "w"},
                "spec": {"template": {"spec": {"containers": [container]}}}}),
            )
            .unwrap()
        };
        let found = workload(&[
            "serve",
            "--storage-path=/old",
            "--no-cross-namespace-refs",
            "--concurrent=9",
        ]);
        let wanted = workload(&["serve", "--storage-path=/data", "--concurrent=8"]);
        assert_eq!(lost_flags(&found, &wanted), ["--no-cross-namespace-refs"]);
        assert_eq!(lost_flags(&found, &found), [""; 0]);
    }
}
