//! Condition reasons of sources, beside those that all kinds share.

use reconcile::ConditionReason;

/// The credentials are missing, incomplete or refused.
pub const AUTHENTICATION_FAILED: ConditionReason = ConditionReason::new("AuthenticationFailed");
/// A Git remote could not be asked or fetched.
pub const GIT_OPERATION_FAILED: ConditionReason = ConditionReason::new("GitOperationFailed");
/// A bucket could not be asked or fetched.
pub const BUCKET_OPERATION_FAILED: ConditionReason = ConditionReason::new("BucketOperationFailed");
/// An OCI registry could not be asked, or an artifact not be pulled from it.
pub const OCI_PULL_FAILED: ConditionReason = ConditionReason::new("OCIArtifactPullFailed");
/// The layer of an OCI artifact could not be found or taken apart.
pub const OCI_LAYER_OPERATION_FAILED: ConditionReason =
    ConditionReason::new("OCIArtifactLayerOperationFailed");
/// The content of a remote could not be read.
pub const READ_OPERATION_FAILED: ConditionReason = ConditionReason::new("ReadOperationFailed");
/// The URL cannot be used.
pub const URL_INVALID: ConditionReason = ConditionReason::new("URLInvalid");
/// The artifact could not be kept.
pub const ARCHIVE_OPERATION_FAILED: ConditionReason =
    ConditionReason::new("ArchiveOperationFailed");
/// The artifact is kept, and the ExternalArtifact that should offer it cannot be written or is of another owner.
pub const EXTERNAL_ARTIFACT_FAILED: ConditionReason =
    ConditionReason::new("ExternalArtifactFailed");
/// A duration of the spec cannot be used.
pub const INVALID_DURATION: ConditionReason = ConditionReason::new("InvalidDuration");
/// An included object does not exist.
pub const NOT_FOUND: ConditionReason = ConditionReason::new("NotFound");
/// An included object has no artifact.
pub const NO_ARTIFACT: ConditionReason = ConditionReason::new("NoArtifact");
/// A source includes itself, directly or through others.
pub const INCLUDE_CYCLE: ConditionReason = ConditionReason::new("IncludeCycle");
/// `include` has too many entries.
pub const INVALID_INCLUDE: ConditionReason = ConditionReason::new("InvalidInclude");
/// A path of `include` leads outside.
pub const ILLEGAL_PATH: ConditionReason = ConditionReason::new("IllegalPath");
/// An included file could not be copied to its place.
pub const COPY_FAILURE: ConditionReason = ConditionReason::new("CopyFailure");
/// An index of charts could not be read.
pub const INDEXATION_FAILED: ConditionReason = ConditionReason::new("IndexationFailed");
/// A chart was fetched and stored unchanged.
pub const CHART_PULL_SUCCEEDED: ConditionReason = ConditionReason::new("ChartPullSucceeded");
/// A chart was packed.
pub const CHART_PACKAGE_SUCCEEDED: ConditionReason = ConditionReason::new("ChartPackageSucceeded");
/// The chart does not exist, or has no such version.
pub const INVALID_CHART_REFERENCE: ConditionReason = ConditionReason::new("InvalidChartReference");
/// A chart could not be fetched.
pub const CHART_PULL_ERROR: ConditionReason = ConditionReason::new("ChartPullError");
/// A chart could not be given its version.
pub const METADATA_PATCH_ERROR: ConditionReason = ConditionReason::new("MetadataPatchError");
/// Values files could not be put together.
pub const VALUES_FILES_ERROR: ConditionReason = ConditionReason::new("ValuesFilesError");
/// A dependency of a chart cannot be fetched.
pub const DEPENDENCY_BUILD_ERROR: ConditionReason = ConditionReason::new("DependencyBuildError");
/// A chart could not be packed.
pub const CHART_PACKAGE_ERROR: ConditionReason = ConditionReason::new("ChartPackageError");
/// A chart is not signed as its annotation asks.
pub const CHART_VERIFICATION_ERROR: ConditionReason =
    ConditionReason::new("ChartVerificationError");
/// There is no source of that name.
pub const SOURCE_UNAVAILABLE: ConditionReason = ConditionReason::new("SourceUnavailable");
/// The keys for a verification are not available, or an image is not signed with them.
pub const VERIFICATION_ERROR: ConditionReason = ConditionReason::new("VerificationError");
/// The spec asks for the signature of a tag, and names none.
pub(crate) const INVALID_VERIFICATION_MODE: ConditionReason =
    ConditionReason::new("InvalidVerificationMode");
/// A required signature is missing or invalid.
pub(crate) const INVALID_GIT_OBJECT: ConditionReason = ConditionReason::new("InvalidGitObject");
/// The signature of a tag does not count.
pub(crate) const INVALID_TAG_SIGNATURE: ConditionReason =
    ConditionReason::new("InvalidTagSignature");
/// The signature of a commit does not count.
pub const INVALID_COMMIT_SIGNATURE: ConditionReason =
    ConditionReason::new("InvalidCommitSignature");
/// The source has no artifact yet.
pub const NO_SOURCE_ARTIFACT: ConditionReason = ConditionReason::new("NoSourceArtifact");

/// Whether a source was examined and found not to be signed as its spec asks.
pub fn is_refused_signature(why: ConditionReason) -> bool {
    [
        INVALID_VERIFICATION_MODE,
        INVALID_GIT_OBJECT,
        INVALID_TAG_SIGNATURE,
        INVALID_COMMIT_SIGNATURE,
        CHART_VERIFICATION_ERROR,
        VERIFICATION_ERROR,
    ]
    .contains(&why)
}
