//! Judges whether a new CustomResourceDefinition fits the objects that exist, and exports a definition with its
//! objects.
//!
//! Here: reading definitions ([`CrdDefinition`]), judging a changed definition by the live objects
//! ([`CrdChangeJudge`]), the verdict ([`CrdChangeVerdict`]), and exports ([`CrdExport`]). The API server cannot judge a
//! definition before it is written. The guard therefore defaults, prunes and validates each object as the API server
//! would under the new definition. The schemas are the structural schemas of Kubernetes. Elsewhere: reading definitions
//! and objects from a cluster, and acting on a verdict (the program).
//!
//! The result is compared with the old definition. An object that was invalid before does not count against the new
//! definition. A change that cannot be judged is a finding, too, and its text says so.
//!
//! Findings name fields as schemas do (`spec.ports[*].name`). They never contain keys or values of objects, which may
//! be secret.
//!
//! Source of the semantics: Kubernetes 1.34 `apiextensions-apiserver`, `kube-openapi`.

mod crd_change_judge;
mod crd_change_verdict;
mod crd_definition;
mod crd_with_objects_export;
mod field_defaults;
mod field_path;
mod field_pruning;
mod object_validation;
mod schema;
mod storage_version_migration;
mod validation_rules;
mod value_format;

#[cfg(test)]
mod tests;

pub use crd_change_judge::{CrdChangeJudge, CrdGuardFacts, WebhookServicePresence};
pub use crd_change_verdict::{
    CrdChangeFinding, CrdChangeProblem, CrdChangeVerdict, GuardedObjectKey,
};
pub use crd_definition::{
    CrdConversion, CrdDefinition, CrdDefinitionError, CrdVersion, WebhookServiceReference,
};
pub use crd_with_objects_export::{
    CrdExport, CrdExportReader, CrdExporter, CrdImportError, ExportTooLargeError,
    NoExportableVersionError, RestoredObject, whole,
};
pub use schema::CrdVersionSchema;
pub use storage_version_migration::{StorageVersionMove, StoredVersionMigration};
