//! The one-word reasons of conditions and events.
//!
//! Here: [`ConditionReason`] and the reasons that several kinds share.
//! Elsewhere: a reason that one kind alone uses stands beside the plan that gives it.

use std::fmt;

use serde::Serialize;

/// The reason of a condition or event: one PascalCase word that programs compare.
///
/// A word that is not PascalCase does not compile in a constant:
/// ```compile_fail
/// const WRONG: reconcile::ConditionReason = reconcile::ConditionReason::new("not pascal case");
/// ```
/// ```
/// const RIGHT: reconcile::ConditionReason = reconcile::ConditionReason::new("InvalidCELExpression");
/// assert_eq!(RIGHT.as_str(), "InvalidCELExpression");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct ConditionReason(&'static str);

impl ConditionReason {
    /// Checks the word. Make reasons constants, so that the check runs in the compiler.
    ///
    /// # Panics
    /// Unless the text is an ASCII capital followed by ASCII letters and digits.
    pub const fn new(text: &'static str) -> Self {
        let bytes = text.as_bytes();
        assert!(
            !bytes.is_empty() && bytes[0].is_ascii_uppercase(),
            "a reason starts with a capital"
        );
        // `for` is not allowed in a const fn.
        let mut at = 1;
        while at < bytes.len() {
            assert!(bytes[at].is_ascii_alphanumeric(), "a reason is letters and digits only");
            at += 1;
        }
        Self(text)
    }

    /// The reason itself, as it is written into a condition.
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for ConditionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        $($(#[$doc])* pub const $name: ConditionReason = ConditionReason::new($text);)*
    };
}

// The first group is copied from fluxcd/pkg `apis/meta` and `apis/acl`. The second group belongs to windlass.
reasons! {
    /// The run succeeded.
    SUCCEEDED = "Succeeded";
    /// The run failed.
    FAILED = "Failed";
    /// Work is under way.
    PROGRESSING = "Progressing";
    /// The last attempt failed and will be repeated.
    PROGRESSING_WITH_RETRY = "ProgressingWithRetry";
    /// Reconciliation is switched off on the object.
    SUSPENDED = "Suspended";
    /// Something named in `dependsOn` is not ready.
    DEPENDENCY_NOT_READY = "DependencyNotReady";
    /// `windlass.dev/depends-on` or an entry of `dependsOn` cannot be read, or names something on which nothing can depend.
    INVALID_DEPENDENCY = "InvalidDependency";
    /// A path does not exist or leads outside.
    INVALID_PATH = "InvalidPath";
    /// A URL cannot be used.
    INVALID_URL = "InvalidURL";
    /// The object asks for plain HTTP where that is forbidden.
    INSECURE_CONNECTIONS_DISALLOWED = "InsecureConnectionsDisallowed";
    /// The object asks for a transport that is not supported.
    UNSUPPORTED_CONNECTION_TYPE = "UnsupportedConnectionType";
    /// Objects that are no longer wanted could not be deleted.
    PRUNE_FAILED = "PruneFailed";
    /// The artifact of the source could not be fetched.
    ARTIFACT_FAILED = "ArtifactFailed";
    /// The manifests could not be built.
    BUILD_FAILED = "BuildFailed";
    /// The applied objects did not become healthy.
    HEALTH_CHECK_FAILED = "HealthCheckFailed";
    /// The wait for health ended because something newer has to be applied.
    HEALTH_CHECK_CANCELED = "HealthCheckCanceled";
    /// The cluster equals the desired state.
    RECONCILIATION_SUCCEEDED = "ReconciliationSucceeded";
    /// The cluster could not be made equal to the desired state.
    RECONCILIATION_FAILED = "ReconciliationFailed";
    /// A CEL expression of the spec does not compile.
    INVALID_CEL_EXPRESSION = "InvalidCELExpression";
    /// The object needs a feature that is switched off.
    FEATURE_GATE_DISABLED = "FeatureGateDisabled";
    /// The object refers to something it may not use.
    ACCESS_DENIED = "AccessDenied";
}

reasons! {
    /// The spec uses a field that windlass does not support yet. The message names the field.
    UNSUPPORTED_FIELD = "UnsupportedField";
    /// The object depends on itself. The message shows the path.
    DEPENDENCY_CYCLE = "DependencyCycle";
    /// The deletion waits for other objects to be deleted first. They depend on this object or on objects that it deletes.
    AWAITING_DEPENDENTS = "AwaitingDependents";
    /// A run stopped because its steps changed nothing.
    NO_PROGRESS = "NoProgress";
    /// A change waits for the next window.
    WINDOW_CLOSED = "WindowClosed";
    /// A change waits for the end of a Freeze.
    FROZEN = "Frozen";
    /// A revision waits for its wave of a rollout.
    WAITING_FOR_WAVE = "WaitingForWave";
    /// It is unknown which Freezes exist, so no change begins.
    FREEZES_UNKNOWN = "FreezesUnknown";
    /// An operation that began before a Freeze is being completed.
    FREEZE_OVERRUN = "FreezeOverrun";
    /// The annotation that names the windows cannot be read.
    INVALID_WINDOW = "InvalidWindow";
    /// The schedule annotation cannot be parsed.
    INVALID_SCHEDULE = "InvalidSchedule";
    /// A CustomResourceDefinition does not fit the existing objects, so it is not written.
    CRD_INCOMPATIBLE = "CRDIncompatible";
    /// A CustomResourceDefinition is kept instead of deleted, because other appliers still use it.
    CRD_RELEASED = "CRDReleased";
    /// A CustomResourceDefinition is deleted together with its objects, which were exported first.
    CRD_EXPORTED = "CRDExported";
    /// The desired state failed before. It is not applied again until a user lifts its Quarantine.
    QUARANTINED = "Quarantined";
    /// Another client repeatedly undoes the applied state.
    CONTESTED = "Contested";
    /// A window is open.
    OPEN = "Open";
    /// No window is open.
    CLOSED = "Closed";
    /// A hold expired.
    EXPIRED = "Expired";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_written_as_its_word() {
        assert_eq!(serde_json::to_value(PRUNE_FAILED).unwrap(), "PruneFailed");
        assert_eq!(format!("{NO_PROGRESS}"), "NoProgress");
    }

    #[test]
    fn a_text_that_is_not_pascal_case_is_refused() {
        for text in ["", "lower", "Has Space", "Has_Underscore", "Ünicode", "9Digit", "Naïve"] {
            assert!(std::panic::catch_unwind(|| ConditionReason::new(text)).is_err(), "{text}");
        }
        assert_eq!(ConditionReason::new("V2Ready").as_str(), "V2Ready");
    }
}
