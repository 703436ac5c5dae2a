//! Logins at Google and Azure: `object_store` knows where tokens come from, and asks for them with our HTTP client.
//!
//! It is a client of its own: neither the proxy nor the authority of a spec may come between windlass and the credentials of its
//! machine, and tokens are asked for at other servers than the store.

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use object_store::{BackoffConfig, ClientOptions, RetryConfig};
use serde::Deserialize;
use url::Position;

use super::Error;
use super::asked::printable;
use super::waiting::Waiting;
use crate::http::{self, Egress, Tls};

/// The largest answer with a token.
const LARGEST_ANSWER: usize = 1 << 20;

/// How long one answer may take.
const METADATA_LIMIT: Duration = Duration::from_secs(5);
const ELSEWHERE: Duration = Duration::from_secs(30);

/// The longest life of a token, in seconds. Whoever gives it out may not be who should, and says when by a number.
const LONGEST_LIFE: u64 = 30 * 24 * 60 * 60;

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct Login {
    client: reqwest::Client,
    egress: Egress,
    /// Where it is said who is asked.
    waiting: Waiting,
}

impl Login {
    /// For what the environment names: the metadata of the machine are at an address that nobody else may name.
    pub(super) fn of_machine(waiting: &Waiting) -> Result<Self, Error> {
        Self::within(&Egress::Anywhere, waiting)
    }

    /// For what a Secret names.
    pub(super) fn of_secret(egress: &Egress, waiting: &Waiting) -> Result<Self, Error> {
        Self::within(egress, waiting)
    }

    fn within(egress: &Egress, waiting: &Waiting) -> Result<Self, Error> {
        let client = http::client_within(&Tls::default(), None, egress)?;
        Ok(Self { client, egress: egress.clone(), waiting: waiting.clone() })
    }

    async fn ask(self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let body = body.as_bytes().map(|body| body.to_vec()).unwrap_or_default();
        let request = ::http::Request::from_parts(parts, body);
        let request = reqwest::Request::try_from(request)
            .map_err(|error| HttpError::new(HttpErrorKind::Unknown, error.without_url()))?;
        self.egress
            .admits(request.url())
            .map_err(|refused| HttpError::new(HttpErrorKind::Unknown, refused))?;
        let host = request.url()[Position::BeforeHost..Position::AfterPort].to_owned();
        self.waiting.ask(host.clone());
        // Metadata are next door, and spoken to in the clear; where there are none, nobody may answer at all.
        let limit = if request.url().scheme() == "http" { METADATA_LIMIT } else { ELSEWHERE };
        let answered = tokio::time::timeout(limit, self.answered(request, &host)).await;
        answered.map_err(|_elapsed| {
            let why = format!("{host} did not respond within {limit:?}");
            HttpError::new(HttpErrorKind::Timeout, Unusable(why))
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
            let why = format!("{host}: {}", http::root_cause(&error.without_url()));
            HttpError::new(kind, Unusable(why))
        };
        let mut answer = self.client.execute(request).await.map_err(failed)?;
        let mut head = ::http::Response::new(());
        *head.status_mut() = answer.status();
        *head.headers_mut() = std::mem::take(answer.headers_mut());
        let mut whole = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(failed)? {
            if whole.len() + chunk.len() > LARGEST_ANSWER {
                let why = format!("the response is larger than {LARGEST_ANSWER} bytes");
                return Err(HttpError::new(HttpErrorKind::Decode, Unusable(why)));
            }
            whole.extend_from_slice(&chunk);
        }
        // Added to a clock, a larger number would be no time at all.
        let life = serde_json::from_slice::<Life>(&whole).ok().and_then(|life| life.expires_in);
        if life.is_some_and(|life| life > LONGEST_LIFE) {
            let why = "the token would never expire".to_owned();
            return Err(HttpError::new(HttpErrorKind::Decode, Unusable(why)));
        }
        Ok(head.map(|()| whole.into()))
    }
}

/// How long a token is good for.
#[derive(Deserialize)]
struct Life {
    expires_in: Option<u64>,
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Unusable(String);

impl HttpService for Login {
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

impl HttpConnector for Login {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

/// Why there is no token, in words that stay the same from one time to the next.
pub(super) fn why(error: &object_store::Error) -> String {
    #[derive(Deserialize)]
    struct Refusal {
        error_description: String,
    }
    let said = http::root_cause(error);
    let Some((before, body)) = said.find('{').map(|at| said.split_at(at)) else {
        return printable(&said);
    };
    let refusal = serde_json::from_str::<Refusal>(body).map(|refusal| refusal.error_description);
    // What follows names this one request.
    let text = refusal.unwrap_or_default();
    let text = text.split(['\r', '\n']).next().unwrap_or_default();
    let text = text.split(" Trace ID:").next().unwrap_or_default();
    printable(format!("{before}{text}").trim_end_matches([':', ' ']))
}

/// How often a token is asked for; whoever needs it has a limit on the whole.
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
