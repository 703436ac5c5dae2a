//! Type `slack`: posts to an incoming webhook, or with a token to `chat.postMessage`.
//!
//! Differs(flux): what follows the opening of an incident is posted in its thread, where there is a token; the channel sees its
//! end as well (`thread_ts` and `reply_broadcast` of <https://docs.slack.dev/reference/methods/chat.postMessage>).

use serde_json::{Value, json};

use super::{attachment, judge, message, post_judged, request_uri, said};
use crate::event::{FluxEvent, NotifiedIncident};
use crate::event_delivery::{HttpResponse, ProviderNextAction};
use crate::provider_options::ProviderOptions;

const POST_MESSAGE: &str = "https://slack.com/api/chat.postMessage";
/// The API's errors for a reply whose thread does not exist.
const NO_THREAD: [&str; 4] = [
    "cannot_reply_to_message",
    "message_not_found",
    "restricted_action_thread_locked",
    "thread_not_found",
];

pub(super) fn flow(options: ProviderOptions, event: FluxEvent) -> ProviderNextAction {
    if let Err(error) = request_uri(&options.url) {
        return ProviderNextAction::refused(format!(
            "invalid Slack hook URL {}: '{error}'",
            options.url
        ));
    }
    let first_line = event.message.split('\n').next().unwrap_or_default();
    let fallback = format!("{}: {first_line}", event.object.heading());
    let username =
        if options.username.is_empty() { &event.reporting_controller } else { &options.username };
    let mut payload = json!({
        "channel": options.channel,
        "username": username,
        "icon_url": "",
        "icon_emoji": "",
        "attachments": attachment(&event, ["good", "danger"], &fallback),
    });
    let is_api = options.url == POST_MESSAGE;
    let thread = event.incident.as_ref().and_then(|it| it.thread.clone()).filter(|_| is_api);
    if let Some(thread) = &thread {
        let is_over = event.incident.as_ref().is_some_and(|it| !it.is_open);
        payload["thread_ts"] = json!(thread);
        payload["reply_broadcast"] = json!(is_over);
    }
    let mut request = message(&options, &options.url, &payload);
    if !options.token.is_empty() {
        request = request.bearer(&options.token);
    }
    let judge = match (is_api, &thread) {
        (true, Some(_)) => judge_reply,
        (true, None) => judge_api,
        (false, _) => judge,
    };
    post_judged(request, judge, move |result| match result {
        Ok(answer) if has_no_thread(&answer) && thread.is_some() => {
            let incident = event.incident.clone().map(|it| NotifiedIncident { thread: None, ..it });
            flow(options, FluxEvent { incident, ..event })
        }
        Ok(answer) if is_api => ProviderNextAction::posted(said(&answer, "ts").as_deref()),
        Ok(_) => ProviderNextAction::Done,
        Err(error) => ProviderNextAction::failed(format!("postMessage failed: {error}")),
    })
}

/// Whether the message that a reply refers to is deleted, locked, or in another channel. Such a reply is posted to the channel.
fn has_no_thread(answer: &HttpResponse) -> bool {
    said(answer, "error").is_some_and(|error| NO_THREAD.contains(&&*error))
}

fn judge_reply(answer: &HttpResponse) -> Result<(), String> {
    if has_no_thread(answer) { Ok(()) } else { judge_api(answer) }
}

/// Judges a response of the API by its body. The HTTP status does not show whether the message was posted.
fn judge_api(answer: &HttpResponse) -> Result<(), String> {
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
