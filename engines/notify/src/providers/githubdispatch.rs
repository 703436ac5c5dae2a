//! Type `githubdispatch`: triggers a `repository_dispatch` event whose payload is the event.

use serde_json::json;

use super::github::{connect, judge};
use super::provider_repository::{ended, readable};
use crate::event::FluxEvent;
use crate::provider_options::ProviderOptions;
use crate::provider_request::{HttpResponse, ProviderFlow};

pub(super) fn flow(options: ProviderOptions, event: FluxEvent) -> ProviderFlow {
    connect(&options, false, move |client| {
        let object = &event.object;
        let kind = format!("{}/{}.{}", object.kind, object.name, object.namespace);
        let request = client
            .request("POST", "/dispatches")
            .json(&json!({"event_type": kind, "client_payload": event}));
        let url = request.url.clone();
        request.send(move |answer| {
            let judge =
                |answer: &HttpResponse| judge("POST", &url, answer).and_then(|()| readable(answer));
            ended(answer, "could not send github repository dispatch webhook: ", judge)
        })
    })
}
