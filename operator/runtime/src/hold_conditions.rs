//! windlass's own conditions for what a user requested by annotations: windows, holds, schedules.
//!
//! Elsewhere: the texts of these conditions (`change_window.rs`, `object_hold.rs`), and the conditions of a run (each kind's
//! `report`).

use std::sync::Arc;

use crds::{ObjectStatus as _, ReconciledObject};
use kube_core::ResourceExt as _;
use reconcile::{AnnotationCondition, StatusConditions, Time};

use super::controller_kind::REQUESTED_AT;
use super::object_status::{LatestWrittenObject, conditions_of, listed, status_of};
use super::run_context::RunContext;
use super::{change_window, object_hold};
use windlass_cluster::ClusterError;
use windlass_cluster::windlass_kind::WindlassKind;

/// Annotations that change the runs of objects of any kind.
pub(super) const ANNOTATIONS: [&str; 6] = [
    change_window::WINDOW,
    change_window::BREAK_GLASS,
    change_window::SCHEDULE_ANNOTATION,
    object_hold::BY,
    object_hold::REASON,
    object_hold::UNTIL,
];

/// The conditions about windows, holds and schedules that an object should have now.
pub fn of<K: WindlassKind + ReconciledObject>(object: &K, now: Time) -> Vec<AnnotationCondition> {
    let window = change_window::state(object, now).map(|state| state.mark());
    [window, object_hold::mark(object, now), change_window::invalid_schedule(object)]
        .into_iter()
        .flatten()
        .collect()
}

/// Adds the condition about Freezes to a status, or removes it.
pub(crate) fn frozen<K: WindlassKind + ReconciledObject>(
    object: &K,
    mut status: K::Status,
    now: Time,
    mark: Option<&AnnotationCondition>,
) -> K::Status {
    let had = conditions_of(status.conditions());
    let generation = object.meta().generation.unwrap_or_default();
    let conditions =
        StatusConditions::since(&had, generation, now, &[]).frozen(mark).finish_as_before();
    if let Some(conditions) = conditions {
        status.set_conditions(listed(conditions));
    }
    status
}

/// Whether a user requested a reconciliation that no run has handled yet.
pub fn is_asked<K: WindlassKind + ReconciledObject>(object: &K) -> bool {
    let requested = object.annotations().get(REQUESTED_AT).map(String::as_str);
    requested.is_some() && requested != object.last_handled_reconcile_at()
}

/// Writes the conditions of [`of`] to the status of an object that does not run now. Everything else in the status stays, and
/// nothing is written if nothing changes.
///
/// `answered` also records in the status that the requested run was handled.
///
/// # Errors
/// The API server refuses the request, or does not respond.
pub async fn show<K: WindlassKind + ReconciledObject>(
    context: &RunContext,
    latest: &LatestWrittenObject<K>,
    object: &Arc<K>,
    now: Time,
    answered: bool,
) -> Result<(), ClusterError> {
    if let Some((before, after)) = change(&**object, now, answered) {
        latest.write_status(context, object, &before, &after).await?;
    }
    Ok(())
}

/// Writes to the status of a suspended object that no operation is in progress. `text` says where an operation stopped.
///
/// `owned` are further conditions of the kind. Those that may no longer be true are removed.
///
/// # Errors
/// The API server refuses the request, or does not respond.
pub async fn show_suspended<K: WindlassKind + ReconciledObject>(
    context: &RunContext,
    latest: &LatestWrittenObject<K>,
    object: &Arc<K>,
    now: Time,
    owned: &[&str],
    text: &str,
) -> Result<(), ClusterError> {
    if let Some((before, after)) = suspension(&**object, now, owned, text) {
        latest.write_status(context, object, &before, &after).await?;
    }
    Ok(())
}

/// The status of a suspended object before and after. `None` if nothing changes.
fn suspension<K: WindlassKind + ReconciledObject>(
    object: &K,
    now: Time,
    owned: &[&str],
    text: &str,
) -> Option<(K::Status, K::Status)> {
    let before = status_of(object);
    let had = conditions_of(before.conditions());
    let generation = object.meta().generation.unwrap_or_default();
    let conditions = StatusConditions::since(&had, generation, now, owned)
        .marked(&of(object, now))
        .finish_suspended(text)?;
    let mut after = before.clone();
    after.set_conditions(listed(conditions));
    Some((before, after))
}

/// The status of an object before and after. `None` if nothing changes.
fn change<K: WindlassKind + ReconciledObject>(
    object: &K,
    now: Time,
    answered: bool,
) -> Option<(K::Status, K::Status)> {
    let before = status_of(object);
    let mut after = before.clone();
    let had = conditions_of(before.conditions());
    let generation = object.meta().generation.unwrap_or_default();
    let conditions = StatusConditions::since(&had, generation, now, &[])
        .marked(&of(object, now))
        .finish_as_before();
    if let Some(conditions) = conditions {
        after.set_conditions(listed(conditions));
    }
    if let Some(requested) = object.annotations().get(REQUESTED_AT).filter(|_| answered) {
        after.set_last_handled_reconcile_at(requested);
    }
    (before != after).then_some((before, after))
}

#[cfg(test)]
mod tests {
    use crds::kustomize::{Kustomization, KustomizationStatus};
    use serde_json::{Value, json};

    use super::*;

    fn time() -> Time {
        "2026-11-23T12:00:00Z".parse().unwrap()
    }

    fn kustomization(suspend: bool, annotations: &Value, conditions: &Value) -> Kustomization {
        serde_json::from_value(json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1",
            "kind": "Kustomization",
            "metadata": {"name": "app", "generation": 2, "annotations": annotations},
            "spec": {"interval": "10m", "prune": true, "suspend": suspend,
                "sourceRef": {"kind": "GitRepository", "name": "app"}},
            "status": {"observedGeneration": 2, "conditions": conditions},
        }))
        .unwrap()
    }

    /// Conditions in the order of another program, with one of a type that windlass does not own.
    fn foreign() -> Value {
        let condition = |kind: &str, status: &str| {
            json!({"type": kind, "status": status, "reason": "Succeeded", "message": "",
                "lastTransitionTime": "2026-11-01T00:00:00Z"})
        };
        json!([condition("acme.io/Audited", "True"), condition("Ready", "True")])
    }

    fn kinds(status: &KustomizationStatus) -> Vec<&str> {
        status.conditions.iter().map(|it| it.type_.as_str()).collect()
    }

    #[test]
    fn an_object_without_annotations_is_left_as_it_is() {
        for suspend in [false, true] {
            assert_eq!(
                change(&kustomization(suspend, &json!({}), &foreign()), time(), false),
                None
            );
        }
    }

    #[test]
    fn a_mark_is_written_once_and_taken_away() {
        let annotations = json!({object_hold::BY: "alice", change_window::WINDOW: "0 22 * * * 4h"});
        let held = kustomization(true, &annotations, &foreign());
        let (_, after) = change(&held, time(), false).unwrap();
        let expected = ["Ready", "acme.io/Audited", "windlass.dev/Hold", "windlass.dev/Window"];
        assert_eq!(kinds(&after), expected);
        let again = kustomization(true, &annotations, &json!(after.conditions));
        assert_eq!(change(&again, time(), false), None);
        let freed = kustomization(true, &json!({}), &json!(after.conditions));
        assert_eq!(kinds(&change(&freed, time(), false).unwrap().1), expected[..2]);
    }

    #[test]
    fn a_suspended_object_is_neither_reconciling_nor_unknown() {
        let conditions = |ready: &str| {
            let condition = |kind: &str, status: &str| {
                json!({"type": kind, "status": status, "reason": "Progressing", "message": "",
                    "lastTransitionTime": "2026-11-01T00:00:00Z"})
            };
            json!([
                condition("Reconciling", "True"),
                condition("Ready", ready),
                condition("Healthy", "Unknown"),
                condition("acme.io/Audited", "Unknown"),
            ])
        };
        let end = |object: &Kustomization| suspension(object, time(), &["Healthy"], "there");
        for (ready, expected) in [("Unknown", "Suspended"), ("False", "Progressing")] {
            let (_, after) = end(&kustomization(true, &json!({}), &conditions(ready))).unwrap();
            assert_eq!(kinds(&after), ["Ready", "acme.io/Audited"]);
            assert_eq!(after.conditions[0].status, "False");
            assert_eq!(after.conditions[0].reason, expected);
            assert_eq!(end(&kustomization(true, &json!({}), &json!(after.conditions))), None);
        }
        assert_eq!(end(&kustomization(true, &json!({}), &foreign())), None);
    }

    #[test]
    fn the_condition_about_freezes_is_written_once_and_goes_with_the_freeze() {
        let mark = AnnotationCondition {
            kind: reconcile::FREEZE,
            status: reconcile::ConditionStatus::True,
            reason: reconcile::condition_reason::FROZEN,
            text: "Freeze christmas".to_owned(),
        };
        let object = kustomization(false, &json!({}), &foreign());
        let shown = frozen(&object, status_of(&object), time(), Some(&mark));
        assert_eq!(kinds(&shown), ["Ready", "acme.io/Audited", "windlass.dev/Freeze"]);
        assert_eq!(frozen(&object, shown.clone(), time(), Some(&mark)), shown);
        assert_eq!(kinds(&frozen(&object, shown, time(), None)), ["Ready", "acme.io/Audited"]);
        let before = status_of(&object);
        assert_eq!(frozen(&object, before.clone(), time(), None), before);
    }

    #[test]
    fn an_answer_is_written_once() {
        let asked = kustomization(false, &json!({REQUESTED_AT: "now"}), &foreign());
        assert!(is_asked(&asked));
        let (_, after) = change(&asked, time(), true).unwrap();
        assert_eq!(after.last_handled_reconcile_at.as_deref(), Some("now"));
        assert_eq!(kinds(&after), ["acme.io/Audited", "Ready"]);
    }
}
