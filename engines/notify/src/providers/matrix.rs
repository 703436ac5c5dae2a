//! Type `matrix`: posts a message to a room. Its transaction is named after the event, so that a retry is not posted twice.
//!
//! Differs(flux): what follows the opening of an incident is posted in its thread (`m.thread` of
//! <https://spec.matrix.org/v1.11/client-server-api/#threading>).

use std::fmt::Write as _;

use aws_lc_rs::digest;
use serde_json::json;

use super::{judge, message, post_judged, request_uri, said};
use crate::event::{FluxEvent, NotifiedIncident};
use crate::event_delivery::{HttpResponse, ProviderNextAction};
use crate::provider_options::ProviderOptions;

pub(super) fn flow(mut options: ProviderOptions, event: FluxEvent) -> ProviderNextAction {
    if let Err(error) = request_uri(&options.url) {
        let address = &options.url;
        return ProviderNextAction::refused(format!(
            "invalid Matrix homeserver URL {address}: '{error}'"
        ));
    }
    let id = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &event.to_json());
    let thread = event.incident.as_ref().and_then(|it| it.thread.clone());
    // A message outside of the thread is a different message, so it needs another transaction.
    let suffix = if thread.is_some() { "-reply" } else { "" };
    let url = format!(
        "{}/_matrix/client/r0/rooms/{}/send/m.room.message/{}{suffix}",
        options.url,
        options.channel,
        hex::encode(id)
    );
    let emoji = if event.is_error() { "🚨" } else { "💫" };
    let mut text = format!("{emoji} {}\n{}\n", event.object.heading(), event.message);
    for (key, value) in &event.metadata {
        let _infallible = writeln!(text, "- {key}: {value}");
    }
    options.proxy.clear();
    let mut payload = json!({"body": text, "msgtype": "m.text"});
    if let Some(thread) = &thread {
        // Clients without threads show a reply.
        payload["m.relates_to"] = json!({"rel_type": "m.thread", "event_id": thread,
            "is_falling_back": true, "m.in_reply_to": {"event_id": thread}});
    }
    let mut request = message(&options, &url, &payload).bearer(&options.token);
    request.method = "PUT";
    let judge = if thread.is_some() { judge_reply } else { judge };
    post_judged(request, judge, move |result| match result {
        Ok(answer) if is_rejected(&answer) => {
            let incident = event.incident.clone().map(|it| NotifiedIncident { thread: None, ..it });
            flow(options, FluxEvent { incident, ..event })
        }
        Ok(answer) => ProviderNextAction::posted(said(&answer, "event_id").as_deref()),
        Err(error) => ProviderNextAction::failed(format!("postMessage failed: {error}")),
    })
}

/// Whether the server rejects a message because of its content. A reply in a thread may refer to a message in another room, or
/// to a deleted one. Then the message is posted outside of the thread.
fn is_rejected(answer: &HttpResponse) -> bool {
    answer.status == 400
}

fn judge_reply(answer: &HttpResponse) -> Result<(), String> {
    if is_rejected(answer) { Ok(()) } else { judge(answer) }
}
