//! The environment of a render: its output depends only on the chart, the values, the release and this.
//!
//! Here: what the caller gives. Elsewhere: what a cluster can do (`capabilities.rs`), functions that use it (`render`,
//! `sprig`).

use std::fmt;
use std::sync::Arc;

use golang::meter::Stop;
use golang::time::{Time, Zone};
use serde_json::Value as Json;

use crate::capabilities::Capabilities;

pub use sprig::Fill;

/// The environment of a render.
#[derive(Clone)]
pub struct Env {
    /// The time at which the templates run, in the local zone.
    pub now: Time,
    /// The local zone.
    pub local: Zone,
    /// Fills a buffer with unpredictable random bytes.
    pub random: Arc<Fill>,
    /// What the cluster can do.
    pub capabilities: Arc<Capabilities>,
    /// The objects that `lookup` finds; `None` for a render without a cluster.
    pub cluster: Option<Arc<dyn Lookup>>,
    /// Set by the caller when the time for the render is over, of which a render knows nothing.
    pub stop: Stop,
    /// The names that `getHostByName` finds; without it every address is empty, as in Helm without `--enable-dns`.
    pub names: Option<Arc<dyn Resolve>>,
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env").field("now", &self.now).finish_non_exhaustive()
    }
}

/// What `lookup` is asked for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LookupQuery<'w> {
    /// Such as `apps/v1`.
    pub api_version: &'w str,
    /// Such as `Deployment`.
    pub kind: &'w str,
    /// Empty: of no namespace, or a list over all.
    pub namespace: &'w str,
    /// Empty: a list of all.
    pub name: &'w str,
}

/// Objects of a cluster.
pub trait Lookup: Send + Sync {
    /// An object, or a list with its `items` if no name is given; `None` if it does not exist.
    ///
    /// # Errors
    /// The whole text of Helm's error, such as `unable to get apiresource from unstructured: …` for an unknown kind.
    fn lookup(&self, wanted: &LookupQuery<'_>) -> Result<Option<Json>, String>;
}

/// Names of hosts.
pub trait Resolve: Send + Sync {
    /// An address of a host.
    ///
    /// # Errors
    /// Why the host has no address.
    fn address_of(&self, host: &str) -> Result<String, String>;
}
