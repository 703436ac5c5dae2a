//! Conversations with a forge, whatever they lead to: their driver sends each request and hands back its outcome.
//!
//! Elsewhere: what is sent in which order (`pull_request`, `check`), connections and further attempts (the program).

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::delivery_message::DeliveryMessage;
use crate::provider_request::{
    DeliveryResult, EventDelivery, HttpStep, ProviderFlow, ProviderRequest,
};

/// What Flux's words for a login put before an error.
const LOGIN_ERROR_PREFIX: &str = "failed to initialize notifier: ";

/// Why a conversation with a forge did not lead to what it is for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PullRequestError {
    /// What failed, and what to do. What the forge said is part of it, so it is to be masked.
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
pub enum ForgeStep<T> {
    /// Sends this, and calls [`ForgeConversation::answer`] with the outcome.
    Send(Box<ProviderRequest>),
    /// Nothing: the conversation led to this.
    Done(T),
    /// Nothing: it failed.
    Failed(PullRequestError),
}

/// Where the steps of a conversation put what they led to.
pub(super) type SharedResult<T> = Arc<OnceLock<Result<T, PullRequestError>>>;

/// A conversation with a forge.
///
/// # Guarantees
/// The token goes to the host of the Provider's address, or, for the login of a GitHub App, of its Secret; a redirect takes
/// it along to a host below that one only.
///
/// # Errors
/// [`ForgeStep::Failed`] says why in full sentences, with what the forge said. None is retried here.
pub struct ForgeConversation<T> {
    delivery: EventDelivery,
    result: SharedResult<T>,
    /// Whether the last outcome may be another one at another time.
    may_help: bool,
}

impl<T: Clone> ForgeConversation<T> {
    /// A conversation whose steps end by putting what they led to into `result`.
    pub(super) fn of(flow: ProviderFlow, result: SharedResult<T>) -> Self {
        Self { delivery: EventDelivery::new(flow, Duration::ZERO), result, may_help: false }
    }

    /// The first step.
    pub fn start(&mut self) -> ForgeStep<T> {
        let step = self.delivery.start();
        self.step(step)
    }

    /// The step after this outcome of the last one.
    pub fn answer(&mut self, outcome: DeliveryResult) -> ForgeStep<T> {
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

    fn step(&self, step: HttpStep) -> ForgeStep<T> {
        let error = match step {
            HttpStep::Send(_, DeliveryMessage::Http(request)) => return ForgeStep::Send(request),
            HttpStep::Failed(failure) => {
                let message = &failure.message;
                let message = message.strip_prefix(LOGIN_ERROR_PREFIX).unwrap_or(message);
                PullRequestError::lasting(message)
            }
            HttpStep::Send(..) | HttpStep::Done => match self.result.get() {
                Some(Ok(result)) => return ForgeStep::Done(result.clone()),
                Some(Err(error)) => error.clone(),
                None => PullRequestError::lasting("the conversation with the forge has no result"),
            },
        };
        let may_help = error.may_help || self.may_help;
        ForgeStep::Failed(PullRequestError { may_help, ..error })
    }
}
