//! The errors of requests to a registry.
//!
//! Every text names the request without credentials. It also leaves out the query of a URL, which may contain a signature.

use std::time::Duration;

use http_client::HostBusyError;
use jiff::{SignedDuration, Timestamp};

use super::OciDigest;

/// The reason why a request to a registry failed.
///
/// The text names what happened and, if something can be done, what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The URL names no repository.
    #[error("{reason}")]
    InvalidUrl {
        /// The reason why it is invalid.
        reason: String,
    },
    /// A tag, a digest, a range of versions or a pattern is malformed.
    #[error("`{name}` is not a valid {kind}: {reason}")]
    InvalidReference {
        /// The expected kind of name.
        kind: &'static str,
        /// The name as it was given.
        name: String,
        /// The reason why it is invalid.
        reason: String,
    },
    /// Something in a Secret cannot be used.
    #[error("{0}")]
    BadSecret(String),
    /// The registry, or its token service, does not accept our credentials, or wants some.
    #[error("{request}: {said}; check the registry credentials")]
    Unauthorized {
        /// Method and URL.
        request: String,
        /// The registry's answer.
        said: String,
    },
    /// The cloud gave no login for its registry.
    #[error("cannot log in to {registry}: {why}")]
    Login {
        /// The registry.
        registry: String,
        /// The service that was asked, and its answer.
        why: String,
    },
    /// The repository, manifest or layer does not exist, or the credentials do not allow to see it. A user may push it later.
    #[error("{request}: {said}")]
    NotFound {
        /// Method and URL.
        request: String,
        /// The registry's answer.
        said: String,
    },
    /// No tag is a version in the range. One may be pushed later.
    #[error("no match found for semver: {range}")]
    NoMatch {
        /// The range as it was given.
        range: String,
    },
    /// The connection was not established, or was interrupted.
    #[error("cannot connect to {registry}: {cause}")]
    Unreachable {
        /// Host and port.
        registry: String,
        /// The message of the operating system.
        cause: String,
    },
    /// The certificate of the registry is not accepted.
    #[error(
        "the certificate of {registry} is not trusted: {cause}; add its CA as `ca.crt` to the Secret of \
         spec.certSecretRef"
    )]
    Untrusted {
        /// Host and port.
        registry: String,
        /// The reason why the certificate is not accepted.
        cause: String,
    },
    /// The registry is busy or broken.
    #[error("{request}: {said}")]
    Unavailable {
        /// Method and URL.
        request: String,
        /// The registry's answer.
        said: String,
        /// The delay that the registry requests.
        retry_after: Option<Duration>,
    },
    /// Requests to the registry are paused, as it asked for.
    #[error(transparent)]
    Busy(#[from] HostBusyError),
    /// The registry refuses the request for another reason.
    #[error("{request}: {said}")]
    Refused {
        /// Method and URL.
        request: String,
        /// The registry's answer.
        said: String,
    },
    /// The request exceeded its time limit.
    #[error("{registry} did not respond within {}s; increase spec.timeout", limit.as_secs_f64())]
    TimedOut {
        /// Host and port.
        registry: String,
        /// The longest time.
        limit: Duration,
    },
    /// The content does not have the requested digest.
    #[error("the digest of a {what} of {place} is not {expected}")]
    Mismatch {
        /// `manifest` or `layer`.
        what: &'static str,
        /// The repository.
        place: String,
        /// The requested digest. The actual one is left out, as in all such errors.
        expected: OciDigest,
    },
    /// There is more than may be.
    #[error("{what} is larger than the limit of {limit}")]
    TooLarge {
        /// What.
        what: String,
        /// Bytes or entries.
        limit: u64,
    },
    /// The manifest is not of a type that can be pulled.
    #[error("{place} has an unsupported media type: {found}")]
    UnsupportedMediaType {
        /// The requested tag, digest or repository.
        place: String,
        /// The media type.
        found: String,
    },
    /// The artifact has no layer that was asked for.
    #[error("{0}")]
    NoLayer(String),
    /// A redirect, or the address where tokens are given, leads where we do not go.
    #[error("redirect from {request} to `{to}` not allowed: {reason}")]
    Redirected {
        /// Method and URL.
        request: String,
        /// The target of the redirect, without credentials and query.
        to: String,
        /// Why.
        reason: &'static str,
    },
    /// The answer makes no sense.
    #[error("invalid response to {request}: {reason}")]
    Protocol {
        /// The method and URL, or the subject of the request.
        request: String,
        /// The reason why the answer is invalid.
        reason: String,
    },
    /// The local disk.
    #[error("cannot store {what} in a temporary file: {why}")]
    Disk {
        /// What.
        what: String,
        /// The cause of the failure.
        why: String,
    },
}

impl Error {
    /// The time when the registry wants the next request. `None` if the registry does not say.
    pub fn retry_at(&self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Unavailable { retry_after: Some(after), .. } => {
                now.checked_add(SignedDuration::try_from(*after).ok()?).ok()
            }
            Self::Busy(busy) => Some(busy.until),
            _ => None,
        }
    }
}
