//! Type `lark`: posts an interactive card.

use std::fmt::Write as _;

use serde_json::json;

use super::{message, post, request_uri};
use crate::event::FluxEvent;
use crate::event_delivery::ProviderNextAction;
use crate::provider_options::ProviderOptions;

pub(super) fn flow(mut options: ProviderOptions, event: FluxEvent) -> ProviderNextAction {
    if request_uri(&options.url).is_err() {
        return ProviderNextAction::refused(format!("invalid Slack hook URL {}", options.url));
    }
    let (emoji, color) = if event.is_error() { ("🚨", "red") } else { ("💫", "turquoise") };
    let mut text = format!("**{}**\n\n", event.message);
    for (key, value) in &event.metadata {
        let _infallible = writeln!(text, "{key}: {value}");
    }
    let title = format!("{emoji} {}", event.object.heading());
    let payload = json!({
        "msg_type": "interactive",
        "card": {
            "config": {"wide_screen_mode": true},
            "header": {"title": {"tag": "plain_text", "content": title}, "template": color},
            "elements": [{"tag": "div", "text": {"tag": "lark_md", "content": text}}],
        },
    });
    (options.tls, options.proxy) = (None, String::new());
    post(message(&options, &options.url, &payload), ProviderNextAction::end)
}
