//! Observes a source's remote and its place in the artifact store, and performs the steps of its run.
//!
//! Here: when the remote is asked and fetched, whether the artifact of the status is still in the store, storing a fetched
//! artifact.
//! Elsewhere: how a remote is asked and fetched (each kind), the store itself (`artifacts::store`).

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use artifacts::store::{self, ArtifactStore, ObjectFolder};
use crds::Artifact;
use kube_core::ResourceExt as _;
use parking_lot::Mutex;
use reconcile::{NextRunTrigger, RunOutcome};
use sources::fetch_plan::{
    ArtifactDesiredState, ArtifactObservedState, KeptArtifact, SourceFetchPlanner, SourceFetchStep,
};
use sources::source_condition_reasons::ARCHIVE_OPERATION_FAILED;

use super::artifact_verification_record::{VERIFY, VerificationRecord};
use super::{SourceKind, artifact_verification_record, lost_artifact};
use windlass_cluster::error::chain;
use windlass_runtime::object_status::LatestWrittenObject;
use windlass_runtime::progress_status;
use windlass_runtime::run_context::RunContext;

/// One run of a source, as its kind sees it.
pub(crate) struct SourceRun<K: SourceKind> {
    /// The context that all runs share.
    pub(crate) context: Arc<RunContext>,
    /// The object.
    pub(crate) object: Arc<K>,
    /// The checked spec.
    pub(crate) work: K::FetchSpec,
}

/// The answer of the remote.
pub(crate) struct RemoteRevision<F> {
    /// The present revision of the remote.
    pub(crate) revision: String,
    /// The kind's own data for fetching the revision.
    pub(crate) found: F,
}

/// An artifact that this run stored.
#[derive(Clone)]
pub(crate) struct StoredArtifact<S> {
    /// The artifact for the status.
    pub(crate) artifact: Artifact,
    /// The text of the event.
    pub(crate) message: String,
    /// Changes further fields of the status.
    pub(crate) note: Arc<dyn Fn(&mut S) + Send + Sync>,
    /// The verification record, if the artifact was verified.
    pub(crate) verified: Option<VerificationRecord>,
}

impl<S> StoredArtifact<S> {
    /// An artifact with the text of its event. `note` changes further fields of the status.
    pub(crate) fn new(
        artifact: Artifact,
        message: String,
        note: impl Fn(&mut S) + Send + Sync + 'static,
    ) -> Self {
        Self { artifact, message, note: Arc::new(note), verified: None }
    }
}

/// The state of a source's run: its remote, and its artifact in the store.
pub(super) struct SourceExecutor<'a, K: SourceKind> {
    run: Arc<SourceRun<K>>,
    latest: &'a LatestWrittenObject<K>,
    found: Mutex<Option<K::LookupResult>>,
    stored: Mutex<Option<StoredArtifact<K::Status>>>,
}

/// The folder of an object's artifacts in the store.
///
/// # Errors
/// A name could lead out of the store. The API server does not accept such names.
pub(crate) fn slot<K: SourceKind>(object: &K) -> Result<ObjectFolder, store::Error> {
    ObjectFolder::new(K::FOLDER, &object.namespace().unwrap_or_default(), &object.name_any())
}

/// Stores the output of `write` as the artifact of an object. Blocks.
///
/// The artifact in the status stays until the next run, because other objects fetch it until the status names the new one.
///
/// # Errors
/// The disk refuses, or `write` fails.
pub(crate) fn keep<K: SourceKind, E>(
    store: &ArtifactStore,
    object: &K,
    file: &str,
    revision: &str,
    write: impl FnOnce(&mut dyn io::Write) -> Result<(), E>,
) -> Result<Artifact, RunOutcome>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let failed = |error: store::Error| {
        RunOutcome::Failed(ARCHIVE_OPERATION_FAILED, chain(&error), NextRunTrigger::default())
    };
    if K::LATEST_LINK == Some(file) {
        // The link would replace the artifact and lead to itself.
        return Err(failed(store::Error::Name { what: "file", value: file.to_owned() }));
    }
    let now = jiff::Timestamp::now();
    let slot = slot(object).map_err(failed)?;
    let kept = store.put(&slot, file, revision, now, write).map_err(failed)?;
    collect_garbage(store, object, Some(&kept.path));
    Ok(Artifact {
        digest: kept.digest,
        last_update_time: crds::Time(kept.last_update),
        metadata: BTreeMap::new(),
        path: kept.path,
        revision: kept.revision,
        size: i64::try_from(kept.size).ok(),
        url: kept.url,
    })
}

/// Deletes old artifacts of an object, but neither the one in its status nor `new`. Blocks.
pub(super) fn collect_garbage<K: SourceKind>(store: &ArtifactStore, object: &K, new: Option<&str>) {
    let named = object.artifact().map(|artifact| artifact.path.as_str());
    let keep: Vec<&str> = named.into_iter().chain(new).collect();
    let collected =
        slot(object).and_then(|slot| store.collect_garbage(&slot, &keep, jiff::Timestamp::now()));
    if let Err(error) = collected {
        tracing::info!(
            name = object.name_any(),
            error = chain(&error),
            "failed to remove old artifacts"
        );
    }
}

impl<'a, K: SourceKind> SourceExecutor<'a, K> {
    /// The namespace in whose turn the remote is asked and fetched.
    fn namespace(&self) -> String {
        self.run.object.namespace().unwrap_or_default()
    }

    /// The executor of a run.
    pub(super) fn new(run: Arc<SourceRun<K>>, latest: &'a LatestWrittenObject<K>) -> Self {
        Self { run, latest, found: Mutex::default(), stored: Mutex::default() }
    }

    /// The artifact that this run stored. `None` if the run has not stored any.
    pub(super) fn stored(&self) -> Option<StoredArtifact<K::Status>> {
        self.stored.lock().clone()
    }

    /// Reports in the status that the remote is asked about a spec without a result.
    async fn tell_of_asking(&self) {
        let SourceRun { context, object, .. } = &*self.run;
        if !progress_status::is_decided(&**object) {
            // Parity(flux): these are its words.
            let text = match (object.observed_generation(), object.meta().generation) {
                (Some(was), Some(is)) if was > 0 && was != is => {
                    format!("processing object: new generation {was} -> {is}")
                }
                _ => "reconciliation in progress".to_owned(),
            };
            progress_status::tell(context, self.latest, object, &text).await;
        }
    }

    /// Reports in the status that a new revision is fetched, but not for a repeated attempt.
    async fn tell_of_fetching(&self, revision: &str) {
        let SourceRun { context, object, .. } = &*self.run;
        let has_failed = progress_status::is_decided(&**object)
            && object.condition("Ready").is_some_and(|ready| ready.status == "False");
        if !has_failed {
            // Parity(flux): these are its words.
            let text = format!("building artifact: new upstream revision '{revision}'");
            progress_status::tell(context, self.latest, object, &text).await;
        }
    }

    /// The artifact of the status, if its bytes are in the store. Otherwise `None`.
    async fn kept(&self, desired: &ArtifactDesiredState) -> Option<KeptArtifact> {
        let object = &self.run.object;
        let artifact = object.artifact()?.clone();
        let shape = object.shape()?;
        let shape = match desired.shape.get(VERIFY) {
            Some(_) => shape.with(
                VERIFY,
                artifact_verification_record::how(&self.run.context, &**object, &artifact).await,
            ),
            None => shape,
        };
        let kept = KeptArtifact { revision: K::modern(&artifact.revision), shape };
        lost_artifact::is_kept(&self.run.context, &**object, &artifact).await.then_some(kept)
    }
}

impl<K: SourceKind> reconcile::Executor<SourceFetchPlanner> for SourceExecutor<'_, K> {
    async fn observe(
        &self,
        desired: &ArtifactDesiredState,
    ) -> Result<ArtifactObservedState, RunOutcome> {
        if let Some(stored) = self.stored() {
            let revision = stored.artifact.revision;
            let kept = KeptArtifact { revision: revision.clone(), shape: desired.shape.clone() };
            let settled = K::settled(&self.run, &revision);
            return Ok(ArtifactObservedState { remote: revision, kept: Some(kept), settled });
        }
        let kept = self.kept(desired).await;
        let _permit = self.run.context.asking.acquire(&self.namespace()).await;
        // A conditional request to the remote may only be based on a usable artifact.
        let usable = kept.as_ref().filter(|kept| kept.shape == desired.shape);
        let asked = progress_status::telling(K::ask(&self.run, usable), self.tell_of_asking());
        let RemoteRevision { revision, found } = asked.await?;
        *self.found.lock() = Some(found);
        let settled = K::settled(&self.run, &revision);
        Ok(ArtifactObservedState { remote: revision, kept, settled })
    }

    async fn perform(&self, step: &SourceFetchStep) -> Result<(), RunOutcome> {
        let SourceFetchStep::Fetch { revision } = step;
        let found = self.found.lock().take();
        let Some(found) = found else { return Ok(()) };
        let _permit = self.run.context.fetching.acquire(&self.namespace()).await;
        let fetching = K::fetch(&self.run, found);
        let stored = progress_status::telling(fetching, self.tell_of_fetching(revision)).await?;
        if let Some(verified) = &stored.verified {
            let SourceRun { context, object, .. } = &*self.run;
            artifact_verification_record::remember(
                context,
                &**object,
                &stored.artifact.digest,
                verified,
            )
            .await;
        }
        *self.stored.lock() = Some(stored);
        Ok(())
    }
}
