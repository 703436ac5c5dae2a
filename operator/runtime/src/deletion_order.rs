//! Deletes appliers in the order of their dependencies. An object that is being deleted waits until its dependents are gone,
//! even if they are of another kind.
//!
//! Here: which dependents an object waits for, reads of dependents, and going on without them. Elsewhere: the dependencies
//! (`applier_run/finalization_needs.rs`, `reconcile::deletion_order`), and the order within one Kustomization (crate
//! `kustomize-controller`).
//!
//! Differs(flux): Flux finalizes objects in any order, so that a ServiceAccount or an operator is gone before what needs it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crds::ReconciledObject;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use kube_core::ResourceExt as _;
use objects::{Gvk, ObjectId};
use reconcile::deletion_order::{
    DELETION_OVERDUE, DependentFacts, DependentWait, SKIP_ORDER, waiting_text,
};
use reconcile::{DependencyEdge, NextRunTrigger, ObjectKey, RunOutcome, Time, condition_reason};
use serde_json::json;

use super::controller_kind::node_of;
use super::depends_on_annotation::{DeletionState, DependableKinds};
use super::freeze::REFUSED_BY_POLICY;
use super::run_context::RunContext;
use windlass_cluster::ClusterError;
use windlass_cluster::events::{EventSeverity, ObjectEvent};
use windlass_cluster::windlass_kind::WindlassKind;

/// The field manager of the annotation on an overdue dependent. The dry run that checks the admission policy uses it, too.
const MANAGER: &str = "windlass";

/// The most awaited and overdue dependents that are named, watched and marked. Further ones are found when these are gone.
pub const MAX_NAMED_DEPENDENTS: usize = 10;

/// How many dependents are read at once.
const READS_AT_ONCE: usize = 8;

/// How many levels of owners are followed.
const MAX_ANCESTOR_DEPTH: usize = 8;

/// How soon windlass checks again whether all objects were listed.
const LISTING_PAUSE: Duration = Duration::from_secs(1);

/// The dependents of an object that still exist.
#[derive(Default)]
struct RemainingDependents {
    /// The dependents that the object waits for. Some may be missing if there are many.
    awaited: BTreeSet<ObjectKey>,
    /// The dependents for which the waiting time is over. Some may be missing if there are many.
    overdue: BTreeSet<ObjectKey>,
}

impl RemainingDependents {
    fn add(&mut self, node: &ObjectKey, wait: DependentWait) {
        let known = match wait {
            DependentWait::NotAwaited => return,
            DependentWait::Awaited => &mut self.awaited,
            DependentWait::Overdue => &mut self.overdue,
        };
        if known.len() < MAX_NAMED_DEPENDENTS {
            known.insert(node.clone());
        }
    }
}

/// The objects that apply an object: its owners.
pub struct ApplierAncestors {
    /// The owners that are being deleted together with everything that they applied.
    removers: BTreeSet<ObjectKey>,
    /// The direct and indirect owners. They are deleted after the object.
    ancestors: BTreeSet<ObjectKey>,
}

impl ApplierAncestors {
    /// The owners of the object `node` with these labels.
    pub fn new(
        targets: &DependableKinds,
        node: &ObjectKey,
        labels: &BTreeMap<String, String>,
    ) -> Self {
        // An object that applies itself deletes others only after its wait.
        let removes = |owner: &ObjectKey| {
            let removal = targets.removal(owner).filter(|_| owner != node);
            removal.is_some_and(|it| it.removes_objects && it.deleted_at.is_some())
        };
        let mut next = targets.owners(labels);
        let removers = next.iter().filter(|owner| removes(owner)).cloned().collect();
        let mut ancestors = BTreeSet::new();
        for _ in 0..MAX_ANCESTOR_DEPTH {
            let mut further = BTreeSet::new();
            for owner in next {
                let removal = targets.removal(&owner).filter(|_| !ancestors.contains(&owner));
                further.extend(removal.map(|it| targets.owners(&it.labels)).unwrap_or_default());
                ancestors.insert(owner);
            }
            next = further;
        }
        Self { removers, ancestors }
    }

    /// Whether a dependent is being deleted, or will be deleted by the same owner that deletes this object.
    fn is_leaving(&self, targets: &DependableKinds, removal: &DeletionState) -> bool {
        let owners = || targets.owners(&removal.labels);
        let is_removed = !self.removers.is_empty() && !removal.is_left_by_owner;
        removal.deleted_at.is_some() || (is_removed && !owners().is_disjoint(&self.removers))
    }
}

/// The search for the dependents of an object that is being deleted.
struct DependentSearch<'a> {
    context: &'a RunContext,
    /// The object that is being deleted.
    node: &'a ObjectKey,
    /// How long ago its deletion began.
    since: Duration,
    owners: ApplierAncestors,
}

impl DependentSearch<'_> {
    fn wait(
        &self,
        dependent: &ObjectKey,
        removes_objects: bool,
        is_leaving: bool,
    ) -> DependentWait {
        let is_of_same_namespace = dependent.namespace == self.node.namespace;
        let facts = DependentFacts { removes_objects, is_leaving, is_of_same_namespace };
        facts.wait(self.since, self.context.settings.reverse_delete_timeout)
    }

    async fn find(
        &self,
        dependents: Vec<Arc<ObjectKey>>,
    ) -> Result<RemainingDependents, ClusterError> {
        let mut remaining = RemainingDependents::default();
        let mut staying = Vec::new();
        for dependent in dependents {
            if self.owners.ancestors.contains(&*dependent) {
                continue;
            }
            let Some(removal) = self.context.dependencies.removal(&dependent) else { continue };
            if self.owners.is_leaving(&self.context.dependencies, &removal) {
                remaining.add(&dependent, self.wait(&dependent, removal.removes_objects, true));
            } else if removal.removes_objects
                && self.wait(&dependent, true, true) == DependentWait::Awaited
            {
                staying.push(dependent);
            }
            if remaining.awaited.len() >= MAX_NAMED_DEPENDENTS {
                return Ok(remaining);
            }
        }
        // Watches of several kinds are not in step, so a dependent may have been deleted without a watch event yet. That does
        // not matter while another dependent is awaited.
        if remaining.awaited.is_empty() {
            self.read(&staying, &mut remaining).await?;
        }
        Ok(remaining)
    }

    /// Reads dependents that were not being deleted when a watch last saw them.
    async fn read(
        &self,
        staying: &[Arc<ObjectKey>],
        remaining: &mut RemainingDependents,
    ) -> Result<(), ClusterError> {
        let cluster = &self.context.cluster;
        let namespaces: BTreeSet<&str> = staying.iter().map(|it| it.namespace.as_str()).collect();
        let mut ending = BTreeSet::new();
        for namespace in namespaces {
            let id = ObjectId::new("", namespace, "", "Namespace");
            let object = cluster.get_by_id(&id, "v1").await?;
            let is_ending = object
                .is_some_and(|it| it.meta("deletionTimestamp").is_some_and(|at| !at.is_null()));
            if is_ending {
                ending.insert(namespace);
            }
        }
        let targets = &self.context.dependencies;
        let read = |dependent: &Arc<ObjectKey>| {
            let dependent = dependent.clone();
            async move {
                let removal = targets.read_removal(cluster, &dependent).await?;
                Ok::<_, ClusterError>((dependent, removal))
            }
        };
        let reads: Vec<_> = staying.iter().map(read).collect();
        let mut reads = stream::iter(reads).buffer_unordered(READS_AT_ONCE);
        while let Some((dependent, removal)) = reads.try_next().await? {
            let Some(removal) = removal else { continue };
            let is_ending = ending.contains(dependent.namespace.as_str());
            let is_leaving =
                is_ending || self.owners.is_leaving(&self.context.dependencies, &removal);
            let wait = self.wait(&dependent, removal.removes_objects, is_leaving);
            remaining.add(&dependent, wait);
            if remaining.awaited.len() >= MAX_NAMED_DEPENDENTS {
                break;
            }
        }
        Ok(())
    }
}

/// How long ago a time was. Zero if it is in the future.
pub fn age(at: Time) -> Duration {
    Duration::try_from(jiff::Timestamp::now().duration_since(at)).unwrap_or_default()
}

fn running(text: String, pause: Duration) -> RunOutcome {
    let at = jiff::Timestamp::now().saturating_add(pause).unwrap_or(Time::MAX);
    RunOutcome::Running(condition_reason::AWAITING_DEPENDENTS, text, NextRunTrigger::at(at))
}

/// The wait of a deleted object for its dependents. `None` if it may be finalized. The end of a dependent wakes the object.
///
/// # Errors
/// A dependent or its namespace cannot be read. Then nothing may be concluded.
pub async fn hold<K: WindlassKind + ReconciledObject>(
    context: &RunContext,
    object: &K,
) -> Result<Option<RunOutcome>, ClusterError> {
    let Some(deleted_at) = object.meta().deletion_timestamp.as_ref() else { return Ok(None) };
    if !context.dependencies.are_listed(&context.cluster).await? {
        let text = "Waiting until all objects that may depend on this one are listed".to_owned();
        return Ok(Some(running(text, LISTING_PAUSE)));
    }
    let node = node_of(object);
    let dependents = context.work_queue.dependents(&node);
    if dependents.is_empty() {
        return Ok(None);
    }
    let owners = ApplierAncestors::new(&context.dependencies, &node, object.labels());
    let search = DependentSearch { context, node: &node, since: age(deleted_at.0), owners };
    let RemainingDependents { awaited, overdue } = search.find(dependents).await?;
    context.work_queue.set_edges(&node, DependencyEdge::Waits, awaited.clone());
    if awaited.is_empty() {
        for dependent in &overdue {
            go_past(context, object, dependent).await;
        }
        return Ok(None);
    }
    let is_asked = object.annotations().contains_key(SKIP_ORDER);
    if is_asked && skips_order(context, object).await? {
        return Ok(None);
    }
    let pause = context.settings.requeue_dependency;
    let limit = context.settings.reverse_delete_timeout;
    let left = limit.checked_sub(search.since).filter(|left| !left.is_zero());
    // A dependent that was gone before the watch began causes no wake.
    let is_gone = |it: &ObjectKey| context.dependencies.removal(it).is_none();
    let pause = if awaited.iter().any(is_gone) { Duration::ZERO } else { pause };
    let text = waiting_text(&awaited, awaited.len() >= MAX_NAMED_DEPENDENTS, is_asked);
    Ok(Some(running(text, left.map_or(pause, |left| left.min(pause)))))
}

/// An object that deletes an applied object without a windlass finalizer, and may have to wait for its dependents.
pub struct DependentWaiter<'a> {
    /// The object that deletes the applied object.
    pub node: &'a ObjectKey,
    /// The owners of that object.
    pub owners: &'a ApplierAncestors,
    /// How long that object has waited for dependents. A later dependent does not start the wait again.
    pub waited: Duration,
}

impl DependentWaiter<'_> {
    /// Whether a dependent of the deleted object has to be gone before.
    pub fn wait_for(&self, context: &RunContext, dependent: &ObjectKey) -> DependentWait {
        // The owners of the waiting object are deleted after it.
        if dependent == self.node || self.owners.ancestors.contains(dependent) {
            return DependentWait::NotAwaited;
        }
        let Some(removal) = context.dependencies.removal(dependent) else {
            return DependentWait::NotAwaited;
        };
        let facts = DependentFacts {
            removes_objects: removal.removes_objects,
            is_leaving: self.owners.is_leaving(&context.dependencies, &removal),
            is_of_same_namespace: dependent.namespace == self.node.namespace,
        };
        let since = removal.deleted_at.map(age).unwrap_or_default().max(self.waited);
        facts.wait(since, context.settings.reverse_delete_timeout)
    }
}

/// Whether the deletion of an object also deletes the objects that it applied, so that other objects wait for it.
pub fn removes_objects(context: &RunContext, node: &ObjectKey) -> bool {
    context.dependencies.removal(node).is_some_and(|it| it.removes_objects)
}

/// Reports that an object no longer waits for a dependent of another namespace that is still being deleted. The dependent gets
/// an annotation, so that there is an incident until it is gone.
pub async fn go_past<K: WindlassKind + ReconciledObject>(
    context: &RunContext,
    object: &K,
    dependent: &ObjectKey,
) {
    let node = node_of(object);
    let ObjectKey { kind, namespace, name, .. } = &node;
    let limit = reconcile::format_duration(context.settings.reverse_delete_timeout);
    let message = format!(
        "{dependent} depends on this object and is still being deleted after {limit} (--reverse-delete-timeout); what this object \
         applied is deleted now, which may keep {dependent} from ending"
    );
    tracing::warn!(controller_kind = kind, name, namespace, "{message}");
    announce(context, object, EventSeverity::Error, "DependentNotDeleted", message);
    // A tenant could keep the dependent from being annotated. That does not hold the object.
    if let Err(error) = mark_overdue(context, dependent, &node).await {
        tracing::warn!("{dependent}: the annotation {DELETION_OVERDUE} cannot be set: {error}");
    }
}

async fn mark_overdue(
    context: &RunContext,
    dependent: &ObjectKey,
    held: &ObjectKey,
) -> Result<(), ClusterError> {
    let ObjectKey { group, kind, namespace, name } = dependent;
    let id = ObjectId::new(namespace, name, group, kind);
    let cluster = &context.cluster;
    let version = context.dependencies.version(dependent).unwrap_or_default();
    let Some(object) = cluster.get_by_id(&id, &version).await? else { return Ok(()) };
    let resource = cluster.resource(&object.gvk()).await?;
    cluster.annotate(&resource, &object, DELETION_OVERDUE, &held.to_string(), MANAGER).await
}

/// Whether a user who has the right skips the wait of an object for its dependents. Only the admission policy lets the
/// annotation count. A dry run proves that the policy is in force: windlass sets the annotation, and must be refused as a
/// ServiceAccount.
///
/// # Errors
/// The API server does not respond.
pub async fn skips_order<K: WindlassKind + ReconciledObject>(
    context: &RunContext,
    object: &K,
) -> Result<bool, ClusterError> {
    let Some(why) = object.annotations().get(SKIP_ORDER) else { return Ok(false) };
    let node = node_of(object);
    let gvk = Gvk::new(&K::api_version(&()), &K::kind(&()));
    let resource = context.cluster.resource(&gvk).await?;
    let value = "whether the admission policy is in force";
    let patch = json!({"metadata": {"annotations": {SKIP_ORDER: value}}});
    let ObjectKey { namespace, name, .. } = &node;
    let tried = context.cluster.try_merge_patch(&resource, namespace, name, &patch, MANAGER).await;
    match tried {
        Err(error) if error.code() == Some(REFUSED_BY_POLICY) => {}
        Err(error) if error.is_transient() => return Err(error),
        // Any other refusal proves nothing.
        Ok(_) | Err(_) => return Ok(false),
    }
    let why: String = why.chars().take(200).collect();
    let message = format!("objects that depend on this one are not awaited ({SKIP_ORDER}): {why}");
    tracing::info!(controller_kind = node.kind, name, namespace, "{message}");
    announce(context, object, EventSeverity::Info, "OrderSkipped", message);
    Ok(true)
}

fn announce<K: WindlassKind + ReconciledObject>(
    context: &RunContext,
    object: &K,
    severity: EventSeverity,
    reason: &str,
    message: String,
) {
    let metadata = BTreeMap::new();
    let event = ObjectEvent { severity, reason: reason.to_owned(), message, metadata };
    context.events.announce(object, K::CONTROLLER, event);
}

#[cfg(test)]
mod tests {
    use crds::helm::HelmRelease;
    use serde_json::Value;
    use windlass_cluster::object_watcher::OwnershipMarks;

    use super::*;
    use crate::depends_on_annotation::DependableKind;
    use windlass_cluster::object_store::TypeMap;

    struct HelmReleaseTarget;

    impl DependableKind for HelmReleaseTarget {
        type Object = HelmRelease;
    }

    fn node(name: &str) -> ObjectKey {
        ObjectKey::new("helm.toolkit.fluxcd.io", "HelmRelease", "shop", name)
    }

    /// A HelmRelease with the labels of the owner that applies it, deleted or not.
    fn release(name: &str, owner: &str, is_deleted: bool, annotations: Value) -> HelmRelease {
        let mut metadata = json!({"name": name, "namespace": "shop", "annotations": annotations,
            "finalizers": [HelmRelease::FINALIZER], "labels": {"name": owner, "namespace": "shop"}});
        if is_deleted {
            metadata["deletionTimestamp"] = "2026-01-02T03:04:05Z".into();
        }
        let object = json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "metadata": metadata, "spec": {"interval": "1m"}});
        serde_json::from_value(object).unwrap()
    }

    /// For each name, whether that object will be deleted when `of` is.
    fn leaving(all: Vec<HelmRelease>, of: &str, names: &[&str]) -> Vec<bool> {
        let kept = Arc::new(TypeMap::default());
        let labels = all.iter().find(|it| it.name_any() == of).unwrap().labels().clone();
        kept.list(all);
        let mut targets = DependableKinds::new(kept);
        let marks = OwnershipMarks { name: "name", namespace: "namespace", manager: "m" };
        targets.add::<HelmReleaseTarget>(marks);
        let owners = ApplierAncestors::new(&targets, &node(of), &labels);
        let is_leaving =
            |name: &&str| owners.is_leaving(&targets, &targets.removal(&node(name)).unwrap());
        names.iter().map(is_leaving).collect()
    }

    #[test]
    fn an_object_that_applies_itself_does_not_wait_for_what_it_is_yet_to_delete() {
        let all = vec![
            release("root", "root", true, json!({})),
            release("child", "root", false, json!({})),
            release("other", "absent", true, json!({})),
        ];
        assert_eq!(leaving(all, "root", &["child", "other"]), [false, true]);
    }

    #[test]
    fn what_a_deleted_owner_deletes_is_awaited_and_what_it_leaves_is_not() {
        let kept = json!({"kustomize.toolkit.fluxcd.io/prune": "Disabled"});
        let all = vec![
            release("root", "absent", true, json!({})),
            release("base", "root", true, json!({})),
            release("app", "root", false, json!({})),
            release("kept", "root", false, kept),
        ];
        assert_eq!(leaving(all, "base", &["app", "kept"]), [true, false]);
    }
}
