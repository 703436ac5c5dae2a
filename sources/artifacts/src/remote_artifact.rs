//! Artifacts of other stores, fetched over HTTP from the URL in their source's status.
//!
//! Elsewhere: this program's own artifacts ([`crate::store`]), reading an archive ([`crate::archive`]).

use std::{
    fs::File,
    io::{self, BufReader, Seek, Write},
    sync::Arc,
    time::Duration,
};

use http_client::{EgressRules, TlsConfig, root_cause};
use tree::MemoryTree;
use url::Url;

use crate::{
    archive::{DigestingWriter, ExtractError, ExtractOptions, extract},
    store::{self, ArtifactStore},
};

/// The URL of an artifact, and its expected digest.
#[derive(Debug, Clone)]
pub struct RemoteArtifact {
    /// The URL of the artifact.
    pub url: String,
    /// `sha256:` and 64 hexadecimal digits.
    pub digest: String,
    /// The servers from which it may be fetched.
    pub egress: EgressRules,
}

/// The limits of a fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArtifactFetchLimits {
    /// The most bytes of the body.
    pub bytes: u64,
    /// The time from the first byte of the request to the last byte of the response.
    pub time: Duration,
}

/// The reason why an artifact could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server was not reached, or stopped responding.
    #[error("cannot fetch `{url}`: {why}")]
    NoAnswer {
        /// The URL of the artifact.
        url: String,
        /// The root cause.
        why: String,
    },
    /// The server responded with another status.
    #[error("cannot fetch `{url}`: HTTP status {status}")]
    Status {
        /// The URL of the artifact.
        url: String,
        /// The HTTP status.
        status: u16,
    },
    /// The body is larger than expected.
    #[error("`{url}` is larger than {limit} bytes")]
    TooLarge {
        /// The URL of the artifact.
        url: String,
        /// The most bytes that are read.
        limit: u64,
    },
    /// The fetch exceeded its time limit.
    #[error("fetching `{url}` timed out after {limit:?}")]
    TooSlow {
        /// The URL of the artifact.
        url: String,
        /// The longest time.
        limit: Duration,
    },
    /// The served file has another digest than the one in the source's status.
    ///
    /// The actual digest is left out: a user who may write a status could point it at a foreign file and read the digest.
    #[error("`{url}` does not match the status of its source: its digest is not `{expected}`")]
    Mismatch {
        /// The URL of the artifact.
        url: String,
        /// The digest in the status.
        expected: String,
    },
    /// The file has the expected digest, but is not a usable archive.
    #[error("cannot extract `{url}`")]
    Extract {
        /// The URL of the artifact.
        url: String,
        /// The error in the archive.
        source: ExtractError,
    },
    /// The disk refused to hold it.
    #[error("cannot store `{url}`: {why}")]
    Disk {
        /// The URL of the artifact.
        url: String,
        /// The cause of the failure.
        why: String,
    },
    /// The digest cannot be used.
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// Extracts an artifact from another server, and shares the tree with all callers that load the same one.
///
/// This blocks, and waits on `runtime`. It follows no redirect.
///
/// # Errors
/// The artifact cannot be fetched within the limits, or has another digest.
pub fn load(
    store: &ArtifactStore,
    remote: &RemoteArtifact,
    options: &ExtractOptions,
    limits: &ArtifactFetchLimits,
    runtime: &tokio::runtime::Handle,
) -> Result<Arc<MemoryTree>, Error> {
    store.share(&remote.digest, options, || {
        let file = runtime.block_on(fetch(remote, limits))?;
        let failed = |source| Error::Extract { url: remote.url.clone(), source };
        extract(BufReader::new(file), options).map_err(failed)
    })
}

/// Fetches an artifact into a file without a name, without unpacking it, and checks its digest. It follows no redirect.
///
/// # Errors
/// The artifact cannot be fetched within the limits, or has another digest.
pub async fn fetch(remote: &RemoteArtifact, limits: &ArtifactFetchLimits) -> Result<File, Error> {
    let disk = |error: io::Error| Error::Disk { url: remote.url.clone(), why: error.to_string() };
    let mut file = tempfile::tempfile().map_err(disk)?;
    fetch_to(remote, limits, &mut file).await?;
    file.rewind().map_err(disk)?;
    Ok(file)
}

/// Fetches an artifact into `out`, without unpacking it, and checks its digest. It follows no redirect. After an error, `out` may
/// have a part of it.
///
/// # Errors
/// The artifact cannot be fetched within the limits, or has another digest.
pub async fn fetch_to(
    remote: &RemoteArtifact,
    limits: &ArtifactFetchLimits,
    out: impl Write,
) -> Result<(), Error> {
    let slow = || Error::TooSlow { url: remote.url.clone(), limit: limits.time };
    let fetching = fetch_all(remote, limits.bytes, out);
    tokio::time::timeout(limits.time, fetching).await.map_err(|_| slow())?
}

async fn fetch_all(remote: &RemoteArtifact, limit: u64, out: impl Write) -> Result<(), Error> {
    let url = &remote.url;
    let unanswered = |why: String| Error::NoAnswer { url: url.clone(), why };
    let disk = |error: io::Error| Error::Disk { url: url.clone(), why: error.to_string() };
    let at = Url::parse(url).map_err(|e| unanswered(e.to_string()))?;
    remote.egress.admits(&at).map_err(|refused| unanswered(refused.to_string()))?;
    let client = http_client::client_within(&TlsConfig::default(), None, &remote.egress);
    let client = client.map_err(|e| unanswered(e.to_string()))?;
    let answer = client.get(at).send().await;
    let mut answer = answer.map_err(|e| unanswered(root_cause(&e.without_url())))?;
    if !answer.status().is_success() {
        return Err(Error::Status { url: url.clone(), status: answer.status().as_u16() });
    }
    let mut received = 0;
    let mut out = DigestingWriter::new(out);
    loop {
        let chunk = answer.chunk().await.map_err(|e| unanswered(root_cause(&e.without_url())))?;
        let Some(chunk) = chunk else { break };
        received += chunk.len() as u64;
        if received > limit {
            return Err(Error::TooLarge { url: url.clone(), limit });
        }
        out.write_all(&chunk).map_err(disk)?;
    }
    let (_, sealed) = out.finish();
    if sealed.digest != remote.digest {
        return Err(Error::Mismatch { url: url.clone(), expected: remote.digest.clone() });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
