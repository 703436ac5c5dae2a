//! What a controller needs to run one object: a cluster with the objects of a case, storage, and events that are kept.
//!
//! Elsewhere: the API server (crate `fake-cluster`), what the parts are for (crate `windlass-runtime`), what counts as the same
//! run (`controller_answer`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use artifacts::store::{ArtifactStore, StoreOptions};
use crds::release::{ClusterStagedRollout, StagedRollout};
use crds::source::{Bucket, ExternalArtifact, GitRepository, HelmChart, OCIRepository};
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
use windlass_cluster::object_watcher::ObjectWatcher;
use windlass_cluster::run_permits::RunPermits;
use windlass_cluster::windlass_kind::WindlassKind;
use windlass_cluster::work_queue::WorkQueue;
use windlass_runtime::cluster_target::ClusterTargets;
use windlass_runtime::controller_kind::ControllerKind;
use windlass_runtime::depends_on_annotation::DependencyTargets;
use windlass_runtime::egress_policy::EgressPolicy;
use windlass_runtime::freeze;
use windlass_runtime::http_clients::RemoteClients;
use windlass_runtime::lifecycle::known_quarantines;
use windlass_runtime::lifecycle::watched_object_cache::WatchedObjectCache;
use windlass_runtime::object_store::TypeMap;
use windlass_runtime::run_context::RunContext;
use windlass_runtime::source_catalog::SourceCatalog;
use windlass_serve::settings::OperatorSettings;

use super::case::CaseFailure;

/// The stack of the threads on which controllers block.
const STACK_BYTES: usize = 16 << 20;

/// How many permits there are of each sort.
const PERMIT_COUNT: usize = 4;

/// Objects of kinds that an API server has, whether a case has any of them or not.
const SERVED_KINDS: [(&str, &str); 3] =
    [("v1", "Secret"), ("v1", "ServiceAccount"), ("v1", "ConfigMap")];

/// The host at which recorded artifacts are.
const STORE_HOST: &str = "store.example";

/// The reason of the event that is behind all events of a run.
const LAST_EVENT: &str = "LastEventOfReplay";

/// How long events take at most, in steps.
const EVENT_WAIT: Duration = Duration::from_millis(2);
const MAX_EVENT_WAITS: usize = 5000;

/// Does the work of a case on a runtime of its own.
///
/// # Errors
/// The work says why it could not be done.
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
    // A request that is not answered has a thread until its time is up.
    runtime.shutdown_background();
    outcome.map_err(unusable)
}

/// Keeps events as Kubernetes has them.
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

/// A cluster with objects, and what runs one of them.
pub(super) struct FakeOperator {
    pub(super) context: Arc<RunContext>,
    objects: Arc<Mutex<Vec<Value>>>,
    events: Arc<Mutex<Vec<Value>>>,
    /// Where the artifacts are.
    pub(super) folder: TempDir,
}

impl FakeOperator {
    /// An operator with these flags at a cluster with these objects.
    ///
    /// # Errors
    /// The flags mean nothing, or there is no folder.
    pub(super) async fn start(flags: &[&str], objects: Vec<Value>) -> anyhow::Result<Self> {
        let objects = Arc::new(Mutex::new(with_kinds(objects)));
        let cluster = fake_cluster::with_patched_objects(objects.clone()).await;
        let settings =
            OperatorSettings::from_flags(&[flags, &["--allow-loopback-sources"][..]].concat())?;
        let folder = tempfile::tempdir()?;
        let advertised = STORE_HOST.to_owned();
        // What a case removes is not remembered.
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
            dependencies: DependencyTargets::new(kept.clone()),
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

    /// An object as the API server has it; null if it has none of this kind and name.
    pub(super) fn object(&self, like: &Value) -> Value {
        let objects = self.objects.lock();
        objects.iter().find(|it| is_same(it, like)).cloned().unwrap_or_default()
    }

    /// All objects as the API server has them.
    pub(super) fn objects(&self) -> Vec<Value> {
        self.objects.lock().clone()
    }

    /// Runs an object once; returns when it is to run again.
    ///
    /// # Errors
    /// The object is none of this kind.
    pub(super) async fn run<K: ControllerKind>(
        &self,
        like: &Value,
    ) -> Result<Option<Duration>, serde_json::Error> {
        let object: K::Object = serde_json::from_value(self.object(like))?;
        Ok(K::run(Arc::new(object), self.context.clone()).await)
    }

    /// Makes an object, or puts it in place of one of the same name, whose status it gets if it `keeps_status`.
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

    /// The objects of a kind are seen as they are now.
    ///
    /// # Errors
    /// One of them is none of this kind.
    pub(super) fn list<K: WindlassKind>(&self, kind: &str) -> Result<(), serde_json::Error> {
        let objects = self.objects.lock().clone();
        let of_kind = objects.into_iter().filter(|it| it["kind"] == kind);
        let read = of_kind.map(serde_json::from_value).collect::<Result<Vec<K>, _>>()?;
        self.context.kept.list(read);
        Ok(())
    }

    /// The sources that artifacts are made of are seen as they are now.
    ///
    /// # Errors
    /// One of them is none of its kind.
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
    /// They do not come.
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

/// The sources that artifacts are made of.
fn sources(kept: Arc<TypeMap>) -> SourceCatalog {
    let mut sources = SourceCatalog::new(kept);
    sources.add::<ExternalArtifactController>();
    sources.add::<SourceController<Bucket>>();
    sources.add::<SourceController<GitRepository>>();
    sources.add::<SourceController<HelmChart>>();
    sources.add::<SourceController<OCIRepository>>();
    sources
}

/// Gives a new object its identity, but for a uid that it has.
fn identify(object: &mut Value, number: usize) {
    if object["metadata"]["uid"].is_null() {
        object["metadata"]["uid"] = json!(format!("uid-{number}"));
    }
    object["metadata"]["resourceVersion"] = json!("1");
}

/// The version of an object after its next change.
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

/// The objects as an API server has them, with identities, and one object of each further kind.
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
