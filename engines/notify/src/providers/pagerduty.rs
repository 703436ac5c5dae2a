//! Type `pagerduty`: posts an alert, which an error triggers and any other severity resolves, and a change event for
//! information.
//!
//! An incident becomes an alert with its own key, without a change event.

use serde_json::json;

use super::{message, name_and_description, post, request_uri};
use crate::event::FluxEvent;
use crate::event_delivery::ProviderNextAction;
use crate::provider_options::ProviderOptions;

pub(super) fn flow(options: ProviderOptions, event: FluxEvent) -> ProviderNextAction {
    let url = match request_uri(&options.url) {
        Ok(url) => url,
        Err(error) => {
            let address = crate::go_string_functions::quoted(&options.url);
            return ProviderNextAction::refused(format!(
                "invalid PagerDuty endpoint URL {address}: '{error}'"
            ));
        }
    };
    if event.is_progressing() {
        return ProviderNextAction::Done;
    }
    let lossy = String::from_utf8_lossy;
    let base = format!("{}://{}", lossy(&url.scheme), lossy(&url.host));
    let (name, description) = name_and_description(&event);
    let summary = format!("{description}: {name}");
    let source = format!("Flux {}", event.reporting_controller);
    let metadata = (!event.lacks_metadata).then_some(&event.metadata);
    let details = json!({"message": event.message, "metadata": metadata});
    let mut alert = json!({"routing_key": options.channel, "event_action": "resolve"});
    if !event.object.uid.is_empty() {
        alert["dedup_key"] = json!(event.object.uid);
    }
    if let Some(incident) = &event.incident {
        alert["dedup_key"] = json!(incident.key);
    }
    if event.incident.as_ref().map_or(event.is_error(), |it| it.is_open) {
        alert["event_action"] = json!("trigger");
        alert["payload"] = json!({
            "summary": summary,
            "source": source,
            "severity": "error",
            "timestamp": event.rfc3339(),
            "component": event.object.name,
            "group": event.object.kind,
            "custom_details": details,
        });
        for name in ["component", "group"] {
            if alert["payload"][name] == "" {
                alert["payload"].as_object_mut().map(|payload| payload.remove(name));
            }
        }
    }
    let change = json!({
        "routing_key": options.channel,
        "payload": {
            "summary": summary,
            "source": source,
            "timestamp": event.rfc3339(),
            "custom_details": details,
        },
    });
    let is_info = event.severity == "info" && event.incident.is_none();
    let second = message(&options, &format!("{base}/v2/change/enqueue"), &change);
    post(message(&options, &format!("{base}/v2/enqueue"), &alert), move |result| match result {
        Err(error) => ProviderNextAction::failed(format!("failed sending event: {error}")),
        Ok(()) if is_info => post(second, |result| {
            ProviderNextAction::end(
                result.map_err(|error| format!("failed sending change event: {error}")),
            )
        }),
        Ok(()) => ProviderNextAction::Done,
    })
}
