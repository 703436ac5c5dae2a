//! Types `generic` and `generic-hmac`: posts the event itself to a custom receiver.

use aws_lc_rs::hmac;

use super::{post_message, request_uri};
use crate::event::FluxEvent;
use crate::event_delivery::{HttpRetryPolicy, ProviderNextAction, ProviderRequest};
use crate::provider_options::ProviderOptions;

pub(super) fn flow(options: ProviderOptions, event: FluxEvent) -> ProviderNextAction {
    forward(&options, &event, None)
}

/// Signs the body with the token.
pub(super) fn signed(options: ProviderOptions, event: FluxEvent) -> ProviderNextAction {
    forward(&options, &event, Some(options.token.as_bytes()))
}

fn forward(options: &ProviderOptions, event: &FluxEvent, key: Option<&[u8]>) -> ProviderNextAction {
    if let Err(error) = request_uri(&options.url) {
        return ProviderNextAction::refused(format!("invalid hook URL {}: {error}", options.url));
    }
    if key.is_some_and(<[u8]>::is_empty) {
        return ProviderNextAction::refused("HMAC key is empty");
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
        .retry(HttpRetryPolicy::Doubling)
        .proxy(&options.proxy)
        .tls(options.tls.clone());
    for (name, value) in &options.headers {
        // The host always comes from the address, and never from the headers.
        if !name.eq_ignore_ascii_case("host") {
            request.set(name, value.clone());
        }
    }
    if let Some(signature) = signature {
        request.set("X-Signature", signature);
    }
    post_message(request)
}
