//! The suspension of an object, according to its spec and annotations, and the rollback that is requested of a
//! suspended release.

use objects::Object;
use reconcile::{
    ManagerOwnedFields, ObjectHold, ROLLBACK, ReleaseHistoryRevision, ReleaseRollback,
    ReleaseRollbackProgress, Time,
};

use crate::condition::{condition, is_set};

/// The suspension of an object that is in force. `None` if the object is not suspended. `Some(None)` if it is suspended
/// without a hold.
pub fn suspension(object: &Object, now: Time) -> Option<Option<ObjectHold>> {
    let hold = hold(object);
    let is_expired = hold.as_ref().is_some_and(|hold| hold.is_expired(now));
    (is_set(object, "suspend") && !is_expired).then_some(hold)
}

/// The hold in the annotations of an object. `None` if there is none.
pub fn hold(object: &Object) -> Option<ObjectHold> {
    ObjectHold::of(|key| object.annotation(key), owners(object))
}

/// The field managers of an object, each with the fields that it owns.
pub fn owners(object: &Object) -> impl Iterator<Item = ManagerOwnedFields<'_>> {
    ManagerOwnedFields::listed(object.meta("managedFields"))
}

/// The rollback that an annotation requests of a suspended HelmRelease.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestedRollback<'o> {
    pub(crate) asked: ReleaseRollback,
    pub(crate) progress: ReleaseRollbackProgress,
    /// The message in the status if the rollback failed or is not carried out.
    pub(crate) failure: Option<&'o str>,
}

/// The rollback that an annotation of a HelmRelease requests, and its progress. `None` if no rollback is requested.
pub(crate) fn rollback(object: &Object) -> Option<RequestedRollback<'_>> {
    let text = object.annotation(ROLLBACK).filter(|_| object.kind() == "HelmRelease")?;
    let asked = ReleaseRollback::of(text, None)?;
    let history = object.get("status").and_then(|it| it.get("history"));
    let progress = asked.progress(ReleaseHistoryRevision::listed(history));
    // A message about an older spec may be about another rollback.
    let said = condition(object, "Ready")
        .filter(|it| it.reason == "RollbackFailed" && it.generation == Some(object.generation()));
    Some(RequestedRollback { asked, progress, failure: said.map(|it| it.message) })
}

/// The message about a requested rollback that is not done. `None` if there is no such rollback.
pub fn unfinished_rollback(object: &Object) -> Option<String> {
    rollback(object)?.unfinished()
}

impl RequestedRollback<'_> {
    /// The message about a rollback that is not done; `None` if it is done, or its progress is not known.
    pub(crate) fn unfinished(&self) -> Option<String> {
        let ReleaseRollback { from, to } = self.asked;
        let what = format!("rollback from revision {from} to {to}");
        match (self.progress, self.failure) {
            (ReleaseRollbackProgress::Succeeded | ReleaseRollbackProgress::Unknown, _) => None,
            (_, Some(failure)) => Some(failure.to_owned()),
            (ReleaseRollbackProgress::Requested, None) => {
                Some(format!("the {what} is requested and not yet done"))
            }
            (ReleaseRollbackProgress::Failed, None) => Some(format!("the {what} failed")),
            (ReleaseRollbackProgress::Overtaken, None) => Some(format!(
                "the requested {what} was not carried out, because another operation made revision {}",
                from.saturating_add(1)
            )),
        }
    }
}
