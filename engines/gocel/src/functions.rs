//! What the functions of the language do with values that their signatures admit.
//!
//! Here: the choice by name, sizes, containers, optional values. Below: numbers and times (`arithmetic`), conversions
//! (`convert`), strings (`text`, `format`), parts of times (`timestamp`). Elsewhere: signatures ([`crate::overloads`]).

mod arithmetic;
mod convert;
mod format;
mod text;
mod timestamp;

use std::cmp::Ordering;
use std::rc::Rc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

use crate::budget::{Budget, Fault};
use crate::plan::Call;
use crate::value::{Entries, List, Value};

type Outcome<'a> = Result<Value<'a>, Fault>;

/// Whether the first argument is of a type that a function with one implementation is for at all.
pub(crate) fn has_trait(name: &str, first: &Value<'_>) -> bool {
    use Value::{Bytes, Double, Duration, Int, List, Map, String, Timestamp, Uint};
    match name {
        "_+_" => matches!(
            first,
            Bytes(_)
                | Double(_)
                | Duration(_)
                | Int(_)
                | List(_)
                | String(_)
                | Timestamp(_)
                | Uint(_)
        ),
        "_-_" => matches!(first, Double(_) | Duration(_) | Int(_) | Timestamp(_) | Uint(_)),
        "_*_" | "_/_" => matches!(first, Double(_) | Int(_) | Uint(_)),
        "_%_" => matches!(first, Int(_) | Uint(_)),
        "-_" => matches!(first, Value::Bool(_) | Double(_) | Duration(_) | Int(_)),
        "_<_" | "_<=_" | "_>_" | "_>=_" => {
            !matches!(first, List(_) | Map(_) | Value::Null | Value::Type(_) | Value::Optional(_))
        }
        "size" => matches!(first, Bytes(_) | List(_) | Map(_) | String(_)),
        "matches" => matches!(first, String(_)),
        _ => true,
    }
}

/// The place in a list that a value names.
pub(crate) fn index(key: &Value<'_>) -> Result<i64, Fault> {
    let unsupported = || Fault::failed(format!("unsupported index value {} in list", key.shown()));
    match key {
        Value::Int(index) => Ok(*index),
        Value::Uint(index) => i64::try_from(*index).map_err(|_| unsupported()),
        Value::Double(index) => arithmetic::whole(*index).ok_or_else(unsupported),
        other => {
            let name = other.type_name();
            Err(Fault::failed(format!("unsupported index type '{name}' in list")))
        }
    }
}

/// Calls a function.
pub(crate) fn call<'a>(call: &Call, args: Vec<Value<'a>>, budget: &mut Budget) -> Outcome<'a> {
    let name = call.name.as_str();
    match (name, args.as_slice()) {
        ("_<_" | "_<=_" | "_>_" | "_>=_", [one, two]) => compare(name, one, two, budget),
        ("!_", [Value::Bool(value)]) => Ok(Value::Bool(!value)),
        ("_+_", [Value::List(one), Value::List(two)]) => {
            let length = one.len() + two.len();
            budget.spend(length)?;
            budget.spend_bytes(length.saturating_mul(size_of::<Value<'_>>()))?;
            Ok(Value::List(List::made(one.iter().chain(two.iter()).collect())))
        }
        ("_+_" | "_-_" | "_*_" | "_/_" | "_%_", [one, two]) => {
            arithmetic::binary(name, one, two, budget)
        }
        ("-_", [value]) => arithmetic::negate(value),
        ("@in", [element, container]) => is_in(element, container, budget),
        ("size", [value]) => size(value, budget),
        ("type", [value]) => Ok(Value::Type(value.type_name().into())),
        ("dyn", [value]) => Ok(value.clone()),
        (
            "bool" | "bytes" | "double" | "duration" | "int" | "string" | "timestamp" | "uint",
            [value],
        ) => convert::to(name, value, budget),
        ("matches", [Value::String(text), Value::String(pattern)]) => {
            text::matches(text, pattern, call.pattern.as_ref(), budget)
        }
        ("base64.encode", [Value::Bytes(bytes)]) => {
            budget.spend_bytes(bytes.len().saturating_mul(2))?;
            Ok(Value::text(STANDARD.encode(bytes)))
        }
        ("base64.decode", [Value::String(text)]) => {
            budget.spend_bytes(text.len())?;
            decode(text)
        }
        ("sets.contains", [Value::List(one), Value::List(two)]) => {
            Ok(Value::Bool(contains_all(one, two, budget)?))
        }
        ("sets.equivalent", [Value::List(one), Value::List(two)]) => {
            let equal = contains_all(one, two, budget)? && contains_all(two, one, budget)?;
            Ok(Value::Bool(equal))
        }
        ("sets.intersects", [Value::List(one), Value::List(two)]) => {
            for element in one.iter() {
                element.is_read(budget)?;
                if contains(two, &element, budget)? {
                    return Ok(Value::Bool(true));
                }
            }
            Ok(Value::Bool(false))
        }
        _ if name.starts_with("get") => timestamp::part(name, &args),
        _ => match optional(name, &args, budget) {
            Some(outcome) => outcome,
            None => text::call(name, &args, budget),
        },
    }
}

fn optional<'a>(name: &str, args: &[Value<'a>], budget: &mut Budget) -> Option<Outcome<'a>> {
    let of = |value: Option<Value<'a>>| Ok(Value::Optional(value.map(Rc::new)));
    Some(match (name, args) {
        ("optional.none", _) => of(None),
        ("optional.of", [value]) => of(Some(value.clone())),
        ("optional.ofNonZeroValue", [value]) => of(Some(value.clone()).filter(|v| !v.is_zero())),
        ("hasValue", [Value::Optional(value)]) => Ok(Value::Bool(value.is_some())),
        ("value", [Value::Optional(value)]) => match value {
            Some(value) => Ok((**value).clone()),
            None => Err(Fault::failed("optional.none() dereference")),
        },
        ("first", [Value::List(list)]) => of(list.get(0)),
        ("last", [Value::List(list)]) => of(list.len().checked_sub(1).and_then(|i| list.get(i))),
        ("optional.unwrap" | "unwrapOpt", [Value::List(list)]) => {
            if let Err(fault) = budget.spend(list.len()) {
                return Some(Err(fault));
            }
            let values = list.iter().filter_map(|value| match value {
                Value::Optional(value) => value.map(|value| (*value).clone()),
                other => Some(other),
            });
            Ok(Value::List(List::made(values.collect())))
        }
        _ => return None,
    })
}

fn compare<'a>(name: &str, one: &Value<'a>, two: &Value<'a>, budget: &mut Budget) -> Outcome<'a> {
    if let (Value::String(one), Value::String(two)) = (one, two) {
        budget.spend_bytes(one.len().min(two.len()))?;
    }
    let is_nan = |value: &Value<'_>| matches!(value, Value::Double(double) if double.is_nan());
    let is_number =
        |value: &Value<'_>| matches!(value, Value::Double(_) | Value::Int(_) | Value::Uint(_));
    if is_nan(one) || (is_nan(two) && is_number(one)) {
        return Err(Fault::failed("NaN values cannot be ordered"));
    }
    let order = one.order(two).ok_or_else(Fault::no_such_overload)?;
    Ok(Value::Bool(match name {
        "_<_" => order == Ordering::Less,
        "_<=_" => order != Ordering::Greater,
        "_>_" => order == Ordering::Greater,
        _ => order != Ordering::Less,
    }))
}

fn is_in<'a>(element: &Value<'a>, container: &Value<'a>, budget: &mut Budget) -> Outcome<'a> {
    match container {
        Value::List(list) => Ok(Value::Bool(contains(list, element, budget)?)),
        Value::Map(Entries::Data(entries)) => Ok(Value::Bool(match element {
            Value::String(key) => entries.contains_key(&**key),
            _ => false,
        })),
        Value::Map(entries) => Ok(Value::Bool(entries.get(element, budget)?.is_some())),
        _ => Err(Fault::no_such_overload()),
    }
}

fn contains(list: &List<'_>, element: &Value<'_>, budget: &mut Budget) -> Result<bool, Fault> {
    for own in list.iter() {
        own.is_read(budget)?;
        if element.equals(&own, budget)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn contains_all(all: &List<'_>, some: &List<'_>, budget: &mut Budget) -> Result<bool, Fault> {
    for element in some.iter() {
        element.is_read(budget)?;
        if !contains(all, &element, budget)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn size<'a>(value: &Value<'a>, budget: &mut Budget) -> Outcome<'a> {
    let length = match value {
        Value::String(text) => {
            budget.spend_bytes(text.len())?;
            text.chars().count()
        }
        Value::Bytes(bytes) => bytes.len(),
        Value::List(list) => list.len(),
        Value::Map(entries) => entries.len(),
        _ => return Err(Fault::no_such_overload()),
    };
    Ok(Value::Int(i64::try_from(length).unwrap_or(i64::MAX)))
}

/// Parity(cel-go): padding may be left out.
fn decode<'a>(text: &str) -> Outcome<'a> {
    let without_breaks: String = text.chars().filter(|it| !matches!(it, '\n' | '\r')).collect();
    let bytes = STANDARD
        .decode(&without_breaks)
        .or_else(|_| STANDARD_NO_PAD.decode(&without_breaks))
        .map_err(|error| match error {
            base64::DecodeError::InvalidByte(at, _)
            | base64::DecodeError::InvalidLastSymbol(at, _) => at,
            base64::DecodeError::InvalidLength(at) => at,
            base64::DecodeError::InvalidPadding => without_breaks.len(),
        })
        .map_err(|at| Fault::failed(format!("illegal base64 data at input byte {at}")))?;
    Ok(Value::Bytes(bytes.into()))
}
