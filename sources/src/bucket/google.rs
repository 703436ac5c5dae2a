//! Google Cloud Storage by its JSON interface.
//!
//! The XML interface has other entity tags than the ones in Flux's revisions. With it, every artifact would be made again.

use std::env;
use std::sync::Arc;

use http_client::{EgressRules, HostBudgets};
use object_store::gcp::{GcpCredentialProvider, GoogleCloudStorageBuilder};
use objects::RedactedValue;
use reqwest::header::{AUTHORIZATION, ETAG, HeaderMap, HeaderValue};
use reqwest::{Method, Response};
use serde::Deserialize;
use url::Url;

use super::cloud_login::{self, NoTokenProviderError, TokenHttpClient, retries};
use super::credential_request_tracker::CredentialRequestTracker;
use super::http_request::{BucketHttpClient, is_relative, segment};
use super::request_context::{BucketRequestContext, printable};
use super::{
    BucketObjectDownload, BucketObjectPage, BucketServerSettings, Error, ListedBucketObject,
    RemoteBucket,
};

/// The objects of a page, which is the server's maximum.
const PAGE: &str = "1000";

/// The fields of an object that are requested.
const FIELDS: &str = "name,etag,size,generation";

/// The advice if a token is not accepted.
const CHECK: &str =
    "the `serviceaccount` in the Secret of spec.secretRef, or windlass's own credentials";

/// The credentials for Google's store.
#[derive(Debug, Clone)]
pub enum GoogleCredentialSource {
    /// Anonymous.
    Anonymous,
    /// The application-default credentials: the file in `GOOGLE_APPLICATION_CREDENTIALS`, the file of `gcloud`, or else the
    /// service account of the machine. On GKE, that is the account of windlass's ServiceAccount.
    Environment,
    /// The JSON key of a service account.
    ServiceAccount(RedactedValue<String>),
}

/// One server and one user.
#[derive(Debug)]
pub(crate) struct GoogleStorageClient {
    exchange: BucketHttpClient,
    /// The token provider. `None` for anonymous requests.
    tokens: Option<RedactedValue<GcpCredentialProvider>>,
    waiting: CredentialRequestTracker,
}

/// The JSON of an object, in which numbers are strings.
#[derive(Default, Deserialize)]
#[serde(default)]
struct GoogleObjectMetadata {
    name: String,
    etag: String,
    size: String,
    generation: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GoogleObjectListing {
    #[serde(default)]
    items: Vec<GoogleObjectMetadata>,
    next_page_token: Option<String>,
}

/// The message of an error.
#[derive(Deserialize)]
struct GoogleErrorBody {
    error: GoogleErrorDetail,
}

#[derive(Deserialize)]
struct GoogleErrorDetail {
    message: String,
}

impl From<GoogleObjectMetadata> for ListedBucketObject {
    fn from(it: GoogleObjectMetadata) -> Self {
        let size = it.size.parse().unwrap_or_default();
        Self { key: it.name, etag: it.etag, size, generation: it.generation }
    }
}

fn tokens(
    server: &BucketServerSettings,
    identity: &GoogleCredentialSource,
    egress: &EgressRules,
    waiting: &CredentialRequestTracker,
) -> Result<Option<RedactedValue<GcpCredentialProvider>>, Error> {
    provider(identity, egress, waiting).map_err(|why| match why {
        NoTokenProviderError::Secret(why) => Error::BadSecret(format!("`serviceaccount` {why}")),
        NoTokenProviderError::Environment(why) => {
            Error::NoCredentials { endpoint: server.endpoint.to_string(), why }
        }
        NoTokenProviderError::Client(error) => error.into(),
    })
}

/// The token provider for all services of Google; `None` for anonymous requests.
pub(crate) fn provider(
    identity: &GoogleCredentialSource,
    egress: &EgressRules,
    waiting: &CredentialRequestTracker,
) -> Result<Option<RedactedValue<GcpCredentialProvider>>, NoTokenProviderError> {
    // The library wants the name of a bucket, and uses it for requests of its own only.
    let builder = GoogleCloudStorageBuilder::new().with_bucket_name("none").with_retry(retries());
    let store = match identity {
        GoogleCredentialSource::Anonymous => return Ok(None),
        GoogleCredentialSource::ServiceAccount(key) => {
            check(key).map_err(NoTokenProviderError::Secret)?;
            let builder = builder.with_service_account_key(key.expose());
            // The text of the error may repeat a part of the secret.
            let built =
                builder.with_http_connector(TokenHttpClient::of_secret(egress, waiting)?).build();
            built.map_err(|_unread| {
                NoTokenProviderError::Secret("has no RSA key in `private_key`".to_owned())
            })?
        }
        GoogleCredentialSource::Environment => {
            let file = env::var("GOOGLE_APPLICATION_CREDENTIALS").ok().filter(|it| !it.is_empty());
            let builder = match &file {
                Some(file) => builder.with_application_credentials(file),
                None => builder,
            };
            let unusable = |_unread| {
                NoTokenProviderError::Environment(format!(
                    "{} has neither a service account key nor the credentials of `gcloud auth application-default \
                     login`",
                    file.as_deref().unwrap_or("the application-default credentials file")
                ))
            };
            builder
                .with_http_connector(TokenHttpClient::of_machine(waiting)?)
                .build()
                .map_err(unusable)?
        }
    };
    Ok(Some(RedactedValue::new(store.credentials().clone())))
}

/// Checks the form of a key.
///
/// Differs(flux): other credentials than keys are refused, since they name servers that would be asked with them.
fn check(key: &RedactedValue<String>) -> Result<(), String> {
    #[derive(Deserialize)]
    struct GoogleServiceAccountKey {
        #[serde(rename = "type", default)]
        kind: String,
    }
    match serde_json::from_str::<GoogleServiceAccountKey>(key.expose()) {
        Ok(GoogleServiceAccountKey { kind }) if kind.is_empty() || kind == "service_account" => {
            Ok(())
        }
        Ok(GoogleServiceAccountKey { kind }) => Err(format!(
            "is of type `{}`; only service account keys are supported",
            printable(&kind)
        )),
        Err(_unread) => Err("is not a JSON key of a service account".to_owned()),
    }
}

impl GoogleStorageClient {
    pub(super) fn new(
        server: &BucketServerSettings,
        identity: &GoogleCredentialSource,
        budgets: &Arc<HostBudgets>,
    ) -> Result<Self, Error> {
        let waiting = CredentialRequestTracker::default();
        let tokens = tokens(server, identity, budgets.egress(), &waiting)?;
        Ok(Self { exchange: BucketHttpClient::new(server, budgets)?, tokens, waiting })
    }

    /// The service that was asked for a token and has not answered yet. `None` if no answer is awaited.
    pub(super) fn waits_for(&self) -> Option<String> {
        self.waiting.on()
    }

    pub(super) async fn page(
        &self,
        remote: &RemoteBucket,
        next: Option<String>,
    ) -> Result<BucketObjectPage, Error> {
        let asked = BucketRequestContext::listing(remote);
        let mut url = self.url(&asked, "")?;
        {
            let mut query = url.query_pairs_mut();
            query.append_pair("maxResults", PAGE);
            query.append_pair("fields", &format!("nextPageToken,items({FIELDS})"));
            if !remote.prefix.is_empty() {
                query.append_pair("prefix", &remote.prefix);
            }
            if let Some(token) = next {
                query.append_pair("pageToken", &token);
            }
        }
        let listing: GoogleObjectListing = self.read(&asked, url).await?;
        let objects = listing.items.into_iter().map(ListedBucketObject::from).collect();
        Ok(BucketObjectPage {
            objects,
            next: listing.next_page_token.filter(|token| !token.is_empty()),
        })
    }

    pub(super) async fn head(
        &self,
        remote: &RemoteBucket,
        key: &str,
    ) -> Result<ListedBucketObject, Error> {
        let asked = BucketRequestContext::object(remote, key, "GET of metadata");
        let mut url = self.url(&asked, key)?;
        url.query_pairs_mut().append_pair("fields", FIELDS);
        self.read::<GoogleObjectMetadata>(&asked, url).await.map(ListedBucketObject::from)
    }

    /// Reads an object. If it did not change, only its metadata are requested.
    pub(super) async fn get(
        &self,
        remote: &RemoteBucket,
        key: &str,
        unless: Option<&str>,
    ) -> Result<Option<BucketObjectDownload>, Error> {
        let object = self.head(remote, key).await?;
        if unless.is_some_and(|etag| etag == object.etag) {
            return Ok(None);
        }
        self.media(remote, &object).await.map(Some)
    }

    /// Reads an object in the listed version, or in the present version if the listed one is gone.
    pub(super) async fn listed(
        &self,
        remote: &RemoteBucket,
        object: &ListedBucketObject,
    ) -> Result<Option<BucketObjectDownload>, Error> {
        match self.media(remote, object).await {
            Err(Error::NoObject { .. }) => self.get(remote, &object.key, None).await,
            got => got.map(Some),
        }
    }

    /// The bytes of one generation, so that the known entity tag belongs to the bytes. Such responses have an `ETag` of
    /// another kind.
    async fn media(
        &self,
        remote: &RemoteBucket,
        object: &ListedBucketObject,
    ) -> Result<BucketObjectDownload, Error> {
        let asked = BucketRequestContext::object(remote, &object.key, "GET");
        let mut url = self.url(&asked, &object.key)?;
        url.query_pairs_mut().append_pair("alt", "media");
        if let Some(generation) = &object.generation {
            url.query_pairs_mut().append_pair("generation", generation);
        }
        let answer = self.ask(&asked, url).await?;
        if !answer.headers().contains_key(ETAG) {
            return Err(asked.unreadable("it has no ETag, unlike each object".to_owned()));
        }
        Ok(BucketObjectDownload {
            etag: object.etag.clone(),
            body: BucketHttpClient::body(&asked, answer),
        })
    }

    /// The URL of an object, or of all objects. A key is one path segment, even if it contains slashes.
    fn url(&self, asked: &BucketRequestContext<'_>, key: &str) -> Result<Url, Error> {
        let bucket = &asked.remote.bucket;
        if is_relative(bucket) {
            return Err(asked.no_bucket());
        }
        let mut path = format!("/storage/v1/b/{}/o", segment(bucket));
        if !key.is_empty() {
            if is_relative(key) {
                return Err(asked.missing());
            }
            path = format!("{path}/{}", segment(key));
        }
        self.exchange.url(asked, &path)
    }

    async fn read<T: for<'de> Deserialize<'de>>(
        &self,
        asked: &BucketRequestContext<'_>,
        url: Url,
    ) -> Result<T, Error> {
        let answer = self.ask(asked, url).await?;
        let text = BucketHttpClient::whole(asked, answer).await?;
        let unread = |error: serde_json::Error| asked.unreadable(printable(&error.to_string()));
        serde_json::from_slice(&text).map_err(unread)
    }

    async fn ask(&self, asked: &BucketRequestContext<'_>, url: Url) -> Result<Response, Error> {
        let mut headers = HeaderMap::new();
        if let Some(tokens) = &self.tokens {
            let token = self.waiting.during(tokens.expose().get_credential()).await;
            let token = token.map_err(|error| Error::NoCredentials {
                endpoint: asked.endpoint(),
                why: cloud_login::why(&error),
            })?;
            // A key may disable tokens.
            if !token.bearer.is_empty() {
                let value = HeaderValue::from_str(&format!("Bearer {}", token.bearer));
                let mut value = value.map_err(|error| asked.no_credentials(&error))?;
                value.set_sensitive(true);
                headers.insert(AUTHORIZATION, value);
            }
        }
        // The error of a download is plain text. The metadata request that follows a failed download has an error in JSON.
        let is_download = url.query_pairs().any(|(name, _)| name == "alt");
        let answer = self.exchange.send(asked, Method::GET, url, headers).await?;
        match answer.status().as_u16() {
            200 => Ok(answer),
            404 if !is_download => {
                let text = BucketHttpClient::error(answer).await;
                let is_of_store = serde_json::from_slice::<GoogleErrorBody>(&text).is_ok();
                let foreign = "the answer is not one of the store; check what is between";
                Err(if is_of_store {
                    asked.missing()
                } else {
                    asked.answer(404, String::new(), foreign)
                })
            }
            401 => Err(asked.refused("401".to_owned(), CHECK)),
            403 => Err(asked.denied("403".to_owned())),
            404 => Err(asked.missing()),
            status => {
                let text = serde_json::from_slice::<GoogleErrorBody>(
                    &BucketHttpClient::error(answer).await,
                );
                let text = text.map(|failure| failure.error.message).unwrap_or_default();
                Err(asked.answer(status, String::new(), &text))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_of_service_accounts_are_used_and_none_is_shown() {
        let server = crate::bucket::tests::remote("b").server;
        for (key, says) in [
            ("hunter2", "not a JSON key"),
            ("\"hunter2\"", "not a JSON key"),
            (r#"{"type": "external_account", "private_key": "hunter2"}"#, "`external_account`"),
            (r#"{"type": "service_account", "private_key": "hunter2"}"#, "RSA key"),
            (
                r#"{"client_email": "a", "private_key_id": "b", "private_key": "hunter2"}"#,
                "RSA key",
            ),
        ] {
            let identity =
                GoogleCredentialSource::ServiceAccount(RedactedValue::new(key.to_owned()));
            let error = tokens(
                &server,
                &identity,
                &EgressRules::default(),
                &CredentialRequestTracker::default(),
            )
            .unwrap_err();
            assert!(matches!(error, Error::BadSecret(_)), "{error:?}");
            assert!(error.to_string().contains(says), "{error}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }
}
