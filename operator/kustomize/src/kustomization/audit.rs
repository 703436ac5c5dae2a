//! Audit records of a Kustomization. Each attempt at a revision that changed something has one, corrections of drift have one,
//! and its removal has one.
//!
//! An attempt may take several runs, because it waits for health. Their changes are collected until the attempt ends. Another
//! revision or spec, a suspension, or the deletion stops it. A new process cannot know which changes an earlier process made
//! for an unfinished attempt. It writes an audit in any case, and marks it as partial if less or nothing is left to change.
//!
//! Elsewhere: writing audits (`windlass_runtime::audit`), what runs change (`executor`).

use apply::object_changes::ObjectChange;
use crds::ReconciledObject as _;
use crds::kustomize::Kustomization;
use crds::windlass_release::{
    AuditCause, AuditCauseKind, AuditOperation, AuditOutcome, AuditRevision, AuditSubject,
    ReleaseAuditSpec,
};
use kube_core::{Resource as _, ResourceExt as _};
use lifecycle::LifecycleEventAnswer;
use objects::SecretMasking;
use reconcile::{ConditionStatus, READY, RunOutcome, StatusCondition, Time};

use super::last_attempts::BuildIdentity;
use super::{KustomizationRunReport, KustomizationSession};
use windlass_runtime::audit::{self, listed, manager_of_spec, text, took, when};
use windlass_runtime::controller_kind::REQUESTED_AT;
use windlass_runtime::object_status::conditions_of;
use windlass_runtime::{hold_conditions, source_reference};

/// The changes by a run.
#[derive(Default)]
pub(super) struct RunChanges {
    pub(super) objects: Vec<ObjectChange>,
    /// The time of the first unanswered write of an earlier run among these changes.
    pub(super) unanswered_since: Option<Time>,
    /// The state of objects whose deletion was accepted and whose end was not observed.
    pub(super) terminating: Option<String>,
    /// Whether runs observe such objects until they are gone. If not, no later run knows them.
    pub(super) is_end_awaited: bool,
}

impl RunChanges {
    /// The time when the first change was sent, by a run that began at `began` or before it.
    fn started(&self, began: Time) -> Time {
        self.unanswered_since.map_or(began, |since| since.min(began))
    }
}

/// The attempts whose audit is not written yet.
#[derive(Default)]
pub(super) struct AuditedAttempts {
    /// Whether this process has attempted anything.
    has_any: bool,
    open: Option<AuditedAttempt>,
}

/// An attempt that has not ended.
struct AuditedAttempt {
    of: Option<BuildIdentity>,
    /// The key of the audit.
    key: String,
    causes: Vec<AuditCause>,
    from: Option<AuditRevision>,
    /// The time when the first run of the attempt began.
    began: Time,
    /// The start of the audit. It is earlier if an earlier run sent a write whose change is in the audit.
    started: Time,
    changes: Vec<ObjectChange>,
    /// The state of objects whose deletion was accepted and whose end its last run did not observe.
    terminating: Option<String>,
    /// The values of Secrets in the build, which no audit may show.
    secrets: SecretMasking,
    /// The answers of lifecycles.
    answers: Vec<LifecycleEventAnswer>,
    /// Whether another process may have begun it.
    may_be_taken_over: bool,
    /// Whether the status shows that another process began it.
    is_taken_over: bool,
}

impl AuditedAttempt {
    /// The part of an audit's name that identifies an attempt. It is derived from the build and the status history, so it stays
    /// the same until the status reports the end of the attempt, also after a restart of windlass.
    fn key(&self, outcome: AuditOutcome) -> String {
        let Self { key, began, .. } = self;
        match outcome {
            AuditOutcome::Stopped => format!("{key} stopped {began}"),
            AuditOutcome::Failed => format!("{key} failed {began}"),
            AuditOutcome::Succeeded => key.clone(),
        }
    }
}

/// The facts about an attempt, besides its changes, that an audit reports.
pub(super) struct AttemptAuditDetails<'a> {
    pub(super) judged: &'a BuildIdentity,
    pub(super) is_correction: bool,
    pub(super) secrets: &'a SecretMasking,
    /// The answers of lifecycles.
    pub(super) answers: Vec<LifecycleEventAnswer>,
}

/// The results of a run that are added to an attempt.
struct AttemptRunResults<'r> {
    changes: RunChanges,
    outcome: &'r RunOutcome,
    began: Time,
    secrets: SecretMasking,
    answers: Vec<LifecycleEventAnswer>,
}

/// The key of an attempt. It stays the same until the status reports the end of the attempt, in another process as
/// well.
fn key(object: &Kustomization, judged: Option<&BuildIdentity>) -> String {
    let status = object.status.as_ref();
    let last = status.and_then(|it| it.history.first());
    let last = last
        .map(|it| format!("{} {} {}", it.digest, it.last_reconciled.0, it.total_reconciliations));
    let of = match judged {
        Some(BuildIdentity { generation, digest, revision }) => {
            format!("apply {generation} {revision} {digest}")
        }
        None => "delete".to_owned(),
    };
    format!("{of} after {}", last.unwrap_or_default())
}

/// Whether the status reports an attempt at a revision that has not ended.
fn is_under_way(object: &Kustomization, revision: &str) -> bool {
    let conditions = conditions_of(object.conditions());
    let attempted = object.status.as_ref().and_then(|it| it.last_attempted_revision.as_deref());
    attempted == Some(revision) && StatusCondition::is(&conditions, READY, ConditionStatus::Unknown)
}

fn causes(object: &Kustomization, revision: &str) -> Vec<AuditCause> {
    let of = |type_| AuditCause { type_, ..AuditCause::default() };
    let meta = object.meta();
    let mut causes = Vec::new();
    if applied_revision(object) != Some(revision) {
        let own = object.namespace().unwrap_or_default();
        let source = source_reference::source_node(&own, &object.spec.source_ref).to_string();
        let version = text(revision);
        causes.push(AuditCause { object: text(source), version, ..of(AuditCauseKind::Source) });
    }
    if object.observed_generation() != meta.generation {
        causes.push(AuditCause {
            version: meta.generation.map(|it| it.to_string()),
            manager: text(manager_of_spec(meta)),
            ..of(AuditCauseKind::Spec)
        });
    }
    let request = audit::request(meta, REQUESTED_AT).filter(|_| hold_conditions::is_asked(object));
    causes.extend(request.map(audit::requested));
    if causes.is_empty() {
        // The same revision and spec build another result, so a variable has changed.
        causes.push(of(AuditCauseKind::Values));
    }
    causes
}

fn subject(object: &Kustomization) -> AuditSubject {
    AuditSubject {
        group: Kustomization::group(&()).into_owned(),
        kind: Kustomization::kind(&()).into_owned(),
        name: object.name_any(),
        uid: object.uid().unwrap_or_default(),
        generation: object.meta().generation.unwrap_or_default(),
        release: None,
    }
}

fn applied_revision(object: &Kustomization) -> Option<&str> {
    object.status.as_ref().and_then(|it| it.last_applied_revision.as_deref())
}

fn applied(object: &Kustomization) -> Option<AuditRevision> {
    let revision = text(applied_revision(object)?);
    Some(AuditRevision { revision, ..AuditRevision::default() })
}

fn audit_outcome(outcome: &RunOutcome) -> AuditOutcome {
    match outcome {
        RunOutcome::Settled(..) => AuditOutcome::Succeeded,
        RunOutcome::Running(..) | RunOutcome::Blocked(..) => AuditOutcome::Stopped,
        RunOutcome::Failed(..) | RunOutcome::Stalled(..) => AuditOutcome::Failed,
    }
}

/// The text about the revision and the spec that supersede an attempt.
fn successor(generation: i64, revision: &str) -> String {
    format!("superseded by revision {revision} with generation {generation} of the spec")
}

impl AuditedAttempts {
    /// Whether an attempt waits for its end.
    pub(super) fn has_open(&self) -> bool {
        self.open.is_some()
    }

    /// Ends the open attempt at a revision, unless `goes_on` keeps it. `None` if there is no open attempt, or if it changed
    /// nothing.
    fn stop(&mut self, goes_on: impl Fn(&BuildIdentity) -> bool) -> Option<AuditedAttempt> {
        let over = self.open.take_if(|open| open.of.as_ref().is_some_and(|of| !goes_on(of)))?;
        (!over.changes.is_empty() || over.is_taken_over).then_some(over)
    }

    /// Ends the open removal. `None` if there is no open removal, or if it removed nothing.
    fn stop_removal(&mut self) -> Option<AuditedAttempt> {
        let over = self.open.take_if(|open| open.of.is_none())?;
        (!over.changes.is_empty()).then_some(over)
    }

    /// Adds the changes of a run to the open attempt, or to a new one. The caller has already stopped an open attempt at
    /// another build. Returns the attempt if it ended and has to be audited. `None` while the attempt stays open, and if it
    /// needs no audit.
    fn take(
        &mut self,
        object: &Kustomization,
        judged: Option<&BuildIdentity>,
        run: AttemptRunResults<'_>,
    ) -> Option<AuditedAttempt> {
        let AttemptRunResults { changes, outcome, began, secrets, answers } = run;
        let same = self.open.take().filter(|open| open.of.as_ref() == judged);
        let revision = judged.map_or("", |it| it.revision.as_str());
        let new = || AuditedAttempt {
            of: judged.cloned(),
            key: key(object, judged),
            causes: match judged {
                Some(_) => causes(object, revision),
                None => {
                    vec![AuditCause { type_: AuditCauseKind::Deletion, ..AuditCause::default() }]
                }
            },
            from: applied(object),
            began,
            started: began,
            changes: Vec::new(),
            terminating: None,
            secrets: SecretMasking::default(),
            answers: Vec::new(),
            may_be_taken_over: !self.has_any && applied_revision(object) != Some(revision),
            is_taken_over: !self.has_any && is_under_way(object, revision),
        };
        let mut attempt = same.unwrap_or_else(new);
        self.has_any = true;
        attempt.started = attempt.started.min(changes.started(began));
        attempt.changes.extend(changes.objects);
        attempt.terminating = match changes.is_end_awaited {
            true => changes.terminating,
            false => changes.terminating.or(attempt.terminating),
        };
        attempt.secrets = secrets;
        attempt.answers = answers;
        if matches!(outcome, RunOutcome::Running(..)) {
            self.open = Some(attempt);
            return None;
        }
        // An attempt that failed before it changed anything is repeated, and does not count as an operation.
        let is_settled = outcome.is_settled();
        let is_audited = !attempt.changes.is_empty()
            || is_settled && (attempt.may_be_taken_over || !attempt.answers.is_empty());
        attempt.is_taken_over |= attempt.changes.is_empty();
        is_audited.then_some(attempt)
    }
}

impl KustomizationSession<'_> {
    /// Writes the audit of an attempt that came to its end, before the status reports that. `object` is the Kustomization as
    /// it was when the run began.
    pub(super) async fn audit(
        &self,
        object: &Kustomization,
        ended: &KustomizationRunReport,
        changes: RunChanges,
        about: &AttemptAuditDetails<'_>,
    ) {
        if !self.context.settings.release_audits {
            return;
        }
        let BuildIdentity { generation, revision, .. } = about.judged;
        let why = successor(*generation, revision);
        self.audit_stopped(object, |of| of == about.judged, &why).await;
        if about.is_correction {
            return self.audit_correction(object, ended, changes, about).await;
        }
        let run = AttemptRunResults {
            changes,
            outcome: &ended.outcome,
            began: self.began,
            secrets: about.secrets.clone(),
            answers: about.answers.clone(),
        };
        let attempt = self.memory().attempts.take(object, Some(about.judged), run);
        if let Some(attempt) = attempt {
            self.write_ended(object, attempt, &ended.outcome).await;
        }
    }

    /// Writes the audit record of the open attempt, if this revision or spec supersedes the attempt.
    pub(super) async fn audit_superseded(
        &self,
        object: &Kustomization,
        generation: i64,
        revision: &str,
    ) {
        let goes_on = |of: &BuildIdentity| of.generation == generation && of.revision == revision;
        self.audit_stopped(object, goes_on, &successor(generation, revision)).await;
    }

    /// Writes the audit record of the open attempt at a revision, unless the attempt goes on.
    pub(super) async fn audit_stopped(
        &self,
        object: &Kustomization,
        goes_on: impl Fn(&BuildIdentity) -> bool + Send,
        why: &str,
    ) {
        let over = self.memory().attempts.stop(goes_on);
        if let Some(attempt) = over {
            let message = format!("stopped while waiting: {why}");
            self.write_attempt(object, attempt, AuditOutcome::Stopped, Some(message)).await;
        }
    }

    /// Writes the audit record of an open removal that is given up.
    pub(super) async fn audit_stopped_removal(&self, object: &Kustomization, why: &str) {
        let over = self.memory().attempts.stop_removal();
        if let Some(attempt) = over {
            let message = format!("stopped while waiting: {why}");
            self.write_attempt(object, attempt, AuditOutcome::Stopped, Some(message)).await;
        }
    }

    /// Writes the audit of a removal that came to its end.
    pub(super) async fn audit_removal(
        &self,
        object: &Kustomization,
        ended: &KustomizationRunReport,
        changes: RunChanges,
        answers: Vec<LifecycleEventAnswer>,
    ) {
        if !self.context.settings.release_audits {
            return;
        }
        let run = AttemptRunResults {
            changes,
            outcome: &ended.outcome,
            began: self.began,
            secrets: SecretMasking::default(),
            answers,
        };
        let attempt = self.memory().attempts.take(object, None, run);
        if let Some(attempt) = attempt {
            self.write_ended(object, attempt, &ended.outcome).await;
        }
    }

    /// Writes the audit of an attempt that a lifecycle did not let begin.
    pub(super) async fn audit_refused(
        &self,
        object: &Kustomization,
        judged: &BuildIdentity,
        outcome: &RunOutcome,
        answers: Vec<LifecycleEventAnswer>,
    ) {
        let asked: Vec<&str> = answers.iter().map(|it| it.event.as_str()).collect();
        let began = answers.iter().map(|it| it.asked).min().unwrap_or(self.began);
        let attempt = AuditedAttempt {
            key: format!("{} refused {}", key(object, Some(judged)), asked.join(" ")),
            of: Some(judged.clone()),
            causes: causes(object, &judged.revision),
            from: applied(object),
            began,
            started: began,
            changes: Vec::new(),
            terminating: None,
            secrets: SecretMasking::default(),
            answers,
            may_be_taken_over: false,
            is_taken_over: false,
        };
        if self.context.settings.release_audits {
            self.write_ended(object, attempt, outcome).await;
        }
    }

    /// Writes the audit of an attempt that ended with the outcome of its run.
    async fn write_ended(
        &self,
        object: &Kustomization,
        attempt: AuditedAttempt,
        outcome: &RunOutcome,
    ) {
        let audit_outcome = audit_outcome(outcome);
        let message = match audit_outcome {
            AuditOutcome::Succeeded => attempt.terminating.clone(),
            AuditOutcome::Failed | AuditOutcome::Stopped => Some(outcome.text().to_owned()),
        };
        self.write_attempt(object, attempt, audit_outcome, message).await;
    }

    async fn write_attempt(
        &self,
        object: &Kustomization,
        attempt: AuditedAttempt,
        outcome: AuditOutcome,
        message: Option<String>,
    ) {
        let now = jiff::Timestamp::now();
        let key = attempt.key(outcome);
        let AuditedAttempt {
            of,
            causes,
            from,
            started,
            changes,
            terminating,
            secrets,
            answers,
            is_taken_over,
            ..
        } = attempt;
        let causes = match &of {
            Some(of) => self.causes_with_quarantines(object, of, causes),
            None => causes,
        };
        let partial = is_taken_over || outcome != AuditOutcome::Succeeded || terminating.is_some();
        let mut subject = subject(object);
        let (operation, to) = match of {
            Some(BuildIdentity { generation, digest, revision }) => {
                // The spec may be another by now.
                subject.generation = generation;
                let revision = text(revision);
                let digest = text(digest);
                (
                    AuditOperation::Apply,
                    Some(AuditRevision { revision, digest, ..AuditRevision::default() }),
                )
            }
            None => (AuditOperation::Delete, None),
        };
        let spec = ReleaseAuditSpec {
            subject,
            operation,
            causes,
            from,
            to,
            changes: listed(changes, partial, &secrets),
            lifecycles: answers.into_iter().map(audit::answer).collect(),
            outcome,
            message,
            started: when(started),
            ended: when(now),
            duration: took(started, now),
            ..ReleaseAuditSpec::default()
        };
        self.write_audit(object, &key, spec).await;
    }

    async fn audit_correction(
        &self,
        object: &Kustomization,
        ended: &KustomizationRunReport,
        changes: RunChanges,
        about: &AttemptAuditDetails<'_>,
    ) {
        let started = changes.started(self.began);
        let now = jiff::Timestamp::now();
        let stretch = audit::stretch(now);
        let contests = {
            let mut memory = self.memory();
            memory.attempts.has_any = true;
            memory.contests.clone()
        };
        let changes = {
            let mut contests = contests.lock();
            contests.unaudited(stretch, changes.objects)
        };
        if changes.is_empty() {
            return;
        }
        let key = audit::correction_key(stretch, &changes);
        // An outcome that still waits does not make the correction a failure.
        let failed = matches!(ended.outcome, RunOutcome::Failed(..) | RunOutcome::Stalled(..));
        let spec = ReleaseAuditSpec {
            subject: subject(object),
            operation: AuditOperation::CorrectDrift,
            causes: vec![AuditCause { type_: AuditCauseKind::Drift, ..AuditCause::default() }],
            to: applied(object),
            changes: listed(changes, failed, about.secrets),
            outcome: if failed { AuditOutcome::Failed } else { AuditOutcome::Succeeded },
            message: failed.then(|| ended.outcome.text().to_owned()),
            started: when(started),
            ended: when(now),
            duration: took(started, now),
            ..ReleaseAuditSpec::default()
        };
        self.write_audit(object, &key, spec).await;
    }

    async fn write_audit(&self, object: &Kustomization, key: &str, spec: ReleaseAuditSpec) {
        let namespace = &self.node.namespace;
        if let Some(event) = audit::write(&self.context, namespace, key, spec).await {
            self.context.events.announce(object, Kustomization::CONTROLLER, event);
        }
    }
}

#[cfg(test)]
mod tests {
    use apply::object_changes::ObjectChangeKind;
    use objects::ObjectId;
    use reconcile::{NextRunTrigger, condition_reason};
    use serde_json::json;

    use super::*;

    fn object(ready: &str, attempted: &str) -> Kustomization {
        serde_json::from_value(json!({
            "metadata": {"name": "apps", "namespace": "shop", "uid": "u", "generation": 2},
            "spec": {"interval": "1m", "prune": true, "sourceRef": {"kind": "GitRepository", "name": "r"}},
            "status": {
                "observedGeneration": 2,
                "lastAppliedRevision": "main@sha1:1",
                "lastAttemptedRevision": attempted,
                "conditions": [{"type": "Ready", "status": ready, "reason": "Progressing", "message": "",
                    "lastTransitionTime": "2026-01-02T03:04:05Z", "observedGeneration": 2}],
            },
        }))
        .unwrap()
    }

    fn judged(revision: &str) -> BuildIdentity {
        BuildIdentity {
            generation: 2,
            digest: "sha256:0".to_owned(),
            revision: revision.to_owned(),
        }
    }

    fn change(name: &str) -> ObjectChange {
        let id = ObjectId::new("shop", name, "", "ConfigMap");
        ObjectChange { id, what: ObjectChangeKind::Added, fields: Vec::new() }
    }

    fn waits() -> RunOutcome {
        RunOutcome::Running(condition_reason::PROGRESSING, String::new(), NextRunTrigger::default())
    }

    fn settled() -> RunOutcome {
        RunOutcome::Settled(condition_reason::SUCCEEDED, String::new())
    }

    fn run_of(changes: Vec<ObjectChange>, outcome: &RunOutcome) -> AttemptRunResults<'_> {
        AttemptRunResults {
            changes: RunChanges { objects: changes, ..RunChanges::default() },
            outcome,
            began: Time::UNIX_EPOCH,
            secrets: SecretMasking::default(),
            answers: Vec::new(),
        }
    }

    #[test]
    fn what_several_runs_of_an_attempt_changed_is_one_audit() {
        let object = object("True", "main@sha1:1");
        let to = judged("main@sha1:2");
        let mut attempts = AuditedAttempts::default();
        let mut run = |changes: Vec<ObjectChange>, outcome: RunOutcome| {
            let ended = attempts.take(&object, Some(&to), run_of(changes, &outcome));
            ended.map(|it| (it.changes.len(), it.is_taken_over, it.key))
        };
        assert!(run(vec![change("a")], waits()).is_none());
        assert!(run(vec![change("b")], waits()).is_none());
        let (changes, is_taken_over, key) = run(Vec::new(), settled()).unwrap();
        assert_eq!((changes, is_taken_over), (2, false));
        assert!(key.contains("main@sha1:2"), "{key}");
        assert!(run(Vec::new(), settled()).is_none(), "nothing changed since");
    }

    #[test]
    fn an_attempt_that_no_process_continues_was_stopped() {
        let object = object("True", "main@sha1:1");
        let first = judged("main@sha1:2");
        let second = judged("main@sha1:3");
        let mut attempts = AuditedAttempts::default();
        let waiting =
            |attempts: &mut AuditedAttempts, of: &BuildIdentity, changes: Vec<ObjectChange>| {
                assert!(attempts.take(&object, Some(of), run_of(changes, &waits())).is_none());
            };
        assert!(attempts.stop(|_| false).is_none(), "nothing is open");
        waiting(&mut attempts, &first, vec![change("a"), change("b")]);
        assert!(attempts.stop(|of| *of == first).is_none() && attempts.has_open(), "it goes on");
        let stopped = attempts.stop(|of| *of == second).unwrap();
        assert_eq!((stopped.of.as_ref(), stopped.changes.len()), (Some(&first), 2));
        let names = [AuditOutcome::Stopped, AuditOutcome::Succeeded].map(|it| stopped.key(it));
        assert_ne!(names[0], names[1], "the same revision may be attempted again");
        assert!(!attempts.has_open());
        // The next attempt has its own changes, and one without any is not an operation.
        waiting(&mut attempts, &second, vec![change("c")]);
        let stopped = attempts.stop(|_| false).unwrap();
        assert_eq!((stopped.of.as_ref(), stopped.changes.len()), (Some(&second), 1));
        waiting(&mut attempts, &first, Vec::new());
        assert!(attempts.stop(|_| false).is_none() && !attempts.has_open());
    }

    #[test]
    fn each_attempt_of_a_removal_has_an_audit_of_what_it_removed() {
        let object = object("True", "main@sha1:1");
        let failed = RunOutcome::Failed(
            condition_reason::PRUNE_FAILED,
            "refused".to_owned(),
            NextRunTrigger::default(),
        );
        let mut attempts = AuditedAttempts::default();
        let mut removal = |name: &str, second: i64, outcome: &RunOutcome| {
            let began = Time::from_second(second).unwrap();
            let run = AttemptRunResults { began, ..run_of(vec![change(name)], outcome) };
            attempts.take(&object, None, run).map(|it| it.key(audit_outcome(outcome))).unwrap()
        };
        let keys =
            [removal("a", 1, &failed), removal("b", 2, &failed), removal("c", 3, &settled())];
        assert!(keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2], "{keys:?}");
    }

    #[test]
    fn an_attempt_that_failed_unreported_and_the_one_that_repeats_it_have_an_audit_each() {
        let object = object("True", "main@sha1:1");
        let to = judged("main@sha1:2");
        let text = "request to the API server failed".to_owned();
        let failed = RunOutcome::Failed(
            condition_reason::RECONCILIATION_FAILED,
            text,
            NextRunTrigger::default(),
        );
        let mut attempts = AuditedAttempts::default();
        let mut attempted = |name: &str, second: i64, outcome: &RunOutcome| {
            let began = Time::from_second(second).unwrap();
            let run = AttemptRunResults { began, ..run_of(vec![change(name)], outcome) };
            attempts.take(&object, Some(&to), run).map(|it| it.key(audit_outcome(outcome))).unwrap()
        };
        let keys =
            [attempted("a", 1, &failed), attempted("b", 2, &failed), attempted("c", 3, &settled())];
        assert!(keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2], "{keys:?}");
    }

    #[test]
    fn an_attempt_of_another_process_that_none_continues_has_an_audit() {
        let object = object("Unknown", "main@sha1:2");
        let to = judged("main@sha1:2");
        let mut attempts = AuditedAttempts::default();
        assert!(attempts.take(&object, Some(&to), run_of(Vec::new(), &waits())).is_none());
        assert!(attempts.stop(|_| false).is_some_and(|it| it.is_taken_over));
        // A removal goes on until it is done.
        assert!(attempts.take(&object, None, run_of(vec![change("a")], &waits())).is_none());
        assert!(attempts.stop(|_| false).is_none() && attempts.has_open());
        // One that is given up had removed something.
        assert_eq!(attempts.stop_removal().map(|it| it.changes.len()), Some(1));
        assert!(attempts.stop_removal().is_none() && !attempts.has_open());
    }

    #[test]
    fn an_attempt_starts_with_a_write_that_an_earlier_run_got_no_answer_to() {
        let object = object("True", "main@sha1:1");
        let to = judged("main@sha1:2");
        let at = |second: i64| Time::from_second(second).unwrap();
        let outcome = settled();
        let attempted = |unanswered_since: Option<Time>| {
            let objects = vec![change("a")];
            let changes = RunChanges { objects, unanswered_since, ..RunChanges::default() };
            let run = AttemptRunResults { changes, began: at(20), ..run_of(Vec::new(), &outcome) };
            AuditedAttempts::default().take(&object, Some(&to), run).unwrap()
        };
        let plain = attempted(None);
        let attempt = attempted(Some(at(10)));
        assert_eq!((plain.started, attempt.started, attempt.began), (at(20), at(10), at(20)));
        let keys = [&plain, &attempt].map(|it| it.key(AuditOutcome::Succeeded));
        assert_eq!(keys[0], keys[1], "one attempt has one audit");
        // The clock may have been set back meanwhile.
        assert_eq!(attempted(Some(at(30))).started, at(20));
    }

    #[test]
    fn an_audit_says_of_which_objects_the_end_was_not_seen() {
        let object = object("True", "main@sha1:1");
        let mut attempts = AuditedAttempts::default();
        let mut run = |terminating: Option<&str>, is_end_awaited: bool, outcome: RunOutcome| {
            let terminating = terminating.map(str::to_owned);
            let objects = vec![change("a")];
            let changes =
                RunChanges { objects, unanswered_since: None, terminating, is_end_awaited };
            let run = AttemptRunResults { changes, ..run_of(Vec::new(), &outcome) };
            attempts.take(&object, None, run).map(|it| it.terminating)
        };
        let named = Some("ConfigMap/shop/a");
        assert_eq!(run(named, true, waits()), None);
        assert_eq!(run(None, true, settled()), Some(None), "it is gone by then");
        assert_eq!(run(named, true, settled()), Some(named.map(str::to_owned)));
        assert_eq!(run(named, false, waits()), None);
        let kept = run(None, false, settled());
        assert_eq!(kept, Some(named.map(str::to_owned)), "the last run does not know of it");
    }

    #[test]
    fn an_attempt_that_another_process_began_has_an_audit() {
        let to = judged("main@sha1:2");
        let run =
            |attempts: &mut AuditedAttempts, object: &Kustomization, changes: Vec<ObjectChange>| {
                let ended = attempts.take(object, Some(&to), run_of(changes, &settled()));
                ended.map(|it| it.is_taken_over)
            };
        let reported = object("Unknown", "main@sha1:2");
        let unreported = object("True", "main@sha1:1");
        let mut attempts = AuditedAttempts::default();
        assert_eq!(run(&mut attempts, &reported, vec![change("rest")]), Some(true));
        assert_eq!(run(&mut attempts, &reported, Vec::new()), None, "nothing changed since");
        assert_eq!(run(&mut AuditedAttempts::default(), &unreported, Vec::new()), Some(true));
        assert_eq!(
            run(&mut AuditedAttempts::default(), &unreported, vec![change("all")]),
            Some(false)
        );
        let removed =
            AuditedAttempts::default().take(&unreported, None, run_of(Vec::new(), &settled()));
        assert!(removed.unwrap().is_taken_over);
    }

    #[test]
    fn the_source_the_spec_and_requests_ask_for_a_revision() {
        let object = object("True", "main@sha1:1");
        let of = |object: &Kustomization, revision: &str| -> Vec<AuditCauseKind> {
            causes(object, revision).into_iter().map(|it| it.type_).collect()
        };
        assert_eq!(of(&object, "main@sha1:2"), [AuditCauseKind::Source]);
        assert_eq!(of(&object, "main@sha1:1"), [AuditCauseKind::Values]);
        let mut asked = object.clone();
        asked.metadata.generation = Some(3);
        asked.metadata.annotations = Some([(REQUESTED_AT.to_owned(), "now".to_owned())].into());
        let both = [AuditCauseKind::Spec, AuditCauseKind::Request];
        assert_eq!(of(&asked, "main@sha1:1"), both);
    }
}
