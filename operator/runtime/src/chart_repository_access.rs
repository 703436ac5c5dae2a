//! How windlass reaches the chart repository or registry of a HelmRepository: URL, Secrets and time limit.
//!
//! Here: chart repositories, and the search for a HelmRepository by its address. Registries are in `oci_registry`. Elsewhere:
//! index artifacts and HelmCharts (crate `source-controller`), charts of a helmfile (crate `helmfile-controller`), and the
//! protocols (`sources::charts`, `sources::oci`).

mod oci_registry;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crds::source::{HelmRepository, HelmRepositorySpec, HelmRepositoryType, RegistryProvider};
use kube_core::ResourceExt as _;
use reconcile::{NextRunTrigger, RunOutcome};
use sources::charts::repository::{ChartRepositoryClients, normalized};
use sources::charts::{self, ChartRepository, ChartRepositoryCredentials};
use sources::source_condition_reasons::{AUTHENTICATION_FAILED, INVALID_DURATION, URL_INVALID};
use windlass_cluster::error::chain;

use super::run_context::RunContext;
use super::time_limit::LONGEST_TIMEOUT;
use windlass_cluster::referenced_secrets_and_config_maps::RunReferenceReads;

pub use oci_registry::registry;

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// The prefix of the address of a repository in a bucket.
const BUCKET: &str = "s3://";

/// The data of a Secret.
pub type RepositorySecretData = BTreeMap<String, Vec<u8>>;

/// The fields of the spec that have a value and are not supported, in the order of the spec.
pub fn unsupported(spec: &HelmRepositorySpec) -> Vec<&'static str> {
    // There is no `..` here, so that the compiler asks about each new field.
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

/// Whether a HelmRepository stands for an OCI registry.
pub fn is_registry(object: &HelmRepository) -> bool {
    object.spec.type_ == Some(HelmRepositoryType::Oci)
}

/// The first HelmRepository of a namespace, by name, with this address. `None` if no HelmRepository has this address.
///
/// Parity(flux): it configures the access to every chart or dependency that a file names by that address.
pub fn with_address(
    context: &RunContext,
    namespace: &str,
    url: &str,
) -> Option<Arc<HelmRepository>> {
    let all = context.store::<HelmRepository>().state();
    let found = all.into_iter().filter(|object| {
        object.namespace().as_deref() == Some(namespace) && is_address_of(object, url)
    });
    found.min_by_key(|object| object.name_any())
}

fn is_address_of(object: &HelmRepository, url: &str) -> bool {
    let own = &object.spec.url;
    if is_registry(object) {
        return own.trim_end_matches('/') == url.trim_end_matches('/');
    }
    match (normalized(own), normalized(url)) {
        (Ok(own), Ok(url)) => own == url,
        (Err(_), _) | (_, Err(_)) => false,
    }
}

/// The data of the Secrets that a HelmRepository names, all in its namespace.
#[derive(Default)]
pub struct HelmRepositorySecrets {
    /// The data of `spec.secretRef`.
    pub secret: Option<RepositorySecretData>,
    /// The data of `spec.certSecretRef`.
    pub certificates: Option<RepositorySecretData>,
}

impl HelmRepositorySecrets {
    /// Reads the Secrets that the spec names, in the namespace of the object, and adds them to the references.
    ///
    /// # Errors
    /// The outcome of a run for which a Secret is missing or cannot be read.
    pub async fn read(
        object: &HelmRepository,
        references: &mut RunReferenceReads,
    ) -> Result<Self, RunOutcome> {
        let namespace = object.namespace().unwrap_or_default();
        let named = [
            (&object.spec.cert_secret_ref, "TLS authentication secret", "spec.certSecretRef"),
            (&object.spec.secret_ref, "authentication secret", "spec.secretRef"),
        ];
        let mut found = Vec::new();
        for (reference, what, field) in named {
            let Some(reference) = reference else {
                found.push(Ok(None));
                continue;
            };
            let name = &reference.name;
            let failed = |why: String| {
                let text = format!("failed to get {what} '{namespace}/{name}': {why}");
                RunOutcome::Failed(AUTHENTICATION_FAILED, text, NextRunTrigger::default())
            };
            let read = references.secret(&namespace, name).await;
            let missing = || failed(format!("not found; create it or correct {field}"));
            found.push(
                read.map_err(|error| failed(error.to_string()))
                    .and_then(|data| data.map(Some).ok_or_else(missing)),
            );
        }
        let mut found = found.into_iter();
        let certificates = found.next().transpose()?.flatten();
        let secret = found.next().transpose()?.flatten();
        Ok(Self { secret, certificates })
    }
}

/// The clients that all chart repositories share: HTTP clients, buckets, and request limits.
pub fn access(context: &RunContext) -> ChartRepositoryClients {
    let budgets = context.remotes.budgets.clone();
    let buckets = context.remotes.buckets.clone();
    ChartRepositoryClients { budgets, clients: context.remotes.http.clone(), buckets }
}

/// The chart repository of a HelmRepository that is not an OCI registry.
///
/// # Errors
/// The outcome of a run: the address, the timeout or a Secret cannot be used.
pub fn repository(
    access: &ChartRepositoryClients,
    object: &HelmRepository,
    secrets: &HelmRepositorySecrets,
) -> Result<ChartRepository, RunOutcome> {
    let spec = &object.spec;
    let refused =
        |text: String| RunOutcome::Failed(AUTHENTICATION_FAILED, text, NextRunTrigger::default());
    let timeout = spec.timeout.as_ref().map(|t| reconcile::parse_duration(t.as_str())).transpose();
    let timeout = timeout
        .map_err(|error| RunOutcome::Stalled(INVALID_DURATION, format!("spec.timeout: {error}")))?
        .unwrap_or(DEFAULT_TIMEOUT)
        .min(LONGEST_TIMEOUT);
    let HelmRepositorySecrets { secret, certificates } = secrets;
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
        ChartRepository::new(&spec.url, credentials, spec.pass_credentials, timeout, access);
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
