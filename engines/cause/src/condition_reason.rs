//! The meaning of the one-word reasons that windlass writes into conditions.
//!
//! Elsewhere: the code that writes these reasons (`sources::source_condition_reasons`, `reconcile::condition_reason`, `release::status`,
//! and beside the plans).

use crate::cause_result::CauseKind;

/// Whether a run with this reason failed because of its source.
pub(crate) fn is_about_source(reason: &str) -> bool {
    matches!(
        reason,
        "ArtifactFailed"
            | "SourceFetchFailed"
            | "SourceNotReady"
            | "NoSourceArtifact"
            | "SourceUnavailable"
            | "HelmChartNotReady"
    )
}

/// Whether the cause of a run with this reason may be an applied object.
pub(crate) fn is_of_objects(reason: &str) -> bool {
    matches!(
        reason,
        "HealthCheckFailed"
            | "Progressing"
            | "InstallFailed"
            | "UpgradeFailed"
            | "RollbackFailed"
            | "TestFailed"
            | "ReleaseFailed"
            | "DriftDetected"
            | "PruneFailed"
            | "Contested"
            | "AwaitingCRDs"
            | "AwaitingClasses"
            | "AwaitingTermination"
    )
}

/// Whether an operation with this reason may have ended before it created all of its objects. A missing object is no
/// cause then.
pub(crate) fn is_broken_off(reason: &str) -> bool {
    matches!(reason, "InstallFailed" | "UpgradeFailed" | "RollbackFailed" | "ReleaseFailed")
}

/// Whether a run with this reason ended before it applied anything. The objects that were applied earlier should then
/// exist.
pub(crate) fn is_before_apply(reason: &str) -> bool {
    let is_of_inputs = |of: CauseKind| {
        matches!(
            of,
            CauseKind::Fetch
                | CauseKind::Credentials
                | CauseKind::Verification
                | CauseKind::Cycle
                | CauseKind::Dependency
                | CauseKind::Build
                | CauseKind::Values
                | CauseKind::Spec
                | CauseKind::Access
        )
    };
    is_about_source(reason) || is_pause(reason) || problem(reason).is_some_and(is_of_inputs)
}

/// Whether an object with this reason is suspended, or waits for a window or the end of a Freeze.
pub(crate) fn is_pause(reason: &str) -> bool {
    matches!(
        problem(reason),
        Some(
            CauseKind::Suspension
                | CauseKind::ExpiredHold
                | CauseKind::ClosedWindow
                | CauseKind::Freeze
                | CauseKind::Wave
                | CauseKind::InvalidWindow
        )
    )
}

/// Whether this is the reason of a remediation, which says what was undone. The cause is in the condition `Released` or
/// `TestSuccess`.
pub(crate) fn is_remedy(reason: &str) -> bool {
    matches!(
        reason,
        "RollbackSucceeded"
            | "UninstallSucceeded"
            | "RetriesExceeded"
            | "MissingRollbackTarget"
            | "RollbackFailed"
    )
}

/// Whether `Stalled` with this reason means that the retries are exhausted ([`crate::exhausted`]).
pub(crate) fn is_exhausted(reason: &str) -> bool {
    matches!(reason, "RetriesExceeded" | "MissingRollbackTarget")
}

/// Whether a run of an object of this kind failed because of a remote or the credentials for it.
pub(crate) fn is_about_remote(kind: &str, reason: &str) -> bool {
    let is_of_remote = |of: CauseKind| matches!(of, CauseKind::Fetch | CauseKind::Credentials);
    is_failed_fetch(kind, reason) || problem(reason).is_some_and(is_of_remote)
}

/// Whether this reason, which many failures share, means for this kind that a remote did not do what the object
/// requested.
pub(crate) fn is_failed_fetch(kind: &str, reason: &str) -> bool {
    reason == reconcile::condition_reason::FAILED.as_str()
        && matches!(kind, "HelmRepository" | "ImagePolicy")
}

/// Whether an event with this reason repeats the object's `Ready` condition, so that an incident reports it already.
///
/// Other events are about parts of a run that fail while the object may be ready, about an object that is being
/// deleted, and about an object that cannot be read.
pub fn is_of_condition(reason: &str, is_error: bool) -> bool {
    let is_waiting = reason == reconcile::condition_reason::DEPENDENCY_NOT_READY.as_str();
    let is_of_part =
        matches!(reason, "CRDIncompatible" | "PruneFailed" | "UninstallFailed" | "Unreadable");
    match is_error {
        true => problem(reason).is_some() && !is_of_part,
        false => is_waiting || is_about_source(reason),
    }
}

/// The kind of problem that a condition's reason reports. `None` if the reason is unknown or reports success.
pub fn problem(reason: &str) -> Option<CauseKind> {
    of_source(reason).or_else(|| of_spec(reason)).or_else(|| of_run(reason))
}

/// The kind of problem that a condition's reason means, if sources and charts report this reason. `None` for all other
/// reasons.
fn of_source(reason: &str) -> Option<CauseKind> {
    Some(match reason {
        "AuthenticationFailed" | "TokenNotFound" => CauseKind::Credentials,
        "GitOperationFailed"
        | "OCIArtifactPullFailed"
        | "OCIArtifactLayerOperationFailed"
        | "BucketOperationFailed"
        | "HTTPOperationFailed"
        | "ReadOperationFailed"
        | "IndexationFailed"
        | "ChartPullError"
        | "SourceFetchFailed"
        | "SourceUnavailable"
        | "SourceNotReady"
        | "SourceManagerFailed"
        | "NoSourceArtifact"
        | "NoArtifact" => CauseKind::Fetch,
        "VerificationError"
        | "ChartVerificationError"
        | "DigestMismatch"
        | "InvalidGitObject"
        | "InvalidTagSignature"
        | "InvalidCommitSignature"
        | "SourceNotVerified" => CauseKind::Verification,
        // The cause is windlass' own disk, or its rights to read a Namespace.
        "ArchiveOperationFailed" | "VerificationPolicyUnknown" => CauseKind::Other,
        _ => return None,
    })
}

/// The kind of problem that a condition's reason means, if it says that a spec is invalid or not supported. `None` for
/// all other reasons.
fn of_spec(reason: &str) -> Option<CauseKind> {
    Some(match reason {
        "DependencyCycle" | "IncludeCycle" => CauseKind::Cycle,
        "AccessDenied" => CauseKind::Access,
        "InvalidWindow" => CauseKind::InvalidWindow,
        "URLInvalid"
        | "InvalidURL"
        | "ImageURLInvalid"
        | "InvalidPolicy"
        | "IntervalNotConfigured"
        | "InvalidDuration"
        | "InvalidInclude"
        | "InvalidSTSConfiguration"
        | "InvalidVerificationMode"
        | "InvalidChartReference"
        | "InvalidCELExpression"
        | "InvalidDependency"
        | "InvalidRequirement"
        | "InvalidSchedule"
        | "InvalidSourceConfiguration"
        | "InvalidUpdateStrategy"
        | "InvalidPolicySelector"
        | "InvalidPullRequest"
        | "InvalidOnFailure"
        | "RemovedTemplateField"
        | "IllegalPath"
        | "NotFound"
        | "ValidationFailed"
        | "UnsupportedField"
        | "UnsupportedConnectionType"
        | "InsecureConnectionsDisallowed"
        | "FeatureGateDisabled"
        | "Unreadable" => CauseKind::Spec,
        _ => return None,
    })
}

/// The kind of problem that a condition's reason means, if runs that build and apply report it. `None` for all other
/// reasons.
fn of_run(reason: &str) -> Option<CauseKind> {
    Some(match reason {
        "BuildFailed"
        | "ArtifactFailed"
        | "ArtifactLost"
        | "DependencyBuildError"
        | "ChartPackageError"
        | "ChartMutateError"
        | "CopyFailure"
        | "InvalidPath"
        | "HelmfileError"
        | "UpdateFailed"
        | "MetadataPatchError" => CauseKind::Build,
        "ValuesError" | "ValuesFilesError" | "EnvironmentError" => CauseKind::Values,
        "DependencyNotReady" => CauseKind::Dependency,
        "ReconciliationFailed"
        | "InstallFailed"
        | "UpgradeFailed"
        | "RollbackFailed"
        | "UninstallFailed"
        | "ReleaseFailed"
        | "RetriesExceeded"
        | "MissingRollbackTarget"
        | "PendingRelease"
        | "StateError"
        | "ReconcileError"
        | "DriftDetected"
        | "DriftCorrectionFailed"
        | "ExternalArtifactFailed"
        | "PruneFailed"
        | "PlanFailed"
        | "DeletionBudgetUnknown"
        | "DeletionBudgetExceeded"
        | "PlanPending"
        | "PlanRejected"
        | "PlanPoliciesUnknown"
        | "PlanNotReproducible"
        | "QuarantinesUnknown"
        | "CRDIncompatible"
        | "Contested" => CauseKind::Apply,
        "TestFailed" => CauseKind::Test,
        "LifecyclePending" | "LifecycleFailed" | "LifecyclesUnknown" => CauseKind::Lifecycle,
        "HealthCheckFailed"
        | "HealthCheckCanceled"
        | "AwaitingCRDs"
        | "AwaitingClasses"
        | "AwaitingTermination"
        | "AwaitingDependents"
        | "Quarantined" => CauseKind::Health,
        "WindowClosed" => CauseKind::ClosedWindow,
        "Frozen" | "FreezesUnknown" => CauseKind::Freeze,
        "WaitingForWave" | "RolloutsUnknown" => CauseKind::Wave,
        "Suspended" => CauseKind::Suspension,
        "Expired" => CauseKind::ExpiredHold,
        // "Failure": no tag of an image is the latest of its policy. "PullRequestFailed": the message names the Provider.
        "Failed"
        | "Failure"
        | "NoProgress"
        | "PullRequestFailed"
        | "DowngradeRefused"
        | "MinAgeNotReached"
        | "PlatformsMissing"
        | "InvalidFreeze"
        | "InvalidRollout"
        | "SelectsNothing"
        | "Overlapping"
        | "WaveFailed"
        | "ClustersOffline"
        | "CalendarFailed"
        | "CalendarNotSupported"
        | "MarkerWithoutDigest" => CauseKind::Other,
        _ => return None,
    })
}
