//! The walk over objects that windlass reconciles: hold and window, source, dependencies, and the object's own run.
//!
//! Elsewhere: applied objects (`applied_objects.rs`), second causes (`second_cause.rs`), runs in progress
//! (`runs_in_progress.rs`), and the next run (`next_run.rs`).

use std::collections::BTreeSet;

use apply::{HealthStatus, dry_run_refusal};
use objects::{Object, ObjectId};
use reconcile::{ChangeWindowState, Time, object_dependency};
use serde_json::Value;

use crate::advice::CauseRelatedObjects;
use crate::cause_result::{
    CauseAdvice, CauseKind, CauseStep, ExaminedObjectState, RootCause, SecondCause,
    StateExplanation,
};
use crate::condition::{
    ConditionView, condition, exhausted, is_set, since, spec_changed, text, time,
};
use crate::condition_reason;
use crate::fact_query::{FactAnswer, FactAnswers, FactQuery};
use crate::object_references::{self, RequiredDependency};
use crate::object_suspension::{rollback, suspension};
use crate::required_secret_keys::RequiredSecretKeys;
use crate::second_cause::FirstAndSecondCause;
use crate::workload::health_of;

/// A result, or the queries that have to be answered first.
pub(crate) type ResultOrFactQueries<T> = Result<T, Vec<FactQuery>>;

/// How many objects the path to a cause may have.
pub(crate) const MAX_PATH_OBJECTS: usize = 32;

/// How many objects one walk visits. Without this limit, objects that include each other could be reached on very many
/// paths.
const MOST_VISITED: usize = 2_000;

/// How many applied objects one walk reads.
const MOST_APPLIED: usize = 5_000;

/// How long a message may be, in characters.
const MAX_MESSAGE_CHARACTERS: usize = 600;

/// How many characters of a shortened message are taken from its end.
const END_CHARACTERS: usize = 200;

/// A cause, and the path to it from the outermost object on.
#[derive(Debug)]
pub(crate) struct CausePath {
    pub(crate) steps: Vec<CauseStep>,
    pub(crate) cause: RootCause,
}

/// What a lookup of one object found.
pub(crate) enum ObjectLookup<'k> {
    There(&'k Object),
    Absent,
    Hidden,
}

/// The state of one walk.
pub(crate) struct CauseWalk<'k> {
    pub(crate) known: &'k FactAnswers,
    now: Time,
    pub(crate) way: Vec<ObjectId>,
    /// Objects without a cause, on whichever path the walk reaches them.
    well: BTreeSet<ObjectId>,
    /// How many objects may still be visited.
    left: usize,
    /// How many applied objects may still be read.
    pub(crate) readable: usize,
    /// Whether the walk left an object out, because the object is on the path already or a bound was reached.
    is_cut: bool,
    /// Whether a user asks about one object. The walk then continues below ready objects, and an object in progress is
    /// not a cause. For an incident, neither holds.
    pub(crate) is_explaining: bool,
    pub(crate) remarks: BTreeSet<String>,
    /// Applied objects that could not be read.
    pub(crate) unread: BTreeSet<ObjectId>,
}

impl<'k> CauseWalk<'k> {
    pub(crate) fn new(known: &'k FactAnswers, now: Time) -> Self {
        Self {
            known,
            now,
            way: Vec::new(),
            well: BTreeSet::new(),
            left: MOST_VISITED,
            readable: MOST_APPLIED,
            is_cut: false,
            is_explaining: false,
            remarks: BTreeSet::new(),
            unread: BTreeSet::new(),
        }
    }

    pub(crate) fn now(&self) -> Time {
        self.now
    }

    pub(crate) fn explain(mut self, subject: &ObjectId) -> ResultOrFactQueries<StateExplanation> {
        self.is_explaining = true;
        let object = match self.object(subject)? {
            ObjectLookup::There(object) => object,
            ObjectLookup::Absent => {
                let cause = cause(subject, CauseKind::Missing, "does not exist", None);
                let found = CausePath { steps: vec![], cause };
                return Ok(self.why(
                    subject,
                    ExaminedObjectState::Missing,
                    None,
                    FirstAndSecondCause::of(Some(found)),
                ));
            }
            ObjectLookup::Hidden => {
                return Ok(self.why(
                    subject,
                    ExaminedObjectState::Hidden,
                    None,
                    FirstAndSecondCause::of(None),
                ));
            }
        };
        let found = self.of(subject)?;
        let state = self.state(object, found.as_ref());
        self.remark_warnings(object)?;
        if !object_references::is_reconciled(subject) {
            if state == ExaminedObjectState::Ready
                && let Some(found) = self.of_applier(object)?
            {
                let findings = FirstAndSecondCause::of(Some(found));
                return Ok(self.why(subject, ExaminedObjectState::Stale, Some(object), findings));
            }
            return Ok(self.why(subject, state, Some(object), FirstAndSecondCause::of(found)));
        }
        if state == ExaminedObjectState::Suspended {
            self.remark_newer(object)?;
        }
        if let Some(wave) = condition(object, reconcile::WAVE).filter(|it| it.status == "True") {
            self.remarks.insert(wave.message.to_owned());
        }
        let findings = self.findings(object, found)?;
        let state = self.state(object, findings.first.as_ref());
        Ok(self.why(subject, state, Some(object), findings))
    }

    fn why(
        self,
        subject: &ObjectId,
        state: ExaminedObjectState,
        object: Option<&Object>,
        findings: FirstAndSecondCause,
    ) -> StateExplanation {
        let ready = object.and_then(|it| condition(it, "Ready"));
        let message = ready.map(|said| shortened(said.message)).unwrap_or_default();
        let FirstAndSecondCause { first, second } = findings;
        let second = second.map(|found| {
            let advice = self.second_advice(&found, first.as_ref(), object);
            SecondCause { cause: found.cause, advice }
        });
        let advice = first.as_ref().and_then(|found| self.advice(found, object));
        let (path, cause) = first.map_or((Vec::new(), None), |it| (it.steps, Some(it.cause)));
        let next = object.and_then(|it| self.next(it, cause.as_ref()));
        let unread = self.unread.iter().map(ObjectId::subject).collect();
        let remarks = self.remarks.into_iter().collect();
        StateExplanation {
            object: subject.clone(),
            state,
            message,
            cause,
            path,
            next,
            advice,
            second,
            unread,
            remarks,
        }
    }

    /// Advice against the cause to which the path `found` leads, for `subject`, the object that the user asked about.
    /// `None` if there is no advice.
    pub(crate) fn advice(
        &self,
        found: &CausePath,
        subject: Option<&Object>,
    ) -> Option<CauseAdvice> {
        let CausePath { steps, cause } = found;
        let known = |id: &ObjectId| self.known.object(id);
        let last = steps.iter().rev().map(|step| &step.object).find(|id| **id != cause.object);
        let held = known(&cause.object);
        let reporter = steps.last().and_then(|step| known(&step.object));
        let about = CauseRelatedObjects {
            held,
            subject,
            namer: last.and_then(known).or(subject),
            reporter,
            remote: held.and_then(object_references::remote).and_then(|id| known(&id)),
            is_healthy: reporter.is_some_and(|it| exhausted(it).is_some() && self.is_healthy(it)),
            exhausted: steps
                .iter()
                .filter_map(|step| known(&step.object))
                .find(|it| exhausted(it).is_some()),
        };
        crate::advice::advice(cause, about, self.now)
    }

    /// Whether all objects that `applier` applied are known and healthy.
    fn is_healthy(&self, applier: &Object) -> bool {
        let applied = object_references::inventory(applier);
        let is_current = |id: &ObjectId| {
            let is_healthy =
                |it: &Object| health_of(it, self.now).is_ok_and(|report| report.is_current());
            self.known.is_well(id) || self.known.object(id).is_some_and(is_healthy)
        };
        let is_readable = !applied.is_empty() && !object_references::is_elsewhere(applier);
        is_readable && applied.iter().all(is_current)
    }

    /// Why an applied object does not get newer revisions: its applier is suspended or not ready.
    fn of_applier(&mut self, object: &'k Object) -> ResultOrFactQueries<Option<CausePath>> {
        let mut owned = object;
        for _ in 0..MAX_PATH_OBJECTS {
            let Some(id) = object_references::applier(owned) else {
                // A Pod may have the labels of its Deployment's template, but not those of an applier.
                let Some(owner) = object_references::controller(owned) else { return Ok(None) };
                let ObjectLookup::There(owner) = self.object(&owner)? else { return Ok(None) };
                owned = owner;
                continue;
            };
            let ObjectLookup::There(applier) = self.object(&id)? else { return Ok(None) };
            let found = self.of(&id)?;
            let state = self.state(applier, found.as_ref());
            let holds = matches!(
                state,
                ExaminedObjectState::Suspended
                    | ExaminedObjectState::Stale
                    | ExaminedObjectState::NotReady
            );
            return Ok(found.filter(|_| holds));
        }
        Ok(None)
    }

    /// Adds a remark if a suspended object does not have the newest revision of its source.
    fn remark_newer(&mut self, object: &'k Object) -> ResultOrFactQueries<()> {
        let Some(status) = object.get("status") else { return Ok(()) };
        let has = text(status, "lastAppliedRevision");
        for source in object_references::sources(object).into_iter().filter(|_| !has.is_empty()) {
            let ObjectLookup::There(source) = self.object(&source)? else { continue };
            let artifact = source.get("status").and_then(|it| it.get("artifact"));
            let newest = artifact.map(|it| text(it, "revision")).unwrap_or_default();
            if !newest.is_empty() && newest != has {
                self.remarks.insert(format!("revision {newest} waits; {has} is applied"));
            }
        }
        Ok(())
    }

    fn state(&self, object: &Object, found: Option<&CausePath>) -> ExaminedObjectState {
        let problem = found.map(|it| it.cause.problem);
        if !object_references::is_reconciled(&object.id()) {
            return match (problem, health_of(object, self.now).map(|it| it.status)) {
                (None, Ok(HealthStatus::Current)) => ExaminedObjectState::Ready,
                (_, Ok(HealthStatus::InProgress)) => ExaminedObjectState::Progressing,
                _ => ExaminedObjectState::NotReady,
            };
        }
        if problem == Some(CauseKind::Deletion) && object.meta("deletionTimestamp").is_some() {
            return ExaminedObjectState::NotReady;
        }
        let is_own = found.is_some_and(|it| it.cause.object == object.id());
        match (condition(object, "Ready").map(|it| it.status), problem) {
            (_, Some(CauseKind::Suspension)) if is_own => ExaminedObjectState::Suspended,
            (Some("True"), None) => ExaminedObjectState::Ready,
            (
                Some("True"),
                Some(
                    CauseKind::ExpiredHold
                    | CauseKind::ClosedWindow
                    | CauseKind::Freeze
                    | CauseKind::Wave,
                ),
            ) => ExaminedObjectState::Ready,
            (Some("True"), Some(CauseKind::NotReconciled)) => ExaminedObjectState::Progressing,
            (Some("True"), Some(_)) => {
                let sources = object_references::sources(object);
                let is_of_source = found.is_some_and(|it| {
                    it.steps.iter().any(|step| sources.contains(&step.object))
                        || sources.contains(&it.cause.object)
                });
                if is_of_source {
                    ExaminedObjectState::Stale
                } else {
                    ExaminedObjectState::Degraded
                }
            }
            // The object waits for another one that is in progress.
            (Some("False"), None) if self.is_explaining => ExaminedObjectState::Progressing,
            (Some("False"), _) => ExaminedObjectState::NotReady,
            (_, Some(CauseKind::NotReconciled)) | (Some(_), _) => ExaminedObjectState::Progressing,
            // Kinds without conditions, such as a HelmRepository of type `oci`.
            (None, None) => ExaminedObjectState::Ready,
            (None, Some(_)) => ExaminedObjectState::NotReady,
        }
    }

    /// Why an object is not healthy. `None` if it is healthy, or if it is on the path already.
    pub(crate) fn of(&mut self, id: &ObjectId) -> ResultOrFactQueries<Option<CausePath>> {
        if self.well.contains(id) {
            return Ok(None);
        }
        if self.way.contains(id) {
            self.is_cut = true;
            return Ok(None);
        }
        if self.left == 0 || self.way.len() >= MAX_PATH_OBJECTS {
            self.is_cut = true;
            if self.is_explaining {
                self.remarks.insert(format!(
                    "not everything below was examined: at most {MOST_VISITED} objects are, and {MAX_PATH_OBJECTS} one \
                     below the other"
                ));
            }
            return Ok(None);
        }
        self.left -= 1;
        let object = match self.object(id)? {
            ObjectLookup::There(object) => object,
            ObjectLookup::Absent => {
                let cause = cause(id, CauseKind::Missing, "does not exist", None);
                return Ok(Some(CausePath { steps: Vec::new(), cause }));
            }
            ObjectLookup::Hidden => return Ok(None),
        };
        if !object_references::is_reconciled(id) {
            return self.workload(object);
        }
        let was_cut = std::mem::replace(&mut self.is_cut, false);
        self.way.push(id.clone());
        let found = self.reconciled(object);
        self.way.pop();
        if !self.is_cut && matches!(found, Ok(None)) {
            self.well.insert(id.clone());
        }
        self.is_cut |= was_cut;
        found
    }

    fn reconciled(&mut self, object: &'k Object) -> ResultOrFactQueries<Option<CausePath>> {
        let ready = condition(object, "Ready");
        if let Some(found) = self.paused(object, ready) {
            let is_leaving = self.is_explaining && found.cause.problem == CauseKind::Deletion;
            if is_leaving && let Some(held) = self.terminating(object)? {
                let RootCause { text, since, .. } = found.cause;
                return Ok(Some(below(Some(CauseStep { object: object.id(), since, text }), held)));
            }
            return Ok(Some(found));
        }
        if let Some(found) = self.not_reconciled(object, ready) {
            // A new object, except the one that the user asked about, is expected to be reconciled soon.
            let is_awaited =
                self.is_explaining && self.way.len() > 1 && self.is_in_progress(object);
            return Ok(Some(found).filter(|_| !is_awaited));
        }
        self.of_run(object, ready)
    }

    /// Why an object is not healthy, when neither a hold nor a window keeps it from being reconciled.
    pub(crate) fn of_run(
        &mut self,
        object: &'k Object,
        ready: Option<ConditionView<'_>>,
    ) -> ResultOrFactQueries<Option<CausePath>> {
        let is_ready = ready.is_some_and(|said| said.status == "True");
        // The run ended at the cycle, before it read anything else. All objects of the cycle have this one cause.
        let is_of_cycle = |said: &ConditionView<'_>| {
            said.status == "False"
                && condition_reason::problem(said.reason) == Some(CauseKind::Cycle)
        };
        if let Some(said) = ready.filter(is_of_cycle) {
            let steps = vec![step_of(object, said)];
            return Ok(Some(CausePath { steps, cause: reported(object, said) }));
        }
        if let Some(found) = self.source(object, is_ready, ready)? {
            return Ok(Some(below(ready.map(|said| step_of(object, said)), found)));
        }
        let Some(said) = ready else { return self.without_conditions(object) };
        let step = || Some(step_of(object, said));
        if is_ready {
            let found = match self.applied(object, true)? {
                None => self.taken(object)?,
                found => found,
            };
            return Ok(found.map(|it| below(step(), it)).or_else(|| expired_hold(object)));
        }
        if said.reason == reconcile::condition_reason::DEPENDENCY_NOT_READY.as_str()
            && let Some(found) = self.dependency(object, None)?
        {
            return Ok(Some(below(step(), found)));
        }
        // A field that has no effect may name a missing object. The cause is then the field, and not the missing
        // object.
        let has_no_effect = said.reason == reconcile::condition_reason::UNSUPPORTED_FIELD.as_str();
        if !has_no_effect && let Some(found) = self.missing(object)? {
            return Ok(Some(below(step(), found)));
        }
        let is_in_progress = self.is_explaining && self.is_in_progress(object);
        let is_complete = !condition_reason::is_broken_off(said.reason) && !is_in_progress;
        if condition_reason::is_of_objects(said.reason)
            && let Some(found) = self.applied(object, is_complete)?
        {
            return Ok(Some(below(step(), found)));
        }
        if self.is_explaining {
            if let Some(found) = self.refusing_namespace(said)? {
                return Ok(Some(below(step(), found)));
            }
            if is_in_progress || self.waits(object, said)? {
                return Ok(None);
            }
        }
        let cause = self.with_owner(object, reported(object, said))?;
        Ok(Some(CausePath { steps: step().into_iter().collect(), cause }))
    }

    /// The missing object that an object without conditions refers to. A Provider, for example, has no conditions, so
    /// its existence does not mean that it works.
    fn without_conditions(&mut self, object: &'k Object) -> ResultOrFactQueries<Option<CausePath>> {
        let mut found = None;
        if let Some(provider) = object_references::provider(object) {
            found = self.of(&provider)?;
        }
        if found.is_none() {
            found = self.missing(object)?;
        }
        if found.is_none()
            && let Some(found) = self.undelivered(object)?
        {
            return Ok(Some(found));
        }
        Ok(found.map(|found| {
            let next = found.steps.first().map_or(&found.cause.object, |step| &step.object);
            let text = format!("names {}", next.subject());
            below(Some(CauseStep { object: object.id(), since: None, text }), found)
        }))
    }

    /// The path to the deletion, hold, suspension or window that keeps an object from being reconciled. `None` if
    /// nothing keeps it.
    pub(crate) fn paused(
        &self,
        object: &Object,
        ready: Option<ConditionView<'_>>,
    ) -> Option<CausePath> {
        let id = object.id();
        if let Some(since) = object.meta("deletionTimestamp").and_then(Value::as_str) {
            let mut text = "is being deleted".to_owned();
            if let Some(said) = ready.filter(|said| said.status != "True") {
                text = format!("{text}: {}", shortened(said.message));
            }
            let cause = cause(&id, CauseKind::Deletion, &text, since.parse().ok());
            return Some(CausePath { steps: Vec::new(), cause });
        }
        if let Some(hold) = suspension(object, self.now) {
            let mut text = hold.map_or_else(|| "suspended".to_owned(), |hold| hold.to_string());
            if let Some(unfinished) = rollback(object).and_then(|it| it.unfinished()) {
                text = format!("{text}; {}", shortened(&unfinished));
            }
            let said = condition(object, reconcile::HOLD);
            // The condition of an expired suspension does not explain the present one.
            let said =
                said.filter(|said| said.reason != reconcile::condition_reason::EXPIRED.as_str());
            let since = said.and_then(|said| said.since);
            return Some(CausePath {
                steps: Vec::new(),
                cause: cause(&id, CauseKind::Suspension, &text, since),
            });
        }
        let window = ChangeWindowState::of(self.now, |key| object.annotation(key))?;
        let said = ready?;
        let is_waiting = said.reason == reconcile::condition_reason::WINDOW_CLOSED.as_str();
        let is_invalid = said.reason == reconcile::condition_reason::INVALID_WINDOW.as_str();
        let since = said.since.filter(|_| is_waiting || is_invalid);
        let (problem, text) = match window {
            ChangeWindowState::Invalid { text } => (CauseKind::InvalidWindow, text),
            ChangeWindowState::Closed { .. } if is_waiting => {
                (CauseKind::ClosedWindow, said.message.to_owned())
            }
            ChangeWindowState::Closed { .. } | ChangeWindowState::Open { .. } => return None,
        };
        Some(CausePath { steps: Vec::new(), cause: cause(&id, problem, &shortened(&text), since) })
    }

    /// The path to the cause that no run has read the object's present spec yet. `None` if a run has read it.
    pub(crate) fn not_reconciled(
        &self,
        object: &Object,
        ready: Option<ConditionView<'_>>,
    ) -> Option<CausePath> {
        let id = object.id();
        let created = time(object.fields().get("metadata")?, "creationTimestamp");
        let observed = object.get("status").and_then(|it| it.get("observedGeneration"));
        let observed = observed.and_then(Value::as_i64);
        let text = match (ready, observed) {
            // Some kinds have no status at all.
            (None, _) if object_references::has_no_runs(object) => return None,
            (None, _) => "has not been reconciled yet".to_owned(),
            (Some(said), _) => {
                let newest = object.generation();
                match said.generation.or(observed).filter(|seen| *seen < newest)? {
                    // No generation was observed so far. The default of Flux's CRDs is -1.
                    ..=0 => "has not been reconciled yet".to_owned(),
                    seen => format!(
                        "generation {newest} of its spec has not been reconciled yet, {seen} was the last one"
                    ),
                }
            }
        };
        let since = ready.map_or(created, |_| spec_changed(object));
        let cause = cause(&id, CauseKind::NotReconciled, &text, since);
        Some(CausePath { steps: Vec::new(), cause })
    }

    /// The cause in a source that does not exist or is not ready.
    ///
    /// If the source still has an artifact, it is a cause only while the object itself does not fail. Otherwise the
    /// object fails for another reason.
    fn source(
        &mut self,
        object: &Object,
        is_ready: bool,
        ready: Option<ConditionView<'_>>,
    ) -> ResultOrFactQueries<Option<CausePath>> {
        for id in object_references::sources(object) {
            let Some(found) = self.of(&id)? else { continue };
            // The run of the HelmRelease makes the HelmChart, so it is missing until then.
            let is_unmade = !is_ready
                && matches!(self.object(&id)?, ObjectLookup::Absent)
                && object_references::made_chart(object).is_some_and(|chart| chart == id)
                && ready.is_some_and(|said| !condition_reason::is_about_source(said.reason));
            if is_unmade {
                continue;
            }
            let has_artifact = match self.object(&id)? {
                ObjectLookup::There(source) => {
                    source.get("status").is_some_and(|it| it.get("artifact").is_some())
                }
                ObjectLookup::Absent | ObjectLookup::Hidden => false,
            };
            let is_remote = object_references::remote(object).is_some_and(|remote| remote == id);
            let is_of_source = ready.is_some_and(|said| {
                condition_reason::is_about_source(said.reason)
                    || (is_remote && condition_reason::is_about_remote(object.kind(), said.reason))
            });
            if is_ready || !has_artifact || is_of_source {
                return Ok(Some(found));
            }
            self.remarks.insert(format!(
                "{} is not up to date: {}",
                id.subject(),
                found.cause.line(&id)
            ));
        }
        Ok(None)
    }

    /// The first dependency that is not ready. If a first cause is given, it is the first dependency with another
    /// cause.
    pub(crate) fn dependency(
        &mut self,
        object: &Object,
        first: Option<&RootCause>,
    ) -> ResultOrFactQueries<Option<CausePath>> {
        let is_first = |found: &CausePath| first == Some(&found.cause);
        let mut of_ready = None;
        let mut waits = false;
        for RequiredDependency { object, otherwise, release, may_be_unready } in
            object_references::dependencies(object)
        {
            let id = match (self.object(&object)?, otherwise) {
                (ObjectLookup::Absent, Some(other))
                    if !matches!(self.object(&other)?, ObjectLookup::Absent) =>
                {
                    other
                }
                _ => object,
            };
            if let (Some(release), ObjectLookup::There(helmfile)) = (&release, self.object(&id)?) {
                let Some(text) = release_not_ready(helmfile, release) else { continue };
                let found = self.of(&id)?.filter(|it| it.cause.problem != CauseKind::ExpiredHold);
                let cause = cause(&id, CauseKind::Dependency, &text, None);
                let found = found.unwrap_or(CausePath { steps: Vec::new(), cause });
                if is_first(&found) {
                    continue;
                }
                return Ok(Some(found));
            }
            if may_be_unready && matches!(self.object(&id)?, ObjectLookup::There(_)) {
                continue;
            }
            let found = self.of(&id)?;
            if found.as_ref().is_some_and(is_first) {
                continue;
            }
            let ObjectLookup::There(dependency) = self.object(&id)? else {
                if found.is_some() {
                    return Ok(found);
                }
                continue;
            };
            let said = condition(dependency, "Ready");
            let is_ready = match object_references::is_reconciled(&id) {
                true => said.is_some_and(|said| said.status == "True"),
                false => health_of(dependency, self.now).is_ok_and(|report| report.is_current()),
            };
            if found.is_none() && !is_ready && self.is_explaining {
                let is_waiting = match said {
                    Some(said) => self.waits(dependency, said)?,
                    None => false,
                };
                if is_waiting || self.is_in_progress(dependency) {
                    waits = true;
                    continue;
                }
            }
            match found {
                Some(found) if !is_ready => return Ok(Some(found)),
                // The ready dependency is the cause only if every other one is ready, too.
                Some(found) if found.cause.problem != CauseKind::ExpiredHold => {
                    of_ready = of_ready.or(Some(found));
                }
                None if !is_ready => {
                    let message = said.map_or("is not ready", |said| said.message);
                    let since = said.and_then(|said| since(dependency, said));
                    let cause = cause(&id, CauseKind::Dependency, &shortened(message), since);
                    let found = CausePath { steps: Vec::new(), cause };
                    if !is_first(&found) {
                        return Ok(Some(found));
                    }
                }
                Some(_) | None => {}
            }
        }
        Ok(of_ready.filter(|_| !waits && first.is_none()))
    }

    /// A Secret, ConfigMap or ServiceAccount that the spec names, and that does not exist or lacks the key.
    fn missing(&mut self, object: &Object) -> ResultOrFactQueries<Option<CausePath>> {
        let named = object_references::references(object);
        self.ask(named.iter().map(|(id, _)| FactQuery::Object(id.clone())))?;
        for (id, field) in named {
            let what = match self.object(&id)? {
                ObjectLookup::Absent => "does not exist".to_owned(),
                ObjectLookup::There(held) => {
                    match RequiredSecretKeys::of(object, &field).lacks(held) {
                        Some(key) => format!("has no key `{key}`"),
                        None => continue,
                    }
                }
                ObjectLookup::Hidden => continue,
            };
            let subject = id.subject();
            let namer = object.id().subject();
            let text = format!("{subject} {what}; {field} of {namer} names it");
            let cause = cause(&id, CauseKind::Missing, &text, None);
            return Ok(Some(CausePath { steps: Vec::new(), cause }));
        }
        Ok(None)
    }

    /// Asks for the facts that are not known yet, all together.
    pub(crate) fn ask(&self, queries: impl Iterator<Item = FactQuery>) -> ResultOrFactQueries<()> {
        let unknown: Vec<FactQuery> = queries.filter(|it| self.known.get(it).is_none()).collect();
        if unknown.is_empty() { Ok(()) } else { Err(unknown) }
    }

    pub(crate) fn object(&mut self, id: &ObjectId) -> ResultOrFactQueries<ObjectLookup<'k>> {
        let query = FactQuery::Object(id.clone());
        Ok(match self.known.get(&query) {
            None => return Err(vec![query]),
            Some(FactAnswer::Objects(objects)) => {
                objects.first().map_or(ObjectLookup::Absent, ObjectLookup::There)
            }
            Some(FactAnswer::Lines(_)) => ObjectLookup::Hidden,
            Some(FactAnswer::Refused(why)) => {
                self.remarks.insert(format!("{} cannot be read: {why}", id.subject()));
                ObjectLookup::Hidden
            }
        })
    }

    pub(crate) fn listed(&mut self, query: &FactQuery) -> ResultOrFactQueries<Vec<Object>> {
        Ok(match self.known.get(query) {
            None => return Err(vec![query.clone()]),
            Some(FactAnswer::Objects(objects)) => objects.clone(),
            Some(FactAnswer::Lines(_)) => Vec::new(),
            Some(FactAnswer::Refused(why)) => {
                let what = match query {
                    FactQuery::Pods { namespace, .. } => format!("Pods in namespace {namespace}"),
                    FactQuery::Incidents { namespace, .. } => {
                        format!(
                            "Incidents in namespace {namespace}, which tell of notifications that fail,"
                        )
                    }
                    _ => "events".to_owned(),
                };
                self.remarks.insert(format!("{what} cannot be listed: {why}"));
                Vec::new()
            }
        })
    }

    pub(crate) fn lines(&mut self, query: &FactQuery) -> ResultOrFactQueries<Vec<String>> {
        match self.known.get(query) {
            None => Err(vec![query.clone()]),
            Some(FactAnswer::Lines(lines)) => Ok(lines.clone()),
            // Logs are not kept for long, so a missing log means nothing.
            Some(FactAnswer::Objects(_) | FactAnswer::Refused(_)) => Ok(Vec::new()),
        }
    }
}

/// The path to the cause that a hold has expired while `spec.suspend` is still true. `None` if this is not so.
fn expired_hold(object: &Object) -> Option<CausePath> {
    let said = condition(object, reconcile::HOLD)?;
    let is_expired =
        said.reason == reconcile::condition_reason::EXPIRED.as_str() && is_set(object, "suspend");
    let text = format!("its suspension {}", shortened(said.message));
    let cause = || cause(&object.id(), CauseKind::ExpiredHold, &text, said.since);
    is_expired.then(|| CausePath { steps: Vec::new(), cause: cause() })
}

/// Why a release of a Helmfile is not ready, according to the Helmfile's status. `None` if it is ready.
fn release_not_ready(helmfile: &Object, release: &str) -> Option<String> {
    let rows = helmfile.get("status").and_then(|it| it.get("releases")).and_then(Value::as_array);
    let full_name = |row| ["kubeContext", "namespace", "name"].map(|key| text(row, key));
    let all = rows.into_iter().flatten().map(|row| (row, full_name(row)));
    let row = match object_dependency::releases(release, all).as_slice() {
        [] => return Some(format!("the helmfile has no release {release}")),
        [(row, _)] => *row,
        several => {
            let names: Vec<&str> = several.iter().map(|(_, name)| name.as_str()).collect();
            return Some(format!("release {release} may be one of several: {}", names.join(", ")));
        }
    };
    match (text(row, "state"), text(row, "message")) {
        ("Ready", _) => None,
        (state, "") => Some(format!("release {release} is {state}")),
        (state, message) => Some(format!("release {release} is {state}: {}", shortened(message))),
    }
}

/// The condition with the failure behind a `Ready` condition. After a remediation, `Ready` reports that remediation,
/// and another condition reports the operation that had failed.
pub(crate) fn failed_operation<'o>(
    object: &'o Object,
    ready: ConditionView<'o>,
) -> ConditionView<'o> {
    let is_remedy = condition_reason::is_remedy(ready.reason);
    let failed = ["Released", "TestSuccess"]
        .iter()
        .filter_map(|kind| condition(object, kind))
        .find(|it| is_remedy && it.status == "False");
    failed.unwrap_or(ready)
}

/// The cause according to the object's own condition.
fn reported(object: &Object, said: ConditionView<'_>) -> RootCause {
    let said = failed_operation(object, said);
    let is_stalled = condition(object, reconcile::STALLED).is_some_and(|it| it.status == "True");
    let otherwise = if is_stalled { CauseKind::Spec } else { CauseKind::Other };
    let problem = match condition_reason::is_failed_fetch(object.kind(), said.reason) {
        true => CauseKind::Fetch,
        false => condition_reason::problem(said.reason).unwrap_or(otherwise),
    };
    let text = shortened(said.message);
    let id = match problem {
        CauseKind::Apply | CauseKind::Health => named_first(object, &text),
        _ => None,
    };
    cause(&id.unwrap_or_else(|| object.id()), problem, &text, since(object, said))
}

/// The applied object that a refusal names first, so that the explanation can point to it. No decision depends on it.
/// `None` if the text does not begin with an object of the inventory.
pub(crate) fn named_first(object: &Object, text: &str) -> Option<ObjectId> {
    let applied = object_references::applied(object);
    let subject = text.split_whitespace().next()?.trim_end_matches([':', ',']);
    applied.into_iter().find(|id| id.subject() == subject)
}

pub(crate) fn cause(
    id: &ObjectId,
    problem: CauseKind,
    text: &str,
    since: Option<Time>,
) -> RootCause {
    RootCause {
        object: id.clone(),
        problem,
        text: text.to_owned(),
        since,
        lines: Vec::new(),
        event: None,
    }
}

/// An object with its own message, as a step of the path.
pub(crate) fn step_of(object: &Object, said: ConditionView<'_>) -> CauseStep {
    let text = match said.reason {
        "" => shortened(said.message),
        reason => format!("{reason}: {}", shortened(said.message)),
    };
    CauseStep { object: object.id(), since: since(object, said), text }
}

pub(crate) fn below(step: Option<CauseStep>, found: CausePath) -> CausePath {
    let mut steps: Vec<CauseStep> = step.into_iter().collect();
    steps.extend(found.steps);
    CausePath { steps, ..found }
}

/// A message on one line and of a bounded length, with several refusals separated. A longer message keeps its end, too,
/// because an API server repeats a value before it says what is wrong with it.
pub(crate) fn shortened(text: &str) -> String {
    let refusals = dry_run_refusal::split(text).into_iter();
    let lines = refusals.map(|refusal| refusal.split_whitespace().collect::<Vec<_>>().join(" "));
    let line = lines.collect::<Vec<_>>().join("; ");
    let length = line.chars().count();
    if length <= MAX_MESSAGE_CHARACTERS {
        return line;
    }
    let begin: String = line.chars().take(MAX_MESSAGE_CHARACTERS - END_CHARACTERS).collect();
    let end: String = line.chars().skip(length - END_CHARACTERS).collect();
    format!("{begin}…{end}")
}

/// Formats a time to the second.
pub(crate) fn seconds(at: Time) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
