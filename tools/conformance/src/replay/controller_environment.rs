//! The environment that a controller needs to run one object: a cluster with the objects of a case, storage, and
//! recorded events.
//!
//! The crate `fake-cluster` is the API server, and the crate `windlass-runtime` has the parts of the environment.
//! `controller_run_comparison` compares runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use artifacts::store::{ArtifactStore, StoreOptions};
use crds::source::{Bucket, ExternalArtifact, GitRepository, HelmChart, OCIRepository};
use crds::windlass_release::{ClusterStagedRollout, StagedRollout};
use parking_lot::Mutex;
use serde_json::{Value, json};
use source_controller::external_artifact::ExternalArtifactController;
use source_controller::source::SourceController;
use tempfile::TempDir;
use windlass_cluster::events::{
    EventDistributor, EventObject, EventRecord, EventSeverity, EventSink, ObjectEvent,
};
use windlass_cluster::metrics::MetricsRegistry;
use windlass_cluster::namespace_policies::{self, NamespacePolicies};
use windlass_cluster::object_store::TypeMap;
use windlass_cluster::object_watcher::ObjectWatcher;
use windlass_cluster::run_permits::RunPermits;
use windlass_cluster::windlass_kind::WindlassKind;
use windlass_cluster::work_queue::WorkQueue;
use windlass_runtime::cluster_target::ClusterTargets;
use windlass_runtime::controller_kind::ControllerKind;
use windlass_runtime::depends_on_annotation::DependableKinds;
use windlass_runtime::egress_policy::EgressPolicy;
use windlass_runtime::freeze;
use windlass_runtime::http_clients::RemoteClients;
use windlass_runtime::lifecycle::known_quarantines;
use windlass_runtime::lifecycle::watched_object_cache::WatchedObjectCache;
use windlass_runtime::run_context::RunContext;
use windlass_runtime::source_catalog::SourceCatalog;
use windlass_serve::settings::OperatorSettings;

use super::case::CaseFailure;

/// The stack of the runtime's threads, on which controllers block.
const STACK_BYTES: usize = 16 << 20;

/// How many permits each sort of work has.
const PERMIT_COUNT: usize = 4;

/// The kinds that every API server has. A case may have no object of them.
const SERVED_KINDS: [(&str, &str); 3] =
    [("v1", "Secret"), ("v1", "ServiceAccount"), ("v1", "ConfigMap")];

/// The host of recorded artifacts.
const STORE_HOST: &str = "store.example";

/// The reason of an event that the replay sends after all events of a run.
const LAST_EVENT: &str = "LastEventOfReplay";

/// How long the replay waits for events: the length of a step, and the number of steps.
const EVENT_WAIT: Duration = Duration::from_millis(2);
const MAX_EVENT_WAITS: usize = 5000;

/// Runs the work of a case on its own runtime.
///
/// # Errors
/// The error of the work.
pub(super) fn on_runtime<T>(
    work: impl Future<Output = anyhow::Result<T>>,
) -> Result<T, CaseFailure> {
    let unusable = |error: anyhow::Error| CaseFailure::Mismatch {
        wanted: "a run".to_owned(),
        got: format!("{error:#}"),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_stack_size(STACK_BYTES)
        .enable_all()
        .build()
        .map_err(|error| unusable(error.into()))?;
    let outcome = runtime.block_on(work);
    // An unanswered request keeps its thread until its timeout, so the runtime does not wait for it.
    runtime.shutdown_background();
    outcome.map_err(unusable)
}

/// Records events in the form of Kubernetes.
struct EventRecorder(Arc<Mutex<Vec<Value>>>);

impl EventSink for EventRecorder {
    const NAME: &'static str = "replay";
    const TAKES_POSTED: bool = false;

    async fn tell(&mut self, record: &EventRecord, _is_last: bool) {
        let event = &record.event;
        let severity = match event.severity {
            EventSeverity::Info => "Normal",
            EventSeverity::Error => "Warning",
        };
        let kept = json!({"type": severity, "reason": event.reason, "message": event.message});
        self.0.lock().push(kept);
    }
}

/// A cluster with objects, and the context in which a controller runs one of them.
pub(super) struct ControllerEnvironment {
    pub(super) context: Arc<RunContext>,
    objects: Arc<Mutex<Vec<Value>>>,
    events: Arc<Mutex<Vec<Value>>>,
    /// The folder with the artifacts.
    pub(super) folder: TempDir,
}

impl ControllerEnvironment {
    /// An operator with these flags at a cluster with these objects.
    ///
    /// # Errors
    /// A flag is not valid, or no folder can be made.
    pub(super) async fn start(flags: &[&str], objects: Vec<Value>) -> anyhow::Result<Self> {
        let objects = Arc::new(Mutex::new(with_kinds(objects)));
        let cluster = fake_cluster::with_patched_objects(objects.clone()).await;
        let settings =
            OperatorSettings::from_flags(&[flags, &["--allow-loopback-sources"][..]].concat())?;
        let folder = tempfile::tempdir()?;
        let advertised = STORE_HOST.to_owned();
        // The store keeps no artifact in memory, so a file that a case deletes is gone.
        let options = StoreOptions { advertised, cache_bytes: 0, ..StoreOptions::default() };
        let artifacts = Arc::new(ArtifactStore::open(folder.path(), options)?);
        let metrics = MetricsRegistry::new();
        let work_queue = Arc::new(WorkQueue::new(metrics.clone()));
        let kept = Arc::new(TypeMap::default());
        let watcher = ObjectWatcher::new(cluster.clone(), work_queue.clone(), BTreeMap::new());
        let advertised = artifacts.advertised().to_owned();
        let egress_policy = EgressPolicy::new(&settings, cluster.clone(), advertised);
        let remotes = RemoteClients::within(&egress_policy.rules);
        let budgets = remotes.budgets.clone();
        let targets =
            ClusterTargets::new(&settings, &watcher, work_queue.clone(), budgets, metrics.clone());
        let events = Arc::new(EventDistributor::new("replay", metrics.clone()));
        let recorded = Arc::new(Mutex::new(Vec::new()));
        events.add(EventRecorder(recorded.clone()));
        let context = Arc::new(RunContext {
            building: RunPermits::new(PERMIT_COUNT),
            reaching: RunPermits::new(PERMIT_COUNT),
            fetching: RunPermits::new(PERMIT_COUNT),
            asking: RunPermits::new(PERMIT_COUNT),
            settings,
            work_queue,
            targets,
            watcher,
            artifacts,
            events,
            metrics,
            remotes,
            sources: sources(kept.clone()),
            dependencies: DependableKinds::new(kept.clone()),
            kept,
            cluster,
        });
        let known = context.shared::<NamespacePolicies>();
        let work_queue = context.work_queue.clone();
        tokio::spawn(namespace_policies::follow(context.cluster.clone(), work_queue, known));
        freeze::assume_none(&context);
        known_quarantines::assume_none(&context);
        context.shared::<WatchedObjectCache<StagedRollout>>().assume_none();
        context.shared::<WatchedObjectCache<ClusterStagedRollout>>().assume_none();
        Ok(Self { context, objects, events: recorded, folder })
    }

    /// An object as the API server has it. It is null if there is no object of this kind and name.
    pub(super) fn object(&self, like: &Value) -> Value {
        let objects = self.objects.lock();
        objects.iter().find(|it| is_same(it, like)).cloned().unwrap_or_default()
    }

    /// All objects as the API server has them.
    pub(super) fn objects(&self) -> Vec<Value> {
        self.objects.lock().clone()
    }

    /// Runs an object once, and returns when it has to run again.
    ///
    /// # Errors
    /// The object does not match its kind.
    pub(super) async fn run<K: ControllerKind>(
        &self,
        like: &Value,
    ) -> Result<Option<Duration>, serde_json::Error> {
        let object: K::Object = serde_json::from_value(self.object(like))?;
        Ok(K::run(Arc::new(object), self.context.clone()).await)
    }

    /// Creates an object, or replaces the one with the same name. With `keeps_status`, the new object gets the old
    /// status.
    pub(super) fn put(&self, mut object: Value, keeps_status: bool) {
        let mut objects = self.objects.lock();
        let count = objects.len();
        let Some(former) = objects.iter_mut().find(|it| is_same(it, &object)) else {
            identify(&mut object, count);
            objects.push(object);
            return;
        };
        object["metadata"]["uid"] = former["metadata"]["uid"].clone();
        object["metadata"]["resourceVersion"] = next_version(former);
        if keeps_status {
            object["status"] = former["status"].clone();
        }
        *former = object;
    }

    /// Removes the objects of a kind with this name.
    pub(super) fn remove(&self, kind: &str, name: &str) {
        self.objects.lock().retain(|it| it["kind"] != kind || it["metadata"]["name"] != name);
    }

    /// Deletes the object of a kind, namespace and name. One with finalizers stays until its controller removes them.
    pub(super) fn delete(&self, kind: &str, namespace: &str, name: &str) {
        let mut objects = self.objects.lock();
        let found = objects.iter().position(|it| {
            let metadata = &it["metadata"];
            it["kind"] == kind && metadata["namespace"] == namespace && metadata["name"] == name
        });
        let Some(at) = found else { return };
        let Some(object) = objects.get_mut(at) else { return };
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        object["metadata"]["resourceVersion"] = next_version(object);
        objects.retain(|it| {
            let metadata = &it["metadata"];
            let has_finalizers =
                metadata["finalizers"].as_array().is_some_and(|all| !all.is_empty());
            !metadata["deletionTimestamp"].is_string() || has_finalizers
        });
    }

    /// Gives the controllers the present objects of a kind.
    ///
    /// # Errors
    /// An object does not match its kind.
    pub(super) fn list<K: WindlassKind>(&self, kind: &str) -> Result<(), serde_json::Error> {
        let objects = self.objects.lock().clone();
        let of_kind = objects.into_iter().filter(|it| it["kind"] == kind);
        let read = of_kind.map(serde_json::from_value).collect::<Result<Vec<K>, _>>()?;
        self.context.kept.list(read);
        Ok(())
    }

    /// Gives the controllers the present sources of artifacts.
    ///
    /// # Errors
    /// An object does not match its kind.
    pub(super) fn list_sources(&self) -> Result<(), serde_json::Error> {
        self.list::<Bucket>("Bucket")?;
        self.list::<ExternalArtifact>("ExternalArtifact")?;
        self.list::<GitRepository>("GitRepository")?;
        self.list::<HelmChart>("HelmChart")?;
        self.list::<OCIRepository>("OCIRepository")
    }

    /// The events since the last call.
    ///
    /// # Errors
    /// The events do not arrive in time.
    pub(super) async fn events(&self) -> anyhow::Result<Vec<Value>> {
        let last = ObjectEvent {
            severity: EventSeverity::Info,
            reason: LAST_EVENT.to_owned(),
            message: String::new(),
            metadata: BTreeMap::new(),
        };
        self.context.events.announce_about(EventObject::default(), "replay", last);
        for _ in 0..MAX_EVENT_WAITS {
            let is_last = self.events.lock().last().is_some_and(|it| it["reason"] == LAST_EVENT);
            if is_last {
                let mut events = std::mem::take(&mut *self.events.lock());
                events.retain(|event| event["reason"] != LAST_EVENT);
                return Ok(events);
            }
            tokio::time::sleep(EVENT_WAIT).await;
        }
        bail!("the events of a run do not come")
    }
}

/// The catalog of the sources from which artifacts are made.
fn sources(kept: Arc<TypeMap>) -> SourceCatalog {
    let mut sources = SourceCatalog::new(kept);
    sources.add::<ExternalArtifactController>();
    sources.add::<SourceController<Bucket>>();
    sources.add::<SourceController<GitRepository>>();
    sources.add::<SourceController<HelmChart>>();
    sources.add::<SourceController<OCIRepository>>();
    sources
}

/// Gives a new object a resource version, and a uid if it has none.
fn identify(object: &mut Value, number: usize) {
    if object["metadata"]["uid"].is_null() {
        object["metadata"]["uid"] = json!(format!("uid-{number}"));
    }
    object["metadata"]["resourceVersion"] = json!("1");
}

/// The resource version of an object after its next change.
fn next_version(object: &Value) -> Value {
    let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    json!((version.parse::<u64>().unwrap_or_default() + 1).to_string())
}

/// Whether two objects have the same kind, namespace and name.
fn is_same(one: &Value, other: &Value) -> bool {
    ["/apiVersion", "/kind", "/metadata/namespace", "/metadata/name"]
        .into_iter()
        .all(|place| one.pointer(place) == other.pointer(place))
}

/// The objects as an API server has them. They get identities, and each further kind gets one object.
fn with_kinds(mut objects: Vec<Value>) -> Vec<Value> {
    for (api_version, kind) in SERVED_KINDS {
        objects.push(json!({"apiVersion": api_version, "kind": kind,
            "metadata": {"name": "unrelated", "namespace": "unrelated"}}));
    }
    objects
        .push(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "unrelated"}}));
    for (at, object) in objects.iter_mut().enumerate() {
        identify(object, at);
    }
    objects
}
