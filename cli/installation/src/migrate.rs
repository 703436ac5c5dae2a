//! `windlass migrate`: replaces Flux in a cluster, and can restore Flux later. It also converts objects of other operators.
//!
//! Objects, their statuses and their applied objects stay as they are, because windlass serves the same kinds. Only the running
//! controllers change. Before that, windlass records in the cluster what it needs to change them back.
//!
//! Below: the installation of Flux and obstacles (`flux_installation`), its flags (`flags`), deletions that windlass would hold
//! (`deletion_budget_preview`), the recorded state (`migration_backup`).
//! Also below: the check for unexpected writes (`unexpected_write_check`), objects that are left after an undo
//! (`objects_left_after_undo`), the two directions (`from_flux`, `to_flux`), objects of other operators (`convert`), folders
//! with helmfiles (`from_helmfile`).

mod controller_flags;
mod convert;
mod deletion_budget_preview;
mod flux_installation;
mod from_flux;
mod from_helmfile;
mod migration_backup;
mod objects_left_after_undo;
mod to_flux;
mod unexpected_write_check;

use anyhow::bail;
use clap::{Args as ClapArgs, Subcommand};
use objects::{Gvk, Object};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::install::{MANAGER, POLL_INTERVAL, name};
use windlass_cli_runtime::connection::{ProgressGlyph, say};
use windlass_cluster::ClusterConnection;

/// The flags of `windlass migrate`.
#[derive(Debug, Clone, ClapArgs)]
pub struct MigrateArgs {
    #[command(subcommand)]
    direction: MigrationDirection,
}

#[derive(Debug, Clone, Subcommand)]
enum MigrationDirection {
    /// Scale Flux's controllers to zero and install windlass in their place
    FromFlux(from_flux::MigrateFromFluxArgs),
    /// Scale windlass to zero and Flux's controllers back to what they were
    ToFlux(to_flux::MigrateToFluxArgs),
    /// Print what Applications of Argo CD become: sources with Kustomizations and HelmReleases
    FromArgocd(convert::MigrateFromOperatorArgs),
    /// Print what HelmReleases of the Helm operator become: HelmReleases that adopt their releases
    FromHelmOperator(convert::MigrateFromOperatorArgs),
    /// Print what a folder with a helmfile becomes: a source with Helmfiles that adopt the releases
    FromHelmfile(from_helmfile::MigrateFromHelmfileArgs),
    /// Print what Helmfiles of helmfile-operator become: Helmfiles that adopt their releases
    FromHelmfileOperator(convert::MigrateFromOperatorArgs),
}

/// Migrates a cluster.
///
/// # Errors
/// Something prevents the migration, or an object did not become ready. The message says what was undone.
pub fn run(args: &MigrateArgs) -> anyhow::Result<()> {
    match &args.direction {
        MigrationDirection::FromFlux(args) => from_flux::run(args),
        MigrationDirection::ToFlux(args) => to_flux::run(args),
        MigrationDirection::FromArgocd(args) => convert::run(args, &convert::argocd::OPERATOR),
        MigrationDirection::FromHelmOperator(args) => {
            convert::run(args, &convert::helm_operator::OPERATOR)
        }
        MigrationDirection::FromHelmfile(args) => from_helmfile::run(args),
        MigrationDirection::FromHelmfileOperator(args) => {
            convert::run(args, &convert::helmfile_operator::OPERATOR)
        }
    }
}

/// Sets the desired number of replicas of a workload.
async fn scale(
    cluster: &ClusterConnection,
    workload: &Object,
    replicas: i64,
) -> anyhow::Result<()> {
    let resource = cluster.resource(&workload.gvk()).await?;
    let patch = json!({"spec": {"replicas": replicas}});
    cluster.merge_patch(&resource, workload.namespace(), workload.name(), &patch, MANAGER).await?;
    say(ProgressGlyph::Success, &format!("{} scaled to {replicas}", name(workload)));
    Ok(())
}

/// Waits until these workloads have no Pods, so they can no longer change anything.
async fn await_end(
    cluster: &ClusterConnection,
    workloads: &[Object],
    deadline: Instant,
) -> anyhow::Result<()> {
    for workload in workloads {
        let selector = selector(workload);
        let pods = Gvk::new("v1", "Pod");
        let mut is_printed = false;
        while let Some(pod) =
            cluster.list_of_kind(&pods, workload.namespace(), &selector).await?.first()
        {
            if Instant::now() >= deadline {
                bail!("{} is still running", name(pod));
            }
            if !is_printed {
                say(ProgressGlyph::Waiting, &format!("{} ends", name(pod)));
                is_printed = true;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
    Ok(())
}

/// The label selector with which a workload finds its Pods.
fn selector(workload: &Object) -> String {
    let labels = workload.get("spec").map(|spec| &spec["selector"]["matchLabels"]);
    let labels = labels.and_then(Value::as_object).into_iter().flatten();
    let pairs = labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    pairs.collect::<Vec<_>>().join(",")
}
