//! The context that all runs share. It knows no kind: the values that a kind keeps are found by their type
//! (`windlass_cluster::object_store`).

use std::sync::Arc;

use crds::ReconciledObject;
use reconcile::ObjectKey;

use super::cluster_target::ClusterTargets;
use super::controller_kind::node_of;
use super::depends_on_annotation::DependableKinds;
use super::http_clients::RemoteClients;
use super::source_catalog::SourceCatalog;
use windlass_cluster::ClusterConnection;
use windlass_cluster::announced_failures::{AnnouncedFailures, FailureAnnouncement};
use windlass_cluster::events::{EventDistributor, EventSeverity, ObjectEvent};
use windlass_cluster::kube_runtime::reflector::Store;
use windlass_cluster::metrics::MetricsRegistry;
use windlass_cluster::object_store::TypeMap;
use windlass_cluster::object_watcher::ObjectWatcher;
use windlass_cluster::run_permits::RunPermits;
use windlass_cluster::windlass_kind::WindlassKind;
use windlass_cluster::work_queue::WorkQueue;
use windlass_serve::settings::OperatorSettings;

/// The context that all runs share.
pub struct RunContext {
    /// The flags of the operator.
    pub settings: OperatorSettings,
    /// The connection to windlass's own cluster.
    pub cluster: ClusterConnection,
    /// The work queue, which wakes objects and queues their runs.
    pub work_queue: Arc<WorkQueue>,
    /// The clusters and users with which objects are applied.
    pub targets: ClusterTargets,
    /// Permits for builds. Each build needs a processor.
    pub building: RunPermits,
    /// Permits for builds that send requests to other servers. A build keeps its permit while it has the answers in memory.
    pub reaching: RunPermits,
    /// Permits for fetching from remotes and packing the result: artifacts, source trees and tag lists.
    pub fetching: RunPermits,
    /// Permits for requests that only ask remotes what they have.
    pub asking: RunPermits,
    /// The watcher of windlass's own cluster, for drift, waits and Secrets that specs name.
    pub watcher: Arc<ObjectWatcher>,
    /// The store of artifacts.
    pub artifacts: Arc<artifacts::store::ArtifactStore>,
    /// The distributor of events.
    pub events: Arc<EventDistributor>,
    /// The metrics.
    pub metrics: Arc<MetricsRegistry>,
    /// The clients for servers that specs name.
    pub remotes: RemoteClients,
    /// All sources, as the watches last saw them.
    pub sources: SourceCatalog,
    /// The appliers on which other objects may depend.
    pub dependencies: DependableKinds,
    /// The values that kinds keep.
    pub kept: Arc<TypeMap>,
}

impl RunContext {
    /// The only value of a type. Its first user creates it. Kinds use it for state and shared values.
    pub fn shared<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        self.kept.get()
    }

    /// The objects of a kind, as the watch last saw them. Empty for a kind that is not run.
    pub fn store<K: WindlassKind>(&self) -> Store<K> {
        self.kept.store()
    }

    /// The latest version of an object: `seen`, or the one in the store. A run that waited calls this. `None` if the object is
    /// gone, so that the run has nothing to do.
    pub fn newest<K: WindlassKind>(&self, seen: Arc<K>) -> Option<Arc<K>> {
        self.kept.newest(seen)
    }

    /// An object of a kind, as the watch last saw it.
    pub fn seen<K: WindlassKind>(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.kept.seen(namespace, name)
    }

    /// Whether a failure of an object, or of a part of it, that the status has already was announced.
    pub fn failure_announcement(&self, node: &ObjectKey) -> FailureAnnouncement {
        self.shared::<AnnouncedFailures>().announcement(node, &self.cluster.leadership)
    }

    /// Notes that a failure of an object, or of a part of it, is announced.
    pub fn note_announced_failure(&self, node: &ObjectKey) {
        self.shared::<AnnouncedFailures>().note(node, &self.cluster.leadership);
    }

    /// Announces an event about the result of an object's run, whose status is written. An error is the announcement of its
    /// failure.
    pub fn announce<K: WindlassKind + ReconciledObject>(&self, object: &K, event: ObjectEvent) {
        if event.severity == EventSeverity::Error {
            self.note_announced_failure(&node_of(object));
        }
        self.events.announce(object, K::CONTROLLER, event);
    }
}
