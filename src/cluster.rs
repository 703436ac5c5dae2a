//! The only code that holds a `kube::Client`.
//!
//! Here: the connection ([`client`]), where kinds live ([`discovery`]), reading and writing any object
//! ([`objects`]), what containers print ([`logs`]), lists of any size ([`pages`]), whether one is there at all (`presence`), statuses and finalizers ([`status`]), Kubernetes Events
//! ([`events`]), watching ([`watch`]: over connections of a [`pool`], object by object as [`item`] reads them), what an
//! answer may cost ([`bounded`]), when a server wants to be asked again (`retry`),
//! kubeconfigs from Secrets ([`kubeconfig`]), who of several processes acts ([`lease`], [`leadership`]).
//! Elsewhere: what to write and when (`controllers`, engines `apply` and `reconcile`).

mod bounded;
pub(crate) mod candidate;
pub(crate) mod capabilities;
pub(crate) mod client;
pub(crate) mod discovery;
#[cfg(test)]
pub(crate) mod double;
pub(crate) mod error;
pub(crate) mod events;
pub(crate) mod item;
pub(crate) mod kind;
pub(crate) mod kubeconfig;
pub(crate) mod leadership;
pub(crate) mod lease;
pub(crate) mod logs;
pub(crate) mod objects;
pub(crate) mod pages;
mod pool;
mod presence;
mod resolver;
mod retry;
pub(crate) mod services;
pub(crate) mod status;
pub(crate) mod version;
pub(crate) mod watch;

use std::sync::Arc;

use kube::Client;

pub(crate) use error::ClusterError;

/// A cluster and everything known about reaching it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Cluster {
    /// For requests with an answer.
    unary: Client,
    /// The same as the configuration's own user, in whosever name the others are.
    ourselves: Client,
    /// For watches of our own kinds: nothing else can fill their connection.
    own_watches: pool::Pool,
    /// For all other watches.
    watches: pool::Pool,
    /// For the Lease: never held up by anything else.
    leasing: Client,
    /// For asking for reconciliations, whoever leads.
    asking: Client,
    /// Whether this process may write.
    pub(crate) leadership: leadership::Leadership,
    /// Where kinds live.
    discovery: Arc<discovery::Discovery>,
    /// The connections under both.
    connection: client::Connection,
    /// Events on their way: telling what happened holds up nothing that happens.
    /// Our name in Events.
    instance: Arc<str>,
}
