//! Type `zoom`, of Flux's main branch: posts to an incoming webhook of a chat.

use golang::url::{GoUrl, query_unescape};
use serde_json::json;

use super::{message, post_message, request_uri};
use crate::event::FluxEvent;
use crate::event_delivery::ProviderNextAction;
use crate::go_string_functions::form;
use crate::provider_options::ProviderOptions;

pub(super) fn flow(options: ProviderOptions, event: FluxEvent) -> ProviderNextAction {
    let url = match request_uri(&options.url) {
        Ok(url) => url,
        Err(error) => {
            let address = &options.url;
            return ProviderNextAction::refused(format!(
                "invalid Zoom incoming webhook URL {address}: '{error}'"
            ));
        }
    };
    if options.token.is_empty() {
        return ProviderNextAction::refused("empty Zoom verification token");
    }
    let text = json!({"type": "message", "text": event.message});
    let mut text = text;
    if event.message.is_empty() {
        text = json!({"type": "message"});
    }
    let mut body = vec![text];
    let fields: Vec<_> =
        event.metadata.iter().map(|(key, value)| json!({"key": key, "value": value})).collect();
    if !fields.is_empty() {
        body.push(json!({"type": "fields", "items": fields}));
    }
    let head = json!({"text": event.object.heading(), "sub_head": {"text": event.severity}});
    let payload = json!({"content": {"head": head, "body": body}});
    let request = message(&options, &with_format(url), &payload);
    post_message(request.header("Authorization", &options.token))
}

/// Adds the query for the long message format, which this payload has, unless the address already sets a format.
fn with_format(mut url: GoUrl) -> String {
    let mut pairs = Vec::new();
    for pair in url.query.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()) {
        let at = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
        let value = pair.get(at + 1..).unwrap_or_default();
        let lossy = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        if let (Some(key), Some(value)) = (query_unescape(&pair[..at]), query_unescape(value))
            && !pair.contains(&b';')
        {
            pairs.push((lossy(key), lossy(value)));
        }
    }
    if pairs.iter().find(|(key, _)| key == "format").is_none_or(|(_, value)| value.is_empty()) {
        pairs.retain(|(key, _)| key != "format");
        pairs.push(("format".to_owned(), "full".to_owned()));
        pairs.sort_by(|(one, _), (other, _)| one.cmp(other));
        url.query = form(&pairs).into_bytes();
    }
    String::from_utf8_lossy(&url.to_bytes()).into_owned()
}
