//! Logins at AWS registries (ECR). The machine's identity is exchanged for a password that lasts twelve hours.
//!
//! Elsewhere: the credentials of the machine ([`crate::bucket`]), caching a login ([`super::RegistrySessionCache`]). The semantics
//! are those of `ecr:GetAuthorizationToken` and `ecr-public:GetAuthorizationToken`.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_credential_types::provider::ProvideCredentials as _;
use aws_smithy_runtime_api::client::identity::Identity as Signer;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_client::host_budget::SendError;
use http_client::{HostBudgets, TlsConfig, root_cause};
use objects::RedactedValue;
use reqwest::{Request, Response};
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};
use url::Url;

use super::registry_response::shown;
use super::{Error, RegistryAuth};
use crate::bucket::BucketCredentialSource;
use crate::bucket::credential_request_tracker::CredentialRequestTracker;
use crate::bucket::s3::aws_json_call::{AwsJsonCall, endpoint_of_environment, said};
use crate::bucket::s3::credentials;

/// The public registry, which is the same for all regions of AWS.
const PUBLIC: &str = "public.ecr.aws";
/// The region in which logins to the public registry are given.
const PUBLIC_REGION: &str = "us-east-1";
/// The request body. The action has no parameters.
const EMPTY_REQUEST_BODY: &[u8] = b"{}";
/// The largest response in bytes. A typical one has two to three KiB.
const MAX_RESPONSE_BYTES: usize = 1 << 18;
/// The longest accepted lifetime of a login.
const LONGEST_LIFE: f64 = 12.0 * 3600.0;

/// The service with logins for a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EcrService {
    registry: String,
    region: String,
    /// The host of the service, unless the environment names another one.
    host: String,
    is_public: bool,
}

impl EcrService {
    /// The login service for a registry, by the registry's host.
    pub(super) fn of(registry: &str) -> Result<Self, Error> {
        let none = || Error::InvalidUrl {
            reason: format!(
                "`{registry}` is not an AWS registry, such as 123456789012.dkr.ecr.eu-west-1.amazonaws.com or \
                 {PUBLIC}; correct spec.url or spec.provider"
            ),
        };
        let registry = registry.to_owned();
        if registry == PUBLIC {
            let region = PUBLIC_REGION.to_owned();
            let host = "api.ecr-public.us-east-1.amazonaws.com";
            return Ok(Self { registry, region, host: host.to_owned(), is_public: true });
        }
        let parts: Vec<&str> = registry.split('.').collect();
        let (account, service, region, domain) = match parts.as_slice() {
            [account, "dkr", service, region, domain @ ..] => (account, service, region, domain),
            _ => return Err(none()),
        };
        let is_account = account.len() == 12 && account.bytes().all(|byte| byte.is_ascii_digit());
        let is_letter =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_region = !region.is_empty() && region.bytes().all(is_letter);
        let is_aws = matches!(domain, ["amazonaws", "com"] | ["amazonaws", "com", "cn"]);
        let begins = match *service {
            "ecr" => "api.ecr",
            "ecr-fips" => "ecr-fips",
            _ => return Err(none()),
        };
        if !is_account || !is_region || !is_aws {
            return Err(none());
        }
        let host = format!("{begins}.{region}.{}", domain.join("."));
        let region = (*region).to_owned();
        Ok(Self { registry, region, host, is_public: false })
    }

    /// The key under which registries share a login. A login for a region is valid for all registries there.
    pub(super) fn key(&self) -> String {
        self.host.clone()
    }

    fn url(&self) -> Result<Url, Error> {
        let own =
            if self.is_public { "AWS_ENDPOINT_URL_ECR_PUBLIC" } else { "AWS_ENDPOINT_URL_ECR" };
        if let Some(url) = endpoint_of_environment(own).map_err(|why| self.failed(&why))? {
            return Ok(url);
        }
        let url = Url::parse(&format!("https://{}/", self.host));
        url.map_err(|error| self.failed(&error.to_string()))
    }

    fn failed(&self, why: &str) -> Error {
        Error::Login { registry: self.registry.clone(), why: shown(why) }
    }
}

/// Requests a login, within a time limit. Returns the login with its lifetime.
pub(super) async fn login(
    service: &EcrService,
    budgets: &Arc<HostBudgets>,
    limit: Duration,
) -> Result<(RegistryAuth, Option<Duration>), Error> {
    let machine = BucketCredentialSource::Environment { sts: None };
    let waiting = CredentialRequestTracker::default();
    let provider = credentials::provider(&machine, &service.region, None, budgets, &waiting);
    let provider = provider.map_err(|error| service.failed(&error.to_string()))?;
    let provider = provider.ok_or_else(|| service.failed("no credentials found"))?;
    let end = Instant::now() + limit;
    let late = |who: &str| service.failed(&format!("{who} within spec.timeout ({limit:?})"));
    let keys = timeout_at(end, provider.provide_credentials()).await;
    let keys = keys.map_err(|_elapsed| late("the credentials of windlass were not available"))?;
    let keys = keys.map_err(|error| {
        service.failed(&format!("cannot get the credentials of windlass: {}", root_cause(&error)))
    })?;
    let url = service.url()?;
    let host = url.host_str().unwrap_or_default();
    let request = signed(service, &url, &keys.into())?;
    let asking = ask(service, host, request, budgets);
    timeout_at(end, asking).await.map_err(|_elapsed| late(&format!("{host} did not respond")))?
}

async fn ask(
    service: &EcrService,
    host: &str,
    request: Request,
    budgets: &HostBudgets,
) -> Result<(RegistryAuth, Option<Duration>), Error> {
    // Neither the proxy nor the certificate authority of a spec may come between windlass and the identity of its machine.
    let client = http_client::client(&TlsConfig::default(), None);
    let client = client.map_err(|error| service.failed(&error.to_string()))?;
    let answer = budgets.execute(&client, request).await.map_err(|error| match error {
        SendError::Busy(busy) => Error::Busy(busy),
        SendError::Transport(error) => service
            .failed(&format!("cannot connect to {host}: {}", root_cause(&error.without_url()))),
    })?;
    let status = answer.status();
    let text = whole(service, host, answer).await?;
    if !status.is_success() {
        return Err(service.failed(&format!("{host} responded with {status}{}", said(&text))));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    read(&text, now.as_secs_f64()).ok_or_else(|| {
        service.failed(&format!("the response of {host} has no authorization token"))
    })
}

fn signed(service: &EcrService, url: &Url, keys: &Signer) -> Result<Request, Error> {
    let target = if service.is_public {
        "SpencerFrontendService.GetAuthorizationToken"
    } else {
        "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken"
    };
    let name = if service.is_public { "ecr-public" } else { "ecr" };
    let call = AwsJsonCall {
        url,
        region: &service.region,
        service: name,
        target,
        body: EMPTY_REQUEST_BODY,
    };
    call.signed(keys).map_err(|why| service.failed(&why))
}

/// An answer as a whole.
async fn whole(service: &EcrService, host: &str, mut answer: Response) -> Result<Vec<u8>, Error> {
    let mut text = Vec::new();
    let broken = |error: reqwest::Error| {
        let why = root_cause(&error.without_url());
        service.failed(&format!("the response of {host} was interrupted: {why}"))
    };
    while let Some(chunk) = answer.chunk().await.map_err(broken)? {
        text.extend_from_slice(&chunk);
        if text.len() > MAX_RESPONSE_BYTES {
            return Err(service.failed(&format!(
                "the response of {host} is larger than {MAX_RESPONSE_BYTES} bytes"
            )));
        }
    }
    Ok(text)
}

#[derive(Deserialize)]
struct EcrTokenResponse {
    #[serde(rename = "authorizationData")]
    given: EcrAuthorizationData,
}

/// The response of the service. The public registry returns one login, and the others return a list with one login.
#[derive(Deserialize)]
#[serde(untagged)]
enum EcrAuthorizationData {
    One(EcrToken),
    Many(Vec<EcrToken>),
}

#[derive(Deserialize)]
struct EcrToken {
    #[serde(rename = "authorizationToken")]
    text: String,
    /// Seconds since 1970.
    #[serde(rename = "expiresAt", default)]
    until: f64,
}

/// Parses the login in a response of ECR, and how long it is valid. `None` if it cannot be parsed, so that no part of
/// it is repeated in an error.
fn read(text: &[u8], now: f64) -> Option<(RegistryAuth, Option<Duration>)> {
    let EcrTokenResponse { given } = serde_json::from_slice(text).ok()?;
    let token = match given {
        EcrAuthorizationData::One(token) => token,
        EcrAuthorizationData::Many(tokens) => tokens.into_iter().next()?,
    };
    let pair = String::from_utf8(STANDARD.decode(token.text.trim()).ok()?).ok()?;
    let (username, password) = pair.split_once(':')?;
    let username = username.to_owned();
    let password = RedactedValue::new(password.to_owned());
    let life = (token.until - now).clamp(0.0, LONGEST_LIFE);
    let life = Duration::try_from_secs_f64(life).ok().filter(|life| !life.is_zero());
    Some((RegistryAuth::Login { username, password }, life))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_is_one_of_aws_by_its_whole_host() {
        for (registry, host) in [
            ("123456789012.dkr.ecr.eu-west-1.amazonaws.com", "api.ecr.eu-west-1.amazonaws.com"),
            (
                "123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn",
                "api.ecr.cn-north-1.amazonaws.com.cn",
            ),
            (
                "123456789012.dkr.ecr-fips.us-east-1.amazonaws.com",
                "ecr-fips.us-east-1.amazonaws.com",
            ),
            ("public.ecr.aws", "api.ecr-public.us-east-1.amazonaws.com"),
        ] {
            assert_eq!(EcrService::of(registry).unwrap().host, host);
        }
        for registry in [
            "registry.example.com",
            "evil.example.com",
            "123456789012.dkr.ecr.eu-west-1.amazonaws.com.evil.example",
            "123456789012.dkr.ecr.eu-west-1.amazonaws.com:8080",
            "123456789012.dkr.ecr.evil/x.amazonaws.com",
            "123456789012.dkr.ecr..amazonaws.com",
            "1.dkr.ecr.eu-west-1.amazonaws.com",
            "x.public.ecr.aws",
            "",
        ] {
            let error = EcrService::of(registry).unwrap_err();
            assert!(matches!(error, Error::InvalidUrl { .. }), "{registry}: {error:?}");
        }
    }

    #[test]
    fn a_login_lasts_until_it_says_and_no_longer_than_any() {
        let lifetime_of = |text: &str| match read(text.as_bytes(), 1000.0)? {
            (RegistryAuth::Login { username, password }, life) => {
                Some((username, password.expose().clone(), life.map(|life| life.as_secs())))
            }
            _ => None,
        };
        let some = |life| Some(("AWS".to_owned(), "hunter2".to_owned(), life));
        // `AWS:hunter2`
        let token = r#"{"authorizationToken":"QVdTOmh1bnRlcjI=","expiresAt":1100.5}"#;
        assert_eq!(lifetime_of(&format!(r#"{{"authorizationData":[{token}]}}"#)), some(Some(100)));
        assert_eq!(lifetime_of(&format!(r#"{{"authorizationData":{token}}}"#)), some(Some(100)));
        for (until, life) in [("1e300", Some(43_200)), ("1000", None), ("-1e300", None)] {
            let token = token.replace("1100.5", until);
            assert_eq!(
                lifetime_of(&format!(r#"{{"authorizationData":[{token}]}}"#)),
                some(life),
                "{until}"
            );
        }
        for bad in [
            "",
            "{}",
            r#"{"authorizationData":[]}"#,
            r#"{"authorizationData":[{"authorizationToken":"hunter2"}]}"#,
            r#"{"authorizationData":[{"authorizationToken":"aHVudGVyMg=="}]}"#,
        ] {
            assert_eq!(lifetime_of(bad), None, "{bad}");
        }
    }
}
