//! Incidents: failures with the same deepest cause are one, with the objects that it affects.
//!
//! [`verdict`] judges one object and asks for facts as [`crate::explain`] does; [`incidents`] puts the verdicts together, and
//! [`is_over`] says whether an incident that is open has ended. An incident is known by the object that fails deepest and the
//! kind of its problem, never by a message.
//!
//! Elsewhere: the walk to the cause (`walk.rs`), the objects that keep incidents, and who is notified (the program).

use std::collections::BTreeMap;

use objects::ObjectId;
use reconcile::Time;

use crate::condition::condition;
use crate::fact::{Known, Query};
use crate::reason;
use crate::related;
use crate::result::{Problem, Step};
use crate::walk::{Asked, Found, Seen, Walk, shortened};

/// What an object itself reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Own {
    /// It does not exist.
    Absent,
    /// It is ready.
    Well,
    /// It is suspended, being deleted, or waits for a window: what it reports is no failure.
    Paused,
    /// It is in progress, its spec has not been reconciled, or it cannot be read.
    Unclear,
    /// It is not ready.
    Failing,
}

/// The deepest failure that an object follows from, which may be its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The object that fails deepest, or that does not exist although others refer to it.
    pub subject: ObjectId,
    /// The kind of the problem.
    pub problem: Problem,
    /// The object that has to be mended: the subject, or one that it applies.
    pub cause: ObjectId,
    /// The reason of the condition of the subject.
    pub reason: String,
    /// What happened.
    pub text: String,
    /// The subject waits for something that is not known to fail: most likely it is about to be reconciled.
    pub is_waiting: bool,
}

/// The judgement of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// What it reports.
    pub own: Own,
    /// The failure that it follows from. A ready object has one if newer revisions do not reach it.
    pub failure: Option<Failure>,
}

/// By what an incident is known: the object that fails deepest, and the kind of the problem.
pub type Identity = (ObjectId, Problem);

/// Objects that fail for one cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incident {
    /// The failure of the deepest of them.
    pub failure: Failure,
    /// The others, in order.
    pub affected: Vec<ObjectId>,
}

/// Where the object that fails deepest is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// In all namespaces.
    All,
    /// In the namespace of the object that is judged, so that a tenant learns nothing about the objects of another.
    OwnNamespace,
}

/// Judges an object with what is known.
///
/// # Errors
/// What has to be known besides; called again with the answers, it comes further.
pub fn verdict(
    id: &ObjectId,
    known: &Known,
    now: Time,
    reach: Reach,
) -> Result<Verdict, Vec<Query>> {
    judged(&mut Walk::new(known, now), id, reach)
}

fn judged(walk: &mut Walk<'_>, id: &ObjectId, reach: Reach) -> Asked<Verdict> {
    let within = (reach == Reach::OwnNamespace).then_some(id.namespace.as_str());
    let only = |own| Ok(Verdict { own, failure: None });
    let object = match walk.object(id)? {
        Seen::There(object) => object,
        Seen::Absent => return only(Own::Absent),
        Seen::Hidden => return only(Own::Unclear),
    };
    let ready = condition(object, "Ready");
    if let Some(found) = walk.paused(object, ready)
        && is_hold(found.cause.problem)
    {
        return only(Own::Paused);
    }
    if walk.not_reconciled(object, ready).is_some() {
        return only(Own::Unclear);
    }
    match ready.map(|said| said.status) {
        Some("False") => {
            let found = walk.of(id)?;
            let failure = found.map(|it| failure(walk, it, within)).transpose()?.flatten();
            Ok(Verdict { own: Own::Failing, failure })
        }
        // A kind without conditions is what its spec says.
        Some("True") | None => {
            for source in related::sources(object) {
                if let Some(found) = walk.of(&source)?
                    && let Some(failure) = failure(walk, found, within)?
                {
                    return Ok(Verdict { own: Own::Well, failure: Some(failure) });
                }
            }
            only(Own::Well)
        }
        Some(_) => only(Own::Unclear),
    }
}

/// Problems that a user or a schedule intends, and those that end as soon as the object is reconciled.
fn is_hold(problem: Problem) -> bool {
    matches!(
        problem,
        Problem::Suspension
            | Problem::ExpiredHold
            | Problem::ClosedWindow
            | Problem::Deletion
            | Problem::NotReconciled
    )
}

/// The failure to which a walk came; none if what it came to does not fail. `within` is the only namespace where its subject
/// may be.
fn failure(walk: &mut Walk<'_>, found: Found, within: Option<&str>) -> Asked<Option<Failure>> {
    let cause = found.cause;
    if is_hold(cause.problem) {
        return Ok(None);
    }
    let mut objects = found.steps.iter().rev().map(|step| &step.object);
    let last = objects.find(|it| related::is_reconciled(it)).cloned();
    let is_missing = cause.problem == Problem::Missing && related::is_reconciled(&cause.object);
    let subject = match last {
        // Who names an object of another namespace opens no incident there.
        Some(last) if is_missing && last.namespace != cause.object.namespace => last,
        Some(last) if !related::is_reconciled(&cause.object) => last,
        _ => cause.object.clone(),
    };
    if within.is_some_and(|namespace| subject.namespace != namespace) {
        return confined(walk, &found.steps, within.unwrap_or_default());
    }
    let mut failure = Failure {
        problem: cause.problem,
        cause: cause.object,
        reason: cause.problem.to_string(),
        text: cause.text,
        is_waiting: false,
        subject,
    };
    let object = match walk.object(&failure.subject)? {
        Seen::There(object) => object,
        Seen::Absent => return Ok(is_missing.then_some(failure)),
        Seen::Hidden => return Ok(None),
    };
    let Some(said) = condition(object, "Ready").filter(|said| said.status == "False") else {
        return Ok(None);
    };
    said.reason.clone_into(&mut failure.reason);
    let waits = failure.problem == Problem::Dependency || reason::is_about_source(said.reason);
    failure.is_waiting = waits && failure.subject == failure.cause;
    Ok(Some(failure))
}

/// The failure of the last object of a namespace on the way to a cause in another namespace; none if it does not fail.
fn confined(walk: &mut Walk<'_>, steps: &[Step], namespace: &str) -> Asked<Option<Failure>> {
    let is_own = |id: &&ObjectId| id.namespace == namespace && related::is_reconciled(id);
    let Some(subject) = steps.iter().rev().map(|step| &step.object).find(is_own) else {
        return Ok(None);
    };
    let Seen::There(object) = walk.object(subject)? else { return Ok(None) };
    let Some(said) = condition(object, "Ready").filter(|said| said.status == "False") else {
        return Ok(None);
    };
    Ok(Some(Failure {
        subject: subject.clone(),
        problem: Problem::Dependency,
        cause: subject.clone(),
        reason: said.reason.to_owned(),
        text: shortened(said.message),
        is_waiting: false,
    }))
}

/// Puts verdicts together: one incident for each identity.
pub fn incidents(verdicts: &BTreeMap<ObjectId, Verdict>) -> BTreeMap<Identity, Incident> {
    let mut found: BTreeMap<Identity, Incident> = BTreeMap::new();
    for (id, verdict) in verdicts {
        let Some(failure) = &verdict.failure else { continue };
        let identity = (failure.subject.clone(), failure.problem);
        let incident = found
            .entry(identity)
            .or_insert_with(|| Incident { failure: failure.clone(), affected: Vec::new() });
        if *id == failure.subject {
            incident.failure = failure.clone();
        } else {
            incident.affected.push(id.clone());
        }
    }
    found
}

/// Whether an incident that is open and not among [`incidents`] has ended: its subject is well, gone, or fails otherwise.
/// While that is not clear it goes on.
///
/// `affected` are objects that it affected when it was judged last.
pub fn is_over(
    (subject, problem): (&ObjectId, &str),
    affected: &[String],
    verdicts: &BTreeMap<ObjectId, Verdict>,
) -> bool {
    let own = verdicts.get(subject).map_or(Own::Absent, |it| it.own);
    match own {
        Own::Well => true,
        Own::Absent if problem == Problem::Missing.to_string() => {
            let is_unclear = |id: &ObjectId, verdict: &Verdict| {
                verdict.own == Own::Unclear && affected.contains(&id.subject())
            };
            !verdicts.iter().any(|(id, verdict)| is_unclear(id, verdict))
        }
        Own::Absent => true,
        Own::Paused | Own::Unclear => false,
        Own::Failing => verdicts
            .get(subject)
            .and_then(|it| it.failure.as_ref())
            .is_some_and(|it| it.subject == *subject && it.problem.to_string() != problem),
    }
}
