//! The spec of a HelmRepository, checked. An unsupported field is rejected, and the error names it.

use crds::source::HelmRepository;
use reconcile::{RunOutcome, condition_reason};
use sources::fetch_plan::ArtifactInputs;
use sources::source_condition_reasons::{INVALID_DURATION, URL_INVALID};

use super::executor::RepositoryFetchSpec;
use crate::source::ValidatedSourceSpec;
use windlass_runtime::chart_repository_access::{
    HelmRepositorySecrets, access, repository, unsupported,
};
use windlass_runtime::run_context::RunContext;
use windlass_runtime::unsupported_fields::unsupported_text;

/// Checks the parts of the spec that do not need its Secrets.
pub(super) fn check(object: &HelmRepository) -> Result<(), RunOutcome> {
    let spec = &object.spec;
    let fields = unsupported(spec);
    if !fields.is_empty() {
        return Err(RunOutcome::Stalled(
            condition_reason::UNSUPPORTED_FIELD,
            unsupported_text(&fields),
        ));
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
    secrets: &HelmRepositorySecrets,
    context: &RunContext,
) -> Result<ValidatedSourceSpec<RepositoryFetchSpec>, RunOutcome> {
    let work = RepositoryFetchSpec { repository: repository(&access(context), object, secrets)? };
    Ok(ValidatedSourceSpec { work, shape: ArtifactInputs::default() })
}

#[cfg(test)]
mod tests;
