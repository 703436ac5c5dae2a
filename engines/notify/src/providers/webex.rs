//! Type `webex`: posts a message in Markdown to a room.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::{message, post_message, request_uri};
use crate::event::FluxEvent;
use crate::event_delivery::ProviderNextAction;
use crate::provider_options::ProviderOptions;

pub(super) fn flow(options: ProviderOptions, event: FluxEvent) -> ProviderNextAction {
    if let Err(error) = request_uri(&options.url) {
        return ProviderNextAction::refused(format!(
            "invalid Webex hook URL {}: '{error}'",
            options.url
        ));
    }
    let emoji = if event.is_error() { "💣" } else { "✅" };
    let mut text = format!("{emoji} **{}**\n{}\n", event.object.heading(), event.message);
    for (key, value) in &event.metadata {
        let _infallible = writeln!(text, ">**{key}**: {value}");
    }
    let mut payload = Map::new();
    if !options.channel.is_empty() {
        payload.insert("roomId".to_owned(), Value::from(options.channel.clone()));
    }
    payload.insert("markdown".to_owned(), Value::from(text));
    let request = message(&options, &options.url, &Value::Object(payload));
    post_message(request.bearer(&options.token))
}
