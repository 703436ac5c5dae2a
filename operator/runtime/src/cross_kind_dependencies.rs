//! Dependencies of other kinds in `spec.dependsOn`. They are read for a run, and watched so that a change wakes the object.
//!
//! They are read from windlass's own cluster, in the name of the user that applies the object. The watches have windlass's
//! identity and only tell when to read again. Elsewhere: dependencies of the same kind and the conclusions
//! (`dependency_gate`), and which entries name another kind (`reconcile::object_dependency`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use apply::health::dependency_readiness;
use crds::{Applier, DependencyReference};
use futures::FutureExt as _;
use futures::future::join_all;
use kube_core::ResourceExt as _;
use objects::{Gvk, Object, ObjectId};
use reconcile::object_dependency::is_of_other_kind;
use reconcile::{DependencyState, ObjectKey, RunOutcome, condition_reason};
use serde_json::{Map, Value};

use super::cluster_target::{ClusterTarget, TargetSpec};
use super::controller_kind::node_named;
use super::dependency_gate::{asked, has_expression, named};
use super::depends_on_annotation::{depends_on, shortened};
use super::run_context::RunContext;
use windlass_cluster::ClusterError;
use windlass_cluster::crd_watch::kinds_of;
use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::object_watcher::{RunReferenceRead, WatchMoment};
use windlass_cluster::rbac_watch::rights;
use windlass_cluster::resource_version::{LATEST_VERSION, of_metadata};
use windlass_cluster::run_permits::RunPermits;
use windlass_cluster::unresponsive_kinds::UnresponsiveKinds;
use windlass_cluster::windlass_kind::WindlassKind;
use windlass_expressions::RunExpressions;

/// The time limit of one read of a dependency. A dead aggregated API server may keep requests for long.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// The longest name of an object that a message repeats.
const MAX_NAME_LENGTH: usize = 253;

/// How many requests about dependencies are under way at once. All requests to an API server share one connection with about
/// 100 streams, and a server that does not respond blocks them.
const REQUESTS_AT_ONCE: usize = 32;

/// How many of these requests are about one API group.
const MAX_REQUESTS_PER_GROUP: usize = 8;

/// How many dependencies of one namespace are judged at once. This bounds the objects in memory.
const MAX_JUDGED_PER_NAMESPACE: usize = 4;

/// The request limits that all runs share.
struct DependencyRequestLimits {
    of_namespaces: RunPermits,
    /// The permits of each API group. The group takes the place of the namespace.
    of_groups: RunPermits,
    silent: UnresponsiveKinds,
}

impl Default for DependencyRequestLimits {
    fn default() -> Self {
        Self {
            of_namespaces: RunPermits::shared(usize::MAX, MAX_JUDGED_PER_NAMESPACE),
            of_groups: RunPermits::shared(REQUESTS_AT_ONCE, MAX_REQUESTS_PER_GROUP),
            silent: UnresponsiveKinds::default(),
        }
    }
}

/// The result for a dependency of another kind. The object itself is dropped, because 64 of them may be large.
pub(crate) struct CrossKindDependency {
    /// The state of the dependency.
    pub(crate) state: DependencyState,
    /// The read of the object, for its watch. `None` if another watch wakes the dependent, or none can.
    pub(crate) reference: Option<RunReferenceRead>,
    /// The dependency graph nodes whose change may change the result, for a CRD or for rights.
    pub(crate) nodes: BTreeSet<ObjectKey>,
    /// The namespace of the dependency. Empty for cluster-scoped kinds.
    pub(crate) namespace: String,
    /// Whether the API server gave no answer. No event reports that, so the dependency is read again soon.
    pub(crate) is_unknown: bool,
}

/// The group, version and kind of a dependency of another kind than `K`. `None` if it is of the same kind or cannot be read.
fn other_kind<K: WindlassKind>(entry: &DependencyReference) -> Option<Gvk> {
    is_other::<K>(entry).ok().filter(|is_other| *is_other)?;
    Some(Gvk::new(entry.api_version.as_deref()?, entry.kind.as_deref()?))
}

/// Whether an entry of `dependsOn` names an object of another kind than `K`.
///
/// # Errors
/// The reason why the entry names no kind.
pub(crate) fn is_other<K: WindlassKind>(entry: &DependencyReference) -> Result<bool, String> {
    let kind = entry.kind.as_deref();
    is_of_other_kind([&K::group(&()), &K::kind(&())], entry.api_version.as_deref(), kind)
}

/// The dependency graph node of a dependency, for an object in the namespace `own`. `None` if the entry cannot be read.
pub fn node_of_entry<K: WindlassKind>(entry: &DependencyReference, own: &str) -> Option<ObjectKey> {
    let (namespace, name) = named(entry, own);
    if !is_other::<K>(entry).ok()? {
        return Some(node_named::<K>(namespace, name));
    }
    let Gvk { group, kind, .. } = other_kind::<K>(entry)?;
    Some(ObjectKey::new(&group, &kind, namespace, name))
}

/// Checks the entries of `dependsOn` that name objects of other kinds. With `is_blocked`, they must be cluster-scoped or in
/// the object's own namespace.
///
/// # Errors
/// An entry names no kind, is too long, or names another namespace although that is not allowed.
pub(crate) fn check_entries<K: WindlassKind + Applier>(
    object: &K,
    is_blocked: bool,
) -> Result<(), RunOutcome> {
    let own = object.namespace().unwrap_or_default();
    for (at, entry) in object.depends_on().iter().enumerate() {
        let wrong = |why: String| {
            RunOutcome::Stalled(
                condition_reason::INVALID_DEPENDENCY,
                format!("spec.dependsOn[{at}]: {why}"),
            )
        };
        if !is_other::<K>(entry).map_err(wrong)? {
            continue;
        }
        let (namespace, name) = named(entry, &own);
        if name.is_empty() {
            return Err(wrong("name is empty".to_owned()));
        }
        if name.len() > MAX_NAME_LENGTH || namespace.len() > MAX_NAME_LENGTH {
            return Err(wrong(format!("no object has a name of over {MAX_NAME_LENGTH} bytes")));
        }
        if is_blocked && namespace != own {
            let kind = entry.kind.as_deref().unwrap_or_default();
            return Err(RunOutcome::Stalled(
                condition_reason::ACCESS_DENIED,
                format!(
                    "spec.dependsOn[{at}]: can't access '{kind}/{namespace}/{name}': cross-namespace references have been \
                     blocked by --no-cross-namespace-refs; name an object of namespace {own}"
                ),
            ));
        }
    }
    Ok(())
}

/// The dependency graph nodes for CRDs and rights that may change while the dependencies are read. An object that waits for
/// them first misses no change.
pub(crate) fn may_change_answers<K: WindlassKind + Applier>(
    object: &K,
    own: &str,
) -> BTreeSet<ObjectKey> {
    let others = depends_on(object).iter().filter_map(|entry| {
        let group = other_kind::<K>(entry)?.group;
        Some([kinds_of(&group), rights("", named(entry, own).0), rights("", "")])
    });
    others.flatten().collect()
}

/// An entry of `dependsOn` that names an object of another kind.
struct WantedDependency<'a> {
    entry: &'a DependencyReference,
    /// The position of the entry in `dependsOn`.
    at: usize,
    gvk: Gvk,
    /// Whether its kind is one of windlass's appliers. Then it has to be ready unless the entry says otherwise.
    is_applier: bool,
}

/// Reads all dependencies of other kinds. `None` for an entry of the same kind.
///
/// # Errors
/// There is no user in whose name they could be read.
pub(crate) async fn look_up<K: WindlassKind + Applier>(
    context: &RunContext,
    own: &ObjectKey,
    object: &Arc<K>,
    expressions: &RunExpressions,
) -> Result<Vec<Option<CrossKindDependency>>, RunOutcome> {
    let wanted = depends_on(&**object).iter().enumerate().map(|(at, entry)| {
        let gvk = other_kind::<K>(entry)?;
        let is_applier = context.dependencies.has(&gvk.group, &gvk.kind);
        Some(WantedDependency { entry, at, gvk, is_applier })
    });
    let wanted: Vec<Option<WantedDependency<'_>>> = wanted.collect();
    if wanted.iter().all(Option::is_none) {
        return Ok(wanted.iter().map(|_| None).collect());
    }
    let own = &own.namespace;
    // Dependencies are always in windlass's own cluster, whichever cluster the spec names.
    let user = TargetSpec::new(&context.settings, own, None, object.service_account_name());
    let target = context.targets.at_home(&user)?;
    let shown = match user.service_account {
        Some(name) => format!("ServiceAccount '{own}/{name}'"),
        None => "windlass".to_owned(),
    };
    let requests = context.shared::<DependencyRequestLimits>();
    let reader = DependencyReader { context, own, object, expressions, target, shown, requests };
    let judged = wanted.into_iter().map(|wanted| {
        let reader = &reader;
        async move { Some(reader.judge(&wanted?).await) }.boxed()
    });
    Ok(join_all(judged).await)
}

/// The answer about a dependency, before it is judged.
struct DependencyAnswer {
    found: Result<Object, DependencyState>,
    resource: Option<ApiResourceLocation>,
    since: WatchMoment,
    nodes: BTreeSet<ObjectKey>,
    namespace: String,
    is_unknown: bool,
}

/// Reads the dependencies of one run.
struct DependencyReader<'a, K> {
    context: &'a RunContext,
    /// The namespace of the object.
    own: &'a str,
    object: &'a Arc<K>,
    expressions: &'a RunExpressions,
    target: Arc<ClusterTarget>,
    /// The user in whose name they are read, for messages.
    shown: String,
    requests: Arc<DependencyRequestLimits>,
}

impl<K: WindlassKind> DependencyReader<'_, K> {
    async fn judge(&self, wanted: &WantedDependency<'_>) -> CrossKindDependency {
        let _permit = self.requests.of_namespaces.acquire(self.own).await;
        let DependencyAnswer { found, resource, since, nodes, namespace, is_unknown } =
            self.read(wanted).await;
        let WantedDependency { entry, gvk, is_applier, .. } = wanted;
        let version = found.as_ref().ok().map(|it| it.get("metadata").map_or(0, of_metadata));
        let state = match found {
            Ok(object) => self.state(wanted, &object).await,
            Err(state) => state,
        };
        // Appliers wake their dependents through the graph. If the user may not read the object, nothing wakes. A kind that is
        // not served cannot be watched.
        let watched = resource.filter(|it| !is_applier && it.watchable && nodes.is_empty());
        // A satisfied dependency may change at any rate without effect, so only its deletion wakes.
        let version = if state == DependencyState::Ready { Some(LATEST_VERSION) } else { version };
        let id = ObjectId::new(&namespace, &entry.name, &gvk.group, &gvk.kind);
        let reference = watched.map(|resource| RunReferenceRead { resource, id, version, since });
        CrossKindDependency { state, reference, nodes, namespace, is_unknown }
    }

    async fn read(&self, wanted: &WantedDependency<'_>) -> DependencyAnswer {
        let WantedDependency { entry, gvk, .. } = wanted;
        let (namespace, name) = named(entry, self.own);
        let _permit = self.requests.of_groups.acquire(&gvk.group).await;
        let mut answer = DependencyAnswer {
            found: Err(DependencyState::Missing),
            resource: None,
            since: self.context.watcher.before_reading(),
            nodes: BTreeSet::new(),
            namespace: namespace.to_owned(),
            is_unknown: false,
        };
        let resource = match self.within_limit(gvk, self.context.cluster.resource(gvk)).await {
            Ok(resource) => resource,
            Err(error) => {
                answer.is_unknown = !matches!(error, ClusterError::NoSuchKind { .. });
                answer.found = Err(failed(&error, gvk, &mut answer.nodes));
                return answer;
            }
        };
        if !resource.namespaced {
            answer.namespace.clear();
        }
        let asked = self.target.cluster.get(&resource, &answer.namespace, name);
        answer.found = match self.within_limit(gvk, asked).await {
            Ok(Some(found)) => Ok(found),
            Ok(None) if !self.target.is_impersonated() => Err(DependencyState::Missing),
            Ok(None) => Err(DependencyState::MissingOrForbidden(self.shown.clone())),
            Err(error) if error.code() == Some(403) => {
                self.target.follow_rights(&self.context.work_queue);
                let places = [answer.namespace.as_str(), ""];
                answer.nodes.extend(places.map(|it| rights(self.target.place(), it)));
                Err(DependencyState::MissingOrForbidden(self.shown.clone()))
            }
            Err(error) => {
                answer.is_unknown = !matches!(error, ClusterError::NoSuchKind { .. });
                Err(failed(&error, gvk, &mut answer.nodes))
            }
        };
        answer.resource = Some(resource);
        answer
    }

    /// The answer of the API server, or an error if it takes too long.
    async fn within_limit<T>(
        &self,
        gvk: &Gvk,
        asked: impl Future<Output = Result<T, ClusterError>> + Send,
    ) -> Result<T, ClusterError> {
        let silent = &self.requests.silent;
        if !silent.has(gvk, Instant::now()) {
            if let Ok(answer) = tokio::time::timeout(ANSWER_LIMIT, asked).await {
                return answer;
            }
            // Only an aggregated API server counts as silent. The API server's own kinds are slow only for a user whom it
            // throttles.
            if gvk.group.contains('.') {
                silent.add(gvk, Instant::now());
            }
        }
        let seconds = ANSWER_LIMIT.as_secs();
        Err(ClusterError::NoAnswer(format!("no response within {seconds} s")))
    }

    /// The state of a dependency that exists.
    async fn state(&self, wanted: &WantedDependency<'_>, object: &Object) -> DependencyState {
        let WantedDependency { entry, at, .. } = wanted;
        let said = if has_expression(entry) {
            let fields = visible_to_expressions(object);
            self.expressions.readiness_of(self.object, *at, fields).await
        } else {
            None
        };
        if let Some(state) = asked(said, self.context.settings.ready_expr_is_additive()) {
            return state;
        }
        if !has_to_be_ready(entry, wanted.is_applier) {
            return DependencyState::Ready;
        }
        let judged = self.context.dependencies.judge(object);
        let judged = judged.unwrap_or_else(|| dependency_readiness(object, jiff::Timestamp::now()));
        judged.map_or_else(
            |why| DependencyState::NotReady(shortened(&why)),
            |()| DependencyState::Ready,
        )
    }
}

/// The state of a dependency after a failed read. If its kind is not served, `nodes` gets the dependency graph node of its
/// group.
fn failed(error: &ClusterError, gvk: &Gvk, nodes: &mut BTreeSet<ObjectKey>) -> DependencyState {
    if matches!(error, ClusterError::NoSuchKind { .. }) {
        nodes.insert(kinds_of(&gvk.group));
        return DependencyState::NotReady(error.to_string());
    }
    DependencyState::NotReady(format!("it cannot be read: {}", shortened(&error.to_string())))
}

/// Whether an entry requires a ready object. Otherwise its existence is enough.
///
/// Differs(flux): by its open proposal another kind never has to be ready by default; here kinds that apply objects do,
/// because their existence says nothing about what they apply.
fn has_to_be_ready(entry: &DependencyReference, is_applier: bool) -> bool {
    entry.ready.unwrap_or(is_applier)
}

/// The object as `readyExpr` sees it, without the data of a Secret. Results and errors of the expression are in a status,
/// which more users may read than the Secret.
fn visible_to_expressions(object: &Object) -> Map<String, Value> {
    let mut fields = object.fields().clone();
    if object.api_version() != "v1" || object.kind() != "Secret" {
        return fields;
    }
    fields.remove("data");
    fields.remove("stringData");
    if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("annotations");
    }
    fields
}

#[cfg(test)]
mod tests {
    use crds::kustomize::Kustomization;
    use serde_json::json;

    use super::*;

    fn kustomization(depends_on: &Value) -> Kustomization {
        serde_json::from_value(json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": "app", "namespace": "shop"},
            "spec": {"interval": "10m", "prune": true, "dependsOn": depends_on,
                "sourceRef": {"kind": "GitRepository", "name": "r"}},
        }))
        .unwrap()
    }

    fn object(value: Value) -> Object {
        Object::new(value).unwrap()
    }

    #[test]
    fn entries_lead_to_nodes_of_their_own_kind_or_of_the_kind_that_they_name() {
        let entries = json!([{"name": "a"}, {"name": "b", "namespace": "far", "kind": "Kustomization"},
            {"name": "c", "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease"},
            {"name": "d", "kind": "HelmRelease"}]);
        let object = kustomization(&entries);
        let nodes = object.spec.depends_on.iter();
        let nodes =
            nodes.map(|it| node_of_entry::<Kustomization>(it, "shop").map(|it| it.to_string()));
        assert_eq!(
            nodes.collect::<Vec<_>>(),
            [
                Some("Kustomization/shop/a".to_owned()),
                Some("Kustomization/far/b".to_owned()),
                Some("HelmRelease/shop/c".to_owned()),
                None,
            ]
        );
    }

    #[test]
    fn what_is_wrong_with_an_entry_is_reported_with_its_place() {
        let check = |entry: Value, is_blocked| {
            let object = kustomization(&json!([{"name": "a", "namespace": "far"}, entry]));
            check_entries(&object, is_blocked).map_err(|outcome| outcome.text().to_owned())
        };
        let secret = |namespace: &str| json!({"apiVersion": "v1", "kind": "Secret", "name": "s", "namespace": namespace});
        assert_eq!(check(secret("far"), false), Ok(()));
        assert_eq!(check(secret("shop"), true), Ok(()));
        let blocked = check(secret("far"), true).unwrap_err();
        assert!(
            blocked.contains("'Secret/far/s'") && blocked.contains("spec.dependsOn[1]"),
            "{blocked}"
        );
        let kind = check(json!({"name": "s", "kind": "Secret"}), false).unwrap_err();
        assert!(kind.contains("needs apiVersion"), "{kind}");
        let nameless = json!({"apiVersion": "v1", "kind": "Secret", "name": ""});
        assert!(check(nameless, false).unwrap_err().contains("name is empty"));
        let long = json!({"apiVersion": "v1", "kind": "Secret", "name": "x".repeat(100_000)});
        assert!(check(long, false).unwrap_err().len() < 1_000);
    }

    #[test]
    fn kinds_that_apply_have_to_be_ready_and_others_to_exist_unless_an_entry_says_otherwise() {
        let entry = |ready: Option<bool>| DependencyReference { ready, ..Default::default() };
        for (is_applier, ready, expected) in [
            (true, None, true),
            (true, Some(false), false),
            (false, None, false),
            (false, Some(true), true),
        ] {
            assert_eq!(has_to_be_ready(&entry(ready), is_applier), expected);
        }
    }

    #[test]
    fn what_brings_a_kind_or_rights_is_awaited_for_entries_of_other_kinds_only() {
        let same = kustomization(&json!([{"name": "a"}, {"name": "b", "kind": "Kustomization"}]));
        assert_eq!(may_change_answers(&same, "shop"), BTreeSet::new());
        let widget =
            json!({"name": "w", "apiVersion": "acme.io/v1", "kind": "Widget", "namespace": "far"});
        let awaited = may_change_answers(&kustomization(&json!([widget])), "shop");
        assert_eq!(
            awaited,
            BTreeSet::from([kinds_of("acme.io"), rights("", "far"), rights("", "")])
        );
    }

    #[tokio::test]
    async fn a_group_that_does_not_respond_leaves_requests_to_others() {
        let requests = DependencyRequestLimits::default();
        let mut held = Vec::new();
        for _ in 0..MAX_REQUESTS_PER_GROUP {
            held.push(requests.of_groups.acquire("metrics.k8s.io").await);
        }
        let next = tokio::time::timeout(
            Duration::from_millis(20),
            requests.of_groups.acquire("metrics.k8s.io"),
        );
        assert!(next.await.is_err(), "the group has what it may have");
        held.push(requests.of_groups.acquire("").await);
        for number in 0..100 {
            held.push(requests.of_namespaces.acquire(&format!("tenant-{number}")).await);
        }
    }

    #[test]
    fn an_expression_does_not_see_what_a_secret_holds() {
        let secret = object(json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": "s", "labels": {"a": "b"}, "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "{\"data\":{\"p\":\"aHVudGVyMg==\"}}"}},
            "data": {"p": "aHVudGVyMg=="}}));
        let seen = Value::Object(visible_to_expressions(&secret));
        assert!(!seen.to_string().contains("aHVudGVyMg"), "{seen}");
        assert_eq!(
            (&seen["type"], &seen["metadata"]["labels"]["a"]),
            (&json!("Opaque"), &json!("b"))
        );
        let map =
            object(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"},
            "data": {"p": "1"}}));
        assert_eq!(visible_to_expressions(&map)["data"]["p"], "1");
    }
}
