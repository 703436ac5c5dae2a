//! The facts about a request to an object store, and the errors that have the same text for every protocol.

use std::error::Error as StdError;

use http_client::host_budget::SendError;
use http_client::{is_distrust, root_cause};

use super::{Error, RemoteBucket};

/// The longest text of a server that an error repeats.
const LONGEST_TEXT: usize = 300;

/// The context of a request: bucket, object and action.
pub(super) struct BucketRequestContext<'a> {
    pub(super) remote: &'a RemoteBucket,
    /// The object. `None` for the bucket itself.
    pub(super) key: Option<&'a str>,
    /// The action, as errors name it.
    pub(super) action: String,
}

impl<'a> BucketRequestContext<'a> {
    pub(super) fn listing(remote: &'a RemoteBucket) -> Self {
        Self { remote, key: None, action: "a listing".to_owned() }
    }

    pub(super) fn object(remote: &'a RemoteBucket, key: &'a str, method: &str) -> Self {
        Self { remote, key: Some(key), action: format!("{method} for '{key}'") }
    }

    pub(super) fn endpoint(&self) -> String {
        self.remote.server.endpoint.to_string()
    }

    /// The error for a server that does not answer.
    pub(super) fn unreachable(&self, why: String) -> Error {
        let why = match &self.remote.server.proxy {
            Some(proxy) => format!("{why}, through the proxy {proxy}"),
            None => why,
        };
        Error::Unreachable { endpoint: self.endpoint(), why }
    }

    /// The error for a request that got no response.
    pub(super) fn unanswered(&self, error: SendError) -> Error {
        let error = match error {
            SendError::Busy(busy) => return Error::Busy(busy),
            SendError::Transport(error) => error,
        };
        let why = root_cause(&error);
        match is_distrust(&error) {
            true => Error::Distrusted { endpoint: self.endpoint(), why },
            false => self.unreachable(why),
        }
    }

    /// The error for a request to which the server denies access.
    pub(super) fn denied(&self, code: String) -> Error {
        let bucket = &self.remote.bucket;
        let what = match self.key {
            Some(key) => format!("object '{key}' in bucket '{bucket}'"),
            None => format!("bucket '{bucket}'"),
        };
        Error::Denied { what, endpoint: self.endpoint(), code }
    }

    /// The object or bucket does not exist.
    pub(super) fn missing(&self) -> Error {
        let bucket = self.remote.bucket.clone();
        match self.key {
            Some(key) => Error::NoObject { bucket, key: key.to_owned() },
            None => self.no_bucket(),
        }
    }

    pub(super) fn no_bucket(&self) -> Error {
        Error::NoBucket { bucket: self.remote.bucket.clone(), endpoint: self.endpoint() }
    }

    /// Another answer than the protocol has.
    pub(super) fn answer(&self, status: u16, code: String, text: &str) -> Error {
        let action = self.action.clone();
        let endpoint = self.endpoint();
        let text = printable(text);
        Error::Answer { action, endpoint, status, code, text }
    }

    /// An answer that makes no sense, or was interrupted.
    pub(super) fn unreadable(&self, why: String) -> Error {
        Error::Unreadable { action: self.action.clone(), endpoint: self.endpoint(), why }
    }

    /// The credentials are not accepted.
    pub(super) fn refused(&self, code: String, check: &'static str) -> Error {
        Error::BadCredentials { endpoint: self.endpoint(), code, check }
    }

    /// There are no credentials to ask with.
    pub(super) fn no_credentials(&self, error: &(dyn StdError + 'static)) -> Error {
        Error::NoCredentials { endpoint: self.endpoint(), why: printable(&root_cause(error)) }
    }
}

/// Untrusted text, as messages show it.
pub(crate) fn printable(text: &str) -> String {
    let text: String = text.chars().filter(|c| !c.is_control()).take(LONGEST_TEXT).collect();
    text.trim().to_owned()
}
