//! The kind HelmRepository: it makes an artifact from the index of a chart repository. A HelmRepository of type `oci` only
//! names an address, and has no artifact.
//!
//! Here: the parts of a run that are special to this kind. Elsewhere: the run that all sources share (`source`), the
//! connection to the repository or registry (`windlass_runtime::chart_repository_access`), indexes and how they are fetched
//! (`sources::charts`), charts (`helm_chart`).

pub(crate) mod executor;
mod referenced_objects;
mod validated_spec;

use std::fs::File;
use std::sync::Arc;

use crds::source::HelmRepository;
use reconcile::{ConditionReason, ObjectKey, RunOutcome, condition_reason};
use sources::fetch_plan::{ArtifactInputs, KeptArtifact};
use sources::source_condition_reasons::ARCHIVE_OPERATION_FAILED;

use super::source::executor::{RemoteRevision, SourceRun, StoredArtifact};
use super::source::report::{FETCH_FAILED, FailureConditions, STORAGE_OPERATION_FAILED};
use super::source::{SourceKind, ValidatedSourceSpec};
use windlass_runtime::chart_repository_access::{is_registry, unsupported};
use windlass_runtime::run_context::RunContext;

/// Interval of a HelmRepository that has none. Parity(flux).
const DEFAULT_INTERVAL: &str = "1m";

/// The name under which the newest index is always found.
const LATEST: &str = "index.yaml";

/// The condition that reports a failure, beside `Ready`.
fn failure(why: ConditionReason) -> &'static str {
    match why {
        ARCHIVE_OPERATION_FAILED => STORAGE_OPERATION_FAILED,
        _ => FETCH_FAILED,
    }
}

impl SourceKind for HelmRepository {
    const FOLDER: &'static str = "helmrepository";
    const LATEST_LINK: Option<&'static str> = Some(LATEST);
    const CONDITIONS: FailureConditions = FailureConditions {
        owned: &[FETCH_FAILED, "ArtifactOutdated", STORAGE_OPERATION_FAILED],
        of_failure: failure,
    };

    type FetchSpec = executor::RepositoryFetchSpec;
    /// The index, if it was sent.
    type LookupResult = Option<File>;

    fn unsupported(&self) -> Vec<&'static str> {
        unsupported(&self.spec)
    }

    fn interval(&self) -> Option<&str> {
        Some(self.spec.interval.as_ref().map_or(DEFAULT_INTERVAL, |interval| interval.as_str()))
    }

    fn is_static(&self) -> bool {
        is_registry(self)
    }

    async fn desired(
        context: &Arc<RunContext>,
        node: &ObjectKey,
        object: &Arc<Self>,
    ) -> Result<ValidatedSourceSpec<Self::FetchSpec>, RunOutcome> {
        validated_spec::check(object)?;
        let secrets = referenced_objects::resolve(context, node, object).await?;
        validated_spec::desired(object, &secrets, context)
    }

    async fn ask(
        run: &Arc<SourceRun<Self>>,
        kept: Option<&KeptArtifact>,
    ) -> Result<RemoteRevision<Option<File>>, RunOutcome> {
        executor::ask(run, kept).await
    }

    async fn fetch(
        run: &Arc<SourceRun<Self>>,
        index: Option<File>,
    ) -> Result<StoredArtifact<Self::Status>, RunOutcome> {
        executor::fetch(run, index).await
    }

    fn shape(&self) -> Option<ArtifactInputs> {
        Some(ArtifactInputs::default())
    }

    fn settled(_run: &SourceRun<Self>, revision: &str) -> (ConditionReason, String) {
        (condition_reason::SUCCEEDED, format!("stored artifact: revision '{revision}'"))
    }

    fn also_announces(&self) -> Vec<String> {
        // A registry has no artifact whose change would announce another address.
        let spec = &self.spec;
        let names = [&spec.secret_ref, &spec.cert_secret_ref].map(|it| format!("{it:?}"));
        let reached = format!("{:?} {} {:?}", spec.type_, spec.insecure, spec.provider);
        let urls = [spec.url.clone(), reached];
        urls.into_iter().chain(names).collect()
    }

    fn always(run: &SourceRun<Self>, is_new: bool, status: &mut Self::Status) {
        if !is_new {
            super::source::latest_url(run, LATEST, &mut status.url);
        }
    }
}

#[cfg(test)]
mod tests;
