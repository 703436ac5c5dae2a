//! The Kubernetes client, with events and metrics. This is the only crate that has a `kube::Client`.
//!
//! Connections: [`client`] and its TLS (`client_certificate`), a [`connection_pool`] for watches, and kubeconfigs from Secrets
//! ([`kubeconfig`]). Requests: how many are in flight (`request_limit`, `request_window`), limits of answers
//! ([`response_limit`]), repetition (`request_retry`), throttled requests of a run ([`throttled_requests`]), and kinds that do
//! not respond ([`unresponsive_kinds`]).
//!
//! Objects: discovery of kinds ([`discovery`]), reads and writes ([`objects`]), existence (`object_existence`), and statuses
//! and finalizers ([`status_writes`]). Also long lists ([`list_pager`], [`object_pages`]), decoding ([`object_decode`],
//! `unused_managed_fields`), label selectors ([`label_selectors`]), container logs ([`logs`]), and Pods behind a failure
//! ([`workload_pods`]). The known objects of a kind, and what else kinds keep, are in [`object_store`].
//!
//! Watches: [`watch`], applied and awaited objects ([`object_watcher`]), objects that specs name ([`referenced_secrets_and_config_maps`]),
//! Namespaces ([`namespace_policies`]), CRDs ([`crd_watch`]) and their fields ([`depends_on_crd_fields`]), and RBAC
//! ([`rbac_watch`]).
//!
//! Runs: the [`work_queue`] that wakes objects, how often it does (`wake_interval`, `paced_wakes`), and the permits for runs
//! ([`run_permits`]) and their preparation ([`preparing_permit`]).
//!
//! Also here: leader election ([`election`], [`lease`], [`leadership`]), [`events`] and Kubernetes Events
//! ([`kubernetes_events`]), which failures are announced after a takeover ([`announced_failures`]), [`metrics`], and the parts
//! of kube's runtime that the program uses ([`kube_runtime`]). Elsewhere: the decisions what to write and when (`controllers`,
//! engines `apply` and `reconcile`).

pub mod announced_failures;
pub mod capabilities;
pub mod client;
mod client_certificate;
mod connection_pool;
pub mod container_logs;
pub mod crd_watch;
pub mod depends_on_crd_fields;
pub mod discovery;
mod egress_resolver;
pub mod election;
pub mod error;
pub mod events;
#[cfg(test)]
mod fake_cluster;
pub mod kubeconfig;
pub mod kubernetes_events;
pub mod label_selectors;
pub mod leadership;
pub mod lease;
pub mod list_pager;
pub mod metrics;
pub mod namespace_policies;
pub mod object_decode;
mod object_existence;
pub mod object_pages;
pub mod object_store;
pub mod object_watcher;
mod paced_wakes;
pub mod preparing_permit;
pub mod rbac_watch;
pub mod referenced_secrets_and_config_maps;
mod request_limit;
mod request_retry;
mod request_window;
pub mod resource_version;
mod response_limit;
pub mod run_permits;
pub mod service_ranges;
pub mod status_writes;
pub mod throttled_requests;
pub mod unresponsive_kinds;
pub mod untyped_objects;
mod unused_managed_fields;
mod wake_interval;
pub mod watch;
pub mod windlass_kind;
pub mod work_queue;
pub mod workload_pods;

use std::sync::Arc;

use kube::Client;

pub use error::ClusterError;

/// The parts of kube's runtime that windlass uses: stores of objects, the watches that fill them, and controllers. kube's
/// runtime depends on kube's client, so no other crate may depend on it.
pub mod kube_runtime {
    pub use kube::runtime::{controller, reflector, watcher};
}

/// A connection to a cluster, with its clients and its discovery. Cloning is cheap.
#[derive(Clone)]
pub struct ClusterConnection {
    /// For requests that are not watches.
    unary: Client,
    /// As `unary`, but always as the configuration's own user, even if `unary` impersonates another one.
    ourselves: Client,
    /// For watches of windlass's kinds. No other watch can fill their connections.
    own_watches: connection_pool::ConnectionPool,
    /// For all other watches.
    watches: connection_pool::ConnectionPool,
    /// The kinds whose lists the API server does not send as the initial events of a watch.
    refused_initial_events: Arc<watch::InitialEventsRefusals>,
    /// For the Lease. No other traffic can delay it.
    leasing: Client,
    /// For requests to reconcile an object, which are sent even while another process leads.
    asking: Client,
    /// Whether this process may write.
    pub leadership: leadership::Leadership,
    /// The discovery answers so far.
    discovery: Arc<discovery::ApiDiscovery>,
    /// The HTTP connections that all clients share.
    connection: client::ApiServerConnection,
    /// The name of this process in Events.
    instance: Arc<str>,
    /// The name of the cluster for its user ([`ClusterConnection::cluster_name`]).
    name: Option<Arc<str>>,
    /// Whether the connection reads as the user of a bearer token. Then no request may use windlass's own identity instead.
    pub reads_for_bearer: bool,
}
