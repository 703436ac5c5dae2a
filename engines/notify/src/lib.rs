//! Notifications: which Providers receive an event, the messages to them, and which requests to Receivers are accepted.
//!
//! Here: decisions and texts, without network, clock or cluster. Elsewhere: sending, and reading objects (the program).
//!
//! * [`route()`] decides where an [`Alert`] sends a [`FluxEvent`]. An [`EventDispatch`] is the conversation with the Provider.
//! * An [`EventDelivery`] returns the requests step by step. Its driver sends them and passes the responses back.
//! * [`receivers`] checks the requests of webhooks. Some requests contain a [`json_web_token`].
//! * A [`PullRequestConversation`] creates or updates the pull request for a pushed branch at the forge of a Provider. A
//!   [`PullRequestCheckConversation`] writes one comment on a pull request and a commit status. A
//!   [`PullRequestReviewConversation`] reads the reviews of the pull request that became a commit.
//!
//! Source of the semantics: notification-controller 1.9.3; zoom, incident.io and the alias of Opsgenie as on its main branch.

mod alert_dispatch;
mod api_objects;
mod case_folding;
mod commit_status;
mod delivery_message;
mod event;
mod event_metadata;
mod go_text;
mod json;
pub mod json_web_token;
mod provider_options;
mod provider_request;
mod providers;
pub mod receivers;
mod secret_credentials;
#[cfg(test)]
mod tests;

pub use alert_dispatch::{
    AlertControllerSettings, AlertVerdict, AlertWarningEvent, DispatchCluster, EventDispatch,
    EventRoute, RoutingDecision, delivery, dispatch, follow_up, has_incidents, route,
};
pub use api_objects::{
    Alert, AlertSpec, ApiObjectMetadata, EventSourceSelector, NameReference, Provider,
    ProviderSpec, SecretData, UnreadableObjectError,
};
pub use commit_status::commit_status;
pub use delivery_message::{
    DeliveryMessage, EventHubLogin, EventHubMessage, NatsLogin, NatsMessage, PubSubMessage,
};
pub use event::{EVENT_GROUP, FluxEvent, NotAnEventError, NotifiedIncident, ObjectReference};
pub use provider_request::{
    DeliveryFailure, DeliveryResult, DeliveryStage, EventDelivery, HttpResponse, HttpStep,
    MAX_ANSWER, ProviderRequest,
};
pub use providers::{
    CheckCommentChange, ForgeConversation, ForgeStep, NatsKey, PullRequest, PullRequestChange,
    PullRequestCheck, PullRequestCheckConversation, PullRequestCheckResult,
    PullRequestConversation, PullRequestError, PullRequestProposal, PullRequestReviewConversation,
    PullRequestReviewQuery, PullRequestReviewResult, PullRequestStep, ReviewedPullRequest, TYPES,
};
pub use secret_credentials::TlsSettings;
