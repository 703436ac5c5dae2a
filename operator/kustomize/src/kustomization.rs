//! The kind Kustomization: windlass keeps the manifests of an artifact applied.
//!
//! Here: a run from its gate to its report. Elsewhere: the desired state (`build`, `validated_spec`, `build_inputs`), pauses
//! of a run (`paused_run`), results that failed (`quarantined_results`), dependencies that went back
//! (`dependencies_on_way_back`), waves of rollouts (`rollout_wave_pin`), what outlives the process
//! (`stored_drift_comparison`), observing and writing (`executor`), deletions that are held (`over_budget_prune`), whether a
//! reviewed pull request showed them ([`removals_in_reviewed_pull_request`]) or all changes
//! (`changes_in_reviewed_pull_request`), deletion of the Kustomization (`finalize`).

mod audit;
mod build;
pub mod build_inputs;
mod build_manifests;
mod changes_in_reviewed_pull_request;
pub mod cluster_scoped_namespace_removal;
mod crd_ca_bundle;
mod deletion_counts;
mod dependencies_on_way_back;
mod executor;
mod failure_cause;
mod finalize;
mod kustomization_file;
mod last_attempts;
mod lifecycle_holds;
mod over_budget_prune;
mod paused_run;
mod quarantined_results;
pub mod removals_in_reviewed_pull_request;
mod report;
mod rollout_wave_pin;
mod stale_dependency;
mod stored_drift_comparison;
mod substitution;
pub mod validated_spec;

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use apply::contested_object_corrections::ContestedObjectCorrections;
use apply::unanswered_writes::UnansweredWrites;
use apply::{ApplyDesiredState, FailedHealthWait, KustomizationApplyPlanner};
use crds::kustomize::Kustomization;
use crds::{Artifact, ReconciledObject as _};
use kube_core::{Resource as _, ResourceExt as _};
use objects::ObjectId;
use parking_lot::Mutex;
use quarantine::build_inputs_record::BuildInputsRecord;
use quarantine::on_failure_annotation::ON_FAILURE;
use reconcile::{
    DependencyEdge, DependencyState, ObjectKey, READY, RefusedAttempts, RemovalCause, RunGateFacts,
    RunOutcome, Time, condition_reason,
};
use tree::TreeAccessTrace;

use self::audit::{AttemptAuditDetails, AuditedAttempts, RunChanges};
use self::build::BuildOutcome;
use self::build_inputs::KustomizationInputs;
use self::dependencies_on_way_back::{DependenciesOnWayBack, SourceBuildRules};
use self::executor::{ApplySettings, DriftCheckScope, KustomizationExecutor};
use self::last_attempts::{BuildIdentity, LastAppliedState};
use self::lifecycle_holds::{HeldAttempt, LifecycleClearance, LifecycleHold};
use self::over_budget_prune::{DeletionJudgement, DeletionReport};
use self::quarantined_results::{ArtifactToApply, QuarantinedBuild, rolled_back_to};
use self::report::QuarantinedRevision;
use self::validated_spec::{ALLOW_EMPTY, DesiredKustomization, KustomizationTimeouts};
use windlass_cluster::ClusterError;
use windlass_cluster::events::ObjectEvent;
use windlass_cluster::metrics::WakeReason;
use windlass_cluster::object_watcher::OwnershipMarks;
use windlass_cluster::referenced_secrets_and_config_maps::RunReferenceReads;
use windlass_cluster::run_permits::PermitPriority;
use windlass_rollout::WaveGate;
use windlass_runtime::applier_run::{
    self, ApplierKind, ApplierRunEnd, FinalizeOutcome, PendingChanges, ReconcileIntervals,
    WaitObservation,
};
use windlass_runtime::approval_plan::DELETION_BUDGET;
use windlass_runtime::approval_plan::change_approval::{PLAN_MODE, PLAN_PENDING, PLAN_REJECTED};
use windlass_runtime::cluster_target::ClusterTarget;
use windlass_runtime::depends_on_annotation::DependableKind;
use windlass_runtime::shared_build_parts::decryption::MAC;
use windlass_runtime::{
    artifact_files, change_window, hold_conditions, object_hold, progress_status, source_reference,
};
use windlass_serve::settings::OperatorSettings;

pub(crate) use quarantined_results::{last_good_artifact, rolled_back_artifact};
pub(crate) use rollout_wave_pin::pinned_artifact;

/// The field manager of the objects that Kustomizations apply.
pub const MANAGER: &str = Kustomization::CONTROLLER;

/// The marks on the objects of a Kustomization.
pub const OWNERSHIP: OwnershipMarks = OwnershipMarks {
    name: apply::owner_labels_and_apply_annotations::OWNER_NAME,
    namespace: apply::owner_labels_and_apply_annotations::OWNER_NAMESPACE,
    manager: MANAGER,
};

/// The state of a Kustomization that this process keeps between runs.
#[derive(Default)]
pub struct KustomizationState {
    /// The time when every object is compared again, including unchanged ones.
    verify_at: Option<Instant>,
    /// The time when every object was last compared.
    verified: Option<Time>,
    /// The last build that was applied to its end.
    settled: Option<HealthyAppliedBuild>,
    /// The last desired state that was applied to its end. A difference from it is drift.
    applied: LastAppliedState,
    /// Objects of a build that were healthy while others were awaited, with their resourceVersions at that time.
    healthy: Option<(BuildIdentity, BTreeMap<ObjectId, u64>)>,
    /// The last failed health wait, until the wait is repeated.
    failed_wait: Option<(BuildIdentity, FailedHealthWait)>,
    /// Refusals in a row.
    retries: RefusedAttempts,
    /// Objects that another manager changes again and again.
    contests: Arc<Mutex<ContestedObjectCorrections>>,
    /// Writes that the API server did not answer.
    unanswered: Arc<Mutex<UnansweredWrites>>,
    /// Since when runs have waited for the end of dependents, before they delete the objects that these need.
    dependents_awaited: Arc<Mutex<Option<Time>>>,
    /// The desired state that was applied and that runs wait for.
    waiting: Option<HealthWaitInProgress>,
    /// The changes of attempts without an audit yet.
    attempts: AuditedAttempts,
    /// The artifact that was found to build a quarantined result.
    quarantined: Option<QuarantinedBuild>,
    /// Whether the source was woken to fetch the last good artifact again, which is lost.
    has_woken_source: bool,
}

/// A wait in progress. It keeps the build, so that the next run need not build again.
struct HealthWaitInProgress {
    generation: i64,
    /// Digest of the artifact.
    artifact: String,
    desired_kustomization: Arc<DesiredKustomization>,
    observation: WaitObservation,
}

/// A build whose objects are applied and healthy.
struct HealthyAppliedBuild {
    generation: i64,
    digest: String,
    trace: TreeAccessTrace,
    is_remote: bool,
    inputs: String,
    /// Whether the health checks name objects that are not among those applied, which no watch of applied objects
    /// reports.
    asks_others: bool,
    /// Warnings about files that a kustomization names and that are not built.
    warnings: Vec<String>,
}

impl DependableKind for KustomizationController {
    type Object = Kustomization;

    fn leaves_objects(object: &Kustomization) -> bool {
        let inventory = object.status.as_ref().and_then(|status| status.inventory.as_ref());
        let has_nothing = inventory.is_none_or(|inventory| inventory.entries.is_empty());
        has_nothing || !validated_spec::deletion(&object.spec).0
    }
}

/// The details of a run that the status and events report in addition to its outcome.
#[derive(Default)]
pub struct KustomizationRunDetails {
    /// The revision of the run. Empty if the run ended before it knew the revision.
    revision: String,
    /// The origin revision that the source names. Empty if the source names none.
    origin_revision: String,
    /// Digest of the build, if there was one.
    digest: Option<String>,
    /// The facts of a good result, if a later result may be rolled back to it.
    facts: Option<BuildInputsRecord>,
    /// The images of the build, if it was applied and is compared with others.
    images: Option<Vec<String>>,
    /// The revision of the source, in whose place the last good one was applied.
    quarantine: Option<QuarantinedRevision>,
    /// The reason why the revision of the source waits, if its wave of a rollout is not open.
    wave: Option<String>,
    changes: Vec<(ObjectId, apply::Action)>,
    /// The warnings about names that a completely applied build left out.
    warnings: Vec<String>,
    /// The report about held deletions.
    deletion: DeletionReport,
    /// Whether the API server refused an object and will refuse it until something changes.
    is_permanent: bool,
}

/// Further results of a run.
#[derive(Default)]
struct KustomizationRunResults {
    /// Objects that were healthy when last observed, with their resourceVersions at that time.
    healthy: BTreeMap<ObjectId, u64>,
    /// The changes of the run, for its audit.
    audited: RunChanges,
    /// The judgement about the deletion of objects that left the manifests.
    deletion: DeletionJudgement,
    /// Whether objects were deleted that are in the recorded inventory still.
    has_unrecorded_deletions: bool,
    /// The Plan that approved the changes of the run.
    approved_plan: Option<String>,
}

type KustomizationRunReport = applier_run::ApplierRunReport<KustomizationController>;

/// A run of a Kustomization.
struct KustomizationSession<'r>(&'r applier_run::ApplierSession<KustomizationController>);

impl Deref for KustomizationSession<'_> {
    type Target = applier_run::ApplierSession<KustomizationController>;

    fn deref(&self) -> &Self::Target {
        self.0
    }
}

/// Adds the warnings of the build to the message of a run that has settled.
fn add_warnings(ended: &mut KustomizationRunReport, warnings: &[String]) {
    if let RunOutcome::Settled(_, text) = &mut ended.outcome {
        *text = validated_spec::with_warnings(std::mem::take(text), warnings);
        warnings.clone_into(&mut ended.came.warnings);
    }
}

/// The report of a run about a revision that has only an outcome.
fn early(
    object: &Arc<Kustomization>,
    revision: &str,
    outcome: RunOutcome,
) -> KustomizationRunReport {
    let came = KustomizationRunDetails {
        revision: revision.to_owned(),
        ..KustomizationRunDetails::default()
    };
    KustomizationRunReport { came, ..KustomizationRunReport::early(object, outcome) }
}

/// Runs Kustomizations.
pub struct KustomizationController;

impl ApplierKind for KustomizationController {
    type Object = Kustomization;

    const OWNED: &'static [&'static str] = &report::OWNED;
    const ANNOTATIONS: &'static [&'static str] =
        &[ALLOW_EMPTY, DELETION_BUDGET, MAC, ON_FAILURE, PLAN_MODE];
    const STAYS_WITHOUT_KUBECONFIG: bool = false;
    const CORRECTS_ALL_DRIFT: bool = true;

    type Own = KustomizationState;
    type ValidatedSpec = KustomizationTimeouts;
    type SpecInputs = KustomizationInputs;
    type RunDetails = KustomizationRunDetails;

    fn unsupported(object: &Kustomization) -> Vec<&'static str> {
        validated_spec::unsupported(&object.spec)
    }

    fn source(object: &Kustomization) -> Option<ObjectKey> {
        Some(source_reference::source_node(
            &object.namespace().unwrap_or_default(),
            &object.spec.source_ref,
        ))
    }

    fn has_tried(object: &Kustomization, revision: &str) -> bool {
        let applied = object.status.as_ref().and_then(|it| it.last_applied_revision.as_deref());
        applied == Some(revision)
    }

    fn announcement(object: &Kustomization) -> String {
        let status = object.status.as_ref();
        applier_run::announcement(object, status.and_then(|it| it.last_applied_revision.as_deref()))
    }

    fn stale(
        dependency: &Kustomization,
        object: &Kustomization,
        revision: &str,
    ) -> Option<DependencyState> {
        stale_dependency::stale(dependency, object, revision)
    }

    fn validate(
        object: &Kustomization,
        _: &OperatorSettings,
    ) -> Result<KustomizationTimeouts, RunOutcome> {
        validated_spec::check(&object.spec)
    }

    fn pace(timeouts: &KustomizationTimeouts) -> ReconcileIntervals {
        let KustomizationTimeouts { interval, retry, timeout } = *timeouts;
        ReconcileIntervals { interval, retry, timeout }
    }

    fn observation(
        session: &applier_run::ApplierSession<Self>,
        object: &Kustomization,
    ) -> Option<WaitObservation> {
        if KustomizationSession(session).verify(object) == DriftCheckScope::Everything {
            return None;
        }
        let memory = session.memory();
        let waiting = memory.waiting.as_ref()?;
        let same = Some(waiting.generation) == object.meta().generation;
        same.then_some(waiting.observation)
    }

    fn continues_wait(own: &KustomizationState) -> bool {
        own.waiting.is_some()
    }

    fn moved(own: &mut KustomizationState) {
        (own.settled, own.verify_at, own.healthy) = (None, None, None);
        (own.waiting, own.failed_wait) = (None, None);
        (own.contests, own.unanswered) = (Arc::default(), Arc::default());
        own.applied.moved();
    }

    /// A waiting attempt is audited when its object is suspended. It continues when a window closes.
    async fn is_under_way(
        session: &applier_run::ApplierSession<Self>,
        object: &Arc<Kustomization>,
    ) -> Result<bool, ClusterError> {
        let is_suspended = object_hold::is_suspended(&**object, session.began);
        Ok(is_suspended && session.memory().attempts.has_open())
    }

    async fn pending(
        session: &applier_run::ApplierSession<Self>,
        object: &Arc<Kustomization>,
    ) -> PendingChanges {
        let pending = KustomizationSession(session).pending(object).await;
        // The next revision differs, and no window is open for it.
        if matches!(pending, PendingChanges::Change(_)) {
            KustomizationSession(session)
                .audit_stopped(object, |_| false, "another revision or spec waits for a window")
                .await;
        }
        pending
    }

    async fn stop(
        session: &applier_run::ApplierSession<Self>,
        object: &Arc<Kustomization>,
    ) -> Result<Option<Duration>, ClusterError> {
        KustomizationSession(session)
            .audit_stopped(object, |_| false, "the Kustomization is suspended")
            .await;
        session.finish_suspended(object).await
    }

    fn where_stopped(object: &Kustomization) -> String {
        paused_run::where_stopped(object)
    }

    fn waits_no_more(own: &mut KustomizationState) {
        own.contests.lock().end_all();
    }

    async fn read(
        session: &applier_run::ApplierSession<Self>,
        object: &Kustomization,
        references: &mut RunReferenceReads,
    ) -> Result<KustomizationInputs, RunOutcome> {
        KustomizationInputs::read(&session.context.settings, object, references).await
    }

    fn has_more_to_report(details: &KustomizationRunDetails) -> bool {
        !details.changes.is_empty()
    }

    async fn reconcile(
        session: &applier_run::ApplierSession<Self>,
        object: &Arc<Kustomization>,
        facts: RunGateFacts,
        timeouts: KustomizationTimeouts,
    ) -> Result<Option<KustomizationRunReport>, ClusterError> {
        Ok(Some(KustomizationSession(session).reconcile(object, facts, timeouts).await))
    }

    async fn finalize(
        session: &applier_run::ApplierSession<Self>,
        object: &Arc<Kustomization>,
    ) -> Result<FinalizeOutcome<Self>, ClusterError> {
        KustomizationSession(session).finalize(object).await
    }

    fn inputs(object: &Kustomization) -> Vec<(&'static str, String)> {
        validated_spec::inputs(&object.spec)
    }

    fn left_behind(object: &Kustomization, subject: &str) -> ObjectEvent {
        report::left_behind(object, subject)
    }

    fn report(
        session: &applier_run::ApplierSession<Self>,
        ended: KustomizationRunReport,
        end: &ApplierRunEnd,
    ) -> applier_run::ApplierReport<Self> {
        // The status contains the progress messages of the run's phases by now.
        let object = session.latest.begun(&ended.object);
        let KustomizationRunDetails {
            revision,
            origin_revision,
            digest,
            facts,
            quarantine,
            wave,
            changes,
            warnings,
            deletion,
            images: _,
            is_permanent: _,
        } = &ended.came;
        let run = report::KustomizationReportInputs {
            announcement: session.context.failure_announcement(&session.node),
            outcome: &end.outcome,
            revision,
            origin_revision,
            digest: digest.as_deref(),
            facts: facts.as_ref(),
            quarantine: quarantine.as_ref(),
            wave: wave.as_deref(),
            changes,
            warnings,
            deletion,
            has_health: object.spec.wait || !object.spec.health_checks.is_empty(),
            began: end.began,
            now: end.now,
            interval: end.interval,
        };
        let report = report::report(&object, &run);
        report.log(&object, &run);
        let report::KustomizationReport { before, after, events } = report;
        applier_run::ApplierReport { object, before, after, events }
    }

    fn next_look(own: &KustomizationState) -> Option<Duration> {
        own.verify_at.map(|at| at.saturating_duration_since(Instant::now()))
    }
}

/// Whether a build is applied completely and healthy. An object that another manager keeps changing does not count.
fn is_at_end(outcome: &RunOutcome) -> bool {
    outcome.is_settled()
        || matches!(outcome, RunOutcome::Failed(why, ..) if *why == condition_reason::CONTESTED)
}

/// Whether a run changed nothing because a user has to approve its Plan first, or rejected it. Then no attempt has begun.
fn waits_unbegun(ended: &KustomizationRunReport) -> bool {
    let is_pending = matches!(
        &ended.outcome,
        RunOutcome::Running(PLAN_PENDING, ..) | RunOutcome::Blocked(PLAN_REJECTED, ..)
    );
    is_pending && ended.came.changes.is_empty()
}

impl KustomizationSession<'_> {
    async fn reconcile(
        &self,
        object: &Arc<Kustomization>,
        facts: RunGateFacts,
        timeouts: KustomizationTimeouts,
    ) -> KustomizationRunReport {
        let requeue = self.context.settings.requeue_dependency;
        let own = &self.node.namespace;
        let source = &object.spec.source_ref;
        let retry_at = self.in_future(requeue);
        let artifact = match source_reference::artifact(&self.context, own, source, retry_at) {
            Ok(artifact) => artifact,
            Err(outcome) => return KustomizationRunReport::early(object, outcome),
        };
        let since = artifact.last_update_time.0;
        let (artifact, text) = match self.wave(object, &artifact, retry_at).await {
            Ok(WaveGate::Open) => (artifact, None),
            Ok(WaveGate::Pinned { artifact, text }) => (*artifact, Some(text)),
            Err(outcome) => return KustomizationRunReport::early(object, outcome),
        };
        let is_pinned = text.is_some();
        let mut ended = self.follow(object, facts, timeouts, &artifact, is_pinned).await;
        // The last good revision, which may be applied in its place, has another origin.
        if ended.came.revision == artifact.revision && !is_pinned {
            artifact_files::origin_revision(&artifact).clone_into(&mut ended.came.origin_revision);
        }
        if let Some(text) = text {
            rollout_wave_pin::say(object, &mut ended, text, since);
        }
        ended
    }

    /// The rest of a run, with the artifact of the source, or with the artifact to which a rollout pins it.
    async fn follow(
        &self,
        object: &Arc<Kustomization>,
        facts: RunGateFacts,
        timeouts: KustomizationTimeouts,
        artifact: &Artifact,
        is_pinned: bool,
    ) -> KustomizationRunReport {
        let own = match self.own_quarantines(object).await {
            Ok(own) => own,
            // The report has no revision, because the revision was not attempted.
            Err(outcome) => return KustomizationRunReport::early(object, outcome),
        };
        if let Err(outcome) = windlass_quarantine::on_failure(&**object) {
            return KustomizationRunReport::early(object, outcome);
        }
        let known = self.known_quarantine(object, artifact, &own, None);
        let good = known.as_deref().and_then(rolled_back_to);
        let revision = good.as_ref().map_or(&artifact.revision, |good| &good.revision);
        let generation = object.meta().generation.unwrap_or_default();
        self.audit_superseded(object, generation, revision).await;
        // A dependency in an earlier wave, or one that did not go back, has a newer revision already.
        let awaited = if is_pinned || good.is_some() { "" } else { revision.as_str() };
        let goes_back =
            good.is_some() || dependencies_on_way_back::goes_back(object, artifact, &own);
        let held = self.gate(object, facts, awaited).await;
        if let Some(outcome) = &held {
            let on_way_back = match goes_back {
                true => self.dependencies_on_way_back(object, &artifact.revision, outcome),
                false => DependenciesOnWayBack::Awaited,
            };
            if on_way_back != DependenciesOnWayBack::WentBack {
                let is_unsaid = on_way_back == DependenciesOnWayBack::Reconciling
                    && dependencies_on_way_back::keeps_status(object);
                let unsaid_for = is_unsaid.then_some(self.context.settings.requeue_dependency);
                return KustomizationRunReport {
                    unsaid_for,
                    ..early(object, revision, outcome.clone())
                };
            }
        }
        let (target, inputs) = match self.named(object).await {
            Ok(named) => named,
            Err(outcome) => return early(object, revision, outcome),
        };
        self.end_failed_wait(object);
        let read = inputs.digest();
        if let Some(known) = self.known_quarantine(object, artifact, &own, Some(&read)) {
            let back = self.go_back(object, timeouts, artifact, &target, inputs, &known);
            return Box::pin(back).await;
        }
        if report::is_quarantined(object) || self.is_settled_in_quarantine(&own) {
            // The next result decides about objects that stayed during a rollback, even if it has the same objects. If a user
            // rolled back the applied result, it is built again, and so found to be quarantined.
            self.memory().settled = None;
        }
        let rules = SourceBuildRules { own: &own, held };
        let followed = self.follow_source(object, timeouts, artifact, &target, inputs, rules);
        // On the heap, only those runs take the memory of it that read what their specs name.
        let mut ended = Box::pin(followed).await;
        self.record_facts(object, artifact, &read, &mut ended).await;
        ended
    }

    /// Builds the artifact of the source, and applies the build unless it is quarantined.
    async fn follow_source(
        &self,
        object: &Arc<Kustomization>,
        timeouts: KustomizationTimeouts,
        artifact: &Artifact,
        target: &Arc<ClusterTarget>,
        inputs: KustomizationInputs,
        SourceBuildRules { own, held }: SourceBuildRules<'_>,
    ) -> KustomizationRunReport {
        let revision = &artifact.revision;
        let desired_kustomization = match self
            .build(object, timeouts, artifact, target, inputs)
            .await
        {
            Ok(BuildOutcome::DesiredKustomization(desired_kustomization)) => desired_kustomization,
            Ok(BuildOutcome::Unchanged(ended)) => {
                if let Some(outcome) = held {
                    return early(object, revision, outcome);
                }
                self.dismiss_events(object, None).await;
                return *ended;
            }
            Err(outcome) => return early(object, revision, outcome),
        };
        if let Some(quarantine) = windlass_quarantine::of_result(own, &desired_kustomization.digest)
        {
            let read = &desired_kustomization.inputs;
            self.remember_quarantine(object, artifact, read, quarantine);
            // The build used the data that was read. A later change wakes the next run, which builds again.
            let inputs = match self.named(object).await {
                Ok((_, inputs)) => inputs,
                Err(outcome) => return early(object, revision, outcome),
            };
            return self.go_back(object, timeouts, artifact, target, inputs, quarantine).await;
        }
        if let Some(outcome) = held {
            return early(object, revision, outcome);
        }
        let desired_kustomization = match self.scoped(desired_kustomization, target).await {
            Ok(desired_kustomization) => desired_kustomization,
            Err(outcome) => return early(object, revision, outcome),
        };
        self.apply_new(object, timeouts, artifact, &desired_kustomization, target, own).await
    }

    /// Which objects this run compares. After the interval, at a scheduled time, or on request, it compares more than the
    /// drifted objects.
    fn verify(&self, object: &Kustomization) -> DriftCheckScope {
        if hold_conditions::is_asked(object) {
            return DriftCheckScope::Everything;
        }
        let (verify_at, verified) = {
            let memory = self.memory();
            (memory.verify_at, memory.verified)
        };
        let came_round = verify_at.is_none_or(|at| Instant::now() >= at)
            || verified.is_some_and(|since| {
                change_window::schedule_time_passed(object, since, self.began)
            });
        if came_round { DriftCheckScope::Moved } else { DriftCheckScope::Drifted }
    }

    async fn apply(
        &self,
        object: &Arc<Kustomization>,
        timeouts: KustomizationTimeouts,
        ArtifactToApply { artifact, is_way_back }: ArtifactToApply<'_>,
        desired_kustomization: &Arc<DesiredKustomization>,
        target: &Arc<ClusterTarget>,
    ) -> KustomizationRunReport {
        let digest = &desired_kustomization.digest;
        let verify = self.verify(object);
        let generation = object.meta().generation.unwrap_or_default();
        let revision = artifact.revision.clone();
        let judged = BuildIdentity { generation, digest: digest.clone(), revision };
        let is_correction = self.is_applied(object, &judged);
        let freeze = match self.freeze_of(object, &judged, is_correction).await {
            Ok(freeze) => freeze,
            // The report has no revision, because the revision was not attempted.
            Err(outcome) => return KustomizationRunReport::early(object, outcome),
        };
        let held = (!is_correction).then(|| LifecycleHold::build(self, object, &judged));
        self.dismiss_events(object, held.as_ref()).await;
        let passed = match &held {
            Some(held) => self.pass_before(object, held).await,
            None => Ok(LifecycleClearance::of_correction()),
        };
        let passed = match passed {
            Ok(passed) => passed,
            Err(stopped) => return self.not_begun(object, &judged, stopped).await,
        };
        let confirmed = self.confirmed_health(object, verify, is_correction, target);
        let (healthy, contests, unanswered, dependents_awaited) = {
            let mut memory = self.memory();
            memory.settled = None;
            if !is_correction {
                memory.applied.begin();
            }
            let healthy = memory.healthy.take();
            let healthy = healthy.filter(|(of, _)| of.is_same_build(&judged));
            let healthy =
                healthy.filter(|_| verify == DriftCheckScope::Drifted).map(|(_, ids)| ids);
            let dependents_awaited = memory.dependents_awaited.clone();
            (healthy, memory.contests.clone(), memory.unanswered.clone(), dependents_awaited)
        };
        let apply_settings = ApplySettings {
            digest: digest.clone(),
            verify,
            force: object.spec.force,
            removal: RemovalCause::Pruned,
            await_end: false,
            health_versions: desired_kustomization.health_versions.iter().cloned().collect(),
            expressions: self.expressions.clone(),
            healthy: healthy.unwrap_or(confirmed),
            failed_wait: self.failed_wait(&judged),
            is_correction,
            is_way_back,
            freeze,
            contests,
            unanswered,
            dependents_awaited,
            secrets: desired_kustomization.secrets.clone(),
            ignore: desired_kustomization.ignore.clone(),
            retry_at: self.in_future(timeouts.retry),
            plan_again_at: self.in_future(self.interval(object, &timeouts)),
        };
        let desired = quarantined_results::desired(&desired_kustomization.desired, is_way_back);
        let (mut ended, done) =
            self.drive_within_budget(&passed, object, desired, apply_settings, target).await;
        if waits_unbegun(&ended) {
            self.memory().waiting = None;
            return ended;
        }
        self.postpone(&mut ended, timeouts.timeout);
        add_warnings(&mut ended, &desired_kustomization.warnings);
        let cluster = &target.cluster;
        let known = self.failed_wait(&judged);
        failure_cause::complete(&mut ended.outcome, cluster, &desired_kustomization.secrets, known)
            .await;
        let answers = passed.into_answers();
        let answers = match held.filter(|_| is_at_end(&ended.outcome)) {
            Some(held) => match self.pass_after(object, &held, answers).await {
                Ok(answers) => answers,
                Err(HeldAttempt { outcome, answers }) => {
                    ended.outcome = outcome;
                    answers
                }
            },
            None => answers,
        };
        if ended.outcome.is_settled() && !answers.is_empty() {
            // Once the status reports the end of the attempt, its lifecycle events are not needed.
            self.context.work_queue.wake(&self.node, WakeReason::Waiting);
        }
        let about = AttemptAuditDetails {
            judged: &judged,
            is_correction,
            secrets: &desired_kustomization.secrets,
            answers,
        };
        self.audit(object, &ended, done.audited, &about).await;
        self.remember_failure(object, &judged, &mut ended, timeouts, verify);
        self.remember_comparison(object, &ended.outcome, timeouts, verify);
        self.remember(judged, &ended.outcome, desired_kustomization, artifact, done.healthy);
        ended.came.digest = Some(digest.clone());
        ended
    }

    /// Remembers the results of a run for the next one.
    fn remember(
        &self,
        judged: BuildIdentity,
        outcome: &RunOutcome,
        desired_kustomization: &Arc<DesiredKustomization>,
        artifact: &Artifact,
        healthy: BTreeMap<ObjectId, u64>,
    ) {
        let generation = judged.generation;
        let digest = judged.digest.clone();
        let mut memory = self.memory();
        let before = memory.waiting.take().filter(|it| it.generation == generation);
        match outcome {
            RunOutcome::Settled(..) => {
                let trace = desired_kustomization.trace.clone();
                let is_remote = desired_kustomization.is_remote;
                let inputs = desired_kustomization.inputs.clone();
                memory.settled = Some(HealthyAppliedBuild {
                    generation,
                    digest,
                    trace,
                    is_remote,
                    inputs,
                    asks_others: desired_kustomization.asks_others(),
                    warnings: desired_kustomization.warnings.clone(),
                });
                memory.applied.end(judged);
            }
            // It is built again when the rest is approved.
            RunOutcome::Running(PLAN_PENDING, ..) | RunOutcome::Blocked(PLAN_REJECTED, ..) => {}
            outcome
                if matches!(outcome, RunOutcome::Running(..)) || memory.failed_wait.is_some() =>
            {
                memory.healthy = Some((judged, healthy));
                let artifact = artifact.digest.clone();
                let desired_kustomization = desired_kustomization.clone();
                let before = before.filter(|it| it.artifact == artifact).map(|it| it.observation);
                let observation = WaitObservation::again(before);
                memory.waiting = Some(HealthWaitInProgress {
                    generation,
                    artifact,
                    desired_kustomization,
                    observation,
                });
            }
            RunOutcome::Failed(why, ..) if *why == condition_reason::CONTESTED => {
                memory.applied.end(judged);
            }
            RunOutcome::Running(..)
            | RunOutcome::Blocked(..)
            | RunOutcome::Failed(..)
            | RunOutcome::Stalled(..) => {}
        }
    }

    /// Remembers a comparison of more objects than the drifted ones. The next such comparison is due after the interval.
    fn remember_comparison(
        &self,
        object: &Kustomization,
        outcome: &RunOutcome,
        timeouts: KustomizationTimeouts,
        verify: DriftCheckScope,
    ) {
        if verify != DriftCheckScope::Drifted
            && (is_at_end(outcome) || matches!(outcome, RunOutcome::Running(..)))
        {
            let interval = self.interval(object, &timeouts);
            let mut memory = self.memory();
            memory.verify_at = Some(Instant::now() + interval);
            memory.verified = Some(self.began);
        }
    }

    /// Whether a build was applied completely, so that any difference from it is drift.
    fn is_applied(&self, object: &Kustomization, judged: &BuildIdentity) -> bool {
        let is_reported = || report::was_applied(object, &judged.revision, &judged.digest);
        self.memory().applied.is(judged, is_reported)
    }

    /// Reports an attempt that a lifecycle does not permit to begin.
    async fn not_begun(
        &self,
        object: &Arc<Kustomization>,
        judged: &BuildIdentity,
        HeldAttempt { outcome, answers }: HeldAttempt,
    ) -> KustomizationRunReport {
        let is_reported = object.condition(READY).is_some_and(|it| it.message == outcome.text());
        if matches!(outcome, RunOutcome::Failed(..)) && !answers.is_empty() && !is_reported {
            self.audit_refused(object, judged, &outcome, answers).await;
        }
        early(object, &judged.revision, outcome)
    }

    async fn drive(
        &self,
        _: &LifecycleClearance,
        object: &Arc<Kustomization>,
        desired: Arc<ApplyDesiredState>,
        apply_settings: ApplySettings,
        target: &Arc<ClusterTarget>,
    ) -> (KustomizationRunReport, KustomizationRunResults) {
        let priority = if self.memory().waiting.is_some() {
            PermitPriority::Resume
        } else {
            PermitPriority::New
        };
        let permit = target.applying().run_permit_in(priority, &self.node.namespace).await;
        self.preparing.end();
        let revision = desired.revision.clone();
        let watcher = target.watcher().clone();
        let executor = KustomizationExecutor::new(
            self,
            target.clone(),
            permit,
            object,
            desired.clone(),
            apply_settings,
        );
        let executor = match executor {
            Ok(executor) => executor,
            Err(outcome) => {
                return (early(object, &revision, outcome), KustomizationRunResults::default());
            }
        };
        let (_, outcome) = reconcile::drive::<KustomizationApplyPlanner>(&desired, &executor).await;
        let outcome = executor.sooner(outcome);
        executor.note_wait(&outcome);
        self.context.work_queue.set_edges(&self.node, DependencyEdge::Waits, executor.missing());
        let awaited = match outcome.wake() {
            Some(wake) => executor.awaited(wake).await,
            None => Vec::new(),
        };
        watcher.await_objects(&self.node, &awaited);
        let came = KustomizationRunDetails {
            revision,
            changes: executor.changes(),
            is_permanent: executor.is_permanent(),
            ..KustomizationRunDetails::default()
        };
        let done = KustomizationRunResults {
            healthy: executor.healthy(),
            audited: executor.audited(),
            deletion: executor.deletion(),
            has_unrecorded_deletions: executor.has_unrecorded_deletions(),
            approved_plan: executor.approved_plan(),
        };
        (
            KustomizationRunReport {
                came,
                ..KustomizationRunReport::early(&executor.object(), outcome)
            },
            done,
        )
    }

    /// Does the work of a phase, which `Ready` reports in Flux's words if it takes long and is about something new.
    async fn telling<T>(
        &self,
        object: &Arc<Kustomization>,
        phase: &str,
        revision: &str,
        timeouts: KustomizationTimeouts,
        work: impl Future<Output = T>,
    ) -> T {
        if !report::is_new(object, revision) {
            return work.await;
        }
        let text = report::phase(phase, revision, timeouts.timeout);
        progress_status::telling(
            work,
            progress_status::tell(&self.context, &self.latest, object, &text),
        )
        .await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_kustomization_has_tried_what_it_applied_last() {
        let of = |status: Value| -> Kustomization {
            serde_json::from_value(json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
                "metadata": {"name": "web", "namespace": "shop"},
                "spec": {"interval": "1h", "prune": true, "sourceRef": {"kind": "GitRepository", "name": "shop"}},
                "status": status}))
            .unwrap()
        };
        let applied = of(json!({"lastAppliedRevision": "main@sha1:1"}));
        assert!(KustomizationController::has_tried(&applied, "main@sha1:1"));
        assert!(!KustomizationController::has_tried(&applied, "main@sha1:2"));
        assert!(!KustomizationController::has_tried(&of(json!({})), ""));
    }
}
