//! The environment of a render: its output depends only on the chart, the values, the release and this.
//!
//! Here: what the caller gives. Elsewhere: what a cluster can do (`capabilities.rs`), functions that use it (`render`,
//! `sprig`).

use std::fmt;
use std::sync::Arc;

use golang::time::{GoTime, GoTimeZone};
use golang::work_meter::StopSignal;
use serde_json::Value as Json;

use crate::capabilities::Capabilities;

pub use sprig::RandomFill;

/// The environment of a render.
#[derive(Clone)]
pub struct RenderEnvironment {
    /// The time at which the templates run, in the local zone.
    pub now: GoTime,
    /// The local zone.
    pub local: GoTimeZone,
    /// Fills a buffer with unpredictable random bytes.
    pub random: Arc<RandomFill>,
    /// What the cluster can do.
    pub capabilities: Arc<Capabilities>,
    /// The objects that `lookup` finds; `None` for a render without a cluster.
    pub cluster: Option<Arc<dyn ClusterLookup>>,
    /// Set by the caller when the time for the render is over, of which a render knows nothing.
    pub stop: StopSignal,
    /// The names that `getHostByName` finds; without it every address is empty, as in Helm without `--enable-dns`.
    pub names: Option<Arc<dyn HostNameLookup>>,
}

impl fmt::Debug for RenderEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RenderEnvironment").field("now", &self.now).finish_non_exhaustive()
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
pub trait ClusterLookup: Send + Sync {
    /// An object, or a list with its `items` if no name is given; `None` if it does not exist.
    ///
    /// # Errors
    /// The whole text of Helm's error, such as `unable to get apiresource from unstructured: …` for an unknown kind.
    fn lookup(&self, wanted: &LookupQuery<'_>) -> Result<Option<Json>, String>;
}

/// Resolves the name of a host to an address.
pub trait HostNameLookup: Send + Sync {
    /// An address of a host.
    ///
    /// # Errors
    /// Why the host has no address.
    fn address_of(&self, host: &str) -> Result<String, String>;
}
