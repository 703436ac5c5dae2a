//! Type `matrix`: a message to a room. Its transaction is named after the event, so a repetition is posted once.
//!
//! Differs(flux): what follows the opening of an incident is posted in its thread (`m.thread` of
//! <https://spec.matrix.org/v1.11/client-server-api/#threading>).

use std::fmt::Write as _;

use aws_lc_rs::digest;
use serde_json::json;

use super::{judge, message, post_judged, request_uri, said};
use crate::event::Event;
use crate::http::Flow;
use crate::options::Options;

pub(super) fn flow(mut options: Options, event: Event) -> Flow {
    if let Err(error) = request_uri(&options.url) {
        let address = &options.url;
        return Flow::refused(format!("invalid Matrix homeserver URL {address}: '{error}'"));
    }
    let id = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &event.to_json());
    let url = format!(
        "{}/_matrix/client/r0/rooms/{}/send/m.room.message/{}",
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
    if let Some(thread) = event.incident.and_then(|it| it.thread) {
        // Clients without threads show a reply.
        payload["m.relates_to"] = json!({"rel_type": "m.thread", "event_id": thread,
            "is_falling_back": true, "m.in_reply_to": {"event_id": thread}});
    }
    let mut request = message(&options, &url, &payload).bearer(&options.token);
    request.method = "PUT";
    post_judged(request, judge, |result| match result {
        Ok(answer) => Flow::posted(said(&answer, "event_id").as_deref()),
        Err(error) => Flow::failed(format!("postMessage failed: {error}")),
    })
}
