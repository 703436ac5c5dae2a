//! Reads the arguments of functions according to their signatures, and counts the memory of results.
//!
//! Here also: Go's panics, whose messages appear in templates.

use golang::GoRuntimeValue;
use golang::fmt::sprint_within;
use golang::value::{GoMap, GoString, IntegerKind, SizedInteger};
use golang::work_meter::{WorkLimitExceeded, WorkMeter};
use gotemplate::{FunctionCallContext, TemplateFunctionError};

/// The result of a function.
pub(crate) type SprigResult = Result<GoRuntimeValue, TemplateFunctionError>;

/// Go's message about the type of a nil.
pub(crate) const NIL: &str = "runtime error: invalid memory address or nil pointer dereference";

/// The `string` at a place.
pub(crate) fn text(args: &[GoRuntimeValue], at: usize) -> &[u8] {
    match args.get(at) {
        Some(GoRuntimeValue::String(text)) => text,
        _ => b"",
    }
}

/// The integer at a place.
pub(crate) fn int(args: &[GoRuntimeValue], at: usize) -> i64 {
    match args.get(at) {
        Some(GoRuntimeValue::Integer(integer)) => integer.signed(),
        _ => 0,
    }
}

/// The `float64` at a place.
pub(crate) fn float(args: &[GoRuntimeValue], at: usize) -> f64 {
    match args.get(at) {
        Some(GoRuntimeValue::Float(float)) => *float,
        _ => 0.0,
    }
}

/// The `interface {}` at a place.
pub(crate) fn any(args: &[GoRuntimeValue], at: usize) -> &GoRuntimeValue {
    args.get(at).unwrap_or(&GoRuntimeValue::Nil)
}

/// The map at a place, which may be nil.
pub(crate) fn map(args: &[GoRuntimeValue], at: usize) -> GoMap {
    match args.get(at) {
        Some(GoRuntimeValue::Map(map)) => map.clone(),
        _ => GoMap::nil(golang::value::GoType::Any),
    }
}

/// The arguments from an index on.
pub(crate) fn rest(args: &[GoRuntimeValue], from: usize) -> &[GoRuntimeValue] {
    args.get(from..).unwrap_or_default()
}

/// A length or position as Go's `int`.
pub(crate) fn as_int(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

/// The number of items in a slice, including one of a named type. Any other value counts as one item.
pub(crate) fn length(value: &GoRuntimeValue) -> usize {
    match value {
        GoRuntimeValue::List(list) => list.len(),
        GoRuntimeValue::Bytes(bytes) => bytes.len(),
        GoRuntimeValue::Object(object) => object.underlying().map_or(1, |value| length(&value)),
        _ => 1,
    }
}

/// The items of a slice, including one of a named type; `None` for any other value.
pub(crate) fn items(value: &GoRuntimeValue) -> Option<Vec<GoRuntimeValue>> {
    Some(match value {
        GoRuntimeValue::List(list) => list.items().to_vec(),
        GoRuntimeValue::Bytes(bytes) => {
            let byte = |byte: &u8| {
                GoRuntimeValue::Integer(SizedInteger::new(IntegerKind::Uint8, i64::from(*byte)))
            };
            bytes.iter().map(byte).collect()
        }
        GoRuntimeValue::Object(object) => return items(&object.underlying()?),
        _ => return None,
    })
}

/// The text of a value: from its own method, or as Go prints it. The memory of a new text is counted.
pub(crate) fn text_of(
    call: &mut FunctionCallContext<'_>,
    value: &GoRuntimeValue,
) -> Result<GoString, TemplateFunctionError> {
    Ok(match value {
        GoRuntimeValue::String(text) | GoRuntimeValue::Bytes(text) => text.clone(),
        other => printed(call, other)?.into(),
    })
}

/// The text that Go prints for a value. Its memory is counted.
pub(crate) fn printed(
    call: &mut FunctionCallContext<'_>,
    value: &GoRuntimeValue,
) -> Result<Vec<u8>, TemplateFunctionError> {
    let text = sprint_within(std::slice::from_ref(value), call.text_limits())?;
    call.work(text.len() / 8)?;
    call.produce(text.len() + TEXT_OVERHEAD_BYTES)?;
    Ok(text)
}

/// The memory of a text in addition to its bytes.
pub(crate) const TEXT_OVERHEAD_BYTES: usize = 16;

/// The memory of a list in addition to its items.
const LIST_OVERHEAD_BYTES: usize = 96;

/// The memory of a map that is not empty, and of each entry in addition to its key and value.
pub(crate) const MAP_OVERHEAD_BYTES: usize = 448;
pub(crate) const MAP_ENTRY_OVERHEAD_BYTES: usize = 64;

/// Counts a map with this many entries before it is made.
pub(crate) fn mapped(
    call: &mut FunctionCallContext<'_>,
    entries: usize,
) -> Result<(), TemplateFunctionError> {
    let base = if entries == 0 { LIST_OVERHEAD_BYTES } else { MAP_OVERHEAD_BYTES };
    call.produce(entries.saturating_mul(MAP_ENTRY_OVERHEAD_BYTES).saturating_add(base))?;
    call.work(entries)
}

/// Counts the items of a slice before they are copied.
///
/// Only half of their memory is counted, because most slices are short-lived.
pub(crate) fn copied(
    call: &mut FunctionCallContext<'_>,
    count: usize,
) -> Result<(), TemplateFunctionError> {
    call.work(count)?;
    call.produce(
        count.saturating_mul(size_of::<GoRuntimeValue>() / 2).saturating_add(LIST_OVERHEAD_BYTES),
    )
}

/// Counts this many new values before they are made.
pub(crate) fn made(
    call: &mut FunctionCallContext<'_>,
    count: usize,
) -> Result<(), TemplateFunctionError> {
    // Memory is checked first, because it is the narrower limit and the check is free.
    call.produce(
        count.saturating_mul(size_of::<GoRuntimeValue>()).saturating_add(LIST_OVERHEAD_BYTES),
    )?;
    call.work(count)
}

/// Counts a value and all values in it before they are processed, with [`walk`].
pub(crate) fn walked(
    call: &mut FunctionCallContext<'_>,
    value: &GoRuntimeValue,
    bytes: usize,
) -> Result<(), TemplateFunctionError> {
    Ok(walk(call.meter(), value, bytes)?)
}

/// Counts a value and all values in it. A shared value counts each time. Each one counts `bytes`, plus the bytes of its text.
///
/// # Errors
/// The value exceeds the remaining allowance.
pub fn walk(
    meter: &mut WorkMeter,
    value: &GoRuntimeValue,
    bytes: usize,
) -> Result<(), WorkLimitExceeded> {
    let mut open: Vec<(GoRuntimeValue, usize)> = vec![(GoRuntimeValue::list([value.clone()]), 0)];
    while let Some((container, next)) = open.last_mut() {
        let item = match container {
            GoRuntimeValue::List(list) => list.items().get(*next).cloned(),
            _ => None,
        };
        *next += 1;
        let Some(item) = item else {
            open.pop();
            continue;
        };
        let length = item.bytes().map_or(0, |text| text.len());
        meter.steps(1 + length as u64 / 16)?;
        meter.bytes(bytes as u64 + length as u64)?;
        match item.underlying() {
            // Too deep nesting is reported by the function that writes the value.
            _ if open.len() > MAX_NESTING => {}
            list @ GoRuntimeValue::List(_) => open.push((list, 0)),
            GoRuntimeValue::Map(map) => {
                let values = map.entries().into_iter().map(|(_, value)| value);
                open.push((GoRuntimeValue::list(values), 0));
            }
            _ => {}
        }
    }
    Ok(())
}

/// How deeply values are counted. Deeper values cannot be written anyway.
const MAX_NESTING: usize = 10_000;
