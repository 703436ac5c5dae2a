//! Logins at Google and Azure. The library `object_store` requests the tokens with windlass's HTTP client.
//!
//! The HTTP client is a separate one. Neither the proxy nor the certificate authority of a spec may come between windlass and
//! the credentials of its machine. Besides, tokens come from other servers than the store.

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http_client::{EgressRules, TlsConfig};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use object_store::{BackoffConfig, ClientOptions, RetryConfig};
use serde::Deserialize;
use url::{Position, form_urlencoded};

use super::credential_request_tracker::CredentialRequestTracker;
use super::request_context::printable;

/// The largest answer with a token.
const LARGEST_ANSWER: usize = 1 << 20;

/// The time limit for one answer.
const METADATA_LIMIT: Duration = Duration::from_secs(5);
const TOKEN_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The longest lifetime of a token, in seconds. The issuing server is not trusted to send a sane number.
const LONGEST_LIFE: u64 = 30 * 24 * 60 * 60;

/// The audience that the library requests for Azure's tokens.
const STORAGE: &str = "https%3A%2F%2Fstorage.azure.com";

/// The reason why there is no token provider.
#[derive(Debug)]
pub(crate) enum NoTokenProviderError {
    /// The given credentials cannot be used. The text begins with the name of a key, or is about all of them.
    Secret(String),
    /// The environment has no credentials.
    Environment(String),
    /// There is no HTTP client.
    Client(http_client::Error),
}

impl From<http_client::Error> for NoTokenProviderError {
    fn from(error: http_client::Error) -> Self {
        Self::Client(error)
    }
}

/// The HTTP client with which `object_store` requests tokens from Google and Azure.
/// It uses neither the proxy nor the certificate authority of a spec.
#[derive(Debug, Clone)]
pub(super) struct TokenHttpClient {
    client: reqwest::Client,
    egress: EgressRules,
    /// The record of pending requests.
    waiting: CredentialRequestTracker,
    /// The Azure service for which tokens are requested, if it is not the store.
    audience: Option<&'static str>,
}

impl TokenHttpClient {
    /// A client for services that the environment names. It may reach the machine's metadata server, whose address a spec must
    /// not name.
    pub(super) fn of_machine(
        waiting: &CredentialRequestTracker,
    ) -> Result<Self, http_client::Error> {
        Self::within(&EgressRules::Anywhere, waiting)
    }

    /// A client for services that a Secret names.
    pub(super) fn of_secret(
        egress: &EgressRules,
        waiting: &CredentialRequestTracker,
    ) -> Result<Self, http_client::Error> {
        Self::within(egress, waiting)
    }

    fn within(
        egress: &EgressRules,
        waiting: &CredentialRequestTracker,
    ) -> Result<Self, http_client::Error> {
        let client = http_client::client_within(&TlsConfig::default(), None, egress)?;
        Ok(Self { client, egress: egress.clone(), waiting: waiting.clone(), audience: None })
    }

    /// A client for tokens of another Azure service, which the library does not know. `audience` is the URL of all its
    /// resources.
    pub(super) fn for_audience(self, audience: Option<&'static str>) -> Self {
        Self { audience, ..self }
    }

    /// The token request for the right service.
    fn addressed(&self, request: HttpRequest) -> Result<http::Request<Vec<u8>>, HttpError> {
        let (mut parts, body) = request.into_parts();
        let mut body = body.as_bytes().map(|body| body.to_vec()).unwrap_or_default();
        let Some(audience) = self.audience else {
            return Ok(http::Request::from_parts(parts, body));
        };
        let wrong = || {
            let why = "the request for a token does not name the service that it is for".to_owned();
            HttpError::new(HttpErrorKind::Unknown, UnusableTokenError(why))
        };
        let audience = form_urlencoded::byte_serialize(audience.as_bytes()).collect::<String>();
        let uri = parts.uri.to_string();
        let form = String::from_utf8(body).map_err(|_unread| wrong())?;
        if !uri.contains(STORAGE) && !form.contains(STORAGE) {
            return Err(wrong());
        }
        parts.uri = uri.replace(STORAGE, &audience).parse().map_err(|_unread| wrong())?;
        body = form.replace(STORAGE, &audience).into_bytes();
        // The header is about the former body. The client sets the right one.
        parts.headers.remove(http::header::CONTENT_LENGTH);
        Ok(http::Request::from_parts(parts, body))
    }

    async fn ask(self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let request = self.addressed(request)?;
        let request = reqwest::Request::try_from(request)
            .map_err(|error| HttpError::new(HttpErrorKind::Unknown, error.without_url()))?;
        self.egress
            .admits(request.url())
            .map_err(|refused| HttpError::new(HttpErrorKind::Unknown, refused))?;
        let host = request.url()[Position::BeforeHost..Position::AfterPort].to_owned();
        self.waiting.ask(host.clone());
        // The metadata server is on the local network and has no TLS. On machines without one, no server may answer at all.
        let limit =
            if request.url().scheme() == "http" { METADATA_LIMIT } else { TOKEN_REQUEST_TIMEOUT };
        let answered = tokio::time::timeout(limit, self.answered(request, &host)).await;
        answered.map_err(|_elapsed| {
            let why = format!("{host} did not respond within {limit:?}");
            HttpError::new(HttpErrorKind::Timeout, UnusableTokenError(why))
        })?
    }

    async fn answered(
        &self,
        request: reqwest::Request,
        host: &str,
    ) -> Result<HttpResponse, HttpError> {
        let failed = |error: reqwest::Error| {
            let kind = match error.is_connect() {
                true => HttpErrorKind::Connect,
                false => HttpErrorKind::Interrupted,
            };
            let why = format!("{host}: {}", http_client::root_cause(&error.without_url()));
            HttpError::new(kind, UnusableTokenError(why))
        };
        let mut answer = self.client.execute(request).await.map_err(failed)?;
        let mut head = http::Response::new(());
        *head.status_mut() = answer.status();
        *head.headers_mut() = std::mem::take(answer.headers_mut());
        let mut whole = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(failed)? {
            if whole.len() + chunk.len() > LARGEST_ANSWER {
                let why = format!("the response is larger than {LARGEST_ANSWER} bytes");
                return Err(HttpError::new(HttpErrorKind::Decode, UnusableTokenError(why)));
            }
            whole.extend_from_slice(&chunk);
        }
        // Added to a clock, a larger number would be no time at all.
        let life =
            serde_json::from_slice::<TokenLifetime>(&whole).ok().and_then(|life| life.expires_in);
        if life.is_some_and(|life| life > LONGEST_LIFE) {
            let why = "the token would never expire".to_owned();
            return Err(HttpError::new(HttpErrorKind::Decode, UnusableTokenError(why)));
        }
        Ok(head.map(|()| whole.into()))
    }
}

/// The lifetime of a token.
#[derive(Deserialize)]
struct TokenLifetime {
    expires_in: Option<u64>,
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct UnusableTokenError(String);

impl HttpService for TokenHttpClient {
    // As `async_trait` writes it.
    fn call<'life0, 'async_trait>(
        &'life0 self,
        request: HttpRequest,
    ) -> BoxFuture<'async_trait, Result<HttpResponse, HttpError>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        self.clone().ask(request).boxed()
    }
}

impl HttpConnector for TokenHttpClient {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

/// The reason why there is no token, in a text that is the same at each attempt.
pub(crate) fn why(error: &object_store::Error) -> String {
    #[derive(Deserialize)]
    struct CloudLoginErrorBody {
        error_description: String,
    }
    let said = http_client::root_cause(error);
    let Some((before, body)) = said.find('{').map(|at| said.split_at(at)) else {
        return printable(&said);
    };
    let refusal =
        serde_json::from_str::<CloudLoginErrorBody>(body).map(|refusal| refusal.error_description);
    // The rest of the text identifies this one request, so it is left out.
    let text = refusal.unwrap_or_default();
    let text = text.split(['\r', '\n']).next().unwrap_or_default();
    let text = text.split(" Trace ID:").next().unwrap_or_default();
    printable(format!("{before}{text}").trim_end_matches([':', ' ']))
}

/// How a failed request for a token is repeated: at most twice, beginning after 100 ms, and only within 30 s.
pub(super) fn retries() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            ..BackoffConfig::default()
        },
        max_retries: 2,
        retry_timeout: Duration::from_secs(30),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addressed(
        audience: Option<&'static str>,
        uri: &str,
        body: &str,
    ) -> Option<(String, String)> {
        let login = TokenHttpClient::of_machine(&CredentialRequestTracker::default())
            .unwrap()
            .for_audience(audience);
        let request = http::Request::builder().uri(uri).header("content-length", "1");
        let request = request.body(body.to_owned().into()).unwrap();
        let (parts, body) = login.addressed(request).ok()?.into_parts();
        assert_eq!(parts.headers.is_empty(), audience.is_some());
        Some((parts.uri.to_string(), String::from_utf8(body).unwrap()))
    }

    #[test]
    fn tokens_are_for_the_service_that_is_asked_with_them_and_else_none_are_asked_for() {
        let vault = Some("https://vault.azure.net");
        let form = "client_id=c&scope=https%3A%2F%2Fstorage.azure.com%2F.default";
        let given = |uri: &str, body: &str| Some((uri.to_owned(), body.to_owned()));
        let login = "https://login.example/t/oauth2/v2.0/token";
        let wanted = "client_id=c&scope=https%3A%2F%2Fvault.azure.net%2F.default";
        assert_eq!(addressed(vault, login, form), given(login, wanted));
        assert_eq!(addressed(None, login, form), given(login, form));
        let of_machine =
            |of: &str| format!("http://169.254.169.254/token?resource={of}&client_id=c");
        let storage = of_machine(STORAGE);
        let vaults = of_machine("https%3A%2F%2Fvault.azure.net");
        assert_eq!(addressed(vault, &storage, ""), given(&vaults, ""));
        assert_eq!(addressed(vault, login, "scope=other"), None);
    }
}
