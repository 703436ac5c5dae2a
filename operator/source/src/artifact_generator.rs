//! The kind ArtifactGenerator: it makes artifacts from the files of sources. An ExternalArtifact offers each of these
//! artifacts.
//!
//! Here: a run, from the gate to the next run. In the folder: the sources (`resolve`), the spec (`validated_spec`), making and
//! keeping artifacts (`executor`), the ExternalArtifacts (`external_artifact`), status and events (`report`).
//! Elsewhere: copies, patterns, drift and revisions (engine `artifactgen`).

mod executor;
mod external_artifact;
mod report;
mod resolved_sources;
mod validated_spec;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use artifactgen::{
    ArtifactRequest, ExternalArtifactState, GeneratorSpec, InventoryEntry, sources_digest,
    succeeded_message, up_to_date_message,
};
use artifacts::store::ArtifactStore;
use crds::source::ExternalArtifact;
use crds::source_extensions::{ArtifactGenerator, RECONCILE_ANNOTATION};
use crds::{ArtifactSource as _, ReconciledObject as _};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube_core::{CustomResourceExt as _, ResourceExt as _};
use parking_lot::Mutex;
use reconcile::{
    ObjectKey, RemovalCause, RemovalGate, RemovalPermit, RemovalRefusal, RunOutcome, Time,
    condition_reason,
};

use self::executor::{ArtifactMaker, StoredGeneratedArtifact};
use self::external_artifact::{DesiredExternalArtifact, remove};
use self::report::GeneratedArtifactInventory;
use crate::source::{AFTER_REFUSAL, SourceState, next_run, retry_after};
use windlass_cluster::object_store::StateCache;
use windlass_cluster::throttled_requests::{ThrottledRequests, ThrottledRunBackoff};
use windlass_cluster::{ClusterConnection, ClusterError};
use windlass_runtime::applier_run::finalize::kind_deleted;
use windlass_runtime::blocking_task::blocking;
use windlass_runtime::controller_kind::{ControllerKind, jittered, log_failed_request, node_of};
use windlass_runtime::object_status::LatestWrittenObject;
use windlass_runtime::run_context::RunContext;
use windlass_runtime::{change_window, hold_conditions, progress_status};

/// How often an ArtifactGenerator is compared with what exists. Parity(flux): it has no interval of its own.
const INTERVAL: &str = "1h";

/// What is said of a run that takes long. Parity(flux).
const PROGRESS: &str = "Reconciliation in progress";

/// Runs ArtifactGenerators.
pub struct ArtifactGeneratorController;

impl ControllerKind for ArtifactGeneratorController {
    type Object = ArtifactGenerator;

    const ANNOTATIONS: &'static [&'static str] = &[RECONCILE_ANNOTATION];

    type ControllerState = SourceState<ArtifactGenerator>;

    fn announcement(_object: &ArtifactGenerator) -> String {
        // Other objects only use the ExternalArtifacts.
        String::new()
    }

    fn run(
        object: Arc<ArtifactGenerator>,
        context: Arc<RunContext>,
    ) -> BoxFuture<'static, Option<Duration>> {
        async move { run(object, &context).await }.boxed()
    }
}

/// One run. Returns the time until the next run.
async fn run(seen: Arc<ArtifactGenerator>, context: &Arc<RunContext>) -> Option<Duration> {
    let node = node_of(&*seen);
    let memory = context.shared::<StateCache<SourceState<ArtifactGenerator>>>().of(&node);
    let latest = memory.lock().latest.clone();
    let object = latest.or_seen(seen);
    let done = match object.metadata.deletion_timestamp.is_some() {
        true => delete(context, &latest, &object).await,
        false => {
            let attempt = attempt(context, &node, &memory, &latest, &object);
            let requests = ThrottledRequests::of_namespace(&node.namespace);
            requests.watch(Box::pin(attempt)).await
        }
    };
    done.unwrap_or_else(|error| {
        log_failed_request(&node, &error);
        Some(retry_after(context, &memory).min(AFTER_REFUSAL))
    })
}

/// Whether ExternalArtifacts of an ArtifactGenerator may be removed now.
///
/// # Errors
/// Why not.
fn permit_removal(
    object: &ArtifactGenerator,
    cause: RemovalCause,
    now: Time,
) -> Result<RemovalPermit, RemovalRefusal> {
    let gate = RemovalGate {
        cause,
        is_owner_suspended: object.is_suspended(),
        is_suspended: false,
        closes: change_window::closes(object, now),
        is_frozen: false,
    };
    gate.permit(now)
}

/// Handles the deletion of the object: removes its ExternalArtifacts and files, then its finalizer.
async fn delete(
    context: &Arc<RunContext>,
    latest: &LatestWrittenObject<ArtifactGenerator>,
    object: &Arc<ArtifactGenerator>,
) -> Result<Option<Duration>, ClusterError> {
    // Before, those that are in no inventory may only seem to be missing. The process ends otherwise.
    if !context.kept.listed::<ExternalArtifact>().await {
        return Ok(None);
    }
    let names = made_names(context, object);
    if !remove_all(&context.cluster, &context.artifacts, object, names).await? {
        let event = kind_deleted(ArtifactGenerator::crd_name());
        context.events.announce(&**object, ArtifactGenerator::CONTROLLER, event);
    }
    latest.set_finalizer(context, object, false).await?;
    Ok(None)
}

/// Removes what a generator made that is deleted; false if its kind is deleted, too, so that all of it stays.
///
/// Differs(flux): what a generator made that is disabled stays, as what a Kustomization applied that is suspended.
async fn remove_all(
    cluster: &ClusterConnection,
    store: &Arc<ArtifactStore>,
    object: &ArtifactGenerator,
    names: BTreeSet<String>,
) -> Result<bool, ClusterError> {
    // Differs(flux): it stays when the kind is removed, as what appliers applied (`windlass_runtime::applier_run::finalize`).
    if cluster.is_kind_leaving(ArtifactGenerator::crd_name()).await? {
        return Ok(false);
    }
    if let Ok(permit) = permit_removal(object, RemovalCause::OwnerDeleted, jiff::Timestamp::now()) {
        for name in names {
            remove(cluster, store, object, &name, permit).await?;
        }
    }
    Ok(true)
}

/// The names of a generator's artifacts, from its status and from the labels of ExternalArtifacts. A failed run may have made
/// some that are in no status.
fn made_names(context: &RunContext, object: &ArtifactGenerator) -> BTreeSet<String> {
    let recorded = report::inventory(object).into_iter().map(|entry| entry.name);
    let labelled = external_artifact::labelled(context, object).into_iter();
    recorded.chain(labelled.map(|external| external.name_any())).collect()
}

async fn attempt(
    context: &Arc<RunContext>,
    node: &ObjectKey,
    memory: &Mutex<SourceState<ArtifactGenerator>>,
    latest: &LatestWrittenObject<ArtifactGenerator>,
    object: &Arc<ArtifactGenerator>,
) -> Result<Option<Duration>, ClusterError> {
    let now = jiff::Timestamp::now();
    if object.is_suspended() {
        // Earlier retries do not count after the object is resumed.
        memory.lock().throttled_run_backoff = ThrottledRunBackoff::default();
        let text = "suspended during a reconciliation, which continues on resume";
        hold_conditions::show_suspended(context, latest, object, now, &[], text).await?;
        return Ok(None);
    }
    let Some(object) = latest.set_finalizer(context, object, true).await? else { return Ok(None) };
    // Before, sources and ExternalArtifacts may only seem to be missing.
    if context.sources.listed().await.is_none() {
        return Ok(None);
    }
    let run = GeneratorRun {
        context,
        node,
        latest,
        spec: validated_spec::spec(&object),
        object,
        began: now,
    };
    let came = run.reconcile().await;
    let object = &latest.begun(&run.object);
    let outcome = match &came {
        Ok(generated) => {
            let known = || report::inventory(object).len();
            let count = generated.as_ref().map_or_else(known, |it| it.inventory.len());
            RunOutcome::Settled(condition_reason::SUCCEEDED, succeeded_message(count))
        }
        Err(outcome) => outcome.clone(),
    };
    let postponed = memory.lock().throttled_run_backoff.postpone(&**object, &outcome);
    if let Some(delay) = postponed {
        return Ok(Some(delay));
    }
    let generated = came.ok().flatten();
    let now = jiff::Timestamp::now();
    let interval = jittered(context, &**object, INTERVAL);
    let again = next_run(context, memory, &outcome, Some(interval), now);
    let announcement = context.failure_announcement(node);
    let report = report::report(object, generated.as_ref(), &outcome, announcement, now);
    report.log(object);
    latest.write_status(context, object, &report.before, &report.after).await?;
    for event in report.events {
        context.announce(&**object, event);
    }
    Ok(again)
}

/// An artifact in the store that no ExternalArtifact names yet.
struct UnofferedArtifact {
    request: Arc<ArtifactRequest>,
    /// The ExternalArtifact of its name.
    external: Option<Arc<ExternalArtifact>>,
    stored: StoredGeneratedArtifact,
}

/// The artifacts that a run made.
struct GeneratorRunArtifacts {
    artifacts: Vec<UnofferedArtifact>,
    /// The reason why the next artifact was not made.
    failure: Option<RunOutcome>,
}

/// One run of a generator.
struct GeneratorRun<'r> {
    context: &'r Arc<RunContext>,
    node: &'r ObjectKey,
    latest: &'r LatestWrittenObject<ArtifactGenerator>,
    object: Arc<ArtifactGenerator>,
    spec: GeneratorSpec,
    began: Time,
}

impl GeneratorRun<'_> {
    /// Makes all artifacts, if any of them is outdated. `None` if all are current.
    async fn reconcile(&self) -> Result<Option<GeneratedArtifactInventory>, RunOutcome> {
        let Self { context, node, object, spec, .. } = self;
        let inventory = report::inventory(object);
        let named = spec.artifacts.iter().filter(|_| spec.path_pattern.is_empty());
        let names = named.map(|it| &it.name).chain(inventory.iter().map(|entry| &entry.name));
        resolved_sources::edges(context, node, spec, names.map(String::as_str));
        validated_spec::check(spec, &node.namespace, context.settings.no_cross_namespace_refs)?;
        let sources = resolved_sources::resolve(context, node, spec, self.retry_at())?;
        let observed = resolved_sources::observed(&sources);
        let digest = sources_digest(&observed);
        if self.is_as_made(&digest).await? {
            tracing::debug!(
                namespace = node.namespace,
                name = node.name,
                "{}",
                up_to_date_message(inventory.len())
            );
            return Ok(None);
        }
        let output = {
            // The permit is held until the last artifact is made. Otherwise the trees of all waiting generators would be in
            // memory.
            let _permit = context.fetching.acquire(&node.namespace).await;
            let loading = executor::load(context, &sources, self.retry_at());
            let trees = progress_status::telling(loading, self.tell()).await?;
            let store = context.artifacts.clone();
            let maker = ArtifactMaker::new(store, object, trees, observed);
            let making = self.make_all(Arc::new(Mutex::new(maker)));
            progress_status::telling(making, self.tell()).await
        };
        let offering = self.offer_all(output);
        let inventory = progress_status::telling(offering, self.tell()).await?;
        let names = inventory.iter().map(|entry| entry.name.as_str());
        resolved_sources::edges(context, node, spec, names);
        self.prune(&inventory).await?;
        let made: BTreeSet<ExternalArtifactState> = inventory.iter().map(Into::into).collect();
        external_artifact::await_shown(context, object, &made).await;
        Ok(Some(GeneratedArtifactInventory { inventory, sources_digest: digest }))
    }

    async fn tell(&self) {
        if !progress_status::is_decided(&*self.object) {
            progress_status::tell(self.context, self.latest, &self.object, PROGRESS).await;
        }
    }

    /// The latest time of the next comparison with the awaited objects.
    fn retry_at(&self) -> Time {
        let delay = self.context.settings.requeue_dependency;
        self.began.saturating_add(delay).unwrap_or(self.began)
    }

    /// Whether spec, sources, files and ExternalArtifacts are as after the last run.
    async fn is_as_made(&self, sources_digest: &str) -> Result<bool, RunOutcome> {
        // After a start, all files of all generators are hashed.
        let _permit = self.context.building.acquire(&self.node.namespace).await;
        let store = self.context.artifacts.clone();
        let external = external_artifact::states(self.context, &self.object);
        let object = self.object.clone();
        let spec = self.spec.clone();
        let sources_digest = sources_digest.to_owned();
        blocking(condition_reason::RECONCILIATION_FAILED, "comparing artifacts", move || {
            let drift = executor::drift(&store, &object, &spec, &sources_digest, &external);
            let name = object.name_any();
            let namespace = object.namespace();
            match drift {
                Some(drift) => tracing::debug!(name, namespace, ?drift, "making artifacts again"),
                None => executor::collect_garbage(&store, &object),
            }
            Ok(drift.is_none())
        })
        .await
    }

    /// Makes one artifact after the other, up to the first that fails. The caller holds the permit.
    async fn make_all(&self, maker: Arc<Mutex<ArtifactMaker>>) -> GeneratorRunArtifacts {
        let mut artifacts = Vec::new();
        let failure = self.make_each(maker, &mut artifacts).await.err();
        GeneratorRunArtifacts { artifacts, failure }
    }

    async fn make_each(
        &self,
        maker: Arc<Mutex<ArtifactMaker>>,
        artifacts: &mut Vec<UnofferedArtifact>,
    ) -> Result<(), RunOutcome> {
        let Self { context, object, spec, .. } = self;
        let requests: Vec<ArtifactRequest> = {
            let maker = maker.clone();
            let spec = spec.clone();
            let what = "expanding the path pattern";
            blocking(condition_reason::BUILD_FAILED, what, move || maker.lock().requests(&spec))
                .await?
        };
        for request in requests {
            let request = Arc::new(request);
            // Another owner's artifact is not even touched on the disk.
            let external =
                external_artifact::existing(context, object, &request.artifact.name).await?;
            let stored = {
                let maker = maker.clone();
                let request = request.clone();
                let offered = external.as_ref().and_then(|it| it.artifact()).cloned();
                let what = "building an artifact";
                let make = move || maker.lock().make(&request, offered.as_ref());
                blocking(condition_reason::BUILD_FAILED, what, make).await?
            };
            artifacts.push(UnofferedArtifact { request, external, stored });
        }
        Ok(())
    }

    /// Offers what was made. The API server may take long to answer, so this needs no permit.
    ///
    /// Parity(flux): if an artifact fails, those built before it are published, but `status.inventory` does not list them.
    async fn offer_all(
        &self,
        output: GeneratorRunArtifacts,
    ) -> Result<Vec<InventoryEntry>, RunOutcome> {
        let Self { context, object, spec, .. } = self;
        let ready = object.condition(reconcile::READY);
        let is_spec_new = ready.is_none_or(|it| {
            it.status != "True" || it.observed_generation != object.metadata.generation
        });
        let mut inventory = Vec::new();
        for UnofferedArtifact { request, external, stored } in output.artifacts {
            let common = spec.common_metadata.as_ref();
            let offer = DesiredExternalArtifact {
                generator: object,
                common,
                request: &request,
                is_spec_new,
            };
            external_artifact::offer(&context.cluster, &offer, external.as_deref(), &stored)
                .await?;
            inventory.push(stored.entry);
        }
        match output.failure {
            Some(failure) => Err(failure),
            None => Ok(inventory),
        }
    }

    /// Removes artifacts that were made before and are not made any more.
    async fn prune(&self, inventory: &[InventoryEntry]) -> Result<(), RunOutcome> {
        let Self { context, object, .. } = self;
        let now = jiff::Timestamp::now();
        let mut orphans = made_names(context, object);
        orphans.retain(|name| !inventory.iter().any(|entry| entry.name == *name));
        for name in orphans {
            // If a generator is disabled meanwhile, it keeps the artifact until it is enabled.
            let Ok(permit) = permit_removal(object, RemovalCause::Pruned, now) else {
                return Ok(());
            };
            let removed = remove(&context.cluster, &context.artifacts, object, &name, permit);
            removed.await.map_err(|error| external_artifact::failed(&name, &error))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
