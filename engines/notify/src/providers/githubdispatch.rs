//! Type `githubdispatch`: triggers a `repository_dispatch` event whose payload is the event.

use serde_json::json;

use super::git_provider_common::{ended, readable};
use super::github::{connect, judge};
use crate::event::FluxEvent;
use crate::event_delivery::{HttpResponse, ProviderNextAction};
use crate::provider_options::ProviderOptions;

pub(super) fn flow(options: ProviderOptions, event: FluxEvent) -> ProviderNextAction {
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
