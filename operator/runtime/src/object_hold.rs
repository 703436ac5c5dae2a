//! Holds on an object: who suspended it, why and until when (`windlass.dev/suspended-…`), and their end. Also matches entries
//! of a Helmfile's `spec.suspendedReleases` with releases.
//!
//! Elsewhere: parsing a hold (engine `reconcile`), and its condition (`hold_conditions.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;

use crds::ReconciledObject;
use crds::helmfile::SuspendedRelease;
use kube_core::{Resource, ResourceExt as _};
use reconcile::{
    AnnotationCondition, ConditionStatus, HOLD, ManagerOwnedFields, ObjectHold, ROLLBACK,
    ReleaseRollback, SUSPEND_FIELD, Time, condition_reason,
};

use super::lifecycle::ReleaseNameAndContext;
use super::object_status::LatestWrittenObject;
use super::run_context::RunContext;
use windlass_cluster::ClusterError;
use windlass_cluster::events::{EventSeverity, ObjectEvent};
use windlass_cluster::windlass_kind::WindlassKind;

pub use reconcile::{SUSPENDED_BY as BY, SUSPENDED_REASON as REASON, SUSPENDED_UNTIL as UNTIL};

/// The hold in the annotations of an object. `None` if there is none.
pub fn of<K: Resource>(object: &K) -> Option<ObjectHold> {
    ObjectHold::of(|key| object.annotations().get(key).map(String::as_str), owners(object))
}

/// The fields that each field manager owns in an object.
fn owners<K: Resource>(object: &K) -> impl Iterator<Item = ManagerOwnedFields<'_>> {
    object.managed_fields().iter().filter_map(|entry| {
        Some(ManagerOwnedFields {
            manager: entry.manager.as_deref().unwrap_or_default(),
            is_applied: entry.operation.as_deref() == Some("Apply"),
            fields: &entry.fields_v1.as_ref()?.0,
        })
    })
}

fn expired<K: Resource>(object: &K, now: Time) -> Option<(ObjectHold, Time)> {
    let hold = of(object).filter(|hold| hold.is_expired(now))?;
    let at = hold.expires_at()?;
    Some((hold, at))
}

/// Whether an object is suspended. A hold that has expired no longer suspends it, even if `spec.suspend` is true.
pub fn is_suspended<K: WindlassKind + ReconciledObject>(object: &K, now: Time) -> bool {
    object.is_suspended() && expired(object, now).is_none()
}

/// Whether an entry of `spec.suspendedReleases` of a Helmfile has not expired.
pub fn is_in_force(entry: &SuspendedRelease, now: Time) -> bool {
    entry.until.as_ref().is_none_or(|until| until.0 > now)
}

/// Whether an entry of `spec.suspendedReleases` of a Helmfile names a release.
pub fn names_release(
    entry: &SuspendedRelease,
    (name, namespace, kube_context): ReleaseNameAndContext<'_>,
) -> bool {
    entry.name == name
        && entry.namespace.as_ref().is_none_or(|it| it == namespace)
        && entry.kube_context.as_ref().is_none_or(|it| it == kube_context)
}

/// The condition that shows the hold of an object. `None` if the object is not suspended, or its annotations describe no hold.
pub fn mark<K: WindlassKind + ReconciledObject>(
    object: &K,
    now: Time,
) -> Option<AnnotationCondition> {
    let hold = of(object).filter(|_| object.is_suspended())?;
    Some(match expired(object, now) {
        None => AnnotationCondition {
            kind: HOLD,
            status: ConditionStatus::True,
            reason: condition_reason::SUSPENDED,
            text: hold.to_string(),
        },
        Some((_, at)) => AnnotationCondition {
            kind: HOLD,
            status: ConditionStatus::False,
            reason: condition_reason::EXPIRED,
            text: format!("expired at {}; {}", spelled(at), still_there(object)),
        },
    })
}

fn spelled(at: Time) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The message why `spec.suspend` is still true after the hold has expired.
fn still_there<K: Resource>(object: &K) -> String {
    match applier(object, &SUSPEND_FIELD) {
        Some(manager) => format!(
            "spec.suspend is still true in the manifest applied by {manager}, and is ignored"
        ),
        None => "spec.suspend is still true, because updating it failed, and is ignored".to_owned(),
    }
}

/// The field manager that owns a field by server-side apply. It would overwrite another client's change of the field. `None` if
/// no field manager owns the field in this way.
fn applier<'o, K: Resource>(object: &'o K, path: &[&str]) -> Option<&'o str> {
    let owner = owners(object).find(|it| it.is_applied && it.has(path))?;
    Some(match owner.manager {
        "" => "another field manager",
        manager => manager,
    })
}

/// Removes the fields of a hold that has ended: `spec.suspend` of an expired hold, and its annotations. The annotations are
/// removed even if another program resumed the object, because they would otherwise end a later suspension.
///
/// Fields of a server-side apply stay, because their manager would apply them again.
///
/// Returns the object as it is now. `None` if it is gone.
///
/// # Errors
/// The object was changed meanwhile. Any other error is logged, and the hold has expired anyway.
pub async fn lift<K: WindlassKind + ReconciledObject>(
    context: &RunContext,
    latest: &LatestWrittenObject<K>,
    object: Arc<K>,
    now: Time,
) -> Result<Option<Arc<K>>, ClusterError> {
    let suspended = object.is_suspended();
    let text = match (suspended, expired(&*object, now)) {
        (true, None) => return Ok(Some(object)),
        (true, Some((hold, at))) => format!("{} expired at {}", hold.name(), spelled(at)),
        (false, _) => "the object was resumed".to_owned(),
    };
    if suspended && applier(&*object, &SUSPEND_FIELD).is_some() {
        if object.condition(HOLD).is_none_or(|was| was.reason != condition_reason::EXPIRED.as_str())
        {
            tell(context, &object, format!("{text}; {}", still_there(&*object)));
        }
        return Ok(Some(object));
    }
    let annotations = left_behind(&*object);
    if !suspended && annotations.is_empty() {
        return Ok(Some(object));
    }
    match latest.end_hold(context, &object, suspended, &annotations).await {
        Ok(Some(object)) => {
            if suspended {
                tell(context, &object, format!("{text}; spec.suspend was set to false"));
            }
            Ok(Some(object))
        }
        Ok(None) => Ok(None),
        Err(error) if error.code() == Some(409) => Err(error),
        Err(error) => {
            let name = object.name_any();
            let namespace = object.namespace().unwrap_or_default();
            let kind = K::kind(&());
            tracing::error!(controller_kind = %kind, name, namespace, error = %error, "{text}; failed to remove \
                                                                                       its annotations");
            Ok(Some(object))
        }
    }
}

/// The annotations to remove after a suspension: those of a hold with an end, and the request for a rollback. Annotations that
/// a manifest would apply again stay. The request for the rollback of one Helmfile release stays too, since it belongs to
/// another suspension.
fn left_behind<K: Resource>(object: &K) -> Vec<&'static str> {
    let annotations = object.annotations();
    let hold: &[&'static str] =
        if annotations.contains_key(UNTIL) { &[BY, REASON, UNTIL] } else { &[] };
    let asked = annotations.get(ROLLBACK).and_then(|text| ReleaseRollback::of(text, None));
    let is_ours_to_remove = |key: &&'static str| {
        let field = format!("f:{key}");
        annotations.contains_key(*key)
            && applier(object, &["f:metadata", "f:annotations", &field]).is_none()
    };
    let over = hold.iter().copied().chain(asked.map(|_| ROLLBACK));
    over.filter(is_ours_to_remove).collect()
}

fn tell<K: WindlassKind + ReconciledObject>(
    context: &RunContext,
    object: &Arc<K>,
    message: String,
) {
    let event = ObjectEvent {
        severity: EventSeverity::Info,
        reason: "HoldExpired".to_owned(),
        message,
        metadata: BTreeMap::new(),
    };
    context.events.announce(&**object, K::CONTROLLER, event);
}

#[cfg(test)]
mod tests {
    use crds::source::GitRepository;
    use serde_json::{Value, json};

    use super::*;

    const AT: &str = "2026-11-23T21:00:00Z";

    fn object(suspend: bool, managed: Value) -> GitRepository {
        serde_json::from_value(json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1",
            "kind": "GitRepository",
            "metadata": {
                "name": "app",
                "annotations": {BY: "alice", UNTIL: AT},
                "managedFields": managed,
            },
            "spec": {"interval": "10m", "url": "http://git.test/app", "suspend": suspend},
        }))
        .unwrap()
    }

    fn owned(manager: &str, operation: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1",
            "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    /// The fields that a command or manifest owns if it sets a complete hold.
    fn whole() -> Value {
        json!({"f:metadata": {"f:annotations": {"f:windlass.dev/suspended-by": {},
            "f:windlass.dev/suspended-until": {}}}, "f:spec": {"f:suspend": {}}})
    }

    /// An object with a hold from `windlass suspend`.
    fn held() -> GitRepository {
        object(true, json!([owned("windlass-cli", "Update", whole())]))
    }

    fn time(text: &str) -> Time {
        text.parse().unwrap()
    }

    #[test]
    fn a_hold_suspends_until_its_time() {
        assert!(is_suspended(&held(), time("2026-11-23T20:59:59Z")));
        assert!(!is_suspended(&held(), time(AT)));
        assert!(!is_suspended(&object(false, json!([])), time("2026-11-23T20:59:59Z")));
    }

    #[test]
    fn a_hold_does_not_end_a_later_suspension_by_another_program() {
        let until =
            json!({"f:metadata": {"f:annotations": {"f:windlass.dev/suspended-until": {}}}});
        let suspend = json!({"f:spec": {"f:suspend": {}}});
        let fields = [owned("windlass-cli", "Update", until), owned("flux", "Update", suspend)];
        let later = object(true, json!(fields));
        assert!(is_suspended(&later, Time::MAX));
        let mark = mark(&later, Time::MAX).unwrap();
        assert_eq!(
            (mark.status, mark.reason),
            (ConditionStatus::True, condition_reason::SUSPENDED)
        );
        assert!(mark.text.ends_with("so the suspension does not expire"), "{}", mark.text);
    }

    #[test]
    fn a_hold_is_shown_while_the_object_is_suspended() {
        let before = time("2026-11-23T20:59:59Z");
        let mark = mark(&held(), before).unwrap();
        assert_eq!(
            (mark.status, mark.reason),
            (ConditionStatus::True, condition_reason::SUSPENDED)
        );
        assert_eq!(mark.text, "suspended by alice until 2026-11-23T21:00:00Z");
        assert_eq!(self::mark(&object(false, json!([])), before), None);
    }

    #[test]
    fn what_a_manifest_declares_is_named_and_left() {
        let applied = object(true, json!([owned("flux", "Apply", whole())]));
        let mark = mark(&applied, time(AT)).unwrap();
        assert_eq!((mark.status, mark.reason), (ConditionStatus::False, condition_reason::EXPIRED));
        assert_eq!(
            mark.text,
            "expired at 2026-11-23T21:00:00Z; spec.suspend is still true in the manifest applied by flux, and is \
             ignored"
        );
        assert_eq!(applier(&held(), &SUSPEND_FIELD), None);
        let url = json!({"f:spec": {"f:url": {}}});
        let other = object(true, json!([owned("flux", "Apply", url)]));
        assert_eq!(applier(&other, &SUSPEND_FIELD), None);
    }

    #[test]
    fn annotations_that_a_manifest_declares_are_left() {
        assert_eq!(left_behind(&object(true, json!([]))), [BY, UNTIL]);
        let by =
            json!({"f:metadata": {"f:annotations": {".": {}, "f:windlass.dev/suspended-by": {}}}});
        let applied = object(true, json!([owned("flux", "Apply", by)]));
        assert_eq!(left_behind(&applied), [UNTIL]);
    }

    #[test]
    fn what_is_left_behind_is_a_hold_with_an_end_and_the_rollback_of_the_object() {
        let left = |annotations: Value| {
            let mut object = object(false, json!([]));
            object.metadata.annotations = serde_json::from_value(annotations).unwrap();
            left_behind(&object)
        };
        assert_eq!(left(json!({BY: "alice", REASON: "incident-1"})), [] as [&str; 0]);
        assert_eq!(left(json!({BY: "alice", UNTIL: AT})), [BY, UNTIL]);
        assert_eq!(left(json!({ROLLBACK: "5->3"})), [ROLLBACK]);
        assert_eq!(left(json!({ROLLBACK: "apps/db:5->3"})), [] as [&str; 0]);
    }
}
