//! Condition reasons of sources, beside those that all kinds share.

use reconcile::Reason;

/// The credentials are missing, incomplete or refused.
pub const AUTHENTICATION_FAILED: Reason = Reason::new("AuthenticationFailed");
/// A Git remote could not be asked or fetched.
pub const GIT_OPERATION_FAILED: Reason = Reason::new("GitOperationFailed");
/// The URL cannot be used.
pub const URL_INVALID: Reason = Reason::new("URLInvalid");
/// The artifact could not be kept.
pub const ARCHIVE_OPERATION_FAILED: Reason = Reason::new("ArchiveOperationFailed");
/// A duration of the spec cannot be used.
pub const INVALID_DURATION: Reason = Reason::new("InvalidDuration");
/// An artifact was stored.
pub const NEW_ARTIFACT: Reason = Reason::new("NewArtifact");
/// Something that is included does not exist.
pub const NOT_FOUND: Reason = Reason::new("NotFound");
/// Something that is included has no artifact.
pub const NO_ARTIFACT: Reason = Reason::new("NoArtifact");
/// A source includes itself, by way of others or not.
pub const INCLUDE_CYCLE: Reason = Reason::new("IncludeCycle");
/// A path of `include` leads outside.
pub const ILLEGAL_PATH: Reason = Reason::new("IllegalPath");
/// What is included could not be copied to its place.
pub const COPY_FAILURE: Reason = Reason::new("CopyFailure");
