//! Replays the requests that a Provider sends for an event.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use notify::{
    Alert, DeliveryMessage, DeliveryStage, FluxEvent, NatsLogin, Provider, ProviderRequest,
};
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint};
use serde::Deserialize;
use serde_json::{Value, json};

use super::fake_provider::{FakeProvider, FakeProviderRule, lenient, secret};
use crate::replay::case::{Case, CaseFailure, CaseJudgement, ReferenceAnswer};

/// The time of the replay, for which `<now>` stands in cases.
pub(super) const REPLAY_UNIX_TIME: i64 = 1_800_000_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProviderRequestInputs {
    provider: Value,
    #[serde(default)]
    secrets: BTreeMap<String, BTreeMap<String, String>>,
    #[serde(default)]
    alert: Value,
    event: Value,
    #[serde(default)]
    responses: Vec<FakeProviderRule>,
    /// Whether Flux waited in real time during the recording.
    #[serde(default)]
    slow: bool,
}

pub(super) fn judge(case: Case) -> CaseJudgement {
    run(&case, false)
}

/// Judges a case of Flux 1.9.3, whose Opsgenie has no alias. windlass has the alias of Flux's main branch.
pub(super) fn judge_without_alias(case: Case) -> CaseJudgement {
    run(&case, true)
}

pub(super) fn mismatch(wanted: impl ToString, got: impl ToString) -> CaseFailure {
    CaseFailure::Mismatch { wanted: wanted.to_string(), got: got.to_string() }
}

fn run(case: &Case, drops_alias: bool) -> CaseJudgement {
    let inputs: ProviderRequestInputs = match case.inputs() {
        Ok(inputs) => inputs,
        Err(CaseFailure::NotRun(reason)) => return Err(mismatch("a form that is known", reason)),
        Err(fault) => return Err(fault),
    };
    let ReferenceAnswer::Out(wanted) = &case.answer else {
        return Err(mismatch("an answer", "none"));
    };
    let _waited = inputs.slow;
    let read = |error: &dyn std::fmt::Display| mismatch("objects", error);
    let provider = Provider::new(inputs.provider).map_err(|error| read(&error))?;
    let alert =
        if inputs.alert.is_null() { Ok(Alert::default()) } else { Alert::new(inputs.alert) };
    let alert = alert.map_err(|error| read(&error))?;
    let event =
        FluxEvent::parse(inputs.event.to_string().as_bytes()).map_err(|error| read(&error))?;
    let secrets = |namespace: &str, name: &str| {
        inputs.secrets.get(name).map(|data| secret(namespace, name, data))
    };
    if let Some(wanted) = wanted.get("commitStatus").and_then(Value::as_str) {
        let got = notify::commit_status(&provider, &alert, &event);
        if got != Ok(Some(wanted.to_owned())) {
            return Err(mismatch(wanted, format!("{got:?}")));
        }
    }
    let mut fake_provider = FakeProvider::new(inputs.responses);
    let mut delivery = notify::delivery(&event, &provider, &alert, REPLAY_UNIX_TIME, &secrets);
    let outcome = fake_provider.drive(&mut delivery);
    let shown = || format!("{outcome:?} after {:?}", shown(&fake_provider.arrived));
    let stage = match &outcome {
        Ok(()) => None,
        Err(failure) => Some(match failure.stage {
            DeliveryStage::CommitStatus => "commitStatus",
            DeliveryStage::Init => "init",
            DeliveryStage::Post => "post",
        }),
    };
    let stage_wanted = wanted.get("stage").and_then(Value::as_str);
    if stage != stage_wanted {
        return Err(mismatch(format!("{stage_wanted:?} {}", wanted["error"]), shown()));
    }
    if let (Err(failure), Some(text)) = (&outcome, wanted.get("error").and_then(Value::as_str))
        && !is_same_error(text, &failure.message)
    {
        return Err(mismatch(text, &failure.message));
    }
    let nothing = Vec::new();
    let requests = wanted.get("requests").and_then(Value::as_array).unwrap_or(&nothing);
    compare_requests(requests, &fake_provider.arrived, drops_alias)?;
    compare_others(wanted, &fake_provider.arrived)
}

fn shown(parcels: &[DeliveryMessage]) -> Vec<String> {
    parcels
        .iter()
        .map(|delivery_message| match delivery_message {
            DeliveryMessage::Http(request) => format!(
                "{} {} {:?} {}",
                request.method,
                request.url,
                request.headers,
                String::from_utf8_lossy(&request.body).chars().take(2000).collect::<String>()
            ),
            other => format!("{other:?}"),
        })
        .collect()
}

/// Compares two errors. Words that come from a library may differ.
pub(super) fn is_same_error(wanted: &str, got: &str) -> bool {
    const TAILS: [&str; 14] = [
        "parse \"",
        "strconv.",
        ": Get \"",
        ": Post \"",
        ": Put \"",
        "failed to compile expression: ",
        "failed to evaluate the CEL expression",
        "unmarshal response body: ",
        "failed to read headers from secret: ",
        "json:",
        "invalid character",
        "unexpected end of JSON",
        "error unmarshaling",
        "rpc error: ",
    ];
    if wanted == got {
        return true;
    }
    let tail = TAILS.iter().filter_map(|tail| wanted.find(tail).map(|at| at + tail.len())).min();
    tail.is_some_and(|at| {
        got.len() >= at.min(wanted.len()) && {
            let head = TAILS.iter().filter_map(|tail| wanted.find(tail)).min().unwrap_or(at);
            got.starts_with(&wanted[..head])
        }
    })
}

fn compare_requests(
    wanted: &[Value],
    arrived: &[DeliveryMessage],
    drops_alias: bool,
) -> CaseJudgement {
    let got: Vec<&ProviderRequest> = arrived
        .iter()
        .filter_map(|delivery_message| match delivery_message {
            DeliveryMessage::Http(request) => Some(&**request),
            _ => None,
        })
        .collect();
    // The transport opens tunnels. A recorded CONNECT only shows that there is a proxy.
    let is_tunnelled = wanted.iter().any(|it| it["method"] == "CONNECT");
    let wanted: Vec<&Value> = wanted.iter().filter(|it| it["method"] != "CONNECT").collect();
    if wanted.len() != got.len() {
        let got = shown(arrived);
        return Err(mismatch(format!("{} requests {wanted:?}", wanted.len()), format!("{got:?}")));
    }
    for (wanted, got) in wanted.into_iter().zip(got) {
        compare(wanted, got, is_tunnelled, drops_alias)?;
    }
    Ok(())
}

/// Headers that the recording dropped, or that vendors' clients set. They are not compared.
pub(super) const FREE: [&str; 7] = [
    "accept",
    "x-github-api-version",
    "referer",
    "x-atlassian-token",
    "x-requested-with",
    "x-tfs-fedauthredirect",
    "user-agent",
];

fn compare(
    wanted: &Value,
    got: &ProviderRequest,
    is_tunnelled: bool,
    drops_alias: bool,
) -> CaseJudgement {
    let differs = |what: &str, wanted: &Value, got: Value| {
        Err(mismatch(format!("{what} {wanted}"), format!("{what} {got}")))
    };
    if wanted["method"] != got.method {
        return differs("method", wanted, json!(got.method));
    }
    if wanted["url"] != json!(got.url) {
        return differs("url", &wanted["url"], json!(got.url));
    }
    let is_proxied = wanted.get("via").is_some() || is_tunnelled;
    if is_proxied != got.proxy.is_some() {
        return differs("via", &wanted["via"], json!(got.proxy));
    }
    // Each client sends its own name.
    let anonymous = |value: &str| {
        let parts = value.split(", ").filter(|part| !part.starts_with("sentry_client="));
        parts.collect::<Vec<_>>().join(", ")
    };
    let headers = |from: Vec<(String, String)>| -> BTreeMap<String, String> {
        let lower =
            from.into_iter().map(|(name, value)| (name.to_lowercase(), anonymous(value.trim())));
        lower.filter(|(name, _)| !FREE.contains(&&**name)).collect()
    };
    let recorded = wanted["headers"].as_object().cloned().unwrap_or_default();
    let text = |value: &Value| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        text.replace("<300KiB>", &"x".repeat(300 << 10))
    };
    let recorded = headers(recorded.iter().map(|(name, it)| (name.clone(), text(it))).collect());
    let mut sent = headers(got.headers.clone());
    // With a plain server, the request itself carries the credentials for the proxy.
    if recorded.contains_key("proxy-authorization")
        && let Some(proxy) =
            got.proxy.as_deref().and_then(|it| golang::url::GoUrl::parse(it.as_bytes()).ok())
        && let Some(user) = proxy.user
    {
        let user = String::from_utf8_lossy(&user.to_bytes()).into_owned();
        sent.insert("proxy-authorization".to_owned(), format!("Basic {}", STANDARD.encode(user)));
    }
    if recorded.get("authorization").is_some_and(|it| it == "Bearer <jwt>") {
        sent.insert("authorization".to_owned(), "Bearer <jwt>".to_owned());
    }
    if recorded != sent {
        return differs("headers", &json!(recorded), json!(sent));
    }
    if let Some(decoded) = wanted.get("decoded") {
        return compare_decoded(decoded, got);
    }
    let wanted = wanted.get("body").and_then(Value::as_str).unwrap_or_default();
    let wanted_body = normal(lenient(wanted.as_bytes()));
    let mut body = normal(lenient(&got.body));
    if drops_alias && let Some(members) = body.as_object_mut() {
        members.remove("alias");
    }
    if wanted_body != body {
        return Err(mismatch(wanted_body, body));
    }
    Ok(())
}

/// Sorts lists whose order comes from Go's maps.
fn normal(mut body: Value) -> Value {
    for path in [
        "/attachments/0/fields",
        "/sections/0/facts",
        "/tags",
        "/cards/0/sections/1/widgets",
        "/content/body/1/items",
    ] {
        if let Some(Value::Array(list)) = body.pointer_mut(path) {
            list.sort_by_key(Value::to_string);
        }
    }
    body
}

fn compare_decoded(wanted: &Value, got: &ProviderRequest) -> CaseJudgement {
    let mut wanted = wanted.clone();
    let mut decoded = Value::Null;
    if got.get("content-type") == Some("application/x-sentry-envelope") {
        decoded = envelope(&got.body);
    } else if let Some(spans) = span(&got.body) {
        decoded = spans;
    }
    for value in [&mut wanted, &mut decoded] {
        if let Some(Value::Array(list)) =
            value.pointer_mut("/resourceSpans/0/scopeSpans/0/spans/0/attributes")
        {
            list.sort_by_key(Value::to_string);
        }
    }
    // windlass sends no host name.
    if wanted.pointer("/2/server_name").is_some_and(|name| name == "<hostname>")
        && let Some(item) = wanted.pointer_mut("/2").and_then(Value::as_object_mut)
    {
        item.remove("server_name");
    }
    if wanted != decoded {
        return Err(mismatch(wanted, decoded));
    }
    Ok(())
}

/// An envelope of Sentry without the parts that the recording dropped.
fn envelope(body: &[u8]) -> Value {
    let mut lines = body.split(|byte| *byte == b'\n').map(lenient);
    let mut header = lines.next().unwrap_or_default();
    let mut kind = lines.next().unwrap_or_default();
    let mut item = lines.next().unwrap_or_default();
    let remove = |value: &mut Value, path: &str, names: &[&str]| {
        if let Some(members) = value.pointer_mut(path).and_then(Value::as_object_mut) {
            members.retain(|name, _| !names.contains(&&**name));
        }
    };
    remove(&mut header, "", &["event_id", "sent_at"]);
    remove(&mut kind, "", &["length"]);
    remove(&mut item, "", &["event_id"]);
    for path in ["/contexts/trace", "/spans/0"] {
        remove(&mut item, path, &["trace_id", "span_id"]);
    }
    let now = golang::time::GoTime::from_unix(REPLAY_UNIX_TIME, 0, golang::time::GoTimeZone::Utc)
        .format(golang::time::RFC3339);
    let text = item.to_string().replace(&now, "<now>");
    json!([header, kind, lenient(text.as_bytes())])
}

/// A field of a protobuf message: its number, and its bytes or number.
type ProtobufField = (u32, Result<Vec<u8>, u64>);

fn fields(mut from: &[u8]) -> Option<Vec<ProtobufField>> {
    let mut fields = Vec::new();
    while !from.is_empty() {
        let (tag, wire) = decode_key(&mut from).ok()?;
        let value = match wire {
            WireType::Varint => Err(decode_varint(&mut from).ok()?),
            WireType::SixtyFourBit => {
                let (bytes, rest) = from.split_first_chunk::<8>()?;
                from = rest;
                Err(u64::from_le_bytes(*bytes))
            }
            WireType::ThirtyTwoBit => {
                let (bytes, rest) = from.split_first_chunk::<4>()?;
                from = rest;
                Err(u64::from(u32::from_le_bytes(*bytes)))
            }
            WireType::LengthDelimited => {
                let length = usize::try_from(decode_varint(&mut from).ok()?).ok()?;
                let bytes = from.get(..length)?.to_vec();
                from = &from[length..];
                Ok(bytes)
            }
            _ => {
                prost::encoding::skip_field(wire, tag, &mut from, DecodeContext::default()).ok()?;
                continue;
            }
        };
        fields.push((tag, value));
    }
    Some(fields)
}

fn all(message: &[u8], tag: u32) -> Vec<Vec<u8>> {
    let fields = fields(message).unwrap_or_default();
    fields.into_iter().filter(|(it, _)| *it == tag).filter_map(|(_, value)| value.ok()).collect()
}

fn first(message: &[u8], tag: u32) -> Vec<u8> {
    all(message, tag).into_iter().next().unwrap_or_default()
}

fn text(message: &[u8], tag: u32) -> String {
    String::from_utf8_lossy(&first(message, tag)).into_owned()
}

fn number(message: &[u8], tag: u32) -> u64 {
    let fields = fields(message).unwrap_or_default();
    fields
        .into_iter()
        .find(|(it, _)| *it == tag)
        .and_then(|(_, value)| value.err())
        .unwrap_or_default()
}

fn attributes(message: &[u8], tag: u32) -> Vec<Value> {
    let pair = |pair: &Vec<u8>| json!({"key": text(pair, 1), "value": {"stringValue": text(&first(pair, 2), 1)}});
    all(message, tag).iter().map(pair).collect()
}

/// An OTLP request in the form of the recording. `None` if the request cannot be represented in that form.
fn span(body: &[u8]) -> Option<Value> {
    let resource_spans = first(body, 1);
    let scope_spans = first(&resource_spans, 2);
    let span = first(&scope_spans, 2);
    let status = first(&span, 15);
    let kind = ["SPAN_KIND_UNSPECIFIED", "SPAN_KIND_INTERNAL"];
    let code = ["STATUS_CODE_UNSET", "STATUS_CODE_OK", "STATUS_CODE_ERROR"];
    let mut shown = json!({"code": code.get(usize::try_from(number(&status, 3)).ok()?)?});
    if !text(&status, 2).is_empty() {
        shown["message"] = json!(text(&status, 2));
    }
    let start = number(&span, 7);
    let is_now = start == REPLAY_UNIX_TIME.unsigned_abs() * 1_000_000_000;
    let trace: String = first(&span, 1).iter().map(|byte| format!("{byte:02x}")).collect();
    Some(json!({"resourceSpans": [{
        "resource": {"attributes": attributes(&first(&resource_spans, 1), 1)},
        "schemaUrl": text(&resource_spans, 3),
        "scopeSpans": [{
            "scope": {"name": text(&first(&scope_spans, 1), 1)},
            "spans": [{
                "attributes": attributes(&span, 9),
                "flags": number(&span, 16),
                "kind": kind.get(usize::try_from(number(&span, 6)).ok()?)?,
                "name": text(&span, 5),
                "startTimeUnixNano": if is_now { "1".to_owned() } else { start.to_string() },
                "status": shown,
                "traceId": trace,
            }],
        }],
    }]}))
}

/// Compares the messages to NATS and to Pub/Sub.
fn compare_others(wanted: &Value, arrived: &[DeliveryMessage]) -> CaseJudgement {
    let nats = wanted.pointer("/nats/published").and_then(Value::as_array);
    let messages = wanted.get("pubsub").and_then(Value::as_array);
    let mut nats = nats.cloned().unwrap_or_default().into_iter();
    let mut messages = messages.cloned().unwrap_or_default().into_iter();
    for delivery_message in arrived {
        let (wanted, got) = match delivery_message {
            DeliveryMessage::Nats(message) => {
                if let Some(connect) = wanted.pointer("/nats/connect") {
                    compare_connect(connect, message)?;
                }
                // The server's error has no message.
                let Some(next) = nats.next() else { continue };
                (next, json!({"subject": message.subject, "data": lenient(&message.data)}))
            }
            DeliveryMessage::PubSub(message) => {
                let Some(next) = messages.next() else { continue };
                let attributes = (!message.attributes.is_empty()).then_some(&message.attributes);
                let topic = format!("projects/{}/topics/{}", message.project, message.topic);
                (
                    next,
                    json!({"attributes": attributes, "data": lenient(&message.data), "topic": topic}),
                )
            }
            DeliveryMessage::Http(_) | DeliveryMessage::EventHub(_) => continue,
        };
        let mut wanted = wanted;
        if let Some(text) = wanted["data"].as_str().map(str::to_owned) {
            wanted["data"] = lenient(text.as_bytes());
        }
        if wanted != got {
            return Err(mismatch(wanted, got));
        }
    }
    match nats.next().or_else(|| messages.next()) {
        Some(missing) => Err(mismatch(missing, "nothing more")),
        None => Ok(()),
    }
}

fn compare_connect(wanted: &Value, message: &notify::NatsMessage) -> CaseJudgement {
    let mut got = json!({"name": message.name});
    match &message.login {
        NatsLogin::None => {}
        NatsLogin::Password(name, password) => {
            got["user"] = json!(name);
            got["pass"] = json!(password);
        }
        NatsLogin::Key(key) => {
            got["sig"] = json!(key.sign(b"cmVjLW5vbmNl"));
            match key.jwt() {
                Some(jwt) => got["jwt"] = json!(jwt),
                None => got["nkey"] = json!(key.public()),
            }
        }
    }
    for name in ["name", "user", "pass", "sig", "jwt", "nkey"] {
        if wanted.get(name).unwrap_or(&Value::Null) != got.get(name).unwrap_or(&Value::Null) {
            return Err(mismatch(wanted, got));
        }
    }
    Ok(())
}
