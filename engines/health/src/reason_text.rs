//! The reason why an object has its health, in the words of its own status.

use objects::Object;
use serde_json::Value;

use crate::status_predicate::{StatusPredicate, scalar_text};
use crate::{HealthRule, HealthState};

/// The longest reason, in characters.
const MAX_REASON_CHARS: usize = 1_024;

/// The reason why a rule holds for an object.
pub(crate) fn reason(rule: &HealthRule, object: &Object) -> String {
    let Some(first) = rule.tests.first() else { return without_test(rule.state).to_owned() };
    let deciding = rule.tests.iter().find_map(|test| of_value(test, object));
    let reason = deciding.unwrap_or_else(|| format!("`{}` holds", first.text()));
    let is_long = reason.chars().nth(MAX_REASON_CHARS).is_some();
    if is_long { shortened(&reason) } else { reason }
}

/// Shortens a reason at a space. Words stay whole, because values of Secrets are masked in the result, and the mask
/// would not find half a value.
fn shortened(reason: &str) -> String {
    let end = reason.char_indices().take(MAX_REASON_CHARS).filter(|(_, it)| it.is_whitespace());
    let words = end.last().and_then(|(at, _)| reason.get(..at)).unwrap_or_default();
    format!("{words}…")
}

fn without_test(state: HealthState) -> &'static str {
    match state {
        HealthState::Healthy => "nothing in its status is against it",
        HealthState::Progressing => "its status does not show yet that it is ready",
        HealthState::Degraded
        | HealthState::Suspended
        | HealthState::Missing
        | HealthState::Unknown => "its status shows none of the known states",
    }
}

/// The message of the condition that a test is about, or else the tested value, as text for users. `None` if the object
/// has neither.
fn of_value(test: &StatusPredicate, object: &Object) -> Option<String> {
    let path = test.subject()?;
    if let Some(kind) = path.condition() {
        return of_condition(object, kind);
    }
    let values = path.values(object).ok()?;
    let value = values.into_iter().flatten().find_map(scalar_text)?;
    let head = format!("`{}`: {value}", test.text());
    let message = object.get("status").and_then(|it| it.get("message")).and_then(Value::as_str);
    Some(match message.filter(|it| !it.is_empty()) {
        Some(message) => format!("{head}: {message}"),
        None => head,
    })
}

fn of_condition(object: &Object, kind: &str) -> Option<String> {
    let conditions = object.get("status")?.get("conditions")?.as_array()?;
    let condition =
        conditions.iter().find(|it| it.get("type").and_then(Value::as_str) == Some(kind))?;
    let text = |field: &str| condition.get(field).and_then(Value::as_str).unwrap_or_default();
    Some(match (text("message"), text("reason")) {
        ("", "") => format!("{kind} is {}", text("status")),
        ("", reason) => format!("{kind} is {} ({reason})", text("status")),
        (message, _) => message.to_owned(),
    })
}
