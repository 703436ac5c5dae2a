//! The errors of requests to a bucket, with texts for people.

use std::io;
use std::time::Duration;

use artifacts::{archive, ignore};
use tree::RelPath;

/// The reason why a bucket could not be listed or fetched. No text contains a secret.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The endpoint is not a host.
    #[error(
        "invalid endpoint `{0}`: it must be a host with an optional port, without scheme and path, such as \
         `minio.example.com:9000` (set spec.insecure for http)"
    )]
    Endpoint(String),
    /// The endpoint is not an account.
    #[error(
        "invalid endpoint `{0}`: it must be the URL of a storage account, without a query, such as \
         `https://account.blob.core.windows.net`"
    )]
    Account(String),
    /// The credentials of a Secret cannot be used.
    #[error("the Secret of spec.secretRef is invalid: {0}")]
    BadSecret(String),
    /// The bucket does not exist.
    #[error("bucket '{bucket}' not found at {endpoint}")]
    NoBucket {
        /// The bucket.
        bucket: String,
        /// The server.
        endpoint: String,
    },
    /// The object does not exist.
    #[error("object '{key}' not found in bucket '{bucket}'")]
    NoObject {
        /// The bucket.
        bucket: String,
        /// The object.
        key: String,
    },
    /// The server refuses access to the user, or to anonymous requests.
    #[error(
        "access to {what} at {endpoint} denied ({code}); check the credentials, and that they allow listing the \
         bucket and reading its objects"
    )]
    Denied {
        /// The bucket or object.
        what: String,
        /// The server.
        endpoint: String,
        /// The server's error code.
        code: String,
    },
    /// The keys are wrong.
    #[error("authentication failed at {endpoint} ({code}); check {check}")]
    BadCredentials {
        /// The server.
        endpoint: String,
        /// The server's error code.
        code: String,
        /// The advice.
        check: &'static str,
    },
    /// The clocks differ.
    #[error("{endpoint} rejects requests because of clock skew ({code}); synchronize the clocks")]
    Skewed {
        /// The server.
        endpoint: String,
        /// The server's error code.
        code: String,
    },
    /// The environment has no usable credentials.
    #[error("no credentials for {endpoint}: {why}")]
    NoCredentials {
        /// The server of the credentials.
        endpoint: String,
        /// The service that was asked, and its answer.
        why: String,
    },
    /// The server does not answer.
    #[error("cannot connect to {endpoint}: {why}")]
    Unreachable {
        /// The server.
        endpoint: String,
        /// The root cause.
        why: String,
    },
    /// Requests to the server are paused, as it asked for.
    #[error(transparent)]
    Busy(#[from] http_client::HostBusyError),
    /// The certificate of the server is not trusted.
    #[error(
        "the certificate of {endpoint} is not trusted: {why}; add its CA as `ca.crt` to the Secret of \
         spec.certSecretRef"
    )]
    Distrusted {
        /// The server.
        endpoint: String,
        /// The reason why the certificate is not trusted.
        why: String,
    },
    /// The action exceeded its time limit.
    #[error("{doing} bucket '{bucket}' at {endpoint} exceeded spec.timeout ({limit:?})")]
    TooSlow {
        /// The action that failed.
        doing: &'static str,
        /// The bucket.
        bucket: String,
        /// The server.
        endpoint: String,
        /// The time limit.
        limit: Duration,
    },
    /// An object, or all together, are larger than an artifact may be.
    #[error(
        "{what} has {found}, more than the allowed {limit}; exclude some with spec.prefix or spec.ignore"
    )]
    TooLarge {
        /// The bucket or object.
        what: String,
        /// The amount that was found.
        found: String,
        /// The limit.
        limit: String,
    },
    /// The server responded with another error.
    #[error("{endpoint} responded to {action} with {status}{}", said(.code, .text))]
    Answer {
        /// The action that failed.
        action: String,
        /// The server.
        endpoint: String,
        /// The status of the answer.
        status: u16,
        /// The server's error code.
        code: String,
        /// The message of the response.
        text: String,
    },
    /// The response does not follow the protocol.
    #[error("cannot read the response of {endpoint} to {action}: {why}")]
    Unreadable {
        /// The action that failed.
        action: String,
        /// The server.
        endpoint: String,
        /// The reason why it is invalid.
        why: String,
    },
    /// A key can be no file of an artifact.
    #[error(
        "object '{key}' cannot be a file: {why}; rename it, or choose a spec.prefix without it"
    )]
    Key {
        /// The key.
        key: String,
        /// Why.
        why: String,
    },
    /// Two keys would give the same path.
    #[error(
        "objects '{first}' and '{second}' cannot both be files: they have the same path, or one is a directory of \
         the other; rename one, or exclude it with spec.ignore"
    )]
    Collision {
        /// One key.
        first: String,
        /// The other.
        second: String,
    },
    /// The patterns cannot be used.
    #[error(transparent)]
    Ignore(#[from] ignore::Error),
    /// The client cannot be set up.
    #[error(transparent)]
    Http(#[from] http_client::Error),
    /// The downloaded data could not be written to the disk.
    #[error("cannot store fetched objects in a temporary file")]
    Disk(#[source] io::Error),
    /// The name of a bundle is not that of a supported archive.
    #[error("`{0}` is not a bundle: its name must end in .tar.gz, .tgz or .zip")]
    NoBundle(String),
    /// A bundle is not a valid archive.
    #[error("bundle '{key}' cannot be unpacked: {why}")]
    Bundle {
        /// The object.
        key: String,
        /// The error in the archive.
        why: String,
    },
    /// Two entries are at one place.
    #[error("`{0}` is both a file and a directory")]
    Twice(RelPath),
}

fn said(code: &str, text: &str) -> String {
    match (code, text) {
        ("", "") => String::new(),
        ("", text) => format!(": {text}"),
        (code, "") => format!(" ({code})"),
        (code, text) => format!(" ({code}): {text}"),
    }
}

impl From<archive::Error> for Error {
    fn from(error: archive::Error) -> Self {
        match error {
            archive::Error::Collision(path) => Self::Twice(path),
            other => Self::Disk(io::Error::other(other)),
        }
    }
}

impl Error {
    /// Whether only other credentials help.
    pub fn is_about_credentials(&self) -> bool {
        matches!(
            self,
            Self::Denied { .. }
                | Self::BadCredentials { .. }
                | Self::NoCredentials { .. }
                | Self::BadSecret(_)
        )
    }
}
