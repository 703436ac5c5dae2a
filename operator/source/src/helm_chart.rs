//! The kind HelmChart: it makes an artifact from one chart of another source.
//!
//! Here: the parts of a run that are special to this kind. Elsewhere: the run that all sources share (`source`), charts and
//! repositories of them (`sources::charts`), indexes as artifacts (`helm_repository`).

mod artifact_metadata;
mod chart_package;
mod chart_source;
mod dependencies;
mod executor;
mod oci_registry;
mod provenance;
mod signed_name;
mod validated_spec;

use std::sync::Arc;

use crds::source::HelmChart;
use reconcile::{ConditionReason, ObjectKey, RunOutcome};
use sources::fetch_plan::{ArtifactInputs, KeptArtifact};
use sources::source_condition_reasons::{
    ARCHIVE_OPERATION_FAILED, CHART_PACKAGE_ERROR, CHART_VERIFICATION_ERROR,
    DEPENDENCY_BUILD_ERROR, METADATA_PATCH_ERROR, VALUES_FILES_ERROR, VERIFICATION_ERROR,
};

use super::image_trust::SignaturePolicy;
use super::source::executor::{RemoteRevision, SourceRun, StoredArtifact};
use super::source::report::{
    FETCH_FAILED, FailureConditions, SOURCE_VERIFIED, STORAGE_OPERATION_FAILED,
};
use super::source::{
    SourceController, SourceKind, ValidatedSourceSpec, artifact_verification_record,
};
use windlass_runtime::run_context::RunContext;
use windlass_runtime::source_catalog::currency;

const BUILD_FAILED: &str = "BuildFailed";

/// The name under which the newest chart is always found. Parity(flux).
const LATEST: &str = super::source::LATEST_ARCHIVE;

/// The condition that reports a failure, beside `Ready`.
fn failure(why: ConditionReason) -> &'static str {
    match why {
        METADATA_PATCH_ERROR
        | VALUES_FILES_ERROR
        | DEPENDENCY_BUILD_ERROR
        | CHART_PACKAGE_ERROR => BUILD_FAILED,
        ARCHIVE_OPERATION_FAILED => STORAGE_OPERATION_FAILED,
        VERIFICATION_ERROR | CHART_VERIFICATION_ERROR => SOURCE_VERIFIED,
        _ => FETCH_FAILED,
    }
}

/// The inputs of an artifact besides the chart version. Each generation of the spec counts as another input.
fn shape(generation: Option<i64>) -> ArtifactInputs {
    ArtifactInputs::default().with("generation", generation)
}

impl SourceKind for HelmChart {
    const FOLDER: &'static str = "helmchart";
    const LATEST_LINK: Option<&'static str> = Some(LATEST);
    const CONDITIONS: FailureConditions = FailureConditions {
        owned: &[
            FETCH_FAILED,
            BUILD_FAILED,
            "ArtifactOutdated",
            STORAGE_OPERATION_FAILED,
            SOURCE_VERIFIED,
        ],
        of_failure: failure,
    };

    const ANNOTATIONS: &'static [&'static str] = &[provenance::ANNOTATION];

    type FetchSpec = executor::ChartFetchSpec;
    type LookupResult = executor::ChartLookupResult;

    fn interval(&self) -> Option<&str> {
        Some(self.spec.interval.as_str())
    }

    async fn desired(
        context: &Arc<RunContext>,
        node: &ObjectKey,
        object: &Arc<Self>,
    ) -> Result<ValidatedSourceSpec<Self::FetchSpec>, RunOutcome> {
        chart_source::edges(context, node, object);
        validated_spec::check(object)?;
        let (from, keyring) = chart_source::resolve(context, node, object).await?;
        validated_spec::desired(object, from, keyring)
    }

    fn is_verified(&self) -> bool {
        self.spec.verify.is_some() || provenance::secret_of(self).is_some()
    }

    fn unverified(&self) -> Option<String> {
        let verify = self.spec.verify.as_ref();
        let anyone = verify.and_then(|it| SignaturePolicy::of_chart(it).accepts_anyone());
        anyone.or_else(|| artifact_verification_record::unverified(self))
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

    fn also_announces(&self) -> Vec<String> {
        // A HelmRelease takes the artifact of the generation that it sees, and no other.
        vec![currency::<SourceController<Self>>(self)]
    }

    fn shape(&self) -> Option<ArtifactInputs> {
        // Parity(flux): another generation is always built, since a status does not say all that one was made with.
        Some(shape(self.status.as_ref()?.observed_generation))
    }

    fn settled(run: &SourceRun<Self>, _revision: &str) -> (ConditionReason, String) {
        let built = run.work.built();
        (built.reason(), built.summary())
    }

    fn event_reason(settled: ConditionReason) -> &'static str {
        settled.as_str()
    }

    fn always(run: &SourceRun<Self>, is_new: bool, status: &mut Self::Status) {
        if !is_new {
            super::source::latest_url(run, LATEST, &mut status.url);
        }
        let artifact = run.work.origin.artifact();
        status.observed_source_artifact_revision = artifact.map(|it| it.revision.clone());
    }
}

/// The generation of a HelmChart, which identifies its spec. `None` if the object lacks it.
fn generation(object: &HelmChart) -> Option<i64> {
    object.metadata.generation
}

#[cfg(test)]
mod tests;
