//! Holds on an object: who suspended it, why and until when (`windlass.dev/suspended-…`), and lifting them.
//!
//! Elsewhere: what a hold says (engine `reconcile`), showing it (`marks.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::core::{Resource, ResourceExt as _};
use reconcile::{ConditionStatus, HOLD, Hold, Mark, Time, reason};

use super::context::Context;
use super::kind::ControllerKind;
use super::record::Latest;
use windlass_cluster::ClusterError;
use windlass_cluster::events::{Event, Severity};

pub(super) use reconcile::{
    SUSPENDED_BY as BY, SUSPENDED_REASON as REASON, SUSPENDED_UNTIL as UNTIL,
};

/// The path of `spec.suspend` in `managedFields`.
const SUSPEND: [&str; 2] = ["f:spec", "f:suspend"];

/// What the annotations say.
pub(super) fn of<K: Resource>(object: &K) -> Option<Hold> {
    Hold::of(|key| object.annotations().get(key).map(String::as_str))
}

fn expired<K: Resource>(object: &K, now: Time) -> Option<(Hold, Time)> {
    let hold = of(object).filter(|hold| hold.is_expired(now))?;
    let at = hold.expires_at()?;
    Some((hold, at))
}

/// Whether an object is suspended: `spec.suspend`, unless it is a hold that has expired.
pub(crate) fn is_suspended<K: ControllerKind>(object: &K, now: Time) -> bool {
    object.is_suspended() && expired(object, now).is_none()
}

/// How a hold is shown; nothing is while the object is not suspended, or suspended without a word.
pub(super) fn mark<K: ControllerKind>(object: &K, now: Time) -> Option<Mark> {
    let hold = of(object).filter(|_| object.is_suspended())?;
    Some(match expired(object, now) {
        None => Mark {
            kind: HOLD,
            status: ConditionStatus::True,
            reason: reason::SUSPENDED,
            text: hold.to_string(),
        },
        Some((_, at)) => Mark {
            kind: HOLD,
            status: ConditionStatus::False,
            reason: reason::EXPIRED,
            text: format!("expired at {}; {}", spelled(at), still_there(object)),
        },
    })
}

fn spelled(at: Time) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Why `spec.suspend` is true although it does not count any more.
fn still_there<K: Resource>(object: &K) -> String {
    match applier(object, &SUSPEND) {
        Some(manager) => format!(
            "spec.suspend is still true in the manifest applied by {manager}, and is ignored"
        ),
        None => "spec.suspend is still true, because updating it failed, and is ignored".to_owned(),
    }
}

/// Who owns a field by server-side apply, and would put back what somebody else writes there.
fn applier<'o, K: Resource>(object: &'o K, path: &[&str]) -> Option<&'o str> {
    let entries = object.managed_fields().iter();
    let owner =
        entries.filter(|entry| entry.operation.as_deref() == Some("Apply")).find(|entry| {
            let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
            path.iter().try_fold(fields, |at, key| at.map(|at| at.get(key))).flatten().is_some()
        })?;
    Some(owner.manager.as_deref().unwrap_or("another field manager"))
}

/// Ends what an expired hold left behind: `spec.suspend`, then the annotations.
///
/// What somebody applies server-side is left as it is, since it would come back. Annotations of a hold that has
/// expired go even when the object was resumed before, so that they do not lift a later suspension.
///
/// Returns the object as it is now; `None` when it is gone.
///
/// # Errors
/// If the object was changed meanwhile; any other refusal is logged, and the hold has expired all the same.
pub(crate) async fn lift<K: ControllerKind>(
    context: &Context,
    latest: &Latest<K>,
    object: Arc<K>,
    now: Time,
) -> Result<Option<Arc<K>>, ClusterError> {
    let Some((hold, at)) = expired(&*object, now) else { return Ok(Some(object)) };
    let suspended = object.is_suspended();
    let text = format!("{} expired at {}", hold.name(), spelled(at));
    if suspended && applier(&*object, &SUSPEND).is_some() {
        if object.condition(HOLD).is_none_or(|was| was.reason != reason::EXPIRED.as_str()) {
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

/// The annotations of a hold that nobody would put back.
fn left_behind<K: Resource>(object: &K) -> Vec<&'static str> {
    let is_ours_to_remove = |key: &&'static str| {
        let field = format!("f:{key}");
        object.annotations().contains_key(*key)
            && applier(object, &["f:metadata", "f:annotations", &field]).is_none()
    };
    [BY, REASON, UNTIL].into_iter().filter(is_ours_to_remove).collect()
}

fn tell<K: ControllerKind>(context: &Context, object: &Arc<K>, message: String) {
    let event = Event {
        severity: Severity::Info,
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

    fn owned(operation: &str, fields: Value) -> Value {
        json!([{"manager": "flux", "operation": operation, "apiVersion": "v1",
            "fieldsType": "FieldsV1", "fieldsV1": fields}])
    }

    fn time(text: &str) -> Time {
        text.parse().unwrap()
    }

    #[test]
    fn a_hold_suspends_until_its_time() {
        let held = object(true, json!([]));
        assert!(is_suspended(&held, time("2026-11-23T20:59:59Z")));
        assert!(!is_suspended(&held, time(AT)));
        assert!(!is_suspended(&object(false, json!([])), time("2026-11-23T20:59:59Z")));
    }

    #[test]
    fn a_hold_is_shown_while_the_object_is_suspended() {
        let before = time("2026-11-23T20:59:59Z");
        let mark = mark(&object(true, json!([])), before).unwrap();
        assert_eq!((mark.status, mark.reason), (ConditionStatus::True, reason::SUSPENDED));
        assert_eq!(mark.text, "suspended by alice until 2026-11-23T21:00:00Z");
        assert_eq!(self::mark(&object(false, json!([])), before), None);
    }

    #[test]
    fn what_somebody_applies_is_named_and_left() {
        let suspend = json!({"f:spec": {"f:suspend": {}, "f:url": {}}});
        let applied = object(true, owned("Apply", suspend.clone()));
        let mark = mark(&applied, time(AT)).unwrap();
        assert_eq!((mark.status, mark.reason), (ConditionStatus::False, reason::EXPIRED));
        assert_eq!(
            mark.text,
            "expired at 2026-11-23T21:00:00Z; spec.suspend is still true in the manifest applied by flux, and is \
             ignored"
        );
        assert_eq!(applier(&object(true, owned("Update", suspend)), &SUSPEND), None);
        let other = object(true, owned("Apply", json!({"f:spec": {"f:url": {}}})));
        assert_eq!(applier(&other, &SUSPEND), None);
    }

    #[test]
    fn annotations_that_somebody_applies_are_left() {
        assert_eq!(left_behind(&object(true, json!([]))), [BY, UNTIL]);
        let by =
            json!({"f:metadata": {"f:annotations": {".": {}, "f:windlass.dev/suspended-by": {}}}});
        assert_eq!(left_behind(&object(true, owned("Apply", by))), [UNTIL]);
    }
}
