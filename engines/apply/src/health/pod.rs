//! Health of a Pod.

use objects::Object;
use reconcile::Time;

use super::status_fields::{
    MalformedStatusError, StatusCondition, conditions, list_strict, string,
};
use super::{ObjectHealth, SCHEDULE_WINDOW};

/// Parity(kstatus): a Pod that has completed is Current even if it failed, and an unknown phase is an error.
pub(super) fn pod(object: &Object, now: Time) -> Result<ObjectHealth, MalformedStatusError> {
    let found = conditions(object)?;
    match string(object, &["status", "phase"], "") {
        "Succeeded" => Ok(ObjectHealth::current("Pod has completed successfully")),
        "Failed" => Ok(ObjectHealth::current("Pod has completed, but not successfully")),
        "Running" => {
            if found.iter().any(|c| c.kind == "Ready" && c.status == "True") {
                return Ok(ObjectHealth::current("Pod is Ready"));
            }
            let crashing = crashing_containers(object)?;
            if crashing.is_empty() {
                let text = "Pod is running but is not Ready";
                return Ok(ObjectHealth::in_progress("PodRunningNotReady", text));
            }
            let text = format!("Containers in CrashLoop state: {}", crashing.join(","));
            Ok(ObjectHealth::failed("ContainerCrashLooping", text))
        }
        "Pending" if is_unschedulable(&found) => Ok(if is_younger_than_window(object, now) {
            ObjectHealth::in_progress("PodNotScheduled", "Pod has not been scheduled")
        } else {
            ObjectHealth::failed("PodUnschedulable", "Pod could not be scheduled")
        }),
        "Pending" => Ok(ObjectHealth::in_progress("PodPending", "Pod is in the Pending phase")),
        "" => Ok(ObjectHealth::in_progress("PodNotObserved", "Pod phase not available")),
        phase => Err(MalformedStatusError(format!("unknown phase {phase}"))),
    }
}

fn is_unschedulable(conditions: &[StatusCondition<'_>]) -> bool {
    let not_scheduled = |c: &&StatusCondition<'_>| c.kind == "PodScheduled" && c.status == "False";
    conditions.iter().find(not_scheduled).is_some_and(|c| c.reason == "Unschedulable")
}

/// Whether the scheduler, or an autoscaler, may still find a place for the Pod.
fn is_younger_than_window(object: &Object, now: Time) -> bool {
    let created = string(object, &["metadata", "creationTimestamp"], "");
    let Ok(created) = created.parse::<Time>() else { return false };
    now.saturating_sub(SCHEDULE_WINDOW).is_ok_and(|earlier| earlier < created)
}

/// Whether a Pod's failure is likely to end by itself: the Pod is being deleted, or waits for a node.
pub(super) fn is_transient_failure(pod: &Object) -> bool {
    let deleted = pod.meta("deletionTimestamp").is_some_and(|time| !time.is_null());
    let waits = |c: &StatusCondition<'_>| {
        c.kind == "PodScheduled" && c.status == "False" && c.reason == "Unschedulable"
    };
    deleted || conditions(pod).is_ok_and(|found| found.iter().any(waits))
}

/// Names of the containers that are in `CrashLoopBackOff`.
fn crashing_containers(object: &Object) -> Result<Vec<&str>, MalformedStatusError> {
    let mut names = Vec::new();
    let path = ["status", "containerStatuses"];
    for container in list_strict(object, &path)?.unwrap_or_default() {
        let mut at = container;
        let mut name = None;
        let mut is_whole = true;
        for field in ["name", "state", "waiting", "reason"] {
            let Some(map) = at.as_object() else { return Err(malformed()) };
            let Some(next) = map.get(field) else {
                is_whole = false;
                break;
            };
            match field {
                "name" => name = Some(next.as_str().ok_or_else(malformed)?),
                _ => at = next,
            }
        }
        if is_whole && at.as_str().ok_or_else(malformed)? == "CrashLoopBackOff" {
            names.extend(name);
        }
    }
    Ok(names)
}

/// Differs(flux): Go's library panics here.
fn malformed() -> MalformedStatusError {
    MalformedStatusError("status.containerStatuses is not what a Pod's should be".into())
}
