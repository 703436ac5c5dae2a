//! Type `sentry`: sends a transaction for information or an event for errors, in an envelope.
//!
//! Source of the semantics: sentry-go 0.46.2.

use golang::time::{GoTime, GoTimeZone, RFC3339_NANO};
use golang::url::GoUrl;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::event::FluxEvent;
use crate::event_delivery::{ProviderNextAction, ProviderRequest};
use crate::provider_options::ProviderOptions;

/// The address of a Sentry project for envelopes, and its key.
struct SentryDsn {
    envelopes: String,
    key: String,
    /// The secret key, which Sentry has deprecated. It is sent if it is set.
    secret: Option<String>,
}

fn dsn(text: &str) -> Result<SentryDsn, String> {
    let refuse = |reason: &str| Err(format!("[Sentry] DsnParseError: {reason}"));
    let url = match GoUrl::parse(text.as_bytes()) {
        Ok(url) => url,
        Err(error) => return refuse(&format!("invalid url: {error}")),
    };
    if !matches!(&*url.scheme, b"http" | b"https") {
        return refuse("invalid scheme");
    }
    let key = url.user.as_ref().map(|user| String::from_utf8_lossy(&user.name).into_owned());
    let Some(key) = key.filter(|key| !key.is_empty()) else { return refuse("empty username") };
    let secret = url.user.as_ref().and_then(|user| user.password.as_deref());
    let secret = secret.map(|secret| String::from_utf8_lossy(secret).into_owned());
    if url.hostname().is_empty() {
        return refuse("empty host");
    }
    let path = String::from_utf8_lossy(&url.path).into_owned();
    if path.is_empty() || path == "/" {
        return refuse("empty project id");
    }
    let (folder, project) = path.rsplit_once('/').unwrap_or(("", &path));
    if project.is_empty() {
        return refuse("empty project id");
    }
    let lossy = String::from_utf8_lossy;
    let default: &[u8] = if url.scheme == b"https" { b":443" } else { b":80" };
    let host = url.host.strip_suffix(default).unwrap_or(&url.host);
    let scheme = lossy(&url.scheme);
    let host = lossy(host);
    Ok(SentryDsn {
        envelopes: format!("{scheme}://{host}{folder}/api/{project}/envelope/"),
        key,
        secret,
    })
}

pub(super) fn flow(options: ProviderOptions, event: FluxEvent) -> ProviderNextAction {
    if options.url.is_empty() {
        return ProviderNextAction::refused("DSN cannot be empty");
    }
    let dsn_text = options.url.clone();
    let dsn = match dsn(&dsn_text) {
        Ok(dsn) => dsn,
        Err(error) => return ProviderNextAction::refused(error),
    };
    let id = hex::encode(&Sha256::digest(event.to_json())[..16]);
    let now = event.timestamp.map(|seconds| time(seconds, event.nanoseconds));
    let mut item = match &*event.severity {
        "info" => transaction(&event, &id, now.as_deref()),
        "error" => error(&event, now.as_deref()),
        // Parity(flux): it captures nothing, which its client reports.
        _ => json!({
            "contexts": {},
            "level": "error",
            "timestamp": time(options.now, 0),
            "exception": [{
                "type": "sentry.usageError",
                "value": "CaptureEvent called with nil event",
            }],
        }),
    };
    let kind = if event.severity == "info" { "transaction" } else { "event" };
    item["event_id"] = json!(id);
    item["platform"] = json!("go");
    if item.get("timestamp").is_none() {
        item["timestamp"] = json!(time(options.now, 0));
    }
    if !options.channel.is_empty() {
        item["environment"] = json!(options.channel);
    }
    let body = item.to_string();
    let envelope = json!({"event_id": id, "sent_at": time(options.now, 0), "dsn": dsn_text});
    let header = json!({"type": kind, "length": body.len()});
    let mut auth =
        format!("Sentry sentry_version=7, sentry_client=windlass/1, sentry_key={}", dsn.key);
    if let Some(secret) = dsn.secret.filter(|secret| !secret.is_empty()) {
        auth.push_str(", sentry_secret=");
        auth.push_str(&secret);
    }
    ProviderRequest::new("POST", dsn.envelopes)
        .header("Content-Type", "application/x-sentry-envelope")
        .header("X-Sentry-Auth", auth)
        .body(format!("{envelope}\n{header}\n{body}\n").into_bytes())
        .tls(options.tls)
        // Parity(flux): whether it arrived is not reported.
        .send(|_| ProviderNextAction::Done)
}

fn time(seconds: i64, nanoseconds: u32) -> String {
    GoTime::from_unix(seconds, nanoseconds.into(), GoTimeZone::Utc).format(RFC3339_NANO)
}

fn transaction(event: &FluxEvent, id: &str, now: Option<&str>) -> Value {
    let object = &event.object;
    let own = [
        ("flux_involved_object_kind", &object.kind),
        ("flux_involved_object_namespace", &object.namespace),
        ("flux_involved_object_name", &object.name),
        ("flux_reporting_controller", &event.reporting_controller),
        ("flux_reporting_instance", &event.reporting_instance),
        ("flux_reason", &event.reason),
    ];
    let mut tags: Map<String, Value> =
        own.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    tags.extend(event.metadata.iter().map(|(key, value)| (key.clone(), json!(value))));
    let trace = json!({"trace_id": id, "span_id": &id[..16], "op": "event"});
    let mut span = trace.clone();
    span["origin"] = json!("manual");
    span["tags"] = Value::Object(tags.clone());
    let mut item = json!({
        "type": "transaction",
        "level": "info",
        "transaction": summary(event),
        "contexts": {"trace": trace},
        "tags": tags,
    });
    // Without a time of the event, only the whole says when.
    if let Some(now) = now {
        for part in [&mut span, &mut item] {
            part["timestamp"] = json!(now);
            part["start_timestamp"] = json!(now);
        }
    }
    item["spans"] = json!([span]);
    set_message(&mut item, event);
    item
}

fn error(event: &FluxEvent, now: Option<&str>) -> Value {
    let mut item = json!({"level": "error", "transaction": summary(event)});
    set_message(&mut item, event);
    if let Some(now) = now {
        item["timestamp"] = json!(now);
    }
    if !event.reporting_controller.is_empty() {
        item["server_name"] = json!(event.reporting_controller);
    }
    item["contexts"] = json!({"metadata": event.metadata});
    item
}

fn set_message(item: &mut Value, event: &FluxEvent) {
    if !event.message.is_empty() {
        item["message"] = json!(event.message);
    }
}

fn summary(event: &FluxEvent) -> String {
    let object = &event.object;
    format!("{}: {}/{}", object.kind, object.namespace, object.name)
}
