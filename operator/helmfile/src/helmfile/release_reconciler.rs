//! Reconciles the releases of a plan, many at a time.
//!
//! Elsewhere: their order (`release_order.rs`), releases that left the helmfile (`prune.rs`) or are suspended
//! (`suspended_releases.rs`), one release (`helm_controller::release_runner`), its specification (`release_specification.rs`), its
//! hooks (`hooks_without_operation.rs`, `hooks.rs`), its row in the status (`release_status_writer.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crds::helmfile::{HelmfileReleaseStatus, HelmfileSpec, ReleaseState};
use helmfile::ReleaseOperationSettings;
use kube_core::ResourceExt as _;
use parking_lot::{Mutex, MutexGuard};
use reconcile::{
    FreezeHold, NextRunTrigger, ObjectKey, RemovalPermit, RunOutcome, Time, condition_reason,
};
use release::gated_release_change::ReleaseChangeGates;
use release::{OperationOrigin, ReleaseDesiredState};

use super::helmfile_kind_differences::HelmfileCustomResource;
use super::hooks::UnansweredHookWrites;
use super::hooks_without_operation::ReleaseDigestChange;
use super::plan::{HelmfilePlan, PlannedChart, PlannedRelease, ReleaseKey};
use super::release_clusters::{ReleaseClusterId, ReleaseClusters};
use super::release_order::{
    OrderedOperationOutcome, OrderedReleaseOperations, ReleaseOrder, in_turn,
};
use super::release_status_writer::{HelmfileReleaseOwner, ReleaseStatusWriter, placed};
use super::report::{ReleaseNameList, is_under_way};
use super::suspended_releases::ReleaseSuspensions;
use super::validated_spec::HelmfileTimeouts;
use super::{HELMFILE_ERROR, HelmfileSession, helmfile_source, release_specification};
use helm_controller::helm_release::{self, report};
use helm_controller::release_runner::chart_cache::LoadedChart;
use helm_controller::release_runner::quarantined_releases::{
    OwnerQuarantines, ReleaseQuarantineInputs, attempt_once, note_attempt, without_failures,
};
use helm_controller::release_runner::release_run::ReleaseRunnerReport;
use helm_controller::release_runner::{DesiredRelease, ReleaseStatusOwner as _, release_run};
use objects::SecretMasking;
use windlass_cluster::announced_failures::AnnouncedFailures;
use windlass_cluster::events::ObjectEvent;
use windlass_cluster::preparing_permit::PreparingPermit;
use windlass_runtime::approval_plan::BUDGET_EXCEEDED;
use windlass_runtime::approval_plan::change_approval::{PLAN_PENDING, PLAN_REJECTED};
use windlass_runtime::cluster_target::ClusterTarget;
use windlass_runtime::lifecycle::known_quarantines::QUARANTINES_UNKNOWN;
use windlass_runtime::{change_window, hold_conditions, lifecycle};

/// The state of a release between runs. The objects of the release are watched as long as this state exists.
pub(super) struct ReleaseRunState {
    pub(super) drive: release_run::ReleaseRunnerState,
    last: Mutex<Option<LastReleaseRun>>,
    /// Whether hooks before an operation were applied since the release last matched the helmfile.
    pub(super) has_begun: AtomicBool,
    /// The digest of the hooks with which an operation began. The Plan of the operation has these hooks.
    begun_hooks: Mutex<Option<String>>,
    /// The attempt in which hooks were applied on which no operation began.
    applied: Mutex<Option<String>>,
    /// Writes of its hooks that the API server did not answer.
    unanswered: Arc<Mutex<UnansweredHookWrites>>,
    target: Arc<ClusterTarget>,
    node: ObjectKey,
}

impl Drop for ReleaseRunState {
    fn drop(&mut self) {
        self.target.watcher().forget(&self.node);
    }
}

/// The state in which the last run left a release.
#[derive(Clone)]
struct LastReleaseRun {
    /// The [`release_specification::digest`] of the release in its last run.
    digest: String,
    generation: Option<i64>,
    outcome: RunOutcome,
}

impl ReleaseRunState {
    fn last(&self) -> Option<LastReleaseRun> {
        self.last.lock().clone()
    }

    fn set_last(&self, last: Option<LastReleaseRun>) {
        *self.last.lock() = last;
    }

    /// Notes that the release changes, so that the result of its last run does not hold any more.
    pub(super) fn changes(&self) {
        self.set_last(None);
    }

    /// Whether an operation with these hooks began since the release last matched the helmfile.
    pub(super) fn has_begun_with(&self, hooks: &str) -> bool {
        let begun = self.begun_hooks.lock();
        self.has_begun.load(Ordering::Relaxed) && begun.as_deref() == Some(hooks)
    }

    /// Whether an attempt applied hooks on which no operation began.
    pub(super) fn has_applied(&self, attempt: &str) -> bool {
        let applied = self.applied.lock();
        applied.as_deref() == Some(attempt)
    }

    pub(super) fn set_applied(&self, attempt: &str) {
        let mut applied = self.applied.lock();
        *applied = Some(attempt.to_owned());
    }

    /// The cluster of the release.
    pub(super) fn target(&self) -> &Arc<ClusterTarget> {
        &self.target
    }

    /// The node under which its objects are watched.
    pub(super) fn node(&self) -> &ObjectKey {
        &self.node
    }
}

/// The progress of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReleaseProgress {
    /// The release matches the helmfile.
    Kept,
    /// The release has an outcome, and does not match the helmfile yet.
    Unfinished(RunOutcome),
    /// A needed release is missing.
    Waits,
    /// An entry of `spec.suspendedReleases` suspends the release. The release may never have been installed.
    Suspended {
        /// Whether the release matched the helmfile before.
        is_there: bool,
    },
}

impl ReleaseProgress {
    /// Whether a release matches the helmfile, or has its own suspension.
    pub(super) fn is_kept(&self) -> bool {
        matches!(self, Self::Kept | Self::Suspended { .. })
    }

    /// Whether releases that need this one may go on. A suspended release counts as in the state in which it was suspended.
    fn is_there(&self) -> bool {
        matches!(self, Self::Kept | Self::Suspended { is_there: true })
    }
}

/// The state into which a release is to be brought.
#[derive(Clone, Copy)]
pub(super) enum ReleaseGoal<'p> {
    /// The release is to match the plan, with its chart.
    Kept { planned: &'p PlannedRelease, chart: &'p PlannedChart, loaded: &'p Arc<LoadedChart> },
    /// A running operation stops at the next place at which nothing is half done.
    Stopped,
    /// The release is to be uninstalled, with this permit.
    Removed(RemovalPermit),
}

/// The progress of each release of a run.
pub(super) type ReleaseOutcomes = BTreeMap<ReleaseKey, ReleaseProgress>;

/// The data that all releases of a run share.
pub(super) struct HelmfileRun<'r, K: HelmfileCustomResource> {
    pub(super) object: &'r Arc<K>,
    /// The spec of the Helmfile.
    pub(super) spec: &'r HelmfileSpec,
    /// The clusters of releases.
    pub(super) places: &'r ReleaseClusters,
    pub(super) timeouts: &'r HelmfileTimeouts,
    /// The releases that `spec.suspendedReleases` suspends.
    pub(super) suspensions: ReleaseSuspensions<'r>,
    pub(super) book: &'r Arc<ReleaseStatusWriter<K>>,
    pub(super) secrets: &'r SecretMasking,
    /// The revision of the source. Empty if nothing of the source is desired.
    pub(super) revision: &'r str,
    /// The Freezes that hold its operations, if any do.
    pub(super) freeze: Option<Arc<FreezeHold>>,
    /// The Freezes that hold a requested rollback.
    pub(super) rollback_freeze: Option<Arc<FreezeHold>>,
    /// The Quarantines of its releases. `None` if no Quarantines are kept.
    pub(super) quarantines: Option<&'r OwnerQuarantines>,
    /// Parts that were woken since the last run.
    pub(super) woken: BTreeSet<ObjectKey>,
    pub(super) unreachable_clusters: UnreachableClusters,
    pub(super) now: Time,
}

/// Clusters that did not answer in a run, by [`ClusterTarget::place`], with the outcome of the first release that found this.
/// Other releases of such a cluster are not tried in this run.
#[derive(Default)]
pub(super) struct UnreachableClusters(Mutex<BTreeMap<String, RunOutcome>>);

impl UnreachableClusters {
    fn note(&self, target: &ClusterTarget, outcome: &RunOutcome) {
        let mut all = self.0.lock();
        all.insert(target.place().to_owned(), outcome.clone());
    }

    /// The outcome of a release that is not tried, because its cluster did not answer.
    pub(super) fn at(&self, target: &ClusterTarget) -> Option<RunOutcome> {
        self.0.lock().get(target.place()).cloned()
    }
}

impl<K: HelmfileCustomResource> HelmfileSession<'_, K> {
    /// The node of a release, under which its objects are watched.
    pub(super) fn part(&self, key: &ReleaseKey) -> ObjectKey {
        self.node.part(&key.to_string())
    }

    /// The remembered state of a release at a target. At another target the state does not hold.
    pub(super) fn remembered(
        &self,
        key: &ReleaseKey,
        target: &Arc<ClusterTarget>,
    ) -> Arc<ReleaseRunState> {
        let mut memory = self.memory();
        let is_here = |known: &&Arc<ReleaseRunState>| Arc::ptr_eq(&known.target, target);
        if let Some(known) = memory.releases.get(key).filter(is_here) {
            return known.clone();
        }
        // The former watches are ended first, since the new target may be the same cluster under another name.
        drop(memory.releases.remove(key));
        let new = Arc::new(ReleaseRunState {
            drive: release_run::ReleaseRunnerState::default(),
            last: Mutex::default(),
            has_begun: AtomicBool::new(false),
            begun_hooks: Mutex::default(),
            applied: Mutex::default(),
            unanswered: Arc::default(),
            target: target.clone(),
            node: self.part(key),
        });
        memory.releases.insert(key.clone(), new.clone());
        new
    }

    /// Whether an operation on a release is under way, as far as this process knows.
    fn is_known_under_way(&self, key: &ReleaseKey) -> bool {
        let memory = self.memory();
        memory.releases.get(key).and_then(|it| it.drive.under_way()) == Some(true)
    }

    /// Forgets the state of a release, and ends the watches of its objects.
    pub(super) fn forget(&self, key: &ReleaseKey) {
        self.memory().releases.remove(key);
        self.context.shared::<AnnouncedFailures>().forget(&self.part(key));
    }

    /// Enters the releases of a plan into the status before any work for them. Releases that left the helmfile come last.
    pub(super) fn enter(&self, planned: &HelmfilePlan, book: &ReleaseStatusWriter<K>) {
        let known = book.rows();
        let mut places: BTreeMap<ReleaseKey, usize> =
            known.iter().enumerate().map(|(at, row)| (ReleaseKey::of(row), at)).collect();
        let mut known: Vec<Option<HelmfileReleaseStatus>> = known.into_iter().map(Some).collect();
        let mut rows = Vec::with_capacity(planned.releases.len());
        for release in &planned.releases {
            let of_it = places.remove(&release.key).and_then(|at| known.get_mut(at)?.take());
            rows.push(planned_row(release, of_it));
        }
        rows.extend(known.into_iter().flatten());
        book.set_rows(rows);
    }

    /// Reconciles all releases of a plan. `None` if the Helmfile changed meanwhile.
    pub(super) async fn keep(
        &self,
        planned: &HelmfilePlan,
        run: &HelmfileRun<'_, K>,
    ) -> Option<ReleaseOutcomes> {
        let keeping =
            ReleaseReconciliation { session: self, planned, run, noted: Mutex::default() };
        let left = in_turn(ReleaseOrder::of_plan(planned), &keeping).await?;
        // The plan rejected cycles, so no release is left.
        left.into_iter().for_each(|release| keeping.note(release, ReleaseProgress::Waits));
        let noted = keeping.noted.into_inner();
        Some(noted.outcomes)
    }

    /// A release has an outcome that no operation gave.
    pub(super) fn unfinished(
        &self,
        run: &HelmfileRun<'_, K>,
        key: &ReleaseKey,
        outcome: RunOutcome,
    ) -> ReleaseProgress {
        run.book.update(key, |row| {
            row.message = Some(run.secrets.mask(outcome.text()));
            if !is_under_way(row) {
                row.state = match outcome {
                    RunOutcome::Blocked(..) => ReleaseState::Waiting,
                    RunOutcome::Running(..) => ReleaseState::Progressing,
                    _ => ReleaseState::Failed,
                };
            }
        });
        ReleaseProgress::Unfinished(outcome)
    }

    async fn keep_one(
        &self,
        planned: &PlannedRelease,
        all: &HelmfilePlan,
        run: &HelmfileRun<'_, K>,
    ) -> Option<ReleaseProgress> {
        let key = &planned.key;
        let node = self.part(&planned.key);
        let target = match run.places.of(key) {
            Ok(target) => target,
            Err(outcome) => return Some(self.unfinished(run, key, outcome)),
        };
        let operation = &planned.operation;
        let remembered = self.remembered(key, target);
        let chart = match (&planned.chart, run.suspensions.of(key)) {
            (Ok(chart), _) => chart,
            (Err(_), Some(entry)) => {
                return self.suspend_one(key, operation, entry, &remembered, run).await;
            }
            (Err(why), None) => return Some(self.unfinished(run, key, refused_chart(why))),
        };
        let digest =
            release_specification::digest(planned, chart, run.spec, run.timeouts, target.place());
        let row = run.book.row(key);
        let as_before = remembered.last().filter(|last| {
            last.digest == digest
                && last.generation == run.object.meta().generation
                && !hold_conditions::is_asked(&**run.object)
                && !run.woken.contains(&node)
        });
        let uid = run.object.uid().unwrap_or_default();
        let release = (key.name.as_str(), key.namespace.as_str(), key.context.as_str());
        let namespace = &self.node.namespace;
        // An answered lifecycle event does not change the objects that are awaited.
        let is_asking =
            !lifecycle::events_of(&self.context, namespace, &uid, Some(release)).is_empty();
        let as_before = as_before.filter(|_| !is_asking);
        if let Some(progress) = as_before.and_then(|last| self.unchanged(&last, target, &node, run))
        {
            return Some(progress);
        }
        if let Some(entry) = run.suspensions.of(key) {
            return self.suspend_one(key, operation, entry, &remembered, run).await;
        }
        if let Some(outcome) = run.unreachable_clusters.at(target) {
            return Some(self.unfinished(run, key, outcome));
        }
        let loaded = match chart.in_use(&self.context).await {
            Ok(loaded) => loaded,
            Err(text) => {
                // The next run makes the plan again, and with it the file of the chart.
                self.memory().plan = None;
                let outcome = RunOutcome::Failed(HELMFILE_ERROR, text, NextRunTrigger::default());
                return Some(self.unfinished(run, key, outcome));
            }
        };
        let asked = ReleaseGoal::Kept { planned, chart, loaded: &loaded };
        let made = self.desired_release(run, key, operation, asked, row.as_ref());
        let desired_release = match made {
            Ok(desired_release) => desired_release,
            Err(outcome) => return Some(self.unfinished(run, key, outcome)),
        };
        if let Err(outcome) = self.attempt_anew(run, key, &desired_release.desired).await {
            return Some(self.unfinished(run, key, outcome));
        }
        let owner = HelmfileReleaseOwner {
            namesakes: all.namesakes(key).cloned().collect(),
            hooks: planned.hooks.clone(),
            timeout: operation.timeout.map_or(run.timeouts.timeout, Duration::from_secs),
            unanswered: remembered.unanswered.clone(),
            ..self.owner(run, key)
        };
        let owner = Arc::new(owner);
        let mut outcome = self.drive(run, &owner, &desired_release, &remembered).await?;
        let known = row.and_then(|row| row.digest);
        if outcome.is_settled() {
            let again = ReleaseDigestChange { digest: &digest, known: known.as_deref() };
            if let Err(held) =
                self.reapply(&owner, &desired_release, &remembered, again, run).await?
            {
                self.unfinished(run, key, held.clone());
                outcome = held;
            }
        }
        let settled = outcome.is_settled();
        let chart = format!("{}-{}", chart.name, chart.version);
        run.book.update(key, |row| {
            if settled {
                row.digest = Some(digest.clone());
                row.chart = Some(chart);
            }
        });
        if settled && let Err(outcome) = self.end_reapplied(key, run).await {
            return Some(self.unfinished(run, key, outcome));
        }
        let generation = run.object.meta().generation;
        remembered.set_last(Some(LastReleaseRun { digest, generation, outcome: outcome.clone() }));
        Some(if settled { ReleaseProgress::Kept } else { ReleaseProgress::Unfinished(outcome) })
    }

    /// Makes a release forget its failures, if a user lifted its Quarantine.
    async fn attempt_anew(
        &self,
        run: &HelmfileRun<'_, K>,
        key: &ReleaseKey,
        desired: &ReleaseDesiredState,
    ) -> Result<(), RunOutcome> {
        let lifted = run.quarantines.and_then(|quarantines| quarantines.to_attempt(desired));
        let Some(lifted) = lifted else { return Ok(()) };
        run.book.update(key, |row| row.status = without_failures(&row.status));
        run.book.flush().await?;
        let retry_at = self.in_future(self.context.settings.requeue_dependency);
        note_attempt(&self.context, lifted, retry_at).await
    }

    /// The outcome of the last run of a release, if nothing can have changed since.
    fn unchanged(
        &self,
        last: &LastReleaseRun,
        target: &ClusterTarget,
        node: &ObjectKey,
        run: &HelmfileRun<'_, K>,
    ) -> Option<ReleaseProgress> {
        match &last.outcome {
            RunOutcome::Settled(..) => {
                target.watcher().is_calm(node).then_some(ReleaseProgress::Kept)
            }
            // A user lifts a Quarantine without a change of the desired state.
            RunOutcome::Stalled(condition_reason::QUARANTINED, _)
            | RunOutcome::Blocked(QUARANTINES_UNKNOWN, ..) => None,
            RunOutcome::Stalled(..) => Some(ReleaseProgress::Unfinished(last.outcome.clone())),
            // Windows open without a change of the desired state.
            RunOutcome::Blocked(why, ..) if *why == condition_reason::WINDOW_CLOSED => {
                let is_closed = self.is_closed(run.object);
                is_closed.then(|| ReleaseProgress::Unfinished(last.outcome.clone()))
            }
            // A Freeze ends, and a user goes past one, without a change of the desired state.
            RunOutcome::Blocked(why, ..)
                if matches!(*why, condition_reason::FROZEN | condition_reason::FREEZES_UNKNOWN) =>
            {
                None
            }
            // An approval changes nothing else, and neither does a Plan that a user deletes.
            RunOutcome::Running(BUDGET_EXCEEDED | PLAN_PENDING, ..)
            | RunOutcome::Blocked(PLAN_REJECTED, ..) => None,
            outcome => {
                let due = outcome
                    .wake()
                    .and_then(NextRunTrigger::earliest)
                    .is_none_or(|at| at <= run.now);
                (!due).then(|| ReleaseProgress::Unfinished(outcome.clone()))
            }
        }
    }

    /// The desired state of a release.
    pub(super) fn desired_release(
        &self,
        run: &HelmfileRun<'_, K>,
        key: &ReleaseKey,
        operation: &ReleaseOperationSettings,
        asked: ReleaseGoal<'_>,
        row: Option<&HelmfileReleaseStatus>,
    ) -> Result<Arc<DesiredRelease>, RunOutcome> {
        let (planned, permit) = match asked {
            ReleaseGoal::Kept { planned, chart, .. } => (Some((planned, chart)), None),
            ReleaseGoal::Stopped => (None, None),
            ReleaseGoal::Removed(permit) => (None, Some(permit)),
        };
        let chart = match asked {
            ReleaseGoal::Kept { loaded, .. } => Some(loaded.clone()),
            ReleaseGoal::Stopped | ReleaseGoal::Removed(_) => None,
        };
        let is_suspended = matches!(asked, ReleaseGoal::Stopped);
        let helmfile = &**run.object;
        let settings = &self.context.settings;
        release_specification::check(key, row)?;
        let mut spec =
            release_specification::release_spec(run.spec, key, operation, run.timeouts, settings)?;
        let skips_schema = planned.is_some_and(|(planned, _)| planned.skips_schema);
        spec.options = spec.options.skipping_schema(skips_schema);
        let quarantines = run.quarantines.filter(|_| planned.is_some());
        if quarantines.is_some_and(OwnerQuarantines::quarantines) {
            // Otherwise the release would be retried without end, as Helm retries it at each call, and it would never be
            // quarantined.
            attempt_once(&mut spec.release, operation.rolls_back);
        }
        let status = row.map(|row| row.status.clone()).unwrap_or_default();
        let known = release_specification::known(helmfile, status);
        let inputs = match planned {
            Some((planned, chart)) => release_specification::inputs(planned, chart),
            None => helm_release::released_parts(&known, is_suspended),
        };
        let mut requests = release_specification::requests(helmfile, key, &known);
        if self.is_verified_only() {
            requests.keep_known(&known);
        }
        let source = helmfile_source::source(helmfile).map(|it| it.to_string());
        let freeze = match is_suspended {
            true => run.rollback_freeze.clone(),
            false => run.freeze.clone(),
        };
        let desired = ReleaseDesiredState {
            kube_context: key.context.clone(),
            deleted: permit.is_some(),
            suspended: is_suspended,
            gates: ReleaseChangeGates {
                removal: permit.map(RemovalPermit::cause).unwrap_or_default(),
                freeze,
                ..self.gates(helmfile)
            },
            lifecycles: lifecycle::holding(&self.context, helmfile),
            requests,
            origin: OperationOrigin {
                source: source.unwrap_or_default(),
                revision: run.revision.to_owned(),
                ..release_specification::origin(helmfile, key)
            },
            ..spec.desired(helmfile, inputs, known.failures, settings)
        };
        let failures = quarantines.map(|quarantines| quarantines.policy(&desired, &known));
        let failures = failures.unwrap_or_default();
        let desired = ReleaseDesiredState { failures, ..desired };
        Ok(Arc::new(DesiredRelease {
            desired,
            spec: Arc::new(spec),
            values: planned.map(|(planned, _)| planned.values.clone()).unwrap_or_default(),
            chart,
            expressions: self.expressions.clone(),
            secrets: run.secrets.clone(),
            preparing: PreparingPermit::default(),
        }))
    }

    /// A Helmfile as the owner of a release without hooks.
    pub(super) fn owner(
        &self,
        run: &HelmfileRun<'_, K>,
        key: &ReleaseKey,
    ) -> HelmfileReleaseOwner<K> {
        HelmfileReleaseOwner {
            book: run.book.clone(),
            key: key.clone(),
            namesakes: Vec::new(),
            hooks: Arc::default(),
            timeout: run.timeouts.timeout,
            secrets: run.secrets.clone(),
            has_begun: AtomicBool::new(false),
            unanswered: Arc::default(),
        }
    }

    /// Runs the release runner for a release until it has an outcome, and updates the row of the release in the status. `None`
    /// if the Helmfile changed meanwhile.
    pub(super) async fn drive(
        &self,
        run: &HelmfileRun<'_, K>,
        owner: &Arc<HelmfileReleaseOwner<K>>,
        desired_release: &Arc<DesiredRelease>,
        remembered: &ReleaseRunState,
    ) -> Option<RunOutcome> {
        let key = &owner.key;
        let ReleaseRunState { target, node, drive: memory, .. } = remembered;
        let driven =
            release_run::drive(&self.context, target, node, owner, desired_release, memory).await;
        if owner.has_begun.load(Ordering::Relaxed) {
            *remembered.begun_hooks.lock() = Some(owner.hooks.digest.clone());
            remembered.has_begun.store(true, Ordering::Relaxed);
        }
        let driven = self.concluded(run, owner, desired_release, driven?).await;
        if driven.is_unanswered {
            run.unreachable_clusters.note(&remembered.target, &driven.outcome);
        }
        let release_run = report::ReleaseRunResult {
            outcome: &driven.outcome,
            desired: Some(&desired_release.desired),
            generation: desired_release.desired.generation,
            marks: &[],
            running: driven.running.as_deref(),
            announcement: self.context.failure_announcement(node),
            now: jiff::Timestamp::now(),
        };
        let revision = release_specification::latest_version(&owner.status());
        let before = run.book.row(key).map(|row| row.status).unwrap_or_default();
        if let Some(event) = report::held_event(&before, &driven.outcome) {
            run.book.tell(placed::<K>(event, &key.context));
        }
        if let Some(event) = report::failure_after_takeover(&before, &release_run) {
            let event = ObjectEvent { message: desired_release.masked(&event.message), ..event };
            run.book.tell(placed::<K>(event, &key.context));
            self.context.note_announced_failure(node);
        }
        run.book.update(key, |row| {
            row.status = report::ended(&row.status, &release_run);
            row.revision = revision;
            let text = Some(desired_release.masked(&outcome_text(&driven.outcome)));
            (row.state, row.message) = match &driven.outcome {
                RunOutcome::Blocked(..) => (ReleaseState::Waiting, text),
                _ if desired_release.desired.deleted => (ReleaseState::Uninstalling, text),
                RunOutcome::Settled(..) => (ReleaseState::Ready, None),
                RunOutcome::Running(..) => (ReleaseState::Progressing, text),
                RunOutcome::Failed(..) | RunOutcome::Stalled(..) => (ReleaseState::Failed, text),
            };
        });
        Some(driven.outcome)
    }

    /// The outcome of a release's run. A release that has failed as often as it may is quarantined.
    async fn concluded(
        &self,
        run: &HelmfileRun<'_, K>,
        owner: &HelmfileReleaseOwner<K>,
        desired_release: &DesiredRelease,
        driven: ReleaseRunnerReport,
    ) -> ReleaseRunnerReport {
        let Some(quarantines) = run.quarantines else { return driven };
        let name = owner.key.to_string();
        let context = &self.context;
        let node = &self.node;
        let release = ReleaseQuarantineInputs { context, node, name: &name, desired_release };
        let status = owner.status();
        quarantines.conclude(release, &**run.object, &status, driven).await
    }

    /// Whether the windows of the object are closed now.
    pub(super) fn is_closed(&self, object: &K) -> bool {
        self.gates(object).closes.is_some_and(|at| at <= jiff::Timestamp::now())
    }

    /// The windows that hold releases at their phases. Freezes are checked by the run.
    pub(super) fn gates(&self, object: &K) -> ReleaseChangeGates {
        ReleaseChangeGates {
            closes: change_window::closes(object, self.began),
            ..ReleaseChangeGates::default()
        }
    }
}

/// The outcome of a release whose chart the helmfile may not name.
fn refused_chart(why: &str) -> RunOutcome {
    RunOutcome::Failed(condition_reason::ARTIFACT_FAILED, why.to_owned(), NextRunTrigger::default())
}

/// The row of a planned release, with the known facts about it.
fn planned_row(
    release: &PlannedRelease,
    known: Option<HelmfileReleaseStatus>,
) -> HelmfileReleaseStatus {
    let new = || HelmfileReleaseStatus {
        kube_context: release.key.context.clone(),
        name: release.key.name.clone(),
        namespace: release.key.namespace.clone(),
        ..HelmfileReleaseStatus::default()
    };
    let mut row = known.unwrap_or_else(new);
    row.needs = release.needs.iter().map(ReleaseKey::to_string).collect();
    row.helmfile = Some(release.file.clone()).filter(|it| !it.is_empty());
    // The helmfile has the release again. A running uninstall comes to its end, and then the release is installed.
    row.state = match row.state {
        ReleaseState::Uninstalling => ReleaseState::Progressing,
        ReleaseState::LeftOut => ReleaseState::Pending,
        state => state,
    };
    row
}

/// The text of an outcome in a row.
fn outcome_text(outcome: &RunOutcome) -> String {
    match outcome {
        RunOutcome::Blocked(why, what, _) if *why == reconcile::condition_reason::WINDOW_CLOSED => {
            format!("{what} waits until a window opens")
        }
        outcome => outcome.text().to_owned(),
    }
}

/// The releases of a plan, in their turns.
struct ReleaseReconciliation<'k, K: HelmfileCustomResource> {
    session: &'k HelmfileSession<'k, K>,
    planned: &'k HelmfilePlan,
    run: &'k HelmfileRun<'k, K>,
    noted: Mutex<ReleasePassProgress>,
}

/// The progress of releases in this pass.
#[derive(Default)]
struct ReleasePassProgress {
    outcomes: ReleaseOutcomes,
    /// Missing releases, by their helmfile. All releases of later helmfiles wait for them.
    absent: BTreeMap<usize, ReleaseNameList>,
}

impl ReleasePassProgress {
    fn note(&mut self, release: &PlannedRelease, progress: ReleaseProgress) {
        if !progress.is_there() {
            self.absent.entry(release.helmfile).or_default().push(&release.key);
        }
        self.outcomes.insert(release.key.clone(), progress);
    }

    /// The missing releases that a release waits for.
    fn missing(&self, release: &PlannedRelease) -> ReleaseNameList {
        let mut missing = ReleaseNameList::default();
        let is_there =
            |need: &ReleaseKey| self.outcomes.get(need).is_none_or(ReleaseProgress::is_there);
        let needs = release.needs.iter().filter(|need| !is_there(need));
        needs.for_each(|need| missing.push(need));
        let before = self.absent.range(..release.helmfile);
        before.for_each(|(_, absent)| missing.extend(absent));
        missing
    }
}

impl<K: HelmfileCustomResource> ReleaseReconciliation<'_, K> {
    fn noted(&self) -> MutexGuard<'_, ReleasePassProgress> {
        self.noted.lock()
    }

    fn note(&self, release: usize, progress: ReleaseProgress) {
        self.noted().note(&self.planned.releases[release], progress);
    }
}

impl<K: HelmfileCustomResource> OrderedReleaseOperations for ReleaseReconciliation<'_, K> {
    fn place(&self, release: usize) -> ReleaseClusterId<'_> {
        self.run.places.id(&self.planned.releases[release].key)
    }

    fn is_due(&self, release: usize) -> bool {
        let key = &self.planned.releases[release].key;
        let missing = self.noted().missing(&self.planned.releases[release]);
        if missing.is_empty() || self.session.is_known_under_way(key) {
            return true;
        }
        self.run.book.update(key, |row| {
            row.state = ReleaseState::Waiting;
            row.message = Some(format!("waiting for {missing}"));
        });
        self.note(release, ReleaseProgress::Waits);
        false
    }

    async fn turn(&self, release: usize) -> OrderedOperationOutcome {
        let planned = &self.planned.releases[release];
        match self.session.keep_one(planned, self.planned, self.run).await {
            Some(progress) => {
                self.note(release, progress);
                OrderedOperationOutcome::On
            }
            None => OrderedOperationOutcome::Overtaken,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::release;
    use super::*;

    #[test]
    fn few_of_many_releases_that_are_not_there_are_named() {
        let mut noted = ReleasePassProgress::default();
        for at in 0..600 {
            let outcome = RunOutcome::Failed(
                reconcile::condition_reason::RECONCILIATION_FAILED,
                String::new(),
                NextRunTrigger::default(),
            );
            noted.note(&release(&format!("a{at}"), 0, &[]), ReleaseProgress::Unfinished(outcome));
        }
        noted.note(&release("b", 1, &[]), ReleaseProgress::Kept);
        noted.note(&release("c", 2, &[]), ReleaseProgress::Waits);
        let missing =
            |helmfile, needs: &[&str]| noted.missing(&release("web", helmfile, needs)).to_string();
        assert_eq!(missing(1, &["b"]), "n/a0, n/a1, n/a2 and 597 more");
        assert_eq!(missing(2, &["c", "b"]), "n/c, n/a0, n/a1 and 598 more");
        assert_eq!(missing(0, &["b", "d"]), "");
    }

    #[test]
    fn a_release_that_is_in_the_helmfile_again_is_not_uninstalling_any_more() {
        let state = |state| {
            let row = HelmfileReleaseStatus { state, ..HelmfileReleaseStatus::default() };
            planned_row(&release("web", 0, &[]), Some(row)).state
        };
        assert_eq!(state(ReleaseState::Uninstalling), ReleaseState::Progressing);
        assert_eq!(state(ReleaseState::LeftOut), ReleaseState::Pending);
        assert_eq!(state(ReleaseState::Ready), ReleaseState::Ready);
        assert_eq!(planned_row(&release("web", 0, &["db"]), None).needs, ["n/db"]);
    }
}
