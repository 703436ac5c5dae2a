//! Reads conditions of objects of any kind. A condition with missing fields is no error.

use objects::Object;
use reconcile::Time;
use serde_json::Value;

use crate::condition_reason;

/// The content of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConditionView<'o> {
    /// `True`, `False` or `Unknown`.
    pub status: &'o str,
    /// One word; may be empty.
    pub reason: &'o str,
    /// The message for users. It may be empty.
    pub message: &'o str,
    /// The last transition time of the condition.
    pub since: Option<Time>,
    /// The generation of the object that the condition is about, if it names one.
    pub generation: Option<i64>,
}

/// The condition of a type; `None` if the object does not have it.
pub fn condition<'o>(object: &'o Object, kind: &str) -> Option<ConditionView<'o>> {
    let all = object.get("status")?.get("conditions")?.as_array()?;
    let found = all.iter().find(|it| text(it, "type") == kind)?;
    Some(ConditionView {
        status: text(found, "status"),
        reason: text(found, "reason"),
        message: text(found, "message"),
        since: time(found, "lastTransitionTime"),
        generation: found.get("observedGeneration").and_then(Value::as_i64),
    })
}

/// Since when an object has the state that its condition reports. `None` if no time is known.
///
/// A failing Kustomization writes its condition anew at each attempt, so the transition time is the time of the last
/// attempt. Its history has the first attempt with this failure. If an attempt succeeded since, the history does not
/// say when the failure began again.
pub fn since(object: &Object, said: ConditionView<'_>) -> Option<Time> {
    failing_since(object, said).or(said.since)
}

fn failing_since(object: &Object, said: ConditionView<'_>) -> Option<Time> {
    let history = object.get("status")?.get("history")?.as_array()?;
    let newest = history.first().filter(|_| said.status == "False")?;
    if text(newest, "lastReconciledStatus") != said.reason {
        return None;
    }
    let success = reconcile::condition_reason::RECONCILIATION_SUCCEEDED.as_str();
    let succeeded = history.iter().filter(|it| text(it, "lastReconciledStatus") == success);
    let succeeded = succeeded.filter_map(|it| time(it, "lastReconciled")).max();
    let began = time(newest, "firstReconciled")?;
    let is_of_this_failure = succeeded.is_none_or(|well| well < began);
    (is_of_this_failure && said.since.is_none_or(|since| began < since)).then_some(began)
}

/// When the spec of an object was last changed, according to its field managers. `None` if they do not say it.
/// Conditions do not have that time for a spec that was not reconciled yet.
pub fn spec_changed(object: &Object) -> Option<Time> {
    let entries = object.meta("managedFields")?.as_array()?;
    let is_of_spec = |entry: &&Value| {
        let fields = entry.get("fieldsV1").and_then(|it| it.get("f:spec"));
        fields.is_some() && text(entry, "subresource").is_empty()
    };
    entries.iter().filter(is_of_spec).filter_map(|entry| time(entry, "time")).max()
}

/// The condition `Stalled` of an object that is not retried because its retries are exhausted. `None` for any other
/// object, and after a reset.
///
/// Parity(flux): `Ready` keeps the reason of the last failure, so it does not show this.
pub fn exhausted(object: &Object) -> Option<ConditionView<'_>> {
    let stalled = condition(object, reconcile::STALLED).filter(|said| said.status == "True");
    stalled.filter(|said| condition_reason::is_exhausted(said.reason))
}

/// A text of a mapping. It is empty if the mapping does not have it.
pub(crate) fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The time under a key of a mapping. `None` if the key is missing or its value is not a time.
pub(crate) fn time(value: &Value, key: &str) -> Option<Time> {
    value.get(key)?.as_str()?.parse().ok()
}

/// Whether a boolean field of the spec is true.
pub(crate) fn is_set(object: &Object, field: &str) -> bool {
    object.get("spec").and_then(|spec| spec.get(field)) == Some(&Value::Bool(true))
}
