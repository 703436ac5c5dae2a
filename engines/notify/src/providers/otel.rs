//! Type `otel`: sends a span over OTLP as protobuf.
//!
//! Source of the semantics: OpenTelemetry for Go 1.44.0. The messages are those of `opentelemetry-proto` 1.x, reduced to the
//! fields in use.

use golang::url::{GoUrl, UrlUserInfo};
use prost::Message;
use sha2::{Digest as _, Sha256};

use crate::event::FluxEvent;
use crate::event_delivery::{ProviderNextAction, ProviderRequest, basic};
use crate::provider_options::ProviderOptions;

#[derive(Clone, PartialEq, Message)]
struct OtelExportRequest {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<OtelResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct OtelResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<OtelResource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<OtelScopeSpans>,
    #[prost(string, tag = "3")]
    schema_url: String,
}

#[derive(Clone, PartialEq, Message)]
struct OtelResource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<OtelKeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct OtelScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<OtelScope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<OtelSpan>,
}

#[derive(Clone, PartialEq, Message)]
struct OtelScope {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct OtelSpan {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start: u64,
    #[prost(fixed64, tag = "8")]
    end: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<OtelKeyValue>,
    #[prost(message, optional, tag = "15")]
    status: Option<OtelSpanStatus>,
    #[prost(fixed32, tag = "16")]
    flags: u32,
}

#[derive(Clone, PartialEq, Message)]
struct OtelSpanStatus {
    #[prost(string, tag = "2")]
    message: String,
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct OtelKeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "OtelAnyValue", tags = "1")]
    value: Option<OtelAnyValue>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum OtelAnyValue {
    #[prost(string, tag = "1")]
    String(String),
}

fn pair(key: &str, value: &str) -> OtelKeyValue {
    let value = AnyValue { value: Some(OtelAnyValue::String(value.to_owned())) };
    OtelKeyValue { key: key.to_owned(), value: Some(value) }
}

/// The flags of a span: it is sampled, and its parent is remote.
const SPAN_FLAGS: u32 = 0x301;
const SPAN_KIND_INTERNAL: i32 = 1;
const STATUS_CODE_OK: i32 = 1;
const STATUS_CODE_ERROR: i32 = 2;

pub(super) fn flow(mut options: ProviderOptions, event: FluxEvent) -> ProviderNextAction {
    if options.token.is_empty() {
        options.token.clone_from(&options.password);
    }
    let Some(url) = endpoint(&options.url) else { return ProviderNextAction::Done };
    login(&mut options);
    let proxy = match proxy(&options) {
        Ok(proxy) => proxy,
        Err(error) => return ProviderNextAction::refused(error),
    };
    // Repositories of charts have no traces.
    if event.object.kind == "HelmRepository" {
        return ProviderNextAction::Done;
    }
    let body = spans(&options, &event).encode_to_vec();
    let mut request = ProviderRequest::new("POST", url)
        .header("Content-Type", "application/x-protobuf")
        .body(body)
        .proxy(&proxy)
        .tls(options.tls.clone());
    for (name, value) in &options.headers {
        request.set(name, value.clone());
    }
    // Parity(flux): whether it arrived is not reported.
    request.send(|_| ProviderNextAction::Done)
}

/// The address to which spans are sent; `None` if the configured address is not valid.
///
/// Differs(flux): in that case Flux sends them to a port of its own host, where no collector listens.
fn endpoint(address: &str) -> Option<String> {
    let mut url = GoUrl::parse(address.as_bytes()).ok()?;
    if url.path.is_empty() || url.path == b"/" {
        url.path = b"/v1/traces".to_vec();
    }
    if url.host.is_empty() {
        url.host = b"localhost:4318".to_vec();
    }
    url.scheme = if url.scheme == b"http" { b"http".to_vec() } else { b"https".to_vec() };
    (url.query, url.fragment) = (Vec::new(), Vec::new());
    (url.opaque, url.user) = (Vec::new(), None);
    Some(String::from_utf8_lossy(&url.to_bytes()).into_owned())
}

/// Parity(flux): without headers Flux does not log in.
fn login(options: &mut ProviderOptions) {
    let is_set = options.headers.get("Authorization").is_some_and(|it| !it.is_empty());
    if options.headers.is_empty() || is_set {
        return;
    }
    let value = if options.username.is_empty() {
        format!("Bearer {}", options.token)
    } else if options.token.is_empty() {
        return;
    } else {
        basic(&options.username, &options.token)
    };
    options.headers.insert("Authorization".to_owned(), value);
}

/// Parity(flux): name and password are for the proxy as well.
fn proxy(options: &ProviderOptions) -> Result<String, String> {
    if options.proxy.is_empty() {
        return Ok(String::new());
    }
    let mut url = GoUrl::parse(options.proxy.as_bytes())
        .map_err(|error| format!("failed to proxy URL - {}: {error}", options.proxy))?;
    if !options.username.is_empty() && !options.token.is_empty() {
        let name = options.username.clone().into_bytes();
        url.user = Some(UrlUserInfo { name, password: Some(options.token.clone().into_bytes()) });
    }
    Ok(String::from_utf8_lossy(&url.to_bytes()).into_owned())
}

fn spans(options: &ProviderOptions, event: &FluxEvent) -> OtelExportRequest {
    let alert = &options.alert;
    let object = &event.object;
    let seconds = event.timestamp.unwrap_or(options.now);
    let start = u64::try_from(seconds).unwrap_or_default().saturating_mul(1_000_000_000);
    let start = start.saturating_add(u64::from(event.nanoseconds));
    let now = u64::try_from(options.now).unwrap_or_default().saturating_mul(1_000_000_000);
    let identity = format!("{}:{}", alert.uid, revision(event));
    let mut attributes = vec![
        pair("object.uid", &object.uid),
        pair("object.kind", &object.kind),
        pair("object.name", &object.name),
        pair("object.namespace", &object.namespace),
    ];
    attributes.extend(event.metadata.iter().map(|(key, value)| pair(key, value)));
    let status = if event.is_error() {
        OtelSpanStatus { message: event.message.clone(), code: STATUS_CODE_ERROR }
    } else {
        OtelSpanStatus { message: String::new(), code: STATUS_CODE_OK }
    };
    let span = OtelSpan {
        trace_id: Sha256::digest(identity)[..16].to_vec(),
        span_id: Sha256::digest(event.to_json())[..8].to_vec(),
        name: format!("{}: {}/{}", object.kind, object.namespace, object.name),
        kind: SPAN_KIND_INTERNAL,
        start,
        end: start.max(now),
        attributes,
        status: Some(status),
        flags: SPAN_FLAGS,
    };
    let scope = OtelScope { name: "flux:notification-controller".to_owned() };
    let attributes = vec![
        pair("service.instance.id", &alert.uid),
        pair("service.name", &format!("{}/{}", alert.namespace, alert.name)),
        pair("service.namespace", &alert.namespace),
    ];
    OtelExportRequest {
        resource_spans: vec![OtelResourceSpans {
            resource: Some(OtelResource { attributes }),
            scope_spans: vec![OtelScopeSpans { scope: Some(scope), spans: vec![span] }],
            schema_url: "https://opentelemetry.io/schemas/1.34.0".to_owned(),
        }],
    }
}

/// The revision that all events of a deployment share. Together with the Alert, it identifies their trace.
fn revision(event: &FluxEvent) -> String {
    match (event.meta("oci-digest"), event.meta("app-version")) {
        (Some(digest), Some(version)) => format!("{version}@{digest}"),
        _ => event.meta("revision").unwrap_or("unknown").to_owned(),
    }
}
