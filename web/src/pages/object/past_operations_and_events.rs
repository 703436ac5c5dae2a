//! Two tabs: the operations on an object, and its events.

use cause::last_seen;
use jiff::Timestamp;
use maud::{Markup, html};
use objects::Object;
use serde_json::Value;
use windlass_answers::events::{ListedEvents, field, object_of};
use windlass_answers::history::ObjectHistory;
use windlass_answers::object_row::{short, time};

use crate::page_elements::{ObjectState, ago, message, object_link, remarks, shape, text};

/// How many entries are shown.
const MAX_SHOWN_ENTRIES: usize = 200;

/// The tab with the history of applied revisions or releases.
pub(super) fn history(found: &ObjectHistory, now: Timestamp) -> Markup {
    let left_out: Vec<String> = found.left_out.iter().cloned().collect();
    html! {
        (remarks(&left_out))
        section class="panel" {
            header { h2 { "History" } span class="more" { (found.entries.len()) " entries" } }
            @if found.entries.is_empty() { p { "The status has no history yet." } }
            @for entry in found.entries.iter().take(MAX_SHOWN_ENTRIES) { (entry_item(entry, now)) }
        }
    }
}

fn entry_item(entry: &Value, now: Timestamp) -> Markup {
    let of = |key: &str| entry[key].as_str().unwrap_or_default();
    let is_release = entry["version"].is_i64();
    let status = if is_release { of("status") } else { of("lastReconciledStatus") };
    let at = if is_release { "lastDeployed" } else { "lastReconciled" };
    html! {
        div class="item" {
            (shape(state(status)))
            strong {
                @if is_release {
                    "v" (entry["version"].to_string()) " "
                    @if !of("chartName").is_empty() { (text(of("chartName"))) "@" (text(of("chartVersion"))) }
                } @else {
                    (text(&short(entry["metadata"]["revision"].as_str().unwrap_or_default())))
                }
            }
            (ago(time(entry.get(at)), now))
            p {
                (text(status))
                @if !of("action").is_empty() { " · " (text(of("action"))) }
                @if !of("appVersion").is_empty() { " · app " (text(of("appVersion"))) }
                @if !of("lastReconciledDuration").is_empty() { " · took " (text(of("lastReconciledDuration"))) }
                @if let Some(times) = entry["totalReconciliations"].as_i64() { " · " (times) " times" }
            }
        }
    }
}

fn state(status: &str) -> ObjectState {
    match status {
        "deployed" | "ReconciliationSucceeded" => ObjectState::Ready,
        "superseded" | "uninstalled" => ObjectState::Unknown,
        pending if pending.starts_with("pending-") => ObjectState::Progressing,
        _ => ObjectState::Failing,
    }
}

/// The tab of events, the newest first.
pub(super) fn events(found: &ListedEvents, now: Timestamp) -> Markup {
    html! {
        (remarks(&found.left_out))
        section class="panel" {
            header { h2 { "Events" } span class="more" { "of the object and its sources, as long as the API server keeps them" } }
            @if found.events.is_empty() && found.left_out.is_empty() { p { "No events: the API server keeps them for an hour by default." } }
            @for event in found.events.iter().rev().take(MAX_SHOWN_ENTRIES) { (event_item(event, now)) }
        }
    }
}

fn event_item(event: &Object, now: Timestamp) -> Markup {
    let state = match field(event, "type") {
        "Warning" => ObjectState::Failing,
        _ => ObjectState::Ready,
    };
    html! {
        div class="item" {
            (shape(state))
            strong { (text(field(event, "reason"))) }
            (ago(last_seen(event), now))
            p { (object_link(&object_of(event))) }
            div class="note" { (message(field(event, "message"))) }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::hostile_strings::assert_text_only;

    #[test]
    fn what_was_done_and_what_happened_is_escaped() {
        let now = "2026-11-24T12:00:00Z".parse().unwrap();
        let release = json!({"version": 3, "status": "failed", "chartName": "<b>", "chartVersion": "1.0.0",
            "action": "upgrade", "lastDeployed": "2026-11-24T11:00:00Z"});
        let found =
            ObjectHistory { entries: vec![release], left_out: Some("forbidden <i>".to_owned()) };
        let html = history(&found, now).into_string();
        assert!(html.contains("v3 <bdi>&lt;b&gt;</bdi>@<bdi>1.0.0</bdi>"), "{html}");
        assert!(html.contains("#s-bad") && html.contains("forbidden &lt;i&gt;"), "{html}");
        let event = Object::new(json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "a"},
            "type": "Warning", "reason": "<u>", "message": "x\u{1b}[2J<script>",
            "lastTimestamp": "2026-11-24T11:58:00Z", "involvedObject": {"kind": "Pod", "namespace": "apps",
                "name": "web"}}))
        .unwrap();
        let found = ListedEvents { events: vec![event], left_out: Vec::new(), gone: None };
        let html = events(&found, now).into_string();
        assert!(html.contains("<strong><bdi>&lt;u&gt;</bdi></strong>"), "{html}");
        assert!(html.contains("<bdi>x\\u{1b}[2J&lt;script&gt;</bdi>"), "{html}");
        assert!(html.contains("<a href=\"/o/pod/apps/web\">"), "{html}");
    }

    #[test]
    fn hostile_strings_are_text_only() {
        let now = "2026-11-24T12:00:00Z".parse().unwrap();
        assert_text_only(|hostile| {
            let release = json!({"version": 3, "status": hostile, "chartName": hostile, "chartVersion": hostile,
                "action": hostile, "lastDeployed": "2026-11-24T11:00:00Z"});
            let found =
                ObjectHistory { entries: vec![release], left_out: Some(hostile.to_owned()) };
            let past = history(&found, now).into_string();
            let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "a"},
                "type": hostile, "reason": hostile, "message": hostile,
                "involvedObject": {"kind": "Pod", "namespace": "apps", "name": hostile}});
            let event = Object::new(event).unwrap();
            let found = ListedEvents { events: vec![event], left_out: Vec::new(), gone: None };
            format!("{past}{}", events(&found, now).into_string())
        });
    }

    #[test]
    fn that_there_is_nothing_is_said_only_where_all_was_read() {
        let now = "2026-11-24T12:00:00Z".parse().unwrap();
        let left_out = vec!["events: forbidden".to_owned()];
        let hidden = ListedEvents { events: Vec::new(), left_out, gone: None };
        assert!(!events(&hidden, now).into_string().contains("No events"));
        let none = ListedEvents { events: Vec::new(), left_out: Vec::new(), gone: None };
        assert!(events(&none, now).into_string().contains("No events"));
    }
}
