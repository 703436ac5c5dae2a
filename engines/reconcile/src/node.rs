//! What is reconciled or waited for, as a key: one run at a time belongs to one node.
//!
//! Here: [`Node`]. Elsewhere: edges between nodes (`graph.rs`), ids in inventories (`objects`).

use std::fmt;

/// An object by group, kind, namespace and name, whatever version it is read in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node {
    /// API group; empty for the core group.
    pub group: String,
    /// Kind, such as `Kustomization`.
    pub kind: String,
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Node {
    /// A node from its four parts.
    pub fn new(group: &str, kind: &str, namespace: &str, name: &str) -> Self {
        Self {
            group: group.into(),
            kind: kind.into(),
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// `namespace/name` as Flux's messages quote it, or the name alone when cluster-scoped.
    pub fn namespaced_name(&self) -> String {
        let Self { namespace, name, .. } = self;
        if namespace.is_empty() { name.clone() } else { format!("{namespace}/{name}") }
    }
}

/// `Kind/namespace/name`, or `Kind/name` when cluster-scoped.
impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.namespaced_name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_reads_as_kind_namespace_name() {
        assert_eq!(Node::new("apps", "Deployment", "a", "x").to_string(), "Deployment/a/x");
        assert_eq!(Node::new("", "Namespace", "", "x").to_string(), "Namespace/x");
    }
}
