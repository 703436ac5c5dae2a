//! Archives and files on web servers: one address, one artifact.
//!
//! Here: the URL and the credentials ([`RemoteHttpArchive`]), what went wrong ([`Error`]), the result
//! ([`DownloadedFile`]). In the folder: the request and its redirects (`request`), what the bytes are (`format`).
//! Elsewhere: how much is asked of a host ([`http_client::HostBudgets`]), untrusted archives ([`artifacts::archive`]), what
//! is left out ([`artifacts::ignore`]).

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

/// How much a download may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DownloadLimits {
    /// Bytes of the file as it is served.
    pub bytes: u64,
    /// From the first byte asked to the last byte received, redirects included.
    pub time: Duration,
}

impl Default for DownloadLimits {
    /// 128 MiB, 60 seconds.
    fn default() -> Self {
        Self { bytes: 128 << 20, time: Duration::from_secs(60) }
    }
}

/// What is fetched, from where, and with which credentials.
#[derive(Debug, Clone)]
pub struct RemoteHttpArchive {
    url: Url,
    /// Credentials for the server of the URL; redirects to another one go without. [`GitAuth::Ssh`] has no effect.
    pub auth: GitAuth,
    /// Trusted authorities and the client certificate.
    pub tls: TlsConfig,
    /// The proxy between.
    pub proxy: Option<HttpProxy>,
    /// What the bytes have to be: `sha256:` and 64 hexadecimal digits.
    pub digest: Option<String>,
    /// How much it may take.
    pub limits: DownloadLimits,
}

/// What a server uses to detect changes: `ETag` and `Last-Modified`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HttpValidators {
    /// `ETag`, as it was given.
    pub etag: Option<String>,
    /// `Last-Modified`, as it was given.
    pub last_modified: Option<String>,
}

impl HttpValidators {
    /// Without any, nothing can be asked for on a condition.
    pub fn is_empty(&self) -> bool {
        self.etag.is_none() && self.last_modified.is_none()
    }
}

/// What a server has.
#[derive(Debug)]
pub enum ArchiveFetchResult {
    /// The same as when it gave the validators.
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
    /// To ask with the next time.
    pub validators: HttpValidators,
    /// `Content-Type` without parameters, in lower case.
    content_type: String,
    /// The last part of the path of the URL.
    name: String,
    /// Where it is, for errors.
    shown: String,
}

/// Why there is no file, or none that can be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URL is not one that can be fetched.
    #[error("cannot fetch `{url}`: {why}")]
    InvalidUrl {
        /// The URL without credentials.
        url: String,
        /// What is wrong with it.
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
        /// Where it is.
        url: String,
        /// The HTTP status.
        status: u16,
    },
    /// The server has no such file, or responded with another error.
    #[error("cannot fetch `{url}`: HTTP status {status}")]
    Status {
        /// Where it is.
        url: String,
        /// The HTTP status.
        status: u16,
    },
    /// A redirect leads where we do not go. Of its target the scheme and host alone are shown, as the rest may be secret.
    #[error("redirect from `{url}` to {to} not allowed: {why}")]
    Redirected {
        /// Where it should be.
        url: String,
        /// The scheme and host that it names.
        to: String,
        /// Why that is not followed.
        why: String,
    },
    /// No connection, or it broke.
    #[error("cannot fetch `{url}`: {why}")]
    Unreachable {
        /// Where it is.
        url: String,
        /// What is at the bottom of it.
        why: String,
    },
    /// It does not end where it should.
    #[error("`{url}` is larger than {limit} bytes")]
    TooLarge {
        /// Where it is.
        url: String,
        /// The most that is read.
        limit: u64,
    },
    /// It took longer than it may.
    #[error("fetching `{url}` timed out after {limit:?}; increase spec.timeout")]
    TooSlow {
        /// Where it is.
        url: String,
        /// The longest time.
        limit: Duration,
    },
    /// It does not have the digest of the spec.
    #[error("the digest of `{url}` is not `{expected}` from spec.digest")]
    Mismatch {
        /// Where it is.
        url: String,
        /// What was expected. The actual digest is left out: a user who may write a URL need not be allowed to read
        /// from it.
        expected: String,
    },
    /// It is neither an archive nor YAML.
    #[error("`{url}` is not a tar.gz, zip or YAML file: {why}")]
    Format {
        /// Where it is.
        url: String,
        /// What it is, or seems to be.
        why: String,
    },
    /// It is an archive that cannot be used.
    #[error("cannot extract `{url}`")]
    Extract {
        /// Where it is.
        url: String,
        /// What is wrong with it.
        source: ExtractError,
    },
    /// The disk refused to hold it meanwhile.
    #[error("cannot store `{url}` in a temporary file: {why}")]
    Disk {
        /// Where it is.
        url: String,
        /// Why it failed.
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
            limits: DownloadLimits::default(),
        })
    }

    /// With what its bytes have to be.
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
