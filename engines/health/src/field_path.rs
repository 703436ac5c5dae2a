//! Paths into an object in the notation of rules, and the values at these paths.
//!
//! | written | means |
//! |---|---|
//! | `.status.phase` | a field |
//! | `.status.conditions[Ready]` | the items of a list whose `type` is this, or the entry of a mapping with this key |
//! | `.status.conditions[current Ready]` | the same without items that are about an earlier generation |
//! | `.status.racks[*]` | every item of a list or entry of a mapping |
//! | `.status.stale` | whether the `observedGeneration` beside it is below that of the object |
//! | `Ready`, `Ready.reason` | a field of a condition of the status, by default `status`; what it says of an earlier generation does not count |
//! | `Ready.stale` | whether that condition is about an earlier generation |
//! | `stale`, `deleting` | `.status.stale`, `.metadata.deletionTimestamp` |

use objects::Object;
use serde_json::Value;

/// How many values at a path are compared. No known API has as many conditions, parents or racks.
const MOST_VALUES: usize = 4_096;

/// The value of a path that asks whether a part is stale.
static STALE_VALUE: Value = Value::Bool(true);

/// The fields of a condition that may be named after its type.
const CONDITION_FIELDS: [&str; 5] = ["status", "reason", "message", "severity", "stale"];

/// A path has more values than are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("its status has more than {limit} entries in one list", limit = MOST_VALUES)]
pub(crate) struct TooManyValues;

/// A path into an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldPath {
    /// The field of the object with which the path begins.
    first: String,
    rest: Vec<PathSegment>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum PathSegment {
    Field(String),
    Stale,
    Every,
    Item(String),
    CurrentItem(String),
}

impl FieldPath {
    /// Reads a path. `None` if the text is not a path.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "" => None,
            "deleting" => Self::segments(".metadata.deletionTimestamp"),
            "stale" => Self::segments(".status.stale"),
            _ if text.starts_with('.') => Self::segments(text),
            // Types of conditions may have dots of their own.
            _ => match text.rsplit_once('.').filter(|(_, end)| CONDITION_FIELDS.contains(end)) {
                Some((kind, field)) => Some(Self::of_condition(kind, field)),
                None => Some(Self::of_condition(text, "status")),
            },
        }
    }

    fn of_condition(kind: &str, field: &str) -> Self {
        let item = match field {
            "stale" => PathSegment::Item(kind.to_owned()),
            _ => PathSegment::CurrentItem(kind.to_owned()),
        };
        let rest =
            vec![PathSegment::Field("conditions".to_owned()), item, PathSegment::field(field)];
        Self { first: "status".to_owned(), rest }
    }

    fn segments(text: &str) -> Option<Self> {
        let (first, mut left) = next_field(text)?;
        let mut rest = Vec::new();
        while !left.is_empty() {
            let (segment, after) = match left.strip_prefix('[') {
                Some(inner) => {
                    let (key, after) = inner.split_once(']').filter(|(key, _)| !key.is_empty())?;
                    (PathSegment::item(key), after)
                }
                None => {
                    let (name, after) = next_field(left)?;
                    (PathSegment::field(name), after)
                }
            };
            rest.push(segment);
            left = after;
        }
        Some(Self { first: first.to_owned(), rest })
    }

    /// The type of the status condition that the path is about. `None` if it is about no condition.
    pub(crate) fn condition(&self) -> Option<&str> {
        match self.rest.as_slice() {
            [
                PathSegment::Field(list),
                PathSegment::Item(kind) | PathSegment::CurrentItem(kind),
                ..,
            ] if self.first == "status" && list == "conditions" => Some(kind),
            _ => None,
        }
    }

    /// The values at the path. There is one, which may be absent, unless the path has `[*]` or several items have the
    /// same type.
    ///
    /// # Errors
    /// The path has too many values.
    pub(crate) fn values<'a>(
        &self,
        object: &'a Object,
    ) -> Result<Vec<Option<&'a Value>>, TooManyValues> {
        let mut values = vec![object.get(&self.first).filter(is_set)];
        for segment in &self.rest {
            let mut next = Vec::with_capacity(values.len());
            for value in values {
                segment.descend(value, object, &mut next)?;
            }
            values = next;
        }
        Ok(values)
    }
}

/// The field name after a dot, and the rest of the text. `None` if the text does not begin with a dot and a name.
fn next_field(text: &str) -> Option<(&str, &str)> {
    let text = text.strip_prefix('.')?;
    let end = text.find(['.', '[']).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    (!name.is_empty()).then_some((name, rest))
}

impl PathSegment {
    fn field(name: &str) -> Self {
        match name {
            "stale" => Self::Stale,
            name => Self::Field(name.to_owned()),
        }
    }

    fn item(key: &str) -> Self {
        match key.strip_prefix("current ") {
            Some(key) => Self::CurrentItem(key.to_owned()),
            None if key == "*" => Self::Every,
            None => Self::Item(key.to_owned()),
        }
    }

    fn descend<'a>(
        &self,
        value: Option<&'a Value>,
        object: &'a Object,
        next: &mut Vec<Option<&'a Value>>,
    ) -> Result<(), TooManyValues> {
        match self {
            Self::Field(name) => next.push(value.and_then(|it| it.get(name)).filter(is_set)),
            Self::Stale => {
                let is_stale = value.is_some_and(|it| is_stale(it, object));
                next.push(is_stale.then_some(&STALE_VALUE));
            }
            Self::Every => match value {
                Some(Value::Array(items)) => {
                    next.extend(items.iter().take(MOST_VALUES + 1).map(Some));
                }
                Some(Value::Object(map)) => {
                    next.extend(map.values().take(MOST_VALUES + 1).map(Some));
                }
                _ => {}
            },
            Self::Item(key) => items(value, key, |_| true, next),
            Self::CurrentItem(key) => items(value, key, |item| !is_stale(item, object), next),
        }
        if next.len() > MOST_VALUES { Err(TooManyValues) } else { Ok(()) }
    }
}

/// The entry of a mapping with this key, or the items of a list with this type.
fn items<'a>(
    value: Option<&'a Value>,
    key: &str,
    is_wanted: impl Fn(&Value) -> bool,
    next: &mut Vec<Option<&'a Value>>,
) {
    let before = next.len();
    match value {
        Some(Value::Object(map)) => next.push(map.get(key).filter(is_set)),
        Some(Value::Array(list)) => {
            let of_type = |item: &&Value| item.get("type").and_then(Value::as_str) == Some(key);
            next.extend(list.iter().filter(of_type).filter(|item| is_wanted(item)).map(Some));
        }
        _ => {}
    }
    if next.len() == before {
        next.push(None);
    }
}

/// Whether a value is present. Null counts as absent.
fn is_set(value: &&Value) -> bool {
    !value.is_null()
}

fn is_stale(value: &Value, object: &Object) -> bool {
    let observed = value.get("observedGeneration").and_then(number);
    observed.zip(object.meta("generation").and_then(number)).is_some_and(|(seen, own)| seen < own)
}

/// Reads a whole number, which may also be a text. Some kinds write their generation as text. Some write a fraction
/// such as `1/3`, and then the first number counts. `None` for any other value.
pub(crate) fn number(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.split('/').next()?.parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}
