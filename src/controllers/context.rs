//! What every run may use, and what it remembers from one look to the next.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crds::kustomize::Kustomization;
use crds::source::GitRepository;
use kube::runtime::reflector::Store;
use reconcile::Node;
use tokio::sync::Semaphore;

use super::hub::Hub;
use super::observer::Observer;
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
    pub(crate) building: Arc<Semaphore>,
    /// Places for fetching from remotes and packing what came.
    pub(crate) fetching: Arc<Semaphore>,
    /// Places for asking remotes what they have.
    pub(crate) asking: Arc<Semaphore>,
    /// Drift and waits in windlass's own cluster, and Secrets that specs name.
    pub(crate) observer: Arc<Observer>,
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
    /// What GitRepositories remember.
    pub(crate) git_memory: Memories<super::source::Memory<GitRepository>>,
    /// What was learned about Git servers.
    pub(crate) git_known: Arc<sources::git::Known>,
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
