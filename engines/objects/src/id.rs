//! The identity of an object without an API version, and its kind with a version.
//!
//! The text form of [`ObjectId`] is the `id` in Flux's inventory. It must never change, byte for byte.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Group, version and kind of an object's type.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Gvk {
    /// API group; empty for the core group.
    pub group: String,
    /// Version within the group, such as `v1`.
    pub version: String,
    /// Kind, such as `Deployment`.
    pub kind: String,
}

impl Gvk {
    /// Creates a kind from an `apiVersion` and a kind.
    pub fn new(api_version: &str, kind: &str) -> Self {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Self { group: group.into(), version: version.into(), kind: kind.into() }
    }

    /// The `apiVersion` that manifests carry: `apps/v1`, or `v1` for the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

impl fmt::Display for Gvk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, Kind={}", self.api_version(), self.kind)
    }
}

/// The identity of an object without an API version: namespace, name, group and kind.
///
/// `Display` and `FromStr` use the form of the inventory, `<namespace>_<name>_<group>_<kind>` (source: cli-utils
/// `object.ObjMetadata`). Colons in the names of RBAC objects are written `__`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// API group; empty for the core group.
    pub group: String,
    /// Kind.
    pub kind: String,
}

/// Why a text is not an inventory id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unable to parse stored object metadata: {0}")]
pub struct IdError(pub String);

const COLON: &str = "__";

impl ObjectId {
    /// An id from its four parts.
    pub fn new(namespace: &str, name: &str, group: &str, kind: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            group: group.into(),
            kind: kind.into(),
        }
    }

    /// The name of the object in messages: `Kind/namespace/name`, or `Kind/name` if it is cluster-scoped.
    pub fn subject(&self) -> String {
        if self.namespace.is_empty() {
            format!("{}/{}", self.kind, self.name)
        } else {
            format!("{}/{}/{}", self.kind, self.namespace, self.name)
        }
    }
}

fn is_rbac(group: &str, kind: &str) -> bool {
    group == "rbac.authorization.k8s.io"
        && matches!(kind, "Role" | "ClusterRole" | "RoleBinding" | "ClusterRoleBinding")
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, name, group, kind } = self;
        if is_rbac(group, kind) {
            write!(f, "{namespace}_{}_{group}_{kind}", name.replace(':', COLON))
        } else {
            write!(f, "{namespace}_{name}_{group}_{kind}")
        }
    }
}

impl FromStr for ObjectId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        // Parity(cli-utils): the error names what was left when the text ran out of separators.
        let bad = |rest: &str| IdError(rest.to_owned());
        let (namespace, rest) = text.split_once('_').ok_or_else(|| bad(text))?;
        let (rest, kind) = rest.rsplit_once('_').ok_or_else(|| bad(rest))?;
        let (name, group) = rest.rsplit_once('_').ok_or_else(|| bad(rest))?;
        Ok(Self::new(namespace, &name.replace(COLON, ":"), group, kind))
    }
}
