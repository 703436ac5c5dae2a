//! The Kubernetes client, events and metrics: the only crate that holds a `kube::Client`.
//!
//! Here: the connection ([`client`]) and its TLS (`client_certificate`), where kinds live ([`discovery`]), reading and
//! writing any object ([`objects`]), what containers print ([`logs`]), lists of any size ([`list_pager`], as objects
//! [`object_pages`]), whether an object exists
//! (`object_existence`), statuses and finalizers ([`status_writes`]), events on their way to those who follow them
//! ([`events`]) and as Kubernetes records them ([`kubernetes_events`]), watching ([`watch`]: over connections of a
//! [`connection_pool`], object by object as [`object_decode`] reads them, of our kinds with what is needed of `managed_fields`), which objects changes wake ([`work_queue`]) and how often
//! (`wake_interval`), and how many run at once ([`run_permits`]) and prepare ([`preparing_permit`]), applied and awaited objects ([`object_watcher`]), Namespaces
//! ([`namespace_policies`]), also
//! changes of definitions ([`crd_watch`]) and of rights ([`rbac_watch`]), whether definitions have our fields
//! ([`dependency_schema`]), what an answer may cost
//! ([`response_limit`]), when a server wants to be asked again (`request_retry`), which requests of a run it throttled ([`throttled_requests`]), which kinds do not respond
//! ([`silent_kinds`]), kubeconfigs from Secrets
//! ([`kubeconfig`]), what specs name ([`spec_references`]), selectors of labels ([`label_selectors`]), which of several
//! processes acts ([`election`], [`lease`], [`leadership`]), metrics ([`metrics`]),
//! what of kube's runtime the program uses ([`kube_runtime`]). Elsewhere: what to write and when (`controllers`,
//! engines `apply` and `reconcile`).

mod address_resolver;
pub mod capabilities;
pub mod client;
mod client_certificate;
mod connection_pool;
pub mod crd_watch;
pub mod dependency_schema;
pub mod discovery;
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
pub mod logs;
mod managed_fields;
pub mod metrics;
pub mod namespace_policies;
pub mod object_decode;
mod object_existence;
pub mod object_pages;
pub mod object_watcher;
pub mod objects;
pub mod preparing_permit;
pub mod rbac_watch;
mod request_retry;
pub mod resource_version;
mod response_limit;
pub mod run_permits;
pub mod service_ranges;
pub mod silent_kinds;
pub mod spec_references;
pub mod status_writes;
pub mod throttled_requests;
mod wake_interval;
pub mod watch;
pub mod windlass_kind;
pub mod work_queue;

use std::sync::Arc;

use kube::Client;

pub use error::ClusterError;

/// Stores of objects, the events that fill them, and what runs their objects: parts of kube's runtime, which depends on kube's
/// client, and which no other crate of the program may depend on.
pub mod kube_runtime {
    pub use kube::runtime::{controller, reflector, watcher};
}

/// A cluster and everything known about reaching it. Cheap to clone.
#[derive(Clone)]
pub struct ClusterConnection {
    /// For requests with an answer.
    unary: Client,
    /// The same as the configuration's own user, also where the other clients impersonate another one.
    ourselves: Client,
    /// For watches of our own kinds: nothing else can fill their connection.
    own_watches: connection_pool::ConnectionPool,
    /// For all other watches.
    watches: connection_pool::ConnectionPool,
    /// For the Lease: never held up by anything else.
    leasing: Client,
    /// For requesting reconciliations, also while another process leads.
    asking: Client,
    /// Whether this process may write.
    pub leadership: leadership::Leadership,
    /// Where kinds live.
    discovery: Arc<discovery::ApiDiscovery>,
    /// The connections under all of them.
    connection: client::ApiServerConnection,
    /// Our name in Events.
    instance: Arc<str>,
    /// Whether it reads for a user who is not that of the configuration, so that nothing else may be asked in their stead.
    pub reads_for_bearer: bool,
}
