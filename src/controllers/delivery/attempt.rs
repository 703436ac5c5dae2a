//! One attempt to send a notification: what it names is read, and the conversation of the engine is had.
//!
//! Elsewhere: what is said in it (`engines/notify`), requests (`controllers::exchange`), further attempts (`lane`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crds::LocalObjectReference;
use crds::notification::{Alert, Provider};
use notify::{Dispatch, Failure, Outcome, Parcel, Secret, Stage, Step, Warning};
use objects::Masking;
use url::Url;

use super::spool::Notification;
use crate::controllers::context::Context;
use crate::controllers::exchange::{exchange, retry_after};
use crate::controllers::expressions::on_thread;
use crate::controllers::permit::Permits;

/// How an attempt ended.
pub(super) enum Ended {
    /// It was sent, or the service needs nothing of it.
    Delivered,
    /// There is nobody any more who wants it.
    Unwanted,
    /// Another attempt would come to the same.
    Refused(Warning),
    /// Another attempt may succeed, and no earlier than after a time if the service said so.
    Later(Warning, Option<Duration>),
}

/// The Secrets of a Provider.
struct Secrets {
    found: BTreeMap<String, Secret>,
    /// One that it names is not there.
    is_incomplete: bool,
}

/// What the last request of a conversation says about another attempt.
#[derive(Default)]
struct Last {
    may_help: bool,
    retry_after: Option<Duration>,
}

/// Tries to send a notification.
pub(super) async fn attempt(
    context: &Arc<Context>,
    permits: &Permits,
    notification: &Notification,
) -> Ended {
    let namespace = &notification.namespace;
    let provider = context.seen::<Provider>(namespace, &notification.provider);
    let alert = context.seen::<Alert>(namespace, &notification.alert);
    let (Some(provider), Some(alert)) = (provider, alert) else { return Ended::Unwanted };
    if provider.spec.suspend || alert.spec.suspend {
        return Ended::Unwanted;
    }
    let event = notification.event();
    let secrets = match secrets(context, namespace, &provider).await {
        Ok(secrets) => secrets,
        Err(error) => return Ended::Later(failed(&event, &error.to_string()), None),
    };
    let masking = masking(&secrets);
    let of = (provider, alert, secrets.found);
    let begun = on_thread(namespace, {
        let event = event.clone();
        move || begin(event, &of.0, &of.1, &of.2)
    });
    let mut dispatch = match begun.await {
        Ok(Ok(dispatch)) => dispatch,
        Ok(Err(text)) => return Ended::Refused(failed(&event, &text)),
        Err(broken) => return Ended::Refused(failed(&event, &broken.to_string())),
    };
    let mut last = Last::default();
    let limit = dispatch.timeout;
    let said = converse(context, permits, namespace, &mut dispatch, &mut last);
    let (failure, may_help) = match tokio::time::timeout(limit, said).await {
        Ok(Ok(())) => return Ended::Delivered,
        Ok(Err(failure)) => {
            let may_help = match failure.stage {
                Stage::Post => last.may_help,
                // Who completes the Secrets has it sent.
                Stage::Init => secrets.is_incomplete || last.may_help,
                Stage::CommitStatus => false,
            };
            (failure, may_help)
        }
        Err(_) => {
            let message = format!("the service did not respond within {limit:?}");
            (Failure { stage: Stage::Post, message }, true)
        }
    };
    let warning = dispatch.warning(&failure);
    let warning = Warning { message: masking.mask(&warning.message), ..warning };
    match may_help {
        true => Ended::Later(warning, last.retry_after),
        false => Ended::Refused(warning),
    }
}

/// A warning about something that failed before the engine was asked.
fn failed(event: &notify::Event, why: &str) -> Warning {
    let object = &event.object;
    Warning {
        reason: "NotificationDispatchFailed",
        message: format!(
            "failed to dispatch notification for {}/{}/{}: {why}",
            object.kind, object.namespace, object.name
        ),
        annotations: BTreeMap::new(),
    }
}

/// What the engine makes of it; an expression of the Provider may be evaluated here.
fn begin(
    event: notify::Event,
    provider: &Provider,
    alert: &Alert,
    secrets: &BTreeMap<String, Secret>,
) -> Result<Dispatch, String> {
    let unreadable = |error: &dyn std::fmt::Display| error.to_string();
    let provider = serde_json::to_value(provider).map_err(|error| unreadable(&error))?;
    let provider = notify::Provider::new(provider).map_err(|error| unreadable(&error))?;
    let alert = serde_json::to_value(alert).map_err(|error| unreadable(&error))?;
    let alert = notify::Alert::new(alert).map_err(|error| unreadable(&error))?;
    let now = jiff::Timestamp::now().as_second();
    let secret = |_: &str, name: &str| secrets.get(name).cloned();
    Ok(Dispatch::new(event, &provider, &alert, now, &secret))
}

async fn secrets(
    context: &Context,
    namespace: &str,
    provider: &Provider,
) -> Result<Secrets, crate::cluster::ClusterError> {
    let spec = &provider.spec;
    let named = [&spec.secret_ref, &spec.proxy_secret_ref, &spec.cert_secret_ref];
    let names: BTreeSet<&String> =
        named.into_iter().flatten().map(|LocalObjectReference { name }| name).collect();
    let mut secrets = Secrets { found: BTreeMap::new(), is_incomplete: false };
    for name in names {
        match context.cluster.secret(namespace, name).await? {
            Some((data, _)) => {
                let secret = Secret { name: format!("{namespace}/{name}"), data };
                secrets.found.insert(name.clone(), secret);
            }
            None => secrets.is_incomplete = true,
        }
    }
    Ok(secrets)
}

/// Everything in the Secrets, and what of an address may stand alone in a text.
fn masking(secrets: &Secrets) -> Masking {
    let values = secrets.found.values().flat_map(|secret| secret.data.iter());
    let values = values.flat_map(|(key, value)| {
        let address = (key == "address").then(|| String::from_utf8_lossy(value));
        let url = address.and_then(|address| Url::parse(address.trim()).ok());
        let path = url.map(|url| url.path().to_owned()).filter(|path| path.len() > 1);
        std::iter::once(value.clone()).chain(path.map(String::into_bytes))
    });
    Masking::new(values)
}

/// Sends what the engine says until it is done.
async fn converse(
    context: &Context,
    permits: &Permits,
    namespace: &str,
    dispatch: &mut Dispatch,
    last: &mut Last,
) -> Result<(), Failure> {
    let mut step = dispatch.delivery.start();
    loop {
        let (wait, parcel) = match step {
            Step::Done => return Ok(()),
            Step::Failed(failure) => return Err(failure),
            Step::Send(wait, parcel) => (wait, parcel),
        };
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        let outcome = send(context, permits, namespace, &parcel).await;
        *last = judged(&outcome);
        step = dispatch.delivery.answer(outcome);
    }
}

async fn send(context: &Context, permits: &Permits, namespace: &str, parcel: &Parcel) -> Outcome {
    let unsupported = match parcel {
        Parcel::Http(request) => {
            let _permit = permits.acquire(namespace).await;
            return exchange(&context.remotes.http, request).await;
        }
        Parcel::Nats(_) => "nats",
        Parcel::PubSub(_) => "googlepubsub",
        Parcel::EventHub(_) => "azureeventhub",
    };
    Err((format!("windlass does not support the type `{unsupported}` of Providers yet"), false))
}

fn judged(outcome: &Outcome) -> Last {
    match outcome {
        Ok(answer) => {
            let is_busy = matches!(answer.status, 408 | 429);
            let is_broken = answer.status >= 500 && answer.status != 501;
            let now = jiff::Timestamp::now();
            Last { may_help: is_busy || is_broken, retry_after: retry_after(answer, now) }
        }
        Err((_, may_help)) => Last { may_help: *may_help, retry_after: None },
    }
}
