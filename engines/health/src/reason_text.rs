//! Why an object is judged as it is, in words of its own status.

use objects::Object;
use serde_json::Value;

use crate::status_test::{StatusTest, scalar_text};
use crate::{HealthRule, HealthState};

/// The longest reason, in characters.
const MAX_REASON_CHARS: usize = 1_024;

/// Why a rule holds for an object.
pub(crate) fn reason(rule: &HealthRule, object: &Object) -> String {
    let Some(first) = rule.tests.first() else { return without_test(rule.state).to_owned() };
    let deciding = rule.tests.iter().find_map(|test| of_value(test, object));
    let reason = deciding.unwrap_or_else(|| format!("`{}` holds", first.text()));
    let is_long = reason.chars().nth(MAX_REASON_CHARS).is_some();
    if is_long { shortened(&reason) } else { reason }
}

/// The words that fit. A word is not cut: values of Secrets are masked in the result, and half of one would not be found.
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

/// What the condition says that a test is about, or the value.
fn of_value(test: &StatusTest, object: &Object) -> Option<String> {
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
