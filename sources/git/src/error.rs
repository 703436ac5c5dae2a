//! The errors of requests to a Git remote.
//!
//! Every text names the remote without its credentials. A message of a server is quoted without invisible characters and cut
//! short. Every secret that windlass sent is replaced in it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use golang::unicode::is_print;
use http_client::HostBusyError;

/// Characters of a name that an error repeats.
const LONGEST_NAME: usize = 200;

/// The reason why a request to a Git remote failed.
///
/// The text names what happened and, if something can be done, what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URL is not one that can be fetched.
    #[error("invalid URL `{url}`: {reason}")]
    InvalidUrl {
        /// The URL without its credentials.
        url: String,
        /// The reason why it is invalid.
        reason: String,
    },
    /// The name of a reference, a commit's hash or a range of versions is malformed.
    #[error("`{name}` is not a valid {kind}: {reason}")]
    InvalidReference {
        /// `branch`, `tag`, `full reference`, `commit` or `range of versions`.
        kind: &'static str,
        /// The name as it was given.
        name: String,
        /// The reason why it is invalid.
        reason: String,
    },
    /// The Secret lacks something, or something in it cannot be used.
    #[error("the Secret is invalid: {0}")]
    BadSecret(String),
    /// The server does not accept our credentials, or wants some.
    #[error("authentication failed for {remote}: {cause}; check the credentials in the Secret")]
    AuthenticationFailed {
        /// The remote without credentials.
        remote: String,
        /// The message of the server.
        cause: String,
    },
    /// There is no repository at this URL, or we may not see it.
    #[error("repository not found at {remote}; check the URL, and the Secret if it is private")]
    RepositoryNotFound {
        /// The remote without credentials.
        remote: String,
    },
    /// The repository has no such branch, tag or commit. A user may push it later.
    #[error("{reference} not found in {remote}")]
    NoSuchRef {
        /// The remote without credentials.
        remote: String,
        /// The reference, such as "branch `main`".
        reference: String,
    },
    /// No tag is a version in the range. One may be pushed later.
    #[error("no match found for semver: {range}; {remote} has no tag with a version in that range")]
    NoMatch {
        /// The remote without credentials.
        remote: String,
        /// The range as it was given.
        range: String,
    },
    /// The commit exists, but the branch does not lead to it.
    #[error("commit `{sha}` is not reachable from branch `{branch}` of {remote}")]
    NotOnBranch {
        /// The remote without credentials.
        remote: String,
        /// The commit.
        sha: String,
        /// The branch.
        branch: String,
    },
    /// The repository is empty, because nothing was pushed to it yet.
    #[error("git repository is empty: {remote} has no commits yet")]
    EmptyRepository {
        /// The remote without credentials.
        remote: String,
    },
    /// No connection, or it broke.
    #[error("cannot connect to {host}: {cause}")]
    Unreachable {
        /// Host and port.
        host: String,
        /// The message of the network.
        cause: String,
    },
    /// The proxy does not let us pass.
    #[error(
        "the proxy {proxy} rejected the connection: {cause}; check `address`, `username` and `password` in the \
         Secret of spec.proxySecretRef"
    )]
    ProxyRefused {
        /// The proxy without credentials.
        proxy: String,
        /// The message of the server.
        cause: String,
    },
    /// The server is there, but does not serve at the moment.
    #[error("{remote} is unavailable: {cause}")]
    Unavailable {
        /// The remote without credentials.
        remote: String,
        /// The message of the server.
        cause: String,
    },
    /// The server wants no requests for a while.
    #[error("requests to {remote} are paused: {busy}")]
    Busy {
        /// The remote without credentials.
        remote: String,
        /// The answer of the host, with the time of the next request.
        busy: HostBusyError,
    },
    /// The certificate of the server is not one that we trust.
    #[error(
        "the certificate of {host} is not trusted: {cause}; add its CA as `ca.crt` to the Secret"
    )]
    Untrusted {
        /// Host and port.
        host: String,
        /// The reason why the certificate is not accepted.
        cause: String,
    },
    /// The time was up.
    #[error("requests to {remote} timed out after {}", seconds(timeout))]
    TimedOut {
        /// The remote without credentials.
        remote: String,
        /// The time that was given.
        timeout: Duration,
    },
    /// The caller no longer wants it.
    #[error("the request to {remote} was cancelled")]
    Cancelled {
        /// The remote without credentials.
        remote: String,
    },
    /// `known_hosts` has no key of the host.
    #[error(
        "the host key of {host} is unknown: it offers {algorithm} {fingerprint}; if that is correct, add it to \
         `known_hosts` in the Secret"
    )]
    HostKeyUnknown {
        /// The host, with its port unless the port is 22.
        host: String,
        /// The algorithm, such as `ssh-ed25519`.
        algorithm: String,
        /// The fingerprint, such as `SHA256:…`.
        fingerprint: String,
    },
    /// `known_hosts` has another key for the host. Either the host has a new key, or this is not the host.
    #[error(
        "the host key of {host} does not match `known_hosts`: it offers {algorithm} {fingerprint}; unless the key \
         was rotated, the connection may be intercepted"
    )]
    HostKeyChanged {
        /// The host, with its port unless the port is 22.
        host: String,
        /// The algorithm, such as `ssh-ed25519`.
        algorithm: String,
        /// The fingerprint, such as `SHA256:…`.
        fingerprint: String,
    },
    /// `known_hosts` has revoked the key.
    #[error(
        "the host key of {host}, {algorithm} {fingerprint}, is marked `@revoked` in `known_hosts`"
    )]
    HostKeyRevoked {
        /// The host, with its port unless the port is 22.
        host: String,
        /// The algorithm, such as `ssh-ed25519`.
        algorithm: String,
        /// The fingerprint, such as `SHA256:…`.
        fingerprint: String,
    },
    /// The server redirects to a URL that is not allowed.
    #[error("redirect from {remote} to {to} not allowed: {reason}")]
    Redirected {
        /// The remote without credentials.
        remote: String,
        /// The target of the redirect, without credentials.
        to: String,
        /// The reason why the redirect is not allowed.
        reason: &'static str,
    },
    /// The received data exceed a limit.
    #[error("{what} of {remote} exceeds the limit of {limit}")]
    TooLarge {
        /// The remote without credentials.
        remote: String,
        /// The name of the data that are too large.
        what: String,
        /// The limit, such as `1024 bytes`.
        limit: String,
    },
    /// The server rejects the request within Git's protocol.
    #[error("{remote} rejected the request: {message}")]
    Refused {
        /// The remote without credentials.
        remote: String,
        /// The words of the server.
        message: String,
    },
    /// The server does not speak Git's protocol, or sent something broken.
    #[error("invalid response from {remote}: {cause}")]
    Protocol {
        /// The remote without credentials.
        remote: String,
        /// The cause of the error.
        cause: String,
    },
    /// The objects of the repository are named by other hashes than those that are supported.
    #[error("{remote} has objects of the format `{format}`, of which only `sha1` is supported")]
    UnsupportedHash {
        /// The remote without credentials.
        remote: String,
        /// The format in the words of the server.
        format: String,
    },
    /// A submodule that must not be fetched, or that cannot be fetched with the given credentials.
    #[error("submodule `{path}` of {remote} cannot be fetched: {reason}")]
    BadSubmodule {
        /// The repository that names it, without credentials.
        remote: String,
        /// The path as it was given.
        path: String,
        /// The reason, and the advice.
        reason: String,
    },
    /// A submodule did not come.
    #[error("submodule `{path}`")]
    Submodule {
        /// The path from the root.
        path: String,
        /// The cause of the failure.
        source: Box<Self>,
    },
    /// A folder of a sparse checkout cannot be one.
    #[error("`{folder}` cannot be checked out sparsely: {reason}")]
    InvalidSparse {
        /// The folder as it was given.
        folder: String,
        /// The reason why it is invalid.
        reason: String,
    },
    /// A folder of a sparse checkout is not in the commit. It may be pushed later.
    #[error(
        "failed to sparse checkout directories: `{folder}` does not exist in {remote} at this commit; correct spec.sparseCheckout"
    )]
    SparseMissing {
        /// The remote without credentials.
        remote: String,
        /// The folder as it was given.
        folder: String,
    },
    /// The commit contains something that must not become files.
    #[error("the tree of {remote} has an entry that cannot be a file: `{path}`")]
    BadTree {
        /// The remote without credentials.
        remote: String,
        /// Path of the entry.
        path: String,
    },
    /// The local disk.
    #[error("cannot write to the scratch directory {}", path.display())]
    Scratch {
        /// The folder.
        path: PathBuf,
        /// The message of the operating system.
        source: io::Error,
    },
}

fn seconds(timeout: &Duration) -> String {
    format!("{}s", timeout.as_secs_f64())
}

/// A name from a spec or a server, as an error repeats it. It is cut short, and has no characters that are invisible or change
/// the direction of the text.
pub(super) fn shown(name: &str) -> String {
    name.chars().filter(|c| is_print(*c)).take(LONGEST_NAME).collect()
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn a_name_is_shown_without_what_cannot_be_seen() {
        assert_eq!(shown("release-\u{202e}niam\u{2066}/\u{7}é 1"), "release-niam/é 1");
        assert_eq!(shown(&"é".repeat(300)), "é".repeat(200));
    }
}
