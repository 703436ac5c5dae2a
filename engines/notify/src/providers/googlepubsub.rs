//! Type `googlepubsub`: publishes the event as a message to a topic. The headers in the Secret become attributes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::delivery_message::{DeliveryMessage, PubSubMessage};
use crate::event::FluxEvent;
use crate::event_delivery::{ProviderNextAction, ProviderRequest};
use crate::go_string_functions::{is_relative, path_element};
use crate::provider_options::ProviderOptions;

impl PubSubMessage {
    /// The request that publishes the message at a server such as `https://pubsub.googleapis.com`. The token is optional.
    ///
    /// Differs(flux): over REST, not gRPC.
    pub fn request(&self, server: &str, token: Option<&str>) -> ProviderRequest {
        let project = path_element(&self.project);
        let topic = path_element(&self.topic);
        let message = json!({"data": STANDARD.encode(&self.data), "attributes": self.attributes});
        let url = format!("{server}/v1/projects/{project}/topics/{topic}:publish");
        let request = ProviderRequest::new("POST", url).json(&json!({"messages": [message]}));
        match token {
            Some(token) => request.bearer(token),
            None => request,
        }
    }
}

pub(super) fn flow(options: ProviderOptions, event: FluxEvent) -> ProviderNextAction {
    let project = options.url;
    let topic = options.channel;
    if project.is_empty() {
        return ProviderNextAction::refused("GCP project ID cannot be empty");
    }
    if topic.is_empty() {
        return ProviderNextAction::refused("GCP Pub/Sub topic ID cannot be empty");
    }
    if is_relative(&project) {
        return ProviderNextAction::refused("GCP project ID is invalid");
    }
    let full = format!("projects/{project}/topics/{topic}");
    let message = PubSubMessage {
        project,
        topic,
        data: event.to_json(),
        attributes: options.headers,
        credentials: options.token,
    };
    ProviderNextAction::Publish(
        DeliveryMessage::PubSub(Box::new(message)),
        Box::new(move |result| {
            ProviderNextAction::end(
                result.map_err(|error| {
                    format!("error publishing to GCP Pub/Sub topic {full}: {error}")
                }),
            )
        }),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_message_is_published_to_its_topic_and_to_no_other_path() {
        let message = PubSubMessage {
            project: "example.com:p".to_owned(),
            topic: "../../a?b".to_owned(),
            data: b"{}".to_vec(),
            attributes: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
            credentials: String::new(),
        };
        let request = message.request("https://pubsub.example.com", Some("t"));
        assert_eq!(
            request.url,
            "https://pubsub.example.com/v1/projects/example.com:p/topics/..%2F..%2Fa%3Fb:publish"
        );
        assert_eq!(request.get("authorization"), Some("Bearer t"));
        let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap_or_default();
        assert_eq!(body, json!({"messages": [{"data": "e30=", "attributes": {"a": "b"}}]}));
        assert_eq!(message.request("", None).get("authorization"), None);
    }
}
