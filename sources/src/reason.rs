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
