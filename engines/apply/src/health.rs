//! Whether an object has reached the state that its spec asks for, by the rules of kstatus as Flux's waits use them.
//!
//! Here: the types, and the rules for every kind. The files in `health/` have the rules for groups of kinds. The file
//! `dependency` judges an object on which another one depends, and [`library`] adds the rules for further kinds.
//! Elsewhere: how long a run waits ([`crate::plan`]), and the rules of the library (engine `health_library`). The crate
//! `windlass-expressions` evaluates custom health expressions.
//!
//! Source of the semantics: fluxcd/cli-utils `pkg/kstatus` and the Job reader of fluxcd/pkg/runtime.

use std::fmt;
use std::time::Duration;

use objects::{Gvk, Object};
use reconcile::Time;

mod dependency;
mod job;
mod pod;
mod replicas;
mod service_pvc_crd;
mod status_fields;
pub mod third_party_kind_rules;
mod workload_pods;

pub use dependency::dependency_readiness;
pub use job::job;
pub use status_fields::MalformedStatusError;
use status_fields::{StatusCondition, conditions, integer_strict, string_strict};
pub use workload_pods::{read, related_kinds, related_selector};

/// The state of an object, according to its own status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HealthStatus {
    /// The object has the state that its spec asks for.
    Current,
    /// The object is on its way to that state.
    InProgress,
    /// The object failed, and the cluster will not repair it without a change.
    Failed,
    /// The object is being deleted.
    Terminating,
    /// There is no such object.
    NotFound,
    /// The status of the object cannot be understood. The text says why.
    Unknown(String),
}

impl fmt::Display for HealthStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Current => "Current",
            Self::InProgress => "InProgress",
            Self::Failed => "Failed",
            Self::Terminating => "Terminating",
            Self::NotFound => "NotFound",
            Self::Unknown(_) => "Unknown",
        })
    }
}

/// A condition that follows from the health of an object. Its status is always `True`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthCondition {
    /// The type of the condition: `Reconciling` or `Stalled`.
    pub kind: &'static str,
    /// One word, may be empty.
    pub reason: String,
    /// A sentence, may be empty.
    pub message: String,
}

/// The health of an object, with a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectHealth {
    /// The judgement.
    pub status: HealthStatus,
    /// Why, for people.
    pub message: String,
    /// At most one condition. An object that is Current or Terminating has none.
    pub conditions: Vec<HealthCondition>,
}

impl ObjectHealth {
    /// The report about an object that does not exist.
    pub fn not_found() -> Self {
        Self::plain(HealthStatus::NotFound, "Resource not found")
    }

    /// The message for users. An observed generation of -1 is the default of Flux's CRDs, and the text then says that
    /// the object was not observed yet.
    pub fn words(&self) -> &str {
        match self.message.ends_with("latest observed generation is -1") {
            true => "it has not been reconciled yet",
            false => &self.message,
        }
    }

    /// Whether the object is healthy, so that no wait for it is needed.
    pub fn is_current(&self) -> bool {
        self.status == HealthStatus::Current
    }

    fn plain(status: HealthStatus, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), conditions: Vec::new() }
    }

    fn current(message: impl Into<String>) -> Self {
        Self::plain(HealthStatus::Current, message)
    }

    fn in_progress(reason: &str, message: impl Into<String>) -> Self {
        Self::with(HealthStatus::InProgress, "Reconciling", reason, message.into())
    }

    fn failed(reason: &str, message: impl Into<String>) -> Self {
        Self::with(HealthStatus::Failed, "Stalled", reason, message.into())
    }

    fn with(status: HealthStatus, kind: &'static str, reason: &str, message: String) -> Self {
        let says = HealthCondition { kind, reason: reason.to_owned(), message: message.clone() };
        Self { status, message, conditions: vec![says] }
    }

    fn unknown(error: MalformedStatusError) -> Self {
        Self::plain(HealthStatus::Unknown(error.0), "")
    }
}

/// How long a Pod may be unschedulable before it counts as failed.
const SCHEDULE_WINDOW: Duration = Duration::from_secs(15);

/// Judges an object by its own content only, without the objects that it generated.
///
/// `now` is only used for Pods that cannot be scheduled.
///
/// # Errors
/// The error names the field of the status that has the wrong type.
pub fn compute(object: &Object, now: Time) -> Result<ObjectHealth, MalformedStatusError> {
    if let Some(report) = generic(object)? {
        return Ok(report);
    }
    match by_kind(object, now)? {
        Some(report) => Ok(report),
        None => Ok(by_ready(&conditions(object)?)),
    }
}

/// The health of an object of a kind with rules of its own; `None` for all other kinds.
fn by_kind(object: &Object, now: Time) -> Result<Option<ObjectHealth>, MalformedStatusError> {
    let Gvk { group, kind, .. } = object.gvk();
    let report = match (group.as_str(), kind.as_str()) {
        ("", "Secret" | "ConfigMap") | ("batch", "CronJob") => {
            ObjectHealth::current("Resource is always ready")
        }
        ("", "Service") => service_pvc_crd::service(object),
        ("", "PersistentVolumeClaim") => service_pvc_crd::volume_claim(object),
        ("", "Pod") => pod::pod(object, now)?,
        ("apps", "StatefulSet") => replicas::stateful_set(object),
        ("apps" | "extensions", "DaemonSet") => replicas::daemon_set(object)?,
        ("apps" | "extensions", "Deployment") => replicas::deployment(object)?,
        ("apps" | "extensions", "ReplicaSet") => replicas::replica_set(object)?,
        ("policy", "PodDisruptionBudget") => {
            ObjectHealth::current("AllowedDisruptions has been computed.")
        }
        ("batch", "Job") => job::running_is_enough(object)?,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => service_pvc_crd::crd(object)?,
        _ => return Ok(None),
    };
    Ok(Some(report))
}

/// The rules for every kind: deletion, a generation that was not observed, and the conditions `Reconciling` and
/// `Stalled`.
fn generic(object: &Object) -> Result<Option<ObjectHealth>, MalformedStatusError> {
    let deleted = string_strict(object, &["metadata", "deletionTimestamp"])?;
    if deleted.is_some_and(|time| !time.is_empty()) {
        return Ok(Some(ObjectHealth::plain(
            HealthStatus::Terminating,
            "Resource scheduled for deletion",
        )));
    }
    if let Some(generation) = integer_strict(object, &["metadata", "generation"])?
        && let Some(observed) = integer_strict(object, &["status", "observedGeneration"])?
        && observed != generation
    {
        let kind = object.kind();
        let text = format!(
            "{kind} generation is {generation}, but latest observed generation is {observed}"
        );
        return Ok(Some(ObjectHealth::in_progress("LatestGenerationNotObserved", text)));
    }
    let found = conditions(object)?;
    let report = found.iter().filter(|c| c.status == "True").find_map(|c| match c.kind {
        "Reconciling" => Some(ObjectHealth::in_progress(c.reason, c.message)),
        "Stalled" => Some(ObjectHealth::failed(c.reason, c.message)),
        _ => None,
    });
    Ok(report)
}

/// The health of an object by its `Ready` condition; an object without one counts as healthy.
fn by_ready(conditions: &[StatusCondition<'_>]) -> ObjectHealth {
    let ready = conditions.iter().filter(|c| c.kind == "Ready").find_map(|c| match c.status {
        "True" => Some(ObjectHealth::current("Resource is Ready")),
        "False" | "Unknown" => Some(ObjectHealth::in_progress(c.reason, c.message)),
        _ => None,
    });
    ready.unwrap_or_else(|| ObjectHealth::current("Resource is current"))
}

#[cfg(test)]
mod tests;
