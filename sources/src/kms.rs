//! Services that decrypt data keys: Vault and OpenBao, and the key management services of AWS, Google and Azure.
//!
//! Here: their credentials ([`KmsSession`]), sending, limits on bytes and time, errors ([`Error`]). In the folder: one
//! protocol each. Elsewhere: files, keys and the order of requests (`sops`), the time limit for a whole build (the caller).

mod aws;
mod azure;
mod google;
#[cfg(test)]
mod tests;
mod vault;

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::GeneralPurpose;
use http_client::host_budget::SendError;
use http_client::{HostBudgets, HostBusyError, HttpClientCache, TlsConfig, root_cause};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Request};
use serde::Deserialize;
use sops::{KeyServiceCredentials, KeyServiceMasterKey};
use url::{Position, Url};
use zeroize::Zeroizing;

use crate::bucket::cloud_login::NoTokenProviderError;
use crate::bucket::credential_request_tracker::CredentialRequestTracker;
use crate::bucket::request_context::printable;

/// The time limit for one data key, with the login that it needs.
const DATA_KEY_TIMEOUT: Duration = Duration::from_secs(10);

/// The largest answer. A data key has 32 bytes, and its ciphertext a few hundred.
const LARGEST_ANSWER: usize = 64 << 10;

/// The longest encrypted data key.
const LONGEST_KEY: usize = 64 << 10;

/// A data key, or a part of one.
type DataKey = Zeroizing<Vec<u8>>;

/// The reason why a service did not decrypt a data key. The text contains no secret.
#[derive(Debug, thiserror::Error)]
#[error("failed to decrypt sops data key with {service}: {why}")]
pub struct Error {
    service: &'static str,
    why: KmsFailureReason,
}

#[derive(Debug, thiserror::Error)]
enum KmsFailureReason {
    #[error("not supported")]
    Unsupported,
    #[error("no credentials for it; add `{0}` to the Secret of `spec.decryption.secretRef`")]
    NoCredentials(&'static str),
    #[error(
        "{whose} is not used with {flag}; add credentials to `{entry}` in the Secret of `spec.decryption.secretRef`"
    )]
    NotAllowed { whose: &'static str, flag: &'static str, entry: &'static str },
    #[error("`{entry}` in the Secret of `spec.decryption.secretRef` cannot be used: {problem}")]
    BadSecret { entry: &'static str, problem: String },
    #[error("{0}; correct the file, or encrypt it again with sops")]
    BadKey(String),
    #[error("no credentials: {0}")]
    Login(String),
    #[error("cannot connect to {host}: {why}")]
    Unreachable { host: String, why: String },
    #[error(transparent)]
    Busy(#[from] HostBusyError),
    #[error("{host} responded with HTTP status {status}{said}{advice}")]
    Answer { host: String, status: u16, said: String, advice: String },
    #[error("cannot read the response of {host}: {why}")]
    Unreadable { host: String, why: &'static str },
    #[error("{host} did not respond within {limit:?}")]
    TooSlow { host: String, limit: Duration },
    #[error("its server did not respond to an earlier request of this build")]
    Stalled,
}

/// Sends requests to key services for one build, with the credentials of a Secret, or without them with windlass's own
/// credentials.
///
/// # Guarantees
/// A server that a file names is only asked if a spec may name it. Credentials of the environment are only sent to the clouds
/// themselves, or to endpoints of the environment. A server that did not respond in time is not asked again. Logins last as
/// long as the session.
pub struct KmsSession<'c> {
    credentials: &'c KeyServiceCredentials,
    /// The flag with which windlass's own identity is not used.
    without_identity: Option<&'static str>,
    limit: Duration,
    wire: KmsHttpClient,
    aws: aws::AwsRoleLogins,
    google: google::GoogleTokenProvider,
    azure: azure::AzureTokenProviders,
    stalled: BTreeSet<String>,
}

impl std::fmt::Debug for KmsSession<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KmsSession").field("credentials", self.credentials).finish_non_exhaustive()
    }
}

impl<'c> KmsSession<'c> {
    /// A session that has sent no request yet. With `without_identity`, which names a flag, only the credentials of the Secret
    /// count.
    pub fn new(
        credentials: &'c KeyServiceCredentials,
        without_identity: Option<&'static str>,
        clients: Arc<HttpClientCache>,
        budgets: Arc<HostBudgets>,
    ) -> Self {
        let wire = KmsHttpClient { clients, budgets, waiting: CredentialRequestTracker::default() };
        Self {
            credentials,
            without_identity,
            limit: DATA_KEY_TIMEOUT,
            wire,
            aws: BTreeMap::new(),
            google: None,
            azure: BTreeMap::new(),
            stalled: BTreeSet::new(),
        }
    }

    /// Decrypts the data key that a master key encrypted.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn decrypt(&mut self, key: &KeyServiceMasterKey) -> Result<DataKey, Error> {
        let failed = |why| Error { service: key.service(), why };
        if key.encrypted().len() > LONGEST_KEY {
            let why = format!("the encrypted data key is longer than {LONGEST_KEY} bytes");
            return Err(failed(KmsFailureReason::BadKey(why)));
        }
        let place = place(key);
        if self.stalled.contains(&place) {
            return Err(failed(KmsFailureReason::Stalled));
        }
        let limit = self.limit;
        let waiting = self.wire.waiting.clone();
        let late = {
            // `waiting` names the service only while the request is pending, so this future must outlive the timeout.
            let mut asking = pin!(waiting.during(self.ask(key)));
            match tokio::time::timeout(limit, asking.as_mut()).await {
                Ok(answer) => return answer.map_err(failed),
                Err(_elapsed) => waiting.on().unwrap_or_else(|| place.clone()),
            }
        };
        self.stalled.insert(place);
        Err(failed(KmsFailureReason::TooSlow { host: late, limit }))
    }

    async fn ask(&mut self, key: &KeyServiceMasterKey) -> Result<DataKey, KmsFailureReason> {
        match key {
            KeyServiceMasterKey::Vault { address, engine_path, key_name, encrypted } => {
                let transit = vault::VaultTransitKey { address, engine_path, key_name };
                vault::decrypt(&self.wire, self.credentials, &transit, encrypted).await
            }
            KeyServiceMasterKey::AwsKms { arn, role, context, encrypted, .. } => {
                let key = aws::AwsKmsKey::new(arn, role)?;
                aws::decrypt(self, &key, context, encrypted).await
            }
            KeyServiceMasterKey::GcpKms { resource_id, encrypted } => {
                google::decrypt(self, resource_id, encrypted).await
            }
            KeyServiceMasterKey::AzureKeyVault { vault_url, name, version, encrypted } => {
                let key = azure::AzureVaultKey::new(vault_url, name, version)?;
                azure::decrypt(self, &key, encrypted).await
            }
            _ => Err(KmsFailureReason::Unsupported),
        }
    }

    /// Whether windlass's own identity may be used.
    fn own(&self, whose: &'static str, entry: &'static str) -> Result<(), KmsFailureReason> {
        match self.without_identity {
            Some(flag) => Err(KmsFailureReason::NotAllowed { whose, flag, entry }),
            None => Ok(()),
        }
    }
}

/// The name of credentials that do not come from a Secret.
const IDENTITY: &str = "the identity of windlass";

/// The key under which a stalled service is remembered. Another region or server is still asked.
fn place(key: &KeyServiceMasterKey) -> String {
    match key {
        KeyServiceMasterKey::AwsKms { arn, .. } => {
            arn.rsplit_once(':').map_or(arn.as_str(), |(region, _)| region).to_owned()
        }
        KeyServiceMasterKey::AzureKeyVault { vault_url, .. } => vault_url.clone(),
        KeyServiceMasterKey::Vault { address, .. } => address.clone(),
        other => other.service().to_owned(),
    }
}

fn no_login(why: NoTokenProviderError, entry: &'static str) -> KmsFailureReason {
    match why {
        NoTokenProviderError::Secret(problem) => KmsFailureReason::BadSecret { entry, problem },
        NoTokenProviderError::Environment(why) => KmsFailureReason::Login(why),
        NoTokenProviderError::Client(error) => KmsFailureReason::Login(error.to_string()),
    }
}

/// The HTTP of all services.
struct KmsHttpClient {
    clients: Arc<HttpClientCache>,
    budgets: Arc<HostBudgets>,
    waiting: CredentialRequestTracker,
}

/// An answer.
struct KmsResponse {
    host: String,
    status: u16,
    headers: HeaderMap,
    body: Zeroizing<Vec<u8>>,
}

impl KmsHttpClient {
    /// Sends a request, and reads the answer.
    async fn send(&self, request: Request) -> Result<KmsResponse, KmsFailureReason> {
        let url = request.url();
        let host = url[Position::BeforeHost..Position::AfterPort].to_owned();
        let unreachable = |why: String| KmsFailureReason::Unreachable { host: host.clone(), why };
        let egress = self.budgets.egress();
        egress.admits(url).map_err(|refused| unreachable(refused.to_string()))?;
        let client = self.clients.client(&TlsConfig::default(), None);
        let client = client.map_err(|error| unreachable(error.to_string()))?;
        self.waiting.ask(host.clone());
        let answer = self.budgets.execute(&client, request).await;
        let mut answer = answer.map_err(|error| match error {
            SendError::Busy(busy) => KmsFailureReason::Busy(busy),
            SendError::Transport(error) => unreachable(root_cause(&error)),
        })?;
        let status = answer.status().as_u16();
        let headers = answer.headers().clone();
        let broken = |why| KmsFailureReason::Unreadable { host: host.clone(), why };
        // The buffer does not grow, because a reallocation would leave a copy of the secret that is not overwritten.
        let mut body = Zeroizing::new(Vec::with_capacity(LARGEST_ANSWER));
        while let Some(chunk) = answer.chunk().await.map_err(|_cut| broken("it was interrupted"))? {
            if body.len() + chunk.len() > LARGEST_ANSWER {
                return Err(broken("it is too large for a data key"));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(KmsResponse { host, status, headers, body })
    }
}

impl KmsResponse {
    /// A data key, which is a text in an answer of a form.
    fn data_key<T: for<'de> Deserialize<'de>>(
        &self,
        text: impl FnOnce(T) -> String,
        base64: &GeneralPurpose,
    ) -> Result<DataKey, KmsFailureReason> {
        // The message of serde may quote the content.
        let broken = |why| KmsFailureReason::Unreadable { host: self.host.clone(), why };
        let read = serde_json::from_slice(&self.body);
        let read = read.map_err(|_unread| broken("it has no data key"))?;
        let text = Zeroizing::new(text(read));
        let key = base64.decode(text.as_bytes());
        Ok(Zeroizing::new(key.map_err(|_unread| broken("its data key is not base64"))?))
    }

    /// The error about a missing data key: the status and text of the response, and the advice.
    fn refused(&self, said: &str, secrets: &[&str], advice: String) -> KmsFailureReason {
        let mut said = said.to_owned();
        for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
            said = said.replace(secret, "****");
        }
        let said = printable(&said);
        let said = if said.is_empty() { said } else { format!(": {said}") };
        KmsFailureReason::Answer { host: self.host.clone(), status: self.status, said, advice }
    }

    fn is_success(&self) -> bool {
        self.status == 200
    }
}

/// A request with a body of JSON.
fn request(method: Method, url: Url, body: Vec<u8>) -> Request {
    let mut request = Request::new(method, url);
    let json = HeaderValue::from_static("application/json");
    request.headers_mut().insert(CONTENT_TYPE, json);
    *request.body_mut() = Some(body.into());
    request
}

/// Sets a secret as a header.
fn authorize(
    request: &mut Request,
    name: HeaderName,
    secret: &[u8],
) -> Result<(), KmsFailureReason> {
    let mut value = HeaderValue::from_bytes(secret).map_err(|_unread| {
        KmsFailureReason::Login("the token has characters that no token has".to_owned())
    })?;
    value.set_sensitive(true);
    request.headers_mut().insert(name, value);
    Ok(())
}

/// Decodes an encrypted data key from base64.
fn encrypted(text: &str, base64: &GeneralPurpose) -> Result<Vec<u8>, KmsFailureReason> {
    let text: String = text.chars().filter(|char| !matches!(char, '\r' | '\n')).collect();
    let bytes = base64.decode(text);
    bytes.map_err(|_unread| {
        KmsFailureReason::BadKey("the encrypted data key is not base64".to_owned())
    })
}

/// The URL of a server in a file, without user, password, query and fragment.
fn server(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let is_bare = url.username().is_empty() && url.password().is_none() && url.query().is_none();
    let is_web = matches!(url.scheme(), "http" | "https") && url.host_str().is_some();
    (is_bare && is_web && url.fragment().is_none()).then_some(url)
}
