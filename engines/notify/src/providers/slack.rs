//! Type `slack`: an incoming webhook, or `chat.postMessage` with a token.

use serde_json::{Value, json};

use super::{attachment, judge, message, post_judged, request_uri};
use crate::event::Event;
use crate::http::{Flow, Response};
use crate::options::Options;

const POST_MESSAGE: &str = "https://slack.com/api/chat.postMessage";

pub(super) fn flow(options: Options, event: Event) -> Flow {
    if let Err(error) = request_uri(&options.url) {
        return Flow::refused(format!("invalid Slack hook URL {}: '{error}'", options.url));
    }
    let first_line = event.message.split('\n').next().unwrap_or_default();
    let fallback = format!("{}: {first_line}", event.object.heading());
    let username =
        if options.username.is_empty() { &event.reporting_controller } else { &options.username };
    let payload = json!({
        "channel": options.channel,
        "username": username,
        "icon_url": "",
        "icon_emoji": "",
        "attachments": attachment(&event, ["good", "danger"], &fallback),
    });
    let mut request = message(&options, &options.url, &payload);
    if !options.token.is_empty() {
        request = request.bearer(&options.token);
    }
    let judge = if options.url == POST_MESSAGE { judge_api } else { judge };
    post_judged(request, judge, |result| {
        Flow::end(result.map_err(|error| format!("postMessage failed: {error}")))
    })
}

/// The API says in the body whether the message was posted; its status does not count.
fn judge_api(answer: &Response) -> Result<(), String> {
    let unreadable = |error: &str| format!("unable to unmarshal response body: {error}");
    if answer.body.iter().all(u8::is_ascii_whitespace) {
        return Err(unreadable("EOF"));
    }
    let read = serde_json::Deserializer::from_slice(&answer.body).into_iter::<Value>().next();
    match read {
        Some(Ok(body)) if body.get("ok") == Some(&Value::Bool(true)) => Ok(()),
        Some(Ok(body)) if body.is_object() || body.is_null() => {
            let error = body.get("error").and_then(Value::as_str).unwrap_or_default();
            Err(format!("Slack responded with error: {error}"))
        }
        Some(Ok(_)) => Err(unreadable("the body is no object")),
        Some(Err(error)) => Err(unreadable(&error.to_string())),
        None => Err(unreadable("EOF")),
    }
}
