//! S3, and all services with the same protocol.
//!
//! Here: the requests. In the folder: HTTP (`sdk_transport`), the credentials (`credentials`, `ldap`), errors (`s3_failure`).

pub(crate) mod aws_json_call;
pub(crate) mod credentials;
mod ldap;
mod s3_failure;
mod sdk_transport;

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_s3::config::{
    BehaviorVersion, IdentityCache, Region, RequestChecksumCalculation, ResponseChecksumValidation,
    StalledStreamProtectionConfig,
};
use aws_smithy_types::retry::RetryConfig;
use aws_smithy_types::timeout::TimeoutConfig;
use futures::{StreamExt as _, stream};
use http_client::HostBudgets;
use parking_lot::Mutex;

use super::credential_request_tracker::CredentialRequestTracker;
use super::request_context::BucketRequestContext;
use super::{
    BucketEndpoint, BucketObjectDownload, BucketObjectPage, BucketServerSettings, Error,
    ListedBucketObject, RemoteBucket, unquoted,
};
use s3_failure::failure;
use sdk_transport::AwsSdkTransport;

/// The longest time for requesting credentials. The caller limits the whole time, and then reports which service did not
/// answer.
const LONGEST_LOGIN: Duration = Duration::from_secs(600);

/// The most attempts of a request if the server is too busy.
const MAX_REQUEST_ATTEMPTS: u32 = 3;

/// One server and one user.
#[derive(Debug)]
pub(crate) struct S3Client {
    endpoint: BucketEndpoint,
    /// The client. It is replaced once if the server reports that it is in another region.
    sdk: Mutex<(aws_sdk_s3::Client, bool)>,
    waiting: CredentialRequestTracker,
}

impl S3Client {
    pub(super) fn new(
        server: &BucketServerSettings,
        budgets: &Arc<HostBudgets>,
    ) -> Result<Self, Error> {
        let transport = AwsSdkTransport::new(
            &server.tls,
            server.proxy.as_ref(),
            budgets.egress(),
            budgets.clone(),
        )?;
        let region = server.region.clone();
        let region = region.or_else(|| server.endpoint.region());
        let region = region.unwrap_or_else(|| "us-east-1".to_owned());
        let mut config = aws_sdk_s3::Config::builder()
            .behavior_version(BehaviorVersion::v2026_01_12())
            .http_client(transport)
            .region(Region::new(region.clone()))
            .endpoint_url(server.endpoint.url(server.region.as_deref()))
            .force_path_style(server.endpoint.is_path_style())
            .retry_config(RetryConfig::standard().with_max_attempts(MAX_REQUEST_ATTEMPTS))
            // The caller has a limit on the whole.
            .timeout_config(TimeoutConfig::builder().connect_timeout(S3_CONNECT_TIMEOUT).build())
            .identity_cache(IdentityCache::lazy().load_timeout(LONGEST_LOGIN).build())
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
            .response_checksum_validation(ResponseChecksumValidation::WhenRequired);
        let proxy = server.proxy.as_ref();
        let waiting = CredentialRequestTracker::default();
        let provider = credentials::provider(&server.identity, &region, proxy, budgets, &waiting)?;
        config = match provider {
            Some(credentials) => config.credentials_provider(credentials),
            None => config.allow_no_auth(),
        };
        let sdk = aws_sdk_s3::Client::from_conf(config.build());
        Ok(Self { endpoint: server.endpoint.clone(), sdk: Mutex::new((sdk, false)), waiting })
    }

    /// The service that was asked for credentials and has not answered yet. `None` if no answer is awaited.
    pub(super) fn waits_for(&self) -> Option<String> {
        self.waiting.on()
    }

    fn sdk(&self) -> aws_sdk_s3::Client {
        self.sdk.lock().0.clone()
    }

    /// Signs for another region from now on, if no other region was set before. Returns whether that is so.
    fn moved(&self, region: Option<String>) -> bool {
        let Some(region) = region else { return false };
        let mut sdk = self.sdk.lock();
        let is_same = sdk.0.config().region().is_some_and(|it| it.as_ref() == region);
        if sdk.1 || is_same {
            return false;
        }
        let url = self.endpoint.url(Some(&region));
        let config = sdk.0.config().to_builder().region(Region::new(region)).endpoint_url(url);
        *sdk = (aws_sdk_s3::Client::from_conf(config.build()), true);
        true
    }

    pub(super) async fn page(
        &self,
        remote: &RemoteBucket,
        next: Option<String>,
    ) -> Result<BucketObjectPage, Error> {
        let list = || {
            let prefix = (!remote.prefix.is_empty()).then(|| remote.prefix.clone());
            let request = self.sdk().list_objects_v2().bucket(&remote.bucket).set_prefix(prefix);
            request.set_continuation_token(next.clone()).send()
        };
        let asked = BucketRequestContext::listing(remote);
        let mut answer = list().await;
        if let Err(error) = &answer
            && self.moved(s3_failure::region(error))
        {
            answer = list().await;
        }
        let answer = answer.map_err(|error| failure(&asked, &error))?;
        let next = following(answer.is_truncated, answer.next_continuation_token)
            .map_err(|why| asked.unreadable(why.to_owned()))?;
        let objects =
            answer.contents.unwrap_or_default().into_iter().map(|object| ListedBucketObject {
                key: object.key.unwrap_or_default(),
                etag: unquoted(object.e_tag.as_deref()),
                size: u64::try_from(object.size.unwrap_or_default()).unwrap_or_default(),
                generation: None,
            });
        Ok(BucketObjectPage { objects: objects.collect(), next })
    }

    pub(super) async fn head(
        &self,
        remote: &RemoteBucket,
        key: &str,
    ) -> Result<ListedBucketObject, Error> {
        let head = || self.sdk().head_object().bucket(&remote.bucket).key(key).send();
        let asked = BucketRequestContext::object(remote, key, "HEAD");
        let mut answer = head().await;
        if let Err(error) = &answer
            && self.moved(s3_failure::region(error))
        {
            answer = head().await;
        }
        let answer = answer.map_err(|error| failure(&asked, &error))?;
        let size = u64::try_from(answer.content_length.unwrap_or_default()).unwrap_or_default();
        let etag = unquoted(answer.e_tag.as_deref());
        Ok(ListedBucketObject { key: key.to_owned(), etag, size, generation: None })
    }

    pub(super) async fn put(
        &self,
        remote: &RemoteBucket,
        key: &str,
        body: &[u8],
    ) -> Result<(), Error> {
        let put = || {
            let request = self.sdk().put_object().bucket(&remote.bucket).key(key);
            request.content_type("application/json").body(body.to_vec().into()).send()
        };
        let asked = BucketRequestContext::object(remote, key, "PUT");
        let mut answer = put().await;
        if let Err(error) = &answer
            && self.moved(s3_failure::region(error))
        {
            answer = put().await;
        }
        answer.map(drop).map_err(|error| failure(&asked, &error))
    }

    pub(super) async fn get(
        &self,
        remote: &RemoteBucket,
        key: &str,
        unless: Option<&str>,
    ) -> Result<Option<BucketObjectDownload>, Error> {
        let asked = BucketRequestContext::object(remote, key, "GET");
        let unless = unless.map(|etag| format!("\"{etag}\""));
        let get = || {
            let request = self.sdk().get_object().bucket(&remote.bucket).key(key);
            request.set_if_none_match(unless.clone()).send()
        };
        let mut answer = get().await;
        if let Err(error) = &answer
            && s3_failure::status(error) != Some(304)
            && self.moved(s3_failure::region(error))
        {
            answer = get().await;
        }
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) if unless.is_some() && s3_failure::status(&error) == Some(304) => {
                return Ok(None);
            }
            Err(error) if s3_failure::is_foreign_not_found(&error) => {
                let text = "the answer has no error code of S3; check what is between";
                return Err(asked.answer(404, String::new(), text));
            }
            Err(error) => return Err(failure(&asked, &error)),
        };
        let endpoint = self.endpoint.to_string();
        let action = asked.action;
        let broken = move |error: &(dyn std::error::Error + 'static)| Error::Unreadable {
            action: action.clone(),
            endpoint: endpoint.clone(),
            why: http_client::root_cause(error),
        };
        let body = stream::unfold(answer.body, |mut body| async move {
            let chunk = body.next().await?;
            Some((chunk, body))
        });
        let body = body.map(move |chunk| chunk.map_err(|error| broken(&error))).boxed();
        Ok(Some(BucketObjectDownload { etag: unquoted(answer.e_tag.as_deref()), body }))
    }
}

/// Where the next page begins; none after the last.
///
/// Parity(flux): a listing that is incomplete and has no token for the next page is refused: objects of later pages
/// would be taken for deleted. An empty token would begin anew.
///
/// # Errors
/// There is more, and no way to it.
fn following(
    is_truncated: Option<bool>,
    token: Option<String>,
) -> Result<Option<String>, &'static str> {
    match (is_truncated, token.filter(|token| !token.is_empty())) {
        (Some(true), None) => Err("the listing is truncated and has no continuation token"),
        (Some(false), _) | (None, None) => Ok(None),
        (Some(true) | None, Some(token)) => Ok(Some(token)),
    }
}

/// The timeout of making a connection.
const S3_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
