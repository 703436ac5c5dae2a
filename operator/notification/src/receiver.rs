//! The kind Receiver: a webhook by which another service requests reconciliations.
//!
//! Here: its run, which computes the path, and its report. In the folder: incoming requests (`webhook_requests`), the objects
//! of a Receiver (`receiver_resources`), requesting reconciliations (`reconcile_requests`). Elsewhere: checking a spec, and
//! which requests count (`notify::receivers`).

mod receiver_resources;
mod reconcile_requests;
mod webhook_body_permits;
pub mod webhook_requests;

use std::sync::Arc;
use std::time::Duration;

use crds::notification::{Receiver, ReceiverStatus};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube_core::Resource as _;
use notify::receivers::{ReceiverSpecError, check};
use parking_lot::Mutex;
use reconcile::{ConditionReason, NextRunTrigger, ObjectKey, RunOutcome, Time, condition_reason};

use crate::object_selection_annotations::{RESOURCES, named};
use windlass_cluster::ClusterError;
use windlass_cluster::announced_failures::FailureAnnouncement;
use windlass_cluster::object_store::StateCache;
use windlass_cluster::referenced_secrets_and_config_maps::RunReferenceReads;
use windlass_expressions::on_thread;
use windlass_runtime::controller_kind::{ControllerKind, jittered, log_failed_request, node_of};
use windlass_runtime::object_status::LatestWrittenObject;
use windlass_runtime::run_context::RunContext;
use windlass_runtime::run_error::RunError;
use windlass_runtime::run_report::{self, RunReport};
use windlass_runtime::{hold_conditions, object_hold};

/// The Secret with the token, or the token in it, is missing. Parity(flux).
const TOKEN_NOT_FOUND: ConditionReason = ConditionReason::new("TokenNotFound");

/// The spec contradicts itself. Parity(flux).
const VALIDATION_FAILED: ConditionReason = ConditionReason::new("ValidationFailed");

/// The interval of a Receiver without an interval in its spec.
const INTERVAL: &str = "10m";

/// The state of a Receiver that this process keeps between runs.
#[derive(Default)]
pub struct ReceiverState {
    latest: Arc<LatestWrittenObject<Receiver>>,
    /// Runs in a row that failed, for the growing delay.
    failures: u32,
}

/// Runs Receivers.
pub struct ReceiverController;

impl ControllerKind for ReceiverController {
    type Object = Receiver;

    const ANNOTATIONS: &'static [&'static str] = &[RESOURCES];

    type ControllerState = ReceiverState;

    fn announcement(object: &Receiver) -> String {
        object.status.as_ref().and_then(|it| it.webhook_path.clone()).unwrap_or_default()
    }

    fn run(
        object: Arc<Receiver>,
        context: Arc<RunContext>,
    ) -> BoxFuture<'static, Option<Duration>> {
        async move { run(object, &context).await }.boxed()
    }
}

/// One run. Returns the time until the next run.
async fn run(seen: Arc<Receiver>, context: &Arc<RunContext>) -> Option<Duration> {
    let node = node_of(&*seen);
    let memory = context.shared::<StateCache<ReceiverState>>().of(&node);
    let latest = memory.lock().latest.clone();
    let object = latest.or_seen(seen);
    let outcome = if object.meta().deletion_timestamp.is_some() {
        latest.set_finalizer(context, &object, false).await.map(|_| None)
    } else {
        attempt(context, &node, &memory, &latest, &object).await
    };
    outcome.unwrap_or_else(|error| {
        log_failed_request(&node, &error);
        Some(retry_after(context, &memory))
    })
}

fn retry_after(context: &RunContext, memory: &Mutex<ReceiverState>) -> Duration {
    let mut memory = memory.lock();
    memory.failures = memory.failures.saturating_add(1);
    let settings = &context.settings;
    reconcile::backoff(memory.failures, settings.min_retry_delay, settings.max_retry_delay)
}

async fn attempt(
    context: &Arc<RunContext>,
    node: &ObjectKey,
    memory: &Mutex<ReceiverState>,
    latest: &LatestWrittenObject<Receiver>,
    object: &Arc<Receiver>,
) -> Result<Option<Duration>, ClusterError> {
    let now = jiff::Timestamp::now();
    let lifted = object_hold::lift(context, latest, object.clone(), now).await?;
    let Some(object) = lifted else { return Ok(None) };
    if object_hold::is_suspended(&*object, now) {
        let text = "suspended during a reconciliation, which continues on resume";
        hold_conditions::show_suspended(context, latest, &object, now, &[], text).await?;
        return Ok(None);
    }
    let (path, outcome) = match checked(context, node, &object).await {
        Ok(path) => {
            let text = format!("Receiver initialized for path: {path}");
            (Some(path), RunOutcome::Settled(condition_reason::SUCCEEDED, text))
        }
        Err(error) => (None, error.outcome()?),
    };
    let again = match &outcome {
        RunOutcome::Settled(..) => {
            memory.lock().failures = 0;
            let interval = object.spec.interval.as_ref().map_or(INTERVAL, |it| it.as_str());
            Some(jittered(context, &*object, interval))
        }
        RunOutcome::Stalled(..) => None,
        RunOutcome::Running(..) | RunOutcome::Blocked(..) | RunOutcome::Failed(..) => {
            Some(retry_after(context, memory))
        }
    };
    let announcement = context.failure_announcement(node);
    let RunReport { before, after, event } = report(&object, path, &outcome, announcement, now);
    latest.write_status(context, &object, &before, &after).await?;
    if let Some(event) = event {
        context.announce(&*object, event);
    }
    Ok(again)
}

/// The path of a Receiver. Its Secret is watched from now on.
///
/// # Errors
/// The Receiver is invalid, or the API server could not be asked.
async fn checked(
    context: &Arc<RunContext>,
    node: &ObjectKey,
    object: &Arc<Receiver>,
) -> Result<String, RunError> {
    let mut references = RunReferenceReads::new(&context.watcher);
    let secret = match &object.spec.secret_ref {
        Some(reference) => {
            let data = references.secret(&node.namespace, &reference.name).await?;
            let name = format!("{}/{}", node.namespace, reference.name);
            data.map(|data| notify::SecretData { name, data })
        }
        None => None,
    };
    references.watch(node);
    let receiver = match read(object) {
        Ok(receiver) => receiver,
        Err(error) => return Err(RunOutcome::Stalled(VALIDATION_FAILED, error).into()),
    };
    let found = on_thread(&node.namespace, move || check(&receiver, secret.as_ref())).await;
    let outcome = match found {
        Ok(Ok(path)) => return Ok(path),
        Ok(Err(ReceiverSpecError::TokenNotFound(text))) => {
            RunOutcome::Failed(TOKEN_NOT_FOUND, text, NextRunTrigger::default())
        }
        Ok(Err(ReceiverSpecError::Terminal(why, text))) => {
            let is_expression = why == condition_reason::INVALID_CEL_EXPRESSION.as_str();
            let why = if is_expression {
                condition_reason::INVALID_CEL_EXPRESSION
            } else {
                VALIDATION_FAILED
            };
            RunOutcome::Stalled(why, text)
        }
        Err(broken) => RunOutcome::Failed(
            condition_reason::FAILED,
            broken.to_string(),
            NextRunTrigger::default(),
        ),
    };
    Err(outcome.into())
}

/// A Receiver in the form of the engine, with the objects that an annotation names.
///
/// # Errors
/// The text names the invalid part.
fn read(object: &Receiver) -> Result<notify::receivers::Receiver, String> {
    let value = serde_json::to_value(object).map_err(|error| error.to_string())?;
    let mut receiver =
        notify::receivers::Receiver::new(&value).map_err(|error| error.to_string())?;
    receiver.spec.resources.extend(named(object, RESOURCES)?);
    receiver.spec.suspend = object_hold::is_suspended(object, jiff::Timestamp::now());
    Ok(receiver)
}

/// The report of a run that found this path. Without a path, the status keeps the former path.
fn report(
    object: &Receiver,
    path: Option<String>,
    outcome: &RunOutcome,
    announcement: FailureAnnouncement,
    now: Time,
) -> RunReport<ReceiverStatus> {
    run_report::report(object, outcome, announcement, now, |status: &mut ReceiverStatus| {
        if path.is_some() {
            status.webhook_path = path;
        }
    })
}

#[cfg(test)]
mod tests {
    use fake_cluster::spec_field_check;
    use serde_json::{Value, json};
    use windlass_cluster::events::EventSeverity;
    use windlass_runtime::controller_kind::REQUESTED_AT;

    use super::*;

    fn receiver(status: &Value) -> Receiver {
        serde_json::from_value(json!({
            "metadata": {"name": "hook", "namespace": "apps", "generation": 2,
                "annotations": {REQUESTED_AT: "now"}},
            "spec": {"type": "generic", "secretRef": {"name": "token"},
                "resources": [{"kind": "GitRepository", "name": "app"}]},
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn every_field_of_the_schema_is_used() {
        let used = [
            "events",
            "interval",
            "oidcProviders",
            "resourceFilter",
            "resources",
            "secretRef",
            "suspend",
            "type",
        ];
        spec_field_check::knows_every_field("Receiver", used);
    }

    #[test]
    fn a_path_is_shown_and_reported_once() {
        let now = "2026-11-24T10:00:00Z".parse().unwrap();
        let text = "Receiver initialized for path: /hook/1".to_owned();
        let outcome = RunOutcome::Settled(condition_reason::SUCCEEDED, text);
        let announced = FailureAnnouncement::Made;
        let path = || Some("/hook/1".to_owned());
        let first = report(&receiver(&json!({})), path(), &outcome, announced, now);
        assert_eq!(first.after.webhook_path.as_deref(), Some("/hook/1"));
        assert_eq!(first.after.observed_generation, Some(2));
        assert_eq!(first.after.last_handled_reconcile_at.as_deref(), Some("now"));
        assert_eq!(first.event.map(|event| event.severity), Some(EventSeverity::Info));
        let again = receiver(&json!(first.after));
        let second = report(&again, path(), &outcome, announced, now);
        assert_eq!((second.after == second.before, second.event), (true, None));
    }

    #[test]
    fn a_missing_token_is_awaited_and_a_wrong_spec_is_not() {
        let now = "2026-11-24T10:00:00Z".parse().unwrap();
        let object = receiver(&json!({"observedGeneration": 1, "webhookPath": "/hook/1"}));
        let missing =
            RunOutcome::Failed(TOKEN_NOT_FOUND, "no Secret".to_owned(), NextRunTrigger::default());
        let announced = FailureAnnouncement::Made;
        let missing_report = report(&object, None, &missing, announced, now);
        assert_eq!(missing_report.after.observed_generation, Some(1));
        assert_eq!(missing_report.after.webhook_path.as_deref(), Some("/hook/1"));
        let is = |status: &ReceiverStatus, kind: &str, value: &str| {
            status.conditions.iter().any(|it| it.type_ == kind && it.status == value)
        };
        assert!(
            is(&missing_report.after, "Ready", "False")
                && is(&missing_report.after, "Reconciling", "True")
        );
        let wrong = RunOutcome::Stalled(VALIDATION_FAILED, "no name".to_owned());
        let missing_report = report(&object, None, &wrong, announced, now);
        assert_eq!(missing_report.after.observed_generation, Some(2));
        assert!(
            is(&missing_report.after, "Ready", "False")
                && is(&missing_report.after, "Stalled", "True")
        );
        assert_eq!(missing_report.event.map(|event| event.severity), Some(EventSeverity::Error));
    }
}
