//! The service that gets a delivery. It answers by rules, and keeps the requests.

use std::collections::BTreeMap;
use std::time::Duration;

use notify::{
    DeliveryFailure, DeliveryMessage, DeliveryStep, EventDelivery, HttpResponse, SecretData,
};
use serde::Deserialize;
use serde_json::Value;

/// A rule with an answer of the service.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FakeProviderRule {
    #[serde(default)]
    method: String,
    #[serde(default)]
    path: String,
    #[serde(default)]
    status: u16,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    body: String,
    #[serde(default)]
    times: usize,
    #[serde(skip)]
    used: usize,
}

/// The service: its rules, and the requests that it got.
#[derive(Debug, Default)]
pub(super) struct FakeProvider {
    pub(super) rules: Vec<FakeProviderRule>,
    pub(super) arrived: Vec<DeliveryMessage>,
    pub(super) waits: Vec<Duration>,
}

/// How many requests a case may send.
const MAX_PARCELS: usize = 100;

impl FakeProvider {
    pub(super) fn new(rules: Vec<FakeProviderRule>) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Drives a delivery until its end.
    pub(super) fn drive(&mut self, delivery: &mut EventDelivery) -> Result<(), DeliveryFailure> {
        let mut step = delivery.start();
        loop {
            match step {
                DeliveryStep::Done => return Ok(()),
                DeliveryStep::Failed(failure) => return Err(failure),
                DeliveryStep::Send(wait, delivery_message) => {
                    assert!(self.arrived.len() < MAX_PARCELS, "the delivery does not end");
                    self.waits.push(wait);
                    let outcome = self.outcome(&delivery_message);
                    self.arrived.push(delivery_message);
                    step = delivery.answer(outcome);
                }
            }
        }
    }

    /// The service's answer to a request.
    pub(super) fn outcome(
        &mut self,
        delivery_message: &DeliveryMessage,
    ) -> notify::MessageSendResult {
        match delivery_message {
            DeliveryMessage::Http(request) => Ok(self.answer(request.method, path(&request.url))),
            DeliveryMessage::Nats(message) if message.server.contains("unreachable") => {
                Err(("error connecting to server: nats: no servers available".to_owned(), false))
            }
            DeliveryMessage::Nats(message) => match &message.login {
                notify::NatsLogin::Password(name, _) if name == "baduser" => Err((
                    "error connecting to server: nats: Authorization Violation".to_owned(),
                    false,
                )),
                _ => Ok(HttpResponse::default()),
            },
            DeliveryMessage::PubSub(message) if message.topic.starts_with("missing") => {
                Err(("rpc error: code = NotFound".to_owned(), false))
            }
            DeliveryMessage::PubSub(_) | DeliveryMessage::EventHub(_) => {
                Ok(HttpResponse::default())
            }
        }
    }

    fn answer(&mut self, method: &str, path: &str) -> HttpResponse {
        let rule = self.rules.iter_mut().find(|rule| {
            (rule.method.is_empty() || rule.method == method)
                && (rule.path.is_empty() || rule.path == path)
                && (rule.times == 0 || rule.used < rule.times)
        });
        let Some(rule) = rule else {
            return HttpResponse { status: 200, ..HttpResponse::default() };
        };
        rule.used += 1;
        HttpResponse {
            status: if rule.status == 0 { 200 } else { rule.status },
            headers: rule.headers.clone().into_iter().collect(),
            body: rule.body.clone().into_bytes(),
        }
    }
}

/// The path of a URL, without escapes.
fn path(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.find('/').map_or("/", |at| &rest[at..]);
    rest.split('?').next().unwrap_or(rest)
}

/// A Secret of a case. `<300KiB>` stands for as many letters.
pub(super) fn secret(namespace: &str, name: &str, data: &BTreeMap<String, String>) -> SecretData {
    let long = "x".repeat(300 << 10);
    let data = data
        .iter()
        .map(|(key, text)| (key.clone(), text.replace("<300KiB>", &long).into_bytes()))
        .collect();
    SecretData { name: format!("{namespace}/{name}"), data }
}

/// A text as JSON if it is JSON, else as a string.
pub(super) fn lenient(text: &[u8]) -> Value {
    serde_json::from_slice(text)
        .unwrap_or_else(|_| Value::from(String::from_utf8_lossy(text).into_owned()))
}
