//! Type `msteams`: posts an Adaptive Card, or a message card for the connectors that Microsoft is retiring.

use serde_json::{Value, json};

use super::{message, post_message, request_uri};
use crate::event::FluxEvent;
use crate::event_delivery::ProviderNextAction;
use crate::provider_options::ProviderOptions;

pub(super) fn flow(options: ProviderOptions, event: FluxEvent) -> ProviderNextAction {
    let url = match request_uri(&options.url) {
        Ok(url) => url,
        Err(error) => {
            let address = &options.url;
            return ProviderNextAction::refused(format!(
                "invalid MS Teams webhook URL {address}: '{error}'"
            ));
        }
    };
    let host = url.host.split(|byte| *byte == b':').next().unwrap_or_default();
    let is_connector = host.ends_with(b".webhook.office.com");
    let payload = if is_connector { connector_card(&event) } else { adaptive_card(&event) };
    post_message(message(&options, &options.url, &payload))
}

fn connector_card(event: &FluxEvent) -> Value {
    let heading = event.object.heading();
    let facts: Vec<_> =
        event.metadata.iter().map(|(key, it)| json!({"name": key, "value": it})).collect();
    json!({
        "@type": "MessageCard",
        "@context": "http://schema.org/extensions",
        "themeColor": if event.is_error() { "FF0000" } else { "0076D7" },
        "summary": heading,
        "sections": [
            {"activityTitle": event.message, "activitySubtitle": heading, "facts": facts},
        ],
    })
}

fn adaptive_card(event: &FluxEvent) -> Value {
    let mut text = json!({"type": "TextBlock", "wrap": true});
    // Go leaves empty members out.
    if !event.message.is_empty() {
        text["text"] = json!(event.message);
    }
    if event.is_error() {
        text["color"] = json!("attention");
    }
    let summary = event.metadata.get_key_value("summary");
    let others = event.metadata.iter().filter(|(key, _)| *key != "summary");
    let facts: Vec<_> = summary
        .into_iter()
        .chain(others)
        .map(|(key, it)| json!({"title": key, "value": it}))
        .collect();
    let mut fact_set = json!({"type": "FactSet"});
    if !facts.is_empty() {
        fact_set["facts"] = json!(facts);
    }
    let heading = json!({
        "type": "TextBlock",
        "text": event.object.heading(),
        "size": "large",
        "weight": "bolder",
        "wrap": true,
    });
    json!({
        "type": "message",
        "attachments": [{
            "contentType": "application/vnd.microsoft.card.adaptive",
            "content": {
                "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
                "type": "AdaptiveCard",
                "version": "1.4",
                "body": [{"type": "Container", "items": [heading, text, fact_set]}],
                "msteams": {"width": "Full"},
            },
        }],
    })
}
