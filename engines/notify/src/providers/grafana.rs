//! Type `grafana`: posts an annotation in the format of Graphite.

use serde_json::json;

use super::{message, post_message, request_uri};
use crate::event::FluxEvent;
use crate::event_delivery::ProviderNextAction;
use crate::provider_options::ProviderOptions;

pub(super) fn flow(options: ProviderOptions, event: FluxEvent) -> ProviderNextAction {
    if request_uri(&options.url).is_err() {
        return ProviderNextAction::refused(format!("invalid Grafana URL {}", options.url));
    }
    let object = &event.object;
    let mut tags = vec!["flux".to_owned(), event.reporting_controller.clone()];
    // A colon would end the name of a tag.
    let pair = |(key, value): (&String, &String)| {
        format!("{}: {}", key.replace(':', "|"), value.replace(':', "|"))
    };
    tags.extend(event.metadata.iter().map(pair));
    tags.push(format!("kind: {}", object.kind));
    tags.push(format!("name: {}", object.name));
    tags.push(format!("namespace: {}", object.namespace));
    let payload = json!({"when": event.unix(), "text": object.heading(), "tags": tags});
    let mut request = message(&options, &options.url, &payload);
    if !options.token.is_empty() {
        request = request.bearer(&options.token);
    } else if !options.username.is_empty() && !options.password.is_empty() {
        request = request.basic(&options.username, &options.password);
    }
    post_message(request)
}
