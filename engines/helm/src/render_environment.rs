//! The environment of a render. The output depends only on the chart, the values, the release and this environment.
//!
//! Here: the inputs from the caller. Elsewhere: the version and APIs of a cluster (`capabilities.rs`), and the
//! functions that use the environment (`render`, `sprig`).

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
    /// The time that templates see, in the local zone.
    pub now: GoTime,
    /// The local time zone.
    pub local: GoTimeZone,
    /// Fills a buffer with unpredictable random bytes.
    pub random: Arc<RandomFill>,
    /// The version and the APIs of the cluster.
    pub capabilities: Arc<Capabilities>,
    /// The objects that `lookup` finds; `None` for a render without a cluster.
    pub cluster: Option<Arc<dyn ClusterLookup>>,
    /// The signal by which the caller stops the render when its time is over. The render itself has no clock.
    pub stop: StopSignal,
    /// The resolver for `getHostByName`. Without it, every address is empty, as in Helm without `--enable-dns`.
    pub names: Option<Arc<dyn HostNameLookup>>,
}

impl fmt::Debug for RenderEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RenderEnvironment").field("now", &self.now).finish_non_exhaustive()
    }
}

/// The arguments with which a template calls `lookup` to read objects of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LookupQuery<'w> {
    /// The API version, such as `apps/v1`.
    pub api_version: &'w str,
    /// The kind, such as `Deployment`.
    pub kind: &'w str,
    /// The namespace. If it is empty, the object is cluster-scoped, or the list is over all namespaces.
    pub namespace: &'w str,
    /// The name. If it is empty, all objects are listed.
    pub name: &'w str,
}

/// Reads objects of a cluster for `lookup`.
pub trait ClusterLookup: Send + Sync {
    /// An object, or a list with its `items` if no name is given. `None` if the object does not exist.
    ///
    /// # Errors
    /// The complete text of Helm's error, such as `unable to get apiresource from unstructured: …` for an unknown kind.
    fn lookup(&self, wanted: &LookupQuery<'_>) -> Result<Option<Json>, String>;
}

/// Resolves host names to addresses.
pub trait HostNameLookup: Send + Sync {
    /// An address of a host.
    ///
    /// # Errors
    /// Why the host has no address.
    fn address_of(&self, host: &str) -> Result<String, String>;
}
