//! The functions `index`, `slice`, `len` and `call`.

use golang::GoRuntimeValue;
use golang::value::{GoString, GoType, IntegerKind, ReflectKind, SizedInteger};

use crate::error::TemplateFunctionError;
use crate::limits::TemplateBudget;
use crate::reflect_value::ReflectedValue;

/// The value without pointers and type names around it. `None` if it is absent.
fn inner(slot: &ReflectedValue) -> Option<GoRuntimeValue> {
    match slot.value() {
        GoRuntimeValue::Nil => None,
        GoRuntimeValue::Object(object)
            if object.kind() == ReflectKind::Pointer && object.is_nil() =>
        {
            None
        }
        value => Some(value.underlying()),
    }
}

/// An index between zero and `limit`.
fn position(slot: &ReflectedValue, limit: usize) -> Result<usize, TemplateFunctionError> {
    if slot.is_absent() {
        return Err("cannot index slice/array with nil".into());
    }
    let is_interface = slot.held_as() == Some(GoType::Any);
    let Some(GoRuntimeValue::Integer(integer)) = (!is_interface).then(|| slot.value().underlying())
    else {
        return Err(format!("cannot index slice/array with type {}", slot.held_name()).into());
    };
    // Parity(go): an unsigned number beyond `int64` counts as negative.
    let number = integer.signed();
    match usize::try_from(number) {
        Ok(position) if position <= limit => Ok(position),
        _ => Err(format!("index out of range: {number}").into()),
    }
}

fn byte(byte: u8) -> ReflectedValue {
    ReflectedValue::plain(GoRuntimeValue::Integer(SizedInteger::new(
        IntegerKind::Uint8,
        i64::from(byte),
    )))
}

pub(super) fn index(
    item: &ReflectedValue,
    indexes: &[ReflectedValue],
) -> Result<ReflectedValue, TemplateFunctionError> {
    let mut item = item.clone().unboxed();
    if item.is_absent() {
        return Err("index of untyped nil".into());
    }
    for index in indexes {
        // `index` looks into an `interface {}`, but `slice` does not.
        let index = index.clone().unboxed();
        let Some(value) = inner(&item) else { return Err("index of nil pointer".into()) };
        // Parity(go): a position is checked against the length and may be the length itself, where `reflect` panics.
        let out_of_range =
            |what| TemplateFunctionError::Message(format!("reflect: {what} index out of range"));
        item = match value {
            GoRuntimeValue::String(text) => {
                let at = position(&index, text.len())?;
                let found = text.get(at).ok_or_else(|| out_of_range("string"))?;
                byte(*found)
            }
            GoRuntimeValue::Bytes(bytes) => {
                let at = position(&index, bytes.len())?;
                let found = bytes.get(at).ok_or_else(|| out_of_range("slice"))?;
                byte(*found)
            }
            GoRuntimeValue::List(list) => {
                let at = position(&index, list.len())?;
                let found = list.items().get(at).ok_or_else(|| out_of_range("slice"))?;
                ReflectedValue::of(found.clone(), list.item_type())
            }
            GoRuntimeValue::Map(map) => {
                let key = match index.value() {
                    GoRuntimeValue::Nil => {
                        return Err("value is nil; should be of type string".into());
                    }
                    GoRuntimeValue::String(key) => key,
                    other => {
                        let given = other.type_name();
                        return Err(format!("value has type {given}; should be string").into());
                    }
                };
                let held = map.item_type();
                ReflectedValue::of(map.get(key).unwrap_or_else(|| held.zero()), held)
            }
            other => return Err(format!("can't index item of type {}", name(&item, &other)).into()),
        };
    }
    Ok(item)
}

/// The type of an item, without the `interface {}` around it.
fn name(item: &ReflectedValue, value: &GoRuntimeValue) -> String {
    match item.value() {
        GoRuntimeValue::Object(object) => {
            let name = object.type_name();
            name.strip_prefix('*').unwrap_or(name).to_owned()
        }
        _ => value.type_name(),
    }
}

pub(super) fn slice(
    item: &ReflectedValue,
    indexes: &[ReflectedValue],
    budget: &mut TemplateBudget,
) -> Result<ReflectedValue, TemplateFunctionError> {
    let item = item.clone().unboxed();
    if item.is_absent() {
        return Err("slice of untyped nil".into());
    }
    let Some(value) = inner(&item) else { return Err("slice of nil pointer".into()) };
    if indexes.len() > 3 {
        return Err(format!("too many slice indexes: {}", indexes.len()).into());
    }
    let (len, capacity) = match &value {
        GoRuntimeValue::String(_) if indexes.len() == 3 => {
            return Err("cannot 3-index slice a string".into());
        }
        GoRuntimeValue::String(text) | GoRuntimeValue::Bytes(text) => (text.len(), text.len()),
        GoRuntimeValue::List(list) => (list.len(), list.capacity()),
        other => return Err(format!("can't slice item of type {}", name(&item, other)).into()),
    };
    let mut bounds = [0, len, capacity];
    for (bound, index) in bounds.iter_mut().zip(indexes) {
        *bound = position(index, capacity)?;
    }
    let [from, to, room] = bounds;
    for (low, high) in [(from, to), (to, room)] {
        if low > high {
            return Err(format!("invalid slice index: {low} > {high}").into());
        }
    }
    let bytes = match &value {
        // Slicing again can show the items after the end, so they are copied, too.
        GoRuntimeValue::List(_) => {
            capacity.saturating_sub(from).saturating_mul(size_of::<GoRuntimeValue>())
        }
        _ => to - from,
    };
    budget.produce(bytes)?;
    budget.steps(bytes / 64)?;
    let part = |bytes: &GoString| GoString::from(&bytes[from..to]);
    Ok(ReflectedValue::plain(match value {
        GoRuntimeValue::String(text) => GoRuntimeValue::String(part(&text)),
        GoRuntimeValue::Bytes(bytes) => GoRuntimeValue::Bytes(part(&bytes)),
        GoRuntimeValue::List(list) => {
            list.slice(from, to, room).map_or(GoRuntimeValue::Nil, GoRuntimeValue::List)
        }
        other => other,
    }))
}

pub(super) fn len(item: &ReflectedValue) -> Result<i64, TemplateFunctionError> {
    if item.is_absent() {
        return Err("reflect: call of reflect.Value.Type on zero Value".into());
    }
    let Some(value) = inner(item) else { return Err("len of nil pointer".into()) };
    let len = match &value {
        GoRuntimeValue::String(text) | GoRuntimeValue::Bytes(text) => text.len(),
        GoRuntimeValue::List(list) => list.len(),
        GoRuntimeValue::Map(map) => map.len(),
        GoRuntimeValue::Object(object) => match object.entries() {
            Some(entries) => entries.len(),
            None => return Err(format!("len of type {}", name(item, &value)).into()),
        },
        other => return Err(format!("len of type {}", name(item, other)).into()),
    };
    Ok(i64::try_from(len).unwrap_or(i64::MAX))
}

pub(super) fn call(
    function: &ReflectedValue,
    arguments: &[ReflectedValue],
    name: &str,
    budget: &mut TemplateBudget,
) -> Result<ReflectedValue, TemplateFunctionError> {
    let function = function.clone().unboxed();
    let called = match function.value() {
        GoRuntimeValue::Nil => return Err("call of nil".into()),
        GoRuntimeValue::Function(called) => called,
        other => return Err(format!("non-function {name} of type {}", other.type_name()).into()),
    };
    let signature = called.signature();
    let fixed = signature.fixed();
    let given = arguments.len();
    if signature.is_variadic && given < fixed {
        return Err(
            format!("wrong number of args for {name}: got {given} want at least {fixed}").into()
        );
    }
    if !signature.is_variadic && given != fixed {
        return Err(format!("wrong number of args for {name}: got {given} want {fixed}").into());
    }
    let mut values = Vec::with_capacity(given);
    for (index, argument) in arguments.iter().enumerate() {
        let wanted = signature.param(index).unwrap_or(&GoType::Any);
        values.push(
            prepare(argument.value(), wanted).map_err(|error| format!("arg {index}: {error}"))?,
        );
    }
    let result = called.call(budget.meter(), &values)?;
    Ok(ReflectedValue::of(result, &signature.result))
}

/// Converts a value to the type of a parameter. Integers are converted between sizes.
fn prepare(value: &GoRuntimeValue, wanted: &GoType) -> Result<GoRuntimeValue, String> {
    if let Some(given) = value.assign(wanted) {
        return Ok(given);
    }
    match (value, wanted) {
        (GoRuntimeValue::Nil, _) => Err(format!("value is nil; should be of type {wanted}")),
        (GoRuntimeValue::Integer(integer), GoType::Integer(kind)) => {
            Ok(GoRuntimeValue::Integer(SizedInteger::new(*kind, integer.signed())))
        }
        _ => Err(format!("value has type {}; should be {wanted}", value.type_name())),
    }
}
