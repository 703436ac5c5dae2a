//! Waits for health without holding a worker: whether the wait is over, goes on, or has failed.
//!
//! Here: judging the health reports of several objects, and the messages of a wait. Elsewhere: the report of one object
//! ([`crate::health`]).

use std::collections::BTreeSet;
use std::time::Duration;

use objects::{Gvk, ObjectId};
use reconcile::{
    ConditionReason, NextRunTrigger, ObjectKey, Time, condition_reason, format_duration,
};

use super::{ApplyDesiredState, ApplyObservedState, FailedHealthWait, later};
use crate::health::third_party_kind_rules::DEGRADED_REASON;
use crate::health::{HealthStatus, ObjectHealth, related_kinds};
use crate::{ApplyStage, ApplyStageKind};

/// How often a run observes objects whose health can change although the object itself does not. Their health depends
/// on their Pods or on the time. The interval is Flux's.
const HEALTH_POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Whether a wait for health is over, goes on, or has failed.
pub(super) enum HealthWaitState {
    /// All objects are healthy.
    Over,
    /// The wait goes on until the trigger causes the next run.
    On(NextRunTrigger),
    /// The wait has failed, with the message and the objects whose change causes another run.
    Failed(FailedHealthWait),
}

/// The reason of a run that ends while deleted objects still exist.
pub const AWAITING_TERMINATION: ConditionReason = ConditionReason::new("AwaitingTermination");

/// The reason of a run that ends while it waits for a stage. Reason and revision together identify one wait.
pub fn stage_reason(stage: ApplyStageKind) -> ConditionReason {
    const CRDS: ConditionReason = ConditionReason::new("AwaitingCRDs");
    const CLASSES: ConditionReason = ConditionReason::new("AwaitingClasses");
    match stage {
        ApplyStageKind::Crds => CRDS,
        ApplyStageKind::Classes => CLASSES,
        ApplyStageKind::Custom | ApplyStageKind::Rest => condition_reason::PROGRESSING,
    }
}

/// The message of a run's condition while it waits for health. It depends only on the revision and the timeout: a changed
/// message would reset `lastTransitionTime`, which therefore says when the wait began.
pub fn health_text(revision: &str, timeout: Duration) -> String {
    let timeout = format_duration(timeout);
    format!("Running health checks for revision {revision} with a timeout of {timeout}")
}

/// The message while a run waits for a stage. It is constant for a revision and a stage.
pub(crate) fn stage_text(stage: &ApplyStage, revision: &str, timeout: Duration) -> String {
    let has = |kind: &str| stage.objects.iter().any(|manifest| manifest.id.kind == kind);
    let what = match stage.kind {
        ApplyStageKind::Crds if !has("Namespace") => "CustomResourceDefinitions",
        ApplyStageKind::Crds if !has("CustomResourceDefinition") => "Namespaces",
        ApplyStageKind::Crds => "CustomResourceDefinitions and Namespaces",
        ApplyStageKind::Classes => "classes",
        ApplyStageKind::Custom | ApplyStageKind::Rest => "objects",
    };
    let timeout = format_duration(timeout);
    format!("Waiting for the {what} of revision {revision} with a timeout of {timeout}")
}

/// The [`ObjectKey`] of an object.
pub(super) fn node_of(id: &ObjectId) -> ObjectKey {
    ObjectKey::new(&id.group, &id.kind, &id.namespace, &id.name)
}

fn is_polled(id: &ObjectId) -> bool {
    let kind = Gvk { group: id.group.clone(), version: String::new(), kind: id.kind.clone() };
    related_kinds(&kind).is_some() || (id.group.is_empty() && id.kind == "Pod")
}

/// Differs(flux): the message of an object that failed or is degraded is shown, as it is what people look for next.
fn describe(id: &ObjectId, report: Option<&ObjectHealth>) -> String {
    let subject = id.subject();
    let Some(report) = report else { return format!("can't determine status for {subject}") };
    let status = &report.status;
    match status {
        HealthStatus::Unknown(error) => format!("{subject} status: '{status}': {error}"),
        HealthStatus::Failed | HealthStatus::InProgress
            if !report.message.is_empty() && is_failure(report) =>
        {
            format!("{subject} status: '{status}': {}", report.message)
        }
        HealthStatus::Current
        | HealthStatus::InProgress
        | HealthStatus::Failed
        | HealthStatus::Terminating
        | HealthStatus::NotFound => format!("{subject} status: '{status}'"),
    }
}

fn is_failure(report: &ObjectHealth) -> bool {
    report.status == HealthStatus::Failed
        || report.conditions.iter().any(|says| says.reason == DEGRADED_REASON)
}

/// Judges whether the wait for the health of `ids` is over. An object without a report is not healthy.
///
/// A failed wait stays failed until the objects for which it waited are healthy, or the wait is repeated. Changes of
/// their health in between are not reported, because otherwise a lasting failure would not raise an alert.
pub(super) fn judge(
    ids: &[&ObjectId],
    desired: &ApplyDesiredState,
    observed: &ApplyObservedState,
    since: Option<Time>,
    timeout: Duration,
) -> HealthWaitState {
    let fail_fast = desired.fail_fast;
    let report = |id: &ObjectId| observed.objects.get(id).and_then(|seen| seen.health.as_ref());
    let open: Vec<&ObjectId> = ids
        .iter()
        .copied()
        .filter(|id| !report(id).is_some_and(ObjectHealth::is_current))
        .collect();
    if open.is_empty() {
        return HealthWaitState::Over;
    }
    let has_failed = |id: &ObjectId| report(id).is_some_and(|r| r.status == HealthStatus::Failed);
    let failed: Vec<&ObjectId> = open.iter().copied().filter(|id| has_failed(id)).collect();
    let nodes: BTreeSet<ObjectKey> = open.iter().map(|id| node_of(id)).collect();
    if let Some(failed) = &observed.failed_wait
        && observed.now < failed.until
        && !failed.on.is_disjoint(&nodes)
    {
        return HealthWaitState::Failed(failed.clone());
    }
    let since = since.unwrap_or(observed.now);
    let waited = Duration::try_from(observed.now.duration_since(since)).unwrap_or_default();
    let ends_with = |what: &str, ids: &[&ObjectId]| {
        let list: Vec<_> = ids.iter().map(|id| describe(id, report(id))).collect();
        // With parts of a second, each repetition would make a different message.
        let waited = format_duration(Duration::from_secs(waited.as_secs()));
        let text = format!("health check failed after {waited}: {what}: [{}]", list.join(", "));
        let until = later(observed.now, desired.retry);
        HealthWaitState::Failed(FailedHealthWait { text, on: nodes.clone(), until })
    };
    let is_stuck = if fail_fast { !failed.is_empty() } else { failed.len() == open.len() };
    if is_stuck {
        return ends_with("failed early due to stalled resources", &failed);
    }
    if waited >= timeout {
        return ends_with("timeout waiting for", &open);
    }
    let wake = NextRunTrigger::on(nodes).and_at(later(since, timeout));
    let is_polled = open.iter().any(|id| is_polled(id));
    HealthWaitState::On(if is_polled {
        wake.and_at(later(observed.now, HEALTH_POLL_INTERVAL))
    } else {
        wake
    })
}
