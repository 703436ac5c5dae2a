//! One attempt to send a notification: reads what it names, and sends the requests of the engine.
//!
//! Elsewhere: what is said in them (`engines/notify`), requests (`windlass_runtime::http_request`), further attempts
//! (`provider_worker`).
//!
//! Differs(flux): a wait for a permit is not part of `spec.timeout`, and one request takes at most half a minute of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crds::LocalObjectReference;
use crds::notification::{Alert, Provider};
use notify::{
    AlertWarningEvent, DeliveryFailure, DeliveryMessage, DeliveryStage, DeliveryStep,
    EventDispatch, MessageSendResult, SecretData,
};

use super::alert_warnings::dispatch_failed;
use super::incident_notifications::bare_alert;
use super::queued_notification::QueuedNotification;
use super::sending_pace::RequestedPause;
use super::transport::{NotificationSender, TransportMessage};
use windlass_cluster::run_permits::RunPermits;
use windlass_cluster::{ClusterConnection, ClusterError};
use windlass_expressions::{ExpressionThreadError, on_thread};
use windlass_runtime::http_request::retry_after;
use windlass_runtime::object_hold::is_suspended;
use windlass_runtime::provider_secret_masking::{NOT_MASKED, masked_text};
use windlass_runtime::run_context::RunContext;

/// The longest time for which one request holds a permit.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);

/// A longer answer is not read on an async worker.
const MAX_INLINE_RESPONSE_BYTES: usize = 64 << 10;

/// An attempt that has ended.
pub(super) struct DeliveryAttempt {
    pub(super) outcome: DeliveryOutcome,
    /// The uid of the Provider, if the outcome comes from a request to its service.
    pub(super) asked: Option<String>,
}

impl DeliveryAttempt {
    /// One that ended without a request to the service.
    pub(super) fn unsent(outcome: DeliveryOutcome) -> Self {
        Self { outcome, asked: None }
    }
}

/// The result of an attempt.
pub(super) enum DeliveryOutcome {
    /// The notification was sent, or the service does not need it. Contains the id that the service gave the message.
    Delivered(Option<String>),
    /// The Alert or the Provider of the notification is gone or suspended.
    Unwanted,
    /// Another attempt would have the same result.
    Refused(AlertWarningEvent),
    /// Another attempt may succeed, and no earlier than after a time if the service said so.
    Later(AlertWarningEvent, Option<Duration>),
}

/// The Secrets of a Provider.
pub struct ProviderSecrets {
    /// The existing Secrets, by name.
    pub found: Arc<BTreeMap<String, SecretData>>,
    /// One that it names is not there.
    is_incomplete: bool,
}

/// What the last request of an attempt says about another attempt.
#[derive(Default)]
struct LastRequestAdvice {
    /// The error of the request, which the engine may ignore.
    fault: Option<String>,
    may_help: bool,
    retry_after: Option<Duration>,
    /// Whether the request was sent to the service.
    is_of_service: bool,
}

/// What the requests of an attempt share with others.
#[derive(Clone, Copy)]
pub(super) struct RequestGate<'w> {
    pub(super) permits: &'w RunPermits,
    /// The pause that the service asks for.
    pub(super) requested_pause: &'w RequestedPause,
}

/// Tries to send a notification.
pub(super) async fn attempt(
    context: &Arc<RunContext>,
    gate: RequestGate<'_>,
    notification: &QueuedNotification,
) -> DeliveryAttempt {
    let mut last = LastRequestAdvice::default();
    let provider = context.seen::<Provider>(&notification.namespace, &notification.provider);
    let uid = provider.as_ref().and_then(|it| it.metadata.uid.clone());
    let outcome = send_notification(context, gate, notification, provider, &mut last).await;
    DeliveryAttempt { outcome, asked: uid.filter(|_| last.is_of_service) }
}

async fn send_notification(
    context: &Arc<RunContext>,
    gate: RequestGate<'_>,
    notification: &QueuedNotification,
    provider: Option<Arc<Provider>>,
    last: &mut LastRequestAdvice,
) -> DeliveryOutcome {
    let namespace = &notification.namespace;
    let alert = context.seen::<Alert>(namespace, &notification.alert);
    // A service that got the beginning of an incident gets its end, also if the Alert is gone.
    let alert = alert.or_else(|| {
        let bare = || Arc::new(bare_alert(namespace, &notification.alert));
        notification.ends_incident().then(bare)
    });
    let (Some(provider), Some(alert)) = (provider, alert) else { return DeliveryOutcome::Unwanted };
    let now = jiff::Timestamp::now();
    if is_suspended(&*provider, now) || is_suspended(&*alert, now) {
        return DeliveryOutcome::Unwanted;
    }
    let event = notification.event();
    let secrets = match secrets(&context.cluster, namespace, &provider).await {
        Ok(secrets) => secrets,
        Err(error) => return DeliveryOutcome::Later(failed(&event, &error.to_string()), None),
    };
    // Without both, the change of threads would take longer than the work.
    let is_costly = provider.spec.commit_status_expr.is_some() || !secrets.found.is_empty();
    let of = (provider, alert, secrets.found.clone());
    let of_event = event.clone();
    let work = move || begin(of_event, &of.0, &of.1, &of.2);
    let begun = if is_costly { on_thread(namespace, work).await } else { Ok(work()) };
    let dispatch = match begun {
        Ok(Ok(dispatch)) => dispatch,
        Ok(Err(text)) => return DeliveryOutcome::Refused(failed(&event, &text)),
        Err(broken) => return DeliveryOutcome::Refused(failed(&event, &broken.to_string())),
    };
    let said = converse(context, gate, namespace, dispatch, last).await;
    let (dispatch, said) = match said {
        Ok(said) => said,
        Err(broken) => {
            // The service answered, but windlass failed to read the answer.
            last.is_of_service = false;
            return DeliveryOutcome::Refused(failed(&event, &broken.to_string()));
        }
    };
    let failure = match said {
        Err(failure) => failure,
        // Types whose engine does not check the answer.
        Ok(()) => match last.fault.take() {
            Some(message) => DeliveryFailure { stage: DeliveryStage::Post, message },
            None => {
                return DeliveryOutcome::Delivered(dispatch.delivery.message().map(str::to_owned));
            }
        },
    };
    let may_help = match failure.stage {
        DeliveryStage::Post => last.may_help,
        // The notification can be sent once a user completes the Secrets.
        DeliveryStage::Init => secrets.is_incomplete || last.may_help,
        DeliveryStage::CommitStatus => false,
    };
    let found = secrets.found;
    let warning = on_thread(namespace, move || masked(&dispatch, &failure, &found)).await;
    let warning = warning.unwrap_or_else(|broken| failed(&event, &broken.to_string()));
    match may_help {
        true => DeliveryOutcome::Later(warning, last.retry_after),
        false => DeliveryOutcome::Refused(warning),
    }
}

/// A warning about something that failed before the engine was asked.
fn failed(event: &notify::FluxEvent, why: &str) -> AlertWarningEvent {
    let object = &event.object;
    dispatch_failed(format!(
        "failed to dispatch notification for {}/{}/{}: {why}",
        object.kind, object.namespace, object.name
    ))
}

/// Begins the dispatch of an event to a Provider. It may evaluate an expression of the Provider.
///
/// # Errors
/// The Provider or the Alert cannot be read.
pub fn begin(
    event: notify::FluxEvent,
    provider: &Provider,
    alert: &Alert,
    secrets: &BTreeMap<String, SecretData>,
) -> Result<EventDispatch, String> {
    let provider = serde_json::to_value(provider).map_err(|error| error.to_string())?;
    let provider = notify::Provider::new(provider).map_err(|error| error.to_string())?;
    let alert = serde_json::to_value(alert).map_err(|error| error.to_string())?;
    let alert = notify::Alert::new(alert).map_err(|error| error.to_string())?;
    let now = jiff::Timestamp::now().as_second();
    let secret = |_: &str, name: &str| secrets.get(name).cloned();
    Ok(EventDispatch::new(event, &provider, &alert, now, &secret))
}

/// Reads the Secrets that a Provider names.
///
/// # Errors
/// The API server refuses the request, or does not respond; an object that does not exist is not an error.
pub async fn secrets(
    cluster: &ClusterConnection,
    namespace: &str,
    provider: &Provider,
) -> Result<ProviderSecrets, ClusterError> {
    let spec = &provider.spec;
    let named = [&spec.secret_ref, &spec.proxy_secret_ref, &spec.cert_secret_ref];
    let names: BTreeSet<&String> =
        named.into_iter().flatten().map(|LocalObjectReference { name }| name).collect();
    let mut found = BTreeMap::new();
    let mut is_incomplete = false;
    for name in names {
        match cluster.secret(namespace, name).await? {
            Some((data, _)) => {
                let secret = SecretData { name: format!("{namespace}/{name}"), data };
                found.insert(name.clone(), secret);
            }
            None => is_incomplete = true,
        }
    }
    Ok(ProviderSecrets { found: Arc::new(found), is_incomplete })
}

/// The warning about a failure, without the values of Secrets. If the Secrets are too large to search for all values, the
/// warning contains no reason.
fn masked(
    dispatch: &EventDispatch,
    failure: &DeliveryFailure,
    secrets: &BTreeMap<String, SecretData>,
) -> AlertWarningEvent {
    let warning = dispatch.warning(failure);
    match masked_text(secrets, &warning.message) {
        Some(message) => AlertWarningEvent { message, ..warning },
        None => failed(&dispatch.event, NOT_MASKED),
    }
}

/// Sends the messages of the engine until the engine is done, or the time of the Provider is over.
async fn converse(
    context: &RunContext,
    gate: RequestGate<'_>,
    namespace: &str,
    mut dispatch: EventDispatch,
    last: &mut LastRequestAdvice,
) -> Result<(EventDispatch, Result<(), DeliveryFailure>), ExpressionThreadError> {
    let limit = dispatch.timeout;
    let mut left = limit;
    let mut step = dispatch.delivery.start();
    loop {
        let (wait, delivery_message) = match step {
            DeliveryStep::Done => return Ok((dispatch, Ok(()))),
            DeliveryStep::Failed(failure) => return Ok((dispatch, Err(failure))),
            DeliveryStep::Send(wait, delivery_message) => (wait, delivery_message),
        };
        if !wait.is_zero() {
            tokio::time::sleep(wait.min(left)).await;
            left = left.saturating_sub(wait);
        }
        let permit = gate.permits.acquire(namespace).await;
        let begun = Instant::now();
        let allowed = left.min(REQUEST_LIMIT);
        let sender = NotificationSender {
            clients: &context.remotes.http,
            lends_identity: !context.settings.no_cross_namespace_refs,
        };
        let outcome = tokio::time::timeout(allowed, send(sender, delivery_message)).await;
        drop(permit);
        let is_of_service = !matches!(&outcome, Ok((_, None)));
        let late = |limit| format!("the service did not respond within {limit:?}");
        let (outcome, transport_message) = match outcome {
            Ok((outcome, transport_message)) => (outcome, transport_message),
            Err(_) if allowed < left => (Err((late(allowed), true)), None),
            Err(_) => {
                last.may_help = true;
                last.is_of_service = true;
                let failure = DeliveryFailure { stage: DeliveryStage::Post, message: late(limit) };
                return Ok((dispatch, Err(failure)));
            }
        };
        left = left.saturating_sub(begun.elapsed());
        *last = LastRequestAdvice { is_of_service, ..judged(&outcome) };
        if let Some(pause) = last.retry_after.filter(|_| last.may_help) {
            gate.requested_pause.ask(pause);
        }
        let outcome = match transport_message {
            Some(transport_message) => transport_message.judged(outcome),
            None => outcome,
        };
        (dispatch, step) = answer(namespace, dispatch, outcome).await?;
    }
}

/// Computes the next step after an answer. A long answer takes a while to parse, so namespaces take turns.
async fn answer(
    namespace: &str,
    mut dispatch: EventDispatch,
    outcome: MessageSendResult,
) -> Result<(EventDispatch, DeliveryStep), ExpressionThreadError> {
    let is_long =
        outcome.as_ref().is_ok_and(|answer| answer.body.len() > MAX_INLINE_RESPONSE_BYTES);
    let read = move || {
        let step = dispatch.delivery.answer(outcome);
        (dispatch, step)
    };
    if is_long { on_thread(namespace, read).await } else { Ok(read()) }
}

/// Sends a message. Returns the request as it was sent, if it was sent.
async fn send(
    sender: NotificationSender<'_>,
    delivery_message: DeliveryMessage,
) -> (MessageSendResult, Option<TransportMessage>) {
    match sender.transport_message(delivery_message).await {
        Ok(transport_message) => (sender.send(&transport_message).await, Some(transport_message)),
        Err(why) => (Err(why), None),
    }
}

fn judged(outcome: &MessageSendResult) -> LastRequestAdvice {
    match outcome {
        Ok(answer) => {
            let is_busy = matches!(answer.status, 408 | 429);
            let is_broken = answer.status >= 500 && answer.status != 501;
            let may_help = is_busy || is_broken;
            let fault =
                may_help.then(|| format!("the service answered with status {}", answer.status));
            let now = jiff::Timestamp::now();
            LastRequestAdvice {
                fault,
                may_help,
                retry_after: retry_after(answer, now),
                ..LastRequestAdvice::default()
            }
        }
        Err((text, may_help)) => LastRequestAdvice {
            fault: Some(text.clone()),
            may_help: *may_help,
            ..LastRequestAdvice::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use notify::HttpResponse;
    use serde_json::json;

    use super::*;

    fn secrets(value: &str) -> BTreeMap<String, SecretData> {
        let data = BTreeMap::from([("token".to_owned(), value.as_bytes().to_vec())]);
        BTreeMap::from([("s".to_owned(), SecretData { name: "apps/s".to_owned(), data })])
    }

    fn warning(secrets: &BTreeMap<String, SecretData>, message: &str) -> String {
        let provider = json!({"metadata": {"name": "p", "namespace": "apps"}, "spec": {
            "type": "slack", "address": "https://a.example.com", "secretRef": {"name": "s"}}});
        let provider = notify::Provider::new(provider).unwrap();
        let secret = |_: &str, name: &str| secrets.get(name).cloned();
        let event = notify::FluxEvent::default();
        let alert = notify::Alert::default();
        let dispatch = EventDispatch::new(event, &provider, &alert, 0, &secret);
        let failure = DeliveryFailure { stage: DeliveryStage::Post, message: message.to_owned() };
        masked(&dispatch, &failure, secrets).message
    }

    #[test]
    fn an_answer_is_repeated_up_to_a_length_and_without_what_the_secrets_hold() {
        let long = format!("hunter2-the-token {}", "x".repeat(4 << 20));
        let shown = warning(&secrets("hunter2-the-token"), &long);
        assert!(shown.len() < 20 << 10 && shown.contains("**** xxx"), "{}", shown.len());
        assert!(!shown.contains("hunter2"));
    }

    #[test]
    fn where_the_secrets_hold_too_much_to_look_for_the_reason_is_not_shown() {
        let lines = (0..200_000).map(|line| format!("{line}\n")).collect::<String>();
        let shown = warning(&secrets(&lines), &"123456 ".repeat(5_000));
        assert!(shown.contains("the reason is not shown"), "{shown}");
        assert!(!shown.contains("123456"), "{shown}");
    }

    #[test]
    fn an_answer_that_the_engine_does_not_check_may_be_a_fault() {
        let answered = |status| judged(&Ok(HttpResponse { status, ..HttpResponse::default() }));
        for (status, is_fault) in
            [(200, false), (404, false), (408, true), (429, true), (501, false), (503, true)]
        {
            let last = answered(status);
            assert_eq!((last.fault.is_some(), last.may_help), (is_fault, is_fault), "{status}");
        }
        let last = judged(&Err(("refused".to_owned(), false)));
        assert_eq!((last.fault.as_deref(), last.may_help), (Some("refused"), false));
    }
}
