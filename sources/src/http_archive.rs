//! Archives and files on web servers. Each URL gives one artifact.
//!
//! Here: the URL and the credentials ([`RemoteHttpArchive`]), errors ([`Error`]), the result ([`DownloadedFile`]). In the
//! folder: the request and its redirects (`request`), detecting the format (`format`).
//! Elsewhere: limits for each host ([`http_client::HostBudgets`]), untrusted archives ([`artifacts::archive`]), ignored files
//! ([`artifacts::ignore`]).

mod format;
mod request;

use std::fs::File;
use std::time::Duration;

use artifacts::archive::ExtractError;
use git::GitAuth;
use http_client::{HostBusyError, HttpProxy, TlsConfig};
use url::Url;

pub use format::{contents, revision, unpack};
pub use request::ask;

/// The limits of a download.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpArchiveLimits {
    /// The most bytes of the file as it is served.
    pub bytes: u64,
    /// The time from the first byte of the request to the last byte of the response, including redirects.
    pub time: Duration,
}

impl Default for HttpArchiveLimits {
    /// The default limits: 128 MiB and 60 seconds.
    fn default() -> Self {
        Self { bytes: 128 << 20, time: Duration::from_secs(60) }
    }
}

/// The URL of a file, its credentials and its expected digest.
#[derive(Debug, Clone)]
pub struct RemoteHttpArchive {
    url: Url,
    /// The credentials for the server of the URL. Redirects to another server are followed without them. [`GitAuth::Ssh`] has
    /// no effect.
    pub auth: GitAuth,
    /// Trusted authorities and the client certificate.
    pub tls: TlsConfig,
    /// The proxy between.
    pub proxy: Option<HttpProxy>,
    /// The expected digest of the bytes: `sha256:` and 64 hexadecimal digits.
    pub digest: Option<String>,
    /// The limits of the download.
    pub limits: HttpArchiveLimits,
}

/// The validators with which a server detects changes: `ETag` and `Last-Modified`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArchiveEtagAndLastModified {
    /// `ETag`, as it was given.
    pub etag: Option<String>,
    /// `Last-Modified`, as it was given.
    pub last_modified: Option<String>,
}

impl ArchiveEtagAndLastModified {
    /// Whether there are no validators, so that no conditional request is possible.
    pub fn is_empty(&self) -> bool {
        self.etag.is_none() && self.last_modified.is_none()
    }
}

/// The answer of a server.
#[derive(Debug)]
pub enum HttpArchiveFetchResult {
    /// The file is unchanged since the server sent the validators.
    Unchanged,
    /// A file.
    Found(DownloadedFile),
}

/// A file as it was served, in a file without a name, at its beginning.
#[derive(Debug)]
pub struct DownloadedFile {
    file: File,
    /// `sha256:` and 64 hexadecimal digits.
    pub digest: String,
    /// The validators for the next request.
    pub validators: ArchiveEtagAndLastModified,
    /// `Content-Type` without parameters, in lower case.
    content_type: String,
    /// The last part of the path of the URL.
    name: String,
    /// The URL for errors.
    shown: String,
}

/// The reason why there is no usable file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URL is not one that can be fetched.
    #[error("cannot fetch `{url}`: {why}")]
    InvalidUrl {
        /// The URL without credentials.
        url: String,
        /// The reason why it is invalid.
        why: &'static str,
    },
    /// The digest of the spec is not valid.
    #[error("`{0}` is not a digest of the form `sha256:<64 hexadecimal digits>`")]
    InvalidDigest(String),
    /// Something in a Secret cannot be used.
    #[error(transparent)]
    BadSecret(#[from] http_client::Error),
    /// The server wants no requests for a while.
    #[error(transparent)]
    Busy(#[from] HostBusyError),
    /// The server does not accept our credentials, or wants some.
    #[error(
        "authentication failed for `{url}`: HTTP status {status}; check the credentials in the Secret"
    )]
    AuthenticationFailed {
        /// The URL of the file.
        url: String,
        /// The HTTP status.
        status: u16,
    },
    /// The server has no such file, or responded with another error.
    #[error("cannot fetch `{url}`: HTTP status {status}")]
    Status {
        /// The URL of the file.
        url: String,
        /// The HTTP status.
        status: u16,
    },
    /// A redirect leads where we do not go. Of its target the scheme and host alone are shown, as the rest may be secret.
    #[error("redirect from `{url}` to {to} not allowed: {why}")]
    Redirected {
        /// The requested URL.
        url: String,
        /// The scheme and host that it names.
        to: String,
        /// The reason why the redirect is not followed.
        why: String,
    },
    /// No connection, or it broke.
    #[error("cannot fetch `{url}`: {why}")]
    Unreachable {
        /// The URL of the file.
        url: String,
        /// The root cause.
        why: String,
    },
    /// The file is larger than the limit.
    #[error("`{url}` is larger than {limit} bytes")]
    TooLarge {
        /// The URL of the file.
        url: String,
        /// The most bytes that are read.
        limit: u64,
    },
    /// The download exceeded its time limit.
    #[error("fetching `{url}` timed out after {limit:?}; increase spec.timeout")]
    TooSlow {
        /// The URL of the file.
        url: String,
        /// The longest time.
        limit: Duration,
    },
    /// The file does not have the digest in the spec.
    #[error("the digest of `{url}` is not `{expected}` from spec.digest")]
    Mismatch {
        /// The URL of the file.
        url: String,
        /// The expected digest. The actual digest is left out, since a user who may write a URL need not be allowed to read
        /// from it.
        expected: String,
    },
    /// The file is neither an archive nor YAML.
    #[error("`{url}` is not a tar.gz, zip or YAML file: {why}")]
    Format {
        /// The URL of the file.
        url: String,
        /// The format that the file has or seems to have.
        why: String,
    },
    /// The archive cannot be used.
    #[error("cannot extract `{url}`")]
    Extract {
        /// The URL of the file.
        url: String,
        /// The error in the archive.
        source: ExtractError,
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

impl RemoteHttpArchive {
    /// A file on a web server, requested without credentials.
    ///
    /// # Errors
    /// [`Error::InvalidUrl`] for a URL that is not `http` or `https`, or has credentials in it.
    pub fn new(url: &str) -> Result<Self, Error> {
        let bad = |url: String, why| Err(Error::InvalidUrl { url, why });
        let Ok(parsed) = Url::parse(url) else {
            return bad(crate::remote_bases::without_credentials(url), "it is not a URL");
        };
        let shown = crate::remote_bases::without_credentials(url);
        if !matches!(parsed.scheme(), "http" | "https") {
            return bad(shown, "only http:// and https:// are supported");
        }
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return bad(
                shown,
                "credentials belong in the Secret of spec.secretRef, not in the URL",
            );
        }
        Ok(Self {
            url: parsed,
            auth: GitAuth::None,
            tls: TlsConfig::default(),
            proxy: None,
            digest: None,
            limits: HttpArchiveLimits::default(),
        })
    }

    /// Sets the expected digest of the bytes.
    ///
    /// # Errors
    /// [`Error::InvalidDigest`].
    pub fn with_digest(self, digest: Option<&str>) -> Result<Self, Error> {
        let is_hex = |hex: &str| {
            hex.len() == 64 && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        match digest {
            Some(digest) if !digest.strip_prefix("sha256:").is_some_and(is_hex) => {
                Err(Error::InvalidDigest(digest.to_owned()))
            }
            digest => Ok(Self { digest: digest.map(str::to_owned), ..self }),
        }
    }

    /// The URL, which has no credentials in it.
    pub fn url(&self) -> &Url {
        &self.url
    }
}

#[cfg(test)]
mod tests;
