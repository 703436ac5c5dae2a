//! Buckets: the objects of an object store become a tree of files.
//!
//! Here: the bucket and what is fetched of it ([`RemoteBucket`]), its objects and their names in an artifact
//! ([`BucketListing`]), downloading those that changed ([`fetch`]), one archive for everything ([`bucket_archive`]).
//! In the folder: the protocols (`s3`, [`google`], [`azure`]; `http_request` and `login` for both of the latter),
//! pending requests for credentials (`credential_requests`), what went wrong ([`Error`]).
//! Elsewhere: keeping the artifact and what it was made of ([`artifacts::store`]).

mod artifact_note;
pub mod azure;
pub mod bucket_archive;
mod bucket_listing;
mod client_cache;
pub(crate) mod cloud_login;
pub(crate) mod credential_requests;
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

pub use artifact_note::BucketArtifactNote;
pub use bucket_listing::{BucketListing, ListedBucketObject, list};
pub use client_cache::BucketClientCache;
pub use endpoint::BucketEndpoint;
pub use error::Error;
pub use fetch::{BucketFetchResult, BucketFileBody, PreviousArtifact, fetch, object};

/// Where the objects are, and how they are reached.
#[derive(Debug, Clone)]
pub struct RemoteBucket {
    /// The server and the credentials.
    pub server: BucketServerAddress,
    /// The name of the bucket.
    pub bucket: String,
    /// The beginning of the keys that are of interest; empty for all.
    pub prefix: String,
    /// How long listing may take, and then fetching.
    pub timeout: Duration,
    /// How much the objects may be together, and each.
    pub limits: TreeLimits,
}

/// A server that has buckets.
#[derive(Debug, Clone)]
pub struct BucketServerAddress {
    /// Its address.
    pub endpoint: BucketEndpoint,
    /// The region that requests of S3 are signed for; without it that of the endpoint, else `us-east-1`.
    pub region: Option<String>,
    /// The protocol and the credentials.
    pub identity: BucketIdentity,
    /// Trusted authorities and the client certificate.
    pub tls: TlsConfig,
    /// What connections go through.
    pub proxy: Option<HttpProxy>,
}

/// The credentials for a server. Each protocol has identities of its own; those without a protocol in the name are of
/// S3.
#[derive(Debug, Clone)]
pub enum BucketIdentity {
    /// Anonymous: requests are not signed.
    Anonymous,
    /// By the protocol of Google Cloud Storage.
    Google(google::GoogleIdentity),
    /// By the protocol of Azure's blobs.
    Azure(azure::AzureIdentity),
    /// With keys.
    Keys {
        /// The access key.
        access: String,
        /// The secret key.
        secret: RedactedValue<String>,
        /// The token of a session that the keys are for.
        session: Option<RedactedValue<String>>,
    },
    /// The credentials of the environment, in the order of AWS's own programs: variables, profile, web identity (IRSA),
    /// EKS Pod Identity or ECS, instance metadata.
    Environment {
        /// Where a web identity is exchanged, instead of AWS's own address.
        sts: Option<Url>,
    },
    /// With keys that a token service gives to a user of an LDAP directory.
    Ldap(LdapUserLogin),
}

/// A user of an LDAP directory, and the token service that knows it, as MinIO has one.
#[derive(Debug, Clone)]
pub struct LdapUserLogin {
    /// The service.
    pub endpoint: Url,
    /// The user.
    pub username: String,
    /// Its password.
    pub password: RedactedValue<String>,
    /// Trusted authorities and the client certificate of connections to the service.
    pub tls: TlsConfig,
}

/// A client of a bucket; shared by all requests to the same server as the same user.
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
    /// In the order of the server's listing.
    pub(crate) objects: Vec<ListedBucketObject>,
    /// What asks for the next page.
    pub(crate) next: Option<String>,
}

/// An object on its way.
pub(crate) struct ObjectDownload {
    /// Its entity tag, as that of an [`ListedBucketObject`].
    pub(crate) etag: String,
    /// Its bytes.
    pub(crate) body: BoxStream<'static, Result<Bytes, Error>>,
}

impl BucketClient {
    fn new(server: &BucketServerAddress, budgets: &Arc<HostBudgets>) -> Result<Self, Error> {
        Ok(match &server.identity {
            BucketIdentity::Google(identity) => {
                Self::Google(google::GoogleStorageClient::new(server, identity, budgets)?)
            }
            BucketIdentity::Azure(identity) => {
                Self::Azure(azure::AzureBlobClient::new(server, identity, budgets)?)
            }
            BucketIdentity::Anonymous
            | BucketIdentity::Keys { .. }
            | BucketIdentity::Environment { .. }
            | BucketIdentity::Ldap(_) => Self::S3(s3::S3Client::new(server, budgets)?),
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

    /// The service that was asked for credentials and has not answered yet.
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

    /// Gets an object; `None` if its entity tag is still `unless`.
    async fn get(
        &self,
        remote: &RemoteBucket,
        key: &str,
        unless: Option<&str>,
    ) -> Result<Option<ObjectDownload>, Error> {
        match self {
            Self::S3(client) => client.get(remote, key, unless).await,
            Self::Google(client) => client.get(remote, key, unless).await,
            Self::Azure(client) => client.get(remote, key, unless).await,
        }
    }

    /// An object that was listed, as it is now.
    async fn listed(
        &self,
        remote: &RemoteBucket,
        object: &ListedBucketObject,
    ) -> Result<Option<ObjectDownload>, Error> {
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

/// Opens one object; `None` if its entity tag is still `unless`.
///
/// The caller sets limits and a timeout, because it knows what the object is.
pub(crate) async fn open(
    remote: &RemoteBucket,
    key: &str,
    unless: Option<&str>,
    known: &BucketClientCache,
) -> Result<Option<ObjectDownload>, Error> {
    remote.client(known)?.get(remote, key, unless).await
}

/// Stores an object of JSON, in place of one that is there; by the protocol of S3 only.
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

    /// Ends what takes longer than it may.
    async fn within<T>(
        &self,
        client: &BucketClient,
        doing: &'static str,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        // What was under way is only seen while it is not given up.
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
        let identity = BucketIdentity::Anonymous;
        RemoteBucket {
            server: BucketServerAddress { endpoint, region: None, identity, tls, proxy: None },
            bucket: bucket.to_owned(),
            prefix: String::new(),
            timeout: Duration::from_secs(10),
            limits: TreeLimits::default(),
        }
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_reported_by_its_address() {
        let error =
            list(&remote("b"), None, &BucketArtifactNote::default(), &BucketClientCache::default())
                .await
                .unwrap_err();
        assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
        assert!(error.to_string().starts_with("cannot connect to 127.0.0.1:1: "), "{error}");
        assert!(error.to_string().contains("refused"), "{error}");
        let error = object(&remote("b"), "key", &BucketClientCache::default()).await.unwrap_err();
        assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    }
}
