//! The kind Bucket: it makes an artifact from the objects of an object store, or from one bundle in it.
//!
//! Here: the parts of a run that are special to this kind. Elsewhere: the run that all sources share (`source`), the protocols
//! (`sources::bucket`).

mod executor;
mod referenced_objects;
mod validated_spec;

use std::sync::Arc;

use crds::source::Bucket;
use kube_core::ResourceExt as _;
use reconcile::{ConditionReason, ObjectKey, RunOutcome, condition_reason};
use sources::fetch_plan::{ArtifactInputs, KeptArtifact};
use sources::source_condition_reasons::ARCHIVE_OPERATION_FAILED;

use super::source::executor::{RemoteRevision, SourceRun, StoredArtifact};
use super::source::report::{FETCH_FAILED, FailureConditions, STORAGE_OPERATION_FAILED};
use super::source::{LATEST_ARCHIVE, SourceKind, ValidatedSourceSpec, latest_url};
use windlass_runtime::run_context::RunContext;

/// Names the object whose files are the artifact's, in the place of the bucket's own objects.
const BUNDLE: &str = "windlass.dev/bundle";

/// The condition that reports a failure, beside `Ready`.
fn failure(why: ConditionReason) -> &'static str {
    match why {
        ARCHIVE_OPERATION_FAILED => STORAGE_OPERATION_FAILED,
        _ => FETCH_FAILED,
    }
}

/// The key of the object whose files are the artifact of a Bucket. `None` if the Bucket's own objects are its files.
fn bundle(object: &Bucket) -> Option<&str> {
    object.annotations().get(BUNDLE).map(String::as_str)
}

impl SourceKind for Bucket {
    const FOLDER: &'static str = "bucket";
    const LATEST_LINK: Option<&'static str> = Some(LATEST_ARCHIVE);
    const ANNOTATIONS: &'static [&'static str] = &[BUNDLE];
    const CONDITIONS: FailureConditions = FailureConditions {
        owned: &[FETCH_FAILED, "ArtifactOutdated", STORAGE_OPERATION_FAILED],
        of_failure: failure,
    };

    type FetchSpec = executor::BucketFetchSpec;
    type LookupResult = executor::BucketLookupResult;

    fn unsupported(&self) -> Vec<&'static str> {
        validated_spec::unsupported(&self.spec)
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
    ) -> Result<RemoteRevision<Self::LookupResult>, RunOutcome> {
        executor::ask(run).await
    }

    async fn fetch(
        run: &Arc<SourceRun<Self>>,
        found: Self::LookupResult,
    ) -> Result<StoredArtifact<Self::Status>, RunOutcome> {
        executor::fetch(run, found).await
    }

    fn shape(&self) -> Option<ArtifactInputs> {
        let status = self.status.as_ref()?;
        Some(ArtifactInputs::default().with("ignore", status.observed_ignore.clone()))
    }

    fn settled(_run: &SourceRun<Self>, revision: &str) -> (ConditionReason, String) {
        (condition_reason::SUCCEEDED, format!("stored artifact: revision '{revision}'"))
    }

    fn always(run: &SourceRun<Self>, is_new: bool, status: &mut Self::Status) {
        if !is_new {
            latest_url(run, LATEST_ARCHIVE, &mut status.url);
        }
    }

    fn observed(&self, status: &mut Self::Status) {
        status.observed_ignore.clone_from(&self.spec.ignore);
    }
}

#[cfg(test)]
mod tests;
