//! The kind HTTPArchive: it makes an artifact from an archive or a YAML file on a web server. An ExternalArtifact of the same
//! name offers the artifact.
//!
//! Here: the parts of a run that are special to this kind. In the folder, besides the usual files: the ExternalArtifact
//! (`external_artifact`).
//! Elsewhere: the run that all sources share (`source`), HTTP and archives (`sources::http_archive`).

mod executor;
mod external_artifact;
mod referenced_objects;
mod validated_spec;

use std::sync::Arc;

use crds::Artifact;
use crds::windlass_source::HTTPArchive;
use reconcile::{ConditionReason, ObjectKey, RunOutcome, condition_reason};
use sources::fetch_plan::{ArtifactInputs, KeptArtifact};
use sources::http_archive::ArchiveEtagAndLastModified;
use sources::source_condition_reasons::{ARCHIVE_OPERATION_FAILED, EXTERNAL_ARTIFACT_FAILED};

use super::source::executor::{RemoteRevision, SourceRun, StoredArtifact};
use super::source::report::{FETCH_FAILED, FailureConditions, STORAGE_OPERATION_FAILED};
use super::source::{SourceKind, ValidatedSourceSpec};
use windlass_cluster::ClusterError;
use windlass_runtime::run_context::RunContext;

/// New validators for an unchanged file. The server sent a file with the same contents again.
#[derive(Debug, Default)]
pub(crate) struct RenewedArchiveValidators {
    /// The revision of the contents, and their URL.
    of: (String, String),
    validators: ArchiveEtagAndLastModified,
}

/// The condition that reports a failure, beside `Ready`.
fn failure(why: ConditionReason) -> &'static str {
    match why {
        ARCHIVE_OPERATION_FAILED | EXTERNAL_ARTIFACT_FAILED => STORAGE_OPERATION_FAILED,
        _ => FETCH_FAILED,
    }
}

impl SourceKind for HTTPArchive {
    const FOLDER: &'static str = "httparchive";
    const CONDITIONS: FailureConditions = FailureConditions {
        owned: &[FETCH_FAILED, "ArtifactOutdated", STORAGE_OPERATION_FAILED],
        of_failure: failure,
    };

    type FetchSpec = executor::HttpFetchSpec;
    type LookupResult = Option<executor::HttpArchiveDownload>;

    fn interval(&self) -> Option<&str> {
        Some(self.spec.interval.as_str())
    }

    async fn desired(
        context: &Arc<RunContext>,
        node: &ObjectKey,
        object: &Arc<Self>,
    ) -> Result<ValidatedSourceSpec<Self::FetchSpec>, RunOutcome> {
        let resolved = referenced_objects::resolve(context, node, object).await?;
        validated_spec::desired(object, &resolved)
    }

    async fn ask(
        run: &Arc<SourceRun<Self>>,
        kept: Option<&KeptArtifact>,
    ) -> Result<RemoteRevision<Self::LookupResult>, RunOutcome> {
        executor::ask(run, kept).await
    }

    async fn fetch(
        run: &Arc<SourceRun<Self>>,
        found: Self::LookupResult,
    ) -> Result<StoredArtifact<Self::Status>, RunOutcome> {
        executor::fetch(run, found).await
    }

    fn shape(&self) -> Option<ArtifactInputs> {
        let status = self.status.as_ref()?;
        Some(
            ArtifactInputs::default()
                .with("url", status.observed_url.clone())
                .with("digest", status.observed_digest.clone())
                .with("ignore", status.observed_ignore.clone()),
        )
    }

    fn settled(_run: &SourceRun<Self>, revision: &str) -> (ConditionReason, String) {
        (condition_reason::SUCCEEDED, format!("stored artifact for revision '{revision}'"))
    }

    fn observed(&self, status: &mut Self::Status) {
        let spec = &self.spec;
        status.observed_url = Some(spec.url.clone());
        status.observed_digest.clone_from(&spec.digest);
        status.observed_ignore.clone_from(&spec.ignore);
    }

    async fn offer(
        context: &RunContext,
        object: &Arc<Self>,
        artifact: Option<&Artifact>,
    ) -> Result<(), RunOutcome> {
        external_artifact::offer(context, object, artifact).await
    }

    async fn unoffer(context: &RunContext, object: &Arc<Self>) -> Result<(), ClusterError> {
        external_artifact::unoffer(context, object).await
    }

    async fn withdraw(context: &RunContext, object: &Arc<Self>) -> Result<(), ClusterError> {
        external_artifact::withdraw(context, object).await
    }
}
