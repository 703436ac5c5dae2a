//! A simulated cluster for tests of plans. It performs steps, records them, and can simulate a crash of the program at any
//! step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use helm::chart::ChartMetadata;
use lifecycle::{LifecycleEventState, ObservedLifecycleEvent};
use reconcile::{PlannerDecision, ReconcilePlanner as _, RunOutcome, Time};

use crate::gated_release_change::ReleaseChangeGates;
use crate::helm_release_planner::{
    HelmReleasePlanner, ReleaseObservedState, RequiredObservation, RunProgress, need,
};
use crate::journal::{OperationJournal, OperationKind};
use crate::operation::{
    ObservationScope, ObservedHealth, ObservedHookObject, ObservedLiveObjects,
    RecordAndJournalWrite, StepOutcome, rolled_back,
};
use crate::planned_operation::PlannedOperation;
use crate::record::{
    GoTimestamp, HookRecord, ReleaseRecord, RevisionInfo, RevisionStatus as Life, StoredChart,
};
use crate::release_decision::ReleaseDrift;
use crate::release_spec::{
    AnnotationRequests, InstallSettings, ReleaseDesiredState, ReleaseSpec, RollbackSettings,
    TestSettings, UninstallSettings, UpgradeSettings,
};
use crate::release_step::ReleaseStep;
use crate::release_target::ReleaseTarget;
use crate::revisions::{ReleaseRevision, ReleaseRevisions};
use crate::status::HelmReleaseStatusFields;

const ONE_MINUTE: Duration = Duration::from_secs(60);

/// A release `apps/web` of chart `c`, by its version and a word for its values.
pub(crate) fn desired(version: &str, values: &str) -> ReleaseDesiredState {
    ReleaseDesiredState {
        owner: "uid".to_owned(),
        kube_context: String::new(),
        generation: 1,
        spec: ReleaseSpec {
            target: ReleaseTarget::of("web", "apps", "", "", ""),
            post_renderers_digest: String::new(),
            common_metadata_digest: String::new(),
            timeout: 5 * ONE_MINUTE,
            max_history: 5,
            install: InstallSettings { timeout: 5 * ONE_MINUTE, ..InstallSettings::default() },
            upgrade: UpgradeSettings { timeout: 5 * ONE_MINUTE, ..UpgradeSettings::default() },
            rollback: RollbackSettings { timeout: 5 * ONE_MINUTE, ..RollbackSettings::default() },
            test: TestSettings { timeout: 5 * ONE_MINUTE, ..TestSettings::default() },
            uninstall: UninstallSettings {
                timeout: 5 * ONE_MINUTE,
                ..UninstallSettings::default()
            },
            drift: crate::release_spec::DriftMode::Disabled,
        },
        deleted: false,
        suspended: false,
        gates: ReleaseChangeGates::default(),
        lifecycles: crate::lifecycle_hold::ReleaseLifecycles::default(),
        chart_name: "c".to_owned(),
        chart_version: version.to_owned(),
        app_version: String::new(),
        oci_digest: String::new(),
        config_digest: helm::values::digest(&config(values)).unwrap(),
        inputs: format!("sha256:{version}/{values}"),
        requests: AnnotationRequests::default(),
        failures: crate::failure_policy::FailurePolicy::default(),
        origin: crate::OperationOrigin { generation: 1, ..crate::OperationOrigin::default() },
        retry: Duration::from_secs(1),
        interval: 10 * ONE_MINUTE,
    }
}

pub(crate) fn config(values: &str) -> golang::value::GoMap {
    let entries = [(golang::value::GoString::from("v"), golang::GoRuntimeValue::string(values))];
    golang::value::GoMap::new(golang::value::GoType::Any, entries)
}

/// A hook as in a chart: a Job for these events.
pub(crate) fn hook(name: &str, events: &[&str], policies: &[&str]) -> HookRecord {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    HookRecord {
        name: name.to_owned(),
        kind: if events == ["test"] { "Pod" } else { "Job" }.to_owned(),
        path: format!("c/templates/{name}.yaml"),
        events: words(events),
        delete_policies: words(policies),
        ..HookRecord::default()
    }
}

/// A record of chart `c`.
pub(crate) fn record(version: i64, chart: &str, values: &str, life: &str) -> ReleaseRecord {
    let metadata = ChartMetadata {
        name: "c".to_owned(),
        version: chart.to_owned(),
        api_version: "v2".to_owned(),
        ..ChartMetadata::default()
    };
    ReleaseRecord {
        name: "web".to_owned(),
        namespace: "apps".to_owned(),
        version,
        info: RevisionInfo { status: Life::parse(life), ..RevisionInfo::default() },
        chart: Some(StoredChart { metadata: Some(metadata), ..StoredChart::default() }),
        config: config(values),
        manifest: format!("---\n# {chart}\n"),
        hooks: Vec::new(),
        apply_method: "ssa".to_owned(),
        labels: BTreeMap::new(),
    }
}

/// The object of a hook.
#[derive(Debug, Clone)]
struct HookJob {
    operation: String,
    uid: String,
    /// How often it is observed before it ends.
    polls: usize,
}

/// A simulated cluster with one release, for tests of the planner.
#[derive(Debug, Clone)]
pub(crate) struct SimulatedCluster {
    pub(crate) desired: ReleaseDesiredState,
    pub(crate) status: HelmReleaseStatusFields,
    pub(crate) now: Time,
    pub(crate) records: BTreeMap<i64, (ReleaseRecord, Option<OperationJournal>)>,
    pub(crate) hooks: Vec<HookRecord>,
    /// The faults to simulate: `prepare`, `apply`, `ready`, `delete`, `create NAME`, `run NAME`, `correct`.
    pub(crate) faults: BTreeSet<String>,
    /// Objects that never become ready, and hooks that never end.
    pub(crate) slow: BTreeSet<String>,
    pub(crate) drift: ReleaseDrift,
    pub(crate) contested: Option<(String, Time)>,
    /// The steps that were performed, in order.
    pub(crate) log: Vec<String>,
    /// Events that were sent.
    pub(crate) events: Vec<String>,
    jobs: BTreeMap<String, HookJob>,
    /// Hooks whose objects disappear once they have ended.
    pub(crate) vanishing: BTreeSet<String>,
    /// The watched hook, by its operation and name, and its last observed state. A crash loses it.
    watched: Option<((String, String), Option<ObservedHookObject>)>,
    /// Operations with the hooks that they ever began.
    begun: BTreeSet<(String, String)>,
    uids: usize,
    /// Events of lifecycles.
    pub(crate) asked: Vec<ObservedLifecycleEvent>,
    /// The names of all events that there ever were.
    names: BTreeSet<String>,
    /// The applied revision and chart.
    pub(crate) applied: Option<(i64, String)>,
    /// How many steps are performed before the crash, and whether the last of them takes effect.
    pub(crate) crash: Option<(usize, bool)>,
    pub(crate) steps: usize,
    /// The operations that were judged, in order.
    pub(crate) judged: Vec<PlannedOperation>,
    /// How many objects each of them is without approval.
    pub(crate) deletions: usize,
}

/// Where a run in the simulated cluster ended.
#[derive(Debug)]
pub(crate) enum SimulatedRunEnd {
    Outcome(RunOutcome),
    Crash,
}

impl SimulatedCluster {
    pub(crate) fn new(desired: ReleaseDesiredState) -> Self {
        Self {
            desired,
            status: HelmReleaseStatusFields::default(),
            now: Time::from_second(1_800_000_000).unwrap(),
            records: BTreeMap::new(),
            hooks: Vec::new(),
            faults: BTreeSet::new(),
            slow: BTreeSet::new(),
            drift: ReleaseDrift::None,
            contested: None,
            log: Vec::new(),
            events: Vec::new(),
            jobs: BTreeMap::new(),
            vanishing: BTreeSet::new(),
            watched: None,
            begun: BTreeSet::new(),
            uids: 0,
            asked: Vec::new(),
            names: BTreeSet::new(),
            applied: None,
            crash: None,
            steps: 0,
            judged: Vec::new(),
            deletions: 0,
        }
    }

    pub(crate) fn fails(&mut self, fault: &str) {
        self.faults.insert(fault.to_owned());
    }

    /// Answers every event that is open.
    pub(crate) fn answer(&mut self, state: LifecycleEventState) {
        for event in self.asked.iter_mut().filter(|it| it.state.is_open()) {
            event.state = state;
        }
    }

    pub(crate) fn revisions(&self) -> ReleaseRevisions {
        let known = self.records.values().map(|(record, journal)| ReleaseRevision {
            record: Arc::new(record.clone()),
            journal: journal.clone(),
        });
        ReleaseRevisions::new(known.collect(), Vec::new())
    }

    /// Runs until there is an outcome, as `reconcile::drive` does it.
    pub(crate) fn run(&mut self) -> SimulatedRunEnd {
        let mut ran = RunProgress::default();
        let mut outcome: Option<StepOutcome> = None;
        let mut done: Vec<ReleaseStep> = Vec::new();
        for _ in 0..500 {
            let observed = self.observe(&ran, outcome.as_ref());
            let steps = match HelmReleasePlanner::plan(&self.desired, &observed) {
                PlannerDecision::Act(steps) => steps,
                PlannerDecision::Outcome(run_outcome) => {
                    assert!(!run_outcome.has_empty_wake(), "{run_outcome:?}");
                    return SimulatedRunEnd::Outcome(run_outcome);
                }
            };
            assert!(!steps.is_empty());
            for step in steps {
                assert!(
                    !done.contains(&step),
                    "already done in this run: {step:?}\n{:#?}",
                    self.log
                );
                self.steps += 1;
                let crash = self.crash.filter(|(at, _)| *at == self.steps);
                if crash.is_some_and(|(_, is_done)| !is_done) {
                    return self.crashed();
                }
                outcome = Some(self.perform(&step));
                if crash.is_some() {
                    return self.crashed();
                }
                ran.note(&step);
                done.push(step);
            }
        }
        panic!("not settled: {:#?}", self.log);
    }

    /// Simulates a crash. Until the program runs again, hooks that are then gone come to their end.
    fn crashed(&mut self) -> SimulatedRunEnd {
        self.watched = None;
        self.jobs.retain(|name, _| !self.vanishing.contains(name));
        SimulatedRunEnd::Crash
    }

    /// Runs again and again while time passes, until nothing wakes it but the interval.
    pub(crate) fn settle(&mut self) -> RunOutcome {
        for _ in 0..40 {
            match self.run() {
                SimulatedRunEnd::Crash => self.log.push("CRASH".to_owned()),
                SimulatedRunEnd::Outcome(outcome) => {
                    match outcome.wake().and_then(reconcile::NextRunTrigger::earliest) {
                        Some(at) if at < self.now + self.desired.interval => {
                            self.now = at.max(self.now);
                        }
                        _ => return outcome,
                    }
                }
            }
        }
        panic!("never settled: {:#?}", self.log);
    }

    fn observe(
        &mut self,
        ran: &RunProgress,
        outcome: Option<&StepOutcome>,
    ) -> ReleaseObservedState {
        let revisions = self.revisions();
        let mut live = ObservedLiveObjects::default();
        let mut drift = None;
        match need(&self.desired, &self.status, &revisions) {
            RequiredObservation::Nothing => {}
            RequiredObservation::Drift => drift = Some(self.drift.clone()),
            RequiredObservation::Operation(scope) => {
                if let Some(last) = revisions.last() {
                    live = self.live(scope, &last.record, last.journal.as_ref());
                }
            }
        }
        (live.events, live.glass) = (self.asked.clone(), self.desired.lifecycles.glass);
        ReleaseObservedState {
            now: self.now,
            status: self.status.clone(),
            revisions,
            live,
            drift,
            contested: self.contested.clone(),
            outcome: outcome.cloned(),
            ran: ran.clone(),
        }
    }

    fn live(
        &mut self,
        scope: ObservationScope,
        record: &ReleaseRecord,
        journal: Option<&OperationJournal>,
    ) -> ObservedLiveObjects {
        let health = |faults: &BTreeSet<String>, slow: &BTreeSet<String>, what: &str| {
            if slow.contains(what) {
                ObservedHealth::Pending(vec![format!(
                    "Deployment/apps/{what} status: 'InProgress'"
                )])
            } else if faults.contains(what) {
                ObservedHealth::Failed(format!("Deployment/apps/{what} failed"))
            } else {
                ObservedHealth::Done
            }
        };
        let mut hook = None;
        let mut objects = None;
        let mut hook_watched = false;
        match scope {
            ObservationScope::Nothing => {}
            ObservationScope::Ready { .. } => {
                objects = Some(health(&self.faults, &self.slow, "ready"));
            }
            ObservationScope::Gone => objects = Some(health(&self.faults, &self.slow, "gone")),
            ObservationScope::Hook(place) => {
                self.watched = None;
                hook = Some(self.hook(&record.hooks[place].name, journal));
            }
            ObservationScope::Run(place) => {
                let name = &record.hooks[place].name;
                let operation = journal.map(|journal| journal.id.clone()).unwrap_or_default();
                let key = (operation, name.clone());
                let seen = self.watched.take().filter(|(watched, _)| *watched == key);
                let was_watched = seen.is_some();
                let seen = seen.and_then(|(_, seen)| seen);
                let found = match self.hook(name, journal) {
                    ObservedHookObject::Missing => {
                        seen.clone().unwrap_or(ObservedHookObject::Missing)
                    }
                    found => found,
                };
                let is_ours = matches!(found, ObservedHookObject::Ours { .. });
                let has_ended = matches!(
                    &found,
                    ObservedHookObject::Ours {
                        health: ObservedHealth::Done | ObservedHealth::Failed(_),
                        ..
                    }
                );
                if has_ended && self.vanishing.contains(name) {
                    self.jobs.remove(name);
                }
                hook_watched = was_watched || !journal.is_some_and(|it| it.hook_begun);
                self.watched = Some((key, is_ours.then(|| found.clone())));
                hook = Some(found);
            }
        }
        // Polls each second.
        let again = self.now.checked_add(Duration::from_secs(1)).ok();
        ObservedLiveObjects { hook, hook_watched, objects, again, ..ObservedLiveObjects::default() }
    }

    fn hook(&mut self, name: &str, journal: Option<&OperationJournal>) -> ObservedHookObject {
        let operation = journal.map_or("", |journal| journal.id.as_str());
        match self.jobs.get_mut(name) {
            None => ObservedHookObject::Missing,
            Some(job) if job.operation != operation => ObservedHookObject::Theirs,
            Some(job) => {
                job.polls = job.polls.saturating_sub(1);
                let uid = job.uid.clone();
                let pending =
                    ObservedHealth::Pending(vec![format!("Job/apps/{name} status: 'InProgress'")]);
                let health = if self.slow.contains(name) || job.polls > 0 {
                    pending
                } else if self.faults.contains(&format!("run {name}")) {
                    ObservedHealth::Failed(format!("Job {name} failed"))
                } else {
                    ObservedHealth::Done
                };
                ObservedHookObject::Ours { uid, health }
            }
        }
    }

    fn perform(&mut self, step: &ReleaseStep) -> StepOutcome {
        let (line, fault) = self.done(step);
        let error = fault.filter(|fault| self.faults.contains(fault));
        let error = error.map(|fault| format!("refused: {fault}"));
        if !line.is_empty() {
            let end = if error.is_some() { ": refused" } else { "" };
            self.log.push(format!("{line}{end}"));
        }
        let created = match step {
            ReleaseStep::Apply { .. } => vec!["apps_new__Secret".to_owned()],
            _ => Vec::new(),
        };
        let judged = matches!(step, ReleaseStep::JudgeOperation(_) | ReleaseStep::Prepare { .. });
        let deletions = if judged { self.deletions } else { 0 };
        StepOutcome { created, error, deletions, ..StepOutcome::of(step) }
    }

    /// Performs a step. Returns a line for the log, and the fault that would make the step fail.
    fn done(&mut self, step: &ReleaseStep) -> (String, Option<String>) {
        match step {
            ReleaseStep::Tell(report) => {
                let contested = self.contested.as_ref().map(|(text, _)| text);
                assert_eq!(report.contested.as_ref(), contested, "`Ready` is written with this");
                self.status = report.status.clone();
                let events = report.events.iter();
                self.events.extend(events.map(|it| format!("{} {}", it.reason, it.text)));
                let progress = report.progress.as_ref().map(|progress| progress.text.clone());
                (progress.unwrap_or_default(), None)
            }
            // In this simulation nothing waits for an approval.
            ReleaseStep::JudgeOperation(operation) => {
                self.judged.push(*operation);
                (String::new(), None)
            }
            ReleaseStep::Prepare { action, version, .. } => {
                (format!("prepare {} v{version}", action.as_str()), Some("prepare".to_owned()))
            }
            ReleaseStep::Ask(ask) => (self.ask(ask), None),
            ReleaseStep::Dismiss(over) => (self.dismiss(over), None),
            ReleaseStep::Open { prune, write } => {
                prune.iter().for_each(|version| drop(self.records.remove(version)));
                self.open(write);
                let prune =
                    if prune.is_empty() { String::new() } else { format!(", prune {prune:?}") };
                (format!("open v{}{prune}", write.version), None)
            }
            ReleaseStep::Write(write) => {
                self.write(write);
                let changes: Vec<String> = write.changes.iter().map(change_text).collect();
                (changes.join(", "), None)
            }
            ReleaseStep::DeleteHook { hook, version, policy, .. } => {
                let name = self.records[version].0.hooks[*hook].name.clone();
                self.jobs.remove(&name);
                (format!("delete hook {name} ({})", policy.as_str()), None)
            }
            ReleaseStep::CreateHook { hook, version, operation } => {
                let name = self.records[version].0.hooks[*hook].name.clone();
                let fault = format!("create {name}");
                if !self.faults.contains(&fault) {
                    let begun = (operation.clone(), name.clone());
                    assert!(self.begun.insert(begun), "hook {name} was begun twice");
                    self.uids += 1;
                    let uid = format!("uid{}", self.uids);
                    let job = HookJob { operation: operation.clone(), uid, polls: 3 };
                    self.jobs.insert(name.clone(), job);
                }
                (format!("run hook {name}"), Some(fault))
            }
            ReleaseStep::Apply { version, base, .. } => {
                let chart = self.records[version].0.metadata().unwrap().version.clone();
                if !self.faults.contains("apply") {
                    self.applied = Some((*version, chart));
                }
                let base = base.map(|base| format!(" over v{base}")).unwrap_or_default();
                (format!("apply v{version}{base}"), Some("apply".to_owned()))
            }
            ReleaseStep::Delete { version, .. } => {
                self.applied = None;
                (format!("delete objects of v{version}"), Some("delete".to_owned()))
            }
            ReleaseStep::CleanUp { created, .. } => {
                (format!("clean up {}", created.join(" ")), None)
            }
            ReleaseStep::Purge { versions } => {
                versions.iter().for_each(|version| drop(self.records.remove(version)));
                (format!("purge {versions:?}"), None)
            }
            ReleaseStep::Unlock { version, description } => {
                if let Some((record, _)) = self.records.get_mut(version) {
                    record.info.status = Life::Failed;
                    record.info.description.clone_from(description);
                }
                (format!("unlock v{version}"), None)
            }
            ReleaseStep::CorrectDrift { version, digest } => {
                if !self.faults.contains("correct") {
                    self.drift = ReleaseDrift::None;
                }
                (format!("correct {digest} of v{version}"), Some("correct".to_owned()))
            }
        }
    }

    fn ask(&mut self, ask: &lifecycle::LifecycleEventRequest) -> String {
        assert!(self.names.insert(ask.name.clone()), "asked twice: {ask:?}");
        self.uids += 1;
        self.asked.push(ObservedLifecycleEvent {
            name: ask.name.clone(),
            uid: format!("uid{}", self.uids),
            lifecycle: ask.hold.lifecycle.clone(),
            phase: Some(ask.phase),
            operation: ask.operation.clone(),
            state: LifecycleEventState::Pending,
            answered_by: String::new(),
            message: String::new(),
            created: Some(self.now),
            deadline: Some(ask.deadline),
            approvals: Vec::new(),
        });
        format!("ask {} at {}", ask.hold.lifecycle, ask.phase.as_str())
    }

    fn dismiss(&mut self, over: &[lifecycle::DismissedLifecycleEvent]) -> String {
        let is_over = |event: &ObservedLifecycleEvent| over.iter().any(|it| it.uid == event.uid);
        self.asked.retain(|event| !is_over(event));
        let open = over.iter().filter(|it| it.is_open).count();
        format!("dismiss {} events, {open} of them open", over.len())
    }

    fn open(&mut self, write: &RecordAndJournalWrite) {
        let journal = write.journal.clone();
        let record = match (journal.action, journal.target.and_then(|it| self.records.get(&it))) {
            (OperationKind::Rollback, Some((target, _))) => {
                let current = &self.records[&journal.base.unwrap()].0;
                rolled_back(current, target, true, journal.started)
            }
            _ => {
                let chart = self.desired.chart_version.clone();
                let values = self.desired.inputs.rsplit('/').next().unwrap_or_default().to_owned();
                let life = match journal.action {
                    OperationKind::Install => "pending-install",
                    _ => "pending-upgrade",
                };
                let mut record = record(write.version, &chart, &values, life);
                record.info.last_deployed = Some(GoTimestamp::new(journal.started));
                record.hooks.clone_from(&self.hooks);
                record.namespace.clone_from(&self.desired.spec.target.namespace);
                record
            }
        };
        for (version, change) in &write.others {
            self.records.get_mut(version).unwrap().0.apply(change);
        }
        assert!(!self.records.contains_key(&write.version));
        self.records.insert(write.version, (record, Some(journal)));
    }

    fn write(&mut self, write: &RecordAndJournalWrite) {
        for (version, change) in &write.others {
            if let Some((record, _)) = self.records.get_mut(version) {
                record.apply(change);
            }
        }
        // The journal is parsed here, because the simulation must store only what can be read.
        let journal = OperationJournal::parse(&write.journal.text()).unwrap();
        let (record, there) = self.records.get_mut(&write.version).unwrap();
        write.changes.iter().for_each(|change| record.apply(change));
        *there = Some(journal);
    }

    /// The records of the release, as text for people.
    pub(crate) fn lives(&self) -> String {
        let lives = self.records.values().map(|(record, _)| {
            format!("v{} {} ({})", record.version, record.info.status, record.info.description)
        });
        lives.collect::<Vec<_>>().join("; ")
    }
}

fn change_text(change: &crate::record::RecordContentChange) -> String {
    use crate::record::RecordContentChange;
    match change {
        RecordContentChange::HookStarted { hook, .. } => format!("record: hook {hook} runs"),
        RecordContentChange::HookNotBegun { hook } => format!("record: hook {hook} was not begun"),
        RecordContentChange::HookEnded { hook, succeeded: true, .. } => {
            format!("record: hook {hook} succeeded")
        }
        RecordContentChange::HookEnded { hook, .. } => format!("record: hook {hook} failed"),
        RecordContentChange::Status { status, .. } => format!("record: {status}"),
    }
}
