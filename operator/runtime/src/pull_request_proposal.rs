//! Keeps one pull request for a pushed branch, at the forge that a Provider names. Also sends other conversations with forges.
//!
//! Here: reading the Provider and its Secrets, and sending requests. Elsewhere: the requests and the conclusions from answers
//! (`notify::PullRequestUpsert`, `notify::PullRequestCheckPosting`), which servers are allowed
//! (`egress_policy.rs`), and repeated attempts (the caller).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crds::notification::Provider;
use http_client::HttpClientCache;
use notify::{
    ForgeCallSequence, ForgeCallStep, MessageSendResult, PullRequest, PullRequestError,
    PullRequestProposal, PullRequestUpsert, SecretData,
};
use windlass_cluster::ClusterError;

use super::http_request::exchange;
use super::object_hold::is_suspended;
use super::provider_secret_masking::{NOT_MASKED, masked_text};
use super::run_context::RunContext;
use windlass_cluster::referenced_secrets_and_config_maps::RunReferenceReads;
use windlass_cluster::run_permits::RunPermits;
use windlass_expressions::{ExpressionThreadError, on_thread};

/// The time limit of one request.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);

/// The time limit of all requests of a conversation, without waits for permits.
const CONVERSATION_LIMIT: Duration = Duration::from_secs(120);

/// A longer answer is not parsed on an async worker thread.
const MAX_INLINE_RESPONSE_BYTES: usize = 64 << 10;

/// Makes sure that the forge of a Provider has one pull request for the pushed branch. It opens or updates the pull request,
/// or finds it up to date.
///
/// The Provider is in `namespace`, which is that of the object. Its Secrets are added to the references, so that a new token
/// wakes the object. Requests may go where Providers of the namespace may send events. Each request takes a permit of
/// [`RunContext::asking`], and meanwhile the caller must hold none.
///
/// # Errors
/// The reason why there is no such pull request, without values of the Secrets. [`PullRequestError::may_help`] is false until
/// the Provider, its Secrets, the repository or the spec changes.
pub async fn propose_pull_request(
    context: &RunContext,
    references: &mut RunReferenceReads,
    namespace: &str,
    provider: &str,
    proposal: PullRequestProposal,
) -> Result<PullRequest, PullRequestError> {
    let spec = read_provider(context, namespace, provider).await?;
    let secrets = Arc::new(read_secrets(references, namespace, &spec).await?);
    let spec = serde_json::to_value(&*spec).map_err(|error| lasting(error.to_string()))?;
    let spec = notify::Provider::new(spec).map_err(|error| lasting(error.to_string()))?;
    let held = secrets.clone();
    let begun = on_thread(namespace, move || {
        let secret = |_: &str, name: &str| held.get(name).cloned();
        let now = jiff::Timestamp::now().as_second();
        PullRequestUpsert::new(proposal, &spec, now, &secret)
    });
    let conversation = begun.await.map_err(|broken| lasting(broken.to_string()))?;
    let clients = &context.remotes.http;
    let failure = match converse(clients, &context.asking, namespace, conversation).await {
        Ok(pull_request) => return Ok(pull_request),
        Err(failure) => failure,
    };
    let text = format!("Provider {namespace}/{provider}: {}", failure.message);
    let masked = on_thread(namespace, move || masked_text(&secrets, &text)).await;
    let message = match masked {
        Ok(Some(message)) => message,
        Ok(None) => format!("Provider {namespace}/{provider}: {NOT_MASKED}"),
        Err(broken) => broken.to_string(),
    };
    Err(PullRequestError { message, ..failure })
}

/// An error that lasts until a user changes something.
fn lasting(message: String) -> PullRequestError {
    PullRequestError { message, may_help: false, retry_after: None }
}

/// An error because the API server did not return an object.
fn unread(kind: &str, namespace: &str, name: &str, error: &ClusterError) -> PullRequestError {
    let message = format!("cannot read {kind} {namespace}/{name}: {error}");
    PullRequestError { message, may_help: true, retry_after: None }
}

async fn read_provider(
    context: &RunContext,
    namespace: &str,
    name: &str,
) -> Result<Arc<Provider>, PullRequestError> {
    let found = match context.seen::<Provider>(namespace, name) {
        Some(found) => Some(found),
        // The Providers may not be listed yet, or another process may follow them.
        None => {
            let read = context.cluster.read::<Provider>(namespace, name).await;
            read.map_err(|error| unread("Provider", namespace, name, &error))?.map(Arc::new)
        }
    };
    let Some(provider) = found else {
        return Err(lasting(format!("Provider {namespace}/{name} not found")));
    };
    if is_suspended(&*provider, jiff::Timestamp::now()) {
        return Err(lasting(format!("Provider {namespace}/{name} is suspended")));
    }
    Ok(provider)
}

/// The Secrets that a Provider names, by name. The engine reports a missing one.
async fn read_secrets(
    references: &mut RunReferenceReads,
    namespace: &str,
    provider: &Provider,
) -> Result<BTreeMap<String, SecretData>, PullRequestError> {
    let spec = &provider.spec;
    let mut secrets = BTreeMap::new();
    for reference in
        [&spec.secret_ref, &spec.proxy_secret_ref, &spec.cert_secret_ref].into_iter().flatten()
    {
        let name = &reference.name;
        let read = references.secret(namespace, name).await;
        let data = read.map_err(|error| unread("Secret", namespace, name, &error))?;
        if let Some(data) = data {
            let secret = SecretData { name: format!("{namespace}/{name}"), data };
            secrets.insert(name.clone(), secret);
        }
    }
    Ok(secrets)
}

/// Sends the requests of the engine until the conversation ends or its time is over. Each request takes a permit of the
/// namespace.
///
/// # Errors
/// The reason of the failure, with the text of the forge. The caller has to mask it.
pub async fn converse<T: Clone + Send + Sync + 'static>(
    clients: &HttpClientCache,
    permits: &RunPermits,
    namespace: &str,
    mut conversation: ForgeCallSequence<T>,
) -> Result<T, PullRequestError> {
    let mut left = CONVERSATION_LIMIT;
    let mut step = conversation.start();
    loop {
        let request = match step {
            ForgeCallStep::Done(result) => return Ok(result),
            ForgeCallStep::Failed(failure) => return Err(failure),
            ForgeCallStep::Send(request) => request,
        };
        if left.is_zero() {
            let message =
                format!("the forge took more than {CONVERSATION_LIMIT:?} for its answers");
            return Err(PullRequestError { message, may_help: true, retry_after: None });
        }
        let permit = permits.acquire(namespace).await;
        let begun = Instant::now();
        let limit = left.min(REQUEST_LIMIT);
        let outcome = tokio::time::timeout(limit, exchange(clients, &request)).await;
        drop(permit);
        left = left.saturating_sub(begun.elapsed());
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(_) => Err((format!("the forge did not respond within {limit:?}"), true)),
        };
        let next = answer(namespace, conversation, outcome).await;
        (conversation, step) = next.map_err(|broken| lasting(broken.to_string()))?;
    }
}

/// The next step after an answer. Parsing a long answer takes a while, so the namespaces take turns.
async fn answer<T: Clone + Send + Sync + 'static>(
    namespace: &str,
    mut conversation: ForgeCallSequence<T>,
    outcome: MessageSendResult,
) -> Result<(ForgeCallSequence<T>, ForgeCallStep<T>), ExpressionThreadError> {
    let is_long =
        outcome.as_ref().is_ok_and(|answer| answer.body.len() > MAX_INLINE_RESPONSE_BYTES);
    let read = move || {
        let step = conversation.answer(outcome);
        (conversation, step)
    };
    if is_long { on_thread(namespace, read).await } else { Ok(read()) }
}

#[cfg(test)]
mod tests;
