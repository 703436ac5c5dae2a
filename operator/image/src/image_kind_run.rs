//! The parts of a run that all image kinds share. They decide whether the run begins and when the next one is due, and write
//! events and status.
//!
//! Elsewhere: the content of a report (`windlass_runtime::run_report`).

use std::sync::Arc;
use std::time::Duration;

use crds::ReconciledObject;
use kube_core::ResourceExt as _;
use reconcile::{ConditionReason, NextRunTrigger, RunOutcome};
use windlass_cluster::ClusterError;
use windlass_cluster::events::{EventSeverity, ObjectEvent};
use windlass_cluster::windlass_kind::WindlassKind;
use windlass_runtime::object_status::LatestWrittenObject;
use windlass_runtime::run_context::RunContext;
use windlass_runtime::run_report::RunReport;
use windlass_runtime::{hold_conditions, object_hold};
use windlass_serve::settings::OperatorSettings;

pub(crate) use windlass_runtime::run_report::{KindSpecificConditions, report, report_with};

/// `spec.image` of an ImageRepository names no image. Parity(flux).
pub(crate) const IMAGE_URL_INVALID: ConditionReason = ConditionReason::new("ImageURLInvalid");

/// The policy, the filter or an annotation of an ImagePolicy means nothing. Parity(flux).
pub(crate) const INVALID_POLICY: ConditionReason = ConditionReason::new("InvalidPolicy");

/// The longest delay until windlass tries again to remove a deleted object's finalizer. A kind that scans repeatedly waits
/// longer, to spare the registry.
const MAX_DELETION_DELAY: Duration = Duration::from_secs(10);

/// The least delay that a server or a dependency asks for.
const MIN_REQUESTED_DELAY: Duration = Duration::from_secs(1);

/// Whether a reconciliation that is requested of a suspended object counts as handled. Parity(flux): its controllers differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SuspendedReconcileRequest {
    /// The run answers the request, so the request is not repeated on resume.
    Answered,
    /// The request is handled on resume.
    Unanswered,
}

/// Begins a run: returns the present object, or `None` if the object does not exist.
///
/// # Errors
/// The API server refuses the request, or does not respond.
pub(crate) async fn begin<K: WindlassKind + ReconciledObject>(
    context: &RunContext,
    latest: &LatestWrittenObject<K>,
    object: &Arc<K>,
    request: SuspendedReconcileRequest,
) -> Result<Option<Arc<K>>, ClusterError> {
    let now = jiff::Timestamp::now();
    let lifted = object_hold::lift(context, latest, object.clone(), now).await?;
    let Some(object) = lifted else { return Ok(None) };
    if !object_hold::is_suspended(&*object, now) {
        return latest.set_finalizer(context, &object, true).await;
    }
    let text = "suspended during a reconciliation, which continues on resume";
    hold_conditions::show_suspended(context, latest, &object, now, &[], text).await?;
    if request == SuspendedReconcileRequest::Answered && hold_conditions::is_asked(&*object) {
        let object = latest.begun(&object);
        hold_conditions::show(context, latest, &object, now, true).await?;
    }
    Ok(None)
}

/// The delay after a failed run, which grows with the number of failures in a row.
fn retry_after(settings: &OperatorSettings, failures: &mut u32) -> Duration {
    *failures = failures.saturating_add(1);
    reconcile::backoff(*failures, settings.min_retry_delay, settings.max_retry_delay)
}

/// The delay after a run that the API server refused.
pub(crate) fn retry_after_refusal(
    settings: &OperatorSettings,
    is_deleted: bool,
    failures: &mut u32,
) -> Duration {
    let delay = retry_after(settings, failures);
    if is_deleted { delay.min(MAX_DELETION_DELAY) } else { delay }
}

/// The time of the next run. It is after `settled` if the outcome is that everything is as it should be.
pub(crate) fn next_run(
    settings: &OperatorSettings,
    outcome: &RunOutcome,
    settled: Option<Duration>,
    failures: &mut u32,
) -> Option<Duration> {
    match outcome {
        RunOutcome::Settled(..) => {
            *failures = 0;
            settled
        }
        RunOutcome::Stalled(..) => None,
        RunOutcome::Running(..) | RunOutcome::Blocked(..) | RunOutcome::Failed(..) => {
            let requested = outcome.wake().and_then(NextRunTrigger::earliest).map(|at| {
                let delay = at.duration_since(jiff::Timestamp::now());
                Duration::try_from(delay).unwrap_or_default().max(MIN_REQUESTED_DELAY)
            });
            Some(requested.unwrap_or_else(|| retry_after(settings, failures)))
        }
    }
}

/// Writes the report of a run, announces its event and logs it.
///
/// # Errors
/// The API server refuses the request, or does not respond.
pub(crate) async fn publish<K: WindlassKind + ReconciledObject>(
    context: &RunContext,
    latest: &LatestWrittenObject<K>,
    object: &Arc<K>,
    report: RunReport<K::Status>,
) -> Result<(), ClusterError> {
    let RunReport { before, after, event } = report;
    latest.write_status(context, object, &before, &after).await?;
    if let Some(event) = event {
        announce(context, &**object, event);
    }
    Ok(())
}

/// Announces an event of an object and logs it.
pub(crate) fn announce<K: WindlassKind + ReconciledObject>(
    context: &RunContext,
    object: &K,
    event: ObjectEvent,
) {
    let kind = K::kind(&());
    let name = object.name_any();
    let namespace = object.namespace().unwrap_or_default();
    match event.severity {
        EventSeverity::Info => {
            tracing::info!(controller_kind = %kind, name, namespace, "{}", event.message);
        }
        EventSeverity::Error => {
            let error = event.message.as_str();
            tracing::error!(controller_kind = %kind, name, namespace, error, "reconciliation failed");
        }
    }
    context.announce(object, event);
}
