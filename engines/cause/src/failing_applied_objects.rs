//! Finds applied objects that fail or do not exist. An applied object may itself apply objects, so the walk goes down
//! through it.
//!
//! Elsewhere: judging one applied object (`workload.rs`), objects that another owner took (`taken_over_objects.rs`),
//! and the list of applied objects (`object_references.rs`).

use std::collections::BTreeSet;

use apply::HealthStatus;
use objects::{Object, ObjectId};
use reconcile::Time;

use crate::cause_result::CauseKind;
use crate::cause_walk::{CausePath, CauseWalk, ObjectLookup, ResultOrFactQueries};
use crate::condition::ConditionView;
use crate::fact_query::{FactAnswer, FactQuery};
use crate::object_references;
use crate::workload::health_of;

/// How many of the objects that one object applied are read.
const MOST_OBJECTS: usize = 500;

/// How many unhealthy objects the walk examines further.
const MOST_FOLLOWED: usize = 8;

/// What is wrong with an applied object, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum AppliedObjectProblem {
    /// The object is a Namespace that is being deleted, with everything in it.
    LeavingNamespace,
    /// The object has failed, or does not exist.
    Failure,
    /// The object is in progress.
    Progress,
}

impl CauseWalk<'_> {
    /// The cause among the applied objects. A missing object is a cause only if all of them should exist.
    pub(crate) fn applied(
        &mut self,
        object: &Object,
        is_complete: bool,
    ) -> ResultOrFactQueries<Option<CausePath>> {
        let ids = self.unread_objects(object);
        self.ask(ids.iter().map(|id| FactQuery::Object(id.clone())))?;
        let mut sick: Vec<(AppliedObjectProblem, ObjectId)> = Vec::new();
        let mut appliers = Vec::new();
        for id in ids {
            match self.object(&id)? {
                ObjectLookup::Hidden => {
                    self.unread.insert(id);
                }
                ObjectLookup::Absent if !is_complete => {}
                ObjectLookup::Absent => {
                    if self.is_explaining
                        && let Some(found) = self.leaving_namespace(&id.namespace)?
                    {
                        return Ok(Some(found));
                    }
                    match is_job(&id) {
                        true => self.remark_job(&id),
                        false => sick.push((AppliedObjectProblem::Failure, id)),
                    }
                }
                ObjectLookup::There(found) => {
                    let is_applier = !object_references::applied(found).is_empty();
                    match ailment(found, self.now()) {
                        Some(ailment) => sick.push((ailment, id)),
                        None if self.is_explaining && is_applier => appliers.push(id),
                        None => {}
                    }
                }
            }
        }
        sick.sort_by_key(|(ailment, _)| *ailment);
        for (_, id) in sick.into_iter().take(MOST_FOLLOWED) {
            if let Some(found) = self.of(&id)? {
                return Ok(Some(found));
            }
        }
        self.below_appliers(appliers)
    }

    /// For an object that is being deleted: its first applied object that is being deleted, too, and still exists.
    pub(crate) fn terminating(
        &mut self,
        object: &Object,
    ) -> ResultOrFactQueries<Option<CausePath>> {
        let ids = self.unread_objects(object);
        self.ask(ids.iter().map(|id| FactQuery::Object(id.clone())))?;
        for id in ids {
            let ObjectLookup::There(applied) = self.object(&id)? else { continue };
            if applied.meta("deletionTimestamp").is_some()
                && let Some(found) = self.of(&id)?
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The applied objects that the walk has to read. Objects that are known to be healthy are left out, and the bounds
    /// limit the rest.
    fn unread_objects(&mut self, object: &Object) -> Vec<ObjectId> {
        let mut ids = object_references::applied(object);
        if !ids.is_empty() && object_references::is_elsewhere(object) {
            self.remarks.insert(format!(
                "what {} applied is in another cluster, which was not read",
                object.id().subject()
            ));
            return Vec::new();
        }
        ids.retain(|id| !self.known.is_well(id));
        let most = MOST_OBJECTS.min(self.readable);
        if ids.len() > most {
            self.remarks.insert(format!(
                "{most} of {} objects that {} applied were read, workloads first",
                ids.len(),
                object.id().subject()
            ));
            ids.sort_by_key(|id| !is_workload(id));
            ids.truncate(most);
        }
        self.readable = self.readable.saturating_sub(ids.len());
        ids
    }

    /// The first cause below ready objects that apply others. Suspended objects among them are no cause, because a user
    /// suspended them on purpose.
    fn below_appliers(&mut self, ids: Vec<ObjectId>) -> ResultOrFactQueries<Option<CausePath>> {
        let mut first = None;
        let mut unknown = BTreeSet::new();
        for id in ids {
            match self.of(&id) {
                Ok(Some(found)) if is_pause(found.cause.problem) => {
                    let why = found.cause.line(&id);
                    self.remarks
                        .insert(format!("what {} applied was not examined: {why}", id.subject()));
                }
                Ok(found) => first = first.or(found),
                // The queries of all these objects are collected, so that they are answered together.
                Err(queries) => unknown.extend(queries),
            }
        }
        if unknown.is_empty() { Ok(first) } else { Err(unknown.into_iter().collect()) }
    }

    /// The cause of a missing object, or of one that cannot be created: its Namespace is being deleted.
    fn leaving_namespace(&mut self, name: &str) -> ResultOrFactQueries<Option<CausePath>> {
        if name.is_empty() {
            return Ok(None);
        }
        let query = FactQuery::Object(ObjectId::new("", name, "", "Namespace"));
        let known = self.known;
        match known.get(&query) {
            None => Err(vec![query]),
            Some(FactAnswer::Objects(found)) => match found.first() {
                Some(namespace) if namespace.meta("deletionTimestamp").is_some() => {
                    self.workload(namespace)
                }
                _ => Ok(None),
            },
            // Not every user may read Namespaces.
            Some(FactAnswer::Lines(_) | FactAnswer::Refused(_)) => Ok(None),
        }
    }

    /// The Namespace that the API server's refusal names, if it really is being deleted.
    pub(crate) fn refusing_namespace(
        &mut self,
        said: ConditionView<'_>,
    ) -> ResultOrFactQueries<Option<CausePath>> {
        let Some((before, _)) = said.message.split_once(" because it is being terminated") else {
            return Ok(None);
        };
        let name = before.rsplit(' ').next().unwrap_or_default();
        self.leaving_namespace(name)
    }

    fn remark_job(&mut self, id: &ObjectId) {
        self.remarks.insert(format!(
            "{} does not exist; a Job that has ended may be deleted (ttlSecondsAfterFinished)",
            id.subject()
        ));
    }
}

fn ailment(object: &Object, now: Time) -> Option<AppliedObjectProblem> {
    match health_of(object, now) {
        Ok(report) if report.is_current() => None,
        Ok(report)
            if report.status == HealthStatus::Terminating && object.kind() == "Namespace" =>
        {
            Some(AppliedObjectProblem::LeavingNamespace)
        }
        Ok(report) if report.status == HealthStatus::Failed => Some(AppliedObjectProblem::Failure),
        Ok(_) => Some(AppliedObjectProblem::Progress),
        Err(_) => Some(AppliedObjectProblem::Failure),
    }
}

fn is_job(id: &ObjectId) -> bool {
    id.group == "batch" && id.kind == "Job"
}

/// Whether the kind of an object has a status that says more than that the object exists.
fn is_workload(id: &ObjectId) -> bool {
    matches!(id.group.as_str(), "apps" | "batch")
        || matches!(id.kind.as_str(), "Pod" | "PersistentVolumeClaim")
        || object_references::is_reconciled(id)
}

/// Whether a user or a schedule intends this problem.
fn is_pause(problem: CauseKind) -> bool {
    matches!(
        problem,
        CauseKind::Suspension
            | CauseKind::ExpiredHold
            | CauseKind::ClosedWindow
            | CauseKind::Freeze
            | CauseKind::Wave
    )
}
