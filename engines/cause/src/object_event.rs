//! Reads events. An event with missing fields is no error.

use objects::Object;
use reconcile::Time;

use crate::condition::time;

/// When an event was seen last: old events have `lastTimestamp`, new ones `eventTime` or a series. `None` if it has no
/// valid time.
pub fn last_seen(event: &Object) -> Option<Time> {
    let of = |key: &str| event.get(key)?.as_str()?.parse().ok();
    let series = event.get("series").and_then(|series| time(series, "lastObservedTime"));
    series.or_else(|| of("lastTimestamp")).or_else(|| of("eventTime"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn old_and_new_events_have_a_time() {
        let seen = |more: Value| {
            let mut event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "a"}});
            event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            last_seen(&Object::new(event).unwrap()).map(|at| at.to_string())
        };
        let first = "2026-11-24T11:00:00Z";
        let later = "2026-11-24T12:00:00Z";
        assert_eq!(seen(json!({"lastTimestamp": first})).as_deref(), Some(first));
        let new = json!({"eventTime": first, "lastTimestamp": null});
        assert_eq!(seen(new).as_deref(), Some(first));
        let series = json!({"eventTime": first, "series": {"lastObservedTime": later}});
        assert_eq!(seen(series).as_deref(), Some(later));
        assert_eq!(seen(json!({})), None);
    }
}
