//! The environment of a helmfile: its name, and its values in three layers.

use crate::state_values_merge::{ListMergeMode, ValuesMap, merge};

/// An environment with its values.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct NamedEnvironment {
    pub(crate) name: String,
    pub(crate) kube_context: String,
    /// The values of the environment, and those from the helmfile that includes this one.
    pub(crate) values: ValuesMap,
    /// The values of the top-level key `values`.
    pub(crate) defaults: ValuesMap,
    /// The values from `--state-values-set`.
    pub(crate) overrides: ValuesMap,
}

impl NamedEnvironment {
    /// An environment with this name, without values.
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// All layers merged. Templates read them as `.Values`.
    pub(crate) fn merged(&self) -> ValuesMap {
        let mut values = self.defaults.clone();
        merge(&mut values, &self.values, ListMergeMode::Sparse);
        merge(&mut values, &self.overrides, ListMergeMode::Items);
        values
    }

    /// Merges another environment over this one.
    pub(crate) fn with(mut self, other: Option<&Self>) -> Self {
        let Some(other) = other else { return self };
        if !other.name.is_empty() {
            self.name.clone_from(&other.name);
        }
        if !other.kube_context.is_empty() {
            self.kube_context.clone_from(&other.kube_context);
        }
        merge(&mut self.values, &other.values, ListMergeMode::Sparse);
        merge(&mut self.defaults, &other.defaults, ListMergeMode::Sparse);
        merge(&mut self.overrides, &other.overrides, ListMergeMode::Items);
        self
    }
}

/// Merges two optional environments, the second over the first. `None` if both are `None`.
pub(crate) fn joined(
    below: Option<&NamedEnvironment>,
    above: Option<&NamedEnvironment>,
) -> Option<NamedEnvironment> {
    match (below, above) {
        (Some(below), above) => Some(below.clone().with(above)),
        (None, above) => above.cloned(),
    }
}
