//! The spec of an OCIRepository, checked. An unsupported field is rejected, and the error names it.

use std::time::Duration;

use crds::source::{
    LayerOperation, OCIRepository, OCIRepositoryRef, OCIRepositorySpec, RegistryProvider,
};
use http_client::HttpProxy;
use reconcile::{RunOutcome, condition_reason};
use sources::fetch_plan::ArtifactInputs;
use sources::oci::{
    self, ManifestReference, OciDigest, OciRepositoryName, RegistryAuth, RegistryKeyring,
    RegistryLimits, RemoteOciRepository, TagSelection, chart,
};
use sources::source_condition_reasons::{
    INVALID_DURATION, OCI_PULL_FAILED, READ_OPERATION_FAILED, URL_INVALID,
};

use super::executor::{OciFetchSpec, OciReferenceSelector};
use super::referenced_objects::{
    CREDENTIALS, OciRepositoryReferencedSecrets, PROXY, transport, unusable,
};
use crate::source::artifact_verification_record::VERIFY;
use crate::source::{LONGEST_TIMEOUT, ValidatedSourceSpec};

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
/// Parity(flux): what is fetched where nothing says what.
const DEFAULT_TAG: &str = "latest";

/// Fields that were given and have no support, in the spec's order.
pub(super) fn unsupported(spec: &OCIRepositorySpec) -> Vec<&'static str> {
    // No `..`: a new field must be thought about here.
    let OCIRepositorySpec {
        url: _,
        reference: _,
        layer_selector: _,
        provider,
        secret_ref: _,
        verify: _,
        service_account_name,
        cert_secret_ref: _,
        proxy_secret_ref: _,
        interval: _,
        timeout: _,
        ignore: _,
        insecure: _,
        suspend: _,
    } = spec;
    let is_aws = *provider == Some(RegistryProvider::Aws);
    let given = [
        ("spec.provider `azure`", *provider == Some(RegistryProvider::Azure)),
        ("spec.provider `gcp`", *provider == Some(RegistryProvider::Gcp)),
        (
            "spec.serviceAccountName with spec.provider `aws`",
            is_aws && service_account_name.is_some(),
        ),
    ];
    given.into_iter().filter(|(_, given)| *given).map(|(field, _)| field).collect()
}

/// Refuses a spec with a field that has no support.
pub(super) fn check(spec: &OCIRepositorySpec) -> Result<(), RunOutcome> {
    let fields = unsupported(spec);
    if fields.is_empty() {
        return Ok(());
    }
    let text = windlass_runtime::unsupported_fields::unsupported_text(&fields);
    Err(RunOutcome::Stalled(condition_reason::UNSUPPORTED_FIELD, text))
}

/// Checks the spec of an OCIRepository. Returns the validated spec, or the outcome that names its fault.
pub(super) fn desired(
    object: &OCIRepository,
    resolved: OciRepositoryReferencedSecrets,
) -> Result<ValidatedSourceSpec<OciFetchSpec>, RunOutcome> {
    let spec = &object.spec;
    check(spec)?;
    let repository = OciRepositoryName::parse(&spec.url).map_err(|error| {
        let url = sources::remote_bases::without_credentials(&spec.url);
        RunOutcome::Stalled(URL_INVALID, format!("URL validation failed for '{url}': {error}"))
    })?;
    let timeout = spec.timeout.as_ref().map(|t| reconcile::parse_duration(t.as_str())).transpose();
    let timeout = timeout
        .map_err(|error| RunOutcome::Stalled(INVALID_DURATION, format!("spec.timeout: {error}")))?
        .unwrap_or(DEFAULT_TIMEOUT)
        .min(LONGEST_TIMEOUT);
    if let Err(error) = reconcile::parse_duration(spec.interval.as_str()) {
        return Err(RunOutcome::Stalled(INVALID_DURATION, format!("spec.interval: {error}")));
    }
    let selector = spec.layer_selector.clone().unwrap_or_default();
    let wanted = wanted(spec, selector.media_type.as_deref() == Some(chart::CHART))?;
    let proxy = resolved.proxy.as_ref().map(HttpProxy::from_secret).transpose();
    let proxy = proxy.map_err(|error| unusable(PROXY, &error.to_string()))?;
    let tls = resolved.certificates.as_ref().map(oci::tls_from_secret).transpose();
    let tls = tls.map_err(|error| unusable(&transport(&spec.url), &error.to_string()))?;
    let auth = auth(&repository, &resolved)?;
    let layer = serde_json::json!(spec.layer_selector);
    let shape =
        ArtifactInputs::default().with("ignore", spec.ignore.clone()).with("layerSelector", layer);
    let shape = match &resolved.signed {
        Some(signed) => shape.with(VERIFY, signed.how()),
        None => shape,
    };
    let work = OciFetchSpec {
        remote: RemoteOciRepository {
            repository,
            auth,
            tls: tls.unwrap_or_default(),
            proxy,
            insecure: spec.insecure,
            timeout,
            limits: RegistryLimits::default(),
        },
        wanted,
        media_type: selector.media_type,
        is_copied: selector.operation.unwrap_or_default() == LayerOperation::Copy,
        signed: resolved.signed,
    };
    Ok(ValidatedSourceSpec { work, shape })
}

/// The credentials for the registry, of all Secrets together.
///
/// Parity(flux): image pull secrets of other types are passed over.
/// Differs(flux): a Secret of another type in `spec.secretRef` is an error, where Flux accesses the registry anonymously.
fn auth(
    repository: &OciRepositoryName,
    resolved: &OciRepositoryReferencedSecrets,
) -> Result<RegistryAuth, RunOutcome> {
    let unusable = |error: oci::Error| unusable(CREDENTIALS, &error.to_string());
    let mut keyring = RegistryKeyring::default();
    if let Some(secret) = &resolved.secret
        && !keyring.add(secret).map_err(unusable)?
    {
        let why = "the Secret that spec.secretRef names has no `.dockerconfigjson`";
        return Err(super::referenced_objects::unusable(CREDENTIALS, why));
    }
    for secret in &resolved.pull_secrets {
        keyring.add(secret).map_err(unusable)?;
    }
    Ok(keyring.auth(repository))
}

/// Parity(flux): a digest wins over a range of versions, that over a tag.
///
/// Differs(flux): what is malformed is not tried again, since only a change of the spec helps.
fn wanted(spec: &OCIRepositorySpec, is_chart: bool) -> Result<OciReferenceSelector, RunOutcome> {
    let stalled =
        |why, what: &str, error: oci::Error| RunOutcome::Stalled(why, format!("{what}: {error}"));
    let no_digest = |error| stalled(OCI_PULL_FAILED, "failed to determine artifact digest", error);
    let no_tag = |error| {
        let what = format!("failed to determine the artifact tag for '{}'", spec.url);
        stalled(READ_OPERATION_FAILED, &what, error)
    };
    let some = |text: Option<String>| text.filter(|text| !text.is_empty());
    let given = spec.reference.clone().unwrap_or_default();
    let OCIRepositoryRef { digest, semver, semver_filter, tag } = given;
    if let Some(digest) = some(digest) {
        let digest = OciDigest::parse(&digest).map_err(no_digest)?;
        return Ok(OciReferenceSelector::One(ManifestReference::Digest(digest)));
    }
    if let Some(range) = some(semver) {
        let selection = TagSelection::parse(&range, semver_filter.as_deref(), is_chart);
        return selection.map(OciReferenceSelector::Highest).map_err(no_tag);
    }
    let tag = some(tag).unwrap_or_else(|| DEFAULT_TAG.to_owned());
    ManifestReference::tag(&tag).map(OciReferenceSelector::One).map_err(no_digest)
}

#[cfg(test)]
mod tests;
