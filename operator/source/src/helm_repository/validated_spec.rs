//! What a HelmRepository asks for, checked; every field without support is refused by its name.

use std::time::Duration;

use crds::source::{HelmRepository, HelmRepositorySpec, RegistryProvider};
use reconcile::{RunOutcome, WakeTrigger, reason};
use sources::charts::repository::RepositoryAccess;
use sources::charts::{self, ChartRepository, ChartRepositoryCredentials};
use sources::fetch_plan::ArtifactInputs;
use sources::source_reasons::{AUTHENTICATION_FAILED, INVALID_DURATION, URL_INVALID};

use super::executor::RepositoryFetchSpec;
use super::resolve::HelmRepositoryInputs;
use crate::source::{LONGEST_TIMEOUT, SourceSpec};
use windlass_cluster::error::chain;
use windlass_runtime::run_context::RunContext;

pub(super) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// What the address of a repository in a bucket begins with.
const BUCKET: &str = "s3://";

/// Fields that were given and have no support, in the spec's order.
pub(super) fn unsupported(spec: &HelmRepositorySpec) -> Vec<&'static str> {
    // No `..`: a new field must be thought about here.
    let HelmRepositorySpec {
        url: _,
        secret_ref: _,
        cert_secret_ref: _,
        pass_credentials: _,
        interval: _,
        // Parity(flux): of no meaning for a web server.
        insecure: _,
        timeout: _,
        suspend: _,
        // Parity(flux): it was never put into effect.
        access_from: _,
        type_: _,
        provider,
    } = spec;
    // Parity(flux): `aws` is of no meaning without a registry.
    let given = [
        ("spec.provider `azure`", *provider == Some(RegistryProvider::Azure)),
        ("spec.provider `gcp`", *provider == Some(RegistryProvider::Gcp)),
    ];
    given.into_iter().filter(|(_, given)| *given).map(|(field, _)| field).collect()
}

/// Checks what can be checked without its Secrets.
pub(super) fn check(object: &HelmRepository) -> Result<(), RunOutcome> {
    let spec = &object.spec;
    let fields = unsupported(spec);
    if !fields.is_empty() {
        let text = windlass_runtime::unsupported_fields::unsupported_text(&fields);
        return Err(RunOutcome::Stalled(reason::UNSUPPORTED_FIELD, text));
    }
    if spec.url.starts_with("oci://") {
        let text = "invalid Helm repository URL: 'oci' URL scheme cannot be used with 'default' HelmRepository type; \
                    set spec.type to `oci`";
        return Err(RunOutcome::Stalled(URL_INVALID, text.to_owned()));
    }
    let interval = spec.interval.as_ref().map(|it| reconcile::parse_duration(it.as_str()));
    if let Some(Err(error)) = interval {
        return Err(RunOutcome::Stalled(INVALID_DURATION, format!("spec.interval: {error}")));
    }
    Ok(())
}

/// Checks a spec together with its Secrets.
pub(super) fn desired(
    object: &HelmRepository,
    secrets: &HelmRepositoryInputs,
    context: &RunContext,
) -> Result<SourceSpec<RepositoryFetchSpec>, RunOutcome> {
    let work = RepositoryFetchSpec { repository: repository(context, object, secrets)? };
    Ok(SourceSpec { work, shape: ArtifactInputs::default() })
}

/// What repositories share.
pub fn reach(context: &RunContext) -> RepositoryAccess {
    let budgets = context.remotes.budgets.clone();
    let buckets = context.remotes.buckets.clone();
    RepositoryAccess { budgets, clients: context.remotes.http.clone(), buckets }
}

/// How the repository of an object is spoken to.
///
/// # Errors
/// The outcome of a run: an address, a time or a Secret that cannot be used.
pub fn repository(
    context: &RunContext,
    object: &HelmRepository,
    secrets: &HelmRepositoryInputs,
) -> Result<ChartRepository, RunOutcome> {
    reached(&reach(context), object, secrets)
}

fn reached(
    reach: &RepositoryAccess,
    object: &HelmRepository,
    secrets: &HelmRepositoryInputs,
) -> Result<ChartRepository, RunOutcome> {
    let spec = &object.spec;
    let refused =
        |text: String| RunOutcome::Failed(AUTHENTICATION_FAILED, text, WakeTrigger::default());
    let timeout = spec.timeout.as_ref().map(|t| reconcile::parse_duration(t.as_str())).transpose();
    let timeout = timeout
        .map_err(|error| RunOutcome::Stalled(INVALID_DURATION, format!("spec.timeout: {error}")))?
        .unwrap_or(DEFAULT_TIMEOUT)
        .min(LONGEST_TIMEOUT);
    let HelmRepositoryInputs { secret, certificates } = secrets;
    let secret = secret.as_ref();
    let certificates = certificates.as_ref();
    let credentials = if spec.url.starts_with(BUCKET) {
        ChartRepositoryCredentials::for_bucket(secret, certificates, spec.insecure)
    } else {
        ChartRepositoryCredentials::from_secrets(secret, certificates)
    };
    let credentials =
        credentials.map_err(|error| refused(format!("the Secret is invalid: {error}")))?;
    let repository =
        ChartRepository::new(&spec.url, credentials, spec.pass_credentials, timeout, reach);
    repository.map_err(|error| match error {
        charts::repository::Error::BadUrl { .. } => {
            RunOutcome::Stalled(URL_INVALID, format!("invalid Helm repository URL: {error}"))
        }
        error => {
            refused(format!("failed to construct Helm client's TLS config: {}", chain(&error)))
        }
    })
}

#[cfg(test)]
mod tests;
