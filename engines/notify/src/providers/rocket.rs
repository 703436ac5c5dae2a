//! Type `rocket`: posts to an incoming webhook of Rocket.Chat, in the format of Slack.

use serde_json::json;

use super::{attachment, message, post_message, request_uri};
use crate::event::FluxEvent;
use crate::event_delivery::ProviderNextAction;
use crate::provider_options::ProviderOptions;

pub(super) fn flow(options: ProviderOptions, event: FluxEvent) -> ProviderNextAction {
    if let Err(error) = request_uri(&options.url) {
        return ProviderNextAction::refused(format!(
            "invalid Rocket hook URL {}: '{error}'",
            options.url
        ));
    }
    let payload = json!({
        "channel": options.channel,
        "username": options.username,
        "icon_url": "",
        "icon_emoji": "",
        "attachments": attachment(&event, ["#0076D7", "#FF0000"], ""),
    });
    post_message(message(&options, &options.url, &payload))
}
