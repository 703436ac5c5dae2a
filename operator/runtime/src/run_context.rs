//! What every run may use. It knows no kind: what one keeps for the life of the process is found by its type
//! (`object_store.rs`).

use std::sync::Arc;

use super::cluster_target::ClusterTargets;
use super::depends_on_annotation::DependencyTargets;
use super::http_clients::RemoteClients;
use super::object_store::TypeMap;
use super::source_catalog::SourceCatalog;
use windlass_cluster::ClusterConnection;
use windlass_cluster::events::EventDistributor;
use windlass_cluster::kube_runtime::reflector::Store;
use windlass_cluster::metrics::MetricsRegistry;
use windlass_cluster::object_watcher::ObjectWatcher;
use windlass_cluster::run_permits::RunPermits;
use windlass_cluster::windlass_kind::WindlassKind;
use windlass_cluster::work_queue::WorkQueue;
use windlass_serve::settings::OperatorSettings;

/// The context that all runs share.
pub struct RunContext {
    /// Flags.
    pub settings: OperatorSettings,
    /// The cluster.
    pub cluster: ClusterConnection,
    /// Wakes objects and queues their runs.
    pub work_queue: Arc<WorkQueue>,
    /// The clusters and users with which objects are applied.
    pub targets: ClusterTargets,
    /// Permits for builds, which need a processor each.
    pub building: RunPermits,
    /// Permits for builds that ask other servers, and for what they got from there.
    pub reaching: RunPermits,
    /// Permits for fetching from remotes and packing what came: artifacts, trees of sources, lists of tags.
    pub fetching: RunPermits,
    /// Permits for asking remotes what they have.
    pub asking: RunPermits,
    /// Drift and waits in windlass's own cluster, and Secrets that specs name.
    pub watcher: Arc<ObjectWatcher>,
    /// Artifacts.
    pub artifacts: Arc<artifacts::store::ArtifactStore>,
    /// Where events are announced.
    pub events: Arc<EventDistributor>,
    /// The metrics.
    pub metrics: Arc<MetricsRegistry>,
    /// Servers that specs may name.
    pub remotes: RemoteClients,
    /// Every source, as last seen.
    pub sources: SourceCatalog,
    /// Objects of every kind that applies, on which others may depend.
    pub dependencies: DependencyTargets,
    /// What kinds keep.
    pub kept: Arc<TypeMap>,
}

impl RunContext {
    /// The one value of a type, which its first user makes: what the objects of a kind remember or share.
    pub fn shared<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        self.kept.get()
    }

    /// The objects of a kind, as last seen; none of a kind that is not run.
    pub fn store<K: WindlassKind>(&self) -> Store<K> {
        self.kept.store()
    }

    /// The version of an object that was seen last: that of a run that waited for its turn, unless a later one is stored. `None`
    /// if the object is gone, so that the run has nothing to do.
    pub fn newest<K: WindlassKind>(&self, seen: Arc<K>) -> Option<Arc<K>> {
        self.kept.newest(seen)
    }

    /// An object of a kind, as last seen.
    pub fn seen<K: WindlassKind>(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.kept.seen(namespace, name)
    }
}
