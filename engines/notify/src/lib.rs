//! Notifications: who gets an event, what is sent where, and which requests of receivers count.
//!
//! Here: decisions and texts, without network, clock or cluster. Elsewhere: sending, and reading objects (the program).
//!
//! * [`route()`] decides where an [`Alert`] sends an [`Event`]; a [`Dispatch`] is the conversation with the Provider.
//! * A [`Delivery`] says what to send, step by step; its driver sends it and hands the answers back.
//! * [`receivers`] judges requests that webhooks make.
//!
//! Source of the semantics: notification-controller 1.9.3; zoom, incident.io and the alias of Opsgenie as on its main
//! branch.

mod commit_status;
mod credentials;
mod dispatch;
mod event;
mod fold;
mod http;
mod json;
mod metadata;
mod objects;
mod options;
mod parcel;
mod providers;
pub mod receivers;
#[cfg(test)]
mod tests;
mod text;

pub use commit_status::commit_status;
pub use credentials::Tls;
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
pub use parcel::{EventHubLogin, EventHubMessage, NatsLogin, NatsMessage, Parcel, PubSubMessage};
pub use providers::{NatsKey, TYPES};
