//! Approves or rejects an operation that a Lifecycle holds.
//!
//! Elsewhere: the effect of approvals (engine `lifecycle`), the policy that decides who may approve
//! (`deploy/policies/lifecycles.yaml`).

use anyhow::ensure;
use crds::operation_lifecycle::{
    LifecycleApproval, LifecycleEvent, LifecycleEventStatus, LifecycleState,
};
use kube_core::ResourceExt as _;
use serde_json::{Value, json};

use super::{ApprovalAnswer, MANAGER};
use crate::command_scope::CommandScope;
use windlass_cluster::ClusterError;
use windlass_runtime::lifecycle::watched_object_cache::resource;

/// Whether a LifecycleEvent still waits for an answer.
#[must_use]
pub fn is_open(event: &LifecycleEvent) -> bool {
    let state = event.status.as_ref().and_then(|it| it.phase).unwrap_or_default();
    matches!(state, LifecycleState::Pending | LifecycleState::Running)
}

/// Checks that users may answer a LifecycleEvent, and that it has no answer yet.
///
/// # Errors
/// Only a controller may answer the event, or the event already has an answer.
pub fn check(event: &LifecycleEvent) -> anyhow::Result<()> {
    let name = event.name_any();
    let lifecycle = &event.spec.lifecycle;
    ensure!(event.spec.approvals > 0, "{name}: lifecycle {lifecycle} is answered by a controller");
    ensure!(is_open(event), "{name} was answered already");
    Ok(())
}

/// Writes the user's answer if the event has not changed since it was read. Returns the message for the user.
///
/// # Errors
/// The event was changed meanwhile, or the API server refuses or does not respond.
pub async fn answer(
    site: &CommandScope,
    event: &LifecycleEvent,
    user: &str,
    answer: &ApprovalAnswer<'_>,
) -> Result<String, ClusterError> {
    let name = event.name_any();
    let status = event.status.clone().unwrap_or_default();
    let is_approved = status.approvals.iter().any(|it| it.user == user);
    if is_approved && !answer.is_rejection {
        return Ok(format!("{name} was approved by {user} before"));
    }
    let changed = changed_fields(&status, user, answer);
    let mut patch = json!({"metadata": {"uid": event.uid()}, "status": changed});
    patch["metadata"]["resourceVersion"] = event.resource_version().into();
    let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
    let events = resource::<LifecycleEvent>();
    // An older definition may lack a field, and the API server would drop it without an error.
    let site = &site.cluster;
    site.merge_patch_status_strictly(&events, namespace, &name, &patch, MANAGER).await?;
    let subject = format!("{}/{}", event.spec.subject.kind, event.spec.subject.name);
    let phase = event.spec.phase;
    if answer.is_rejection {
        return Ok(format!("{phase} of {subject} is rejected by {user}"));
    }
    let count = status.approvals.len() + 1;
    let needed = event.spec.approvals;
    Ok(format!("{phase} of {subject} is approved by {user}, {count} of {needed} approvals"))
}

/// The status fields that an answer changes.
fn changed_fields(status: &LifecycleEventStatus, user: &str, answer: &ApprovalAnswer<'_>) -> Value {
    let comment = Some(answer.comment.to_owned()).filter(|it| !it.is_empty());
    if answer.is_rejection {
        return json!({"phase": "Failed", "answeredBy": user, "message": comment});
    }
    let now = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second()).ok();
    let own = LifecycleApproval { user: user.to_owned(), at: now.map(crds::Time), comment };
    let all: Vec<LifecycleApproval> = status.approvals.iter().cloned().chain([own]).collect();
    json!({"approvals": all})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(approvals: i64, phase: &str) -> LifecycleEvent {
        serde_json::from_value(json!({"metadata": {"name": "one"},
            "spec": {"subject": {"kind": "HelmRelease", "name": "web"}, "approvals": approvals, "lifecycle": "l"},
            "status": {"phase": phase}}))
        .unwrap()
    }

    #[test]
    fn only_what_waits_for_users_is_answered_by_one() {
        let refused = |approvals: i64, phase: &str| {
            check(&event(approvals, phase)).err().map(|error| error.to_string())
        };
        assert_eq!(refused(1, "Pending"), None);
        let by_controller = refused(0, "Pending").unwrap();
        assert_eq!(by_controller, "one: lifecycle l is answered by a controller");
        assert_eq!(refused(1, "Failed").unwrap(), "one was answered already");
    }

    #[test]
    fn an_approval_is_added_to_those_of_others_and_a_rejection_ends_the_event() {
        let before = json!({"approvals": [{"user": "bob"}]});
        let status: LifecycleEventStatus = serde_json::from_value(before).unwrap();
        let answer = |is_rejection: bool| {
            let answer = ApprovalAnswer { comment: "tested", keep: &[], is_rejection };
            changed_fields(&status, "alice", &answer)
        };
        let approved = answer(false);
        assert_eq!(approved["approvals"][0]["user"], "bob");
        assert_eq!(approved["approvals"][1]["user"], "alice");
        let rejected = json!({"phase": "Failed", "answeredBy": "alice", "message": "tested"});
        assert_eq!(answer(true), rejected);
    }
}
