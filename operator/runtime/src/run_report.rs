//! The report of a run: the status of the object, and an event if the status is new.
//!
//! Elsewhere: writing the status (`object_status`), and reports with artifacts, releases or inventories (the crates of those
//! kinds).

use std::collections::BTreeMap;

use crds::{ObjectStatus as _, ReconciledObject};
use kube_core::ResourceExt as _;
use reconcile::{NextRunTrigger, RunOutcome, StatusCondition, StatusConditions, Time};
use windlass_cluster::announced_failures::FailureAnnouncement;
use windlass_cluster::events::{EventSeverity, ObjectEvent};
use windlass_cluster::windlass_kind::WindlassKind;

use super::controller_kind::REQUESTED_AT;
use super::hold_conditions;
use super::object_status::{conditions_of, listed, status_of};

/// The report of a run: the status to write, and the event to announce.
pub struct RunReport<S> {
    /// The status before the run.
    pub before: S,
    /// The status after the run.
    pub after: S,
    /// The event. `None` if the status says nothing new.
    pub event: Option<ObjectEvent>,
}

/// The status of an object after a run. It has the conditions of the outcome, the handled request, and the fields that
/// `change` sets. It has the observed generation unless the run has to be repeated.
pub fn status_after<K: WindlassKind + ReconciledObject>(
    object: &K,
    outcome: &RunOutcome,
    now: Time,
    change: impl FnOnce(&mut K::Status),
) -> K::Status {
    status_with(object, outcome, now, KindSpecificConditions::none(), change)
}

/// The conditions that a kind has besides those of all kinds.
#[derive(Clone, Copy)]
pub struct KindSpecificConditions<'t> {
    /// The types of these conditions. Those that `set` does not set are removed.
    pub types: &'t [&'t str],
    /// Sets or keeps the conditions that apply.
    pub set: &'t dyn for<'c> Fn(StatusConditions<'c>) -> StatusConditions<'c>,
}

impl KindSpecificConditions<'_> {
    /// No conditions beyond those of all kinds.
    #[must_use]
    pub fn none() -> Self {
        Self { types: &[], set: &|conditions| conditions }
    }
}

fn status_with<K: WindlassKind + ReconciledObject>(
    object: &K,
    outcome: &RunOutcome,
    now: Time,
    own: KindSpecificConditions<'_>,
    change: impl FnOnce(&mut K::Status),
) -> K::Status {
    let mut after = status_of(object);
    let had = conditions_of(after.conditions());
    let generation = object.meta().generation.unwrap_or_default();
    let conditions = StatusConditions::since(&had, generation, now, own.types)
        .marked(&hold_conditions::of(object, now));
    let conditions = (own.set)(conditions).finish(outcome);
    change(&mut after);
    after.set_conditions(listed(conditions));
    if matches!(outcome, RunOutcome::Settled(..) | RunOutcome::Stalled(..)) {
        after.set_observed_generation(generation);
    }
    if let Some(requested) = object.annotations().get(REQUESTED_AT) {
        after.set_last_handled_reconcile_at(requested);
    }
    after
}

/// The report of a run with this outcome. `announcement` is about a failure that the status has already, and `change` sets the
/// fields of the status that only this kind has.
///
/// Differs(flux): a failure that lasts has one event, and a success that changes nothing has none. A remote that asks for
/// more time, in words that name another time each time, has none either.
pub fn report<K: WindlassKind + ReconciledObject>(
    object: &K,
    outcome: &RunOutcome,
    announcement: FailureAnnouncement,
    now: Time,
    change: impl FnOnce(&mut K::Status),
) -> RunReport<K::Status> {
    report_with(object, outcome, announcement, now, KindSpecificConditions::none(), change)
}

/// As [`report`], for a kind with conditions of its own.
pub fn report_with<K: WindlassKind + ReconciledObject>(
    object: &K,
    outcome: &RunOutcome,
    announcement: FailureAnnouncement,
    now: Time,
    own: KindSpecificConditions<'_>,
    change: impl FnOnce(&mut K::Status),
) -> RunReport<K::Status> {
    let before = status_of(object);
    let had = conditions_of(before.conditions());
    let is_pause = matches!(outcome, RunOutcome::Failed(..))
        && outcome.wake().and_then(NextRunTrigger::earliest).is_some();
    let is_known = StatusCondition::find(&had, reconcile::READY).is_some_and(|ready| {
        let is_same = ready.message == outcome.text() || is_pause;
        is_same && ready.reason == outcome.reason().as_str()
    });
    let event = (!announcement.is_reported(is_known, outcome)).then(|| ObjectEvent {
        severity: if outcome.is_settled() { EventSeverity::Info } else { EventSeverity::Error },
        reason: outcome.reason().to_string(),
        message: outcome.text().to_owned(),
        metadata: BTreeMap::new(),
    });
    RunReport { before, after: status_with(object, outcome, now, own, change), event }
}
