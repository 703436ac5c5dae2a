//! Type `telegram`: posts a message by a bot to a chat, or to a topic of a chat.

use std::fmt::Write as _;

use golang::url::GoUrl;
use serde_json::json;

use super::{message, post};
use crate::event::FluxEvent;
use crate::event_delivery::ProviderNextAction;
use crate::provider_options::ProviderOptions;

/// The characters with a meaning in MarkdownV2. The backslash comes first, because it escapes the others.
const SPECIAL: &str = "\\.-_[]()~>`#+=|{}!*";

pub(super) fn flow(mut options: ProviderOptions, event: FluxEvent) -> ProviderNextAction {
    if options.channel.is_empty() {
        return ProviderNextAction::refused("empty Telegram channel");
    }
    if options.token.is_empty() {
        return ProviderNextAction::refused("empty Telegram token");
    }
    let emoji = if event.is_error() { "🚨" } else { "💫" };
    let object = &event.object;
    let heading =
        format!("{emoji} {}/{}/{}", object.kind.to_lowercase(), object.name, object.namespace);
    let mut text = format!("*{}*\n{}\n", escape(&heading), escape(&event.message));
    for (key, value) in &event.metadata {
        let _infallible = writeln!(text, "\\- *{}*: {}", escape(key), escape(value));
    }
    let mut payload = json!({"text": text, "parse_mode": "MarkdownV2"});
    let (chat, thread) = options.channel.split_once(':').unwrap_or((&options.channel, ""));
    payload["chat_id"] = json!(chat);
    if !thread.is_empty() {
        payload["message_thread_id"] = json!(thread);
    }
    let base = format!("https://api.telegram.org/bot{}", options.token);
    if let Err(error) = GoUrl::parse(base.as_bytes()) {
        return ProviderNextAction::failed(format!("failed to construct API URL: {error}"));
    }
    options.tls = None;
    post(message(&options, &format!("{base}/sendMessage"), &payload), ProviderNextAction::end)
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if SPECIAL.contains(character) {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}
