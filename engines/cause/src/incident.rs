//! Incidents: all failures with the same deepest cause are one incident, which lists the affected objects.
//!
//! [`verdict`] judges one object and asks for facts as [`crate::explain`] does. [`incidents`] joins the verdicts, and
//! [`is_over`] says whether an open incident has ended. An incident is identified by the object that fails deepest and
//! the kind of its problem, never by a message. If consumers cannot use the artifact of a ready source, such as a
//! repository without their paths, that is one incident of the source. Objects that depend on each other in a cycle are
//! one incident (`cycles`).
//!
//! Below: joining the objects of a cycle (`cycles`), and the end of an incident (`incident_end`). Elsewhere: the walk
//! to the cause (`cause_walk.rs`), the objects that store incidents, and notifications (the program).

mod dependency_cycles;
mod incident_end;

use std::collections::{BTreeMap, BTreeSet};

use objects::{Object, ObjectId};
use reconcile::Time;
use reconcile::deletion_order::DELETION_OVERDUE;
use serde_json::Value;

pub use self::dependency_cycles::{first_of_cycles, join_cycles};
pub use self::incident_end::{IncidentRecord, is_over, keep_affected};
use crate::cause_result::{CauseKind, CauseStep};
use crate::cause_walk::{
    CausePath, CauseWalk, ObjectLookup, ResultOrFactQueries, failed_operation, shortened,
};
use crate::condition::{ConditionView, condition, since, text, time};
use crate::condition_reason;
use crate::fact_query::{FactAnswers, FactQuery};
use crate::object_references;

/// The state that an object itself reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportedObjectState {
    /// The object does not exist.
    Absent,
    /// The object is ready.
    Well,
    /// The object is suspended, being deleted, or waits for a window. Its condition is not a failure then.
    Paused,
    /// The object is in progress, its spec has not been reconciled, or it cannot be read.
    Unclear,
    /// The object is not ready.
    Failing,
}

/// The deepest failure that causes an object's state. It may be the object's own failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootFailure {
    /// The object that fails deepest, or a missing object to which others refer.
    pub subject: ObjectId,
    /// The kind of the problem.
    pub problem: CauseKind,
    /// The object that has to be corrected: the subject, or an object that the subject applies.
    pub cause: ObjectId,
    /// The reason of the condition of the subject.
    pub reason: String,
    /// The message about the failure.
    pub text: String,
    /// Since when the failure exists, by the condition of the subject. For a missing subject, it is the condition of
    /// the object that refers to it.
    pub since: Option<Time>,
    /// Whether the subject only waits for an object that is not known to fail. Most likely that object is about to be
    /// reconciled.
    pub is_waiting: bool,
    /// For an object in a cycle: the objects that it depends on or includes.
    pub cycle: Vec<ObjectId>,
}

/// The judgement of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectFailureVerdict {
    /// The state that the object itself reports.
    pub own: ReportedObjectState,
    /// Since when the object is in this state, by its condition `Ready`.
    pub since: Option<Time>,
    /// The failure that causes the state of the object. A ready object has one if newer revisions do not reach it.
    pub failure: Option<RootFailure>,
    /// Whether the object's own last run ended with that failure. While the object waits for another one, or has not
    /// read a new artifact yet, this says nothing about its earlier failure.
    pub is_own: bool,
    /// The objects whose failure or absence may directly cause this object's state, if it fails or its state is
    /// unclear. `None` for an object that cannot be read, and for other states, which do not need them.
    pub refers_to: Option<BTreeSet<ObjectId>>,
}

impl ObjectFailureVerdict {
    /// Whether the object refers to `other`. True also if its references are not known.
    fn may_refer_to(&self, other: &ObjectId) -> bool {
        self.refers_to.as_ref().is_none_or(|it| it.contains(other))
    }
}

/// The identity of an incident: the object that fails deepest, and the kind of the problem.
pub type IncidentIdentity = (ObjectId, CauseKind);

/// An incident: objects that fail because of one cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incident {
    /// The failure of the object that fails deepest.
    pub failure: RootFailure,
    /// The other affected objects, in order.
    pub affected: Vec<ObjectId>,
}

/// Where the search for the object that fails deepest may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RootFailureSearchScope {
    /// The search covers all namespaces.
    All,
    /// The search stays in the namespace of the judged object, so that a tenant learns nothing about the objects of
    /// another tenant.
    OwnNamespace,
}

/// Judges an object by the facts that are known so far.
///
/// # Errors
/// The facts that are still missing. The caller adds the answers and calls again.
pub fn verdict(
    id: &ObjectId,
    known: &FactAnswers,
    now: Time,
    reach: RootFailureSearchScope,
) -> Result<ObjectFailureVerdict, Vec<FactQuery>> {
    judged(&mut CauseWalk::new(known, now), id, reach)
}

fn judged(
    walk: &mut CauseWalk<'_>,
    id: &ObjectId,
    reach: RootFailureSearchScope,
) -> ResultOrFactQueries<ObjectFailureVerdict> {
    let within = (reach == RootFailureSearchScope::OwnNamespace).then_some(id.namespace.as_str());
    let only = |own, since| {
        Ok(ObjectFailureVerdict { own, since, failure: None, is_own: false, refers_to: None })
    };
    let object = match walk.object(id)? {
        ObjectLookup::There(object) => object,
        ObjectLookup::Absent => return only(ReportedObjectState::Absent, None),
        ObjectLookup::Hidden => return only(ReportedObjectState::Unclear, None),
    };
    let ready = condition(object, "Ready");
    let since = ready.and_then(|said| since(object, said));
    if let Some(failure) = overdue_deletion(object) {
        let own = ReportedObjectState::Failing;
        let since = failure.since;
        let refers_to = Some(BTreeSet::new());
        return Ok(ObjectFailureVerdict {
            own,
            since,
            failure: Some(failure),
            is_own: true,
            refers_to,
        });
    }
    if let Some(found) = walk.paused(object, ready)
        && is_hold(found.cause.problem)
    {
        return only(ReportedObjectState::Paused, since);
    }
    let unclear = || {
        let refers_to = Some(referred(object));
        let own = ReportedObjectState::Unclear;
        Ok(ObjectFailureVerdict { own, since, failure: None, is_own: false, refers_to })
    };
    if walk.not_reconciled(object, ready).is_some() {
        return unclear();
    }
    match ready.map(|said| (said.status, said.reason)) {
        Some(("False", reason)) => {
            let found = walk.of(id)?;
            let failure = found.map(|it| failure(walk, it, within)).transpose()?.flatten();
            let is_own = failure.as_ref().is_some_and(|it| is_of_own_run(id, reason, it));
            let refers_to = Some(referred(object));
            let own = ReportedObjectState::Failing;
            Ok(ObjectFailureVerdict { own, since, failure, is_own, refers_to })
        }
        // A kind without conditions counts as ready with its current spec.
        Some(("True", _)) | None => {
            for source in object_references::sources(object) {
                if let Some(found) = walk.of(&source)?
                    && let Some(failure) = failure(walk, found, within)?
                {
                    return Ok(ObjectFailureVerdict {
                        own: ReportedObjectState::Well,
                        since,
                        failure: Some(failure),
                        is_own: false,
                        refers_to: None,
                    });
                }
            }
            only(ReportedObjectState::Well, since)
        }
        Some(_) => unclear(),
    }
}

/// The failure of an object whose own deletion delayed the deletion of another one for too long. `None` for any other
/// object, since other deletions open no incident.
fn overdue_deletion(object: &Object) -> Option<RootFailure> {
    let held = shortened(object.annotation(DELETION_OVERDUE)?);
    let since = object.meta("deletionTimestamp").and_then(Value::as_str)?;
    let id = object.id();
    Some(RootFailure {
        subject: id.clone(),
        problem: CauseKind::Deletion,
        cause: id,
        reason: "DependentNotDeleted".to_owned(),
        text: format!("is still being deleted, so that {held} was deleted before it"),
        since: since.parse().ok(),
        is_waiting: false,
        cycle: Vec::new(),
    })
}

/// The objects whose failure or absence may directly cause an object's state: the objects that its spec names, and
/// those that it applied.
fn referred(object: &Object) -> BTreeSet<ObjectId> {
    let dependencies = object_references::dependencies(object).into_iter();
    let dependencies = dependencies.flat_map(|it| std::iter::once(it.object).chain(it.otherwise));
    let applied = object_references::applied(object).into_iter();
    let applied = applied.filter(object_references::is_reconciled);
    object_references::sources(object).into_iter().chain(dependencies).chain(applied).collect()
}

/// Whether the object's own last run failed with this reason. A run that did not begin because another object is not
/// ready does not count.
fn is_of_own_run(id: &ObjectId, reason: &str, failure: &RootFailure) -> bool {
    if failure.is_waiting || reason == reconcile::condition_reason::DEPENDENCY_NOT_READY.as_str() {
        return false;
    }
    match failure.problem {
        // The object cannot use the artifact of a source. The failure is the object's own, although its subject is the
        // source.
        CauseKind::Artifact => reason == reconcile::condition_reason::ARTIFACT_FAILED.as_str(),
        // The first object of the cycle is the subject (`cycles`).
        CauseKind::Cycle => !condition_reason::is_about_source(reason),
        _ => failure.subject == *id && !condition_reason::is_about_source(reason),
    }
}

/// Whether a user or a schedule intends this problem, or it ends as soon as the object is reconciled.
fn is_hold(problem: CauseKind) -> bool {
    matches!(
        problem,
        CauseKind::Suspension
            | CauseKind::ExpiredHold
            | CauseKind::ClosedWindow
            | CauseKind::Freeze
            | CauseKind::Wave
            | CauseKind::Deletion
            | CauseKind::NotReconciled
    )
}

/// The failure that a walk found. `None` if the object that it found does not fail. `within` is the only namespace
/// where the subject of the failure may be.
fn failure(
    walk: &mut CauseWalk<'_>,
    found: CausePath,
    within: Option<&str>,
) -> ResultOrFactQueries<Option<RootFailure>> {
    let cause = found.cause;
    if is_hold(cause.problem) {
        return Ok(None);
    }
    let mut objects = found.steps.iter().rev().map(|step| &step.object);
    let last = objects.find(|it| object_references::is_reconciled(it)).cloned();
    let is_missing =
        cause.problem == CauseKind::Missing && object_references::is_reconciled(&cause.object);
    let subject = match last {
        // An object that names one of another namespace does not open an incident there.
        Some(last) if is_missing && last.namespace != cause.object.namespace => last,
        Some(last) if !object_references::is_reconciled(&cause.object) => last,
        _ => cause.object.clone(),
    };
    if within.is_some_and(|namespace| subject.namespace != namespace) {
        return confined(walk, &found.steps, within.unwrap_or_default());
    }
    let mut failure = RootFailure {
        problem: cause.problem,
        reason: cause.problem.to_string(),
        text: match is_missing {
            true => format!("{} {}", cause.object.subject(), cause.text),
            false => cause.line(&subject),
        },
        cause: cause.object,
        since: found.steps.last().and_then(|step| step.since),
        is_waiting: false,
        cycle: Vec::new(),
        subject,
    };
    let object = match walk.object(&failure.subject)? {
        ObjectLookup::There(object) => object,
        ObjectLookup::Absent => return Ok(is_missing.then_some(failure)),
        ObjectLookup::Hidden => return Ok(None),
    };
    let Some(said) = condition(object, "Ready").filter(|said| said.status == "False") else {
        return Ok(None);
    };
    failed_operation(object, said).reason.clone_into(&mut failure.reason);
    failure.since = since(object, said);
    if failure.problem == CauseKind::Cycle {
        let depends = object_references::dependencies(object).into_iter().map(|it| it.object);
        failure.cycle = depends.chain(object_references::sources(object)).collect();
    }
    if failure.subject != failure.cause {
        return Ok(Some(failure));
    }
    if let Some(source) = unusable(walk, object, said)? {
        // An object that names a source of another namespace does not open an incident there.
        if source.namespace == failure.subject.namespace {
            failure.problem = CauseKind::Artifact;
            failure.text = format!("{}: {}", failure.subject.subject(), failure.text);
            failure.subject = source;
        }
        return Ok(Some(failure));
    }
    failure.is_waiting =
        failure.problem == CauseKind::Dependency || condition_reason::is_about_source(said.reason);
    Ok(Some(failure))
}

/// The source whose artifact an object has fetched but cannot use. The source is ready, and all of its consumers report
/// the failure. If the object has not read the artifact yet, it only waits for its own reconciliation.
fn unusable(
    walk: &mut CauseWalk<'_>,
    object: &Object,
    said: ConditionView<'_>,
) -> ResultOrFactQueries<Option<ObjectId>> {
    if said.reason != reconcile::condition_reason::ARTIFACT_FAILED.as_str() {
        return Ok(None);
    }
    let attempted =
        object.get("status").map(|it| text(it, "lastAttemptedRevision")).unwrap_or_default();
    for id in object_references::sources(object) {
        let ObjectLookup::There(source) = walk.object(&id)? else { continue };
        let artifact = source.get("status").and_then(|it| it.get("artifact"));
        let is_ready = condition(source, "Ready").is_some_and(|said| said.status == "True");
        let Some(artifact) = artifact.filter(|_| is_ready) else { continue };
        let is_attempted = !attempted.is_empty() && attempted == text(artifact, "revision");
        let stored = time(artifact, "lastUpdateTime");
        if is_attempted || said.since.zip(stored).is_some_and(|(since, stored)| since > stored) {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

/// For a cause in another namespace: the failure of the last object of the own namespace on the path. `None` if that
/// object does not fail.
fn confined(
    walk: &mut CauseWalk<'_>,
    steps: &[CauseStep],
    namespace: &str,
) -> ResultOrFactQueries<Option<RootFailure>> {
    let is_own = |id: &&ObjectId| id.namespace == namespace && object_references::is_reconciled(id);
    let Some(subject) = steps.iter().rev().map(|step| &step.object).find(is_own) else {
        return Ok(None);
    };
    let ObjectLookup::There(object) = walk.object(subject)? else { return Ok(None) };
    let Some(said) = condition(object, "Ready").filter(|said| said.status == "False") else {
        return Ok(None);
    };
    Ok(Some(RootFailure {
        subject: subject.clone(),
        problem: CauseKind::Dependency,
        cause: subject.clone(),
        reason: failed_operation(object, said).reason.to_owned(),
        text: shortened(said.message),
        since: since(object, said),
        is_waiting: false,
        cycle: Vec::new(),
    }))
}

/// Joins the verdicts: all failures with the same identity become one incident.
pub fn incidents(
    verdicts: &BTreeMap<ObjectId, ObjectFailureVerdict>,
) -> BTreeMap<IncidentIdentity, Incident> {
    let mut found: BTreeMap<IncidentIdentity, Incident> = BTreeMap::new();
    for (id, verdict) in verdicts {
        let Some(failure) = &verdict.failure else { continue };
        let identity = (failure.subject.clone(), failure.problem);
        let incident = found
            .entry(identity)
            .or_insert_with(|| Incident { failure: failure.clone(), affected: Vec::new() });
        if *id == failure.subject {
            incident.failure = failure.clone();
            continue;
        }
        incident.affected.push(id.clone());
        // The subject itself does not say since when.
        if is_of_others(failure.problem) && failure.since < incident.failure.since {
            incident.failure.since = failure.since.or(incident.failure.since);
        }
    }
    found
}

/// Whether a problem shows only in the objects that refer to the subject, while the subject itself is absent or ready.
fn is_of_others(problem: CauseKind) -> bool {
    matches!(problem, CauseKind::Missing | CauseKind::Artifact)
}
