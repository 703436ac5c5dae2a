//! Determines the next step for the present task of an operation, from the observed state of the cluster.
//!
//! Elsewhere: the list of tasks (`super`), the tasks after a failure (`failure.rs`).

use std::collections::BTreeSet;

use lifecycle::{
    LifecycleHoldContext, LifecycleHoldPhase, ObservedLifecycleEvent, OperationHoldState,
    ReleaseOrSourceRevision,
};
use reconcile::{NextRunTrigger, ObjectKey, RemovalGate, Time};

use crate::journal::{
    OperationFailure, OperationJournal, OperationKind, ReleaseWaitPolicy, shortened,
};
use crate::lifecycle_hold::revision_of;
use crate::record::{HookDeletePolicy, RecordContentChange, ReleaseRecord, RevisionStatus};
use crate::release_step::ReleaseStep;
use crate::revisions::ReleaseRevisions;

use super::{OperationTask, RecordAndJournalWrite, present};

/// The observations that [`next`] needs to decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObservationScope {
    /// No observation.
    Nothing,
    /// Whether the object of the hook with this index is deleted.
    Hook(usize),
    /// The object of the hook with this index and its result, even if the object is deleted since.
    Run(usize),
    /// Whether the objects of the record are ready.
    Ready {
        /// Whether Jobs have to be over.
        jobs: bool,
    },
    /// Whether the objects of a removal are deleted.
    Gone,
}

/// The state of the object of a hook, as a run observed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObservedHookObject {
    /// The object does not exist.
    Missing,
    /// The deletion of the object was accepted.
    Leaving,
    /// The object exists, but this operation did not create it.
    Theirs,
    /// This operation created the object. The object may be deleted by now, if its result was observed
    /// ([`ObservationScope::Run`]).
    Ours {
        /// The uid of the object.
        uid: String,
        /// The health of the object. An object other than a Job or a Pod is ready at once, unless the spec has an expression
        /// for it.
        health: ObservedHealth,
    },
}

/// The observed progress of objects, or of a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObservedHealth {
    /// Not finished. The entries name the objects that are waited for, as `Kind/namespace/name status: 'InProgress'`.
    Pending(Vec<String>),
    /// Finished: ready, ended well, or deleted.
    Done,
    /// Failed, for this reason.
    Failed(String),
}

/// The observed objects, and which objects' changes should wake the next run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObservedLiveObjects {
    /// The hook's object that [`scope`] names.
    pub hook: Option<ObservedHookObject>,
    /// Whether the run would have seen the hook's object at any time since [`OperationJournal::hook_begun`] was written.
    pub hook_watched: bool,
    /// The objects that [`scope`] means.
    pub objects: Option<ObservedHealth>,
    /// The objects to watch in the meantime.
    pub on: BTreeSet<ObjectKey>,
    /// The latest time of the next observation.
    pub again: Option<Time>,
    /// The events of lifecycles about this release, whether an operation is open or not.
    pub events: Vec<ObservedLifecycleEvent>,
    /// Whether break-glass is in force.
    pub glass: bool,
}

/// The outcome of the last step that the run did. It is forgotten with the run.
#[derive(Debug, Clone, PartialEq)]
pub struct StepOutcome {
    /// The step.
    pub step: ReleaseStep,
    /// Inventory ids of the created objects.
    pub created: Vec<String>,
    /// Inventory ids of applied objects that existed before, although the previous revision does not have them.
    pub adopted: Vec<String>,
    /// How many objects the judged operation may delete without the approval of a user.
    pub deletions: usize,
    /// The error of the step, in Helm's words.
    pub error: Option<String>,
}

impl StepOutcome {
    /// The outcome of a step that was done, created nothing and took over nothing.
    pub fn of(step: &ReleaseStep) -> Self {
        Self {
            step: step.clone(),
            created: Vec::new(),
            adopted: Vec::new(),
            deletions: 0,
            error: None,
        }
    }
}

/// The next need of an operation.
#[derive(Debug, Clone, PartialEq)]
pub enum OperationNextStep {
    /// Perform this step.
    Do(ReleaseStep),
    /// Wait. The text names the objects that are waited for.
    Wait(String, NextRunTrigger),
    /// Wait for the answer of a lifecycle, which the text names. `None` if the wait has no latest end.
    Held(String, Option<Time>),
    /// Make the observations of the [`scope`]. Without them, nothing can be decided.
    Blind,
}

/// The observations that [`next`] needs for an operation. [`ObservationScope::Nothing`] if the operation is not open, or its
/// present task needs none.
pub fn scope(journal: &OperationJournal, record: &ReleaseRecord) -> ObservationScope {
    match present(journal, record).filter(|_| journal.is_open()) {
        Some(OperationTask::Clear { hook, .. }) => ObservationScope::Hook(hook),
        Some(OperationTask::Run { hook }) => ObservationScope::Run(hook),
        Some(OperationTask::Await) => {
            ObservationScope::Ready { jobs: journal.plan.wait == ReleaseWaitPolicy::ObjectsAndJobs }
        }
        Some(OperationTask::AwaitGone) => ObservationScope::Gone,
        _ => ObservationScope::Nothing,
    }
}

/// The next step of an open operation.
///
/// `stop` says why the operation should end early, if it should. It then ends at the next task at which nothing is half done.
pub fn next(
    journal: &OperationJournal,
    record: &ReleaseRecord,
    revisions: &ReleaseRevisions,
    live: &ObservedLiveObjects,
    outcome: Option<&StepOutcome>,
    stop: Option<&str>,
    now: Time,
) -> OperationNextStep {
    let all = revisions.all().iter().map(|it| &it.record);
    let deployed = all.filter(|it| it.info.status == RevisionStatus::Deployed).map(|it| it.version);
    let base = journal.base.and_then(|version| revisions.get(version));
    let base = base.map(|it| revision_of(&it.record));
    let deployed = deployed.collect();
    let base = base.as_ref();
    let at = OperationPosition { journal, record, deployed, base, live, outcome, now };
    let Some(task) = present(journal, record) else { return at.write(at.settled()) };
    if let Some(why) = stop.filter(|_| journal.failure.is_none() && at.can_stop(task)) {
        return at.fail_with(why, false, false);
    }
    match task {
        OperationTask::Clear { hook, policy } => at.clear(hook, policy),
        OperationTask::Run { hook } => at.run(hook),
        OperationTask::Hold { hold, phase } => at.hold(hold, phase),
        OperationTask::Apply => {
            let version = record.version;
            let operation = journal.id.clone();
            let permit = RemovalGate::permit_under_way();
            let step = ReleaseStep::Apply { version, base: journal.base, operation, permit };
            at.perform(step, at.applied())
        }
        OperationTask::Await => at.wait(not_ready),
        OperationTask::Delete => {
            let version = record.version;
            let operation = journal.id.clone();
            let propagation = journal.plan.propagation;
            let permit = RemovalGate::permit_under_way();
            let step = ReleaseStep::Delete { version, propagation, operation, permit };
            at.perform(step, journal.clone())
        }
        OperationTask::AwaitGone => at.wait(not_gone),
        OperationTask::CleanUp => {
            let created = journal.created.clone();
            let operation = journal.id.clone();
            let permit = RemovalGate::permit_under_way();
            at.perform(ReleaseStep::CleanUp { created, operation, permit }, journal.clone())
        }
        OperationTask::Purge => {
            // The record with the journal is deleted last.
            let others =
                revisions.versions().into_iter().filter(|version| *version != record.version);
            OperationNextStep::Do(ReleaseStep::Purge {
                versions: others.chain([record.version]).collect(),
            })
        }
        OperationTask::Start { .. }
        | OperationTask::Mark
        | OperationTask::Supersede
        | OperationTask::Finish => at.write(at.settled()),
    }
}

/// The position of an operation, and the observed state of the cluster.
struct OperationPosition<'a> {
    journal: &'a OperationJournal,
    record: &'a ReleaseRecord,
    deployed: Vec<i64>,
    base: Option<&'a ReleaseOrSourceRevision>,
    live: &'a ObservedLiveObjects,
    outcome: Option<&'a StepOutcome>,
    now: Time,
}

impl OperationPosition<'_> {
    fn write(&self, write: RecordAndJournalWrite) -> OperationNextStep {
        OperationNextStep::Do(ReleaseStep::Write(Box::new(write)))
    }

    fn settled(&self) -> RecordAndJournalWrite {
        let write = RecordAndJournalWrite::of(self.record, self.journal.clone());
        write.settle(self.record, &self.deployed, self.now)
    }

    /// The present task is done.
    fn done(
        &self,
        journal: OperationJournal,
        changes: Vec<RecordContentChange>,
    ) -> OperationNextStep {
        let write =
            RecordAndJournalWrite { changes, ..RecordAndJournalWrite::of(self.record, journal) };
        self.write(write.advance(self.record, &self.deployed, self.now))
    }

    /// Whether nothing of a hook would be abandoned, and nothing half done.
    fn can_stop(&self, task: OperationTask) -> bool {
        let is_begun = || {
            self.journal.hook_uid.is_some()
                || self.live.hook != Some(ObservedHookObject::Missing)
                || self.may_have_vanished()
        };
        match task {
            OperationTask::Await | OperationTask::Hold { .. } => true,
            OperationTask::Run { .. } => !is_begun(),
            OperationTask::Clear { policy, .. } => policy == HookDeletePolicy::BeforeHookCreation,
            _ => false,
        }
    }

    /// Does a step, or continues with its outcome.
    fn perform(&self, step: ReleaseStep, journal: OperationJournal) -> OperationNextStep {
        match self.outcome.filter(|outcome| outcome.step == step) {
            None => OperationNextStep::Do(step),
            Some(StepOutcome { error: None, .. }) => self.done(journal, Vec::new()),
            Some(StepOutcome { error: Some(text), .. }) => self.failed(text),
        }
    }

    /// The journal with the objects that the last step created or took over.
    fn applied(&self) -> OperationJournal {
        let mut journal = self.journal.clone();
        let applied = self.outcome.filter(|it| matches!(it.step, ReleaseStep::Apply { .. }));
        if let Some(outcome) = applied {
            journal.remember_adopted(&outcome.adopted);
            if journal.plan.cleanup {
                journal.remember_created(&outcome.created);
            }
        }
        journal
    }

    fn failed(&self, text: &str) -> OperationNextStep {
        self.fail_with(text, true, false)
    }

    /// The next step after the present task failed with this message.
    fn fail_with(&self, text: &str, counts: bool, hook_ended: bool) -> OperationNextStep {
        let mut journal = self.applied();
        // An error during cleanup does not change how the operation ended. Differs(helm 4): in Helm the second error replaces
        // the first.
        if journal.failure.is_some() {
            return self.done(journal, Vec::new());
        }
        let all = super::tasks(&journal, self.record);
        let task = all.get(journal.at).copied();
        let delete = all.iter().position(|it| *it == OperationTask::Delete);
        let is_removal = journal.action.is_removal();
        let was_deleted = delete.is_some_and(|delete| delete < journal.at);
        if was_deleted {
            journal.add_fault(text);
            if task == Some(OperationTask::AwaitGone) {
                return self.done(journal, Vec::new());
            }
        }
        let mut changes = Vec::new();
        // Parity(helm 4): once its objects are deleted, the record of a removed release does not mention a hook that
        // failed before.
        if let (Some(OperationTask::Run { hook }), true) = (task, was_deleted || !is_removal) {
            changes.push(match counts {
                true => RecordContentChange::HookEnded { hook, succeeded: false, at: self.now },
                // An operation that stops early does so before a hook is begun.
                false => RecordContentChange::HookNotBegun { hook },
            });
        }
        let text = match task {
            Some(OperationTask::Delete) => {
                format!("failed to delete release: {}", self.record.name)
            }
            // A stop before a hook does not count as a failure of the hook.
            _ if !counts => text.to_owned(),
            _ => self.failure_text(text),
        };
        journal.pass(task.and_then(super::stretch), self.now, counts);
        journal.failure =
            Some(OperationFailure { at: journal.at, hook_ended, text: shortened(&text), counts });
        journal.at = 0;
        journal.since = self.now;
        (journal.hook_uid, journal.hook_begun) = (None, false);
        let write =
            RecordAndJournalWrite { changes, ..RecordAndJournalWrite::of(self.record, journal) };
        self.write(write.settle(self.record, &self.deployed, self.now))
    }

    /// The text of a failure with the moment at which a hook was run.
    fn failure_text(&self, text: &str) -> String {
        let (before, after) = super::events(self.journal.action);
        let all = super::tasks(self.journal, self.record);
        let is_hook = matches!(
            all.get(self.journal.at),
            Some(OperationTask::Run { .. } | OperationTask::Clear { .. })
        );
        let apply = all.iter().position(|it| *it == OperationTask::Apply);
        let event = match (after, apply) {
            (Some(after), Some(apply)) if self.journal.at > apply => after,
            _ => before,
        };
        match self.journal.action {
            OperationKind::Install if is_hook => format!("failed {}: {text}", event.as_str()),
            OperationKind::Upgrade if is_hook => format!("{} hooks failed: {text}", event.as_str()),
            _ => text.to_owned(),
        }
    }

    /// The result of a lifecycle's hold: the operation continues, fails, or waits for an answer.
    fn hold(&self, hold: usize, phase: LifecycleHoldPhase) -> OperationNextStep {
        let Some(hold) = self.journal.plan.holds.get(hold) else {
            return self.done(self.journal.clone(), Vec::new());
        };
        let is_removal = self.journal.action.is_removal();
        let from = self.base;
        let to = (!is_removal).then(|| revision_of(self.record));
        let from = if is_removal { Some(revision_of(self.record)) } else { from.cloned() };
        let question = LifecycleHoldContext {
            owner: &self.journal.owner,
            subject: &self.record.name,
            operation: &self.journal.id,
            phase,
            from: from.as_ref(),
            to: to.as_ref(),
            glass: self.live.glass,
            now: self.now,
        };
        let answered = |answer| {
            let mut journal = self.journal.clone();
            journal.answers.push(answer);
            journal
        };
        match question.stand(hold, &self.live.events) {
            OperationHoldState::Pass(answer) => self.done(answered(answer), Vec::new()),
            OperationHoldState::Fail(answer) => {
                let text = answer.failure();
                let journal = answered(answer);
                let Self { record, base, live, outcome, now, .. } = *self;
                let deployed = self.deployed.clone();
                OperationPosition { journal: &journal, record, deployed, base, live, outcome, now }
                    .failed(&text)
            }
            OperationHoldState::Wait(text, until) => OperationNextStep::Held(text, until),
            OperationHoldState::Ask(ask) => OperationNextStep::Do(ReleaseStep::Ask(ask)),
        }
    }

    fn clear(&self, hook: usize, policy: HookDeletePolicy) -> OperationNextStep {
        let at_start = policy == HookDeletePolicy::BeforeHookCreation;
        match &self.live.hook {
            None => OperationNextStep::Blind,
            Some(ObservedHookObject::Missing) => self.done(self.journal.clone(), Vec::new()),
            // The hook was begun before a crash. The operation waits for it and does not begin it again.
            Some(ObservedHookObject::Ours { .. }) if at_start => {
                self.done(self.journal.clone(), Vec::new())
            }
            Some(ObservedHookObject::Leaving) => self.pending(&[self.hook_name(hook)], not_gone),
            Some(ObservedHookObject::Theirs | ObservedHookObject::Ours { .. }) => {
                let version = self.record.version;
                let operation = self.journal.id.clone();
                let step = ReleaseStep::DeleteHook { version, hook, policy, operation };
                match self.outcome.filter(|outcome| outcome.step == step) {
                    None => OperationNextStep::Do(step),
                    Some(StepOutcome { error: Some(text), .. }) => self.failed(text),
                    // The deletion was accepted. The next run will observe it.
                    Some(StepOutcome { error: None, .. }) => {
                        self.pending(&[self.hook_name(hook)], not_gone)
                    }
                }
            }
        }
    }

    fn run(&self, hook: usize) -> OperationNextStep {
        let Some(object) = &self.live.hook else { return OperationNextStep::Blind };
        match (object, &self.journal.hook_uid) {
            (ObservedHookObject::Ours { uid, health }, Some(known)) if uid == known => match health
            {
                ObservedHealth::Done => {
                    let ended =
                        RecordContentChange::HookEnded { hook, succeeded: true, at: self.now };
                    self.done(self.journal.clone(), vec![ended])
                }
                ObservedHealth::Failed(text) => self.fail_with(text, true, true),
                ObservedHealth::Pending(unready) => self.pending_hook(unready),
            },
            (_, Some(_)) => self.unknown(hook),
            (ObservedHookObject::Missing | ObservedHookObject::Theirs, None)
                if self.may_have_vanished() =>
            {
                self.unknown(hook)
            }
            (ObservedHookObject::Ours { uid, .. }, None) => {
                let journal =
                    OperationJournal { hook_uid: Some(uid.clone()), ..self.journal.clone() };
                self.write(RecordAndJournalWrite::of(self.record, journal))
            }
            (ObservedHookObject::Leaving, None) => self.pending(&[self.hook_name(hook)], not_gone),
            (ObservedHookObject::Missing | ObservedHookObject::Theirs, None) => self.create(hook),
        }
    }

    fn unknown(&self, hook: usize) -> OperationNextStep {
        self.failed(&format!(
            "the result of hook {} is unknown: its object was deleted, and hooks are not run twice",
            self.hook_name(hook)
        ))
    }

    /// Whether the present hook's object may have existed and disappeared without being observed.
    fn may_have_vanished(&self) -> bool {
        self.journal.hook_begun && !self.live.hook_watched
    }

    /// Whether Kubernetes deletes the object of a hook once the hook has ended.
    fn vanishes(&self, hook: usize) -> bool {
        let hook = self.record.hooks.get(hook);
        hook.is_some_and(|hook| hook.manifest.contains("ttlSecondsAfterFinished"))
    }

    fn create(&self, hook: usize) -> OperationNextStep {
        // After a crash, a hook that was not created looks the same as one that was created and deleted.
        if self.live.hook_watched && !self.journal.hook_begun && self.vanishes(hook) {
            let journal = OperationJournal { hook_begun: true, ..self.journal.clone() };
            return self.write(RecordAndJournalWrite::of(self.record, journal));
        }
        let version = self.record.version;
        let operation = self.journal.id.clone();
        let step = ReleaseStep::CreateHook { version, hook, operation };
        match self.outcome.filter(|outcome| outcome.step == step) {
            Some(StepOutcome { error: Some(text), .. }) => {
                let path = self.record.hooks.get(hook).map_or("", |hook| hook.path.as_str());
                let event = self.event().as_str();
                self.failed(&format!("warning: Hook {event} {path} failed: {text}"))
            }
            Some(StepOutcome { error: None, .. }) => self.failed(&format!(
                "hook {} was created, but its object is missing or was replaced",
                self.hook_name(hook)
            )),
            None => OperationNextStep::Do(step),
        }
    }

    /// The moment at which the present hook is run.
    fn event(&self) -> helm::manifests::HookEvent {
        let (before, after) = super::events(self.journal.action);
        let all = super::tasks(self.journal, self.record);
        let middle =
            all.iter().position(|it| matches!(it, OperationTask::Apply | OperationTask::Delete));
        let is_after = middle.is_some_and(|middle| self.journal.at > middle);
        after.filter(|_| is_after).unwrap_or(before)
    }

    fn hook_name(&self, hook: usize) -> String {
        let hook = self.record.hooks.get(hook);
        hook.map_or_else(String::new, |hook| format!("{}/{}", hook.kind, hook.name))
    }

    fn wait(&self, late: impl Fn(&[String]) -> String) -> OperationNextStep {
        match &self.live.objects {
            None => OperationNextStep::Blind,
            Some(ObservedHealth::Done) => self.done(self.journal.clone(), Vec::new()),
            Some(ObservedHealth::Failed(text)) => self.failed(text),
            Some(ObservedHealth::Pending(unready)) => self.pending(unready, late),
        }
    }

    fn pending_hook(&self, unready: &[String]) -> OperationNextStep {
        if self.now >= self.journal.deadline() {
            return self.fail_with(&not_ready(unready), true, true);
        }
        self.waiting(unready)
    }

    fn pending(&self, unready: &[String], late: impl Fn(&[String]) -> String) -> OperationNextStep {
        if self.now >= self.journal.deadline() {
            return self.failed(&late(unready));
        }
        self.waiting(unready)
    }

    fn waiting(&self, unready: &[String]) -> OperationNextStep {
        let mut wake =
            NextRunTrigger::on(self.live.on.iter().cloned()).and_at(self.journal.deadline());
        if let Some(again) = self.live.again {
            wake = wake.and_at(again);
        }
        OperationNextStep::Wait(format!("waiting for {}", unready.join(", ")), wake)
    }
}

/// The error of a wait for readiness that took too long, in Flux's words.
fn not_ready(unready: &[String]) -> String {
    format!("timeout waiting for: [{}]", unready.join(", "))
}

/// The error of a wait for the end of objects that took too long, in Flux's words.
fn not_gone(unready: &[String]) -> String {
    format!("{} termination timeout: context deadline exceeded", unready.join(", "))
}
