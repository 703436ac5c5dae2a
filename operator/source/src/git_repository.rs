//! The kind GitRepository: it makes an artifact from a branch, tag or commit.
//!
//! Here: the parts of a run that are special to this kind, and the files of other commits (`commit_files`). Elsewhere: the run
//! that all sources share (`source`), Git (`git`).

mod artifact_file_selection;
pub(crate) mod commit_files;
mod executor;
pub(crate) mod include;
mod referenced_objects;
mod validated_spec;
mod verify;

use std::sync::Arc;

use artifacts::store::NeededArtifact;
use crds::source::GitRepository;
use git::revision;
use reconcile::{ConditionReason, ObjectKey, RunOutcome};
use sources::fetch_plan::{ArtifactInputs, KeptArtifact};
use sources::source_condition_reasons::{
    ARCHIVE_OPERATION_FAILED, COPY_FAILURE, ILLEGAL_PATH, INCLUDE_CYCLE, NO_ARTIFACT, NOT_FOUND,
    VERIFICATION_ERROR, is_refused_signature,
};

use super::source::executor::{RemoteRevision, SourceRun, StoredArtifact};
use super::source::report::{
    FETCH_FAILED, FailureConditions, SOURCE_VERIFIED, STORAGE_OPERATION_FAILED,
};
use super::source::{SourceKind, ValidatedSourceSpec, artifact_verification_record};
use windlass_runtime::git_remote_access;
use windlass_runtime::run_context::RunContext;

const INCLUDE_UNAVAILABLE: &str = "IncludeUnavailable";

/// The condition that reports a failure, beside `Ready`.
fn failure(why: ConditionReason) -> &'static str {
    match why {
        NOT_FOUND | NO_ARTIFACT | INCLUDE_CYCLE => INCLUDE_UNAVAILABLE,
        ARCHIVE_OPERATION_FAILED | COPY_FAILURE | ILLEGAL_PATH => STORAGE_OPERATION_FAILED,
        VERIFICATION_ERROR => SOURCE_VERIFIED,
        why if is_refused_signature(why) => SOURCE_VERIFIED,
        _ => FETCH_FAILED,
    }
}

impl SourceKind for GitRepository {
    const FOLDER: &'static str = "gitrepository";
    const CONDITIONS: FailureConditions = FailureConditions {
        owned: &[
            FETCH_FAILED,
            "ArtifactOutdated",
            STORAGE_OPERATION_FAILED,
            SOURCE_VERIFIED,
            INCLUDE_UNAVAILABLE,
            "BuildFailed",
            "GarbageCollectionSucceeded",
        ],
        of_failure: failure,
    };

    type FetchSpec = executor::GitFetchSpec;
    type LookupResult = ();

    fn unsupported(&self) -> Vec<&'static str> {
        git_remote_access::unsupported(&self.spec)
    }

    fn interval(&self) -> Option<&str> {
        Some(self.spec.interval.as_str())
    }

    async fn desired(
        context: &Arc<RunContext>,
        node: &ObjectKey,
        object: &Arc<Self>,
    ) -> Result<ValidatedSourceSpec<Self::FetchSpec>, RunOutcome> {
        let resolved = referenced_objects::resolve(context, node, object).await?;
        validated_spec::desired(object, resolved)
    }

    async fn ask(
        run: &Arc<SourceRun<Self>>,
        _kept: Option<&KeptArtifact>,
    ) -> Result<RemoteRevision<()>, RunOutcome> {
        let revision = executor::ask(run).await?;
        Ok(RemoteRevision { revision, found: () })
    }

    async fn fetch(
        run: &Arc<SourceRun<Self>>,
        (): (),
    ) -> Result<StoredArtifact<Self::Status>, RunOutcome> {
        executor::fetch(run).await
    }

    async fn fetch_again(
        run: &Arc<SourceRun<Self>>,
        artifact: &NeededArtifact,
    ) -> Result<bool, RunOutcome> {
        executor::fetch_again(run, artifact).await.map(|()| true)
    }

    fn shape(&self) -> Option<ArtifactInputs> {
        let status = self.status.as_ref()?;
        let spec = &status.observed_include;
        let artifacts = &status.included_artifacts;
        let include = || spec.iter().zip(artifacts).map(|(spec, it)| include::shape(spec, it));
        (spec.len() == artifacts.len()).then(|| {
            ArtifactInputs::default()
                .with("ignore", status.observed_ignore.clone())
                .with("recurseSubmodules", status.observed_recurse_submodules)
                .with("sparseCheckout", status.observed_sparse_checkout.clone())
                .with("include", include().collect::<Vec<_>>())
        })
    }

    fn modern(revision: &str) -> String {
        // Flux wrote revisions in another form once.
        revision::modern_artifact(revision)
    }

    fn observed(&self, status: &mut Self::Status) {
        let spec = &self.spec;
        status.observed_ignore.clone_from(&spec.ignore);
        status.observed_recurse_submodules = spec.recurse_submodules;
        status.observed_sparse_checkout.clone_from(&spec.sparse_checkout);
        status.observed_include.clone_from(&spec.include);
    }

    fn is_verified(&self) -> bool {
        self.spec.verify.is_some()
    }

    fn unverified(&self) -> Option<String> {
        match self.spec.include.is_empty() {
            true => artifact_verification_record::unverified(self),
            // An included repository has signatures of its own, which do not cover this repository.
            false => Some("it includes other repositories".to_owned()),
        }
    }

    fn always(run: &SourceRun<Self>, is_new: bool, status: &mut Self::Status) {
        match &run.work.signed {
            Some(signed) if is_new => {
                status.source_verification_mode = Some(signed.mode().as_str().to_owned());
            }
            Some(_) => {}
            None => status.source_verification_mode = None,
        }
    }

    fn also_announces(&self) -> Vec<String> {
        // An automation pushes to the repository of the spec, even if it was never fetched.
        let spec = self.metadata.generation.unwrap_or_default().to_string();
        // A member of a cycle of includes waits until one of these includes is removed.
        let included = self.spec.include.iter().map(|include| include.repository.name.clone());
        std::iter::once(spec).chain(included).collect()
    }
}

#[cfg(test)]
mod tests;
