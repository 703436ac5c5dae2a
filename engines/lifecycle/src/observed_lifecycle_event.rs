//! An observed LifecycleEvent, and the naming of events.

use reconcile::Time;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::lifecycle_hold_phase::LifecycleHoldPhase;

/// The state of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LifecycleEventState {
    /// There is no answer yet.
    #[default]
    Pending,
    /// A controller is working on the answer.
    Running,
    /// The operation may continue.
    Succeeded,
    /// The operation must not continue.
    Failed,
    /// No operation waits for the answer any more.
    Cancelled,
}

impl LifecycleEventState {
    /// The spelling in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Cancelled => "Cancelled",
        }
    }

    /// Whether the event may still be answered.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::Running)
    }
}

/// The approval of a user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LifecycleApproval {
    /// The user who approved.
    pub user: String,
    /// When the user approved.
    #[serde(
        default,
        with = "reconcile::time_json::exact",
        skip_serializing_if = "Option::is_none"
    )]
    pub at: Option<Time>,
    /// The user's reason for the approval.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub comment: String,
}

/// An event of a Lifecycle as it was observed in the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedLifecycleEvent {
    /// The name of the event.
    pub name: String,
    /// The uid of the event.
    pub uid: String,
    /// The Lifecycle.
    pub lifecycle: String,
    /// The phase; `None` if this version does not know it.
    pub phase: Option<LifecycleHoldPhase>,
    /// The operation.
    pub operation: String,
    /// The state of the answer.
    pub state: LifecycleEventState,
    /// The user who answered.
    pub answered_by: String,
    /// A message with details of the answer, for users.
    pub message: String,
    /// When the event was created.
    pub created: Option<Time>,
    /// The time until which the event must be answered.
    pub deadline: Option<Time>,
    /// The approvals.
    pub approvals: Vec<LifecycleApproval>,
}

/// The name of an event. It is the same for the same phase of the same operation, so that a crash does not lead to a second
/// event.
pub(crate) fn event_name(
    release: &str,
    phase: LifecycleHoldPhase,
    owner_uid: &str,
    operation: &str,
    lifecycle: &str,
) -> String {
    let text = format!("{owner_uid}\n{operation}\n{}\n{lifecycle}", phase.as_str());
    let digest = hex::encode(Sha256::digest(text));
    let release: String = release.chars().take(40).collect();
    let release = release.trim_end_matches(['.', '-']);
    format!("{release}-{}-{}", phase.as_str().to_lowercase(), &digest[..16])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_belongs_to_one_phase_of_one_operation_and_lifecycle() {
        let name =
            |phase, uid, operation, lifecycle| event_name("web", phase, uid, operation, lifecycle);
        let one = name(LifecycleHoldPhase::PreUpgrade, "u", "web.v1.0", "l");
        assert_eq!(one, name(LifecycleHoldPhase::PreUpgrade, "u", "web.v1.0", "l"));
        assert!(one.starts_with("web-preupgrade-") && one.len() < 64, "{one}");
        for other in [
            name(LifecycleHoldPhase::Promote, "u", "web.v1.0", "l"),
            name(LifecycleHoldPhase::PreUpgrade, "v", "web.v1.0", "l"),
            name(LifecycleHoldPhase::PreUpgrade, "u", "web.v2.0", "l"),
            name(LifecycleHoldPhase::PreUpgrade, "u", "web.v1.0", "m"),
        ] {
            assert_ne!(one, other);
        }
        let long = event_name(&"a.".repeat(40), LifecycleHoldPhase::Promote, "u", "o", "l");
        assert!(!long.contains(".-") && long.len() < 80, "{long}");
    }
}
