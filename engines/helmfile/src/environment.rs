//! The environment of a helmfile: its name, and its values in three layers.

use crate::maps::{Lists, Map, merge};

/// An environment with its values.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Environment {
    pub(crate) name: String,
    pub(crate) kube_context: String,
    /// Values of the environment, and of the helmfile that includes this one.
    pub(crate) values: Map,
    /// Of the top-level `values`.
    pub(crate) defaults: Map,
    /// Of `--state-values-set`.
    pub(crate) overrides: Map,
}

impl Environment {
    /// Without values.
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// All layers as one, which templates see as `.Values`.
    pub(crate) fn merged(&self) -> Map {
        let mut values = self.defaults.clone();
        merge(&mut values, &self.values, Lists::Sparse);
        merge(&mut values, &self.overrides, Lists::Items);
        values
    }

    /// Puts another one above it.
    pub(crate) fn with(mut self, other: Option<&Self>) -> Self {
        let Some(other) = other else { return self };
        if !other.name.is_empty() {
            self.name.clone_from(&other.name);
        }
        if !other.kube_context.is_empty() {
            self.kube_context.clone_from(&other.kube_context);
        }
        merge(&mut self.values, &other.values, Lists::Sparse);
        merge(&mut self.defaults, &other.defaults, Lists::Sparse);
        merge(&mut self.overrides, &other.overrides, Lists::Items);
        self
    }
}

/// One above the other, if there is any.
pub(crate) fn joined(
    below: Option<&Environment>,
    above: Option<&Environment>,
) -> Option<Environment> {
    match (below, above) {
        (Some(below), above) => Some(below.clone().with(above)),
        (None, above) => above.cloned(),
    }
}
