//! Replays webhook requests: whether a Receiver accepts them, and which objects it reconciles.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use notify::receivers::{
    AnnotationTarget, MAX_BODY, MAX_HEADERS, Receiver, ReceiverClusterReader,
    ReceiverControllerSettings, ReceiverRequestStep, ReceiverSpecError, ReceiverWebhookRequest,
    WebhookAuthentication, check, path,
};
use notify::{DeliveryMessage, SecretData};
use serde::Deserialize;
use serde_json::{Value, json};

use super::fake_provider::{FakeProvider, FakeProviderRule};
use super::provider_requests::{REPLAY_UNIX_TIME, is_same_error, mismatch};
use crate::replay::case::{Case, CaseFailure, CaseJudgement};

pub(super) fn judge(case: Case) -> CaseJudgement {
    let judged = match case.op.as_str() {
        "hook" => hook(&case),
        "path" => webhook_path(&case),
        "reconcile" => reconcile(&case),
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
struct WebhookPathInputs {
    token: String,
    receiver: String,
    namespace: String,
}

fn webhook_path(case: &Case) -> CaseJudgement {
    let inputs: WebhookPathInputs = case.inputs()?;
    case.judge(Ok(Value::from(path(inputs.token.as_bytes(), &inputs.receiver, &inputs.namespace))))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ReceiverRequestInputs {
    objects: Vec<Value>,
    #[serde(default)]
    no_cross_namespace_refs: bool,
    #[serde(default)]
    responses: Vec<FakeProviderRule>,
    requests: Vec<WebhookRequest>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WebhookRequest {
    /// Every method is accepted.
    #[serde(default)]
    #[expect(dead_code, reason = "requests are taken with any method")]
    method: String,
    #[serde(default)]
    path: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    body: String,
    #[serde(default)]
    size: usize,
}

struct ReceiverCaseObjects(Vec<Value>);

impl ReceiverCaseObjects {
    fn of<'a>(
        &'a self,
        version: &'a str,
        kind: &'a str,
        namespace: &'a str,
    ) -> impl Iterator<Item = &'a Value> {
        self.0.iter().filter(move |it| {
            it["kind"] == kind
                && it["metadata"]["namespace"] == namespace
                && it["apiVersion"].as_str().is_none_or(|known| known == version)
        })
    }

    fn secret(&self, namespace: &str, name: &str) -> Option<SecretData> {
        let found = self.of("v1", "Secret", namespace).find(|it| it["metadata"]["name"] == name)?;
        let data = found.get("stringData").cloned().unwrap_or_else(|| json!({}));
        Some(super::fake_provider::secret(namespace, name, &serde_json::from_value(data).ok()?))
    }
}

impl ReceiverClusterReader for ReceiverCaseObjects {
    fn object(&self, target: &AnnotationTarget) -> Option<Value> {
        let mut all = self.of(&target.api_version, &target.kind, &target.namespace);
        all.find(|it| it["metadata"]["name"] == *target.name).cloned()
    }

    fn list(&self, api_version: &str, kind: &str, namespace: &str) -> Arc<Vec<Value>> {
        let mut all: Vec<_> = self.of(api_version, kind, namespace).cloned().collect();
        all.sort_by_key(|it| it["metadata"]["name"].to_string());
        Arc::new(all)
    }
}

fn hook(case: &Case) -> CaseJudgement {
    let inputs: ReceiverRequestInputs = case.inputs()?;
    let receivers = inputs.objects.iter().filter(|it| it["kind"] == "Receiver");
    let receivers: Vec<Receiver> = receivers
        .map(Receiver::new)
        .collect::<Result<_, _>>()
        .map_err(|error| mismatch("a receiver", error))?;
    let mut objects = ReceiverCaseObjects(inputs.objects);
    // Objects in a cluster have a resource version.
    for object in &mut objects.0 {
        object["metadata"]["resourceVersion"] = json!("999");
    }
    // As in Flux, an empty token accepts every request.
    let settings = ReceiverControllerSettings {
        no_cross_namespace: inputs.no_cross_namespace_refs,
        allows_empty_token: true,
        now: REPLAY_UNIX_TIME,
    };
    let mut fake_provider = FakeProvider::new(inputs.responses);
    let wanted: Vec<Value> = case.list()?;
    for (asked, wanted) in inputs.requests.iter().zip(&wanted) {
        let (status, annotated) = answer(asked, &receivers, &objects, settings, &mut fake_provider);
        let is_redirect = wanted["status"] == 307 && status == 404;
        let names: BTreeSet<&str> = wanted["annotated"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let got: BTreeSet<&str> = annotated.iter().map(String::as_str).collect();
        if !(wanted["status"] == status || is_redirect) || names != got {
            return Err(mismatch(wanted, format!("{status} {annotated:?}")));
        }
    }
    Ok(())
}

fn answer(
    asked: &WebhookRequest,
    receivers: &[Receiver],
    objects: &ReceiverCaseObjects,
    settings: ReceiverControllerSettings,
    fake_provider: &mut FakeProvider,
) -> (u16, Vec<String>) {
    let long = "x".repeat(300 << 10);
    let headers: Vec<_> = asked
        .headers
        .iter()
        .map(|(name, value)| (name.clone(), value.trim().replace("<300KiB>", &long)))
        .collect();
    if headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > MAX_HEADERS {
        return (431, Vec::new());
    }
    let mut body = asked.body.clone().into_bytes();
    body.resize(body.len().max(asked.size), b' ');
    if body.len() > MAX_BODY {
        return (413, Vec::new());
    }
    let own = receivers.first().map_or("", |receiver| &receiver.path);
    let wanted = if asked.path.is_empty() { own } else { &asked.path };
    let Some(receiver) = receivers.iter().find(|it| !it.path.is_empty() && it.path == wanted)
    else {
        return (404, Vec::new());
    };
    let secret = receiver
        .spec
        .secret_ref
        .as_ref()
        .and_then(|reference| objects.secret(&receiver.metadata.namespace, &reference.name));
    let (mut reception, mut gate) = WebhookAuthentication::start(
        ReceiverWebhookRequest { headers, body },
        receiver,
        secret.as_ref(),
        settings,
    );
    loop {
        match gate {
            ReceiverRequestStep::Refused(status, _) => return (status, Vec::new()),
            ReceiverRequestStep::Fetch(request) => {
                gate = reception.answer(fake_provider.outcome(&DeliveryMessage::Http(request)));
            }
            ReceiverRequestStep::Accepted(accepted) => {
                let selection = accepted.select(receiver, objects, settings);
                let shown =
                    |it: &AnnotationTarget| format!("{}/{}/{}", it.kind, it.namespace, it.name);
                return (selection.status, selection.targets.iter().map(shown).collect());
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReconcileInputs {
    objects: Vec<Value>,
}

/// Compares the path and the errors that the engine decides. Intervals and events belong to the controller.
fn reconcile(case: &Case) -> CaseJudgement {
    let inputs: ReconcileInputs = case.inputs()?;
    let crate::replay::case::ReferenceAnswer::Out(wanted) = &case.answer else {
        return Err(mismatch("an answer", "none"));
    };
    let objects = ReceiverCaseObjects(inputs.objects);
    let object = objects.0.iter().find(|it| it["kind"] == "Receiver");
    let receiver = Receiver::new(object.unwrap_or(&Value::Null))
        .map_err(|error| mismatch("a receiver", error))?;
    let reference = receiver.spec.secret_ref.as_ref();
    let secret = reference.and_then(|it| objects.secret(&receiver.metadata.namespace, &it.name));
    let found = check(&receiver, secret.as_ref());
    let ready =
        wanted["conditions"].as_array().into_iter().flatten().find(|it| it["type"] == "Ready");
    let Some(ready) = ready else { return Err(mismatch("a condition", wanted)) };
    let (reason, message) = match &found {
        Ok(path) => ("Succeeded", format!("Receiver initialized for path: {path}")),
        Err(ReceiverSpecError::Terminal(reason, message)) => {
            let words = "Reconciliation failed terminally due to configuration error";
            (*reason, format!("{words}: {message}"))
        }
        Err(ReceiverSpecError::TokenNotFound(message)) => ("TokenNotFound", message.clone()),
    };
    let wanted_message = ready["message"].as_str().unwrap_or_default();
    let is_path = wanted["webhookPath"] == found.as_deref().unwrap_or_default();
    if ready["reason"] == reason && is_same_error(wanted_message, &message) && is_path {
        return Ok(());
    }
    Err(mismatch(ready, format!("{reason}: {message}")))
}
