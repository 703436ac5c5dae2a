//! Reports on an object that it cannot be read, by a condition, an event and a log line.

use std::sync::Arc;
use std::time::Duration;

use crds::ReconciledObject;
use reconcile::{ConditionReason, RunOutcome, StatusCondition, StatusConditions, Time};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::object_status::{conditions_of, through};
use crate::run_context::RunContext;
use windlass_cluster::events::{EventObject, EventSeverity, ObjectEvent};
use windlass_cluster::object_decode::UnreadableObject;
use windlass_cluster::windlass_kind::WindlassKind;

/// The reason of a condition: the spec of the object cannot be read, so windlass does nothing about it.
const UNREADABLE: ConditionReason = ConditionReason::new("Unreadable");

/// How many of these statuses are written at once.
const AT_ONCE: usize = 4;

/// How often windlass tries to write such a status, with growing pauses. After that, only a change of the object causes
/// another try.
const MAX_STATUS_WRITE_ATTEMPTS: u32 = 6;

/// Permits for writing these statuses.
pub(super) fn permits() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(AT_ONCE))
}

fn text(object: &UnreadableObject) -> String {
    format!(
        "the object cannot be decoded and is not reconciled until it is changed: {}",
        object.why
    )
}

/// Whether both are the same generation of one object that cannot be read for the same reason.
pub(super) fn is_same(one: &UnreadableObject, other: &UnreadableObject) -> bool {
    let said = |it: &UnreadableObject| (it.meta.uid.clone(), it.meta.generation, it.why.clone());
    said(one) == said(other)
}

pub(super) fn log<K: WindlassKind>(object: &UnreadableObject) {
    tracing::error!(
        controller_kind = %K::kind(&()),
        name = object.meta.name,
        namespace = object.meta.namespace,
        error = object.why,
        "object cannot be decoded and is not reconciled"
    );
}

fn conditions(object: &UnreadableObject, now: Time) -> Vec<StatusCondition> {
    let had: Vec<crds::Condition> = through(&object.conditions).unwrap_or_default();
    let had = conditions_of(&had);
    let outcome = RunOutcome::Stalled(UNREADABLE, text(object));
    StatusConditions::since(&had, object.meta.generation, now, &[]).finish(&outcome)
}

pub(super) async fn tell<K: WindlassKind + ReconciledObject>(
    context: Arc<RunContext>,
    object: Arc<UnreadableObject>,
    permits: Arc<Semaphore>,
) {
    let meta = &object.meta;
    let about = EventObject {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        resource_version: meta.resource_version.clone(),
        uid: meta.uid.clone(),
    };
    let event = ObjectEvent {
        severity: EventSeverity::Error,
        reason: UNREADABLE.as_str().to_owned(),
        message: text(&object),
        metadata: std::collections::BTreeMap::new(),
    };
    context.events.announce_about(about, K::CONTROLLER, event);
    let status = json!({"observedGeneration": meta.generation,
        "conditions": conditions(&object, jiff::Timestamp::now())});
    let manager = format!("gotk-{}", K::CONTROLLER);
    for attempt in 0..MAX_STATUS_WRITE_ATTEMPTS {
        let written = {
            // A closed channel means that the process is shutting down.
            let _permit = permits.acquire().await.ok();
            context.cluster.write_status_of_unreadable::<K>(meta, &manager, &status).await
        };
        match written {
            Err(error) if error.is_transient() => {
                tokio::time::sleep(Duration::from_secs(1 << attempt)).await;
            }
            Err(error) => {
                let name = &meta.name;
                let namespace = &meta.namespace;
                tracing::info!(name, namespace, error = %error, "failed to write the status");
                return;
            }
            Ok(()) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_cluster::object_decode::ObjectMetadata;

    fn unreadable(generation: i64, why: &str) -> UnreadableObject {
        let meta = ObjectMetadata { uid: "u".to_owned(), generation, ..ObjectMetadata::default() };
        let conditions = json!([{"type": "Ready", "status": "True", "reason": "Succeeded",
            "message": "applied", "lastTransitionTime": "2026-01-02T03:04:05Z"}]);
        UnreadableObject { meta, conditions, why: why.to_owned() }
    }

    #[test]
    fn an_object_that_cannot_be_read_is_stalled_and_no_longer_ready() {
        let now = jiff::Timestamp::now();
        let said = conditions(&unreadable(4, "it is nested 300 levels deep"), now);
        let is = |kind, status| StatusCondition::is(&said, kind, status);
        assert!(
            is("Ready", reconcile::ConditionStatus::False)
                && is("Stalled", reconcile::ConditionStatus::True)
        );
        let ready = StatusCondition::find(&said, "Ready").unwrap();
        assert_eq!((&*ready.reason, ready.observed_generation), ("Unreadable", 4));
        assert!(ready.message.contains("300 levels"), "{}", ready.message);
    }

    #[test]
    fn only_another_generation_or_error_is_reported_again() {
        let first = unreadable(4, "too deep");
        let mut rewritten = unreadable(4, "too deep");
        rewritten.meta.resource_version = "9".to_owned();
        rewritten.conditions = json!([]);
        assert!(is_same(&first, &rewritten));
        assert!(!is_same(&first, &unreadable(5, "too deep")));
        assert!(!is_same(&first, &unreadable(4, "another")));
    }
}
