//! The kind Helmfile: windlass keeps the releases of a helmfile installed, in the order of their needs.
//!
//! Here: a run from its gate to its report. Elsewhere: how the specs of both kinds are read (`helmfile_kind_differences`,
//! `helmfile_operator_resource`), where a helmfile comes from (`helmfile_source`), the desired state (`validated_spec`,
//! `plan`, `remote_fetch`, `decryption`, `charts`, `chart_folder`), the releases (`release_reconciler`, `release_order`,
//! `prune`, `suspended_releases`, `release_specification`, `release_status_writer`, `status_limits`, `hooks`,
//! `hooks_without_operation`, `hook_approval_plan`; `helm_controller::release_runner`, of which it is an owner), their clusters
//! (`release_clusters`), deletion (`finalize`).

pub mod chart_fetch;
mod chart_folder;
mod chart_repositories;
mod decryption;
mod finalize;
pub mod helmfile_kind_differences;
pub mod helmfile_operator_resource;
mod helmfile_source;
mod hook_approval_plan;
mod hooks;
mod hooks_without_operation;
pub mod plan;
mod prune;
mod release_clusters;
mod release_order;
mod release_reconciler;
pub mod release_specification;
mod release_status_writer;
pub mod remote_fetch;
mod report;
mod status_limits;
pub mod suspended_releases;
#[cfg(test)]
mod testing;
pub mod validated_spec;

use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crds::helmfile::HelmfileSpec;
use golang::work_meter::StopSignal;
use kube_core::ResourceExt as _;
use objects::SecretMasking;
use reconcile::{
    ConditionReason, FreezeHold, NextRunTrigger, ObjectKey, ROLLBACK, RunGateFacts, RunOutcome,
};
use sha2::{Digest as _, Sha256};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use self::chart_folder::ChartFolder;
use self::chart_repositories::HelmfileRepositories;
use self::decryption::PlanDecryption;
use self::helmfile_kind_differences::HelmfileCustomResource;
use self::helmfile_source::{HelmfileOrigin, RemoteSourceRevision};
use self::plan::{HelmfilePlan, HelmfilePlanInputs, PlannedChartStore, ReleaseKey};
use self::release_clusters::ReleaseClusters;
use self::release_reconciler::{ReleaseRunState, UnreachableClusters};
use self::release_status_writer::ReleaseStatusWriter;
use self::remote_fetch::{HelmfileFetchContext, NOT_VERIFIED};
use self::status_limits::fitted;
use self::suspended_releases::ReleaseSuspensions;
use self::validated_spec::{HelmfileInputs, HelmfileTimeouts};
use helm_controller::release_runner::MANAGER;
use helm_controller::release_runner::quarantined_releases::OwnerQuarantines;
use windlass_cluster::ClusterError;
use windlass_cluster::events::ObjectEvent;
use windlass_cluster::object_watcher::OwnershipMarks;
use windlass_cluster::referenced_secrets_and_config_maps::RunReferenceReads;
use windlass_runtime::applier_run::{
    self, ApplierKind, ApplierRunEnd, FinalizeOutcome, PendingChanges, ReconcileIntervals,
    WaitObservation,
};
use windlass_runtime::cluster_target::ClusterTarget;
use windlass_runtime::controller_kind::REQUESTED_AT;
use windlass_runtime::hold_conditions;
use windlass_runtime::shared_build_parts::decryption::BuildDecryptionKeys;
use windlass_runtime::shared_build_parts::key_services::KeyServiceAccess;
use windlass_runtime::shared_build_parts::remote_base_access::{BuildPermits, SharedBuildPermits};
use windlass_runtime::time_limit::{TIME_LIMIT, TimeLimit};
use windlass_serve::settings::OperatorSettings;

/// The annotation with the version of helmfile for which a Helmfile of helmfile-operator was written.
const DIALECT: &str = "helmfile.windlass.dev/dialect";

/// The marks on the objects of releases.
pub const OWNERSHIP: OwnershipMarks = OwnershipMarks {
    name: "helmfile.windlass.dev/name",
    namespace: "helmfile.windlass.dev/namespace",
    manager: MANAGER,
};

/// The helmfile cannot be read.
const HELMFILE_ERROR: ConditionReason = ConditionReason::new("HelmfileError");

/// Templates may include each other deeply.
const RENDER_STACK_BYTES: usize = helm::render::REQUIRED_STACK_BYTES;

/// The state of a Helmfile that this process keeps between runs.
#[derive(Default)]
pub struct HelmfileState {
    plan: Option<CachedHelmfilePlan>,
    /// The revision of the spec's address at its last fetch.
    fetched: Option<Arc<RemoteSourceRevision>>,
    releases: BTreeMap<ReleaseKey, Arc<ReleaseRunState>>,
    /// The time when the next suspension of a release ends.
    next_end: Option<Instant>,
}

/// A plan that was made.
struct CachedHelmfilePlan {
    /// A digest of all inputs of the plan, except the contents of repositories.
    key: String,
    made: Instant,
    plan: Arc<HelmfilePlan>,
}

/// The details of a run that the status and events report in addition to its outcome.
pub struct HelmfileRunDetails<K: HelmfileCustomResource> {
    revision: String,
    plan: Option<Arc<HelmfilePlan>>,
    book: Option<Arc<ReleaseStatusWriter<K>>>,
}

impl<K: HelmfileCustomResource> Default for HelmfileRunDetails<K> {
    fn default() -> Self {
        Self { revision: String::new(), plan: None, book: None }
    }
}

type HelmfileRunReport<K> = applier_run::ApplierRunReport<HelmfileController<K>>;

/// A run of a Helmfile.
struct HelmfileSession<'r, K: HelmfileCustomResource>(
    &'r applier_run::ApplierSession<HelmfileController<K>>,
);

impl<K: HelmfileCustomResource> Deref for HelmfileSession<'_, K> {
    type Target = applier_run::ApplierSession<HelmfileController<K>>;

    fn deref(&self) -> &Self::Target {
        self.0
    }
}

/// Runs the objects of a kind of Helmfiles.
pub struct HelmfileController<K>(PhantomData<K>);

impl<K: HelmfileCustomResource> ApplierKind for HelmfileController<K> {
    type Object = K;

    const OWNED: &'static [&'static str] = &report::OWNED;
    const ANNOTATIONS: &'static [&'static str] = K::ANNOTATIONS;
    const STAYS_WITHOUT_KUBECONFIG: bool = true;

    type Own = HelmfileState;
    type ValidatedSpec = HelmfileTimeouts;
    type SpecInputs = HelmfileInputs;
    type RunDetails = HelmfileRunDetails<K>;

    fn unsupported(object: &K) -> Vec<&'static str> {
        HelmfileCustomResource::unsupported(object)
    }

    fn source(object: &K) -> Option<ObjectKey> {
        helmfile_source::source(object)
    }

    fn has_tried(object: &K, revision: &str) -> bool {
        report::is_at(object, revision)
    }

    fn announcement(object: &K) -> String {
        report::announcement(object)
    }

    fn validate(object: &K, _: &OperatorSettings) -> Result<HelmfileTimeouts, RunOutcome> {
        match object.fault() {
            Some(outcome) => Err(outcome),
            None => validated_spec::check(&object.asked()),
        }
    }

    fn pace(timeouts: &HelmfileTimeouts) -> ReconcileIntervals {
        let HelmfileTimeouts { interval, retry, timeout } = *timeouts;
        ReconcileIntervals { interval, retry, timeout }
    }

    fn observation(_: &applier_run::ApplierSession<Self>, _: &K) -> Option<WaitObservation> {
        None
    }

    fn moved(own: &mut HelmfileState) {
        own.releases.clear();
    }

    async fn is_under_way(
        session: &applier_run::ApplierSession<Self>,
        object: &Arc<K>,
    ) -> Result<bool, ClusterError> {
        let rows = object.status().map(|it| it.releases.as_slice()).unwrap_or_default();
        let memory = session.memory();
        let known = |row: &crds::helmfile::HelmfileReleaseStatus| {
            memory.releases.get(&ReleaseKey::of(row)).and_then(|it| it.drive.under_way())
        };
        // If this process does not know it, the row decides.
        Ok(rows.iter().any(|row| known(row).unwrap_or_else(|| report::is_under_way(row))))
    }

    async fn pending(
        session: &applier_run::ApplierSession<Self>,
        object: &Arc<K>,
    ) -> PendingChanges {
        let revision = HelmfileSession(session).known_revision(&object.asked());
        let applied = object.status().and_then(|it| it.last_applied_revision.as_deref());
        let is_ready = object.status().is_some_and(|status| {
            status.observed_generation == object.meta().generation
                && status.conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True")
        });
        match revision {
            Some(revision) if is_ready && applied == Some(revision.as_str()) => {
                PendingChanges::Nothing
            }
            Some(revision) => PendingChanges::Change(format!("revision {revision}")),
            None if is_ready => PendingChanges::Nothing,
            None => PendingChanges::Change("the changed spec".to_owned()),
        }
    }

    async fn stop(
        session: &applier_run::ApplierSession<Self>,
        object: &Arc<K>,
    ) -> Result<Option<Duration>, ClusterError> {
        HelmfileSession(session).stop(object).await
    }

    fn where_stopped(object: &K) -> String {
        match object.status().and_then(|it| it.last_attempted_revision.as_deref()) {
            Some(revision) => format!("suspended; last attempted revision: {revision}"),
            None => "suspended before the first release was installed".to_owned(),
        }
    }

    fn waits_no_more(own: &mut HelmfileState) {
        own.releases.values().for_each(|release| release.drive.end_contests());
    }

    async fn read(
        session: &applier_run::ApplierSession<Self>,
        object: &K,
        references: &mut RunReferenceReads,
    ) -> Result<HelmfileInputs, RunOutcome> {
        let in_use = HelmfileSession(session).contexts_in_use(object);
        let preparing = &session.preparing;
        validated_spec::read(&session.context, object, &in_use, references, preparing).await
    }

    fn has_more_to_report(details: &HelmfileRunDetails<K>) -> bool {
        details.book.is_some()
    }

    async fn reconcile(
        session: &applier_run::ApplierSession<Self>,
        object: &Arc<K>,
        facts: RunGateFacts,
        timeouts: HelmfileTimeouts,
    ) -> Result<Option<HelmfileRunReport<K>>, ClusterError> {
        Ok(HelmfileSession(session).reconcile(object, facts, timeouts).await)
    }

    async fn finalize(
        session: &applier_run::ApplierSession<Self>,
        object: &Arc<K>,
    ) -> Result<FinalizeOutcome<Self>, ClusterError> {
        HelmfileSession(session).finalize(object).await
    }

    fn inputs(object: &K) -> Vec<(&'static str, String)> {
        validated_spec::inputs(&object.asked())
    }

    fn left_behind(_: &K, subject: &str) -> ObjectEvent {
        finalize::left_behind(subject)
    }

    fn next_look(own: &HelmfileState) -> Option<Duration> {
        own.next_end.map(|end| end.saturating_duration_since(Instant::now()))
    }

    fn report(
        session: &applier_run::ApplierSession<Self>,
        ended: HelmfileRunReport<K>,
        end: &ApplierRunEnd,
    ) -> applier_run::ApplierReport<Self> {
        let HelmfileRunReport { object, came, .. } = ended;
        let object = came.book.as_ref().map_or(object, |book| book.object());
        // A request that came during the run is for the next one.
        let requested = match &came.book {
            Some(book) => book.requested.as_deref(),
            None => object.annotations().get(REQUESTED_AT).map(String::as_str),
        };
        let run = report::HelmfileRunSummary {
            requested,
            outcome: &end.outcome,
            announcement: session.context.failure_announcement(&session.node),
            revision: &came.revision,
            rows: came.book.as_ref().map(|book| fitted(book.rows())),
            drawn: came.plan.as_ref().map(|plan| plan.drawn.as_slice()),
            now: end.now,
        };
        let (before, after, event) = report::report(&*object, run);
        let release_events = came.book.map(|book| book.take_events()).unwrap_or_default();
        let events: Vec<ObjectEvent> = release_events.into_iter().chain(event).collect();
        let name = object.name_any();
        let namespace = object.namespace().unwrap_or_default();
        for ObjectEvent { reason, message, .. } in &events {
            tracing::info!(controller_kind = "Helmfile", name, namespace, reason, "{message}");
        }
        applier_run::ApplierReport { object, before, after, events }
    }
}

impl<K: HelmfileCustomResource> HelmfileSession<'_, K> {
    /// The contexts of releases that there are or that the last plan has.
    fn contexts_in_use(&self, object: &K) -> BTreeSet<String> {
        let rows = object.status().map(|it| it.releases.as_slice()).unwrap_or_default();
        let mut in_use = release_clusters::of_rows(rows);
        if let Some(kept) = &self.memory().plan {
            in_use.extend(kept.plan.releases.iter().map(|it| it.key.context.clone()));
        }
        in_use
    }

    /// Reconciles an object, from its source to its report. `None` if the spec changed meanwhile.
    async fn reconcile(
        &self,
        object: &Arc<K>,
        facts: RunGateFacts,
        timeouts: HelmfileTimeouts,
    ) -> Option<HelmfileRunReport<K>> {
        let spec = object.asked();
        let interval = self.interval(object, &timeouts);
        let origin = self.origin(&**object, &spec, interval, timeouts.timeout);
        // The address may be of a server that does not respond.
        let mut origin = match self.preparing.aside(origin).await {
            Ok(origin) => origin,
            Err(outcome) => return Some(HelmfileRunReport::early(object, outcome)),
        };
        let early = |outcome, origin: &HelmfileOrigin| {
            let mut ended: HelmfileRunReport<K> = HelmfileRunReport::early(object, outcome);
            ended.came.revision = origin.revision().to_owned();
            Some(ended)
        };
        if let Some(outcome) = self.gate(object, facts, origin.revision()).await {
            return early(outcome, &origin);
        }
        let (mut target, mut named) = match self.named(object).await {
            Ok(named) => named,
            Err(outcome) => return early(outcome, &origin),
        };
        let asking = HelmfileRunSubject { object, spec: &spec, timeouts: &timeouts };
        let planned = match self.planned(&asking, &mut origin, &target, &named).await {
            Ok(planned) => planned,
            Err(outcome) => return early(outcome, &origin),
        };
        if named.lacks_contexts_of(&planned) {
            // The plan is known by now, and with it the contexts in use.
            (target, named) = match self.named(object).await {
                Ok(named) => named,
                Err(outcome) => return early(outcome, &origin),
            };
        }
        let places = ReleaseClusters::new(&target, &named.contexts);
        let secrets = named.secrets.clone().with(planned.hidden.iter().cloned());
        // The releases have permits of their own, possibly of several clusters.
        self.preparing.end();
        Box::pin(self.apply(&asking, origin.revision(), &places, &secrets, planned)).await
    }

    /// The Freezes that hold a rollback which an annotation requests.
    async fn frozen_rollback(&self, object: &K) -> Option<Arc<FreezeHold>> {
        self.frozen(object, object.annotations().get(ROLLBACK).map(String::as_str)).await
    }

    /// Reconciles the releases of a plan, then uninstalls the releases that left it.
    async fn apply(
        &self,
        asking: &HelmfileRunSubject<'_, K>,
        revision: &str,
        places: &ReleaseClusters,
        secrets: &SecretMasking,
        planned: Arc<HelmfilePlan>,
    ) -> Option<HelmfileRunReport<K>> {
        let HelmfileRunSubject { object, spec, timeouts } = *asking;
        let book =
            ReleaseStatusWriter::new(self.context.clone(), self.latest.clone(), object.clone());
        let book = Arc::new(book);
        let ended = |outcome| {
            let mut ended: HelmfileRunReport<K> = HelmfileRunReport::early(&book.object(), outcome);
            let book = Some(book.clone());
            let plan = Some(planned.clone());
            ended.came = HelmfileRunDetails { revision: revision.to_owned(), plan, book };
            ended
        };
        if let Err(outcome) = places.check_apart(&planned) {
            return Some(ended(outcome));
        }
        self.enter(&planned, &book);
        // A release is in the inventory before any object of it is in the cluster.
        if let Err(outcome) = book.flush().await {
            return Some(ended(outcome));
        }
        let retry_at = self.in_future(self.context.settings.requeue_dependency);
        let quarantines =
            OwnerQuarantines::read(&self.context, &self.node, &**object, retry_at).await;
        let run = release_reconciler::HelmfileRun {
            object,
            spec,
            places,
            timeouts,
            suspensions: ReleaseSuspensions::new(spec, self.began),
            book: &book,
            secrets,
            revision,
            freeze: self.frozen(object, Some(revision)).await,
            rollback_freeze: self.frozen_rollback(object).await,
            quarantines: Some(&quarantines),
            woken: self.context.work_queue.woken_parts(&self.node),
            unreachable_clusters: UnreachableClusters::default(),
            now: self.began,
        };
        let Some(outcomes) = self.keep_and_prune(&planned, &run).await else {
            // The status records the operations that were begun, also when the next run has other work.
            book.flush().await.ok();
            return None;
        };
        let outcome = report::outcome(revision, &book.rows(), &outcomes);
        // A suspension ends at its `until`, and no watch reports that.
        let end = suspended_releases::next_end(spec, self.began);
        let until = end.and_then(|end| Duration::try_from(end.duration_since(self.began)).ok());
        self.memory().next_end =
            until.map(|until| Instant::now() + until.min(self.interval(object, timeouts)));
        Some(ended(outcome))
    }

    /// Reconciles the releases of a plan, then uninstalls the releases that left it. `None` if the Helmfile changed meanwhile.
    async fn keep_and_prune(
        &self,
        planned: &HelmfilePlan,
        run: &release_reconciler::HelmfileRun<'_, K>,
    ) -> Option<release_reconciler::ReleaseOutcomes> {
        let mut outcomes = self.keep(planned, run).await?;
        let left = self.prune(planned, &outcomes, run).await?;
        outcomes.extend(left);
        Some(outcomes)
    }

    /// The plan of the helmfile. The existing plan is used unless one of its inputs changed.
    async fn planned(
        &self,
        asking: &HelmfileRunSubject<'_, K>,
        origin: &mut HelmfileOrigin,
        target: &Arc<ClusterTarget>,
        named: &HelmfileInputs,
    ) -> Result<Arc<HelmfilePlan>, RunOutcome> {
        let HelmfileRunSubject { object, spec, timeouts } = *asking;
        let served = target.cluster.served().await.map_err(|error| {
            RunOutcome::Failed(HELMFILE_ERROR, error.to_string(), NextRunTrigger::default())
        })?;
        let is_verified_only = self.is_verified_only();
        let key = |origin: &HelmfileOrigin| {
            let key = inputs_key(spec, origin.digest(), named, &served.version);
            // A plan made under another policy is discarded.
            if is_verified_only { format!("{key} verified") } else { key }
        };
        let known = key(origin);
        let is_asked = hold_conditions::is_asked(&**object);
        if let Some(kept) = self.memory().plan.as_ref().filter(|kept| kept.key == known) {
            // Repositories may have other versions by now. A new plan would also have new random values.
            let interval = match kept.plan.has_refused_chart() {
                // A HelmRepository may allow it at any time.
                true => timeouts.retry,
                false => self.interval(object, timeouts),
            };
            let is_fresh = kept.made.elapsed() < interval && !is_asked;
            if is_fresh || !kept.plan.drawn.is_empty() {
                return Ok(kept.plan.clone());
            }
        }
        let files = self.files(origin, spec, timeouts.timeout);
        let (source, path) = self.preparing.aside(files).await?;
        let key = key(origin);
        let own = &self.node.namespace;
        let inputs = HelmfilePlanInputs {
            source,
            path,
            dialect: spec.dialect.unwrap_or_default(),
            values_files: spec.values_files.clone(),
            environment: spec.environment.clone().unwrap_or_else(|| "default".to_owned()),
            selectors: spec.selectors.clone(),
            values: named.values.clone(),
            variables: named.variables.clone(),
            namespace: spec.target_namespace.clone().unwrap_or_else(|| own.clone()),
            contexts: spec.kube_contexts.keys().cloned().collect(),
            known: object
                .status()
                .into_iter()
                .flat_map(|it| &it.releases)
                .map(ReleaseKey::of)
                .collect(),
            capabilities: Arc::new(served.to_helm()),
            now: jiff::Timestamp::now(),
            random: Arc::new(windlass_runtime::random_bytes::fill),
            charts: self.chart_store(),
        };
        let keys = named.decryption.clone();
        let made = self.plan(inputs, target, keys, timeouts.timeout, is_verified_only).await;
        let plan = made.map_err(|text| {
            RunOutcome::Failed(HELMFILE_ERROR, named.secrets.mask(&text), NextRunTrigger::default())
        })?;
        let plan = Arc::new(plan);
        for warning in &plan.warnings {
            let ObjectKey { name, namespace, .. } = &self.node;
            tracing::info!(controller_kind = "Helmfile", name, namespace, "{warning}");
        }
        self.memory().plan =
            Some(CachedHelmfilePlan { key, made: Instant::now(), plan: plan.clone() });
        Ok(plan)
    }

    /// The store in which plans keep their charts. All plans wait for their next run at once.
    fn chart_store(&self) -> PlannedChartStore {
        let folder = self.context.shared::<ChartFolder>();
        PlannedChartStore::folder(folder.below(self.context.artifacts.scratch()))
    }

    /// Makes a plan on a thread with a large stack, with a build permit.
    async fn plan(
        &self,
        inputs: HelmfilePlanInputs,
        target: &ClusterTarget,
        keys: Option<Arc<BuildDecryptionKeys>>,
        timeout: Duration,
        is_verified_only: bool,
    ) -> Result<HelmfilePlan, String> {
        let permit = self.context.building.acquire(&self.node.namespace).await;
        let cancel = CancellationToken::new();
        // If the run is aborted, it sends no more requests to servers.
        let _asked_for = cancel.clone().drop_guard();
        // A getter verifies no signature of its downloads.
        let getter = match is_verified_only {
            true => Err(NOT_VERIFIED),
            false => helmfile_source::getter_for(&self.context, target, cancel.clone()),
        };
        let context = &self.context;
        let namespace = &self.node.namespace;
        let permits = BuildPermits::new(context, namespace, permit, cancel.clone());
        let permits = SharedBuildPermits::new(permits.of_run(&self.preparing));
        let decrypting = keys.map(|keys| PlanDecryption {
            keys,
            services: KeyServiceAccess::of(context, timeout, permits.clone(), cancel),
        });
        let repositories = HelmfileRepositories::new(context, namespace, target);
        let runtime = Handle::current();
        let reaching =
            HelmfileFetchContext::new(repositories, permits, getter, runtime, is_verified_only);
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let work = move || {
            let stop = StopSignal::default();
            let limit = Arc::new(TimeLimit::start(TIME_LIMIT, &stop));
            // The receiver is gone when the process ends.
            sender.send(plan::plan(inputs, reaching, decrypting, &stop, limit)).ok();
        };
        let thread =
            std::thread::Builder::new().name("helmfile".to_owned()).stack_size(RENDER_STACK_BYTES);
        thread.spawn(work).map_err(|error| format!("failed to start a thread: {error}"))?;
        receiver.await.unwrap_or_else(|_| {
            Err("reading the helmfile panicked; this is a bug in windlass, please report it"
                .to_owned())
        })
    }

    /// Runs operations that are under way to the next place at which nothing is half done.
    async fn stop(&self, object: &Arc<K>) -> Result<Option<Duration>, ClusterError> {
        let spec = object.asked();
        // Only the clusters are read, and one of them may not respond.
        self.preparing.end();
        let places = self.usable_places(&**object, &spec).await;
        let timeouts =
            validated_spec::check(&spec).unwrap_or_else(|_| HelmfileTimeouts::for_finalize());
        let book =
            ReleaseStatusWriter::new(self.context.clone(), self.latest.clone(), object.clone());
        let book = Arc::new(book);
        let secrets = SecretMasking::default();
        let run = release_reconciler::HelmfileRun {
            object,
            spec: &spec,
            places: &places,
            timeouts: &timeouts,
            suspensions: ReleaseSuspensions::new(&spec, self.began),
            book: &book,
            secrets: &secrets,
            revision: "",
            freeze: None,
            rollback_freeze: self.frozen_rollback(object).await,
            quarantines: None,
            woken: self.context.work_queue.woken_parts(&self.node),
            unreachable_clusters: UnreachableClusters::default(),
            now: self.began,
        };
        let Some(outcomes) = self.stop_all(&run).await else {
            book.flush().await.ok();
            return Ok(Some(Duration::ZERO));
        };
        if outcomes.is_empty() {
            book.flush().await.ok();
            return self.finish_suspended(&book.object()).await;
        }
        let outcome = report::outcome("", &book.rows(), &outcomes);
        let mut ended: HelmfileRunReport<K> = HelmfileRunReport::early(&book.object(), outcome);
        ended.came.book = Some(book);
        self.finish(ended, Some(timeouts)).await
    }
}

/// The object of a run, its spec, and the durations in the spec.
struct HelmfileRunSubject<'r, K: HelmfileCustomResource> {
    object: &'r Arc<K>,
    spec: &'r HelmfileSpec,
    timeouts: &'r HelmfileTimeouts,
}

/// A digest of all inputs of a plan, except the contents of repositories.
fn inputs_key(spec: &HelmfileSpec, digest: &str, named: &HelmfileInputs, version: &str) -> String {
    let parts = (
        (digest, &spec.source, &spec.path, &spec.environment, &spec.selectors),
        (&spec.dialect, &spec.values_files),
        (&named.values, &named.variables, &spec.target_namespace, version),
        named.decryption.as_ref().map(|it| &it.digest),
        spec.kube_contexts.keys().collect::<Vec<_>>(),
    );
    let text = serde_json::to_vec(&parts).unwrap_or_default();
    format!("sha256:{}", hex::encode(Sha256::digest(text)))
}
