//! What every run may use, and what it remembers from one run to the next.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crds::helm::HelmRelease;
use crds::kustomize::Kustomization;
use crds::source::{Bucket, GitRepository, HelmChart, HelmRepository, OCIRepository};
use crds::windlass::HTTPArchive;
use kube::runtime::reflector::Store;
use reconcile::Node;

use super::hub::Hub;
use super::object_watcher::ObjectWatcher;
use super::permit::Permits;
use super::source::catalog::Catalog;
use super::target::Targets;
use crate::cluster::Cluster;
use crate::metrics::Metrics;
use crate::settings::Settings;

/// Shared by all runs.
pub(crate) struct Context {
    /// Flags.
    pub(crate) settings: Settings,
    /// The cluster.
    pub(crate) cluster: Cluster,
    /// Wakes.
    pub(crate) hub: Arc<Hub>,
    /// Where and as whom objects are applied.
    pub(crate) targets: Targets,
    /// Places for builds, which need a processor each.
    pub(crate) building: Permits,
    /// Places for builds that ask other servers, and for what they got from there.
    pub(crate) reaching: Permits,
    /// Places for fetching from remotes and packing what came.
    pub(crate) fetching: Permits,
    /// Places for asking remotes what they have.
    pub(crate) asking: Permits,
    /// Drift and waits in windlass's own cluster, and Secrets that specs name.
    pub(crate) watcher: Arc<ObjectWatcher>,
    /// Artifacts.
    pub(crate) artifacts: Arc<sources::store::Store>,
    /// Numbers.
    pub(crate) metrics: Arc<Metrics>,
    /// Every source, as last seen.
    pub(crate) sources: Catalog,
    /// Every Kustomization, as last seen.
    pub(crate) kustomizations: Store<Kustomization>,
    /// What Kustomizations remember.
    pub(crate) kustomization_memory: Memories<super::kustomization::Memory>,
    /// What Buckets remember.
    pub(crate) bucket_memory: Memories<super::source::Memory<Bucket>>,
    /// Clients of object stores.
    pub(crate) buckets_known: Arc<sources::bucket::Known>,
    /// What GitRepositories remember.
    pub(crate) git_memory: Memories<super::source::Memory<GitRepository>>,
    /// What HTTPArchives remember.
    pub(crate) http_archive_memory: Memories<super::source::Memory<HTTPArchive>>,
    /// What was learned of the files of HTTPArchives since their statuses were written.
    pub(crate) http_archive_learned: Memories<super::http_archive::Learned>,
    /// How much is asked of each host, by whatever kind.
    pub(crate) budgets: Arc<sources::http::Budgets>,
    /// Where artifacts of other processes may be.
    pub(crate) artifact_egress: sources::http::Egress,
    /// Connections to web servers that specs may name.
    pub(crate) http_clients: Arc<sources::http::Clients>,
    /// What was learned about Git servers.
    pub(crate) git_known: Arc<sources::git::Known>,
    /// The same, for those who may ask servers with public addresses only.
    pub(crate) public_known: Arc<sources::git::Known>,
    /// What OCIRepositories remember.
    pub(crate) oci_memory: Memories<super::source::Memory<OCIRepository>>,
    /// What was learned about OCI registries.
    pub(crate) oci_known: Arc<sources::oci::Known>,
    /// What HelmCharts remember.
    pub(crate) helm_chart_memory: Memories<super::source::Memory<HelmChart>>,
    /// Every HelmRelease, as last seen.
    pub(crate) helm_releases: Store<HelmRelease>,
    /// What HelmReleases remember.
    pub(crate) helm_release_memory: Memories<super::helm_release::Memory>,
    /// Charts that were read.
    pub(crate) charts: super::helm_release::Charts,
    /// What HelmRepositories remember.
    pub(crate) helm_repository_memory: Memories<super::source::Memory<HelmRepository>>,
    /// What chart repositories said of their indexes.
    pub(crate) helm_known: Arc<sources::charts::Known>,
    /// Indexes that were read.
    pub(crate) chart_indexes: Arc<sources::charts::Indexes>,
}

/// What nodes of a kind remember between runs; gone with the process, so never the only truth.
pub(crate) struct Memories<M>(Mutex<BTreeMap<Node, Arc<Mutex<M>>>>);

impl<M> Default for Memories<M> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<M: Default> Memories<M> {
    /// What a node remembers; nothing at first.
    pub(crate) fn of(&self, node: &Node) -> Arc<Mutex<M>> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(node.clone())
            .or_default()
            .clone()
    }

    /// A node is gone.
    pub(crate) fn forget(&self, node: &Node) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(node);
    }
}
