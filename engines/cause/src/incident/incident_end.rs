//! When an incident that is open has ended, and which objects it may affect still.
//!
//! Elsewhere: which failures are incidents (`incident`).

use std::collections::{BTreeMap, BTreeSet};

use objects::ObjectId;

use super::{
    Incident, IncidentIdentity, ObjectVerdict, ReportedObjectState, RootFailure, is_of_others,
};
use crate::cause_result::CauseKind;

/// What is known of an incident that was opened.
#[derive(Debug, Clone, Copy)]
pub struct IncidentRecord<'i> {
    /// The object that failed deepest.
    pub subject: &'i ObjectId,
    /// The kind of the problem.
    pub problem: &'i str,
    /// The object that had to be mended, as messages name it.
    pub cause: &'i str,
    /// Objects that it affected, as messages name them.
    pub affected: &'i BTreeSet<String>,
    /// Objects that may be affected still, by [`keep_affected`].
    pub kept: Option<&'i BTreeSet<ObjectId>>,
    /// Whether the objects of all kinds are among the verdicts. Until then, such as after a restart, an affected object without
    /// a verdict may exist and fail.
    pub are_all_judged: bool,
}

impl IncidentRecord<'_> {
    fn is_problem(&self, problem: CauseKind) -> bool {
        problem.to_string() == self.problem
    }

    /// Whether it is about the absence of its subject, and not of another object that the subject names.
    fn is_of_absent_subject(&self) -> bool {
        self.is_problem(CauseKind::Missing) && self.cause == self.subject.subject()
    }

    /// The verdicts on the objects that it affected, as far as they exist.
    fn affected<'v>(
        &self,
        verdicts: &'v BTreeMap<ObjectId, ObjectVerdict>,
    ) -> impl Iterator<Item = &'v ObjectVerdict> {
        let by_name = self.affected.iter().flat_map(move |name| named(verdicts, name));
        by_name.chain(self.kept.into_iter().flatten().filter_map(move |id| verdicts.get(id)))
    }
}

/// The verdicts on the objects that messages give a name, which may be one of each group with the kind.
fn named<'v>(
    verdicts: &'v BTreeMap<ObjectId, ObjectVerdict>,
    name: &str,
) -> Vec<&'v ObjectVerdict> {
    let Some((kind, rest)) = name.split_once('/') else { return Vec::new() };
    let Some((namespace, name)) = rest.split_once('/') else { return Vec::new() };
    let all = verdicts.range(ObjectId::new(namespace, name, "", "")..);
    let all = all.take_while(|(id, _)| id.namespace == namespace && id.name == name);
    all.filter(|(id, _)| id.kind == kind).map(|(_, verdict)| verdict).collect()
}

/// Whether an object that a problem of `subject` affected may be affected still. It is not once it is ready, suspended, gone,
/// refers to other objects only, or its own run failed otherwise.
fn may_be_affected(
    verdict: &ObjectVerdict,
    subject: &ObjectId,
    is_other: impl Fn(&RootFailure) -> bool,
) -> bool {
    let own_failure = || verdict.failure.as_ref().filter(|_| verdict.is_own);
    match verdict.own {
        ReportedObjectState::Absent | ReportedObjectState::Well | ReportedObjectState::Paused => {
            false
        }
        ReportedObjectState::Unclear => verdict.may_refer_to(subject),
        ReportedObjectState::Failing => {
            verdict.may_refer_to(subject) && !own_failure().is_some_and(is_other)
        }
    }
}

/// Whether an incident that is open and not among [`super::incidents`] has ended: its subject is ready, gone, or fails
/// otherwise. Of a problem that others have with the subject, each of them is, or refers to the subject no longer, which is not
/// known before the objects of all kinds were judged.
///
/// While that is not clear it goes on: an object that is in progress, waits for another one, or whose source fails may fail
/// as before. An object fails otherwise when its own run ended with a failure of another incident, and `is_known` says of
/// that one whether users know of it, so that there is always one of both. Of an incident about the absence of the subject, a
/// cycle or a dependency, a failure need not be its own: that the subject follows from it disproves them.
pub fn is_over(
    record: &IncidentRecord<'_>,
    verdicts: &BTreeMap<ObjectId, ObjectVerdict>,
    is_known: impl Fn(&IncidentIdentity) -> bool,
) -> bool {
    let subject = record.subject;
    let is_other = |failure: &RootFailure| {
        let is_same = failure.subject == *subject && record.is_problem(failure.problem);
        !is_same && is_known(&(failure.subject.clone(), failure.problem))
    };
    let are_affected_done = || {
        record.are_all_judged
            && !record.affected(verdicts).any(|it| may_be_affected(it, subject, is_other))
    };
    let verdict = verdicts.get(subject);
    let failure = verdict.and_then(|it| it.failure.as_ref());
    match verdict.map_or(ReportedObjectState::Absent, |it| it.own) {
        ReportedObjectState::Absent => {
            !record.is_problem(CauseKind::Missing) || are_affected_done()
        }
        ReportedObjectState::Well => !record.is_problem(CauseKind::Artifact) || are_affected_done(),
        ReportedObjectState::Paused if record.is_of_absent_subject() => true,
        // A source that is suspended or cannot be fetched from says nothing about what its consumers do with what it has.
        ReportedObjectState::Paused | ReportedObjectState::Failing
            if record.is_problem(CauseKind::Artifact) =>
        {
            are_affected_done()
        }
        ReportedObjectState::Paused | ReportedObjectState::Unclear => false,
        ReportedObjectState::Failing if record.is_of_absent_subject() => {
            failure.is_none_or(is_other)
        }
        ReportedObjectState::Failing
            if record.is_problem(CauseKind::Cycle) || record.is_problem(CauseKind::Dependency) =>
        {
            failure.is_some_and(is_other)
        }
        ReportedObjectState::Failing => {
            verdict.is_some_and(|it| it.is_own) && failure.is_some_and(is_other)
        }
    }
}

/// Updates the objects that incidents may still affect. Those of `found` are added to `kept`; those are removed that are
/// ready, suspended, gone, refer to the subject no longer, or fail otherwise. This is only for problems that others have
/// with a subject, which end with the last of them.
pub fn keep_affected(
    kept: &mut BTreeMap<IncidentIdentity, BTreeSet<ObjectId>>,
    found: &BTreeMap<IncidentIdentity, Incident>,
    verdicts: &BTreeMap<ObjectId, ObjectVerdict>,
) {
    for (identity, incident) in found.iter().filter(|(identity, _)| is_of_others(identity.1)) {
        kept.entry(identity.clone()).or_default().extend(incident.affected.iter().cloned());
    }
    kept.retain(|identity, affected| {
        let is_other = |it: &RootFailure| it.subject != identity.0 || it.problem != identity.1;
        affected.retain(|id| {
            verdicts.get(id).is_some_and(|it| may_be_affected(it, &identity.0, is_other))
        });
        !affected.is_empty()
    });
}
