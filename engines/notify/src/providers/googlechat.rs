//! Type `googlechat`: posts a card.

use serde_json::{Value, json};

use super::{message, post_message, request_uri};
use crate::event::FluxEvent;
use crate::event_delivery::ProviderNextAction;
use crate::provider_options::ProviderOptions;

pub(super) fn flow(mut options: ProviderOptions, event: FluxEvent) -> ProviderNextAction {
    if request_uri(&options.url).is_err() {
        return ProviderNextAction::refused(format!(
            "invalid Google Chat hook URL {}",
            options.url
        ));
    }
    let text = if event.is_error() {
        format!("<font color=\"#ff0000\">{}</font>", event.message)
    } else {
        event.message.clone()
    };
    let section = |widgets: Vec<Value>| json!({"header": "", "widgets": widgets});
    let paragraph = json!({"textParagraph": {"text": text}, "keyValue": null});
    let mut sections = vec![section(vec![paragraph])];
    let pairs = event.metadata.iter().map(|(key, value)| {
        json!({
            "textParagraph": null,
            "keyValue": {
                "topLabel": key,
                "content": value,
                "contentMultiline": false,
                "bottomLabel": null,
                "icon": null,
            },
        })
    });
    let pairs: Vec<_> = pairs.collect();
    if !pairs.is_empty() {
        sections.push(section(pairs));
    }
    let header = json!({
        "title": event.object.heading(),
        "subtitle": event.reporting_controller,
        "imageUrl": null,
        "imageStyle": null,
    });
    options.tls = None;
    let payload = json!({"cards": [{"header": header, "sections": sections}]});
    post_message(message(&options, &options.url, &payload))
}
