//! What every run may use. It knows no kind: what one keeps for the life of the process is found by its type
//! (`object_store.rs`).

use std::sync::Arc;

use super::catalog::Catalog;
use super::dependencies::Dependencies;
use super::http_clients::Remotes;
use super::object_store::TypeMap;
use super::object_watcher::ObjectWatcher;
use super::permit::Permits;
use super::target::Targets;
use super::work_queue::WorkQueue;
use windlass_cluster::Cluster;
use windlass_cluster::events::Events;
use windlass_cluster::kind::OurKind;
use windlass_cluster::kube_runtime::reflector::Store;
use windlass_cluster::metrics::Metrics;
use windlass_serve::settings::Settings;

/// Shared by all runs.
pub struct Context {
    /// Flags.
    pub settings: Settings,
    /// The cluster.
    pub cluster: Cluster,
    /// Wakes objects and queues their runs.
    pub work_queue: Arc<WorkQueue>,
    /// The clusters and users with which objects are applied.
    pub targets: Targets,
    /// Permits for builds, which need a processor each.
    pub building: Permits,
    /// Permits for builds that ask other servers, and for what they got from there.
    pub reaching: Permits,
    /// Permits for fetching from remotes and packing what came.
    pub fetching: Permits,
    /// Permits for asking remotes what they have.
    pub asking: Permits,
    /// Drift and waits in windlass's own cluster, and Secrets that specs name.
    pub watcher: Arc<ObjectWatcher>,
    /// Artifacts.
    pub artifacts: Arc<sources::store::Store>,
    /// Where events are announced.
    pub events: Arc<Events>,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// Servers that specs may name.
    pub remotes: Remotes,
    /// Every source, as last seen.
    pub sources: Catalog,
    /// Objects of every kind that applies, on which others may depend.
    pub dependencies: Dependencies,
    /// What kinds keep.
    pub kept: Arc<TypeMap>,
}

impl Context {
    /// The one value of a type, which its first user makes: what the objects of a kind remember or share.
    pub fn shared<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        self.kept.get()
    }

    /// The objects of a kind, as last seen; none of a kind that is not run.
    pub fn store<K: OurKind>(&self) -> Store<K> {
        self.kept.store()
    }

    /// An object of a kind, as last seen.
    pub fn seen<K: OurKind>(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.kept.seen(namespace, name)
    }
}
