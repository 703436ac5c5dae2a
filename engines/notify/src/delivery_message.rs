//! A message for the driver to send: an HTTP request, or a message for a service with another protocol.
//!
//! Here: subject, payload and login of such messages. Elsewhere: requests (`event_delivery`), the protocols (the program). No
//! `Debug` shows credentials or payloads.

use std::collections::BTreeMap;
use std::fmt;

use crate::event_delivery::ProviderRequest;
use crate::providers::NatsKey;

/// A message on a subject of NATS, and how to log in.
#[derive(Clone)]
pub struct NatsMessage {
    /// The server.
    pub server: String,
    /// The name of the client.
    pub name: &'static str,
    /// The subject.
    pub subject: String,
    /// The payload.
    pub data: Vec<u8>,
    /// The login to NATS.
    pub login: NatsLogin,
}

/// How the client of a NATS server proves who it is.
#[derive(Clone)]
pub enum NatsLogin {
    /// No login.
    None,
    /// A user name and password.
    Password(String, String),
    /// A key that signs the nonce of the server, optionally with the JWT of the user.
    Key(NatsKey),
}

impl fmt::Debug for NatsMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsMessage").field("subject", &self.subject).finish_non_exhaustive()
    }
}

/// A message for a topic of Google Pub/Sub.
#[derive(Clone)]
pub struct PubSubMessage {
    /// The project.
    pub project: String,
    /// The topic.
    pub topic: String,
    /// The payload.
    pub data: Vec<u8>,
    /// Attributes.
    pub attributes: BTreeMap<String, String>,
    /// The JSON of a service account key. If empty, the identity of the program is used.
    pub credentials: String,
}

impl fmt::Debug for PubSubMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PubSubMessage").field("topic", &self.topic).finish_non_exhaustive()
    }
}

/// A message for an Event Hub.
#[derive(Clone)]
pub struct EventHubMessage {
    /// The namespace, as a host name.
    pub host: String,
    /// The hub.
    pub hub: String,
    /// The login to the Event Hub.
    pub login: EventHubLogin,
    /// The payload.
    pub data: Vec<u8>,
}

/// The login to an Event Hub.
#[derive(Clone)]
pub enum EventHubLogin {
    /// A shared key and its name.
    SharedKey(String, String),
    /// A token.
    Token(String),
    /// The identity of the ServiceAccount with this name. If the name is empty, the identity of the program.
    Identity(String),
}

impl fmt::Debug for EventHubMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventHubMessage").field("hub", &self.hub).finish_non_exhaustive()
    }
}

/// The message to be sent.
#[derive(Debug, Clone)]
pub enum DeliveryMessage {
    /// A request over HTTP.
    Http(Box<ProviderRequest>),
    /// To NATS.
    Nats(Box<NatsMessage>),
    /// To Google Pub/Sub.
    PubSub(Box<PubSubMessage>),
    /// To an Event Hub of Azure.
    EventHub(Box<EventHubMessage>),
}
