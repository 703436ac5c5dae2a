//! Whether a new CustomResourceDefinition fits the objects that exist, and exports of both.
//!
//! Here: reading definitions ([`Definition`]), judging a change of one by live objects ([`Judge`]), and what comes of it
//! ([`ChangeVerdict`]); a definition and its objects as an [`Export`]. The schemas are the structural schemas of Kubernetes: an object is defaulted, pruned and validated as
//! the API server would do it under the new definition, which it cannot be asked about before it is written.
//! Elsewhere: reading definitions and objects from a cluster, and what follows from a verdict (the program).
//!
//! What is broken is compared with the old definition: an object that was invalid before is no reason against a new
//! definition. Whatever cannot be judged is a finding, too, and says so.
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
