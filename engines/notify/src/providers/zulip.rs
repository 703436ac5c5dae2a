//! Type `zulip`: a message to a topic of a channel.

use golang::url::Url;

use super::markdown::markdown;
use super::post;
use crate::event::Event;
use crate::http::{Flow, ProviderRequest, Retry};
use crate::options::Options;
use crate::text::form;

pub(super) fn flow(options: Options, event: Event) -> Flow {
    let mut url = match Url::parse(options.url.as_bytes()) {
        Ok(url) => url,
        Err(error) => return Flow::refused(format!("invalid Zulip endpoint URL: {error}")),
    };
    url.path = b"/api/v1/messages".to_vec();
    let parts = options.channel.split_once('/');
    let Some((channel, topic)) =
        parts.filter(|(channel, topic)| !channel.is_empty() && !topic.is_empty())
    else {
        return Flow::refused(format!(
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
        .retry(Retry::Doubling)
        .proxy(&options.proxy)
        .tls(options.tls.clone());
    if !options.username.is_empty() || !options.password.is_empty() {
        request = request.basic(&options.username, &options.password);
    }
    post(request, Flow::end)
}
