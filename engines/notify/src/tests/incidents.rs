//! What services that have incidents of their own are sent, from the opening to the end.

use serde_json::Value;

use super::*;
use crate::NotifiedIncident;

const OPENED: i64 = 1_799_990_000;

/// What is sent to a type of Provider: the address and the body of each request.
fn requests(kind: &str, event: &FluxEvent) -> Vec<(String, Value)> {
    let address = if kind == "opsgenie" { "https://h/v2/alerts" } else { "https://h/x" };
    let spec = json!({"type": kind, "address": address, "channel": "key",
        "secretRef": {"name": "s"}});
    let provider =
        json!({"metadata": {"name": "p", "namespace": "apps", "uid": "u-1"}, "spec": spec});
    let provider = Provider::new(provider).unwrap();
    let data = BTreeMap::from([("token".to_owned(), b"secret".to_vec())]);
    let secret =
        |_: &str, name: &str| Some(SecretData { name: name.to_owned(), data: data.clone() });
    let mut delivery = delivery(event, &provider, &Alert::default(), NOW, &secret);
    let mut step = delivery.start();
    let mut all = Vec::new();
    loop {
        step = match step {
            DeliveryStep::Done => return all,
            DeliveryStep::Failed(failure) => panic!("{failure:?}"),
            step @ DeliveryStep::Send(..) => {
                let (_, request) = sent(step);
                let body = serde_json::from_slice(&request.body).unwrap();
                all.push((request.url.clone(), body));
                delivery.answer(answer(202, &[], ""))
            }
        };
    }
}

fn incident(is_open: bool) -> FluxEvent {
    let mut about = event();
    about.object.uid = "uid-of-the-object".to_owned();
    about.timestamp = Some(if is_open { OPENED } else { NOW });
    let of = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    about.metadata = BTreeMap::from([
        of("incident", "apps/web-1"),
        of("incidentState", if is_open { "Opened" } else { "Resolved" }),
        of("affected", if is_open { "3" } else { "7" }),
    ]);
    if !is_open {
        (about.severity, about.reason) = ("info".to_owned(), "IncidentResolved".to_owned());
    }
    let key = "uid-of-the-incident".to_owned();
    let reason = "Build".to_owned();
    about.incident = Some(NotifiedIncident { key, is_open, since: OPENED, reason, thread: None });
    about
}

/// The delivery of an event about an incident to a service with threads, the body of its only request, and the answer.
fn posted(kind: &str, event: &FluxEvent, answers: &[Value]) -> (Vec<Value>, Option<String>) {
    let answers: Vec<_> = answers.iter().map(|body| (200, body)).collect();
    posted_to(kind, event, &answers)
}

/// The same with statuses.
fn posted_to(
    kind: &str,
    event: &FluxEvent,
    answers: &[(u16, &Value)],
) -> (Vec<Value>, Option<String>) {
    let address = match kind {
        "slack" => "https://slack.com/api/chat.postMessage",
        _ => "https://matrix.example",
    };
    let spec = json!({"type": kind, "address": address, "channel": "c",
        "secretRef": {"name": "s"}});
    let provider =
        Provider::new(json!({"metadata": {"name": "p", "namespace": "apps"}, "spec": spec}))
            .unwrap();
    let data = BTreeMap::from([("token".to_owned(), b"secret".to_vec())]);
    let secret =
        |_: &str, name: &str| Some(SecretData { name: name.to_owned(), data: data.clone() });
    let mut delivery = delivery(event, &provider, &Alert::default(), NOW, &secret);
    let mut step = delivery.start();
    let mut bodies = Vec::new();
    for (status, body) in answers {
        let (_, request) = sent(step);
        bodies.push(serde_json::from_slice(&request.body).unwrap());
        step = delivery.answer(answer(*status, &[], &body.to_string()));
    }
    assert!(matches!(step, DeliveryStep::Done), "{step:?}");
    (bodies, delivery.message().map(str::to_owned))
}

fn in_thread(is_open: bool, thread: &str) -> FluxEvent {
    let mut about = incident(is_open);
    about.incident.as_mut().unwrap().thread = Some(thread.to_owned());
    about
}

#[test]
fn slack_is_sent_what_follows_in_the_thread_of_the_opening() {
    let accepted = json!({"ok": true, "ts": "1503435956.000247"});
    let (opened, thread) = posted("slack", &incident(true), std::slice::from_ref(&accepted));
    assert_eq!(
        (&opened[0]["thread_ts"], thread.as_deref()),
        (&Value::Null, Some("1503435956.000247"))
    );
    let reply =
        |is_open| posted("slack", &in_thread(is_open, "1.2"), std::slice::from_ref(&accepted)).0;
    let reminded = reply(true);
    let resolved = reply(false);
    assert_eq!(
        (&reminded[0]["thread_ts"], &reminded[0]["reply_broadcast"]),
        (&json!("1.2"), &json!(false))
    );
    assert_eq!(
        (&resolved[0]["thread_ts"], &resolved[0]["reply_broadcast"]),
        (&json!("1.2"), &json!(true))
    );
    // The message was deleted: the end of the incident still reaches the channel.
    let gone = json!({"ok": false, "error": "thread_not_found"});
    let (both, _) = posted("slack", &in_thread(false, "1.2"), &[gone, accepted]);
    assert_eq!((&both[0]["thread_ts"], &both[1]["thread_ts"]), (&json!("1.2"), &Value::Null));
}

#[test]
fn matrix_is_sent_what_follows_in_the_thread_of_the_opening() {
    let accepted = json!({"event_id": "$opened"});
    let (opened, thread) = posted("matrix", &incident(true), std::slice::from_ref(&accepted));
    assert_eq!((opened[0].get("m.relates_to"), thread.as_deref()), (None, Some("$opened")));
    let (resolved, _) =
        posted("matrix", &in_thread(false, "$opened"), std::slice::from_ref(&accepted));
    let relation = &resolved[0]["m.relates_to"];
    assert_eq!(
        (&relation["rel_type"], &relation["event_id"]),
        (&json!("m.thread"), &json!("$opened"))
    );
    assert_eq!(relation["m.in_reply_to"]["event_id"], "$opened");
    // The room is another one by now.
    let rejected = json!({"errcode": "M_UNKNOWN", "error": "Relations must be in the same room"});
    let answers = [(400, &rejected), (200, &accepted)];
    let (both, _) = posted_to("matrix", &in_thread(false, "$opened"), &answers);
    assert_eq!((both.len(), both[1].get("m.relates_to")), (2, None));
}

#[test]
fn an_id_that_is_no_text_of_a_line_is_not_kept() {
    for id in ["", "two\nlines", &"1".repeat(256)] {
        let accepted = json!({"ok": true, "ts": id});
        assert_eq!(posted("slack", &incident(true), &[accepted]).1, None, "{id:?}");
    }
}

fn both(kind: &str) -> [(String, Value); 2] {
    [true, false].map(|is_open| {
        let mut all = requests(kind, &incident(is_open));
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    })
}

#[test]
fn pagerduty_is_sent_a_trigger_and_a_resolve_with_the_same_key() {
    let [(_, open), (_, over)] = both("pagerduty");
    assert_eq!(
        (&open["event_action"], &over["event_action"]),
        (&json!("trigger"), &json!("resolve"))
    );
    assert_eq!(open["dedup_key"], "uid-of-the-incident");
    assert_eq!(open["dedup_key"], over["dedup_key"]);
    assert_eq!(open["payload"]["severity"], "error");
}

#[test]
fn opsgenie_is_sent_an_alert_and_its_end_by_the_alias() {
    let [(created, open), (closed, _)] = both("opsgenie");
    assert_eq!(open["alias"], "uid-of-the-incident");
    assert_eq!(created, "https://h/v2/alerts");
    assert_eq!(closed, "https://h/v2/alerts/uid-of-the-incident/close?identifierType=alias");
}

#[test]
fn alertmanager_is_sent_the_same_labels_and_an_end() {
    let [(_, open), (_, over)] = both("alertmanager");
    assert_eq!(open[0]["labels"], over[0]["labels"]);
    assert_eq!(open[0]["labels"]["alertname"], "FluxKustomizationBuild");
    assert_eq!(open[0]["startsAt"], over[0]["startsAt"]);
    let time = |of: &Value| of.as_str().unwrap_or_default().to_owned();
    assert!(time(&open[0]["endsAt"]) > time(&over[0]["endsAt"]), "{open} {over}");
    assert_eq!(time(&over[0]["endsAt"]), crate::event::rfc3339(NOW));
    assert_eq!((&open[0]["status"], &over[0]["status"]), (&json!("firing"), &json!("resolved")));
}

#[test]
fn incident_io_is_sent_both_states_of_one_key() {
    let [(_, open), (_, over)] = both("incident.io");
    assert_eq!((&open["status"], &over["status"]), (&json!("firing"), &json!("resolved")));
    assert_eq!(open["deduplication_key"], "uid-of-the-incident");
    assert_eq!(open["deduplication_key"], over["deduplication_key"]);
}

#[test]
fn an_alert_of_errors_is_sent_the_end_of_what_it_was_sent() {
    let alert = json!({"metadata": {"name": "a", "namespace": "apps"}, "spec": {
        "providerRef": {"name": "p"}, "eventSeverity": "error",
        "eventSources": [{"kind": "Kustomization", "name": "*"}]}});
    let alert = Alert::new(alert).unwrap();
    let settings = crate::alert_dispatch::AlertControllerSettings::default();
    let over = incident(false);
    assert!(crate::route(&over, &alert, &OneProviderCluster, settings).route.is_none());
    assert!(crate::follow_up(&over, &alert, &OneProviderCluster, settings).route.is_some());
    assert!(crate::has_incidents("slack") && !crate::has_incidents("github"));
    assert!(!crate::has_incidents("gitlabmergerequestcomment"));
}
