//! Notifications: which Providers receive an event, the messages to them, and which requests to Receivers are accepted.
//!
//! Here: decisions and texts, without network, clock or cluster. Elsewhere: sending, and reading objects (the program).
//!
//! * [`route()`] decides where an [`Alert`] sends a [`FluxEvent`]. An [`EventDispatch`] is the conversation with the Provider.
//! * An [`EventDelivery`] returns the requests step by step. Its driver sends them and passes the responses back.
//! * [`receivers`] checks the requests of webhooks. Some requests contain a [`json_web_token_signature`].
//! * A [`PullRequestUpsert`] creates or updates the pull request for a pushed branch at the forge of a Provider. A
//!   [`PullRequestCheckPosting`] writes one comment on a pull request and a commit status. A
//!   [`PullRequestReviewLookup`] reads the reviews of the pull request that became a commit.
//!
//! Source of the semantics: notification-controller 1.9.3; zoom, incident.io and the alias of Opsgenie as on its main branch.

mod alert_dispatch;
mod api_objects;
mod case_folding;
mod commit_status_id;
mod delivery_message;
mod event;
mod event_delivery;
mod event_metadata;
mod go_json_encoder;
mod go_string_functions;
pub mod json_web_token_signature;
mod provider_options;
mod providers;
pub mod receivers;
mod secret_credentials;
#[cfg(test)]
mod tests;

pub use alert_dispatch::{
    AlertClusterReader, AlertControllerSettings, AlertDispatchResult, AlertWarningEvent,
    EventDispatch, RoutedEvent, RoutingDecision, delivery, dispatch, follow_up, has_incidents,
    route,
};
pub use api_objects::{
    Alert, AlertSpec, ApiObjectMetadata, EventSourceSelector, NameReference, Provider,
    ProviderSpec, SecretData, UnreadableObjectError,
};
pub use commit_status_id::commit_status;
pub use delivery_message::{
    DeliveryMessage, EventHubLogin, EventHubMessage, NatsLogin, NatsMessage, PubSubMessage,
};
pub use event::{EVENT_GROUP, FluxEvent, NotAnEventError, NotifiedIncident, ObjectReference};
pub use event_delivery::{
    DeliveryFailure, DeliveryStage, DeliveryStep, EventDelivery, HttpResponse, MAX_ANSWER,
    MessageSendResult, ProviderRequest,
};
pub use providers::{
    CheckCommentOutcome, ForgeCallSequence, ForgeCallStep, NatsKey, PullRequest, PullRequestCheck,
    PullRequestCheckPosting, PullRequestCheckResult, PullRequestError, PullRequestOutcome,
    PullRequestProposal, PullRequestReviewLookup, PullRequestReviewQuery, PullRequestReviewResult,
    PullRequestUpsert, PullRequestUpsertStep, ReviewedPullRequest, TYPES,
};
pub use secret_credentials::TlsSettings;
