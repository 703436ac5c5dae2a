//! When an open incident has ended, and which objects it may still affect.
//!
//! Elsewhere: which failures are incidents (`incident`).

use std::collections::{BTreeMap, BTreeSet};

use objects::ObjectId;

use super::{
    Incident, IncidentIdentity, ObjectFailureVerdict, ReportedObjectState, RootFailure,
    is_of_others,
};
use crate::cause_result::CauseKind;

/// The stored facts about an open incident.
#[derive(Debug, Clone, Copy)]
pub struct IncidentRecord<'i> {
    /// The object that failed deepest.
    pub subject: &'i ObjectId,
    /// The kind of the problem.
    pub problem: &'i str,
    /// The object that had to be corrected, as messages name it.
    pub cause: &'i str,
    /// The objects that the incident affected, as messages name them.
    pub affected: &'i BTreeSet<String>,
    /// The objects that the incident may still affect, from [`keep_affected`].
    pub kept: Option<&'i BTreeSet<ObjectId>>,
    /// Whether the objects of all kinds were judged. After a restart, for example, that is not so yet. Until then, an
    /// affected object without a verdict may exist and fail.
    pub are_all_judged: bool,
}

impl IncidentRecord<'_> {
    fn is_problem(&self, problem: CauseKind) -> bool {
        problem.to_string() == self.problem
    }

    /// Whether the incident is about the absence of its subject, and not of another object that the subject names.
    fn is_of_absent_subject(&self) -> bool {
        self.is_problem(CauseKind::Missing) && self.cause == self.subject.subject()
    }

    /// The verdicts on the affected objects that still exist.
    fn affected<'v>(
        &self,
        verdicts: &'v BTreeMap<ObjectId, ObjectFailureVerdict>,
    ) -> impl Iterator<Item = &'v ObjectFailureVerdict> {
        let by_name = self.affected.iter().flat_map(move |name| named(verdicts, name));
        by_name.chain(self.kept.into_iter().flatten().filter_map(move |id| verdicts.get(id)))
    }
}

/// The verdicts on the objects with this name in messages. Such a name has no API group, so there may be several.
fn named<'v>(
    verdicts: &'v BTreeMap<ObjectId, ObjectFailureVerdict>,
    name: &str,
) -> Vec<&'v ObjectFailureVerdict> {
    let Some((kind, rest)) = name.split_once('/') else { return Vec::new() };
    let Some((namespace, name)) = rest.split_once('/') else { return Vec::new() };
    let all = verdicts.range(ObjectId::new(namespace, name, "", "")..);
    let all = all.take_while(|(id, _)| id.namespace == namespace && id.name == name);
    all.filter(|(id, _)| id.kind == kind).map(|(_, verdict)| verdict).collect()
}

/// Whether an object that a problem of `subject` affected may still be affected. That ends when the object is ready,
/// suspended or gone, refers only to other objects, or fails in its own run for another reason.
fn may_be_affected(
    verdict: &ObjectFailureVerdict,
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

/// Whether an open incident that [`super::incidents`] does not report has ended. It ends when its subject is ready,
/// gone, or fails for another reason. A problem of the objects that refer to the subject ends when that holds for each
/// of them, or when none refers to the subject. That is only known once the objects of all kinds are judged.
///
/// While the state is unclear, the incident goes on. An object is unclear if it is in progress, waits for another one,
/// or its source fails. An object fails for another reason if its own run ended with the failure of another incident,
/// of which users know (`is_known`). There is thus always one of the two. If the incident is about an absent subject, a
/// cycle or a dependency, the failure need not be the subject's own.
pub fn is_over(
    record: &IncidentRecord<'_>,
    verdicts: &BTreeMap<ObjectId, ObjectFailureVerdict>,
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
        // A suspended source, or one that cannot be fetched, says nothing about whether its consumers can use its
        // artifact.
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

/// Updates the objects that incidents may still affect. It adds the objects of `found` to `kept`, and removes objects
/// that are ready, suspended or gone, that do not refer to the subject any more, or that fail for another reason. It is
/// only for problems of the objects that refer to a subject, which end with the last of these objects.
pub fn keep_affected(
    kept: &mut BTreeMap<IncidentIdentity, BTreeSet<ObjectId>>,
    found: &BTreeMap<IncidentIdentity, Incident>,
    verdicts: &BTreeMap<ObjectId, ObjectFailureVerdict>,
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
