//! `windlass uninstall`: takes windlass away and keeps what it manages.
//!
//! What belongs to windlass is what has its label, so every form of installation is uninstalled the same way.

use std::collections::BTreeSet;

use anyhow::{Context as _, bail};
use clap::Args as ClapArgs;
use objects::{Gvk, Object};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::check::OURS;
use super::connection::{Connection, Mark, agrees, block_on, say};
use super::install::{MANAGER, POLL, name};
use crate::cluster::Cluster;

/// What an installation consists of, in the order in which it is deleted: first what acts.
const KINDS: [(&str, &str); 13] = [
    ("apps/v1", "Deployment"),
    ("apps/v1", "StatefulSet"),
    ("policy/v1", "PodDisruptionBudget"),
    ("v1", "Service"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("v1", "ResourceQuota"),
    ("v1", "PersistentVolumeClaim"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("v1", "ServiceAccount"),
    ("v1", "ConfigMap"),
];

/// The flags of `windlass uninstall`.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct Args {
    #[command(flatten)]
    connection: Connection,
    /// Also delete the CRDs, and with them every object of these kinds; what they manage stays
    #[arg(long)]
    delete_crds: bool,
    /// Ask nothing
    #[arg(short, long)]
    silent: bool,
    /// Only say what would be deleted
    #[arg(long)]
    dry_run: bool,
}

/// Uninstalls.
///
/// # Errors
/// Something cannot be deleted, or nobody agreed.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    block_on(async {
        let (cluster, _) = args.connection.open().await?;
        let namespace = &args.connection.namespace;
        let installed = installed(&cluster, namespace).await?;
        let definitions = if args.delete_crds { definitions(&cluster).await? } else { Vec::new() };
        if installed.is_empty() && definitions.is_empty() {
            say(
                Mark::Success,
                &format!("windlass is not in namespace {namespace}: nothing to delete"),
            );
            return Ok(());
        }
        let held: usize = definitions.iter().map(|(_, held)| held.len()).sum();
        if !args.silent && !args.dry_run && !is_agreed(namespace, args.delete_crds.then_some(held))?
        {
            bail!("nothing was deleted");
        }
        for object in &installed {
            delete(&cluster, object, args.dry_run).await?;
        }
        if !args.dry_run {
            await_end(&cluster, args).await?;
        }
        // The finalizers of objects whose controller is gone would keep them, and the CRDs, forever.
        for object in definitions.iter().flat_map(|(_, held)| held) {
            free(&cluster, object, args.dry_run).await?;
        }
        for (definition, _) in &definitions {
            delete(&cluster, definition, args.dry_run).await?;
        }
        if args.dry_run {
            return Ok(());
        }
        say(Mark::Success, "windlass is uninstalled; what it managed is unchanged");
        if !args.delete_crds {
            let text = "objects of its kinds stay, and finalizers keep those that are deleted now until windlass is \
                        installed again; --delete-crds removes them";
            say(Mark::Warning, text);
        }
        Ok(())
    })
}

/// Asks whether to go on.
fn is_agreed(namespace: &str, held: Option<usize>) -> anyhow::Result<bool> {
    let what = match held {
        None => format!("Delete windlass in namespace {namespace}?"),
        Some(held) => format!(
            "Delete windlass in namespace {namespace}, its CRDs, and {held} object(s) of these kinds?"
        ),
    };
    agrees(&what)
}

/// What belongs to windlass, but for CRDs.
async fn installed(cluster: &Cluster, namespace: &str) -> anyhow::Result<Vec<Object>> {
    let mut found = Vec::new();
    for (api_version, kind) in KINDS {
        let gvk = Gvk::new(api_version, kind);
        let listed = cluster.list_of_kind(&gvk, namespace, OURS).await;
        found.extend(listed.with_context(|| format!("cannot list objects of kind {kind}"))?);
    }
    Ok(found)
}

/// The CRDs, each with the objects that go with it.
async fn definitions(cluster: &Cluster) -> anyhow::Result<Vec<(Object, Vec<Object>)>> {
    let gvk = Gvk::new("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let resource = cluster.resource(&gvk).await?;
    let mut found = Vec::new();
    for (_, crd) in crds::all() {
        let id = crd.metadata.name.clone().unwrap_or_default();
        let Some(definition) = cluster.get(&resource, "", &id).await? else { continue };
        let spec = &crd.spec;
        let mut held = Vec::new();
        let mut seen = BTreeSet::new();
        for version in spec.versions.iter().filter(|version| version.served) {
            let gvk = Gvk::new(&format!("{}/{}", spec.group, version.name), &spec.names.kind);
            let objects = cluster
                .list_of_kind(&gvk, "", "")
                .await
                .with_context(|| format!("cannot list {id}"))?;
            held.extend(objects.into_iter().filter(|object| seen.insert(object.uid().to_owned())));
        }
        found.push((definition, held));
    }
    Ok(found)
}

/// Waits until nothing of windlass runs that could still act.
async fn await_end(cluster: &Cluster, args: &Args) -> anyhow::Result<()> {
    let deadline = Instant::now() + args.connection.timeout;
    let pods = Gvk::new("v1", "Pod");
    loop {
        let running = cluster.list_of_kind(&pods, &args.connection.namespace, OURS).await?;
        let Some(pod) = running.first() else { return Ok(()) };
        if Instant::now() >= deadline {
            bail!("{} is still running; run this again when it is gone", name(pod));
        }
        tokio::time::sleep(POLL).await;
    }
}

async fn delete(cluster: &Cluster, object: &Object, dry_run: bool) -> anyhow::Result<()> {
    let id = name(object);
    if dry_run {
        say(Mark::Success, &format!("{id} would be deleted"));
        return Ok(());
    }
    let resource = cluster.resource(&object.gvk()).await?;
    cluster
        .delete(&resource, object.namespace(), object.name(), object.uid())
        .await
        .with_context(|| id.clone())?;
    say(Mark::Success, &format!("{id} deleted"));
    Ok(())
}

/// Takes the finalizers from an object, so that its deletion deletes nothing else.
async fn free(cluster: &Cluster, object: &Object, dry_run: bool) -> anyhow::Result<()> {
    let has = object.meta("finalizers").and_then(Value::as_array).is_some_and(|it| !it.is_empty());
    let id = name(object);
    if dry_run || !has {
        if dry_run {
            say(Mark::Success, &format!("{id} would be deleted, without what it manages"));
        }
        return Ok(());
    }
    let resource = cluster.resource(&object.gvk()).await?;
    let patch = json!({"metadata": {"finalizers": null, "uid": object.uid()}});
    let at = (object.namespace(), object.name());
    let patched = cluster.merge_patch(&resource, at, &patch, MANAGER).await;
    match patched {
        Err(error) if !error.is_not_found() => Err(error).with_context(|| id),
        _ => Ok(()),
    }
}
