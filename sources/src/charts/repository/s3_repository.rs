//! A repository in a bucket of an S3 server: `s3://bucket/prefix`.
//!
//! Differs(flux): in Flux a repository is on a web server or a registry. The bucket holds what `helm package` and `helm
//! repo index` make, or Helm's plugins for S3. Here: which objects are asked for, and which servers get the keys.
//! Elsewhere: the protocol ([`crate::bucket`]), the response ([`super`]).

use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use http_client::percent_decoded;
use tree::TreeLimits;
use url::Url;

use super::http_repository::HttpChartRepository;
use super::{
    ChartIndexFetchResult, ChartRepositoryClients, ChartRepositoryCredentials, Error,
    HttpEtagAndLastModified, INDEX, in_time, receive_chart, receive_index, shown, validator,
};
use crate::bucket::{
    self, BucketCredentialSource, BucketEndpoint, BucketObjectDownload, BucketServerSettings,
    RemoteBucket,
};

/// The scheme of S3 addresses.
pub(super) const SCHEME: &str = "s3";

/// The default server of buckets.
const AWS: &str = "s3.amazonaws.com";

/// A Helm chart repository in an S3 bucket, at `s3://bucket/prefix`.
#[derive(Debug)]
pub(super) struct S3ChartRepository {
    /// Ends with a slash.
    url: Url,
    remote: RemoteBucket,
    pass_credentials: bool,
    reach: ChartRepositoryClients,
}

impl S3ChartRepository {
    /// Opens a repository in S3; see [`super::Repository::new`].
    pub(super) fn new(
        url: Url,
        credentials: ChartRepositoryCredentials,
        pass_credentials: bool,
        timeout: Duration,
        reach: &ChartRepositoryClients,
    ) -> Result<Self, Error> {
        let bad = |why: &str| Error::BadUrl { url: shown(&url), why: why.to_owned() };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(bad("keys belong in the Secret of spec.secretRef, not in the URL"));
        }
        if url.port().is_some() || url.query().is_some() {
            return Err(bad(
                "it must be s3://bucket/prefix; set the server as `endpoint` in the Secret",
            ));
        }
        let ChartRepositoryCredentials { basic: _, tls, bucket: of } = credentials;
        // An unusable Secret is reported as such, and not as a server that cannot be reached.
        reach.clients.client(&tls, None)?;
        let endpoint = match of.endpoint {
            Some(endpoint) => endpoint,
            None => BucketEndpoint::parse(AWS, false).map_err(Error::Bucket)?,
        };
        let region = of.region.or_else(|| of_environment(&of.identity));
        let server =
            BucketServerSettings { endpoint, region, identity: of.identity, tls, proxy: None };
        let bucket = percent_decoded(url.host_str().unwrap_or_default());
        let prefix = String::new();
        let limits = TreeLimits::default();
        let remote = RemoteBucket { server, bucket, prefix, timeout, limits };
        Ok(Self { url, remote, pass_credentials, reach: reach.clone() })
    }

    /// The address. It ends with a slash.
    pub(super) fn url(&self) -> String {
        shown(&self.url)
    }

    pub(super) async fn index(
        &self,
        since: Option<&HttpEtagAndLastModified>,
    ) -> Result<ChartIndexFetchResult, Error> {
        let url = self.url.join(INDEX).map_err(bad)?;
        let url_shown = shown(&url);
        let key = self.key(&url)?;
        let unless = since.and_then(|since| since.etag.as_deref());
        let fetching = async {
            let got = bucket::open(&self.remote, &key, unless, &self.reach.buckets).await;
            let Some(BucketObjectDownload { etag, body }) = got.map_err(repository_error)? else {
                return Ok(ChartIndexFetchResult::Unchanged);
            };
            let validators = HttpEtagAndLastModified { etag: validator(&etag), modified: None };
            receive_index(&url_shown, body.map_err(repository_error).boxed(), validators).await
        };
        in_time(&url_shown, self.remote.timeout, fetching).await
    }

    /// Fetches a chart. It may be in the bucket, in another bucket if the keys may be used there, or on a web server without
    /// credentials.
    pub(super) async fn chart(
        &self,
        reference: &str,
        digest: Option<&str>,
    ) -> Result<Vec<u8>, Error> {
        // This is compared as text, since a colon in a file name would be parsed as a scheme.
        let is_absolute = reference.contains("://");
        let url = if is_absolute { Url::parse(reference) } else { self.url.join(reference) };
        let url = url.map_err(bad)?;
        let timeout = self.remote.timeout;
        if matches!(url.scheme(), "http" | "https") {
            let web = HttpChartRepository::new(
                url,
                ChartRepositoryCredentials::default(),
                false,
                timeout,
                &self.reach,
            )?;
            return web.chart(reference, digest).await;
        }
        let refused = |why| self.refused(&url, why);
        let bucket = percent_decoded(url.host_str().unwrap_or_default());
        if url.scheme() != SCHEME || bucket.is_empty() {
            return Err(refused("it is neither an s3:// nor an http(s):// URL"));
        }
        if bucket != self.remote.bucket && !self.pass_credentials {
            return Err(refused("it is in another bucket, and spec.passCredentials is not set"));
        }
        let url_shown = shown(&url);
        let key = self.key(&url)?;
        let remote = RemoteBucket { bucket, ..self.remote.clone() };
        let fetching = async {
            let got = bucket::open(&remote, &key, None, &self.reach.buckets)
                .await
                .map_err(repository_error)?;
            let gone = || Error::Status { url: url_shown.clone(), status: 304 };
            let BucketObjectDownload { body, .. } = got.ok_or_else(gone)?;
            receive_chart(&url_shown, body.map_err(repository_error).boxed(), digest).await
        };
        in_time(&url_shown, timeout, fetching).await
    }

    /// The key of an object.
    fn key(&self, url: &Url) -> Result<String, Error> {
        let key = percent_decoded(url.path().trim_start_matches('/'));
        // Servers over a file system may go where that leads.
        let leads_out = key.split('/').any(|part| part == "..");
        if key.is_empty() || leads_out || key.contains('\0') {
            return Err(self.refused(url, "it has no object key"));
        }
        Ok(key)
    }

    fn refused(&self, url: &Url, why: &'static str) -> Error {
        Error::Redirect { url: self.url(), target: format!("`{}`", shown(url)), why }
    }
}

/// The region of the environment, for requests with the credentials of the environment. `None` for other credentials or
/// if no region is set.
fn of_environment(identity: &BucketCredentialSource) -> Option<String> {
    let BucketCredentialSource::Environment { .. } = identity else { return None };
    let given = |name: &str| std::env::var(name).ok().filter(|region| !region.is_empty());
    given("AWS_REGION").or_else(|| given("AWS_DEFAULT_REGION"))
}

fn bad(error: url::ParseError) -> Error {
    Error::BadUrl { url: "the chart's URL in the index".to_owned(), why: error.to_string() }
}

/// The error of a bucket, in the words of a repository.
fn repository_error(error: bucket::Error) -> Error {
    match error {
        bucket::Error::Busy(busy) => Error::Busy(busy),
        bucket::Error::BadCredentials { endpoint, code, .. } => Error::BadKeys { endpoint, code },
        error => Error::Bucket(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(url: &str, pass: bool) -> Result<S3ChartRepository, Error> {
        let url = super::super::normalized(url)?;
        S3ChartRepository::new(
            url,
            ChartRepositoryCredentials::default(),
            pass,
            Duration::from_secs(1),
            &ChartRepositoryClients::default(),
        )
    }

    #[test]
    fn an_address_is_a_bucket_and_a_prefix() {
        for (text, address, bucket, index) in [
            ("s3://charts", "s3://charts/", "charts", "index.yaml"),
            ("s3://my_charts/a/b//", "s3://my_charts/a/b/", "my_charts", "a/b/index.yaml"),
            ("s3://charts/a%20b", "s3://charts/a%20b/", "charts", "a b/index.yaml"),
        ] {
            let store = store(text, false).unwrap();
            assert_eq!((store.url().as_str(), store.remote.bucket.as_str()), (address, bucket));
            assert_eq!(store.key(&store.url.join(INDEX).unwrap()).unwrap(), index);
        }
        for text in
            ["s3://", "s3:///charts", "s3://me:hunter2@charts", "s3://charts:80/", "s3://a/?x=1"]
        {
            let error = store(text, false).unwrap_err().to_string();
            assert!(error.contains("is not a valid chart repository URL"), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[tokio::test]
    async fn keys_are_for_their_own_bucket_unless_they_are_passed_on() {
        for (reference, pass, expected) in [
            ("s3://other/a.tgz", false, "it is in another bucket"),
            ("gs://charts/a.tgz", true, "neither an s3:// nor an http(s):// URL"),
            ("file:///etc/passwd", true, "neither an s3:// nor an http(s):// URL"),
            ("a/%2e%2e/%2e%2e%2fa.tgz", false, "has no object key"),
            ("http://169.254.169.254/a.tgz", true, "link-local"),
        ] {
            let error = store("s3://charts/a", pass).unwrap().chart(reference, None).await;
            let error = error.unwrap_err().to_string();
            assert!(error.contains(expected), "{reference}: {error}");
        }
    }
}
