//! Why a Pod does not become ready: first its containers, then the scheduler. Also which Pods belong to the newest
//! revision of a workload.

use std::fmt;

use objects::{Object, ObjectId};
use serde_json::Value;

use crate::condition::text;
use crate::object_references;

/// The annotation with the revision of a Deployment, and of its ReplicaSets.
const REVISION_ANNOTATION: &str = "deployment.kubernetes.io/revision";

/// Why a Pod does not become ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodTrouble {
    /// A container waits, for example for its image.
    Waiting {
        /// The Pod.
        pod: String,
        /// The container.
        container: String,
        /// One word of the kubelet, such as `CrashLoopBackOff`.
        reason: String,
        /// The message of the kubelet.
        message: String,
        /// The exit code with which the container ended the last time.
        exit: Option<i64>,
        /// The kubelet's one-word reason for that end, such as `OOMKilled`. It may be empty.
        ending: String,
    },
    /// A container has failed.
    Ended {
        /// The Pod.
        pod: String,
        /// The container.
        container: String,
        /// One word of the kubelet, such as `OOMKilled`.
        reason: String,
        /// The message of the kubelet.
        message: String,
        /// The exit code of the container.
        exit: i64,
    },
    /// The scheduler finds no node for the Pod.
    Unscheduled {
        /// The Pod.
        pod: String,
        /// The message of the scheduler.
        message: String,
    },
}

impl PodTrouble {
    /// The text of this trouble, for a place that names the Pod already.
    pub fn within_pod(&self) -> String {
        let (what, after) = self.parts();
        format!("{what} {after}")
    }

    /// The container, or the Pod itself, and what happened to it.
    fn parts(&self) -> (String, String) {
        let ended = |message: &str| match message {
            "" => String::new(),
            message => format!(": {message}"),
        };
        match self {
            Self::Waiting { container, reason, message, exit, ending, .. } => {
                let word = match ending.as_str() {
                    // These reasons say no more than the exit code.
                    "" | "Error" | "Completed" => String::new(),
                    word => format!(", {word}"),
                };
                let exit = exit.map(|code| format!(" (exit code {code}{word})"));
                let exit = exit.unwrap_or_default();
                (format!("container '{container}'"), format!("{reason}{exit}{}", ended(message)))
            }
            Self::Ended { container, reason, message, exit, .. } => (
                format!("container '{container}'"),
                format!("ended with exit code {exit} ({reason}){}", ended(message)),
            ),
            Self::Unscheduled { message, .. } => {
                ("Pod".to_owned(), format!("is not scheduled{}", ended(message)))
            }
        }
    }
}

impl fmt::Display for PodTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, after) = self.parts();
        match self {
            Self::Waiting { pod, .. } | Self::Ended { pod, .. } => {
                write!(f, "{what} of Pod {pod} {after}")
            }
            Self::Unscheduled { pod, .. } => write!(f, "{what} {pod} {after}"),
        }
    }
}

/// Why a Pod does not become ready; `None` if it is ready, or the reason is not known yet.
pub fn trouble(pod: &Object) -> Option<PodTrouble> {
    containers(pod).find_map(|container| of_container(pod, container)).or_else(|| unscheduled(pod))
}

fn of_container(pod: &Object, container: &Value) -> Option<PodTrouble> {
    let pod = pod.name().to_owned();
    let name = text(container, "name").to_owned();
    let waiting = container.get("state").and_then(|it| it.get("waiting"));
    let reason_and_message =
        |of: &Value| (text(of, "reason").to_owned(), text(of, "message").to_owned());
    // With these reasons, the container is on its way.
    let is_waiting =
        |it: &&Value| !matches!(text(it, "reason"), "ContainerCreating" | "PodInitializing" | "");
    if let Some(waiting) = waiting.filter(is_waiting) {
        let (reason, message) = reason_and_message(waiting);
        let exit = exit_code(container);
        let ending = ended(container).map(|it| text(it, "reason").to_owned()).unwrap_or_default();
        return Some(PodTrouble::Waiting { pod, container: name, reason, message, exit, ending });
    }
    // The container runs again, so its former failure is over.
    if is_running(container) {
        return None;
    }
    let exit = exit_code(container).filter(|code| *code != 0)?;
    let (reason, message) = reason_and_message(ended(container)?);
    Some(PodTrouble::Ended { pod, container: name, reason, message, exit })
}

fn unscheduled(pod: &Object) -> Option<PodTrouble> {
    let said = crate::condition(pod, "PodScheduled").filter(|said| said.status == "False")?;
    Some(PodTrouble::Unscheduled { pod: pod.name().to_owned(), message: said.message.to_owned() })
}

/// The container that has failed. It may wait to be started again. `None` if none has failed.
pub fn failed(pod: &Object) -> Option<&str> {
    let has_failed = |it: &&Value| !is_running(it) && exit_code(it).is_some_and(|code| code != 0);
    containers(pod).find(has_failed)?.get("name")?.as_str()
}

/// A container that has run and is in trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CrashingContainer<'p> {
    /// The name of the container.
    pub name: &'p str,
    /// Whether the container waits to be started again. Its log is then the previous one.
    pub is_restarted: bool,
}

/// The first container in trouble; `None` if there is none, or it has not run.
pub fn crashing(pod: &Object) -> Option<CrashingContainer<'_>> {
    let container = containers(pod).find(|it| of_container(pod, it).is_some())?;
    ended(container)?;
    let is_over = container.get("state").is_some_and(|it| it.get("terminated").is_some());
    Some(CrashingContainer { name: text(container, "name"), is_restarted: !is_over })
}

/// Why a Pod has failed, such as an eviction. `None` if it has not failed.
pub fn failure(object: &Object) -> Option<String> {
    let status = object.get("status").filter(|_| is_pod(object))?;
    if text(status, "phase") != "Failed" {
        return None;
    }
    let parts = ["reason", "message"].map(|key| text(status, key));
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    Some(if parts.is_empty() { "the Pod has failed".to_owned() } else { parts.join(": ") })
}

/// Whether an object is a Pod.
pub(crate) fn is_pod(object: &Object) -> bool {
    object.api_version() == "v1" && object.kind() == "Pod"
}

/// The states of a Pod's containers, in the order in which they are started.
fn containers(pod: &Object) -> impl Iterator<Item = &Value> {
    let statuses = ["initContainerStatuses", "containerStatuses"];
    let all = statuses.into_iter().filter_map(move |key| pod.get("status")?.get(key)?.as_array());
    all.flatten()
}

/// How a container ended: its state `terminated`, now or before it was last started. `None` if it has not ended.
fn ended(container: &Value) -> Option<&Value> {
    let state = container.get("state").and_then(|it| it.get("terminated"));
    state.or_else(|| container.get("lastState")?.get("terminated"))
}

fn is_running(container: &Value) -> bool {
    container.get("state").is_some_and(|it| it.get("running").is_some())
}

fn exit_code(container: &Value) -> Option<i64> {
    ended(container)?.get("exitCode")?.as_i64()
}

/// The label selector of a workload's Pods; `None` for other kinds.
pub fn selector(object: &Object) -> Option<String> {
    let gvk = object.gvk();
    if (gvk.group.as_str(), gvk.kind.as_str()) == ("batch", "Job") {
        return Some(format!("batch.kubernetes.io/job-name={}", object.name()));
    }
    let labels = object.get("spec")?.get("selector")?.get("matchLabels")?.as_object()?;
    let parts: Vec<String> = labels
        .iter()
        .filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)))
        .collect();
    (!parts.is_empty()).then(|| parts.join(","))
}

/// The ReplicaSet that controls a Pod. `None` if no ReplicaSet does.
pub fn replica_set(pod: &Object) -> Option<ObjectId> {
    object_references::controller(pod).filter(|it| it.group == "apps" && it.kind == "ReplicaSet")
}

/// Whether a Pod that the selector of a workload matches belongs to that workload. Several workloads may have the same
/// selector, so `ownerReferences` decide. `replica_set` is the ReplicaSet that controls the Pod, if it was read. `true`
/// if the owner is not known, and for kinds that do not own Pods.
pub fn is_owned(pod: &Object, workload: &Object, replica_set: Option<&Object>) -> bool {
    let Some(controller) = object_references::controller(pod) else { return true };
    let id = workload.id();
    match (id.group.as_str(), id.kind.as_str()) {
        ("apps", "Deployment") => {
            let owner = replica_set.and_then(object_references::controller);
            controller.kind == "ReplicaSet" && owner.is_none_or(|owner| owner == id)
        }
        ("apps", "StatefulSet" | "DaemonSet" | "ReplicaSet") | ("batch", "Job") => controller == id,
        _ => true,
    }
}

/// Whether a ReplicaSet belongs to an older revision of a Deployment, or to another Deployment. Its Pods then do not
/// explain the state of the Deployment. `false` if the revisions are not known.
pub fn is_replaced(replica_set: &Object, deployment: &Object) -> bool {
    let revision = |of: &Object| of.annotation(REVISION_ANNOTATION)?.parse::<u64>().ok();
    let revisions = revision(replica_set).zip(revision(deployment));
    match object_references::controller(replica_set) {
        Some(owner) if owner == deployment.id() => {
            revisions.is_some_and(|(its, newest)| its != newest)
        }
        owner => owner.is_some(),
    }
}

/// Whether a Pod of a StatefulSet or DaemonSet has an older revision than the newest one, according to its labels. Such
/// a Pod may still block the rollout. A StatefulSet waits for a Pod that fails, and with `OnDelete` no Pod is replaced.
pub(crate) fn is_older(pod: &Object, workload: &Object) -> bool {
    let (newest, label) = match workload.kind() {
        "StatefulSet" => {
            let newest = workload.get("status").map(|status| text(status, "updateRevision"));
            (newest, "controller-revision-hash")
        }
        "DaemonSet" => {
            let newest = workload.annotation("deprecated.daemonset.template.generation");
            (newest, "pod-template-generation")
        }
        _ => return false,
    };
    let newest = newest.filter(|it| !it.is_empty());
    newest.zip(pod.label(label)).is_some_and(|(newest, own)| newest != own)
}
