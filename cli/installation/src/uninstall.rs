//! `windlass uninstall`: removes windlass, and keeps the objects that windlass manages.
//!
//! All objects of windlass have its label, so every form of installation is uninstalled in the same way. A cluster-scoped
//! object is deleted only if its label names this installation.
//! Here: which objects are deleted, and in which order. Elsewhere: other active operators ([`super::cluster_operators`]).

use std::collections::BTreeSet;

use anyhow::{Context as _, bail};
use clap::Args as ClapArgs;
use objects::{Gvk, Object};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::check::OURS;
use super::cluster_operators::{ClusterOperators, FluxApiOperator};
use super::install::manifests::INSTALLATION;
use super::install::{MANAGER, POLL_INTERVAL, name};
use windlass_cli_runtime::connection::{
    ProgressGlyph, WindlassConnectionFlags, agrees, block_on, say,
};
use windlass_cluster::object_pages::ObjectQuery;
use windlass_cluster::{ClusterConnection, ClusterError};

/// The kinds of an installation, in the order of their deletion. Workloads come first.
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
/// The claims of a StatefulSet have only the labels of its selector.
const CLAIMS: &str = "app=windlass-controller";

/// The flags of `windlass uninstall`.
#[derive(Debug, Clone, ClapArgs)]
pub struct UninstallArgs {
    #[command(flatten)]
    connection: WindlassConnectionFlags,
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

/// Uninstalls windlass.
///
/// # Errors
/// Another operator is active, an object cannot be deleted, or the user did not confirm.
pub fn run(args: &UninstallArgs) -> anyhow::Result<()> {
    block_on(async {
        let (cluster, _) = args.connection.open().await?;
        uninstall(&cluster, args).await
    })
}

async fn uninstall(cluster: &ClusterConnection, args: &UninstallArgs) -> anyhow::Result<()> {
    let namespace = args.connection.namespace.as_str();
    let installation = WindlassInstallation::find(cluster, namespace).await?;
    if args.delete_crds || installation.own.is_empty() {
        let operators = ClusterOperators::find(cluster).await?;
        if args.delete_crds {
            ensure_no_other_operator(&operators, namespace)?;
        }
        installation.ensure_not_elsewhere(&operators, namespace)?;
    }
    installation.check(namespace)?;
    let definitions = if args.delete_crds { definitions(cluster).await? } else { Vec::new() };
    let deleted = installation.own.len();
    if deleted == 0 && definitions.is_empty() {
        let text = format!("windlass is not in namespace {namespace}: nothing to delete");
        say(ProgressGlyph::Warning, &text);
        return Ok(());
    }
    let held: usize = definitions.iter().map(|(_, held)| held.len()).sum();
    if !args.silent && !args.dry_run && !is_agreed(namespace, args.delete_crds.then_some(held))? {
        bail!("nothing was deleted");
    }
    for object in &installation.own {
        delete(cluster, object, args.dry_run).await?;
    }
    let definitions = if args.dry_run {
        definitions
    } else {
        await_end(cluster, args).await?;
        // windlass may have added finalizers until it ended, and others may have created objects.
        if args.delete_crds { self::definitions(cluster).await? } else { Vec::new() }
    };
    // The finalizers of objects without a controller would keep the objects, and so the CRDs, forever.
    for object in definitions.iter().flat_map(|(_, held)| held) {
        free(cluster, object, args.dry_run).await?;
    }
    for (definition, _) in &definitions {
        delete(cluster, definition, args.dry_run).await?;
    }
    if !args.dry_run {
        await_definitions(cluster, &definitions, args).await?;
        tell_end(args, deleted, definitions.len());
    }
    Ok(())
}

/// Waits until the CRDs that are being deleted are gone. The API server deletes their objects first.
async fn await_definitions(
    cluster: &ClusterConnection,
    definitions: &[(Object, Vec<Object>)],
    args: &UninstallArgs,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + args.connection.timeout;
    for (definition, _) in definitions {
        let id = name(definition);
        let resource = cluster.resource(&definition.gvk()).await?;
        let mut is_said = false;
        // A CRD that another client creates meanwhile is a different one.
        while let Some(found) = cluster.get(&resource, "", definition.name()).await?
            && found.uid() == definition.uid()
        {
            if Instant::now() >= deadline {
                bail!(
                    "{id} is still being deleted: its condition Terminating says what is in the way; run this again when it is \
                     gone"
                );
            }
            if !std::mem::replace(&mut is_said, true) {
                say(ProgressGlyph::Waiting, &format!("{id} is being deleted"));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
    Ok(())
}

/// Prints how many objects and CRDs `windlass uninstall` has deleted.
fn tell_end(args: &UninstallArgs, deleted: usize, definitions: usize) {
    let namespace = &args.connection.namespace;
    let text = match deleted {
        0 => {
            format!("windlass was not in namespace {namespace}; {definitions} CRD(s) were deleted")
        }
        count => format!(
            "windlass is uninstalled from namespace {namespace} ({count} object(s)); what it managed is unchanged"
        ),
    };
    say(ProgressGlyph::Success, &text);
    if !args.delete_crds {
        let text = "objects of its kinds stay, and finalizers keep those that are deleted now until windlass is \
                    installed again; --delete-crds removes them";
        say(ProgressGlyph::Warning, text);
    }
}

/// Asks the user whether to continue.
fn is_agreed(namespace: &str, held: Option<usize>) -> anyhow::Result<bool> {
    let what = match held {
        None => format!("Delete windlass in namespace {namespace}?"),
        Some(held) => format!(
            "Delete windlass in namespace {namespace}, its CRDs, and {held} object(s) of these kinds?"
        ),
    };
    agrees(&what)
}

/// Checks that only the installation in this namespace reconciles objects of these kinds. Another operator would notice the
/// deletion of an object and delete its applied objects.
///
/// # Errors
/// Another operator is active. The error names it.
fn ensure_no_other_operator(operators: &ClusterOperators, namespace: &str) -> anyhow::Result<()> {
    let is_other =
        |kind: FluxApiOperator, of: &str| kind != FluxApiOperator::Windlass || of != namespace;
    let mut others = operators.active().filter(|it| is_other(it.kind, &it.namespace));
    let Some(other) = others.next() else { return Ok(()) };
    let what = match other.kind {
        FluxApiOperator::Windlass => "windlass",
        FluxApiOperator::Flux(_) => "Flux",
    };
    bail!(
        "{what} acts on objects of these kinds in namespace {}: {}. With the CRDs it would delete what they manage; nothing \
         was deleted. Without --delete-crds the CRDs and their objects stay",
        other.namespace,
        other.subject
    )
}

/// The objects of windlass, except CRDs.
#[derive(Debug, Default)]
struct WindlassInstallation {
    /// The objects to delete.
    own: Vec<Object>,
    /// Cluster-scoped objects whose label names another installation or none.
    foreign: Vec<Object>,
}

impl WindlassInstallation {
    async fn find(cluster: &ClusterConnection, namespace: &str) -> anyhow::Result<Self> {
        let mut found = Self::default();
        for (api_version, kind) in KINDS {
            let gvk = Gvk::new(api_version, kind);
            let selector = if kind == "PersistentVolumeClaim" { CLAIMS } else { OURS };
            let listed = cluster.list_of_kind(&gvk, namespace, selector).await;
            found.sort(
                listed.with_context(|| format!("cannot list objects of kind {kind}"))?,
                namespace,
            );
        }
        Ok(found)
    }

    fn sort(&mut self, listed: Vec<Object>, namespace: &str) {
        let is_own = |object: &Object| {
            !object.namespace().is_empty() || object.label(INSTALLATION) == Some(namespace)
        };
        let (own, foreign): (Vec<_>, Vec<_>) = listed.into_iter().partition(is_own);
        self.own.extend(own);
        self.foreign.extend(foreign);
    }

    /// If this namespace contains nothing of windlass, checks that windlass is not in another namespace.
    ///
    /// # Errors
    /// windlass is in another namespace. The error names the command that removes it.
    fn ensure_not_elsewhere(
        &self,
        operators: &ClusterOperators,
        namespace: &str,
    ) -> anyhow::Result<()> {
        if !self.own.is_empty() {
            return Ok(());
        }
        let labelled = self.foreign.iter().find_map(|it| it.label(INSTALLATION));
        let running = operators.elsewhere(namespace).next().map(|it| it.namespace.as_str());
        let Some(other) = running.or(labelled) else { return Ok(()) };
        bail!(
            "windlass is not in namespace {namespace} but in {other}; nothing was deleted: `windlass uninstall -n {other}` \
             removes it"
        )
    }

    /// Checks that every cluster-scoped object names its installation.
    ///
    /// # Errors
    /// A cluster-scoped object names no installation, so it may belong to another one.
    fn check(&self, namespace: &str) -> anyhow::Result<()> {
        for object in &self.foreign {
            let Some(other) = object.label(INSTALLATION) else {
                bail!(
                    "{} has no label {INSTALLATION}, so it may belong to an installation in another namespace; nothing was \
                     deleted: `windlass install -n {namespace}` of this version labels those of the installation in \
                     {namespace}, then run this again",
                    name(object)
                );
            };
            say(
                ProgressGlyph::Warning,
                &format!("{} stays: it belongs to windlass in namespace {other}", name(object)),
            );
        }
        Ok(())
    }
}

/// The CRDs, each with its objects, which are deleted with the CRD.
async fn definitions(cluster: &ClusterConnection) -> anyhow::Result<Vec<(Object, Vec<Object>)>> {
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
            let objects = held_by(cluster, &gvk).await;
            let objects = objects.with_context(|| format!("cannot list {id}"))?;
            held.extend(objects.into_iter().filter(|object| seen.insert(object.uid().to_owned())));
        }
        found.push((definition, held));
    }
    Ok(found)
}

/// All objects of a kind, page by page, without specs and statuses.
async fn held_by(cluster: &ClusterConnection, gvk: &Gvk) -> Result<Vec<Object>, ClusterError> {
    let resource = match cluster.resource(gvk).await {
        Err(ClusterError::NoSuchKind { .. }) => return Ok(Vec::new()),
        found => found?,
    };
    let mut held = Vec::new();
    let mut from = None;
    loop {
        let part = cluster.list_part(ObjectQuery::all(&resource), from.as_deref()).await?;
        held.extend(part.objects.into_iter().map(|mut object| {
            for field in ["spec", "status"] {
                object.fields_mut().remove(field);
            }
            object.metadata_mut().remove("managedFields");
            object
        }));
        match part.next {
            Some(next) => from = Some(next),
            None => return Ok(held),
        }
    }
}

/// Waits until no Pod of windlass is running. With `--delete-crds`, waits until no operator is active.
async fn await_end(cluster: &ClusterConnection, args: &UninstallArgs) -> anyhow::Result<()> {
    let deadline = Instant::now() + args.connection.timeout;
    let pods = Gvk::new("v1", "Pod");
    let mut last_acting = None;
    loop {
        let running = cluster.list_of_kind(&pods, &args.connection.namespace, OURS).await?;
        let mut acting = running.first().map(|pod| format!("{} is still running", name(pod)));
        if acting.is_none() && args.delete_crds {
            let operators = ClusterOperators::find(cluster).await?;
            acting = operators.active().next().map(|it| it.subject.clone());
        }
        let Some(acting) = acting else { return Ok(()) };
        if Instant::now() >= deadline {
            bail!("{acting}; no CRD was deleted: run this again when it is gone");
        }
        if last_acting.as_ref() != Some(&acting) {
            say(ProgressGlyph::Waiting, &acting);
            last_acting = Some(acting);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn delete(cluster: &ClusterConnection, object: &Object, dry_run: bool) -> anyhow::Result<()> {
    let id = name(object);
    if dry_run {
        say(ProgressGlyph::Success, &format!("{id} would be deleted"));
        return Ok(());
    }
    let resource = cluster.resource(&object.gvk()).await?;
    cluster
        .delete_unmanaged(&resource, object.namespace(), object.name(), object.uid())
        .await
        .with_context(|| id.clone())?;
    say(ProgressGlyph::Success, &format!("{id} deleted"));
    Ok(())
}

/// Removes the finalizers from an object, so that its deletion deletes nothing else.
async fn free(cluster: &ClusterConnection, object: &Object, dry_run: bool) -> anyhow::Result<()> {
    let has = object.meta("finalizers").and_then(Value::as_array).is_some_and(|it| !it.is_empty());
    let id = name(object);
    if dry_run || !has {
        if dry_run {
            say(ProgressGlyph::Success, &format!("{id} would be deleted, without what it manages"));
        }
        return Ok(());
    }
    let resource = cluster.resource(&object.gvk()).await?;
    let patch = json!({"metadata": {"finalizers": null, "uid": object.uid()}});
    let patched =
        cluster.merge_patch(&resource, object.namespace(), object.name(), &patch, MANAGER).await;
    match patched {
        Err(error) if !error.is_not_found() => Err(error).with_context(|| id),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
