//! The kind OCIRepository: it makes an artifact from one layer of an artifact in an OCI registry.
//!
//! Here: the parts of a run that are special to this kind. Elsewhere: the run that all sources share (`source`), registries
//! (`sources::oci`).

mod artifact_file_selection;
mod executor;
mod referenced_objects;
mod signed_version;
mod validated_spec;

use std::sync::Arc;

use artifacts::store::NeededArtifact;
use crds::source::OCIRepository;
use reconcile::{ConditionReason, ObjectKey, RunOutcome, condition_reason};
use serde_json::json;
use sources::fetch_plan::{ArtifactInputs, KeptArtifact};
use sources::source_condition_reasons::{ARCHIVE_OPERATION_FAILED, VERIFICATION_ERROR};

use super::image_trust::SignaturePolicy;
use super::source::executor::{RemoteRevision, SourceRun, StoredArtifact};
use super::source::report::{
    FETCH_FAILED, FailureConditions, SOURCE_VERIFIED, STORAGE_OPERATION_FAILED,
};
use super::source::{
    LATEST_ARCHIVE, SourceController, SourceKind, ValidatedSourceSpec,
    artifact_verification_record, latest_url,
};
use windlass_runtime::registry_login::login;
use windlass_runtime::run_context::RunContext;
use windlass_runtime::source_catalog::currency;

/// The condition that reports a failure, beside `Ready`.
fn failure(why: ConditionReason) -> &'static str {
    match why {
        ARCHIVE_OPERATION_FAILED => STORAGE_OPERATION_FAILED,
        VERIFICATION_ERROR => SOURCE_VERIFIED,
        _ => FETCH_FAILED,
    }
}

impl SourceKind for OCIRepository {
    const FOLDER: &'static str = "ocirepository";
    const LATEST_LINK: Option<&'static str> = Some(LATEST_ARCHIVE);
    const CONDITIONS: FailureConditions = FailureConditions {
        owned: &[
            FETCH_FAILED,
            "ArtifactOutdated",
            STORAGE_OPERATION_FAILED,
            SOURCE_VERIFIED,
            "GarbageCollectionSucceeded",
        ],
        of_failure: failure,
    };

    type FetchSpec = executor::OciFetchSpec;
    type LookupResult = executor::OciLookupResult;

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
        // The spec is checked before any request is sent.
        validated_spec::check(&object.spec)?;
        let resolved = referenced_objects::resolve(context, node, object).await?;
        let mut desired = validated_spec::desired(object, resolved)?;
        let has_secret = object.spec.secret_ref.is_some();
        login(context, object.spec.provider, has_secret, &mut desired.work.remote).await?;
        Ok(desired)
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

    async fn fetch_again(
        run: &Arc<SourceRun<Self>>,
        artifact: &NeededArtifact,
    ) -> Result<bool, RunOutcome> {
        executor::fetch_again(run, artifact).await.map(|()| true)
    }

    fn also_announces(&self) -> Vec<String> {
        // A HelmRelease takes the artifact of the generation that it sees, and no other.
        vec![currency::<SourceController<Self>>(self)]
    }

    fn shape(&self) -> Option<ArtifactInputs> {
        let status = self.status.as_ref()?;
        let layer = json!(status.observed_layer_selector);
        let ignore = status.observed_ignore.clone();
        Some(ArtifactInputs::default().with("ignore", ignore).with("layerSelector", layer))
    }

    fn is_verified(&self) -> bool {
        self.spec.verify.is_some()
    }

    fn unverified(&self) -> Option<String> {
        let verify = self.spec.verify.as_ref();
        let anyone = verify.and_then(|it| SignaturePolicy::of_repository(it).accepts_anyone());
        anyone.or_else(|| artifact_verification_record::unverified(self))
    }

    fn settled(_run: &SourceRun<Self>, revision: &str) -> (ConditionReason, String) {
        (condition_reason::SUCCEEDED, format!("stored artifact for digest '{revision}'"))
    }

    fn always(run: &SourceRun<Self>, is_new: bool, status: &mut Self::Status) {
        if !is_new {
            latest_url(run, LATEST_ARCHIVE, &mut status.url);
        }
    }

    fn observed(&self, status: &mut Self::Status) {
        status.observed_ignore.clone_from(&self.spec.ignore);
        status.observed_layer_selector.clone_from(&self.spec.layer_selector);
    }
}

#[cfg(test)]
mod tests;
