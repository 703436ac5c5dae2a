//! What a GitRepository asks for, checked; every field without support is refused by its name.

use std::time::Duration;

use crds::source::{GitProvider, GitRepository, GitRepositorySpec};
use kube::core::ResourceExt as _;
use reconcile::{Rest, Wake, reason};
use sources::git::{Credentials, Limits, Reference, Remote, RemoteUrl};
use sources::plan::Desired;
use sources::reason::{AUTHENTICATION_FAILED, INVALID_DURATION, URL_INVALID};

use super::resolve::Resolved;
use crate::controllers::context::Context;

/// A spec that can be worked on.
pub(super) struct Wish {
    pub(super) remote: Remote,
    pub(super) reference: Reference,
    pub(super) desired: Desired,
}

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// Fields that were given and have no support, in the spec's order.
fn unsupported(spec: &GitRepositorySpec) -> Vec<&'static str> {
    // No `..`: a new field must be thought about here.
    let GitRepositorySpec {
        url: _,
        secret_ref: _,
        provider,
        service_account_name,
        interval: _,
        timeout: _,
        reference,
        verify,
        proxy_secret_ref,
        ignore: _,
        suspend: _,
        recurse_submodules,
        include,
        sparse_checkout,
    } = spec;
    let reference = reference.clone().unwrap_or_default();
    let given = [
        ("spec.provider", provider.is_some_and(|p| p != GitProvider::Generic)),
        ("spec.serviceAccountName", service_account_name.is_some()),
        ("spec.ref.semver", reference.semver.is_some()),
        ("spec.ref.name", reference.name.is_some()),
        ("spec.verify", verify.is_some()),
        ("spec.proxySecretRef", proxy_secret_ref.is_some()),
        ("spec.recurseSubmodules", *recurse_submodules),
        ("spec.include", !include.is_empty()),
        ("spec.sparseCheckout", !sparse_checkout.is_empty()),
    ];
    given.into_iter().filter(|(_, given)| *given).map(|(field, _)| field).collect()
}

/// Checks a spec.
pub(super) fn wish(object: &GitRepository, resolved: &Resolved) -> Result<Wish, Rest> {
    let spec = &object.spec;
    let fields = unsupported(spec);
    if !fields.is_empty() {
        let text = crate::controllers::gate::unsupported_text(&fields);
        return Err(Rest::Stalled(reason::UNSUPPORTED_FIELD, text));
    }
    let url = RemoteUrl::parse(&spec.url)
        .map_err(|error| Rest::Stalled(URL_INVALID, error.to_string()))?;
    let credentials = if spec.secret_ref.is_some() {
        Credentials::from_secret(&resolved.secret, &url).map_err(|error| {
            Rest::Failed(AUTHENTICATION_FAILED, error.to_string(), Wake::default())
        })?
    } else {
        Credentials::default()
    };
    let timeout = spec.timeout.as_ref().map(|t| reconcile::parse_duration(t.as_str())).transpose();
    let timeout = timeout
        .map_err(|error| Rest::Stalled(INVALID_DURATION, format!("spec.timeout: {error}")))?
        .unwrap_or(DEFAULT_TIMEOUT);
    if let Err(error) = reconcile::parse_duration(spec.interval.as_str()) {
        return Err(Rest::Stalled(INVALID_DURATION, format!("spec.interval: {error}")));
    }
    Ok(Wish {
        remote: Remote { url, credentials, timeout, limits: Limits::default() },
        reference: reference(spec),
        desired: Desired { ignore: spec.ignore.clone() },
    })
}

/// Parity(flux): commit wins over tag, tag over branch; without any it is `master`.
fn reference(spec: &GitRepositorySpec) -> Reference {
    let given = spec.reference.clone().unwrap_or_default();
    match (given.commit, given.tag, given.branch) {
        (Some(sha), _, branch) => Reference::Commit { sha, branch },
        (None, Some(tag), _) => Reference::Tag(tag),
        (None, None, Some(branch)) => Reference::Branch(branch),
        (None, None, None) => Reference::default(),
    }
}

/// The interval with jitter; each object has its own, the same in every process.
pub(super) fn interval(context: &Context, object: &GitRepository) -> Duration {
    let interval =
        reconcile::parse_duration(object.spec.interval.as_str()).unwrap_or(Duration::from_secs(60));
    let percent = context.settings.interval_jitter_percentage;
    reconcile::jittered(
        interval.max(reconcile::SHORTEST_INTERVAL),
        percent,
        crate::controllers::gate::seed(&object.uid().unwrap_or_default()),
    )
}
