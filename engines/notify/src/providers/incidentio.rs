//! Type `incident.io`, of Flux's main branch: posts an alert event to an HTTP source.

use serde_json::json;

use super::{message, post_message, request_uri};
use crate::event::FluxEvent;
use crate::event_delivery::ProviderNextAction;
use crate::provider_options::ProviderOptions;

pub(super) fn flow(options: ProviderOptions, event: FluxEvent) -> ProviderNextAction {
    if let Err(error) = request_uri(&options.url) {
        let address = &options.url;
        return ProviderNextAction::refused(format!(
            "invalid incident.io alert source URL {address}: '{error}'"
        ));
    }
    if options.token.is_empty() {
        return ProviderNextAction::refused("empty incident.io API token");
    }
    if event.is_progressing() {
        return ProviderNextAction::Done;
    }
    let mut metadata = event.metadata.clone();
    metadata.insert("severity".to_owned(), event.severity.clone());
    metadata.insert("reason".to_owned(), event.reason.clone());
    if !event.reporting_controller.is_empty() {
        metadata.insert("reportingController".to_owned(), event.reporting_controller.clone());
    }
    let (is_open, key) = match &event.incident {
        Some(incident) => (incident.is_open, &incident.key),
        None => (event.is_error(), &event.object.uid),
    };
    let mut payload = json!({
        "title": format!("{}: {}", event.object.heading(), event.reason),
        "status": if is_open { "firing" } else { "resolved" },
        "deduplication_key": key,
        "metadata": metadata,
    });
    if !event.message.is_empty() {
        payload["description"] = json!(event.message);
    }
    post_message(message(&options, &options.url, &payload).bearer(&options.token))
}
