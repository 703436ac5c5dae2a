//! A second cause: why a suspended object fails, which applied objects fail while the source, a dependency or a build
//! fails, too, and a second dependency that is not ready. The cause that is worse for the service comes first.
//!
//! Also here: warnings about fields that were left out of applied objects or have no effect. These are not failures.

use objects::Object;
use reconcile::ReleaseRollbackProgress;

use crate::cause_result::{CauseAdvice, CauseKind};
use crate::cause_walk::{CausePath, CauseWalk, ObjectLookup, ResultOrFactQueries, below, step_of};
use crate::condition::{condition, text};
use crate::condition_reason;
use crate::object_references;
use crate::object_suspension;

/// The causes of the state of one object.
pub(crate) struct FirstAndSecondCause {
    /// The cause that has to be corrected first.
    pub(crate) first: Option<CausePath>,
    /// A second cause, if there is one.
    pub(crate) second: Option<CausePath>,
}

impl FirstAndSecondCause {
    /// Findings with one cause or none, and without a second one.
    pub(crate) fn of(first: Option<CausePath>) -> Self {
        Self { first, second: None }
    }
}

impl<'k> CauseWalk<'k> {
    /// Adds a second cause to the cause that the walk found for an object.
    pub(crate) fn findings(
        &mut self,
        object: &'k Object,
        found: Option<CausePath>,
    ) -> ResultOrFactQueries<FirstAndSecondCause> {
        let id = object.id();
        let status = condition(object, "Ready").map(|said| said.status).unwrap_or_default();
        let own = found.as_ref().filter(|found| found.cause.object == id);
        let own = own.map(|found| found.cause.problem);
        self.way.push(id);
        let other = match own {
            // The object is being deleted, and so are its applied objects.
            _ if object.meta("deletionTimestamp").is_some() => Ok(None),
            // The applied objects are healthy, or the walk over the run has examined them.
            None if found.is_none() && status != "False" => Ok(None),
            Some(CauseKind::Suspension) => self.behind_suspension(object),
            Some(_) | None => match self.applied_besides(object) {
                Ok(None) => self.dependency_besides(object, found.as_ref()),
                other => other,
            },
        };
        self.way.pop();
        let other = other?;
        let Some(found) = found else { return Ok(FirstAndSecondCause::of(other)) };
        let other = other.filter(|other| other.cause != found.cause);
        let Some(second) = self.or_taken(object, &found.cause, other)? else {
            return Ok(FirstAndSecondCause::of(Some(found)));
        };
        // An object that is not ready cannot restore a deleted object.
        let is_gone = second.cause.problem == CauseKind::Missing && status == "True";
        let is_worse = is_gone || is_of_service(second.cause.problem);
        let is_first =
            is_worse && own != Some(CauseKind::Suspension) && !is_of_service(found.cause.problem);
        Ok(match is_first {
            true => FirstAndSecondCause { first: Some(second), second: Some(found) },
            false => FirstAndSecondCause { first: Some(found), second: Some(second) },
        })
    }

    /// Why a suspended object, or an object that it applied, fails.
    fn behind_suspension(&mut self, object: &'k Object) -> ResultOrFactQueries<Option<CausePath>> {
        let ready = condition(object, "Ready");
        // `Ready` is False after a rollback, even if a user requested the rollback.
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

    /// The applied object that fails or is missing, whatever else the object reports.
    fn applied_besides(&mut self, object: &'k Object) -> ResultOrFactQueries<Option<CausePath>> {
        let Some(said) = condition(object, "Ready") else { return Ok(None) };
        let is_complete = said.status == "True"
            || (said.status == "False" && condition_reason::is_before_apply(said.reason));
        let found = self.applied(object, is_complete)?;
        Ok(found.map(|found| below(Some(step_of(object, said)), found)))
    }

    /// Another dependency that is not ready, for a cause other than the one that was found.
    fn dependency_besides(
        &mut self,
        object: &'k Object,
        found: Option<&CausePath>,
    ) -> ResultOrFactQueries<Option<CausePath>> {
        let waits = reconcile::condition_reason::DEPENDENCY_NOT_READY.as_str();
        let ready = condition(object, "Ready");
        let Some(said) = ready.filter(|said| said.status == "False" && said.reason == waits) else {
            return Ok(None);
        };
        let Some(found) = found else { return Ok(None) };
        let other = self.dependency(object, Some(&found.cause))?;
        Ok(other.map(|other| below(Some(step_of(object, said)), other)))
    }

    /// Advice against the second cause `found`, as far as the first cause allows it. `None` if there is no advice.
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
        // A suspended object is not reconciled, so that command would have no effect.
        let is_in_vain = |command: &str| is_suspended && command.starts_with("windlass reconcile ");
        let CauseAdvice { text, command } = advice;
        Some(CauseAdvice { text, command: command.filter(|command| !is_in_vain(command)) })
    }

    /// Adds a remark about fields that were left out of applied objects. If the user asked about an applied object, the
    /// remark is only about that one.
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

/// The warnings of an object, one line each. They are about fields that were left out of applied objects, such as
/// misspelt ones, about markers that set nothing, and about deletions that wait for approval. If a newer revision was
/// not applied, a warning about fields names the revision that it is about.
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

/// The applied revision. `None` if no newer revision was tried since.
fn outdated_revision(object: &Object) -> Option<&str> {
    let status = object.get("status")?;
    let applied = text(status, "lastAppliedRevision");
    let tried = text(status, "lastAttemptedRevision");
    (!applied.is_empty() && !tried.is_empty() && applied != tried).then_some(applied)
}

/// The advice to leave an object to its other owner, if the advice about the first cause leaves another object to the
/// same owner. `None` otherwise.
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
