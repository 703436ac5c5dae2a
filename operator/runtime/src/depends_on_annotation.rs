//! Dependencies on any applier, from the annotation `windlass.dev/depends-on`: which objects it names, and whether they are
//! ready.
//!
//! Elsewhere: the syntax of the annotation (`reconcile::object_dependency`), dependencies in `spec.dependsOn`
//! (`dependency_gate.rs`), and waiting for both (the appliers).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apply::owner_labels_and_apply_annotations::{PRUNE, RECONCILE, SSA};
use apply::release_ownership::{POLICY, POLICY_KEEP};
use crds::{Applier, DependencyReference, ReconciledObject};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube_core::{Resource as _, ResourceExt as _};
use objects::{Gvk, Object};
use reconcile::object_dependency::{self, ObjectDependency};
use reconcile::{DependencyState, DependsOnEntry, ObjectKey, RunOutcome, Time, condition_reason};
use serde_json::Value;

use super::cross_kind_dependencies::check_entries;
use super::dropped_dependency_fields::check_dropped_fields;
use super::object_hold;
use windlass_cluster::object_store::TypeMap;
use windlass_cluster::object_watcher::OwnershipMarks;
use windlass_cluster::windlass_kind::WindlassKind;
use windlass_cluster::{ClusterConnection, ClusterError};

pub(crate) use reconcile::object_dependency::ANNOTATION as DEPENDS_ON;

/// A kind on whose objects other objects may depend. The type that runs the kind implements it.
pub trait DependableKind {
    /// The Kubernetes kind on whose objects other objects may depend.
    type Object: WindlassKind + ReconciledObject;

    /// The reason why a release of the object is not ready. `None` if it is ready.
    fn release_not_ready(_object: &Self::Object, _release: &str) -> Option<String> {
        Some(format!("a {} has no releases to depend on", Self::Object::kind(&())))
    }

    /// Whether the deletion of the object deletes no applied objects, because it applied none or they stay.
    fn leaves_objects(_object: &Self::Object) -> bool {
        false
    }
}

/// The effect of an object's deletion, and whether the deletion has begun.
pub(crate) struct DeletionState {
    /// Whether the deletion deletes applied objects, and some of them are left.
    pub(crate) removes_objects: bool,
    /// When the object was deleted.
    pub(crate) deleted_at: Option<Time>,
    /// The labels of the object, which name its owner.
    pub(crate) labels: BTreeMap<String, String>,
    /// Whether the object stays in the cluster when its owner is deleted.
    pub(crate) is_left_by_owner: bool,
}

/// Whether an object stays when its owner is deleted, because its author turned pruning off or lets Helm keep it.
fn is_left_by_owner<K: WindlassKind>(object: &K) -> bool {
    let mut marks = object.labels().iter().chain(object.annotations());
    marks.any(|(key, value)| {
        let kept = match key.as_str() {
            PRUNE | RECONCILE => "disabled",
            SSA => "ignore",
            POLICY => POLICY_KEEP,
            _ => return false,
        };
        value.eq_ignore_ascii_case(kept)
    })
}

impl DeletionState {
    fn of<K: DependableKind>(object: &K::Object) -> Self {
        let is_kept = object.finalizers().iter().any(|it| it == K::Object::FINALIZER);
        let is_suspended = object_hold::is_suspended(object, jiff::Timestamp::now());
        Self {
            removes_objects: is_kept && !is_suspended && !K::leaves_objects(object),
            deleted_at: object.meta().deletion_timestamp.as_ref().map(|it| it.0),
            labels: object.labels().clone(),
            is_left_by_owner: is_left_by_owner(object),
        }
    }
}

/// A read of an object that may not exist.
type DeletionStateFuture<'a> = BoxFuture<'a, Result<Option<DeletionState>, ClusterError>>;

struct DependableKindLookup {
    group: String,
    kind: String,
    find: fn(&TypeMap, &ObjectKey, Option<&str>) -> Option<DependencyState>,
    judge: fn(&Object) -> Result<(), String>,
    /// The API version of the kind.
    version: fn() -> String,
    ownership: OwnershipMarks,
    is_listed: fn(&TypeMap) -> bool,
    seen: fn(&TypeMap, &ObjectKey) -> Option<DeletionState>,
    read: for<'a> fn(&'a ClusterConnection, &'a ObjectKey) -> DeletionStateFuture<'a>,
}

/// The kinds on whose objects other objects may depend.
pub struct DependableKinds {
    kept: Arc<TypeMap>,
    kinds: Vec<DependableKindLookup>,
}

impl DependableKinds {
    /// An empty list of kinds. [`Self::add`] adds a kind.
    pub fn new(kept: Arc<TypeMap>) -> Self {
        Self { kept, kinds: Vec::new() }
    }

    /// Adds a kind, with the marks of the objects that it applies.
    pub fn add<K: DependableKind>(&mut self, ownership: OwnershipMarks) {
        let group = K::Object::group(&()).into_owned();
        let kind = K::Object::kind(&()).into_owned();
        self.kinds.push(DependableKindLookup {
            group,
            kind,
            find: found::<K>,
            judge: judged::<K>,
            version: || K::Object::api_version(&()).into_owned(),
            ownership,
            is_listed: |kept| kept.listed::<K::Object>().now_or_never() == Some(true),
            seen: |kept, node| {
                let object = kept.seen::<K::Object>(&node.namespace, &node.name)?;
                Some(DeletionState::of::<K>(&object))
            },
            read: |cluster, node| {
                async move {
                    let read = cluster.read::<K::Object>(&node.namespace, &node.name).await;
                    Ok(read?.map(|object| DeletionState::of::<K>(&object)))
                }
                .boxed()
            },
        });
    }

    fn of_node(&self, node: &ObjectKey) -> Option<&DependableKindLookup> {
        self.kinds.iter().find(|it| it.group == node.group && it.kind == node.kind)
    }

    /// The API version of an object's kind, without the group. `None` if no object can depend on this kind.
    pub(crate) fn version(&self, node: &ObjectKey) -> Option<String> {
        let api_version = (self.of_node(node)?.version)();
        Some(api_version.rsplit('/').next().unwrap_or_default().to_owned())
    }

    /// The effect of an object's deletion, from the object as a watch last saw it. `None` if no watch sees the object.
    pub(crate) fn removal(&self, node: &ObjectKey) -> Option<DeletionState> {
        (self.of_node(node)?.seen)(&self.kept, node)
    }

    /// The effect of an object's deletion, from a fresh read of the object.
    ///
    /// # Errors
    /// The API server refuses the request or does not respond.
    pub(crate) async fn read_removal(
        &self,
        cluster: &ClusterConnection,
        node: &ObjectKey,
    ) -> Result<Option<DeletionState>, ClusterError> {
        let Some(of) = self.of_node(node) else { return Ok(None) };
        (of.read)(cluster, node).await
    }

    /// Whether the objects of all kinds were listed. A kind that is not served counts as listed.
    ///
    /// # Errors
    /// The API server does not say whether a kind is served.
    pub(crate) async fn are_listed(
        &self,
        cluster: &ClusterConnection,
    ) -> Result<bool, ClusterError> {
        for of in self.kinds.iter().filter(|it| !(it.is_listed)(&self.kept)) {
            match cluster.resource(&Gvk::new(&(of.version)(), &of.kind)).await {
                Err(ClusterError::NoSuchKind { .. }) => {}
                Ok(_) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// The owners of an object with these labels.
    pub(crate) fn owners(&self, labels: &BTreeMap<String, String>) -> BTreeSet<ObjectKey> {
        let owner = |of: &DependableKindLookup| {
            let name = labels.get(of.ownership.name)?;
            let namespace = labels.get(of.ownership.namespace)?;
            Some(ObjectKey::new(&of.group, &of.kind, namespace, name))
        };
        self.kinds.iter().filter_map(owner).collect()
    }

    /// Whether other objects may depend on objects of this kind.
    pub fn has(&self, group: &str, kind: &str) -> bool {
        self.kinds.iter().any(|it| it.group == group && it.kind == kind)
    }

    /// Whether an object is ready, and why not. Every dependent uses the same rule. `None` if no object may depend on its
    /// kind.
    pub(crate) fn judge(&self, object: &Object) -> Option<Result<(), String>> {
        let Gvk { group, kind, .. } = object.gvk();
        let of = self.kinds.iter().find(|it| it.group == group && it.kind == kind)?;
        Some((of.judge)(object))
    }

    /// The dependencies that the annotation of an object names. With `is_blocked`, they must be in the namespace of the
    /// object.
    ///
    /// # Errors
    /// `dependsOn` is too long, or one of its entries cannot be used or has lost its kind. Or the annotation is invalid, names
    /// a kind on which no object may depend, or names a forbidden namespace.
    pub(crate) fn named_by<K: WindlassKind + Applier>(
        &self,
        object: &K,
        is_blocked: bool,
    ) -> Result<Vec<ObjectDependency>, RunOutcome> {
        check_length(object.depends_on())?;
        check_dropped_fields(object)?;
        check_entries(object, is_blocked)?;
        let Some(text) = object.annotations().get(DEPENDS_ON) else { return Ok(Vec::new()) };
        let own = object.namespace().unwrap_or_default();
        let wrong = |why: String| {
            RunOutcome::Stalled(
                condition_reason::INVALID_DEPENDENCY,
                format!("annotation {DEPENDS_ON}: {why}"),
            )
        };
        let all = object_dependency::parse(text, &own).map_err(wrong)?;
        for needed in &all {
            if self.kinds_of(needed).next().is_none() {
                let kinds: BTreeSet<&str> = self.kinds.iter().map(|it| it.kind.as_str()).collect();
                let kinds = kinds.into_iter().collect::<Vec<_>>().join(", ");
                return Err(wrong(format!("`{needed}`: the kind must be one of {kinds}")));
            }
            if is_blocked && needed.namespace != own {
                return Err(RunOutcome::Stalled(
                    condition_reason::ACCESS_DENIED,
                    format!(
                        "annotation {DEPENDS_ON}: can't access '{needed}': cross-namespace references have been \
                         blocked by --no-cross-namespace-refs; name an object of namespace {own}"
                    ),
                ));
            }
        }
        Ok(all)
    }

    /// The dependency graph nodes that a dependency may mean. There are several if kinds of several groups have the same name.
    pub fn nodes(&self, needed: &ObjectDependency) -> impl Iterator<Item = ObjectKey> {
        let ObjectDependency { namespace, name, .. } = needed;
        self.kinds_of(needed).map(|it| ObjectKey::new(&it.group, &it.kind, namespace, name))
    }

    fn kinds_of(&self, needed: &ObjectDependency) -> impl Iterator<Item = &DependableKindLookup> {
        self.kinds.iter().filter(|it| needed.may_be(&it.group, &it.kind))
    }

    /// The state of a dependency. If kinds of several groups have the same name, the first object that exists counts.
    pub fn state(&self, needed: &ObjectDependency) -> DependsOnEntry {
        let nodes: Vec<ObjectKey> = self.nodes(needed).collect();
        let mut states = self.kinds_of(needed).zip(&nodes).filter_map(|(of, node)| {
            let state = (of.find)(&self.kept, node, needed.part.as_deref())?;
            Some((node, state))
        });
        let shown = needed.to_string();
        match states.next() {
            Some((node, state)) => DependsOnEntry { node: node.clone(), shown, state },
            None => {
                let unknown = || ObjectKey::new("", &needed.kind, &needed.namespace, &needed.name);
                let node = nodes.first().cloned().unwrap_or_else(unknown);
                DependsOnEntry { node, shown, state: DependencyState::Missing }
            }
        }
    }
}

/// The entries of `dependsOn`. Empty if there are more than the limit.
pub fn depends_on<K: Applier>(object: &K) -> &[DependencyReference] {
    let all = object.depends_on();
    if check_length(all).is_ok() { all } else { &[] }
}

/// Differs(flux): Flux has no limit.
fn check_length(depends_on: &[DependencyReference]) -> Result<(), RunOutcome> {
    let count = depends_on.len();
    let most = object_dependency::MOST_DEPENDENCIES;
    if count <= most {
        return Ok(());
    }
    let text = format!(
        "spec.dependsOn has {count} entries, which is more than {most}; depend on an object that depends on some of them"
    );
    Err(RunOutcome::Stalled(condition_reason::INVALID_DEPENDENCY, text))
}

fn found<K: DependableKind>(
    kept: &TypeMap,
    node: &ObjectKey,
    part: Option<&str>,
) -> Option<DependencyState> {
    let object = kept.seen::<K::Object>(&node.namespace, &node.name)?;
    let why = match part {
        None => not_ready(&*object),
        Some(release) => K::release_not_ready(&object, release),
    };
    Some(why.map_or(DependencyState::Ready, DependencyState::NotReady))
}

fn judged<K: DependableKind>(object: &Object) -> Result<(), String> {
    let fields = Value::Object(object.fields().clone());
    // The error text of a field may contain its value.
    let object = serde_json::from_value::<K::Object>(fields)
        .map_err(|_| "its fields are not those that windlass knows".to_owned())?;
    not_ready(&object).map_or(Ok(()), Err)
}

/// The reason why an object is not ready. `None` if it is ready.
pub(crate) fn not_ready<K: WindlassKind + ReconciledObject>(other: &K) -> Option<String> {
    let generation = other.meta().generation.unwrap_or_default();
    let ready = other.condition("Ready");
    if other.observed_generation().unwrap_or(-1) != generation {
        // A failed run is known only by its condition.
        let failed =
            ready.filter(|it| it.status == "False" && it.observed_generation == Some(generation));
        let text = failed.map(|failed| shortened(&failed.message));
        return text.or_else(|| Some("its latest generation has not been applied".to_owned()));
    }
    match ready {
        None => Some("it has no status yet".to_owned()),
        Some(ready) if ready.status != "True" => Some(shortened(&ready.message)),
        Some(_) => None,
    }
}

/// The first 200 characters of another object's message.
pub fn shortened(text: &str) -> String {
    text.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use crds::helm::HelmRelease;
    use serde_json::json;

    use super::*;
    use crate::applier_run::announcement;

    fn release(text: &str) -> HelmRelease {
        serde_json::from_value(
            json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "metadata": {"name": "web", "namespace": "shop", "annotations": {DEPENDS_ON: text}},
            "spec": {"interval": "1m"}}),
        )
        .unwrap()
    }

    struct HelmReleaseTarget;

    impl DependableKind for HelmReleaseTarget {
        type Object = HelmRelease;
    }

    impl DependableKinds {
        fn of_releases() -> Self {
            let mut all = Self::new(Arc::default());
            let marks = OwnershipMarks { name: "name", namespace: "namespace", manager: "m" };
            all.add::<HelmReleaseTarget>(marks);
            all
        }
    }

    #[test]
    fn an_annotation_names_kinds_that_apply_and_its_own_namespace_where_others_are_blocked() {
        let all = DependableKinds::of_releases();
        let read = |text: &str, is_blocked| {
            all.named_by(&release(text), is_blocked).map_err(|outcome| outcome.text().to_owned())
        };
        assert_eq!(read("HelmRelease/db", true).unwrap()[0].to_string(), "HelmRelease/shop/db");
        assert_eq!(read("HelmRelease/other/db", false).unwrap().len(), 1);
        assert!(read("HelmRelease/other/db", true).unwrap_err().contains("--no-cross-namespace"));
        assert!(read("Secret/db", false).unwrap_err().contains("one of HelmRelease"));
        assert!(read("db", false).unwrap_err().contains("`db` is not KIND"));
    }

    #[test]
    fn depends_on_that_is_too_long_is_reported_and_makes_no_edges() {
        let all = DependableKinds::of_releases();
        let mut object = release("HelmRelease/db");
        for (count, is_taken) in [(64, true), (65, false), (1_000, false)] {
            let named = (0..count).map(|at| json!({"name": format!("r{at}")}));
            let named = named.map(|it| serde_json::from_value(it).unwrap());
            object.spec.depends_on = named.collect();
            assert_eq!(depends_on(&object).len(), if is_taken { count } else { 0 });
            let Err(outcome) = all.named_by(&object, false) else {
                assert!(is_taken, "{count}");
                continue;
            };
            assert!(
                matches!(outcome, RunOutcome::Stalled(condition_reason::INVALID_DEPENDENCY, _)),
                "{outcome:?}"
            );
            assert!(
                outcome.text().contains(&format!("{count} entries")) && !is_taken,
                "{outcome:?}"
            );
        }
    }

    #[test]
    fn what_has_failed_says_why_before_its_generation_counts_as_applied() {
        let of = |status: &str, generation: i64| {
            let mut other = release("");
            other.metadata.generation = Some(2);
            let ready = json!({"type": "Ready", "status": status, "reason": "HealthCheckFailed",
                "message": "timeout waiting for Job/shop/job", "observedGeneration": generation,
                "lastTransitionTime": "2026-11-24T11:00:00Z"});
            let status = json!({"observedGeneration": 1, "conditions": [ready]});
            other.status = serde_json::from_value(status).unwrap();
            (not_ready(&other), announcement(&other, None))
        };
        let unapplied = Some("its latest generation has not been applied".to_owned());
        let (failed, announced) = of("False", 2);
        assert_eq!(failed.as_deref(), Some("timeout waiting for Job/shop/job"));
        for (status, generation) in [("Unknown", 2), ("False", 1), ("True", 1)] {
            let (text, earlier) = of(status, generation);
            assert_eq!(text, unapplied, "{status} {generation}");
            assert_ne!(earlier, announced, "what depends on it is woken: {status} {generation}");
        }
    }

    #[test]
    fn an_object_that_was_read_is_ready_by_the_condition_of_its_newest_generation() {
        let all = DependableKinds::of_releases();
        let judge = |kind: &str, status: Value| {
            let object = json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": kind,
                "metadata": {"name": "db", "namespace": "shop", "generation": 2},
                "spec": {"interval": "1m"}, "status": status});
            all.judge(&Object::new(object).unwrap())
        };
        let status = |observed: i64, kinds: &[&str]| {
            let conditions = kinds.iter().map(|kind| {
                json!({"type": kind, "status": "True", "reason": "R", "message": "",
                "observedGeneration": observed, "lastTransitionTime": "2026-11-24T11:00:00Z"})
            });
            json!({"observedGeneration": observed, "conditions": conditions.collect::<Vec<_>>()})
        };
        assert_eq!(judge("HelmRelease", status(2, &["Ready"])), Some(Ok(())));
        let busy = judge("HelmRelease", status(2, &["Reconciling", "Ready"]));
        assert_eq!(busy, Some(Ok(())), "a run under way does not make it unready, as in dependsOn");
        for unready in [json!({}), status(1, &["Ready"])] {
            assert!(judge("HelmRelease", unready).is_some_and(|it| it.is_err()));
        }
        assert_eq!(judge("Widget", json!({})), None);
    }

    #[test]
    fn what_is_not_there_is_missing_under_its_own_name() {
        let all = DependableKinds::of_releases();
        let needed = all.named_by(&release("HelmRelease/db#x"), false).unwrap();
        let state = all.state(&needed[0]);
        assert_eq!(state.state, DependencyState::Missing);
        assert_eq!(state.shown, "HelmRelease/shop/db#x");
        assert_eq!(state.node, all.nodes(&needed[0]).next().unwrap());
    }
}
