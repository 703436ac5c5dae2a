//! Converts values to JSON: the conversion of `sigs.k8s.io/yaml` from Go's values, and that of `encoding/json`.
//! Elsewhere: the Go types of the result (`decode_target.rs`).

use std::collections::BTreeMap;

use serde_json::{Map, Number, Value};

use crate::decode_target::DecodeTarget;
use crate::error::Error;
use crate::go_format;
use crate::value::{GoDocumentValues, GoMapKey, GoValue, GoValueId};

/// Converts `root` to JSON.
///
/// The result equals the parsed JSON text of Go. A float without a fraction is an integer if it fits, because Go writes
/// `1.0` as `1`.
pub(crate) fn to_json(values: &GoDocumentValues<'_>, root: GoValueId) -> Result<Value, Error> {
    to_json_for(values, root, &DecodeTarget::Any)
}

/// Converts `root` to JSON for the Go type `target`.
pub(crate) fn to_json_for(
    values: &GoDocumentValues<'_>,
    root: GoValueId,
    target: &DecodeTarget,
) -> Result<Value, Error> {
    let mut stack: Vec<JsonConversionFrame<'_>> = Vec::new();
    // Go refuses keys before it examines numbers.
    let mut not_json = None;
    let mut id = root;
    let mut target = target;
    loop {
        // A collection is done only after its members.
        let mut done = match &values.values[id] {
            scalar if *target == DecodeTarget::Text && as_text(scalar).is_some() => {
                as_text(scalar).map(Value::String)
            }
            GoValue::Null => Some(Value::Null),
            GoValue::Bool(bool) => Some(Value::Bool(*bool)),
            GoValue::Int(int) => Some(Value::from(*int)),
            GoValue::Uint(uint) => Some(Value::from(*uint)),
            GoValue::Float(float) => {
                let number = number(*float);
                if number.is_none() {
                    let shown = go_format::float64(*float);
                    not_json.get_or_insert(format!("json: unsupported value: {shown}"));
                }
                Some(number.map_or(Value::Null, Value::Number))
            }
            GoValue::Str(text) => Some(Value::String(text.clone().into_owned())),
            GoValue::Bytes(bytes) => Some(Value::String(replace_invalid(bytes))),
            GoValue::Sequence(items) => {
                let done = Vec::with_capacity(items.len());
                stack.push(JsonConversionFrame::Sequence {
                    left: items.iter(),
                    done,
                    target: target.item(),
                });
                None
            }
            GoValue::Map(map) => {
                let left = entries(values, *map)?.into_iter();
                stack.push(JsonConversionFrame::Map {
                    left,
                    key: String::new(),
                    done: Map::new(),
                    target,
                });
                None
            }
        };
        loop {
            let Some(frame) = stack.last_mut() else {
                let root = done.unwrap_or_default();
                return not_json.map_or(Ok(root), |text| Err(Error::value(text)));
            };
            if let Some(value) = done.take() {
                frame.take(value);
            }
            if let Some(next) = frame.next() {
                (id, target) = next;
                break;
            }
            done = stack.pop().map(JsonConversionFrame::finish);
        }
    }
}

/// A collection that is being converted.
enum JsonConversionFrame<'v> {
    Sequence {
        left: std::slice::Iter<'v, GoValueId>,
        done: Vec<Value>,
        target: &'v DecodeTarget,
    },
    Map {
        left: std::vec::IntoIter<(String, GoValueId)>,
        key: String,
        done: Map<String, Value>,
        target: &'v DecodeTarget,
    },
}

impl<'v> JsonConversionFrame<'v> {
    /// The next member to convert, with the type that it gets. `None` if no member is left.
    fn next(&mut self) -> Option<(GoValueId, &'v DecodeTarget)> {
        match self {
            Self::Sequence { left, target, .. } => left.next().map(|id| (*id, *target)),
            Self::Map { left, key, target, .. } => {
                let (next, value) = left.next()?;
                *key = next;
                Some((value, target.entry(key)))
            }
        }
    }

    /// Stores the member that was requested last.
    fn take(&mut self, value: Value) {
        match self {
            Self::Sequence { done, .. } => done.push(value),
            Self::Map { key, done, .. } => {
                done.insert(std::mem::take(key), value);
            }
        }
    }

    fn finish(self) -> Value {
        match self {
            Self::Sequence { done, .. } => Value::Array(done),
            Self::Map { done, .. } => Value::Object(done),
        }
    }
}

/// A number or boolean as text, for a field that has a text. `None` for any other value.
fn as_text(scalar: &GoValue<'_>) -> Option<String> {
    Some(match scalar {
        GoValue::Bool(bool) => bool.to_string(),
        GoValue::Int(int) => int.to_string(),
        GoValue::Uint(uint) => uint.to_string(),
        // Parity(sigs.k8s.io/yaml): printed with the precision of 32 bits.
        GoValue::Float(float) => go_format::float32(*float),
        _ => return None,
    })
}

/// The entries of a map, sorted by their keys as strings.
fn entries(values: &GoDocumentValues<'_>, map: usize) -> Result<Vec<(String, GoValueId)>, Error> {
    let map = &values.maps[map];
    let mut entries = BTreeMap::new();
    for (key, value) in map {
        let text = match key {
            GoMapKey::Str(text) => text.clone().into_owned(),
            GoMapKey::Int(int) => int.to_string(),
            GoMapKey::Bool(bool) => bool.to_string(),
            // Parity(sigs.k8s.io/yaml): float keys are printed with the precision of 32 bits.
            GoMapKey::Float(bits, _) => match go_format::float32(f64::from_bits(*bits)).as_str() {
                "+Inf" => ".inf".to_owned(),
                "-Inf" => "-.inf".to_owned(),
                "NaN" => ".nan".to_owned(),
                float => float.to_owned(),
            },
            GoMapKey::Bytes(bytes) => replace_invalid(bytes),
            GoMapKey::Null | GoMapKey::Uint(_) => {
                let kind = if *key == GoMapKey::Null { "%!s(<nil>)" } else { "uint64" };
                return Err(Error::value(format!(
                    "unsupported map key of type: {kind}, key: {}, value: {}",
                    key.show(),
                    values.show(*value)
                )));
            }
        };
        // Differs(sigs.k8s.io/yaml): of keys that are the same string (`1` and `"1"`) Go keeps any
        // one; here it is the one whose value was decoded last, as for all other duplicates.
        let last = entries.entry(text).or_insert(*value);
        *last = (*last).max(*value);
    }
    Ok(entries.into_iter().collect())
}

/// A float as a JSON parser reads Go's text of it. `None` if it is not finite.
pub(crate) fn number(float: f64) -> Option<Number> {
    let whole = float.fract() == 0.0 && float.abs() < 1e21;
    if whole && !(float == 0.0 && float.is_sign_negative()) {
        // The shortest digits, filled up with zeros: not the same as converting the float.
        let digits = format!("{float}");
        if let Ok(int) = digits.parse::<i64>() {
            return Some(Number::from(int));
        }
        if let Ok(uint) = digits.parse::<u64>() {
            return Some(Number::from(uint));
        }
    }
    Number::from_f64(float)
}

/// Replaces every byte that belongs to no character, one by one as Go does.
pub(crate) fn replace_invalid(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| '\u{fffd}'));
    }
    text
}
