//! Connects AWS's library to the HTTP client of all sources.
//!
//! So the certificate authority, the client certificate and the proxy of a spec also apply to S3. The program needs no second
//! TLS library.

use std::sync::Arc;

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use futures::{StreamExt as _, future};
use http_client::host_budget::SendError;
use http_client::{EgressRules, HostBudgets, HttpProxy, TlsConfig};
use url::Position;

use crate::bucket::credential_request_tracker::CredentialRequestTracker;

/// The largest response that is not an object. A listing of a thousand keys has a few hundred KiB.
const LARGEST_ANSWER: u64 = 16 << 20;

/// The HTTP connector of the AWS SDK, on the HTTP client of all sources, so that
/// the certificate authority, the client certificate and the proxy of a spec apply to it.
#[derive(Debug, Clone)]
pub(super) struct AwsSdkTransport {
    client: reqwest::Client,
    egress: EgressRules,
    budgets: Arc<HostBudgets>,
    /// The record of pending requests.
    waiting: CredentialRequestTracker,
}

impl AwsSdkTransport {
    pub(super) fn new(
        tls: &TlsConfig,
        proxy: Option<&HttpProxy>,
        egress: &EgressRules,
        budgets: Arc<HostBudgets>,
    ) -> Result<Self, http_client::Error> {
        let client = http_client::client_undecoded(tls, proxy, egress)?;
        Ok(Self {
            client,
            egress: egress.clone(),
            budgets,
            waiting: CredentialRequestTracker::default(),
        })
    }

    /// The same transport, which also records in `waiting` the server that it asks.
    pub(super) fn telling(self, waiting: &CredentialRequestTracker) -> Self {
        Self { waiting: waiting.clone(), ..self }
    }
}

impl HttpClient for AwsSdkTransport {
    fn http_connector(
        &self,
        _settings: &HttpConnectorSettings,
        _components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for AwsSdkTransport {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let Self { client, egress, budgets, waiting } = self.clone();
        HttpConnectorFuture::new(async move {
            let request = converted(request)?;
            let is_object = request.method() == reqwest::Method::GET
                && request
                    .url()
                    .query_pairs()
                    .any(|(key, value)| key == "x-id" && value == "GetObject");
            let who = request.url()[Position::BeforeHost..Position::AfterPort].to_owned();
            egress.admits(request.url()).map_err(|refused| ConnectorError::user(refused.into()))?;
            waiting.ask(who.clone());
            let answer = budgets.execute(&client, request).await;
            let answer = answer.map_err(|error| unanswered(who, error))?;
            // The limits of objects are checked elsewhere, where their names are known.
            Ok(answered(answer, if is_object { u64::MAX } else { LARGEST_ANSWER }))
        })
    }
}

fn converted(request: HttpRequest) -> Result<reqwest::Request, ConnectorError> {
    let request = request.try_into_http1x().map_err(|e| ConnectorError::user(e.into()))?;
    let (parts, body) = request.into_parts();
    // Uploads are in memory: forms of a few hundred bytes, and audit records.
    let body = body.bytes().map(<[u8]>::to_vec).unwrap_or_default();
    let request = http::Request::from_parts(parts, body);
    reqwest::Request::try_from(request).map_err(|e| ConnectorError::user(e.into()))
}

/// The error for a request without an answer. The library tries a request again that never arrived.
fn unanswered(who: String, error: SendError) -> ConnectorError {
    let error = match error {
        SendError::Busy(busy) => return ConnectorError::user(busy.into()),
        SendError::Transport(error) => error,
    };
    let why = http_client::root_cause(&error);
    let is_distrust = http_client::is_distrust(&error);
    let what = S3ConnectionError { who, why, is_distrust };
    // Another attempt does not help against an untrusted certificate or a wrong password.
    if what.is_distrust || http_client::is_refusal_of_proxy(&what.why) {
        return ConnectorError::user(what.into());
    }
    if error.is_timeout() {
        return ConnectorError::timeout(what.into());
    }
    ConnectorError::io(what.into())
}

/// The reason why the server did not answer.
#[derive(Debug, thiserror::Error)]
#[error("cannot connect to {who}: {why}")]
pub(super) struct S3ConnectionError {
    who: String,
    pub(super) why: String,
    /// The server's certificate is not trusted.
    pub(super) is_distrust: bool,
}

fn answered(answer: reqwest::Response, limit: u64) -> HttpResponse {
    let status = answer.status();
    let headers = answer.headers().clone();
    let mut left = limit;
    let body = answer.bytes_stream().map(move |chunk| {
        let chunk = chunk.map_err(|error| std::io::Error::other(error.without_url()))?;
        left = left.checked_sub(chunk.len() as u64).ok_or_else(|| {
            std::io::Error::other(format!("it is larger than {LARGEST_ANSWER} bytes"))
        })?;
        Ok::<_, std::io::Error>(chunk)
    });
    // An error ends the body. Otherwise the library would ask for more.
    let body = body.scan(false, |has_failed, chunk| {
        let is_over = std::mem::replace(has_failed, chunk.is_err());
        future::ready((!is_over).then_some(chunk))
    });
    let body = SdkBody::from_body_1_x(reqwest::Body::wrap_stream(body));
    let mut response = http::Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    // Headers that are not UTF-8 cannot be passed on. Without them, the library makes its error from the status.
    retain_text(response.headers_mut());
    HttpResponse::try_from(response)
        .unwrap_or_else(|_unusable| HttpResponse::new(status.into(), SdkBody::empty()))
}

fn retain_text(headers: &mut http::HeaderMap) {
    let is_text = |value: &http::HeaderValue| str::from_utf8(value.as_bytes()).is_ok();
    let unusable = headers.iter().filter(|(_, value)| !is_text(value));
    let unusable: Vec<_> = unusable.map(|(name, _)| name.clone()).collect();
    for name in unusable {
        headers.remove(name);
    }
}
