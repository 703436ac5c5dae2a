//! Buckets: reads the objects of an object store as a tree of files.
//!
//! Here: the bucket and its settings ([`RemoteBucket`]), its objects and their names in an artifact ([`BucketListing`]),
//! downloading changed objects ([`fetch`]), one archive for everything ([`bucket_archive`]).
//! In the folder: the protocols (`s3`, [`google`], [`azure`]; `http_request` and `login` for both of the latter), pending
//! requests for credentials (`credential_request_tracker`), errors ([`Error`]).
//! Elsewhere: storing the artifact and its note ([`artifacts::store`]).

pub mod azure;
pub mod bucket_archive;
mod bucket_fetch_state;
mod bucket_listing;
mod client_cache;
pub(crate) mod cloud_login;
pub(crate) mod credential_request_tracker;
mod download_spool;
mod endpoint;
mod error;
mod fetch;
pub mod google;
pub(crate) mod http_request;
pub(crate) mod request_context;
pub(crate) mod s3;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;
use http_client::{HostBudgets, HttpProxy, TlsConfig};
use objects::RedactedValue;
use tree::TreeLimits;
use url::Url;

pub use bucket_fetch_state::BucketFetchState;
pub use bucket_listing::{BucketListing, ListedBucketObject, list};
pub use client_cache::BucketClientCache;
pub use endpoint::BucketEndpoint;
pub use error::Error;
pub use fetch::{BucketFetchResult, BucketFileBody, PreviousArtifact, fetch, object};

/// A bucket, with the settings for its connection.
#[derive(Debug, Clone)]
pub struct RemoteBucket {
    /// The server and the credentials.
    pub server: BucketServerSettings,
    /// The name of the bucket.
    pub bucket: String,
    /// The prefix of the wanted keys. Empty for all keys.
    pub prefix: String,
    /// The time limit for listing, and the one for fetching.
    pub timeout: Duration,
    /// The limits on the size of all objects together, and of each object.
    pub limits: TreeLimits,
}

/// A server that has buckets.
#[derive(Debug, Clone)]
pub struct BucketServerSettings {
    /// The address of the server.
    pub endpoint: BucketEndpoint,
    /// The region for which S3 requests are signed. Without it, the region of the endpoint, and otherwise `us-east-1`.
    pub region: Option<String>,
    /// The protocol and the credentials.
    pub identity: BucketCredentialSource,
    /// Trusted authorities and the client certificate.
    pub tls: TlsConfig,
    /// The proxy for connections.
    pub proxy: Option<HttpProxy>,
}

/// The credentials for a server. Each protocol has its own variants. Variants without a protocol in the name are for S3.
#[derive(Debug, Clone)]
pub enum BucketCredentialSource {
    /// Anonymous requests, which are not signed.
    Anonymous,
    /// The protocol of Google Cloud Storage.
    Google(google::GoogleCredentialSource),
    /// The protocol of Azure's blobs.
    Azure(azure::AzureCredentialSource),
    /// An access key and a secret key.
    Keys {
        /// The access key.
        access: String,
        /// The secret key.
        secret: RedactedValue<String>,
        /// The token of a session that the keys are for.
        session: Option<RedactedValue<String>>,
    },
    /// The credentials of the environment, in the order of AWS's own programs. They are variables, profile, web identity
    /// (IRSA), EKS Pod Identity or ECS, and instance metadata.
    Environment {
        /// The service that exchanges a web identity, instead of AWS's own.
        sts: Option<Url>,
    },
    /// Keys that a token service gives to a user of an LDAP directory.
    Ldap(LdapUserLogin),
}

/// A user of an LDAP directory, and the token service that knows it, as MinIO has one.
#[derive(Debug, Clone)]
pub struct LdapUserLogin {
    /// The service.
    pub endpoint: Url,
    /// The user.
    pub username: String,
    /// The password of the user.
    pub password: RedactedValue<String>,
    /// Trusted authorities and the client certificate of connections to the service.
    pub tls: TlsConfig,
}

/// A client of a bucket. All requests to the same server as the same user share it.
#[derive(Debug)]
pub(crate) enum BucketClient {
    /// S3.
    S3(s3::S3Client),
    /// Google Cloud Storage.
    Google(google::GoogleStorageClient),
    /// Azure's blobs.
    Azure(azure::AzureBlobClient),
}

/// Some of the objects, in the order of their keys.
pub(crate) struct BucketObjectPage {
    /// The objects, in the order of the server's listing.
    pub(crate) objects: Vec<ListedBucketObject>,
    /// The token that requests the next page.
    pub(crate) next: Option<String>,
}

/// An object on its way.
pub(crate) struct BucketObjectDownload {
    /// The entity tag, as in [`ListedBucketObject`].
    pub(crate) etag: String,
    /// The bytes of the object.
    pub(crate) body: BoxStream<'static, Result<Bytes, Error>>,
}

impl BucketClient {
    fn new(server: &BucketServerSettings, budgets: &Arc<HostBudgets>) -> Result<Self, Error> {
        Ok(match &server.identity {
            BucketCredentialSource::Google(identity) => {
                Self::Google(google::GoogleStorageClient::new(server, identity, budgets)?)
            }
            BucketCredentialSource::Azure(identity) => {
                Self::Azure(azure::AzureBlobClient::new(server, identity, budgets)?)
            }
            BucketCredentialSource::Anonymous
            | BucketCredentialSource::Keys { .. }
            | BucketCredentialSource::Environment { .. }
            | BucketCredentialSource::Ldap(_) => Self::S3(s3::S3Client::new(server, budgets)?),
        })
    }

    async fn page(
        &self,
        remote: &RemoteBucket,
        next: Option<String>,
    ) -> Result<BucketObjectPage, Error> {
        match self {
            Self::S3(client) => client.page(remote, next).await,
            Self::Google(client) => client.page(remote, next).await,
            Self::Azure(client) => client.page(remote, next).await,
        }
    }

    /// The service that was asked for credentials and has not answered yet. `None` if no answer is awaited.
    fn waits_for(&self) -> Option<String> {
        match self {
            Self::S3(client) => client.waits_for(),
            Self::Google(client) => client.waits_for(),
            Self::Azure(client) => client.waits_for(),
        }
    }

    /// The metadata of an object.
    async fn head(&self, remote: &RemoteBucket, key: &str) -> Result<ListedBucketObject, Error> {
        match self {
            Self::S3(client) => client.head(remote, key).await,
            Self::Google(client) => client.head(remote, key).await,
            Self::Azure(client) => client.head(remote, key).await,
        }
    }

    /// Gets an object. `None` if its entity tag is still `unless`.
    async fn get(
        &self,
        remote: &RemoteBucket,
        key: &str,
        unless: Option<&str>,
    ) -> Result<Option<BucketObjectDownload>, Error> {
        match self {
            Self::S3(client) => client.get(remote, key, unless).await,
            Self::Google(client) => client.get(remote, key, unless).await,
            Self::Azure(client) => client.get(remote, key, unless).await,
        }
    }

    /// The present state of a listed object.
    async fn listed(
        &self,
        remote: &RemoteBucket,
        object: &ListedBucketObject,
    ) -> Result<Option<BucketObjectDownload>, Error> {
        match self {
            Self::S3(_) | Self::Azure(_) => self.get(remote, &object.key, None).await,
            Self::Google(client) => client.listed(remote, object).await,
        }
    }
}

/// An entity tag without quotes, as indexes have it.
fn unquoted(etag: Option<&str>) -> String {
    let etag = etag.unwrap_or_default();
    etag.strip_prefix("W/").unwrap_or(etag).trim_matches('"').to_owned()
}

/// Opens one object. `None` if its entity tag is still `unless`.
///
/// The caller sets limits and a timeout, because the caller knows the use of the object.
pub(crate) async fn open(
    remote: &RemoteBucket,
    key: &str,
    unless: Option<&str>,
    known: &BucketClientCache,
) -> Result<Option<BucketObjectDownload>, Error> {
    remote.client(known)?.get(remote, key, unless).await
}

/// Stores a JSON object, and replaces an existing one. Only S3 supports this.
///
/// # Errors
/// See [`Error`].
pub async fn store(
    remote: &RemoteBucket,
    key: &str,
    body: &[u8],
    known: &BucketClientCache,
) -> Result<(), Error> {
    let client = remote.client(known)?;
    let BucketClient::S3(s3) = &*client else {
        let endpoint = remote.server.endpoint.to_string();
        let action = format!("PUT for '{key}'");
        let why = "objects are stored by the protocol of S3 only".to_owned();
        return Err(Error::Unreadable { action, endpoint, why });
    };
    remote.within(&client, "storing into", s3.put(remote, key, body)).await
}

impl RemoteBucket {
    fn client(&self, known: &BucketClientCache) -> Result<Arc<BucketClient>, Error> {
        known.client(&self.server)
    }

    /// Ends work that takes longer than its limit.
    async fn within<T>(
        &self,
        client: &BucketClient,
        doing: &'static str,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        // The pending request for credentials is only known while the work is not dropped.
        let mut work = pin!(work);
        if let Ok(done) = tokio::time::timeout(self.timeout, work.as_mut()).await {
            return done;
        }
        let endpoint = self.server.endpoint.to_string();
        let limit = self.timeout;
        Err(match client.waits_for() {
            Some(who) => {
                let why = format!("{who} did not respond within {limit:?} (spec.timeout)");
                Error::NoCredentials { endpoint, why }
            }
            None => Error::TooSlow { doing, bucket: self.bucket.clone(), endpoint, limit },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bucket at an address where no server answers.
    pub(super) fn remote(bucket: &str) -> RemoteBucket {
        let endpoint = BucketEndpoint::parse("127.0.0.1:1", true).unwrap();
        let tls = TlsConfig::default();
        let identity = BucketCredentialSource::Anonymous;
        RemoteBucket {
            server: BucketServerSettings { endpoint, region: None, identity, tls, proxy: None },
            bucket: bucket.to_owned(),
            prefix: String::new(),
            timeout: Duration::from_secs(10),
            limits: TreeLimits::default(),
        }
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_reported_by_its_address() {
        let error =
            list(&remote("b"), None, &BucketFetchState::default(), &BucketClientCache::default())
                .await
                .unwrap_err();
        assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
        assert!(error.to_string().starts_with("cannot connect to 127.0.0.1:1: "), "{error}");
        assert!(error.to_string().contains("refused"), "{error}");
        let error = object(&remote("b"), "key", &BucketClientCache::default()).await.unwrap_err();
        assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    }
}
