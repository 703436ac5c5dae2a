//! Health of objects that run Pods: Deployment, ReplicaSet, StatefulSet, DaemonSet.
//!
//! Here: judging these objects by the counts in their own status. Elsewhere: judging them by their Pods
//! (`workload_pods.rs`).

use objects::Object;

use super::ObjectHealth;
use super::status_fields::{MalformedStatusError, conditions, integer, integer_strict, string};

/// The progress deadline that the Deployment controller reads as "no deadline".
const NO_DEADLINE: i64 = i32::MAX as i64;

fn status(object: &Object, field: &str) -> i64 {
    integer(object, &["status", field], 0)
}

/// A Deployment is healthy when every replica is updated, available and ready, and its conditions say so.
pub(super) fn deployment(object: &Object) -> Result<ObjectHealth, MalformedStatusError> {
    // Without a deadline the controller sets no `Progressing` condition.
    let mut progressing =
        integer(object, &["spec", "progressDeadlineSeconds"], NO_DEADLINE) == NO_DEADLINE;
    let mut available = false;
    for c in conditions(object)? {
        match c.kind {
            "Progressing" if c.reason == "ProgressDeadlineExceeded" => {
                let mut report = ObjectHealth::failed(c.reason, c.message);
                report.message = "Progress deadline exceeded".into();
                return Ok(report);
            }
            "Progressing" if c.status == "True" && c.reason == "NewReplicaSetAvailable" => {
                progressing = true;
            }
            "Available" if c.status == "True" => available = true,
            _ => {}
        }
    }
    let wanted = integer(object, &["spec", "replicas"], 1);
    let replicas = status(object, "replicas");
    let updated = status(object, "updatedReplicas");
    let ready = status(object, "readyReplicas");
    let usable = status(object, "availableReplicas");
    Ok(if wanted > replicas {
        ObjectHealth::in_progress("LessReplicas", format!("Replicas: {replicas}/{wanted}"))
    } else if wanted > updated {
        ObjectHealth::in_progress("LessUpdated", format!("Updated: {updated}/{wanted}"))
    } else if replicas > wanted {
        extra_pods(replicas, wanted)
    } else if updated > usable {
        ObjectHealth::in_progress("LessAvailable", format!("Available: {usable}/{updated}"))
    } else if wanted > ready {
        ObjectHealth::in_progress("LessReady", format!("Ready: {ready}/{wanted}"))
    } else if !progressing {
        ObjectHealth::in_progress("ReplicaSetNotAvailable", "ReplicaSet not Available")
    } else if !available {
        ObjectHealth::in_progress("DeploymentNotAvailable", "Deployment not Available")
    } else {
        ObjectHealth::current(format!("Deployment is available. Replicas: {replicas}"))
    })
}

fn extra_pods(replicas: i64, wanted: i64) -> ObjectHealth {
    let extra = replicas.saturating_sub(wanted);
    ObjectHealth::in_progress("ExtraPods", format!("Pending termination: {extra}"))
}

/// A ReplicaSet is healthy when every replica is labelled, available and ready.
pub(super) fn replica_set(object: &Object) -> Result<ObjectHealth, MalformedStatusError> {
    if conditions(object)?.iter().any(|c| c.kind == "ReplicaFailure" && c.status == "True") {
        let text = "Replica Failure condition. Check Pods";
        return Ok(ObjectHealth::in_progress("ReplicaFailure", text));
    }
    let wanted = integer(object, &["spec", "replicas"], 1);
    let replicas = status(object, "replicas");
    let ready = status(object, "readyReplicas");
    let usable = status(object, "availableReplicas");
    let labelled = status(object, "fullyLabeledReplicas");
    Ok(if wanted > labelled {
        ObjectHealth::in_progress("LessLabelled", format!("Labelled: {labelled}/{wanted}"))
    } else if wanted > usable {
        ObjectHealth::in_progress("LessAvailable", format!("Available: {usable}/{wanted}"))
    } else if wanted > ready {
        ObjectHealth::in_progress("LessReady", format!("Ready: {ready}/{wanted}"))
    } else if replicas > wanted {
        extra_pods(replicas, wanted)
    } else {
        ObjectHealth::current(format!("ReplicaSet is available. Replicas: {replicas}"))
    })
}

/// A StatefulSet is healthy when every replica is ready, and each replica that the partition does not hold back has the
/// updated revision.
pub(super) fn stateful_set(object: &Object) -> ObjectHealth {
    let strategy = ["spec", "updateStrategy", "type"];
    if string(object, &strategy, "") == "OnDelete" {
        return ObjectHealth::current("StatefulSet is using the ondelete update strategy");
    }
    let wanted = integer(object, &["spec", "replicas"], 1);
    let replicas = status(object, "replicas");
    let ready = status(object, "readyReplicas");
    let current = status(object, "currentReplicas");
    let updated = status(object, "updatedReplicas");
    let partition = integer(object, &["spec", "updateStrategy", "rollingUpdate", "partition"], -1);
    let revision = |field| string(object, &["status", field], "");
    if wanted > replicas {
        ObjectHealth::in_progress("LessReplicas", format!("Replicas: {replicas}/{wanted}"))
    } else if wanted > ready {
        ObjectHealth::in_progress("LessReady", format!("Ready: {ready}/{wanted}"))
    } else if replicas > wanted {
        extra_pods(replicas, wanted)
    } else if partition != -1 {
        let due = wanted.saturating_sub(partition);
        if updated < due {
            ObjectHealth::in_progress("PartitionRollout", format!("updated: {updated}/{due}"))
        } else {
            ObjectHealth::current(format!("Partition rollout complete. updated: {updated}"))
        }
    } else if wanted > current {
        ObjectHealth::in_progress("LessCurrent", format!("current: {current}/{wanted}"))
    } else if revision("currentRevision") != revision("updateRevision") {
        ObjectHealth::in_progress(
            "RevisionMismatch",
            "Waiting for updated revision to match current",
        )
    } else {
        ObjectHealth::current(format!("All replicas scheduled as expected. Replicas: {replicas}"))
    }
}

/// A DaemonSet is healthy when its Pods are scheduled, updated, available and ready on every node that should have one.
pub(super) fn daemon_set(object: &Object) -> Result<ObjectHealth, MalformedStatusError> {
    // The DaemonSet controller always sets both fields, so a DaemonSet without them has not been observed.
    for (path, reason) in [
        (["metadata", "generation"], "NoGeneration"),
        (["status", "observedGeneration"], "NoObservedGeneration"),
    ] {
        if integer_strict(object, &path)?.is_none() {
            let text = format!("{} {} not found", object.kind(), path.join("."));
            return Ok(ObjectHealth::in_progress(reason, text));
        }
    }
    let wanted = integer(object, &["status", "desiredNumberScheduled"], -1);
    if wanted == -1 {
        let text = "Missing .status.desiredNumberScheduled";
        return Ok(ObjectHealth::in_progress("NoDesiredNumber", text));
    }
    for (field, reason, word) in [
        ("currentNumberScheduled", "LessCurrent", "Current"),
        ("updatedNumberScheduled", "LessUpdated", "Updated"),
        ("numberAvailable", "LessAvailable", "Available"),
        ("numberReady", "LessReady", "Ready"),
    ] {
        let found = status(object, field);
        if wanted > found {
            return Ok(ObjectHealth::in_progress(reason, format!("{word}: {found}/{wanted}")));
        }
    }
    Ok(ObjectHealth::current(format!("All replicas scheduled as expected. Replicas: {wanted}")))
}
