//! The run that all kinds of sources share. It makes an artifact from a remote.
//!
//! Here: the trait that each kind implements (`SourceKind`), and the run.
//! In the folder: asking and fetching around a kind's own protocol (`executor`), status and events (`report`), artifacts that
//! the store has lost (`lost_artifact`), artifacts of earlier revisions that other objects need (`needed_artifact_refetch`),
//! how artifacts were verified (`artifact_verification_record`), copies of artifacts in a standby ([`standby_artifacts`]).
//! Elsewhere: every source by kind and name (`catalog`), the kinds (a folder each beside this one), protocols and the decision
//! whether to fetch (`sources`).

pub(crate) mod artifact_verification_record;
pub(crate) mod executor;
mod lost_artifact;
pub(crate) mod needed_artifact_refetch;
pub(crate) mod report;
pub mod standby_artifacts;

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use artifacts::store::{ArtifactStore, NeededArtifact};
use crds::Artifact;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http_client::HostBusyError;
use kube_core::ResourceExt as _;
use parking_lot::Mutex;
use reconcile::{
    ConditionReason, NextRunTrigger, ObjectKey, RunGate, RunGateFacts, RunOutcome, before_resolve,
    condition_reason,
};
use sources::fetch_plan::{ArtifactDesiredState, ArtifactInputs, KeptArtifact};

use executor::{RemoteRevision, SourceExecutor, SourceRun, StoredArtifact};
use report::FailureConditions;
use windlass_cluster::ClusterError;
use windlass_cluster::object_store::StateCache;
use windlass_cluster::throttled_requests::{ThrottledRequests, ThrottledRunBackoff};
use windlass_cluster::windlass_kind::WindlassKind;
use windlass_runtime::controller_kind::{ControllerKind, jittered, log_failed_request, node_of};
use windlass_runtime::object_status::{LatestWrittenObject, status_of};
use windlass_runtime::run_context::RunContext;
use windlass_runtime::source_catalog::CatalogSourceKind;
use windlass_runtime::{deletion_order, hold_conditions, object_hold, progress_status};

pub(crate) use windlass_runtime::time_limit::LONGEST_TIMEOUT;

/// A kind that yields artifacts, as the run needs it.
pub(crate) trait SourceKind: WindlassKind + crds::ArtifactSource {
    /// The first part of the path of its artifacts.
    const FOLDER: &'static str;
    /// The conditions that report its failures.
    const CONDITIONS: FailureConditions;
    /// The second name of its newest artifact in the store, which never changes.
    const LATEST_LINK: Option<&'static str> = None;
    /// Annotations that only change runs of this kind.
    const ANNOTATIONS: &'static [&'static str] = &[];

    /// The checked spec, with the objects that it names.
    type FetchSpec: Send + Sync + 'static;
    /// The result of asking the remote, for the fetch.
    type LookupResult: Send + 'static;

    /// Fields that the object has and this version does not support.
    fn unsupported(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// The value of `spec.interval`. `None` if the run is not repeated.
    fn interval(&self) -> Option<&str>;

    /// Reads the objects that the spec names, watches them so that changes wake the object, and checks the spec.
    fn desired(
        context: &Arc<RunContext>,
        node: &ObjectKey,
        object: &Arc<Self>,
    ) -> impl Future<Output = Result<ValidatedSourceSpec<Self::FetchSpec>, RunOutcome>> + Send;

    /// Asks the remote for its revision, as cheaply as the protocol allows.
    fn ask(
        run: &Arc<SourceRun<Self>>,
        kept: Option<&KeptArtifact>,
    ) -> impl Future<Output = Result<RemoteRevision<Self::LookupResult>, RunOutcome>> + Send;

    /// Fetches the present revision of the remote, packs it and stores the artifact.
    fn fetch(
        run: &Arc<SourceRun<Self>>,
        found: Self::LookupResult,
    ) -> impl Future<Output = Result<StoredArtifact<Self::Status>, RunOutcome>> + Send;

    /// Fetches the artifact of an earlier revision again, by its commit or digest, and stores it in its former place. `false`
    /// if sources of the kind have no earlier revisions.
    fn fetch_again(
        _run: &Arc<SourceRun<Self>>,
        _artifact: &NeededArtifact,
    ) -> impl Future<Output = Result<bool, RunOutcome>> + Send {
        std::future::ready(Ok(false))
    }

    /// The inputs of the artifact in the status. `None` if they are not known.
    fn shape(&self) -> Option<ArtifactInputs>;

    /// Whether the spec asks for signatures.
    fn is_verified(&self) -> bool {
        false
    }

    /// The reason why the artifact of the status does not count as verified. `None` if it is verified.
    fn unverified(&self) -> Option<String> {
        artifact_verification_record::unverified(self)
    }

    /// The revision of the status' artifact as the remote would say it today.
    fn modern(revision: &str) -> String {
        revision.to_owned()
    }

    /// The condition reason and message when the artifact of a revision is stored.
    fn settled(_run: &SourceRun<Self>, revision: &str) -> (ConditionReason, String) {
        (condition_reason::SUCCEEDED, format!("stored artifact for revision '{revision}'"))
    }

    /// Writes into the status how a new artifact was made.
    fn observed(&self, _status: &mut Self::Status) {}

    /// Offers the artifact in other ways than by the status, after a run that left one.
    fn offer(
        _context: &RunContext,
        _object: &Arc<Self>,
        _artifact: Option<&Artifact>,
    ) -> impl Future<Output = Result<(), RunOutcome>> + Send {
        std::future::ready(Ok(()))
    }

    /// Stops offering a lost artifact until it is stored again.
    fn unoffer(
        _context: &RunContext,
        _object: &Arc<Self>,
    ) -> impl Future<Output = Result<(), ClusterError>> + Send {
        std::future::ready(Ok(()))
    }

    /// Removes the kind's offers when the object is deleted.
    fn withdraw(
        _context: &RunContext,
        _object: &Arc<Self>,
    ) -> impl Future<Output = Result<(), ClusterError>> + Send {
        std::future::ready(Ok(()))
    }

    /// Writes the part of the status that every run writes once it has asked the remote. `is_new` is whether the run stored an
    /// artifact.
    fn always(_run: &SourceRun<Self>, _is_new: bool, _status: &mut Self::Status) {}

    /// The reason of the event about a new artifact, by that of `Ready`.
    fn event_reason(_settled: ConditionReason) -> &'static str {
        "NewArtifact"
    }

    /// Whether there is nothing to do for the object while its spec stays the same. Such an object has no status and no
    /// finalizer.
    fn is_static(&self) -> bool {
        false
    }

    /// Texts for everything besides the artifact on which other objects depend. A changed text wakes these objects.
    fn also_announces(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Links the newest artifact under a second name, which never changes. Returns the URL of the link, for `status.url`. Blocks.
///
/// If the disk refuses the link, the artifact is stored nevertheless.
pub(crate) fn linked(store: &ArtifactStore, artifact: &Artifact, name: &str) -> Option<String> {
    store.link(&artifact.path, name).ok()
}

/// The same name of the archives of all kinds. Parity(flux).
pub(crate) const LATEST_ARCHIVE: &str = "latest.tar.gz";

/// Sets the URL under which the newest artifact is always found. The host under which artifacts are served may have changed.
pub(crate) fn latest_url<K: SourceKind>(run: &SourceRun<K>, name: &str, url: &mut Option<String>) {
    let path = run.object.artifact().map(|artifact| artifact.path.as_str()).unwrap_or_default();
    if let Some((slot, _)) = path.rsplit_once('/') {
        *url = Some(run.context.artifacts.url(&format!("{slot}/{name}")));
    }
}

/// The result of [`SourceKind::desired`].
pub(crate) struct ValidatedSourceSpec<W> {
    /// The kind's own input for asking and fetching.
    pub(crate) work: W,
    /// The inputs that decide the content of the artifact.
    pub(crate) shape: ArtifactInputs,
}

/// The state of a source that this process keeps between runs.
pub struct SourceState<K> {
    pub(crate) latest: Arc<LatestWrittenObject<K>>,
    /// Runs in a row that failed, for the growing delay.
    failures: u32,
    /// Runs in a row that the API server throttled.
    pub(crate) throttled_run_backoff: ThrottledRunBackoff,
    /// The times when earlier artifacts were fetched again.
    refetched: needed_artifact_refetch::RefetchBackoff,
}

impl<K> Default for SourceState<K> {
    fn default() -> Self {
        let refetched = needed_artifact_refetch::RefetchBackoff::default();
        let throttled_run_backoff = ThrottledRunBackoff::default();
        Self { latest: Arc::default(), failures: 0, throttled_run_backoff, refetched }
    }
}

/// Runs the sources of a kind, and makes them available to the objects that read them.
pub struct SourceController<K>(PhantomData<K>);

impl<K: SourceKind> CatalogSourceKind for SourceController<K> {
    type Object = K;

    fn unverified(object: &K) -> Option<String> {
        object.unverified()
    }
}

impl<K: SourceKind> ControllerKind for SourceController<K> {
    type Object = K;

    const ANNOTATIONS: &'static [&'static str] = K::ANNOTATIONS;

    type ControllerState = SourceState<K>;

    fn unsupported(object: &K) -> Vec<&'static str> {
        object.unsupported()
    }

    fn announcement(object: &K) -> String {
        // The update time distinguishes an artifact that was lost and made again with the same bytes.
        let artifact = object
            .artifact()
            .map(|a| format!("{} {} {:?}", a.revision, a.digest, a.last_update_time))
            .unwrap_or_default();
        // Appliers that may only apply verified artifacts wait for that.
        let verified = object.unverified().is_none().then(|| "verified".to_owned());
        let all = std::iter::once(artifact).chain(verified).chain(object.also_announces());
        all.collect::<Vec<_>>().join(" ")
    }

    fn caught_up(node: &ObjectKey, object: &K, context: &RunContext) {
        let memory = context.shared::<StateCache<SourceState<K>>>().known(node);
        let latest = memory.map(|memory| memory.lock().latest.clone());
        if let Some(latest) = latest {
            latest.caught_up(object);
        }
    }

    fn run(object: Arc<K>, context: Arc<RunContext>) -> BoxFuture<'static, Option<Duration>> {
        async move { run(object, &context).await }.boxed()
    }
}

/// Longest delay until a run is repeated that the API server refused to record.
pub(crate) const AFTER_REFUSAL: Duration = Duration::from_secs(10);

/// One run. Returns the time until the next run.
async fn run<K: SourceKind>(seen: Arc<K>, context: &Arc<RunContext>) -> Option<Duration> {
    let node = node_of(&*seen);
    context.shared::<standby_artifacts::CopiesInFlight>().ended().await;
    let seen = context.newest(seen)?;
    let memory = context.shared::<StateCache<SourceState<K>>>().of(&node);
    let latest = memory.lock().latest.clone();
    let object = latest.or_seen(seen);
    let outcome = if object.meta().deletion_timestamp.is_some() {
        delete(context, &latest, &object).await
    } else if object.is_static() {
        retire(context, &latest, &object).await
    } else {
        let attempt = attempt(context, &node, &memory, &latest, &object);
        let requests = ThrottledRequests::of_namespace(&node.namespace);
        requests.watch(Box::pin(attempt)).await
    };
    outcome.unwrap_or_else(|error| {
        log_failed_request(&node, &error);
        // Growing delays are for remotes. After an outage of the API server, the source should not wait long once more.
        Some(retry_after(context, &memory).min(AFTER_REFUSAL))
    })
}

/// The growing delay after runs in a row that failed.
pub(crate) fn retry_after<K>(context: &RunContext, memory: &Mutex<SourceState<K>>) -> Duration {
    let mut memory = memory.lock();
    memory.failures = memory.failures.saturating_add(1);
    let settings = &context.settings;
    reconcile::backoff(memory.failures - 1, settings.min_retry_delay, settings.max_retry_delay)
}

/// Removes the artifacts of a deleted object, then our finalizer. Objects that are applied from it, and are deleted, end before.
async fn delete<K: SourceKind>(
    context: &RunContext,
    latest: &LatestWrittenObject<K>,
    object: &Arc<K>,
) -> Result<Option<Duration>, ClusterError> {
    let is_kept = object.finalizers().iter().any(|it| it == K::FINALIZER);
    if is_kept && let Some(held) = deletion_order::hold(context, &**object).await? {
        progress_status::tell(context, latest, object, held.text()).await;
        let now = jiff::Timestamp::now();
        let at = held.wake().and_then(NextRunTrigger::earliest).unwrap_or(now);
        return Ok(Some(Duration::try_from(at.duration_since(now)).unwrap_or_default()));
    }
    remove_artifacts(context, object).await;
    K::withdraw(context, object).await?;
    latest.set_finalizer(context, object, false).await?;
    Ok(None)
}

/// Removes the artifacts, the finalizer and the status of an object for which there is no more work.
async fn retire<K: SourceKind>(
    context: &RunContext,
    latest: &LatestWrittenObject<K>,
    object: &Arc<K>,
) -> Result<Option<Duration>, ClusterError> {
    let lifted = object_hold::lift(context, latest, object.clone(), jiff::Timestamp::now()).await?;
    let Some(object) = &lifted else { return Ok(None) };
    let before = status_of(&**object);
    // A status without conditions was never written, or was cleared already.
    let was_run = object.finalizers().iter().any(|it| it == K::FINALIZER)
        || !object.conditions().is_empty()
        || object.artifact().is_some();
    if !was_run {
        return Ok(None);
    }
    remove_artifacts(context, object).await;
    let Some(object) = latest.set_finalizer(context, object, false).await? else { return Ok(None) };
    latest.write_status(context, &object, &before, &K::Status::default()).await?;
    Ok(None)
}

async fn remove_artifacts<K: SourceKind>(context: &RunContext, object: &Arc<K>) {
    let store = context.artifacts.clone();
    let slot = executor::slot(&**object);
    let removed =
        tokio::task::spawn_blocking(move || slot.and_then(|slot| store.remove(&slot))).await;
    if let Ok(Err(error)) = removed {
        tracing::error!(name = object.name_any(), error = %error, "failed to remove artifacts");
    }
}

/// The outcome for an object whose host is paused. The object is reconciled when the pause ends, and not before.
pub(crate) fn busy(why: ConditionReason, said: &HostBusyError) -> RunOutcome {
    RunOutcome::Failed(why, said.to_string(), NextRunTrigger::at(said.until))
}

/// Offers the artifact to other objects, if the kind does that.
async fn offered<K: SourceKind>(
    context: &RunContext,
    object: &Arc<K>,
    stored: Option<&StoredArtifact<K::Status>>,
    outcome: RunOutcome,
) -> RunOutcome {
    if !outcome.is_settled() {
        return outcome;
    }
    let artifact = stored.map(|stored| &stored.artifact).or_else(|| object.artifact());
    let artifact = artifact.map(|artifact| Artifact {
        url: context.artifacts.url(&artifact.path),
        ..artifact.clone()
    });
    K::offer(context, object, artifact.as_ref()).await.err().unwrap_or(outcome)
}

async fn attempt<K: SourceKind>(
    context: &Arc<RunContext>,
    node: &ObjectKey,
    memory: &Mutex<SourceState<K>>,
    latest: &LatestWrittenObject<K>,
    object: &Arc<K>,
) -> Result<Option<Duration>, ClusterError> {
    let now = jiff::Timestamp::now();
    let lifted = object_hold::lift(context, latest, object.clone(), now).await?;
    let Some(object) = lifted else { return Ok(None) };
    let facts = RunGateFacts {
        suspended: object_hold::is_suspended(&*object, now),
        ..RunGateFacts::default()
    };
    match before_resolve(&facts) {
        RunGate::Suspended | RunGate::Closed => {
            // Earlier retries do not count after the object is resumed.
            memory.lock().throttled_run_backoff = ThrottledRunBackoff::default();
            let text = "suspended during a reconciliation, which continues on resume";
            let owned = K::CONDITIONS.owned;
            hold_conditions::show_suspended(context, latest, &object, now, owned, text).await?;
            return Ok(None);
        }
        RunGate::Open => {}
        RunGate::Outcome(outcome) => {
            return finish(context, memory, latest, &object, SourceRunDetails::default(), outcome)
                .await;
        }
    }
    let Some(object) = latest.set_finalizer(context, &object, true).await? else { return Ok(None) };
    let Some(object) = lost_artifact::take_back(context, latest, &object).await? else {
        return Ok(None);
    };
    let ValidatedSourceSpec { work, shape } = match K::desired(context, node, &object).await {
        Ok(source_spec) => source_spec,
        Err(outcome) => {
            return finish(context, memory, latest, &object, SourceRunDetails::default(), outcome)
                .await;
        }
    };
    let run = SourceRun { context: context.clone(), object: object.clone(), work };
    let run = Arc::new(run);
    let executor = SourceExecutor::new(run.clone(), latest);
    let desired = ArtifactDesiredState { shape };
    let (_, outcome) = reconcile::drive(&desired, &executor).await;
    let kept =
        artifact_verification_record::withhold(context, latest, &object, &desired.shape, &outcome)
            .await?;
    let Some(object) = kept else { return Ok(None) };
    if outcome.is_settled() && executor.stored().is_none() {
        // This is written before the status, because the status wakes objects that may only apply verified artifacts.
        artifact_verification_record::confirm(context, &*object, &desired.shape).await;
    }
    let is_settled = outcome.is_settled();
    let outcome = offered(context, &object, executor.stored().as_ref(), outcome).await;
    let came = SourceRunDetails { stored: executor.stored(), run: Some(run.clone()) };
    let again = finish(context, memory, latest, &object, came, outcome).await?;
    if is_settled {
        // After the status, because those that wait for the newest artifact need not wait for these.
        needed_artifact_refetch::fetch_lost(&run, node, memory).await;
    }
    Ok(again)
}

/// The details of a run besides its outcome.
struct SourceRunDetails<K: SourceKind> {
    stored: Option<StoredArtifact<K::Status>>,
    /// The run, if it got as far as asking.
    run: Option<Arc<SourceRun<K>>>,
}

impl<K: SourceKind> Default for SourceRunDetails<K> {
    fn default() -> Self {
        Self { stored: None, run: None }
    }
}

/// Reports how the run ended, and returns when the next run is due.
async fn finish<K: SourceKind>(
    context: &RunContext,
    memory: &Mutex<SourceState<K>>,
    latest: &LatestWrittenObject<K>,
    object: &Arc<K>,
    came: SourceRunDetails<K>,
    outcome: RunOutcome,
) -> Result<Option<Duration>, ClusterError> {
    let postponed = memory.lock().throttled_run_backoff.postpone(&**object, &outcome);
    if let (None, Some(delay)) = (&came.stored, postponed) {
        return Ok(Some(delay));
    }
    let now = jiff::Timestamp::now();
    let interval = object.interval().map(|interval| jittered(context, &**object, interval));
    let again = next_run(context, memory, &outcome, interval, now);
    let outcome = match again {
        Some(delay) => {
            outcome.or_wake(now + jiff::SignedDuration::try_from(delay).unwrap_or_default())
        }
        None => outcome,
    };
    // The status contains the progress messages of the run's phases by now.
    let object = &latest.begun(object);
    // The host under which artifacts are served may have changed with a restart.
    let url = object.artifact().map(|artifact| context.artifacts.url(&artifact.path));
    let run = came.run.as_deref();
    let stored = came.stored.as_ref();
    let announcement = context.failure_announcement(&node_of(&**object));
    let report = report::report(&**object, run, stored, url, &outcome, announcement, now);
    report.log(&**object);
    latest.write_status(context, object, &report.before, &report.after).await?;
    for event in report.events {
        context.announce(&**object, event);
    }
    Ok(again)
}

/// The delay until the next run: the interval, or the growing delay after failures, unless the outcome requests a time.
pub(crate) fn next_run<K>(
    context: &RunContext,
    memory: &Mutex<SourceState<K>>,
    outcome: &RunOutcome,
    interval: Option<Duration>,
    now: jiff::Timestamp,
) -> Option<Duration> {
    match outcome {
        RunOutcome::Settled(..) => {
            memory.lock().failures = 0;
            interval
        }
        RunOutcome::Stalled(..) => None,
        RunOutcome::Running(..) | RunOutcome::Blocked(..) | RunOutcome::Failed(..) => {
            Some(asked_for(outcome, now).unwrap_or_else(|| retry_after(context, memory)))
        }
    }
}

/// The delay that the outcome itself requests. A server may say when it wants the next request.
///
/// The usual delays do not grow meanwhile, so that the source does not wait longer than the server requested.
fn asked_for(outcome: &RunOutcome, now: jiff::Timestamp) -> Option<Duration> {
    let at = outcome.wake().and_then(NextRunTrigger::earliest)?;
    let asked = Duration::try_from(at.duration_since(now)).unwrap_or_default();
    Some(asked.max(MIN_REQUESTED_DELAY))
}

/// The shortest requested delay.
const MIN_REQUESTED_DELAY: Duration = Duration::from_secs(1);
