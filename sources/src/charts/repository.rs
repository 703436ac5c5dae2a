//! Requests to a chart repository for its index, and for the archive of a chart.
//!
//! Here: addresses, answers, limits. In the folder: repositories on web servers (`http_repository`) and in buckets
//! (`s3_repository`). Elsewhere: the content of an index ([`super::index`]), its cache ([`super::index_cache`]).

mod http_repository;
mod s3_repository;

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use artifacts::archive::{ArchiveDigest, DigestingWriter};
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use http_client::{HostBudgets, HostBusyError, HttpClientCache};
use sha2::{Digest as _, Sha256};
use url::Url;

use super::{ChartRepositoryCredentials, MAX_CHART, MAX_INDEX};
use crate::bucket;
use http_repository::HttpChartRepository;
use s3_repository::S3ChartRepository;

/// The name of the index, below the address.
const INDEX: &str = "index.yaml";

/// The longest validator of a server that is remembered.
const LONGEST_VALIDATOR: usize = 1024;

/// A repository, and the client for it.
#[derive(Debug)]
pub struct ChartRepository(ChartRepositoryBackend);

#[derive(Debug)]
enum ChartRepositoryBackend {
    Web(Box<HttpChartRepository>),
    Store(Box<S3ChartRepository>),
}

/// The bytes of an answer.
type ResponseChunks<'a> = BoxStream<'a, Result<Bytes, Error>>;

/// The validators of a response, to be sent with the next request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HttpEtagAndLastModified {
    /// `ETag`.
    pub etag: Option<String>,
    /// `Last-Modified`.
    pub modified: Option<String>,
}

/// The answer of a repository to a request for its index.
#[derive(Debug)]
pub enum ChartIndexFetchResult {
    /// The index still has these validators.
    Unchanged,
    /// The current index.
    Index {
        /// A file without a name, at its beginning.
        file: File,
        /// The digest and size of the index.
        sealed: ArchiveDigest,
        /// The validators for the next request.
        validators: HttpEtagAndLastModified,
    },
}

/// The answer of a repository to a request for the archive of a chart.
#[derive(Debug)]
pub enum ChartFetchResult {
    /// The archive still has these validators.
    Unchanged,
    /// The current archive.
    Archive {
        /// The bytes of the archive.
        bytes: Vec<u8>,
        /// The validators for the next request. A bucket has none.
        validators: HttpEtagAndLastModified,
    },
}

/// The reason why a repository cannot be used. URLs in it have no user, password and query.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is not one of a repository.
    #[error("`{url}` is not a valid chart repository URL: {why}")]
    BadUrl {
        /// The given URL.
        url: String,
        /// The reason why it is invalid.
        why: String,
    },
    /// The Secret has something that cannot be used.
    #[error(transparent)]
    Client(#[from] http_client::Error),
    /// The server was not reached, or stopped responding.
    #[error("cannot fetch `{url}`: {why}")]
    NoAnswer {
        /// The URL.
        url: String,
        /// The root cause.
        why: String,
    },
    /// Requests to the server are paused, as it asked for.
    #[error(transparent)]
    Busy(#[from] HostBusyError),
    /// The server requires authentication, or refuses the credentials.
    #[error("authentication failed for `{url}`: HTTP status {status}; check the credentials")]
    Unauthorized {
        /// The URL.
        url: String,
        /// 401 or 403.
        status: u16,
    },
    /// The store does not accept the keys of the Secret.
    #[error(
        "authentication failed at {endpoint} ({code}); check `accesskey`, `secretkey` and `region` of the Secret"
    )]
    BadKeys {
        /// The server.
        endpoint: String,
        /// The server's error code.
        code: String,
    },
    /// The bucket refuses a request.
    #[error(transparent)]
    Bucket(bucket::Error),
    /// The server responded with another error.
    #[error("cannot fetch `{url}`: HTTP status {status}")]
    Status {
        /// The URL.
        url: String,
        /// The HTTP status.
        status: u16,
    },
    /// The server redirects too often, or to an address that is not allowed.
    #[error("redirect from `{url}` to {target} not allowed: {why}")]
    Redirect {
        /// The URL of the first request.
        url: String,
        /// The target of the redirect.
        target: String,
        /// The reason why the redirect is not followed.
        why: &'static str,
    },
    /// The body is larger than the limit.
    #[error("`{url}` is larger than {limit} bytes")]
    TooLarge {
        /// The URL of the file.
        url: String,
        /// The most bytes that are read.
        limit: u64,
    },
    /// The fetch exceeded its time limit.
    #[error("fetching `{url}` timed out after {limit:?}")]
    TooSlow {
        /// The URL of the file.
        url: String,
        /// The longest time.
        limit: Duration,
    },
    /// The archive has another digest than the one in the index.
    #[error("the digest of `{url}` is not `{expected}` from the index")]
    Mismatch {
        /// The URL of the archive.
        url: String,
        /// The digest in the index. The actual one is left out: the author of an index need not be allowed to read from
        /// the URL.
        expected: String,
    },
    /// The disk refused to hold it meanwhile.
    #[error("cannot store `{url}` in a temporary file: {why}")]
    Disk {
        /// The URL of the file.
        url: String,
        /// The cause of the failure.
        why: String,
    },
}

impl Error {
    /// Whether only other credentials help.
    pub fn is_about_credentials(&self) -> bool {
        match self {
            Self::Unauthorized { .. } | Self::BadKeys { .. } => true,
            Self::Bucket(error) => error.is_about_credentials(),
            _ => false,
        }
    }
}

/// The URL of a repository in the form for comparisons, with one slash at its end.
///
/// # Errors
/// [`Error::BadUrl`]: the text is not a URL with the scheme `http`, `https` or `s3`.
pub fn normalized(text: &str) -> Result<Url, Error> {
    let bad = |why: &str| Error::BadUrl { url: shown_text(text), why: why.to_owned() };
    let mut url = Url::parse(text).map_err(|error| bad(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https" | s3_repository::SCHEME) {
        return Err(bad("it must start with http://, https:// or s3://"));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err(bad("it has no host"));
    }
    let path = format!("{}/", url.path().trim_end_matches('/'));
    url.set_path(&path);
    url.set_fragment(None);
    Ok(url)
}

/// An address that may be shown, of a text that may be none.
fn shown_text(text: &str) -> String {
    Url::parse(text).map_or_else(|_| "the URL".to_owned(), |url| shown(&url))
}

/// A URL without parts that may be credentials.
fn shown(url: &Url) -> String {
    let mut url = url.clone();
    // Both fail only for URLs without a host.
    let _: Result<(), ()> = url.set_password(None);
    let _: Result<(), ()> = url.set_username("");
    url.set_query(None);
    url.set_fragment(None);
    url.to_string()
}

/// The resources that all repositories share: the budgets of hosts, and clients with their connections.
#[derive(Debug, Clone, Default)]
pub struct ChartRepositoryClients {
    /// The budgets that limit the requests to each host.
    pub budgets: Arc<HostBudgets>,
    /// Clients of web servers. They decide which servers may be asked, with the same rules as the budgets.
    pub clients: Arc<HttpClientCache>,
    /// Clients of buckets.
    pub buckets: Arc<bucket::BucketClientCache>,
}

impl ChartRepository {
    /// A repository at a URL. `http://` and `https://` name a web server, and `s3://bucket/prefix` names a bucket.
    ///
    /// User and password in the URL of a web server are used if `credentials` have none. With `pass_credentials`, credentials
    /// and client certificate are also sent to other hosts in the index. The keys of a bucket are then also used for other
    /// buckets of the same server.
    ///
    /// # Errors
    /// [`Error::BadUrl`], or [`Error::Client`] for certificates that cannot be used.
    pub fn new(
        url: &str,
        credentials: ChartRepositoryCredentials,
        pass_credentials: bool,
        timeout: Duration,
        reach: &ChartRepositoryClients,
    ) -> Result<Self, Error> {
        let url = normalized(url)?;
        let is_store = url.scheme() == s3_repository::SCHEME;
        let of = credentials;
        let pass = pass_credentials;
        Ok(Self(if is_store {
            ChartRepositoryBackend::Store(Box::new(S3ChartRepository::new(
                url, of, pass, timeout, reach,
            )?))
        } else {
            ChartRepositoryBackend::Web(Box::new(HttpChartRepository::new(
                url, of, pass, timeout, reach,
            )?))
        }))
    }

    /// The URL without credentials. It ends with a slash.
    pub fn url(&self) -> String {
        match &self.0 {
            ChartRepositoryBackend::Web(web) => web.url(),
            ChartRepositoryBackend::Store(store) => store.url(),
        }
    }

    /// Fetches the index, unless it still has the validators `since`.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn index(
        &self,
        since: Option<&HttpEtagAndLastModified>,
    ) -> Result<ChartIndexFetchResult, Error> {
        match &self.0 {
            ChartRepositoryBackend::Web(web) => web.index(since).await,
            ChartRepositoryBackend::Store(store) => store.index(since).await,
        }
    }

    /// Fetches the archive of a chart from its URL in the index.
    ///
    /// `digest` is SHA-256 in hexadecimal digits. Differs(flux): Flux does not compare it.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn chart(&self, reference: &str, digest: Option<&str>) -> Result<Vec<u8>, Error> {
        match &self.0 {
            ChartRepositoryBackend::Web(web) => web.chart(reference, digest).await,
            ChartRepositoryBackend::Store(store) => store.chart(reference, digest).await,
        }
    }

    /// Fetches the archive of a chart from its URL in the index, unless it still has the validators `since`. An archive in a
    /// bucket is always fetched.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn chart_since(
        &self,
        reference: &str,
        since: &HttpEtagAndLastModified,
    ) -> Result<ChartFetchResult, Error> {
        match &self.0 {
            ChartRepositoryBackend::Web(web) => web.chart_since(reference, None, Some(since)).await,
            ChartRepositoryBackend::Store(store) => {
                let bytes = store.chart(reference, None).await?;
                Ok(ChartFetchResult::Archive {
                    bytes,
                    validators: HttpEtagAndLastModified::default(),
                })
            }
        }
    }

    /// Fetches the provenance file of a chart, which is beside its archive.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn provenance(&self, reference: &str) -> Result<Vec<u8>, Error> {
        let (path, rest) = reference.split_at(end_of_path(reference));
        self.chart(&format!("{path}.prov{rest}"), None).await
    }
}

fn end_of_path(reference: &str) -> usize {
    reference.find(['?', '#']).unwrap_or(reference.len())
}

/// The name of the file to which a reference of an index leads, as its provenance calls it.
pub fn file_name(reference: &str) -> &str {
    let path = &reference[..end_of_path(reference)];
    path.rsplit('/').next().unwrap_or(path)
}

async fn in_time<T>(
    url: &str,
    limit: Duration,
    fetching: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let slow = || Error::TooSlow { url: url.to_owned(), limit };
    tokio::time::timeout(limit, fetching).await.map_err(|_| slow())?
}

/// The validator that a server sent. `None` if it is empty or too long to be stored.
fn validator(value: &str) -> Option<String> {
    let is_some = !value.is_empty() && value.len() <= LONGEST_VALIDATOR;
    is_some.then(|| value.to_owned())
}

/// Writes the bytes of an index into a file without a name.
async fn receive_index(
    url: &str,
    chunks: ResponseChunks<'_>,
    validators: HttpEtagAndLastModified,
) -> Result<ChartIndexFetchResult, Error> {
    let disk = |error: std::io::Error| Error::Disk { url: url.to_owned(), why: error.to_string() };
    let mut out = DigestingWriter::new(tempfile::tempfile().map_err(disk)?);
    receive(url, MAX_INDEX, chunks, |chunk| out.write_all(chunk).map_err(disk)).await?;
    let (mut file, sealed) = out.finish();
    file.rewind().map_err(disk)?;
    Ok(ChartIndexFetchResult::Index { file, sealed, validators })
}

/// The bytes of an archive, which must have the digest if there is one.
async fn receive_chart(
    url: &str,
    chunks: ResponseChunks<'_>,
    digest: Option<&str>,
) -> Result<Vec<u8>, Error> {
    let mut archive = Vec::new();
    let take = |chunk: &[u8]| {
        archive.extend_from_slice(chunk);
        Ok(())
    };
    receive(url, MAX_CHART, chunks, take).await?;
    let found = hex::encode(Sha256::digest(&archive));
    match digest {
        Some(expected) if !expected.eq_ignore_ascii_case(&found) => {
            let url = url.to_owned();
            let expected = expected.to_owned();
            Err(Error::Mismatch { url, expected })
        }
        _ => Ok(archive),
    }
}

/// Receives a body of at most `limit` bytes.
async fn receive(
    url: &str,
    limit: u64,
    mut chunks: ResponseChunks<'_>,
    mut take: impl FnMut(&[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut taken: u64 = 0;
    while let Some(chunk) = chunks.next().await.transpose()? {
        taken = taken.saturating_add(chunk.len() as u64);
        if taken > limit {
            return Err(Error::TooLarge { url: url.to_owned(), limit });
        }
        take(&chunk)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
