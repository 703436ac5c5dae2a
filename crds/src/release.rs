//! The group `release.windlass.dev/v1alpha1`: what was done to releases and to applied revisions.
//!
//! Here: its one kind. Elsewhere: what an audit says of an operation (`engines/release/src/audit.rs`), writing and deleting
//! audits (`operator/runtime/src/audit.rs`).

mod release_audit;

pub use release_audit::{
    AuditApproval, AuditCause, AuditCauseKind, AuditChange, AuditChangeKind, AuditChanges,
    AuditLifecycle, AuditOperation, AuditOutcome, AuditRelease, AuditRevision, AuditStep,
    AuditSubject, ReleaseAudit, ReleaseAuditSpec,
};
