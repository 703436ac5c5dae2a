//! Checks of a spec that do not depend on its sources.
//!
//! Source of the semantics: source-watcher 2.2 `validateSpec`.

use std::collections::BTreeSet;

use golang::strconv::{QuotingStyle, quote};
use reconcile::ConditionReason;
use reconcile::condition_reason::ACCESS_DENIED;

use crate::object_name_validation::subdomain_problem;
use crate::spec::GeneratorSpec;

/// The reason of conditions for a spec that can never be built.
pub(crate) const VALIDATION_FAILED: ConditionReason = ConditionReason::new("ValidationFailed");

/// Why a spec can never be built, in Flux's words. The user has to change the spec.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GeneratorSpecError {
    /// Two sources have the same alias.
    #[error("duplicate source alias '{0}' found")]
    DuplicateAlias(String),
    /// A source is in another namespace, although that is forbidden.
    #[error("cross-namespace reference to source {kind}/{namespace}/{name} is not allowed")]
    OtherNamespace {
        /// The kind of the source.
        kind: String,
        /// The namespace of the source.
        namespace: String,
        /// The name of the source.
        name: String,
    },
    /// Two artifacts have the same name.
    #[error("duplicate artifact name '{0}' found")]
    DuplicateName(String),
    /// The name of an artifact is not a valid name of an object.
    #[error("artifact name {name} is not a valid Kubernetes object name: {problem}")]
    Name {
        /// The name, in quotes.
        name: String,
        /// Kubernetes' message about it.
        problem: String,
    },
    /// No source has the alias whose revision an artifact should get.
    #[error("artifact {artifact} revision source alias '{alias}' not found")]
    Revision {
        /// The artifact.
        artifact: String,
        /// The alias.
        alias: String,
    },
}

impl GeneratorSpecError {
    /// The reason for the conditions `Stalled` and `Ready`.
    #[must_use]
    pub fn reason(&self) -> ConditionReason {
        match self {
            Self::OtherNamespace { .. } => ACCESS_DENIED,
            Self::DuplicateAlias(_)
            | Self::DuplicateName(_)
            | Self::Name { .. }
            | Self::Revision { .. } => VALIDATION_FAILED,
        }
    }
}

/// Refuses a spec that can never be built.
///
/// `namespace` is the namespace of the generator. If `is_confined` is true, the generator must not use sources of other
/// namespaces.
///
/// # Errors
/// The first problem of the spec.
pub fn validate(
    spec: &GeneratorSpec,
    namespace: &str,
    is_confined: bool,
) -> Result<(), GeneratorSpecError> {
    let mut aliases = BTreeSet::new();
    for source in &spec.sources {
        if !aliases.insert(source.alias.as_str()) {
            return Err(GeneratorSpecError::DuplicateAlias(source.alias.clone()));
        }
        if is_confined && !source.namespace.is_empty() && source.namespace != namespace {
            return Err(GeneratorSpecError::OtherNamespace {
                kind: source.kind.clone(),
                namespace: source.namespace.clone(),
                name: source.name.clone(),
            });
        }
    }
    let mut names = BTreeSet::new();
    for artifact in &spec.artifacts {
        let name = &artifact.name;
        if !names.insert(name.as_str()) {
            return Err(GeneratorSpecError::DuplicateName(name.clone()));
        }
        if let Some(problem) = subdomain_problem(name).filter(|_| spec.path_pattern.is_empty()) {
            return Err(GeneratorSpecError::Name { name: quoted(name), problem });
        }
        let alias = artifact.revision.strip_prefix('@').unwrap_or(&artifact.revision);
        if !artifact.revision.is_empty() && !aliases.contains(alias) {
            return Err(GeneratorSpecError::Revision {
                artifact: name.clone(),
                alias: alias.to_owned(),
            });
        }
    }
    Ok(())
}

/// Puts a text in quotes, as Go's `%q` writes it.
pub(crate) fn quoted(text: &str) -> String {
    String::from_utf8_lossy(&quote(text.as_bytes(), QuotingStyle::Printable)).into_owned()
}
