//! Incidents: failures with the same deepest cause are one, with the objects that it affects.
//!
//! [`verdict`] judges one object and asks for facts as [`crate::explain`] does; [`incidents`] puts the verdicts together, and
//! [`is_over`] says whether an incident that is open has ended. An incident is known by the object that fails deepest and the
//! kind of its problem, never by a message. What a ready source has and its consumers cannot use, such as a wrong repository
//! without their paths, is one incident of the source; objects that depend on each other in a cycle are one (`cycles`).
//!
//! Below: what objects of cycles share (`cycles`), and when an incident has ended (`incident_end`).
//! Elsewhere: the walk to the cause (`cause_walk.rs`), the objects that keep incidents, and notifications (the
//! program).

mod cycles;
mod incident_end;

use std::collections::{BTreeMap, BTreeSet};

use objects::{Object, ObjectId};
use reconcile::Time;
use reconcile::deletion_order::DELETION_OVERDUE;
use serde_json::Value;

pub use self::cycles::{first_of_cycles, join_cycles};
pub use self::incident_end::{IncidentRecord, is_over, keep_affected};
use crate::cause_result::{CauseKind, CauseStep};
use crate::cause_walk::{
    CausePath, CauseWalk, ObjectLookup, ResultOrFactQueries, failed_operation, shortened,
};
use crate::condition::{ConditionView, condition, since, text, time};
use crate::condition_reason;
use crate::fact_query::{FactQuery, QueryAnswers};
use crate::object_references;

/// What an object itself reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportedObjectState {
    /// It does not exist.
    Absent,
    /// It is ready.
    Well,
    /// It is suspended, being deleted, or waits for a window: what it reports is not a failure.
    Paused,
    /// It is in progress, its spec has not been reconciled, or it cannot be read.
    Unclear,
    /// It is not ready.
    Failing,
}

/// The deepest failure that an object follows from, which may be its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootFailure {
    /// The object that fails deepest, or that does not exist although others refer to it.
    pub subject: ObjectId,
    /// The kind of the problem.
    pub problem: CauseKind,
    /// The object that has to be mended: the subject, or one that it applies.
    pub cause: ObjectId,
    /// The reason of the condition of the subject.
    pub reason: String,
    /// What happened.
    pub text: String,
    /// Since when, by the condition of the subject, or of the object that refers to a missing subject.
    pub since: Option<Time>,
    /// The subject waits for something that is not known to fail: most likely it is about to be reconciled.
    pub is_waiting: bool,
    /// Of an object that is in a cycle: what it depends on and includes.
    pub cycle: Vec<ObjectId>,
}

/// The judgement of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectVerdict {
    /// What it reports.
    pub own: ReportedObjectState,
    /// Since when, by its condition `Ready`.
    pub since: Option<Time>,
    /// The failure that it follows from. A ready object has one if newer revisions do not reach it.
    pub failure: Option<RootFailure>,
    /// Whether its own last run ended with that failure. While it waits for another object or has not read a new artifact
    /// yet, nothing is known of its own failure before.
    pub is_own: bool,
    /// The objects whose failure or absence it may follow from directly, of one that fails or whose state is unclear. None of
    /// one that cannot be read, and of others, for which it makes no difference.
    pub refers_to: Option<BTreeSet<ObjectId>>,
}

impl ObjectVerdict {
    /// Whether it refers to another object, or that is not known.
    fn may_refer_to(&self, other: &ObjectId) -> bool {
        self.refers_to.as_ref().is_none_or(|it| it.contains(other))
    }
}

/// The identity of an incident: the object that fails deepest, and the kind of the problem.
pub type IncidentIdentity = (ObjectId, CauseKind);

/// Objects that fail for one cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incident {
    /// The failure of the deepest of them.
    pub failure: RootFailure,
    /// The others, in order.
    pub affected: Vec<ObjectId>,
}

/// Where the object that fails deepest is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RootFailureSearchScope {
    /// In all namespaces.
    All,
    /// In the namespace of the object that is judged, so that a tenant learns nothing about the objects of another.
    OwnNamespace,
}

/// Judges an object with the facts known so far.
///
/// # Errors
/// Facts that are missing; the caller adds the answers and calls again.
pub fn verdict(
    id: &ObjectId,
    known: &QueryAnswers,
    now: Time,
    reach: RootFailureSearchScope,
) -> Result<ObjectVerdict, Vec<FactQuery>> {
    judged(&mut CauseWalk::new(known, now), id, reach)
}

fn judged(
    walk: &mut CauseWalk<'_>,
    id: &ObjectId,
    reach: RootFailureSearchScope,
) -> ResultOrFactQueries<ObjectVerdict> {
    let within = (reach == RootFailureSearchScope::OwnNamespace).then_some(id.namespace.as_str());
    let only = |own, since| {
        Ok(ObjectVerdict { own, since, failure: None, is_own: false, refers_to: None })
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
        return Ok(ObjectVerdict { own, since, failure: Some(failure), is_own: true, refers_to });
    }
    if let Some(found) = walk.paused(object, ready)
        && is_hold(found.cause.problem)
    {
        return only(ReportedObjectState::Paused, since);
    }
    let unclear = || {
        let refers_to = Some(referred(object));
        let own = ReportedObjectState::Unclear;
        Ok(ObjectVerdict { own, since, failure: None, is_own: false, refers_to })
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
            Ok(ObjectVerdict { own, since, failure, is_own, refers_to })
        }
        // A kind without conditions counts as ready with its spec.
        Some(("True", _)) | None => {
            for source in object_references::sources(object) {
                if let Some(found) = walk.of(&source)?
                    && let Some(failure) = failure(walk, found, within)?
                {
                    return Ok(ObjectVerdict {
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

/// The failure of an object whose deletion held that of another one for too long: it is the only object that is being deleted and of
/// which an incident tells.
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

/// The objects whose failure or absence an object may follow from directly: those that its spec names, and what it applied.
fn referred(object: &Object) -> BTreeSet<ObjectId> {
    let dependencies = object_references::dependencies(object).into_iter();
    let dependencies = dependencies.flat_map(|it| std::iter::once(it.object).chain(it.otherwise));
    let applied = object_references::applied(object).into_iter();
    let applied = applied.filter(object_references::is_reconciled);
    object_references::sources(object).into_iter().chain(dependencies).chain(applied).collect()
}

/// Whether the last run of an object whose condition has this reason ended with a failure, instead of before it began since
/// another object is not ready.
fn is_of_own_run(id: &ObjectId, reason: &str, failure: &RootFailure) -> bool {
    if failure.is_waiting || reason == reconcile::reason::DEPENDENCY_NOT_READY.as_str() {
        return false;
    }
    match failure.problem {
        // What a source has and the object cannot use, which the source is the subject of.
        CauseKind::Artifact => reason == reconcile::reason::ARTIFACT_FAILED.as_str(),
        // The first object of the cycle is the subject (`cycles`).
        CauseKind::Cycle => !condition_reason::is_about_source(reason),
        _ => failure.subject == *id && !condition_reason::is_about_source(reason),
    }
}

/// Problems that a user or a schedule intends, and those that end as soon as the object is reconciled.
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

/// The failure to which a walk came; none if what it came to does not fail. `within` is the only namespace where its subject
/// may be.
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

/// The source whose artifact an object has and cannot use: the source is ready, and what it has is wrong, which all its
/// consumers report. An object that has not read the artifact yet waits for its own reconciliation.
fn unusable(
    walk: &mut CauseWalk<'_>,
    object: &Object,
    said: ConditionView<'_>,
) -> ResultOrFactQueries<Option<ObjectId>> {
    if said.reason != reconcile::reason::ARTIFACT_FAILED.as_str() {
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

/// The failure of the last object of a namespace on the way to a cause in another namespace; none if it does not fail.
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

/// Puts verdicts together: one incident for each identity.
pub fn incidents(
    verdicts: &BTreeMap<ObjectId, ObjectVerdict>,
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
        // The subject has no such time itself.
        if is_of_others(failure.problem) && failure.since < incident.failure.since {
            incident.failure.since = failure.since.or(incident.failure.since);
        }
    }
    found
}

/// Whether a problem is one of objects that refer to the subject, which itself is absent or ready.
fn is_of_others(problem: CauseKind) -> bool {
    matches!(problem, CauseKind::Missing | CauseKind::Artifact)
}
