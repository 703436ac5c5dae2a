//! Sends the messages of the engine `notify` over each of the protocols.
//!
//! Elsewhere: the messages (`engines/notify`), requests (`windlass_runtime::http_request`), the protocol of NATS (`nats`),
//! logins at clouds (`sources::cloud_tokens`), when and how often (`delivery_attempt`).

use http_client::HttpClientCache;
use notify::{
    DeliveryMessage, EventHubLogin, HttpResponse, MessageSendResult, NatsMessage, ProviderRequest,
};
use objects::RedactedValue;
use sources::cloud_tokens;

use super::nats;
use windlass_runtime::http_request::exchange;

/// The most bytes of an answer that a message repeats.
const MAX_SHOWN_RESPONSE_BYTES: usize = 1 << 10;

/// The server for Pub/Sub messages, unless the environment names an emulator, as for Google's own programs.
const PUB_SUB: &str = "https://pubsub.googleapis.com";
const PUB_SUB_EMULATOR: &str = "PUBSUB_EMULATOR_HOST";

/// The audience of tokens for Event Hubs.
const EVENT_HUBS: &str = "https://eventhubs.azure.net";

/// A message in its form on the wire, with the needed login.
pub enum TransportMessage {
    /// A request whose answer the engine judges.
    Request(Box<ProviderRequest>),
    /// A request that counts as sent if its answer says so.
    Message(Box<ProviderRequest>),
    /// A message for NATS.
    Nats(Box<NatsMessage>),
}

/// A sender of notifications: its clients, and whether it may use the identity of this machine.
#[derive(Clone, Copy)]
pub struct NotificationSender<'s> {
    /// The HTTP clients, which know the permitted addresses.
    pub clients: &'s HttpClientCache,
    /// Whether a Provider without credentials may use the credentials of this machine.
    pub lends_identity: bool,
}

impl NotificationSender<'_> {
    /// The message in its form on the wire. If it needs a token, the token is requested from the cloud.
    ///
    /// # Errors
    /// The reason why there is no token, and whether another attempt may help.
    pub async fn transport_message(
        &self,
        delivery_message: DeliveryMessage,
    ) -> Result<TransportMessage, (String, bool)> {
        match delivery_message {
            DeliveryMessage::Http(request) => Ok(TransportMessage::Request(request)),
            DeliveryMessage::Nats(message) => Ok(TransportMessage::Nats(message)),
            DeliveryMessage::EventHub(message) => {
                let token = match &message.login {
                    EventHubLogin::Identity(_) => {
                        self.lend("a token, or a connection string with `SharedAccessKey`")?;
                        cloud_tokens::azure(EVENT_HUBS, self.clients.egress()).await?
                    }
                    EventHubLogin::SharedKey(..) | EventHubLogin::Token(_) => {
                        RedactedValue::default()
                    }
                };
                let now = jiff::Timestamp::now().as_second();
                Ok(TransportMessage::Message(Box::new(message.request(now, token.expose()))))
            }
            DeliveryMessage::PubSub(message) => {
                let emulator = std::env::var(PUB_SUB_EMULATOR).unwrap_or_default();
                if !emulator.is_empty() {
                    let server = format!("http://{emulator}");
                    return Ok(TransportMessage::Message(Box::new(message.request(&server, None))));
                }
                let key = Some(&message.credentials).filter(|key| !key.is_empty());
                if key.is_none() {
                    self.lend("the JSON key of a service account as `token`")?;
                }
                let key = key.cloned().map(RedactedValue::new);
                let token = cloud_tokens::google(key, self.clients.egress()).await?;
                Ok(TransportMessage::Message(Box::new(
                    message.request(PUB_SUB, Some(token.expose())),
                )))
            }
        }
    }

    /// Sends a message to the service of a Provider, over HTTP or NATS, and returns the result.
    pub async fn send(&self, transport_message: &TransportMessage) -> MessageSendResult {
        match transport_message {
            TransportMessage::Request(request) | TransportMessage::Message(request) => {
                exchange(self.clients, request).await
            }
            TransportMessage::Nats(message) => nats::publish(self.clients.egress(), message).await,
        }
    }

    /// Fails where a Provider may not act as this machine.
    fn lend(&self, instead: &str) -> Result<(), (String, bool)> {
        if self.lends_identity {
            return Ok(());
        }
        let text = format!(
            "with --no-cross-namespace-refs, Providers do not use the identity of windlass; add {instead} to the Secret of \
             `spec.secretRef`"
        );
        Err((text, false))
    }
}

impl TransportMessage {
    /// The result of sending this message as the engine expects it: an answer that does not accept the message becomes a
    /// failure.
    pub fn judged(&self, outcome: MessageSendResult) -> MessageSendResult {
        match (self, outcome) {
            (Self::Message(_), Ok(answer)) if !(200..300).contains(&answer.status) => {
                Err((refusal(&answer), false))
            }
            (_, outcome) => outcome,
        }
    }
}

/// The status and the body of an answer, for a message.
fn refusal(answer: &HttpResponse) -> String {
    let body = String::from_utf8_lossy(&answer.body);
    let body = body.trim();
    let shown = &body[..body.floor_char_boundary(MAX_SHOWN_RESPONSE_BYTES)];
    let status = answer.status;
    match shown {
        "" => format!("the service answered with status {status}"),
        shown => format!("the service answered with status {status}: {shown}"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use http_client::EgressRules;
    use notify::{EventHubMessage, PubSubMessage};

    use super::*;

    #[tokio::test]
    async fn a_tenant_without_credentials_does_not_act_as_the_machine() {
        let clients = HttpClientCache::within(EgressRules::with_loopback());
        let sender = NotificationSender { clients: &clients, lends_identity: false };
        let data = Vec::new();
        let hub = EventHubMessage {
            host: "ns.servicebus.windows.net".to_owned(),
            hub: "events".to_owned(),
            login: EventHubLogin::Identity(String::new()),
            data: data.clone(),
        };
        let topic = PubSubMessage {
            project: "p".to_owned(),
            topic: "t".to_owned(),
            data,
            attributes: BTreeMap::new(),
            credentials: String::new(),
        };
        for delivery_message in
            [DeliveryMessage::EventHub(Box::new(hub)), DeliveryMessage::PubSub(Box::new(topic))]
        {
            let (text, may_help) = sender.transport_message(delivery_message).await.err().unwrap();
            assert!(text.contains("--no-cross-namespace-refs") && !may_help, "{text}");
        }
    }
}
