//! Types `generic` and `generic-hmac`: the event itself, for a custom receiver.

use aws_lc_rs::hmac;

use super::{post_message, request_uri};
use crate::event::Event;
use crate::http::{Flow, ProviderRequest, Retry};
use crate::options::Options;

pub(super) fn flow(options: Options, event: Event) -> Flow {
    forward(&options, &event, None)
}

/// Signs the body with the token.
pub(super) fn signed(options: Options, event: Event) -> Flow {
    forward(&options, &event, Some(options.token.as_bytes()))
}

fn forward(options: &Options, event: &Event, key: Option<&[u8]>) -> Flow {
    if let Err(error) = request_uri(&options.url) {
        return Flow::refused(format!("invalid hook URL {}: {error}", options.url));
    }
    if key.is_some_and(<[u8]>::is_empty) {
        return Flow::refused("HMAC key is empty");
    }
    let body = event.to_json();
    let signature = key.map(|key| {
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), &body);
        format!("sha256={}", hex::encode(tag))
    });
    let mut request = ProviderRequest::new("POST", &options.url)
        .header("Content-Type", "application/json")
        .body(body)
        .header("gotk-component", &event.reporting_controller)
        .retry(Retry::Doubling)
        .proxy(&options.proxy)
        .tls(options.tls.clone());
    for (name, value) in &options.headers {
        // The host is always that of the address, and never that of the headers.
        if !name.eq_ignore_ascii_case("host") {
            request.set(name, value.clone());
        }
    }
    if let Some(signature) = signature {
        request.set("X-Signature", signature);
    }
    post_message(request)
}
