//! The key of an object that is reconciled or waited for. Of each key, only one run takes place at a time.
//!
//! Here: [`ObjectKey`]. Elsewhere: edges between nodes (`dependency_graph.rs`), ids in inventories (`objects`).

use std::fmt;

/// An object by group, kind, namespace and name, without its version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// API group; empty for the core group.
    pub group: String,
    /// Kind, such as `Kustomization`.
    pub kind: String,
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ObjectKey {
    /// A node from its four parts.
    pub fn new(group: &str, kind: &str, namespace: &str, name: &str) -> Self {
        Self {
            group: group.into(),
            kind: kind.into(),
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// The key of a part of this object, such as one release. Other objects can wait for a part by itself. A change of a part
    /// triggers a run of the whole object.
    #[must_use]
    pub fn part(&self, name: &str) -> Self {
        Self { name: format!("{}{PART}{name}", self.name), ..self.clone() }
    }

    /// The key of the object that this part belongs to. A key that is not a part returns itself.
    #[must_use]
    pub fn whole(&self) -> Self {
        let name = self.name.split_once(PART).map_or(self.name.as_str(), |(whole, _)| whole);
        Self { name: name.to_owned(), ..self.clone() }
    }

    /// Whether this is a part of a node.
    #[must_use]
    pub fn is_part(&self) -> bool {
        self.name.contains(PART)
    }

    /// The key that stands for all objects of this kind in this namespace. An object that depends on any of them depends on
    /// this key.
    #[must_use]
    pub fn any_of_namespace(&self) -> Self {
        Self { name: String::new(), ..self.clone() }
    }

    /// `namespace/name` as Flux's messages quote it, or the name alone when cluster-scoped.
    pub fn namespaced_name(&self) -> String {
        let Self { namespace, name, .. } = self;
        if namespace.is_empty() { name.clone() } else { format!("{namespace}/{name}") }
    }
}

/// `Kind/namespace/name`, or `Kind/name` when cluster-scoped.
impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.namespaced_name())
    }
}

/// The character before the name of a part. It cannot occur in a Kubernetes name.
const PART: char = '#';

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_knows_its_whole() {
        let whole = ObjectKey::new("apps", "Deployment", "a", "x");
        let part = whole.part("b/y");
        assert_eq!(part.to_string(), "Deployment/a/x#b/y");
        assert!(part.is_part() && !whole.is_part());
        assert_eq!((part.whole(), whole.whole()), (whole.clone(), whole));
    }

    #[test]
    fn a_node_reads_as_kind_namespace_name() {
        assert_eq!(ObjectKey::new("apps", "Deployment", "a", "x").to_string(), "Deployment/a/x");
        assert_eq!(ObjectKey::new("", "Namespace", "", "x").to_string(), "Namespace/x");
    }
}
