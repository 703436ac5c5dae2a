//! Says on an object that it cannot be read: a condition, an event and a line in the log.

use std::sync::Arc;
use std::time::Duration;

use crds::ReconciledObject;
use reconcile::{Condition, Conditions, Outcome, Reason, Time};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::context::Context;
use crate::record::{conditions_of, through};
use windlass_cluster::decode::Unreadable;
use windlass_cluster::events::{Event, EventObject, Severity};
use windlass_cluster::kind::OurKind;

/// Why nothing is done about an object whose spec cannot be read.
const UNREADABLE: Reason = Reason::new("Unreadable");

/// How many statuses are written at once.
const AT_ONCE: usize = 4;

/// Attempts at writing a status, with growing pauses: only a change of the object causes another attempt.
const MAX_STATUS_WRITE_ATTEMPTS: u32 = 6;

/// Permits for writing these statuses.
pub(super) fn permits() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(AT_ONCE))
}

fn text(object: &Unreadable) -> String {
    format!(
        "the object cannot be decoded and is not reconciled until it is changed: {}",
        object.why
    )
}

/// Whether two say the same.
pub(super) fn is_same(one: &Unreadable, other: &Unreadable) -> bool {
    let said = |it: &Unreadable| (it.meta.uid.clone(), it.meta.generation, it.why.clone());
    said(one) == said(other)
}

pub(super) fn log<K: OurKind>(object: &Unreadable) {
    tracing::error!(
        controller_kind = %K::kind(&()),
        name = object.meta.name,
        namespace = object.meta.namespace,
        error = object.why,
        "object cannot be decoded and is not reconciled"
    );
}

fn conditions(object: &Unreadable, now: Time) -> Vec<Condition> {
    let had: Vec<crds::Condition> = through(&object.conditions).unwrap_or_default();
    let had = conditions_of(&had);
    let outcome = Outcome::Stalled(UNREADABLE, text(object));
    Conditions::since(&had, object.meta.generation, now, &[]).finish(&outcome)
}

pub(super) async fn tell<K: OurKind + ReconciledObject>(
    context: Arc<Context>,
    object: Arc<Unreadable>,
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
    let event = Event {
        severity: Severity::Error,
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
            // A closed channel means that the process ends.
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
    use windlass_cluster::decode::Meta;

    fn unreadable(generation: i64, why: &str) -> Unreadable {
        let meta = Meta { uid: "u".to_owned(), generation, ..Meta::default() };
        let conditions = json!([{"type": "Ready", "status": "True", "reason": "Succeeded",
            "message": "applied", "lastTransitionTime": "2026-01-02T03:04:05Z"}]);
        Unreadable { meta, conditions, why: why.to_owned() }
    }

    #[test]
    fn an_object_that_cannot_be_read_is_stalled_and_no_longer_ready() {
        let now = jiff::Timestamp::now();
        let said = conditions(&unreadable(4, "it is nested 300 levels deep"), now);
        let is = |kind, status| Condition::is(&said, kind, status);
        assert!(
            is("Ready", reconcile::ConditionStatus::False)
                && is("Stalled", reconcile::ConditionStatus::True)
        );
        let ready = Condition::find(&said, "Ready").unwrap();
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
