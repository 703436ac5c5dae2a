//! Arguments of functions as their signatures promise them, and what results count for.
//!
//! Here also: Go's panics, whose texts templates show.

use golang::Value;
use golang::fmt::sprint;
use golang::value::{IntKind, Integer, Map, Str};
use gotemplate::{Call, Failure};

/// What a function gives.
pub(crate) type Outcome = Result<Value, Failure>;

/// What Go says of the type of a nil.
pub(crate) const NIL: &str = "runtime error: invalid memory address or nil pointer dereference";

/// The `string` at a place.
pub(crate) fn text(args: &[Value], at: usize) -> &[u8] {
    match args.get(at) {
        Some(Value::String(text)) => text,
        _ => b"",
    }
}

/// The integer at a place.
pub(crate) fn int(args: &[Value], at: usize) -> i64 {
    match args.get(at) {
        Some(Value::Integer(integer)) => integer.signed(),
        _ => 0,
    }
}

/// The `float64` at a place.
pub(crate) fn float(args: &[Value], at: usize) -> f64 {
    match args.get(at) {
        Some(Value::Float(float)) => *float,
        _ => 0.0,
    }
}

/// The `interface {}` at a place.
pub(crate) fn any(args: &[Value], at: usize) -> &Value {
    args.get(at).unwrap_or(&Value::Nil)
}

/// The map at a place, which may be nil.
pub(crate) fn map(args: &[Value], at: usize) -> Map {
    match args.get(at) {
        Some(Value::Map(map)) => map.clone(),
        _ => Map::nil(golang::value::Type::Any),
    }
}

/// What remains of the arguments from a place on.
pub(crate) fn rest(args: &[Value], from: usize) -> &[Value] {
    args.get(from..).unwrap_or_default()
}

/// A length or position as Go's `int`.
pub(crate) fn as_int(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

/// The items of a slice, also of one with a name; nothing for what is none.
pub(crate) fn items(value: &Value) -> Option<Vec<Value>> {
    Some(match value {
        Value::List(list) => list.items().to_vec(),
        Value::Bytes(bytes) => {
            let byte = |byte: &u8| Value::Integer(Integer::new(IntKind::Uint8, i64::from(*byte)));
            bytes.iter().map(byte).collect()
        }
        Value::Object(object) => return items(&object.underlying()?),
        _ => return None,
    })
}

/// A value as a text: what it says of itself, or what Go prints.
pub(crate) fn text_of(value: &Value) -> Result<Str, Failure> {
    Ok(match value {
        Value::String(text) | Value::Bytes(text) => text.clone(),
        other => sprint(std::slice::from_ref(other))?.into(),
    })
}

/// Says that so many items of a slice are about to be copied.
///
/// They count for less than they take: most slices do not live for long.
pub(crate) fn copied(call: &mut Call<'_>, count: usize) -> Result<(), Failure> {
    call.work(count)?;
    call.produce(count.saturating_mul(8).saturating_add(16))
}

/// Says that so many new values are about to be made.
pub(crate) fn made(call: &mut Call<'_>, count: usize) -> Result<(), Failure> {
    // Memory is the narrower limit, and asking for it costs nothing.
    call.produce(count.saturating_mul(size_of::<Value>()).saturating_add(16))?;
    call.work(count)
}
