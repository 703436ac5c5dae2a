//! ArtifactGenerator: builds artifacts from the files of other artifacts.
//!
//! Here: decisions and file trees as data, without disk, network or clock. Elsewhere: fetching sources, and the storage
//! of archives (`sources`); objects of the cluster (the program).
//!
//! * [`validate()`] refuses specs that can never be built. [`sources_digest`] and [`drift`] say whether artifacts have
//!   to be built.
//! * [`artifact_requests`] expands the path pattern. [`build()`] builds the tree of one artifact. Its files share their
//!   bodies with the sources.
//! * [`revisions`] and [`external_artifact()`] describe the artifact. [`changes_message`] compares it with the last
//!   one.
//!
//! Source of the semantics: source-watcher 2.2.3, which Flux 2.9.4 ships.

mod build;
mod copy;
mod copy_exclude;
mod copy_path;
mod doublestar;
mod external_artifact;
mod file_name_hash;
mod glob;
mod inventory;
mod object_name_validation;
mod path_pattern;
mod revision;
mod spec;
#[cfg(test)]
mod tests;
mod validate;
mod yaml_file_merge;

pub use build::{
    ArtifactBuildError, ArtifactTree, BUILD_ALLOWANCE, BuildInputs, SourceTrees, TarballReader,
    build,
};
pub use copy::{ArtifactPlacementError, CopyError};
pub use copy_path::CopyPathError;
pub use external_artifact::{GENERATOR_LABEL, GeneratorIdentity, external_artifact};
pub use inventory::{
    ArtifactRebuildReason, CurrentGeneratorInputs, ExternalArtifactState, InventoryEntry,
    LastGeneratorRun, StoredArchiveFile, changes_message, drift, succeeded_message,
    up_to_date_message,
};
pub use path_pattern::{
    ArtifactRequest, PathPatternError, PathPatternProblem, VariableTemplateError, artifact_requests,
};
pub use revision::{
    ORIGIN_REVISION, ObservedSource, RevisionAndOriginRevision, revisions, sources_digest,
};
pub use spec::{
    CommonMetadata, CopyOperation, CopyStrategy, GeneratorSpec, OutputArtifact, SourceReference,
};
pub use validate::{GeneratorSpecError, validate};
pub use yaml_file_merge::YamlFileMergeError;
