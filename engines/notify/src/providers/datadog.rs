//! Type `datadog`: posts an event.

use golang::url::GoUrl;
use serde_json::json;

use super::git_provider_common::readable;
use crate::event::FluxEvent;
use crate::event_delivery::{ProviderNextAction, ProviderRequest};
use crate::provider_options::ProviderOptions;

pub(super) fn flow(options: ProviderOptions, event: FluxEvent) -> ProviderNextAction {
    if options.token.is_empty() {
        return ProviderNextAction::refused("token cannot be empty");
    }
    let quoted = crate::go_string_functions::quoted;
    let url = match GoUrl::parse(options.url.as_bytes()) {
        Ok(url) => url,
        Err(error) => {
            let address = quoted(&options.url);
            return ProviderNextAction::refused(format!(
                "failed to parse address {address}: {error}"
            ));
        }
    };
    if let Err(error) = GoUrl::parse(options.proxy.as_bytes()) {
        let proxy = quoted(&options.proxy);
        return ProviderNextAction::refused(format!("failed to parse proxy URL {proxy}: {error}"));
    }
    let lossy = String::from_utf8_lossy;
    let base = if url.host.is_empty() || url.scheme.is_empty() {
        "https://api.datadoghq.com".to_owned()
    } else {
        format!("{}://{}", lossy(&url.scheme), lossy(&url.host))
    };
    let object = &event.object;
    let mut tags = vec![
        format!("flux_reporting_controller:{}", event.reporting_controller),
        format!("flux_reason:{}", event.reason),
        format!("kube_kind:{}", object.kind),
        format!("kube_name:{}", object.name),
        format!("kube_namespace:{}", object.namespace),
    ];
    tags.extend(event.metadata.iter().map(|(key, value)| format!("{key}:{value}")));
    let tags: Vec<_> = tags.iter().map(|tag| golang::unicode::lower(tag)).collect();
    let payload = json!({
        "alert_type": if event.is_error() { "error" } else { "info" },
        "date_happened": event.unix(),
        "source_type_name": "fluxcd",
        "tags": tags,
        "text": event.message,
        "title": format!("Events from the {} {}/{}", object.kind, object.name, object.namespace),
    });
    ProviderRequest::new("POST", format!("{base}/api/v1/events"))
        .json(&payload)
        .header("Accept", "application/json")
        .header("Dd-Api-Key", &options.token)
        .proxy(&options.proxy)
        .tls(options.tls)
        .send(|answer| {
            ProviderNextAction::end(match answer {
                Err(error) => Err(format!("failed to post event to DataDog: {error}")),
                Ok(answer) if answer.status >= 300 => {
                    Err(format!("failed to post event to DataDog: {}", answer.status_line()))
                }
                Ok(answer) => readable(&answer)
                    .map_err(|error| format!("failed to post event to DataDog: {error}")),
            })
        })
}
