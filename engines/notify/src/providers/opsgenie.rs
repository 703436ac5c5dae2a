//! Type `opsgenie`: posts an alert. Its alias, by which Opsgenie detects repetitions, is that of Flux's main branch.
//!
//! For an incident, the alias is the key of the incident. The alert is closed by this alias when the incident is resolved.

use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::{message, post_message, request_uri};
use crate::event::FluxEvent;
use crate::event_delivery::ProviderNextAction;
use crate::provider_options::ProviderOptions;

pub(super) fn flow(options: ProviderOptions, event: FluxEvent) -> ProviderNextAction {
    if let Err(error) = request_uri(&options.url) {
        return ProviderNextAction::refused(format!(
            "invalid Opsgenie hook URL {}: '{error}'",
            options.url
        ));
    }
    if options.token.is_empty() {
        return ProviderNextAction::refused("empty Opsgenie apikey/token");
    }
    let object = &event.object;
    let mut details = event.metadata.clone();
    details.insert("severity".to_owned(), event.severity.clone());
    let identity =
        [&options.provider.uid, &object.kind, &object.namespace, &object.name, &event.reason];
    let alias = match &event.incident {
        Some(incident) => incident.key.clone(),
        None => hex::encode(Sha256::digest(identity.map(String::as_str).join("/"))),
    };
    let is_over = event.incident.as_ref().is_some_and(|it| !it.is_open);
    let payload = json!({
        "message": format!("{}/{}", object.kind, object.name),
        "alias": alias,
        "description": event.message,
        "details": details,
    });
    let key = format!("GenieKey {}", options.token);
    if is_over {
        let url = closing(&options.url, &alias);
        let note = json!({"source": event.reporting_controller, "note": event.message});
        return post_message(message(&options, &url, &note).header("Authorization", key));
    }
    post_message(message(&options, &options.url, &payload).header("Authorization", key))
}

/// The address for closing the alert with an alias. A query in the address of alerts is kept.
fn closing(alerts: &str, alias: &str) -> String {
    let (path, query) = alerts.split_once('?').unwrap_or((alerts, ""));
    let more = if query.is_empty() { String::new() } else { format!("&{query}") };
    format!("{}/{alias}/close?identifierType=alias{more}", path.trim_end_matches('/'))
}
