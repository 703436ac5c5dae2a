//! A second cause: why a suspended object fails, which applied objects are down while the source, a dependency or a build
//! fails, too, and a second dependency that is not ready. The cause that is worse for the service comes first.
//!
//! Here, too: what was left out of what was applied, or has no effect, which is not a failure.

use objects::Object;
use reconcile::ReleaseRollbackProgress;

use crate::cause_result::{CauseAdvice, CauseKind};
use crate::cause_walk::{CausePath, CauseWalk, ObjectLookup, ResultOrFactQueries, below, step_of};
use crate::condition::{condition, text};
use crate::condition_reason;
use crate::object_references;
use crate::object_suspension;

/// The causes of the state of one object.
pub(crate) struct CauseFindings {
    /// The cause that is to be mended first.
    pub(crate) first: Option<CausePath>,
    /// One more.
    pub(crate) second: Option<CausePath>,
}

impl CauseFindings {
    /// One cause, or none.
    pub(crate) fn of(first: Option<CausePath>) -> Self {
        Self { first, second: None }
    }
}

impl<'k> CauseWalk<'k> {
    /// What was found of an object, with what is in its way besides.
    pub(crate) fn findings(
        &mut self,
        object: &'k Object,
        found: Option<CausePath>,
    ) -> ResultOrFactQueries<CauseFindings> {
        let id = object.id();
        let status = condition(object, "Ready").map(|said| said.status).unwrap_or_default();
        let own = found.as_ref().filter(|found| found.cause.object == id);
        let own = own.map(|found| found.cause.problem);
        self.way.push(id);
        let other = match own {
            // What it applied is to go.
            _ if object.meta("deletionTimestamp").is_some() => Ok(None),
            // What it applied is well, or was examined by its run.
            None if found.is_none() && status != "False" => Ok(None),
            Some(CauseKind::Suspension) => self.behind_suspension(object),
            Some(_) | None => match self.applied_besides(object) {
                Ok(None) => self.dependency_besides(object, found.as_ref()),
                other => other,
            },
        };
        self.way.pop();
        let other = other?;
        let Some(found) = found else { return Ok(CauseFindings::of(other)) };
        let other = other.filter(|other| other.cause != found.cause);
        let Some(second) = self.or_taken(object, &found.cause, other)? else {
            return Ok(CauseFindings::of(Some(found)));
        };
        // What is not ready cannot apply again what was deleted.
        let is_gone = second.cause.problem == CauseKind::Missing && status == "True";
        let is_worse = is_gone || is_of_service(second.cause.problem);
        let is_first =
            is_worse && own != Some(CauseKind::Suspension) && !is_of_service(found.cause.problem);
        Ok(match is_first {
            true => CauseFindings { first: Some(second), second: Some(found) },
            false => CauseFindings { first: Some(found), second: Some(second) },
        })
    }

    /// Why a suspended object fails, or what it has applied.
    fn behind_suspension(&mut self, object: &'k Object) -> ResultOrFactQueries<Option<CausePath>> {
        let ready = condition(object, "Ready");
        // Ready is False after a rollback, also after one that was requested.
        let is_rolled_back = object_suspension::rollback(object)
            .is_some_and(|it| it.progress == ReleaseRollbackProgress::Succeeded);
        match ready {
            Some(said)
                if said.status == "False"
                    && !is_rolled_back
                    && !condition_reason::is_pause(said.reason) =>
            {
                self.of_run(object, ready)
            }
            _ => self.applied_besides(object),
        }
    }

    /// Which of the applied objects fails or is missing, independent of what else the object reports.
    fn applied_besides(&mut self, object: &'k Object) -> ResultOrFactQueries<Option<CausePath>> {
        let Some(said) = condition(object, "Ready") else { return Ok(None) };
        let is_complete = said.status == "True"
            || (said.status == "False" && condition_reason::is_before_apply(said.reason));
        let found = self.applied(object, is_complete)?;
        Ok(found.map(|found| below(Some(step_of(object, said)), found)))
    }

    /// Another dependency that is not ready, for another cause than the one that was found.
    fn dependency_besides(
        &mut self,
        object: &'k Object,
        found: Option<&CausePath>,
    ) -> ResultOrFactQueries<Option<CausePath>> {
        let waits = reconcile::reason::DEPENDENCY_NOT_READY.as_str();
        let ready = condition(object, "Ready");
        let Some(said) = ready.filter(|said| said.status == "False" && said.reason == waits) else {
            return Ok(None);
        };
        let Some(found) = found else { return Ok(None) };
        let other = self.dependency(object, Some(&found.cause))?;
        Ok(other.map(|other| below(Some(step_of(object, said)), other)))
    }

    /// What would help against a second cause, as far as the first lets it.
    pub(crate) fn second_advice(
        &self,
        found: &CausePath,
        first: Option<&CausePath>,
        subject: Option<&Object>,
    ) -> Option<CauseAdvice> {
        if let Some(advice) = first.and_then(|first| left_to_the_same(found, first)) {
            return Some(advice);
        }
        let advice = self.advice(found, subject)?;
        let Some(subject) = subject else { return Some(advice) };
        let id = subject.id();
        let is_suspended = first.is_some_and(|first| {
            first.cause.problem == CauseKind::Suspension && first.cause.object == id
        });
        let is_ready = condition(subject, "Ready").is_some_and(|said| said.status == "True");
        let is_deleted = found.cause.problem == CauseKind::Missing
            && object_references::inventory(subject).contains(&found.cause.object);
        if is_deleted && (is_suspended || !is_ready) {
            let text = format!("it is applied again when {} is reconciled", id.subject());
            return Some(CauseAdvice { text, command: None });
        }
        // Nothing that is suspended is reconciled.
        let is_in_vain = |command: &str| is_suspended && command.starts_with("windlass reconcile ");
        let CauseAdvice { text, command } = advice;
        Some(CauseAdvice { text, command: command.filter(|command| !is_in_vain(command)) })
    }

    /// Adds a remark about what was left out of what was applied: of all of it, or of an applied object that the user
    /// asked about.
    pub(crate) fn remark_warnings(&mut self, object: &'k Object) -> ResultOrFactQueries<()> {
        let id = object.id();
        if object_references::is_reconciled(&id) {
            self.remarks.extend(warnings(object).map(|line| format!("warning: {line}")));
            return Ok(());
        }
        let Some(applier) = object_references::applier(object) else { return Ok(()) };
        let ObjectLookup::There(applier) = self.object(&applier)? else { return Ok(()) };
        let begin = format!("{}: ", id.subject());
        let own = warnings(applier).filter(|line| line.starts_with(&begin));
        self.remarks.extend(own.map(|line| format!("warning: {line}")));
        Ok(())
    }
}

/// The warnings of an object, a line each: about what was left out of what it applied, such as fields that are misspelt,
/// about markers that set nothing, and about deletions that wait for approval. If a newer revision was not applied, each of
/// the former names the revision that it is about.
pub fn warnings(object: &Object) -> impl Iterator<Item = String> {
    let of = match outdated_revision(object) {
        Some(revision) => format!(" (of revision {revision}, the last one that was applied)"),
        None => String::new(),
    };
    let kinds = [
        (reconcile::WARNINGS, of),
        (reconcile::MARKERS_IGNORED, String::new()),
        (reconcile::DELETION_HELD, String::new()),
    ];
    kinds.into_iter().flat_map(|(kind, of)| {
        let said = condition(object, kind).filter(|said| said.status == "True");
        let lines = said.map_or("", |said| said.message).lines();
        lines.map(move |line| format!("{line}{of}"))
    })
}

/// The revision that is applied, if a newer one was tried since.
fn outdated_revision(object: &Object) -> Option<&str> {
    let status = object.get("status")?;
    let applied = text(status, "lastAppliedRevision");
    let tried = text(status, "lastAttemptedRevision");
    (!applied.is_empty() && !tried.is_empty() && applied != tried).then_some(applied)
}

/// The advice about an object that another owner has, where the advice about the first cause is to leave another object to it.
fn left_to_the_same(found: &CausePath, first: &CausePath) -> Option<CauseAdvice> {
    let is_taken = found.cause.problem == CauseKind::Ownership;
    // The walk adds the owner to the text of a refusal.
    let (_, owner) = first.cause.text.rsplit_once(" belongs to ")?;
    let is_same = found.cause.text.contains(&format!(" belongs to {owner} now"));
    let is_refused = first.cause.problem == CauseKind::Apply;
    let text = format!("leave it to {owner}, too");
    (is_taken && is_refused && is_same).then_some(CauseAdvice { text, command: None })
}

/// Whether a problem keeps Pods from serving.
fn is_of_service(problem: CauseKind) -> bool {
    matches!(
        problem,
        CauseKind::Container
            | CauseKind::Image
            | CauseKind::Scheduling
            | CauseKind::Admission
            | CauseKind::Volume
    )
}
