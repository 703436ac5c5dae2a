//! Type `githubdispatch`: a `repository_dispatch` event with the event as its payload.

use serde_json::json;

use super::git::{ended, readable};
use super::github::{connect, judge};
use crate::event::Event;
use crate::http::{Flow, Response};
use crate::options::Options;

pub(super) fn flow(options: Options, event: Event) -> Flow {
    connect(&options, false, move |client| {
        let object = &event.object;
        let kind = format!("{}/{}.{}", object.kind, object.name, object.namespace);
        let request = client
            .request("POST", "/dispatches")
            .json(&json!({"event_type": kind, "client_payload": event}));
        let url = request.url.clone();
        request.send(move |answer| {
            let judge =
                |answer: &Response| judge("POST", &url, answer).and_then(|()| readable(answer));
            ended(answer, "could not send github repository dispatch webhook: ", judge)
        })
    })
}
