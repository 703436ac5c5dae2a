//! Type `alertmanager`: an alert, which is firing whatever the severity.

use serde_json::json;

use super::{message, post_message, request_uri};
use crate::event::Event;
use crate::http::Flow;
use crate::options::Options;
use crate::text::title;

pub(super) fn flow(options: Options, event: Event) -> Flow {
    if let Err(error) = request_uri(&options.url) {
        return Flow::refused(format!("invalid Alertmanager URL {}: '{error}'", options.url));
    }
    let object = &event.object;
    let mut labels = event.metadata.clone();
    let mut annotations = json!({"message": event.message});
    if let Some(summary) = labels.remove("summary") {
        annotations["summary"] = json!(summary);
    }
    let own = [
        ("alertname", format!("Flux{}{}", object.kind, title(&event.reason))),
        ("severity", event.severity.clone()),
        ("reason", event.reason.clone()),
        ("kind", object.kind.clone()),
        ("name", object.name.clone()),
        ("namespace", object.namespace.clone()),
        ("reportingcontroller", event.reporting_controller.clone()),
    ];
    labels.extend(own.map(|(key, value)| (key.to_owned(), value)));
    let payload = json!([{
        "status": "firing",
        "labels": labels,
        "annotations": annotations,
        "startsAt": event.rfc3339(),
        // Parity(flux): never known, and written as Go's zero time.
        "endsAt": "0001-01-01T00:00:00Z",
    }]);
    let mut request = message(&options, &options.url, &payload);
    if !options.username.is_empty() && !options.password.is_empty() {
        request = request.basic(&options.username, &options.password);
    } else if !options.token.is_empty() {
        request = request.bearer(&options.token);
    }
    post_message(request)
}
