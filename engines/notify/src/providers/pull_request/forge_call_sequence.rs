//! A conversation with a forge, for any result. Its driver sends each request and passes back the response.
//!
//! Elsewhere: the order of requests (`pull_request`, `check`), connections and retries (the program).

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::delivery_message::DeliveryMessage;
use crate::event_delivery::{
    DeliveryStep, EventDelivery, MessageSendResult, ProviderNextAction, ProviderRequest,
};

/// The prefix of Flux's error about a failed login.
const LOGIN_ERROR_PREFIX: &str = "failed to initialize notifier: ";

/// Why a conversation with a forge failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PullRequestError {
    /// The action that failed, and how to proceed. The text contains the forge's response, so the caller must mask it.
    pub message: String,
    /// Whether another attempt may succeed although nothing was changed.
    pub may_help: bool,
    /// The forge does not want another attempt before.
    pub retry_after: Option<Duration>,
}

impl PullRequestError {
    /// One that lasts until something is changed.
    pub(super) fn lasting(message: impl Into<String>) -> Self {
        Self { message: message.into(), may_help: false, retry_after: None }
    }
}

/// The next step of the driver of a conversation.
#[derive(Debug)]
pub enum ForgeCallStep<T> {
    /// Sends this, and calls [`ForgeCallSequence::answer`] with the outcome.
    Send(Box<ProviderRequest>),
    /// No action: the conversation ended with this result.
    Done(T),
    /// No action: the conversation failed.
    Failed(PullRequestError),
}

/// The place in which the steps of a conversation store its result.
pub(super) type ForgeCallResultSlot<T> = Arc<OnceLock<Result<T, PullRequestError>>>;

/// A conversation with a forge.
///
/// # Guarantees
/// The token is sent only to the host of the Provider's address. For a GitHub App, the login goes to the host in its Secret. A
/// redirect passes the token on only to a subdomain of that host.
///
/// # Errors
/// [`ForgeCallStep::Failed`] explains the failure in full sentences, with the response of the forge. No failure is retried here.
pub struct ForgeCallSequence<T> {
    delivery: EventDelivery,
    result: ForgeCallResultSlot<T>,
    /// Whether a retry may give another outcome.
    may_help: bool,
}

impl<T: Clone> ForgeCallSequence<T> {
    /// Creates a conversation whose last step stores the result in `result`.
    pub(super) fn of(flow: ProviderNextAction, result: ForgeCallResultSlot<T>) -> Self {
        Self { delivery: EventDelivery::new(flow, Duration::ZERO), result, may_help: false }
    }

    /// The first step of the conversation with the forge.
    pub fn start(&mut self) -> ForgeCallStep<T> {
        let step = self.delivery.start();
        self.step(step)
    }

    /// The next step after the outcome of the last message.
    pub fn answer(&mut self, outcome: MessageSendResult) -> ForgeCallStep<T> {
        self.may_help = match &outcome {
            Ok(answer) => match answer.status {
                408 | 429 => true,
                status => status >= 500 && status != 501,
            },
            Err((_, may_help)) => *may_help,
        };
        let step = self.delivery.answer(outcome);
        self.step(step)
    }

    fn step(&self, step: DeliveryStep) -> ForgeCallStep<T> {
        let error = match step {
            DeliveryStep::Send(_, DeliveryMessage::Http(request)) => {
                return ForgeCallStep::Send(request);
            }
            DeliveryStep::Failed(failure) => {
                let message = &failure.message;
                let message = message.strip_prefix(LOGIN_ERROR_PREFIX).unwrap_or(message);
                PullRequestError::lasting(message)
            }
            DeliveryStep::Send(..) | DeliveryStep::Done => match self.result.get() {
                Some(Ok(result)) => return ForgeCallStep::Done(result.clone()),
                Some(Err(error)) => error.clone(),
                None => PullRequestError::lasting("the conversation with the forge has no result"),
            },
        };
        let may_help = error.may_help || self.may_help;
        ForgeCallStep::Failed(PullRequestError { may_help, ..error })
    }
}
