//! The next run of an object, and the changes that cause a run earlier.
//!
//! Elsewhere: the walk to the cause (`cause_walk.rs`), the objects to which an object refers (`object_references.rs`),
//! and scheduling runs (the program).

use std::time::Duration;

use objects::{Object, ObjectId};
use reconcile::{ChangeWindowState, ReleaseRollbackProgress};

use crate::advice::{is_forbidden, lacks_kind};
use crate::cause_result::{CauseKind, RootCause};
use crate::cause_walk::{CauseWalk, seconds};
use crate::condition::{ConditionView, condition, exhausted, text};
use crate::condition_reason;
use crate::object_references;
use crate::object_suspension::{rollback, suspension};

/// How many of the objects whose changes cause a run are named.
const MOST_NAMED: usize = 6;

impl CauseWalk<'_> {
    /// The next automatic step for an object, as text for users. `None` if no step is known.
    pub(crate) fn next(&self, object: &Object, found: Option<&RootCause>) -> Option<String> {
        match found.map(|it| it.problem) {
            Some(CauseKind::Suspension) if found.is_some_and(|it| it.object == object.id()) => {
                return Some(self.next_of_suspended(object));
            }
            Some(CauseKind::Delivery) => {
                return Some(
                    "it is ready again when the service accepts a notification".to_owned(),
                );
            }
            Some(CauseKind::ClosedWindow) => {
                let window = ChangeWindowState::of(self.now(), |key| object.annotation(key));
                let at = window.and_then(|state| state.changes_at())?;
                return Some(format!("it is reconciled when the window opens at {}", seconds(at)));
            }
            _ => {}
        }
        let is_true = |kind| condition(object, kind).filter(|said| said.status == "True");
        if is_true(reconcile::STALLED).is_some() {
            let what = match exhausted(object) {
                Some(_) => "its spec, values or chart change, or its failures are reset",
                None if found.is_some_and(|it| it.problem == CauseKind::Cycle) => {
                    "an entry of the cycle is removed"
                }
                None => {
                    return Some(format!("it is not retried until {}", self.corrections(object)));
                }
            };
            return Some(format!("it is not retried until {what}"));
        }
        match is_true(reconcile::RECONCILING) {
            Some(said)
                if said.reason == reconcile::condition_reason::PROGRESSING_WITH_RETRY.as_str() =>
            {
                self.retried(object, found)
            }
            Some(said) => {
                let timeout = Some(in_spec(object, "timeout")).filter(|it| !it.is_empty());
                let since = said.since.map(seconds).unwrap_or_default();
                timeout.map(|limit| format!("the run that began at {since} may take {limit}"))
            }
            None => {
                let interval = in_spec(object, "interval");
                let is_timed = found.is_some() && !interval.is_empty();
                is_timed.then(|| format!("it is reconciled every {interval}"))
            }
        }
    }

    fn next_of_suspended(&self, object: &Object) -> String {
        let until = suspension(object, self.now()).flatten().and_then(|hold| hold.expires_at());
        let is_pending = rollback(object).is_some_and(|it| {
            it.progress == ReleaseRollbackProgress::Requested && it.failure.is_none()
        });
        if is_pending {
            return "it is rolled back when windlass runs, and stays suspended".to_owned();
        }
        until.map_or_else(
            || "not reconciled until it is resumed".to_owned(),
            |at| format!("the suspension expires at {}", seconds(at)),
        )
    }

    /// When a failed object is retried, as text for users. `None` if its spec has no interval for retries.
    fn retried(&self, object: &Object, found: Option<&RootCause>) -> Option<String> {
        let said = condition(object, reconcile::READY);
        if !object_references::is_applier(&object.id()) {
            let changes = self.changes(object, said);
            return Some(format!(
                "it is retried when {changes}, and at growing delays of at most 15m (or --max-retry-delay)"
            ));
        }
        let retry = retry(object, found)?;
        let waits = reconcile::condition_reason::DEPENDENCY_NOT_READY.as_str();
        if said.is_some_and(|it| it.reason == waits) {
            return Some(format!(
                "it is reconciled as soon as its dependency is ready, and retried every {retry}"
            ));
        }
        let changes = self.changes(object, said);
        Some(format!("it is retried when {changes}, and within {retry} at the latest"))
    }

    /// The changes that cause a run of an object that is not retried by itself. An applier needs other files, because
    /// it would fail again with the same ones.
    fn corrections(&self, object: &Object) -> String {
        let sources = object_references::sources(object).into_iter();
        let is_applier = object_references::is_applier(&object.id());
        let mut all = vec!["its spec".to_owned()];
        all.extend(sources.filter(|_| !is_applier).take(MOST_NAMED).map(|id| id.subject()));
        changing(&all)
    }

    /// The changes that cause a run of a failed object before its next retry.
    fn changes(&self, object: &Object, said: Option<ConditionView<'_>>) -> String {
        let mut named = object_references::sources(object);
        // A run that ended without the files of its source has read nothing else yet.
        if said.is_none_or(|said| !condition_reason::is_about_source(said.reason)) {
            named.extend(object_references::watched(object));
            let remote = object_references::remote(object).filter(|_| is_remote_read(object, said));
            let remote = remote.and_then(|id| self.known.object(&id));
            named.extend(remote.map(object_references::watched).unwrap_or_default());
        }
        let more = named.len() > MOST_NAMED;
        let subjects = named.iter().take(MOST_NAMED).map(ObjectId::subject);
        let mut all: Vec<String> = ["its spec".to_owned()].into_iter().chain(subjects).collect();
        if more {
            all.push("another object that it names".to_owned());
        }
        all.extend(said.and_then(|said| followed(object, said)).map(str::to_owned));
        changing(&all)
    }
}

/// Words that say that one of these objects changes.
fn changing(all: &[String]) -> String {
    match all.split_last() {
        Some((last, [])) => format!("{last} changes"),
        Some((last, others)) => format!("{} or {last} changes", others.join(", ")),
        None => String::new(),
    }
}

/// Whether a run has read the Secrets of the object whose credentials it uses. An ImagePolicy reads them only for
/// digests.
fn is_remote_read(object: &Object, said: Option<ConditionView<'_>>) -> bool {
    object.kind() != "ImagePolicy"
        || said.is_some_and(|said| said.reason == reconcile::condition_reason::FAILED.as_str())
}

/// What a failed run watches in addition to the objects that its spec names, as text for users. `None` if it watches
/// nothing more.
fn followed(object: &Object, said: ConditionView<'_>) -> Option<&'static str> {
    let is_kustomization = object.kind() == "Kustomization";
    let is_release = object.kind() == "HelmRelease";
    if is_kustomization && lacks_kind(said.message) {
        return Some("the CustomResourceDefinition of the missing kind");
    }
    if (is_kustomization || is_release) && is_forbidden(said.message) {
        return Some("RBAC (a role or its binding)");
    }
    let is_unhealthy = said.reason == reconcile::condition_reason::HEALTH_CHECK_FAILED.as_str();
    (is_kustomization && is_unhealthy).then_some("the health of its objects")
}

/// The longest time until a failed object is retried, in the notation of its spec. `None` if the spec has no interval.
///
/// If the API server refuses an object, the retries become rarer, up to the interval.
fn retry(object: &Object, found: Option<&RootCause>) -> Option<String> {
    let retry = in_spec(object, "retryInterval");
    let interval = in_spec(object, "interval");
    let longest = match found.map(|it| it.problem) {
        Some(CauseKind::Apply) if length(interval) > length(retry) => interval,
        _ => retry,
    };
    [longest, interval].into_iter().find(|it| !it.is_empty()).map(str::to_owned)
}

fn length(duration: &str) -> Duration {
    reconcile::parse_duration(duration).unwrap_or_default()
}

/// A text of the spec. It is empty if the spec does not have it.
fn in_spec<'o>(object: &'o Object, field: &str) -> &'o str {
    object.get("spec").map(|spec| text(spec, field)).unwrap_or_default()
}
