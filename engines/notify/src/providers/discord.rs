//! Type `discord`: posts to a Discord webhook in the format of Slack.

use serde_json::json;

use super::{attachment, message, post_message, request_uri};
use crate::event::FluxEvent;
use crate::event_delivery::ProviderNextAction;
use crate::go_string_functions::join_path;
use crate::provider_options::ProviderOptions;

pub(super) fn flow(mut options: ProviderOptions, event: FluxEvent) -> ProviderNextAction {
    let url = match request_uri(&options.url) {
        Ok(url) => url,
        Err(error) => {
            return ProviderNextAction::refused(format!(
                "invalid Discord hook URL {}: '{error}'",
                options.url
            ));
        }
    };
    let mut address = options.url.clone();
    if !address.ends_with("/slack") {
        let mut url = url;
        url.path = join_path(&url.path, b"slack");
        address = String::from_utf8_lossy(&url.to_bytes()).into_owned();
    }
    let username =
        if options.username.is_empty() { &event.reporting_controller } else { &options.username };
    let payload = json!({
        "channel": "",
        "username": username,
        "icon_url": "",
        "icon_emoji": "",
        "attachments": attachment(&event, ["good", "danger"], ""),
    });
    options.tls = None;
    post_message(message(&options, &address, &payload))
}
