//! Type `alertmanager`: posts an alert, which is firing for every severity.
//!
//! The alert of an incident keeps the same labels from its opening to its end. It always has an end time, because Alertmanager
//! resolves an alert without one after five minutes.

use serde_json::json;

use super::{message, post_message, request_uri};
use crate::event::{FluxEvent, NotifiedIncident, rfc3339};
use crate::event_delivery::ProviderNextAction;
use crate::go_string_functions::title;
use crate::provider_options::ProviderOptions;

/// How long the alert of an incident fires at most if its end is not sent, in seconds.
const MAX_ALERT_PERIOD_SECONDS: i64 = 30 * 24 * 3600;

/// The fields that differ for the alert of an incident.
struct AlertmanagerAlertFacts {
    status: &'static str,
    severity: String,
    reason: String,
    starts: String,
    ends: String,
}

impl AlertmanagerAlertFacts {
    fn of(event: &FluxEvent) -> Self {
        let Some(NotifiedIncident { is_open, since, reason, .. }) = &event.incident else {
            return Self {
                status: "firing",
                severity: event.severity.clone(),
                reason: event.reason.clone(),
                starts: event.rfc3339(),
                // Parity(flux): never known, and written as Go's zero time.
                ends: "0001-01-01T00:00:00Z".to_owned(),
            };
        };
        let ends =
            if *is_open { since.saturating_add(MAX_ALERT_PERIOD_SECONDS) } else { event.unix() };
        Self {
            status: if *is_open { "firing" } else { "resolved" },
            severity: "error".to_owned(),
            reason: reason.clone(),
            starts: rfc3339(*since),
            ends: rfc3339(ends.max(*since)),
        }
    }
}

pub(super) fn flow(options: ProviderOptions, event: FluxEvent) -> ProviderNextAction {
    if let Err(error) = request_uri(&options.url) {
        return ProviderNextAction::refused(format!(
            "invalid Alertmanager URL {}: '{error}'",
            options.url
        ));
    }
    let object = &event.object;
    let mut labels = event.metadata.clone();
    let mut annotations = json!({"message": event.message});
    if let Some(summary) = labels.remove("summary") {
        annotations["summary"] = json!(summary);
    }
    if event.incident.is_some() {
        // These labels change while the incident is open, so they cannot identify the alert.
        labels.retain(|key, _| !matches!(key.as_str(), "incidentState" | "affected"));
    }
    let AlertmanagerAlertFacts { status, severity, reason, starts, ends } =
        AlertmanagerAlertFacts::of(&event);
    let own = [
        ("alertname", format!("Flux{}{}", object.kind, title(&reason))),
        ("severity", severity),
        ("reason", reason),
        ("kind", object.kind.clone()),
        ("name", object.name.clone()),
        ("namespace", object.namespace.clone()),
        ("reportingcontroller", event.reporting_controller.clone()),
    ];
    labels.extend(own.map(|(key, value)| (key.to_owned(), value)));
    let payload = json!([{
        "status": status,
        "labels": labels,
        "annotations": annotations,
        "startsAt": starts,
        "endsAt": ends,
    }]);
    let mut request = message(&options, &options.url, &payload);
    if !options.username.is_empty() && !options.password.is_empty() {
        request = request.basic(&options.username, &options.password);
    } else if !options.token.is_empty() {
        request = request.bearer(&options.token);
    }
    post_message(request)
}
