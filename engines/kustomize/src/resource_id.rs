//! The identity of an object: group, version, kind, name and namespace. Compares and prints them like kustomize.
//! Elsewhere: which kinds have no namespace ([`crate::schema`]), the earlier names of an object (`resource.rs`).

use std::fmt;

/// Group, version and kind. In a selector, an empty part matches any.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Gvk {
    /// Empty for the core group.
    pub group: String,
    /// The version, such as `v1`.
    pub version: String,
    /// The kind, such as `Deployment`.
    pub kind: String,
}

impl Gvk {
    /// Splits an `apiVersion`. A text without `/` is a version.
    pub fn new(api_version: &str, kind: &str) -> Self {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Self { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() }
    }

    /// `group/version`, or the version alone.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            return self.version.clone();
        }
        format!("{}/{}", self.group, self.version)
    }

    /// Whether `selector` matches: each part of it that is not empty is equal.
    pub fn is_selected(&self, selector: &Self) -> bool {
        let any = |wanted: &str, own: &str| wanted.is_empty() || wanted == own;
        any(&selector.group, &self.group)
            && any(&selector.version, &self.version)
            && any(&selector.kind, &self.kind)
    }

    /// The parts that are not empty, joined by `_`.
    pub fn without_empty_parts(&self) -> String {
        let parts = [self.group.as_str(), &self.version, &self.kind];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        parts.join("_")
    }
}

impl fmt::Display for Gvk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = or(&self.kind, "[noKind]");
        let version = or(&self.version, "[noVer]");
        write!(f, "{kind}.{version}.{}", or(&self.group, "[noGrp]"))
    }
}

fn or<'t>(text: &'t str, default: &'t str) -> &'t str {
    if text.is_empty() { default } else { text }
}

/// The placeholder namespace of every kind without namespaces.
pub(crate) const NO_NAMESPACE: &str = "_non_namespaceable_";

/// The identity of one object of a build.
///
/// Two ids mean the same object if [`ResourceId::key`] is equal. A missing namespace equals the namespace `default`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ResourceId {
    /// Group, version and kind of the object.
    pub gvk: Gvk,
    /// The name of the object.
    pub name: String,
    /// The namespace as it is written; empty if it is missing.
    pub namespace: String,
    /// Whether its kind is known to have no namespace.
    pub is_cluster_scoped: bool,
}

impl ResourceId {
    /// The namespace in which the object is: `default` if none is given, and a fixed name if the object is
    /// cluster-scoped.
    pub fn effective_namespace(&self) -> &str {
        match self.namespace.as_str() {
            _ if self.is_cluster_scoped => NO_NAMESPACE,
            "" => "default",
            namespace => namespace,
        }
    }

    /// The key that is equal for all ids of the same object.
    pub fn key(&self) -> (&Gvk, &str, &str) {
        (&self.gvk, &self.name, self.effective_namespace())
    }

    /// Whether both ids mean the same object.
    pub fn is_same(&self, other: &Self) -> bool {
        self.key() == other.key()
    }

    /// Whether `selector` matches: each part of it that is not empty is equal.
    pub(crate) fn is_selected_by(&self, selector: &Self) -> bool {
        (selector.name.is_empty() || selector.name == self.name)
            && (selector.namespace.is_empty()
                || selector.effective_namespace() == self.effective_namespace())
            && self.gvk.is_selected(&selector.gvk)
    }
}

impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = or(&self.name, "[noName]");
        write!(f, "{}/{name}.{}", self.gvk, or(&self.namespace, "[noNs]"))
    }
}
