//! Withholds events from an Alert that is sent the verdict about a change in their place.
//!
//! Elsewhere: which changes have no verdict yet, and the event about a verdict (`windlass_changes::withheld_events`).

use crds::notification::Alert;
use windlass_changes::withheld_events::{
    WithheldEventCandidate, is_about_verdict, is_replaced_by_verdict, is_wanted,
};

use windlass_runtime::run_context::RunContext;
use windlass_runtime::source_catalog::SOURCES;

/// Whether an event is withheld from an Alert. It is withheld if the verdict about a change comes in its place. A verdict
/// itself is withheld from an Alert that does not ask for verdicts.
pub(super) fn is_withheld(context: &RunContext, event: &notify::FluxEvent, alert: &Alert) -> bool {
    let object = &event.object;
    // Other controllers may have events of these reasons about their objects.
    if object.group() == SOURCES && is_about_verdict(&event.reason) {
        return !is_wanted(alert);
    }
    if !is_wanted(alert) {
        return false;
    }
    let revision = event.metadata.get(&format!("{}/revision", object.group()));
    let reported = WithheldEventCandidate {
        kind: &object.kind,
        namespace: &object.namespace,
        name: &object.name,
        revision: revision.map(String::as_str),
        is_error: event.severity == "error",
    };
    is_replaced_by_verdict(context, &reported)
}
