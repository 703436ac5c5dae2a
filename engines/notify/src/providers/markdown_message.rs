//! The message in markdown that Zulip and comments on pull requests have.

use std::fmt::Write as _;

use crate::event::FluxEvent;

pub(super) fn markdown(event: &FluxEvent) -> String {
    let emoji = if event.is_error() { "⚠️" } else { "ℹ️" };
    let object = event.object.display();
    let mut text =
        format!("## Flux Status\n\n{emoji} {object}\n\n{}\n\nMetadata:\n", event.message);
    for (key, value) in event.metadata.iter().filter(|(key, _)| *key != "change_request") {
        let _infallible = writeln!(text, "* `{key}`: {value}");
    }
    text
}
