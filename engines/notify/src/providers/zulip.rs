//! Type `zulip`: posts a message to a topic of a channel.

use golang::url::GoUrl;

use super::markdown_message::markdown;
use super::post;
use crate::event::FluxEvent;
use crate::event_delivery::{HttpRetryPolicy, ProviderNextAction, ProviderRequest};
use crate::go_string_functions::form;
use crate::provider_options::ProviderOptions;

pub(super) fn flow(options: ProviderOptions, event: FluxEvent) -> ProviderNextAction {
    let mut url = match GoUrl::parse(options.url.as_bytes()) {
        Ok(url) => url,
        Err(error) => {
            return ProviderNextAction::refused(format!("invalid Zulip endpoint URL: {error}"));
        }
    };
    url.path = b"/api/v1/messages".to_vec();
    let parts = options.channel.split_once('/');
    let Some((channel, topic)) =
        parts.filter(|(channel, topic)| !channel.is_empty() && !topic.is_empty())
    else {
        return ProviderNextAction::refused(format!(
            "invalid Zulip channel format, expected <channel>/<topic>, got '{}'",
            options.channel
        ));
    };
    let body = form(&[
        ("content".to_owned(), markdown(&event)),
        ("to".to_owned(), channel.to_owned()),
        ("topic".to_owned(), topic.to_owned()),
        ("type".to_owned(), "stream".to_owned()),
    ]);
    let mut request = ProviderRequest::new("POST", String::from_utf8_lossy(&url.to_bytes()))
        .header("Content-Type", "application/x-www-form-urlencoded")
        .body(body.into_bytes())
        .retry(HttpRetryPolicy::Doubling)
        .proxy(&options.proxy)
        .tls(options.tls.clone());
    if !options.username.is_empty() || !options.password.is_empty() {
        request = request.basic(&options.username, &options.password);
    }
    post(request, ProviderNextAction::end)
}
