//! Whether a new CustomResourceDefinition fits the objects that exist, and exports of both.
//!
//! Here: reading definitions ([`Definition`]), judging a change of one by live objects ([`Judge`]), and the resulting
//! [`ChangeVerdict`]; a definition and its objects as an [`Export`]. The schemas are the structural schemas of
//! Kubernetes: the guard defaults, prunes and validates an object as the API server would under the new definition; the
//! API server cannot be asked before the definition is written.
//! Elsewhere: reading definitions and objects from a cluster, and what follows from a verdict (the program).
//!
//! The result is compared with the old definition: an object that was invalid before does not count against a new
//! definition. A change that cannot be judged is a finding, too, and its text says so.
//!
//! Findings name fields as schemas do (`spec.ports[*].name`), never keys and values of objects, which may be secret.
//!
//! Source of the semantics: Kubernetes 1.34 `apiextensions-apiserver`, `kube-openapi`.

mod check;
mod defaults;
mod definition;
mod export;
mod field_path;
mod format;
mod judge;
mod migration;
mod prune;
mod rules;
mod schema;
mod verdict;

#[cfg(test)]
mod tests;

pub use definition::{Conversion, Definition, DefinitionFault, ServiceReference, Version};
pub use export::{
    Export, Exporter, Import, ImportError, NotWhole, RestoredObject, TooLarge, whole,
};
pub use judge::{Facts, Judge, Presence};
pub use migration::{Migration, Move};
pub use schema::Schema;
pub use verdict::{ChangeVerdict, Finding, Key, Problem};
