//! Sends the HTTP requests that an engine wrote for servers that specs name.
//!
//! Elsewhere: the requests and the conclusions from answers (`engines/notify`), which servers are allowed
//! (`egress_policy.rs`), and time limits and repetitions (the caller).

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use http_client::{ClientCertificateAndKey, HttpClientCache, HttpProxy, TlsConfig, refusal};
use notify::{HttpResponse, MAX_ANSWER, MessageSendResult, ProviderRequest};
use objects::RedactedValue;
use url::Url;

use windlass_cluster::error::chain;

/// The longest pause that a server may ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// Sends a request and returns the answer, of which only [`MAX_ANSWER`] bytes are read.
///
/// Errors do not contain the URL, which may be secret. The error for a forbidden server says that a repetition is useless.
pub async fn exchange(clients: &HttpClientCache, request: &ProviderRequest) -> MessageSendResult {
    let never = |text: String| (text, false);
    let url = Url::parse(&request.url).map_err(|error| never(format!("invalid URL: {error}")))?;
    let tls = request.tls.as_deref().map(tls).unwrap_or_default();
    let proxy = request.proxy.as_deref().map(proxy).transpose().map_err(never)?;
    let method =
        Method::from_bytes(request.method.as_bytes()).map_err(|error| never(error.to_string()))?;
    let headers = headers(request).map_err(never)?;
    let http_message = HttpMessage { method, url, headers, body: request.body.clone() };
    send(clients, &tls, proxy.as_ref(), http_message, MAX_ANSWER).await
}

/// The request itself, without the settings for reaching the server.
pub(crate) struct HttpMessage {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// Sends a request and returns the answer, with a limit on its length. Errors are as those of [`exchange`].
pub(crate) async fn send(
    clients: &HttpClientCache,
    tls: &TlsConfig,
    proxy: Option<&HttpProxy>,
    HttpMessage { method, url, headers, body }: HttpMessage,
    most: usize,
) -> MessageSendResult {
    let never = |text: String| (text, false);
    clients.egress().admits(&url).map_err(|refused| never(refused.to_string()))?;
    let client = clients.client(tls, proxy).map_err(|error| never(error.to_string()))?;
    let sent = client.request(method, url).headers(headers).body(body);
    let mut answer = sent.send().await.map_err(|error| failed(&error.without_url()))?;
    let headers = answer.headers().iter();
    let headers = headers.map(|(name, value)| {
        (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    });
    let mut read = HttpResponse {
        status: answer.status().as_u16(),
        headers: headers.collect(),
        body: Vec::new(),
    };
    while let Some(piece) = answer.chunk().await.map_err(|error| failed(&error.without_url()))? {
        let room = most - read.body.len();
        read.body.extend_from_slice(piece.get(..room).unwrap_or(&piece));
        if read.body.len() >= most {
            break;
        }
    }
    Ok(read)
}

/// The text of an error for a user, and whether a repetition may help.
fn failed(error: &(dyn Error + 'static)) -> (String, bool) {
    match refusal(error) {
        Some(refused) => (refused.to_string(), false),
        None => (error.source().map_or_else(|| error.to_string(), chain), true),
    }
}

fn tls(of: &notify::TlsSettings) -> TlsConfig {
    let identity = of.identity.as_ref().map(|(certificate, key)| ClientCertificateAndKey {
        certificate: certificate.clone(),
        key: RedactedValue::new(key.clone()),
    });
    TlsConfig { ca: of.authorities.clone(), identity }
}

fn proxy(address: &str) -> Result<HttpProxy, String> {
    let data = BTreeMap::from([("address".to_owned(), address.as_bytes().to_vec())]);
    HttpProxy::from_secret(&data).map_err(|error| error.to_string())
}

fn headers(request: &ProviderRequest) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in &request.headers {
        let invalid = || format!("invalid header `{name}`");
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?;
        let mut value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| invalid())?;
        value.set_sensitive(true);
        headers.insert(key, value);
    }
    // The client sets these headers itself. The host follows from the URL, and the length from the body.
    for name in [http::header::HOST, http::header::CONTENT_LENGTH] {
        headers.remove(name);
    }
    Ok(headers)
}

/// How long a server wants no requests, from its header `Retry-After`. The header has seconds or a date. `None` if it is
/// missing or cannot be parsed.
pub fn retry_after(answer: &HttpResponse, now: jiff::Timestamp) -> Option<Duration> {
    let mut headers = answer.headers.iter();
    let (_, value) = headers.find(|(name, _)| name.eq_ignore_ascii_case("retry-after"))?;
    let value = value.trim();
    let asked = match value.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let at = jiff::fmt::rfc2822::parse(value).ok()?.timestamp();
            Duration::try_from(at.duration_since(now)).unwrap_or_default()
        }
    };
    Some(asked.min(LONGEST_PAUSE))
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::http::StatusCode;
    use axum::http::header::LOCATION;
    use axum::routing::{get, post};
    use http_client::{EgressDenyList, EgressRules};
    use notify::{Alert, DeliveryMessage, DeliveryStep, EventDispatch, FluxEvent, Provider};
    use serde_json::json;

    use super::*;

    /// The first request for an event to a service at this address.
    fn request(address: &str) -> ProviderRequest {
        let provider =
            json!({"metadata": {"name": "p"}, "spec": {"type": "generic", "address": address}});
        let provider = Provider::new(provider).unwrap();
        let alert = Alert::new(json!({})).unwrap();
        let event = FluxEvent { message: "hello".to_owned(), ..FluxEvent::default() };
        let mut dispatch = EventDispatch::new(event, &provider, &alert, 0, &|_, _| None);
        match dispatch.delivery.start() {
            DeliveryStep::Send(_, DeliveryMessage::Http(request)) => *request,
            other => panic!("{other:?}"),
        }
    }

    async fn server() -> String {
        let echo = |body: String| async move { (StatusCode::ACCEPTED, [("x-seen", "yes")], body) };
        let elsewhere = || async { (StatusCode::FOUND, [(LOCATION, "http://127.0.0.1:1/")]) };
        let endless = || async { vec![b'x'; MAX_ANSWER + 1000] };
        let router = Router::new()
            .route("/echo", post(echo))
            .route("/elsewhere", post(elsewhere))
            .route("/endless", get(endless).post(endless));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        address
    }

    #[tokio::test]
    async fn a_request_is_sent_as_it_is_written_and_the_answer_is_handed_back() {
        let address = server().await;
        let clients = HttpClientCache::within(EgressRules::with_loopback());
        let answer = exchange(&clients, &request(&format!("{address}/echo"))).await.unwrap();
        assert_eq!(answer.status, 202);
        assert!(answer.headers.contains(&("x-seen".to_owned(), "yes".to_owned())));
        let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(body["message"], "hello");
        // The engine decides whether to follow a redirect. The length of an answer is limited.
        let moved = exchange(&clients, &request(&format!("{address}/elsewhere"))).await.unwrap();
        assert_eq!(moved.status, 302);
        let long = exchange(&clients, &request(&format!("{address}/endless"))).await.unwrap();
        assert_eq!(long.body.len(), MAX_ANSWER);
    }

    #[tokio::test]
    async fn a_server_that_is_gone_may_be_back_and_its_url_is_not_shown() {
        let clients = HttpClientCache::within(EgressRules::with_loopback());
        let request = request("http://127.0.0.1:1/services/hunter2");
        let (text, may_help) = exchange(&clients, &request).await.unwrap_err();
        assert!(may_help && !text.contains("hunter2"), "{text}");
    }

    #[tokio::test]
    async fn a_server_that_no_spec_may_name_is_not_asked_again() {
        let address = server().await;
        let clients = HttpClientCache::within(EgressRules::Named(EgressDenyList::default().into()));
        let by_name = address.replace("127.0.0.1", "localhost");
        for address in [address, by_name, "http://169.254.169.254/latest".to_owned()] {
            let refused = exchange(&clients, &request(&format!("{address}/echo"))).await;
            let (text, may_help) = refused.unwrap_err();
            assert!(!may_help && text.contains("not allowed"), "{text}");
        }
    }

    #[test]
    fn a_server_says_when_to_come_back_in_seconds_or_by_a_date() {
        let now = "2026-11-24T10:00:00Z".parse().unwrap();
        let asked = |value: &str| {
            let headers = vec![("Retry-After".to_owned(), value.to_owned())];
            retry_after(&HttpResponse { status: 503, headers, body: Vec::new() }, now)
        };
        assert_eq!(asked("7"), Some(Duration::from_secs(7)));
        assert_eq!(asked("Tue, 24 Nov 2026 10:00:30 GMT"), Some(Duration::from_secs(30)));
        assert_eq!(asked("Tue, 24 Nov 2026 09:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(asked("99999999"), Some(LONGEST_PAUSE));
        assert_eq!(asked("soon"), None);
        assert_eq!(retry_after(&HttpResponse::default(), now), None);
    }
}
