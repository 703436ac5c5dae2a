//! `windlass migrate to-flux`: scales windlass to zero, and restores Flux to its recorded state.

use anyhow::bail;
use clap::Args as ClapArgs;
use crds::DependencyReference;
use objects::{Gvk, Object};
use reconcile::object_dependency::is_of_other_kind;
use tokio::time::Instant;

use super::super::check::OURS;
use super::super::cluster_operators::{self, ClusterOperators};
use super::super::install::name;
use super::migration_backup::MigrationBackup;
use super::{await_end, scale};
use windlass_cli_runtime::connection::{ProgressGlyph, WindlassConnectionFlags, block_on, say};
use windlass_cluster::object_pages::ObjectQuery;
use windlass_cluster::{ClusterConnection, ClusterError};

/// The flags of `windlass migrate to-flux`.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct MigrateToFluxArgs {
    #[command(flatten)]
    connection: WindlassConnectionFlags,
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
}

/// Migrates the cluster back to Flux.
///
/// # Errors
/// The cluster was not migrated from Flux, or something did not become ready in time.
pub(super) fn run(args: &MigrateToFluxArgs) -> anyhow::Result<()> {
    block_on(async {
        let (cluster, _) = args.connection.open().await?;
        let namespace = &args.connection.namespace;
        let Some(record) = MigrationBackup::load(&cluster, namespace).await? else {
            bail!(
                "windlass did not take over from Flux in namespace {namespace}, so nothing is known of what it replaced: \
                 name the namespace with -n, or `windlass uninstall` and `flux install`"
            );
        };
        let missing = record.missing(&cluster, namespace).await?;
        if !missing.is_empty() {
            bail!(
                "Flux cannot take over: {} of namespace {namespace} {} not exist any more. Nothing was changed; to go back, \
                 `windlass uninstall -n {namespace}`, then install Flux again as it was installed",
                missing.join(", "),
                if missing.len() == 1 { "does" } else { "do" },
            );
        }
        if let Some(other) =
            ClusterOperators::find(&cluster).await?.elsewhere(namespace).find(|it| it.is_active)
        {
            bail!(
                "windlass acts in namespace {}, too ({}), and must not act beside Flux: `windlass uninstall -n {}` first; \
                 nothing was changed",
                other.namespace,
                other.subject,
                other.namespace,
            );
        }
        let outside =
            cluster_operators::outside(&cluster, namespace, jiff::Timestamp::now()).await?;
        if let Some(holder) = outside.first() {
            bail!(
                "{holder} ({}), and is none of the Pods of windlass: stop that process first, or wait until then if it was \
                 killed, since Flux must not act meanwhile; nothing was changed",
                holder.term()
            );
        }
        let unknown = dependencies_unknown_to_flux(&cluster).await?;
        if !unknown.is_empty() {
            bail!(
                "Flux reads the name and the namespace of an entry of spec.dependsOn only, and would wait for another object: {}. \
                 Remove these entries first, or use kinds that Flux knows; nothing was changed",
                unknown.join("; ")
            );
        }
        let workloads = workloads(&cluster, namespace).await?;
        if workloads.is_empty() {
            let text =
                format!("windlass has no Deployment or StatefulSet in namespace {namespace}");
            say(ProgressGlyph::Warning, &text);
        }
        if args.dry_run {
            for workload in &workloads {
                say(ProgressGlyph::Action, &format!("{} would be scaled to zero", name(workload)));
            }
            say(ProgressGlyph::Action, "the controllers of Flux would be scaled to what they had");
            return Ok(());
        }
        let deadline = Instant::now() + args.connection.timeout;
        give_back(&cluster, namespace, &record, deadline).await?;
        say(ProgressGlyph::Success, &format!("Flux has taken over: {}", record.controllers()));
        if !workloads.is_empty() {
            let text = format!(
                "windlass is still installed, with no replicas: `windlass uninstall -n {namespace}` removes it; \
                 the CRDs are those of Flux, too, and stay"
            );
            say(ProgressGlyph::Action, &text);
        }
        Ok(())
    })
}

/// Scales windlass to zero, waits until its Pods are gone, and restores Flux.
///
/// # Errors
/// Something did not end or become ready in time.
pub(super) async fn give_back(
    cluster: &ClusterConnection,
    namespace: &str,
    record: &MigrationBackup,
    deadline: Instant,
) -> anyhow::Result<()> {
    let workloads = workloads(cluster, namespace).await?;
    for workload in &workloads {
        scale(cluster, workload, 0).await?;
    }
    await_end(cluster, &workloads, deadline).await?;
    record.restore(cluster, namespace, deadline).await
}

/// The maximum number of named objects whose dependencies Flux does not understand.
const MOST_NAMED: usize = 20;

/// The entries of `spec.dependsOn` that mean something else in Flux. They name other kinds, or they only require that an object
/// exists.
async fn dependencies_unknown_to_flux(cluster: &ClusterConnection) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    let kinds = [
        Gvk::new("kustomize.toolkit.fluxcd.io/v1", "Kustomization"),
        Gvk::new("helm.toolkit.fluxcd.io/v2", "HelmRelease"),
    ];
    for gvk in kinds {
        let resource = match cluster.resource(&gvk).await {
            Ok(resource) => resource,
            Err(ClusterError::NoSuchKind { .. }) => continue,
            Err(error) => return Err(error.into()),
        };
        let mut pages = cluster.object_pages(ObjectQuery::all(&resource));
        while let Some(page) = pages.next().await? {
            for object in &page.objects {
                found.extend(unknown_to_flux(object));
                if found.len() > MOST_NAMED {
                    found.truncate(MOST_NAMED);
                    found.push("and more".to_owned());
                    return Ok(found);
                }
            }
        }
    }
    Ok(found)
}

/// The entries of an object's `spec.dependsOn` that mean something else in Flux.
fn unknown_to_flux(object: &Object) -> Vec<String> {
    let Gvk { group, kind, .. } = object.gvk();
    let entries = object.get("spec").and_then(|it| it.get("dependsOn")?.as_array());
    let entries = entries.into_iter().flatten().enumerate();
    let unknown = entries.filter_map(|(at, entry)| {
        let entry: DependencyReference = serde_json::from_value(entry.clone()).ok()?;
        let named = entry.kind.as_deref();
        let own = [group.as_str(), kind.as_str()];
        let is_other = is_of_other_kind(own, entry.api_version.as_deref(), named).unwrap_or(true);
        // An entry with an expression means the same in Flux and windlass.
        let exists_only = entry.ready == Some(false) && entry.ready_expr.is_none();
        let what = named.filter(|_| is_other).unwrap_or("ready: false");
        (is_other || exists_only)
            .then(|| format!("{} has spec.dependsOn[{at}] ({what})", object.id().subject()))
    });
    unknown.collect()
}

/// The Deployments and StatefulSets of windlass in a namespace.
async fn workloads(cluster: &ClusterConnection, namespace: &str) -> anyhow::Result<Vec<Object>> {
    let mut found = Vec::new();
    for kind in ["Deployment", "StatefulSet"] {
        found.extend(cluster.list_of_kind(&Gvk::new("apps/v1", kind), namespace, OURS).await?);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn entries_that_flux_would_take_for_another_object_are_named() {
        let object = Object::new(
            json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": "app", "namespace": "shop"}, "spec": {"dependsOn": [
                {"name": "base"}, {"name": "same", "kind": "Kustomization", "ready": true},
                {"name": "db", "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease"},
                {"name": "late", "ready": false}]}}),
        )
        .unwrap();
        assert_eq!(
            unknown_to_flux(&object),
            [
                "Kustomization/shop/app has spec.dependsOn[2] (HelmRelease)",
                "Kustomization/shop/app has spec.dependsOn[3] (ready: false)"
            ]
        );
    }
}
