//! The part of a HelmRelease's status about its release, and how `Ready` is derived from it.
//!
//! Here: the status fields that decisions read and operations change, reasons, events, the summary.
//! Elsewhere: how an operation changes them ([`crate::operation_status_changes`]), the other conditions (`reconcile`), the
//! object itself (the program).

use std::time::Duration;

use reconcile::{ConditionReason, condition_reason};

use crate::journal::OperationKind;
use crate::release_snapshot::ReleaseSnapshot;
use crate::release_spec::ReleaseDesiredState;

/// Type of the condition of installations and upgrades.
pub const RELEASED: &str = "Released";
/// Type of the condition of tests.
pub const TEST_SUCCESS: &str = "TestSuccess";
/// Type of the condition about the remediation of failures.
pub const REMEDIATED: &str = "Remediated";
/// Type of the condition of drift.
pub const DRIFTED: &str = "Drifted";

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        $($(#[$doc])* pub const $name: ConditionReason = ConditionReason::new($text);)*

        /// Finds a reason of this list by its text. `None` if the list does not have it.
        pub fn reason_of(word: &str) -> Option<ConditionReason> {
            [$($name,)* condition_reason::PROGRESSING].into_iter().find(|reason| reason.as_str() == word)
        }
    };
}

reasons! {
    /// The release was installed.
    INSTALL_SUCCEEDED = "InstallSucceeded";
    /// The installation failed.
    INSTALL_FAILED = "InstallFailed";
    /// The release was upgraded.
    UPGRADE_SUCCEEDED = "UpgradeSucceeded";
    /// The upgrade failed.
    UPGRADE_FAILED = "UpgradeFailed";
    /// The tests of the release succeeded.
    TEST_SUCCEEDED = "TestSucceeded";
    /// A test went wrong.
    TEST_FAILED = "TestFailed";
    /// The tests of the release were not run yet.
    AWAITING_TESTS = "AwaitingTests";
    /// A lifecycle did not let the operation continue.
    LIFECYCLE_FAILED = "LifecycleFailed";
    /// The release was rolled back.
    ROLLBACK_SUCCEEDED = "RollbackSucceeded";
    /// The rollback failed.
    ROLLBACK_FAILED = "RollbackFailed";
    /// The release was uninstalled.
    UNINSTALL_SUCCEEDED = "UninstallSucceeded";
    /// The uninstallation failed.
    UNINSTALL_FAILED = "UninstallFailed";
    /// An operation of another client was found unfinished.
    PENDING_RELEASE = "PendingRelease";
    /// The allowed attempts are used up.
    RETRIES_EXCEEDED = "RetriesExceeded";
    /// There is nothing to roll back to.
    MISSING_ROLLBACK_TARGET = "MissingRollbackTarget";
    /// The state of the release cannot be determined.
    STATE_ERROR = "StateError";
    /// Something went wrong that no other reason names.
    RECONCILE_ERROR = "ReconcileError";
    /// The cluster differs from the release.
    DRIFT_DETECTED = "DriftDetected";
    /// The cluster matches the release.
    NO_DRIFT_DETECTED = "NoDriftDetected";
    /// The cluster was corrected to be as the release.
    DRIFT_CORRECTED = "DriftCorrected";
    /// The cluster could not be corrected to be as the release.
    DRIFT_CORRECTION_FAILED = "DriftCorrectionFailed";
}

/// A condition of the release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseCondition {
    /// The status of the condition.
    pub status: reconcile::ConditionStatus,
    /// The reason of the condition, as one word.
    pub reason: ConditionReason,
    /// The message of the condition, for users.
    pub text: String,
    /// The generation that the condition is about.
    pub generation: i64,
}

/// The fields of a HelmRelease's status that decisions read or write.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HelmReleaseStatusFields {
    /// `observedGeneration`
    pub observed_generation: i64,
    /// `storageNamespace`; empty before the first installation.
    pub storage_namespace: String,
    /// `history`
    pub history: Vec<ReleaseSnapshot>,
    /// `lastAttemptedGeneration`
    pub last_attempted_generation: i64,
    /// `lastAttemptedRevision`
    pub last_attempted_revision: String,
    /// `lastAttemptedRevisionDigest`
    pub last_attempted_revision_digest: String,
    /// `lastAttemptedConfigDigest`
    pub last_attempted_config_digest: String,
    /// `lastAttemptedReleaseAction`: an installation or upgrade.
    pub last_attempted_action: Option<OperationKind>,
    /// `lastAttemptedReleaseActionDuration`
    pub last_attempted_duration: Option<Duration>,
    /// `failures`
    pub failures: i64,
    /// `installFailures`
    pub install_failures: i64,
    /// `upgradeFailures`
    pub upgrade_failures: i64,
    /// `lastHandledReconcileAt`
    pub last_handled_reconcile: Option<String>,
    /// `lastHandledForceAt`
    pub last_handled_force: Option<String>,
    /// `lastHandledResetAt`
    pub last_handled_reset: Option<String>,
    /// `observedPostRenderersDigest`
    pub post_renderers_digest: String,
    /// `observedCommonMetadataDigest`
    pub common_metadata_digest: String,
    /// The condition [`RELEASED`].
    pub released: Option<ReleaseCondition>,
    /// The condition [`TEST_SUCCESS`].
    pub tested: Option<ReleaseCondition>,
    /// The condition [`REMEDIATED`].
    pub remediated: Option<ReleaseCondition>,
    /// The condition [`DRIFTED`].
    pub drifted: Option<ReleaseCondition>,
}

impl HelmReleaseStatusFields {
    /// Resets all counts of failures.
    pub(crate) fn clear_failures(&mut self) {
        (self.failures, self.install_failures, self.upgrade_failures) = (0, 0, 0);
    }

    /// The counter of an action's failures.
    pub(crate) fn failures_of(&self, action: OperationKind) -> i64 {
        match action {
            OperationKind::Install => self.install_failures,
            OperationKind::Upgrade => self.upgrade_failures,
            OperationKind::Rollback
            | OperationKind::Test
            | OperationKind::Uninstall
            | OperationKind::UninstallRemediation => 0,
        }
    }

    /// The content of `Ready`. It is the first of the conditions Remediated, TestSuccess and Released that has the
    /// newest generation of the three. `None` if there is none of them.
    ///
    /// Parity(flux): what was undone counts as an error, also when that went well.
    pub fn summary(&self, desired: &ReleaseDesiredState) -> Option<ReleaseCondition> {
        let tested = self.tested.as_ref();
        let tested =
            tested.filter(|_| desired.spec.test.enable && !desired.spec.test.ignore_failures);
        let remediated = self.remediated.clone().map(|said| {
            let status = reconcile::ConditionStatus::False;
            ReleaseCondition { status, ..said }
        });
        let all = [remediated, tested.cloned(), self.released.clone()];
        let newest = all.iter().flatten().map(|said| said.generation).max()?;
        all.into_iter().flatten().find(|said| said.generation == newest)
    }
}

/// An event about a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseEvent {
    /// Whether the event is a warning.
    pub warning: bool,
    /// The reason of the event, as one word.
    pub reason: ConditionReason,
    /// The message of the event, for users.
    pub text: String,
    /// The chart's version, or that of the requested chart.
    pub revision: String,
    /// The digest of the values.
    pub token: String,
    /// The `appVersion` of the chart.
    pub app_version: String,
    /// The digest of the artifact that the chart came from.
    pub oci_digest: String,
}

/// A new status, and the events about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseReport {
    /// The status.
    pub status: HelmReleaseStatusFields,
    /// The new content of `Reconciling`. `None` keeps the present one.
    pub progress: Option<ReleaseProgress>,
    /// The events.
    pub events: Vec<ReleaseEvent>,
    /// The message about contested fields. `Ready` shows it if it would otherwise be True.
    pub contested: Option<String>,
    /// Whether something failed without a trace in storage.
    pub is_early_failure: bool,
    /// The operation that ended with this report.
    pub ended: Option<OperationKind>,
    /// The operation that a lifecycle did not let begin.
    pub refused: Option<Box<LifecycleRefusedOperation>>,
}

/// An installation or upgrade that a lifecycle did not let begin. It has no journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LifecycleRefusedOperation {
    /// The name of the operation.
    pub operation: String,
    /// The operation that was to begin.
    pub action: OperationKind,
    /// The present revision.
    pub from: Option<lifecycle::ReleaseOrSourceRevision>,
    /// The revision that was to be.
    pub to: lifecycle::ReleaseOrSourceRevision,
    /// The answers of lifecycles.
    pub answers: Vec<lifecycle::LifecycleEventAnswer>,
    /// Why the operation failed.
    pub error: String,
}

/// The progress that `Reconciling` reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseProgress {
    /// The text for users.
    pub text: String,
    /// Whether `Ready` becomes Unknown with the same text during the action. Otherwise it stays as it was.
    pub makes_unready: bool,
}

impl ReleaseReport {
    /// A report of a new status only.
    pub fn of(status: HelmReleaseStatusFields) -> Self {
        Self {
            status,
            progress: None,
            events: Vec::new(),
            contested: None,
            is_early_failure: false,
            ended: None,
            refused: None,
        }
    }
}
