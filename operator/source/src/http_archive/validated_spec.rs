//! The spec of an HTTPArchive, checked.

use std::time::Duration;

use crds::windlass_source::{HTTPArchive, HTTPArchiveSpec};
use git::{GitAuth, GitCredentials, RemoteUrl};
use http_client::HttpProxy;
use reconcile::{NextRunTrigger, RunOutcome};
use sources::fetch_plan::ArtifactInputs;
use sources::http_archive::{HttpArchiveLimits, RemoteHttpArchive};
use sources::source_condition_reasons::{AUTHENTICATION_FAILED, INVALID_DURATION, URL_INVALID};

use super::executor::HttpFetchSpec;
use super::referenced_objects::{HttpArchiveReferencedSecrets, HttpArchiveSecretData};
use crate::source::{LONGEST_TIMEOUT, ValidatedSourceSpec};

/// Keys of certificates, which belong in the Secret of `spec.certSecretRef`.
const CERTIFICATES: [&str; 3] = ["ca.crt", "tls.crt", "tls.key"];
/// Keys of credentials, which belong in the Secret of `spec.secretRef`.
const CREDENTIALS: [&str; 3] = ["username", "password", "bearerToken"];

fn unusable(text: String) -> RunOutcome {
    RunOutcome::Failed(AUTHENTICATION_FAILED, text, NextRunTrigger::default())
}

/// Checks the spec of an HTTPArchive. Returns the validated spec, or the outcome that names its fault.
pub(super) fn desired(
    object: &HTTPArchive,
    resolved: &HttpArchiveReferencedSecrets,
) -> Result<ValidatedSourceSpec<HttpFetchSpec>, RunOutcome> {
    // No `..`: a new field must be thought about here. Fields that are not read here name resolved objects, or are read by the
    // run of all sources.
    let HTTPArchiveSpec {
        url,
        digest,
        secret_ref: _,
        cert_secret_ref: _,
        proxy_secret_ref: _,
        interval,
        timeout,
        ignore,
        suspend: _,
    } = &object.spec;
    let mut remote = RemoteHttpArchive::new(url)
        .and_then(|remote| remote.with_digest(digest.as_deref()))
        .map_err(|error| RunOutcome::Stalled(URL_INVALID, error.to_string()))?;
    let timeout = timeout.as_ref().map(|t| reconcile::parse_duration(t.as_str())).transpose();
    let timeout: Option<Duration> = timeout
        .map_err(|error| RunOutcome::Stalled(INVALID_DURATION, format!("spec.timeout: {error}")))?;
    if let Err(error) = reconcile::parse_duration(interval.as_str()) {
        return Err(RunOutcome::Stalled(INVALID_DURATION, format!("spec.interval: {error}")));
    }
    let credentials = credentials(url, resolved)?;
    remote.auth = credentials.auth;
    remote.tls = credentials.tls;
    remote.proxy = resolved
        .proxy
        .as_ref()
        .map(HttpProxy::from_secret)
        .transpose()
        .map_err(|error| unusable(format!("failed to configure proxy options: {error}")))?;
    let limits = HttpArchiveLimits::default();
    remote.limits =
        HttpArchiveLimits { time: timeout.unwrap_or(limits.time).min(LONGEST_TIMEOUT), ..limits };
    let shape = ArtifactInputs::default()
        .with("url", url.clone())
        .with("digest", digest.clone())
        .with("ignore", ignore.clone());
    Ok(ValidatedSourceSpec { work: HttpFetchSpec { remote }, shape })
}

/// The credentials for the server, and the certificates that are trusted.
fn credentials(
    url: &str,
    resolved: &HttpArchiveReferencedSecrets,
) -> Result<GitCredentials, RunOutcome> {
    let only = |data: &Option<HttpArchiveSecretData>, keys: [&str; 3]| -> HttpArchiveSecretData {
        let data = data.iter().flatten().filter(|(key, _)| keys.contains(&key.as_str()));
        data.map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    let mut data = only(&resolved.secret, CREDENTIALS);
    data.extend(only(&resolved.certificates, CERTIFICATES));
    // The keys and their meaning are those that Flux gives them for Git over HTTP.
    let url = RemoteUrl::parse(url)
        .map_err(|error| RunOutcome::Stalled(URL_INVALID, error.to_string()))?;
    let credentials =
        GitCredentials::from_secret(&data, &url).map_err(|error| unusable(error.to_string()))?;
    if resolved.secret.is_some() && matches!(credentials.auth, GitAuth::None) {
        let text = "the Secret of spec.secretRef has neither `username` nor `bearerToken`";
        return Err(unusable(text.to_owned()));
    }
    let tls = &credentials.tls;
    if resolved.certificates.is_some() && tls.ca.is_none() && tls.identity.is_none() {
        let text =
            "the Secret of spec.certSecretRef has neither `ca.crt` nor `tls.crt` and `tls.key`";
        return Err(unusable(text.to_owned()));
    }
    Ok(credentials)
}

#[cfg(test)]
mod tests;
