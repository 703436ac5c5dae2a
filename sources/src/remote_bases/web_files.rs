//! Files on web servers, fetched as Go's HTTP client fetches them, and its words for what goes wrong.
//!
//! Elsewhere: how a client is built ([`http_client`]).

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http_client::host_budget::{ResponseWithHostPermit, SendError};
use http_client::{EgressRules, HostBudgets, refusal, root_cause};
use kustomize::{Error, RepositoryAddress};
use reqwest::StatusCode;
use reqwest::header::LOCATION;
use url::Url;

/// Go's number.
const MOST_REDIRECTS: usize = 10;

/// How much a file may take.
///
/// Differs(kustomize): it waits, and reads, without end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WebFileLimits {
    /// Bytes of a file.
    pub(crate) bytes: u64,
    /// The time from the first byte of the request to the last byte of the response, including redirects.
    pub(crate) time: Duration,
}

impl Default for WebFileLimits {
    fn default() -> Self {
        Self { bytes: 64 << 20, time: Duration::from_secs(60) }
    }
}

/// Fetches a file. `client` must not follow redirects, and has to be built with `egress`.
///
/// # Errors
/// [`Error::http`] for a status other than those of success, unless the address could be that of a repository. The texts are
/// those of Go's client, and show no password.
pub(crate) async fn get(
    client: &reqwest::Client,
    budgets: &HostBudgets,
    egress: &EgressRules,
    address: &str,
    limits: WebFileLimits,
) -> Result<Arc<[u8]>, Error> {
    let url = Url::parse(address).map_err(|error| {
        Error::new(format!("parse {:?}: {error}", without_credentials(address)))
    })?;
    let slow = || {
        let why = format!("no complete response within {:?}", limits.time);
        failed(&url, &why)
    };
    let answer = tokio::time::timeout(limits.time, async {
        let answer = follow(client, budgets, egress, url.clone()).await?;
        if answer.status().is_success() {
            return body(answer, limits.bytes).await;
        }
        if RepositoryAddress::parse(address).is_some() {
            return Err(Error::new("URL is a git repository"));
        }
        let status = answer.status();
        let text = status.canonical_reason().unwrap_or_default();
        Err(Error::http(format!("HTTP Error: status code {} ({text})", status.as_u16())))
    });
    answer.await.map_err(|_elapsed| slow())?
}

async fn follow(
    client: &reqwest::Client,
    budgets: &HostBudgets,
    egress: &EgressRules,
    mut at: Url,
) -> Result<ResponseWithHostPermit, Error> {
    for _ in 0..MOST_REDIRECTS {
        if !matches!(at.scheme(), "http" | "https") {
            return Err(failed(&at, &format!("unsupported protocol scheme {:?}", at.scheme())));
        }
        egress.admits(&at).map_err(|refused| failed(&at, &refused.to_string()))?;
        let answer = budgets.send(client.get(at.clone())).await.map_err(|error| match error {
            SendError::Busy(busy) => failed(&at, &busy.to_string()),
            SendError::Transport(error) => failed(&at, &reason(&error, &at)),
        })?;
        let is_redirect = matches!(
            answer.status(),
            StatusCode::MOVED_PERMANENTLY
                | StatusCode::FOUND
                | StatusCode::SEE_OTHER
                | StatusCode::TEMPORARY_REDIRECT
                | StatusCode::PERMANENT_REDIRECT
        );
        let target = answer.headers().get(LOCATION).filter(|_| is_redirect);
        // An answer that leads nowhere is the answer.
        let Some(target) = target else { return Ok(answer) };
        let target = String::from_utf8_lossy(target.as_bytes()).into_owned();
        at = at.join(&target).map_err(|error| {
            let target = without_credentials(&target);
            failed(&at, &format!("failed to parse Location header {target:?}: {error}"))
        })?;
    }
    Err(failed(&at, &format!("stopped after {MOST_REDIRECTS} redirects")))
}

async fn body(mut answer: ResponseWithHostPermit, limit: u64) -> Result<Arc<[u8]>, Error> {
    let url = answer.url().clone();
    let mut content = Vec::new();
    loop {
        let chunk = answer.chunk().await;
        let chunk = chunk.map_err(|error| failed(&url, &root_cause(&error.without_url())))?;
        let Some(chunk) = chunk else { return Ok(content.into()) };
        if (content.len() as u64).saturating_add(chunk.len() as u64) > limit {
            return Err(failed(&url, &format!("the file is larger than {limit} bytes")));
        }
        content.extend_from_slice(&chunk);
    }
}

fn failed(url: &Url, why: &str) -> Error {
    Error::new(format!("Get \"{}\": {why}", without_credentials(url.as_str())))
}

/// A text in which no address shows its user and password, such as an error of a build that names what it was given.
///
/// Differs(kustomize): the user is hidden with the password, since tokens are put there.
pub fn without_credentials(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("://") {
        shown.push_str(before);
        shown.push_str("://");
        let is_end = |letter: char| letter.is_whitespace() || "/?#'\"`".contains(letter);
        let authority = &after[..after.find(is_end).unwrap_or(after.len())];
        rest = match authority.rfind('@') {
            Some(at) => {
                shown.push_str("***");
                &after[at..]
            }
            None => after,
        };
    }
    shown + rest
}

/// The reason why no server answered, in Go's words for the usual reasons.
fn reason(error: &reqwest::Error, url: &Url) -> String {
    let cause = root_cause(error);
    let host = url.host_str().unwrap_or_default();
    if refusal(error).is_some() {
        return cause;
    }
    let mut current = Some(error as &(dyn StdError + 'static));
    while let Some(error) = current {
        if error.to_string() == "dns error" {
            return format!("dial tcp: lookup {host}: no such host");
        }
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        if kind == Some(io::ErrorKind::ConnectionRefused) {
            let port = url.port_or_known_default().unwrap_or_default();
            return format!("dial tcp {host}:{port}: connect: connection refused");
        }
        current = error.source();
    }
    cause
}

#[cfg(test)]
mod tests;
