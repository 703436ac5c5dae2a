//! What a GitRepository asks for, checked; every field without support is refused by its name.

use std::time::Duration;

use crds::source::{GitProvider, GitRepository, GitRepositoryRef, GitRepositorySpec};
use reconcile::{Outcome, Wake, reason};
use sources::git::{Content, Credentials, GitLimits, Reference, Remote, RemoteUrl, Scheme, Sparse};
use sources::http::Proxy;
use sources::plan::ArtifactInputs;
use sources::reason::{AUTHENTICATION_FAILED, INVALID_DURATION, URL_INVALID};

use super::executor::{GitFetchSpec, classify};
use super::include::Include;
use super::resolve::GitRepositoryInputs;
use super::verify::Verification;
use crate::source::verification::VERIFY;
use crate::source::{LONGEST_TIMEOUT, SourceSpec};

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// Fields that were given and have no support, in the spec's order.
pub(super) fn unsupported(spec: &GitRepositorySpec) -> Vec<&'static str> {
    // No `..`: a new field must be thought about here.
    let GitRepositorySpec {
        url: _,
        secret_ref: _,
        provider,
        service_account_name,
        interval: _,
        timeout: _,
        reference: _,
        verify: _,
        proxy_secret_ref: _,
        ignore: _,
        suspend: _,
        recurse_submodules: _,
        include: _,
        sparse_checkout: _,
    } = spec;
    let given = [
        ("spec.provider", provider.is_some_and(|p| p != GitProvider::Generic)),
        ("spec.serviceAccountName", service_account_name.is_some()),
    ];
    given.into_iter().filter(|(_, given)| *given).map(|(field, _)| field).collect()
}

/// Checks a spec.
pub(super) fn desired(
    object: &GitRepository,
    resolved: GitRepositoryInputs,
) -> Result<SourceSpec<GitFetchSpec>, Outcome> {
    let spec = &object.spec;
    let fields = unsupported(spec);
    if !fields.is_empty() {
        let text = windlass_runtime::unsupported::unsupported_text(&fields);
        return Err(Outcome::Stalled(reason::UNSUPPORTED_FIELD, text));
    }
    let url = RemoteUrl::parse(&spec.url)
        .map_err(|error| Outcome::Stalled(URL_INVALID, error.to_string()))?;
    let unusable = |error: String| Outcome::Failed(AUTHENTICATION_FAILED, error, Wake::default());
    let proxy = proxy(&url, &resolved)?;
    let credentials = Credentials::from_secret(&resolved.secret, &url)
        .map_err(|error| unusable(error.to_string()))?;
    let timeout = spec.timeout.as_ref().map(|t| reconcile::parse_duration(t.as_str())).transpose();
    let timeout = timeout
        .map_err(|error| Outcome::Stalled(INVALID_DURATION, format!("spec.timeout: {error}")))?
        .unwrap_or(DEFAULT_TIMEOUT)
        .min(LONGEST_TIMEOUT);
    if let Err(error) = reconcile::parse_duration(spec.interval.as_str()) {
        return Err(Outcome::Stalled(INVALID_DURATION, format!("spec.interval: {error}")));
    }
    let sparse = Sparse::parse(&spec.sparse_checkout).map_err(|error| classify(&error))?;
    let include = resolved.include.iter().map(Include::shape).collect::<Vec<_>>();
    let shape = ArtifactInputs::default()
        .with("ignore", spec.ignore.clone())
        .with("recurseSubmodules", spec.recurse_submodules)
        .with("sparseCheckout", spec.sparse_checkout.clone())
        .with("include", include);
    let signed =
        spec.verify.as_ref().zip(resolved.keys).map(|(verify, keys)| {
            Verification::new(verify.mode.unwrap_or_default().as_str(), keys)
        });
    let shape = match &signed {
        Some(signed) => shape.with(VERIFY, signed.shape()),
        None => shape,
    };
    let work = GitFetchSpec {
        remote: Remote { url, credentials, proxy, timeout, limits: GitLimits::default() },
        reference: reference(spec)?,
        content: Content { submodules: spec.recurse_submodules, sparse },
        include: resolved.include,
        signed,
    };
    Ok(SourceSpec { work, shape })
}

/// The proxy that the spec asks for.
fn proxy(url: &RemoteUrl, resolved: &GitRepositoryInputs) -> Result<Option<Proxy>, Outcome> {
    let Some(data) = &resolved.proxy else { return Ok(None) };
    if url.scheme() == Scheme::Ssh {
        let text = "spec.proxySecretRef is not supported for ssh URLs, only for http and https; remove it or \
                    change spec.url";
        return Err(Outcome::Stalled(reason::UNSUPPORTED_FIELD, text.to_owned()));
    }
    Proxy::from_secret(data).map(Some).map_err(|error| {
        let text = format!("failed to configure proxy options: {error}");
        Outcome::Failed(AUTHENTICATION_FAILED, text, Wake::default())
    })
}

/// Parity(flux): commit wins over name, name over tag, tag over semver, semver over branch; without any it is `master`.
fn reference(spec: &GitRepositorySpec) -> Result<Reference, Outcome> {
    let given = spec.reference.clone().unwrap_or_default();
    Ok(match given {
        GitRepositoryRef { commit: Some(sha), branch, name, .. } => {
            Reference::Commit { sha, branch, name }
        }
        GitRepositoryRef { name: Some(name), .. } => Reference::Name(name),
        GitRepositoryRef { tag: Some(tag), .. } => Reference::Tag(tag),
        GitRepositoryRef { semver: Some(range), .. } => {
            Reference::semver(&range).map_err(|error| classify(&error))?
        }
        GitRepositoryRef { branch: Some(branch), .. } => Reference::Branch(branch),
        GitRepositoryRef { branch: None, .. } => Reference::default(),
    })
}

#[cfg(test)]
mod tests;
