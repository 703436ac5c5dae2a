//! Replays posted events: which Providers get them, and which warnings become events of their Alerts.

use std::collections::{BTreeMap, BTreeSet};

use notify::{
    Alert, AlertClusterReader, AlertControllerSettings, AlertWarningEvent, DeliveryMessage,
    FluxEvent, ObjectReference, Provider, SecretData,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::fake_provider::{FakeProvider, FakeProviderRule, lenient};
use super::provider_requests::{FREE, REPLAY_UNIX_TIME, is_same_error, mismatch};
use crate::replay::case::{Case, CaseFailure, CaseJudgement, ReferenceAnswer};

/// The size limit of an event's body.
const MAX_BODY: usize = 3 << 20;

pub(super) fn judge(case: Case) -> CaseJudgement {
    let judged = match case.op.as_str() {
        "handle" => handle(&case),
        "key" => key(&case),
        "commitStatus" => commit_status(&case),
        _ => Err(case.unsupported(&[])),
    };
    // A case with an unknown form fails here.
    judged.map_err(|fault| match fault {
        CaseFailure::NotRun(reason) => mismatch("a form that is known", reason),
        fault => fault,
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventRateKeyInputs {
    event: Value,
}

fn event(value: &Value) -> Result<FluxEvent, CaseFailure> {
    FluxEvent::parse(value.to_string().as_bytes()).map_err(|error| mismatch("an event", error))
}

fn key(case: &Case) -> CaseJudgement {
    let inputs: EventRateKeyInputs = case.inputs()?;
    let mut event = event(&inputs.event)?;
    event.clean_metadata();
    case.judge(Ok(json!({"key": event.rate_key(), "metadata": event.metadata})))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CommitStatusInputs {
    provider: Value,
    #[serde(default)]
    alert: Value,
    event: Value,
}

fn commit_status(case: &Case) -> CaseJudgement {
    let inputs: CommitStatusInputs = case.inputs()?;
    let event = event(&inputs.event)?;
    let provider = Provider::new(inputs.provider).map_err(|error| mismatch("a provider", error))?;
    let alert = Alert::new(inputs.alert).map_err(|error| mismatch("an alert", error))?;
    let got = notify::commit_status(&provider, &alert, &event);
    match (&case.answer, &got) {
        (ReferenceAnswer::Error(wanted), Err(error)) if is_same_error(wanted, error) => Ok(()),
        _ => case.judge(got.map(|status| Value::from(status.unwrap_or_default()))),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct EventHandlingInputs {
    objects: Vec<Value>,
    #[serde(default)]
    no_cross_namespace_refs: bool,
    #[serde(default)]
    responses: Vec<FakeProviderRule>,
    posts: Vec<EventPostCase>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventPostCase {
    event: Option<Value>,
    body: Option<String>,
    #[serde(default)]
    size: usize,
    /// The replay ignores the method and the path.
    #[serde(default)]
    #[expect(dead_code, reason = "events are taken at any path and with any method")]
    method: String,
    #[serde(default)]
    path: String,
}

struct AlertCaseObjects(Vec<Value>);

impl AlertCaseObjects {
    fn find(&self, kind: &str, namespace: &str, name: &str) -> Option<&Value> {
        self.0.iter().find(|it| {
            it["kind"] == kind
                && it["metadata"]["name"] == name
                && it["metadata"]["namespace"].as_str().unwrap_or_default() == namespace
        })
    }
}

impl AlertClusterReader for AlertCaseObjects {
    fn labels(&self, object: &ObjectReference) -> Option<BTreeMap<String, String>> {
        let found = self.find(&object.kind, &object.namespace, &object.name)?;
        if found["apiVersion"].as_str().is_some_and(|version| version != object.api_version) {
            return None;
        }
        let labels = found["metadata"].get("labels").cloned().unwrap_or_else(|| json!({}));
        serde_json::from_value(labels).ok()
    }

    fn provider(&self, namespace: &str, name: &str) -> Option<Provider> {
        Provider::new(self.find("Provider", namespace, name)?.clone()).ok()
    }

    fn secret(&self, namespace: &str, name: &str) -> Option<SecretData> {
        let data = self.find("Secret", namespace, name)?.get("stringData")?;
        let data: BTreeMap<String, String> = serde_json::from_value(data.clone()).ok()?;
        Some(super::fake_provider::secret(namespace, name, &data))
    }
}

fn handle(case: &Case) -> CaseJudgement {
    let inputs: EventHandlingInputs = case.inputs()?;
    let objects = AlertCaseObjects(inputs.objects);
    let alerts: Vec<Alert> = objects
        .0
        .iter()
        .filter(|object| object["kind"] == "Alert")
        .filter_map(|object| Alert::new(object.clone()).ok())
        .collect();
    let settings = AlertControllerSettings {
        no_cross_namespace: inputs.no_cross_namespace_refs,
        now: REPLAY_UNIX_TIME,
        ..AlertControllerSettings::default()
    };
    let mut fake_provider = FakeProvider::new(inputs.responses);
    let mut keys = BTreeSet::new();
    let mut answers = Vec::new();
    for post in &inputs.posts {
        answers.push(answer(post, &alerts, &objects, settings, &mut fake_provider, &mut keys));
    }
    let wanted: Vec<Value> = case.list()?;
    if wanted.len() != answers.len() {
        return Err(mismatch(wanted.len(), answers.len()));
    }
    for (wanted, got) in wanted.iter().zip(&answers) {
        compare(wanted, got)?;
    }
    Ok(())
}

fn body(post: &EventPostCase) -> Vec<u8> {
    let text = post.body.clone().or_else(|| post.event.as_ref().map(Value::to_string));
    let mut body = text.unwrap_or_default().into_bytes();
    body.resize(body.len().max(post.size), b' ');
    body
}

fn answer(
    post: &EventPostCase,
    alerts: &[Alert],
    objects: &AlertCaseObjects,
    settings: AlertControllerSettings,
    fake_provider: &mut FakeProvider,
    keys: &mut BTreeSet<String>,
) -> Value {
    // Go's HTTP server redirects a path that is not clean.
    if post.path.contains("//") {
        return json!({"status": 307});
    }
    let body = body(post);
    if body.len() > MAX_BODY {
        return json!({"status": 413});
    }
    let Ok(mut event) = FluxEvent::parse(&body) else { return json!({"status": 400}) };
    event.clean_metadata();
    if !keys.insert(event.rate_key()) {
        return json!({"status": 429});
    }
    let mut sent = Vec::new();
    let mut events = Vec::new();
    for alert in alerts {
        let mut verdict = notify::dispatch(&event, alert, objects, settings);
        let mut warnings = std::mem::take(&mut verdict.warnings);
        if let Some(dispatch) = &mut verdict.dispatch {
            fake_provider.arrived.clear();
            if let Err(failure) = fake_provider.drive(&mut dispatch.delivery) {
                warnings.push(dispatch.warning(&failure));
            }
            sent.extend(fake_provider.arrived.iter().map(delivery_message));
        }
        events.extend(warnings.iter().map(|warning| shown(alert, warning)));
    }
    sent.sort_by_key(|it: &Value| it["to"].to_string());
    json!({"status": 202, "sent": sent, "k8sEvents": events})
}

fn delivery_message(delivery_message: &DeliveryMessage) -> Value {
    let DeliveryMessage::Http(request) = delivery_message else {
        return json!({"to": format!("{delivery_message:?}")});
    };
    let headers: BTreeMap<_, _> =
        request.headers.iter().map(|(name, it)| (name.to_lowercase(), it)).collect();
    json!({"to": request.url, "event": lenient(&request.body), "headers": headers})
}

fn shown(alert: &Alert, warning: &AlertWarningEvent) -> Value {
    let metadata = &alert.metadata;
    let mut shown = json!({
        "object": format!("Alert/{}/{}", metadata.namespace, metadata.name),
        "type": "Warning",
        "reason": warning.reason,
        "message": warning.message,
    });
    if !warning.annotations.is_empty() {
        shown["annotations"] = json!(warning.annotations);
    }
    shown
}

fn compare(wanted: &Value, got: &Value) -> CaseJudgement {
    let differs = || Err(mismatch(wanted, got));
    if wanted["status"] != got["status"] {
        return differs();
    }
    let list = |value: &Value, name: &str| value[name].as_array().cloned().unwrap_or_default();
    let sent_wanted = list(wanted, "sent");
    let sent = list(got, "sent");
    if sent_wanted.len() != sent.len() {
        return differs();
    }
    for (wanted, got) in sent_wanted.iter().zip(&sent) {
        let is_same = wanted["to"] == got["to"]
            && wanted.get("event").is_none_or(|event| *event == got["event"])
            && wanted["headers"].as_object().is_none_or(|headers| {
                headers.iter().filter(|(name, _)| !FREE.contains(&&*name.to_lowercase())).all(
                    |(name, it)| {
                        let got = got["headers"].get(name.to_lowercase());
                        got == Some(it) || got.is_none() && it == ""
                    },
                )
            });
        if !is_same {
            return differs();
        }
    }
    let wanted_events = list(wanted, "k8sEvents");
    let mut events = list(got, "k8sEvents");
    if wanted_events.len() != events.len() {
        return differs();
    }
    for wanted in &wanted_events {
        let found = events.iter().position(|got| {
            let text = |value: &Value| value["message"].as_str().unwrap_or_default().to_owned();
            ["object", "type", "reason", "annotations"]
                .iter()
                .all(|name| wanted.get(*name) == got.get(*name))
                && is_same_error(&text(wanted), &text(got))
        });
        match found {
            Some(at) => drop(events.swap_remove(at)),
            None => return differs(),
        }
    }
    Ok(())
}
