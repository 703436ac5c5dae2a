//! The settings that a sub-helmfile inherits from its parent, as its entry's `inherits` lists them.

use crate::go_struct_field::{HelmfileField, StructMergeMode};
use crate::named_environment::NamedEnvironment;
use crate::spec::State;

/// The inherited settings. `spec` has only the requested keys.
#[derive(Debug, Clone, Default)]
pub(crate) struct InheritedHelmfileSettings {
    spec: State,
    pub(crate) environment: Option<NamedEnvironment>,
}

impl InheritedHelmfileSettings {
    /// The parts of the parent's state that `keys` request for a nested helmfile.
    pub(crate) fn of(parent: &State, environment: &NamedEnvironment, keys: &[String]) -> Self {
        let mut inherited = Self::default();
        let spec = &mut inherited.spec;
        for key in keys {
            match key.as_str() {
                "repositories" => spec.repositories.clone_from(&parent.repositories),
                "helmDefaults" => spec.helm_defaults.clone_from(&parent.helm_defaults),
                "commonLabels" => spec.common_labels.clone_from(&parent.common_labels),
                "apiVersions" => spec.api_versions.clone_from(&parent.api_versions),
                "kubeVersion" => spec.kube_version.clone_from(&parent.kube_version),
                "templates" => spec.templates.clone_from(&parent.templates),
                "environments" => inherited.environment = Some(environment.clone()),
                _ => {}
            }
        }
        inherited
    }

    /// Fills settings that the sub-helmfile does not set itself.
    pub(crate) fn fill(&self, child: &mut State) {
        let from = &self.spec;
        let mut repositories = from.repositories.clone();
        repositories.append(&mut child.repositories);
        let is_last = |at: usize, name: &str| {
            !repositories.iter().skip(at + 1).any(|later| later.name == name)
        };
        let kept: Vec<bool> =
            repositories.iter().enumerate().map(|(at, known)| is_last(at, &known.name)).collect();
        // Parity(helmfile 1.8): only what is inherited removes duplicates.
        child.repositories = match from.repositories.is_empty() {
            true => repositories,
            false => repositories
                .into_iter()
                .zip(kept)
                .filter_map(|(known, is_kept)| is_kept.then_some(known))
                .collect(),
        };
        child.helm_defaults.merge(&from.helm_defaults, StructMergeMode::Fill);
        for (key, value) in &from.common_labels {
            child.common_labels.entry(key.clone()).or_insert_with(|| value.clone());
        }
        for (key, value) in &from.templates {
            child.templates.entry(key.clone()).or_insert_with(|| value.clone());
        }
        if !from.api_versions.is_empty() {
            let mut versions = from.api_versions.clone();
            for version in child.api_versions.drain(..) {
                if !versions.contains(&version) {
                    versions.push(version);
                }
            }
            child.api_versions = versions;
        }
        child.kube_version.merge(&from.kube_version, StructMergeMode::Fill);
    }
}
