//! Notifications: which Providers get an event, what is sent, and which requests to Receivers are accepted.
//!
//! Here: decisions and texts, without network, clock or cluster. Elsewhere: sending, and reading objects (the program).
//!
//! * [`route()`] decides where an [`Alert`] sends an [`Event`]; a [`Dispatch`] is the conversation with the Provider.
//! * A [`Delivery`] gives the requests, step by step; its driver sends them and hands the answers back.
//! * [`receivers`] judges requests that webhooks make.
//! * A [`PullRequestConversation`] leads to one pull request for a pushed branch, at the forge of a Provider.
//!
//! Source of the semantics: notification-controller 1.9.3; zoom, incident.io and the alias of Opsgenie as on its main
//! branch.

mod case_folding;
mod commit_status;
mod credentials;
mod delivery_message;
mod dispatch;
mod event;
mod http;
mod json;
mod metadata;
mod objects;
mod options;
mod providers;
pub mod receivers;
#[cfg(test)]
mod tests;
mod text;

pub use commit_status::commit_status;
pub use credentials::Tls;
pub use delivery_message::{
    DeliveryMessage, EventHubLogin, EventHubMessage, NatsLogin, NatsMessage, PubSubMessage,
};
pub use dispatch::{
    AlertVerdict, Cluster, Dispatch, Route, RoutingDecision, Settings, Warning, delivery, dispatch,
    follow_up, has_incidents, route,
};
pub use event::{EVENT_GROUP, Event, Incident, NoEvent, ObjectReference};
pub use http::{
    Delivery, DeliveryFailure, DeliveryResult, HttpStep, MAX_ANSWER, ProviderRequest, Response,
    Stage,
};
pub use objects::{
    Alert, AlertSpec, EventSourceSelector, Metadata, NameReference, Provider, ProviderSpec, Secret,
    Unreadable,
};
pub use providers::{
    NatsKey, Proposal, PullRequest, PullRequestChange, PullRequestConversation, PullRequestError,
    PullRequestStep, TYPES,
};
