//! What a controller needs to run one object: a cluster with the objects of a case, storage, and events that are kept.
//!
//! Elsewhere: the API server (crate `fake-cluster`), what the parts are for (crate `windlass-runtime`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use artifacts::store::{ArtifactStore, StoreOptions};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;
use windlass_cluster::events::{
    EventDistributor, EventObject, EventRecord, EventSeverity, EventSink, ObjectEvent,
};
use windlass_cluster::metrics::MetricsRegistry;
use windlass_cluster::windlass_kind::WindlassKind;
use windlass_runtime::cluster_target::ClusterTargets;
use windlass_runtime::controller_kind::ControllerKind;
use windlass_runtime::depends_on::DependencyTargets;
use windlass_runtime::egress_policy::EgressPolicy;
use windlass_runtime::http_clients::RemoteClients;
use windlass_runtime::namespace_policies::{self, NamespacePolicies};
use windlass_runtime::object_store::TypeMap;
use windlass_runtime::object_watcher::ObjectWatcher;
use windlass_runtime::run_context::RunContext;
use windlass_runtime::run_permits::RunPermits;
use windlass_runtime::source_catalog::SourceCatalog;
use windlass_runtime::work_queue::WorkQueue;
use windlass_serve::settings::OperatorSettings;

/// How many permits there are of each sort.
const PERMIT_COUNT: usize = 4;

/// Objects of kinds that an API server has, whether a case has any of them or not.
const SERVED_KINDS: [(&str, &str); 3] =
    [("v1", "Secret"), ("v1", "ServiceAccount"), ("v1", "ConfigMap")];

/// The reason of the event that is behind all events of a run.
const LAST_EVENT: &str = "LastEventOfReplay";

/// How long events take at most, in steps.
const EVENT_WAIT: Duration = Duration::from_millis(2);
const MAX_EVENT_WAITS: usize = 5000;

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
    _folder: TempDir,
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
        let artifacts = Arc::new(ArtifactStore::open(folder.path(), StoreOptions::default())?);
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
            sources: SourceCatalog::new(kept.clone()),
            dependencies: DependencyTargets::new(kept.clone()),
            kept,
            cluster,
        });
        let known = context.shared::<NamespacePolicies>();
        let work_queue = context.work_queue.clone();
        tokio::spawn(namespace_policies::follow(context.cluster.clone(), work_queue, known));
        Ok(Self { context, objects, events: recorded, _folder: folder })
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
            object["metadata"]["uid"] = json!(format!("uid-{count}"));
            object["metadata"]["resourceVersion"] = json!("1");
            objects.push(object);
            return;
        };
        let version = former["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        let version = version.parse::<u64>().unwrap_or_default() + 1;
        object["metadata"]["uid"] = former["metadata"]["uid"].clone();
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        if keeps_status {
            object["status"] = former["status"].clone();
        }
        *former = object;
    }

    /// Removes the objects of a kind with this name.
    pub(super) fn remove(&self, kind: &str, name: &str) {
        self.objects.lock().retain(|it| it["kind"] != kind || it["metadata"]["name"] != name);
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
        object["metadata"]["uid"] = json!(format!("uid-{at}"));
        object["metadata"]["resourceVersion"] = json!("1");
    }
    objects
}
