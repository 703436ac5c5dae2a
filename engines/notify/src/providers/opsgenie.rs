//! Type `opsgenie`: an alert. Its alias, which lets Opsgenie see repetitions, is that of the main branch.

use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::{message, post_message, request_uri};
use crate::event::Event;
use crate::http::Flow;
use crate::options::Options;

pub(super) fn flow(options: Options, event: Event) -> Flow {
    if let Err(error) = request_uri(&options.url) {
        return Flow::refused(format!("invalid Opsgenie hook URL {}: '{error}'", options.url));
    }
    if options.token.is_empty() {
        return Flow::refused("empty Opsgenie apikey/token");
    }
    let object = &event.object;
    let mut details = event.metadata.clone();
    details.insert("severity".to_owned(), event.severity.clone());
    let identity =
        [&options.provider.uid, &object.kind, &object.namespace, &object.name, &event.reason];
    let payload = json!({
        "message": format!("{}/{}", object.kind, object.name),
        "alias": hex::encode(Sha256::digest(identity.map(String::as_str).join("/"))),
        "description": event.message,
        "details": details,
    });
    let key = format!("GenieKey {}", options.token);
    post_message(message(&options, &options.url, &payload).header("Authorization", key))
}
