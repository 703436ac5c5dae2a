//! Whether a new CustomResourceDefinition fits the objects that exist, and exports of both.
//!
//! Here: reading definitions ([`CrdDefinition`]), judging a change of one by live objects ([`CrdChangeJudge`]), and the
//! resulting [`ChangeVerdict`]; a definition and its objects as an [`CrdExport`]. The schemas are the structural
//! schemas of Kubernetes: the guard defaults, prunes and validates an object as the API server would under the new
//! definition; the API server cannot be asked before the definition is written.
//! Elsewhere: reading definitions and objects from a cluster, and what follows from a verdict (the program).
//!
//! The result is compared with the old definition: an object that was invalid before does not count against a new
//! definition. A change that cannot be judged is a finding, too, and its text says so.
//!
//! Findings name fields as schemas do (`spec.ports[*].name`), never keys and values of objects, which may be secret.
//!
//! Source of the semantics: Kubernetes 1.34 `apiextensions-apiserver`, `kube-openapi`.

mod change_judge;
mod change_verdict;
mod definition;
mod export;
mod field_defaults;
mod field_path;
mod field_pruning;
mod migration;
mod object_validation;
mod schema;
mod validation_rules;
mod value_format;

#[cfg(test)]
mod tests;

pub use change_judge::{CrdChangeJudge, CrdGuardFacts, WebhookServicePresence};
pub use change_verdict::{ChangeVerdict, CrdChangeFinding, CrdChangeProblem, GuardedObjectKey};
pub use definition::{
    CrdConversion, CrdDefinition, CrdDefinitionError, CrdVersion, WebhookServiceReference,
};
pub use export::{
    CrdExport, CrdExportReader, CrdExporter, CrdImportError, ExportTooLargeError,
    NoCompleteVersionError, RestoredObject, whole,
};
pub use migration::{StorageVersionMove, StoredVersionMigration};
pub use schema::CrdVersionSchema;
