//! The spec of a GitRepository, checked. An unsupported field is rejected, and the error names it.
//!
//! Elsewhere: the connection to its remote, and the requested reference (`windlass_runtime::git_remote_access`).

use crds::source::GitRepository;
use git::{RequestedCommitContent, SparseCheckout};
use reconcile::RunOutcome;
use sources::fetch_plan::ArtifactInputs;
use sources::source_condition_reasons::INVALID_DURATION;
use windlass_runtime::git_remote_access::{self, classify};

use super::executor::GitFetchSpec;
use super::include::RepositoryInclude;
use super::referenced_objects::GitRepositoryReferencedObjects;
use super::verify::CommitVerification;
use crate::source::ValidatedSourceSpec;
use crate::source::artifact_verification_record::VERIFY;

/// Checks the spec of a GitRepository. Returns the validated spec, or the outcome that names its fault.
pub(super) fn desired(
    object: &GitRepository,
    resolved: GitRepositoryReferencedObjects,
) -> Result<ValidatedSourceSpec<GitFetchSpec>, RunOutcome> {
    let spec = &object.spec;
    let remote = resolved.secrets.remote(spec)?;
    if let Err(error) = reconcile::parse_duration(spec.interval.as_str()) {
        return Err(RunOutcome::Stalled(INVALID_DURATION, format!("spec.interval: {error}")));
    }
    let sparse = SparseCheckout::parse(&spec.sparse_checkout).map_err(|error| classify(&error))?;
    let include = resolved.include.iter().map(RepositoryInclude::shape).collect::<Vec<_>>();
    let shape = ArtifactInputs::default()
        .with("ignore", spec.ignore.clone())
        .with("recurseSubmodules", spec.recurse_submodules)
        .with("sparseCheckout", spec.sparse_checkout.clone())
        .with("include", include);
    let signed = spec.verify.as_ref().zip(resolved.keys).map(|(verify, keys)| {
        CommitVerification::new(verify.mode.unwrap_or_default().as_str(), keys)
    });
    let shape = match &signed {
        Some(signed) => shape.with(VERIFY, signed.shape()),
        None => shape,
    };
    let work = GitFetchSpec {
        remote,
        reference: git_remote_access::reference(spec.reference.as_ref())?,
        content: RequestedCommitContent { submodules: spec.recurse_submodules, sparse },
        include: resolved.include,
        signed,
    };
    Ok(ValidatedSourceSpec { work, shape })
}

#[cfg(test)]
mod tests;
