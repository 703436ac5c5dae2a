//! `eq`, `ne`, `lt`, `le`, `gt`, `ge`.

use std::cmp::Ordering;

use golang::Value;
use golang::fmt::{Limits, sprintf_within};
use golang::value::{IntKind, Kind};

use super::Builtin;
use crate::error::Failure;
use crate::slot::Slot;

/// Calls one of the comparisons.
pub(super) fn compare(
    function: Builtin,
    first: &Slot,
    rest: &[Slot],
    limits: Limits,
) -> Result<bool, Failure> {
    let second = rest.first().unwrap_or(&Slot::ABSENT).value();
    let first = first.value();
    let eq = || equal(first, std::slice::from_ref(second), limits);
    let values: Vec<Value> = rest.iter().map(|slot| slot.value().clone()).collect();
    match function {
        Builtin::Eq => equal(first, &values, limits),
        Builtin::Ne => Ok(!eq()?),
        Builtin::Lt => less(first, second),
        Builtin::Le => Ok(less(first, second)? || eq()?),
        Builtin::Gt => Ok(!(less(first, second)? || eq()?)),
        _ => Ok(!less(first, second)?),
    }
}

/// What can be compared with what.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Basic {
    Bool,
    Complex,
    Int,
    Float,
    String,
    Uint,
    Other,
}

fn basic(value: &Value) -> Basic {
    match value.kind() {
        Kind::Bool => Basic::Bool,
        Kind::Complex128 => Basic::Complex,
        Kind::Integer(kind) if IntKind::is_signed(kind) => Basic::Int,
        Kind::Integer(_) => Basic::Uint,
        Kind::Float64 => Basic::Float,
        Kind::String => Basic::String,
        Kind::Invalid | Kind::Slice | Kind::Map | Kind::Func | Kind::Struct | Kind::Pointer => {
            Basic::Other
        }
    }
}

fn is_nil(value: &Value) -> bool {
    match value {
        Value::Nil => true,
        Value::List(list) => list.is_nil(),
        Value::Map(map) => map.is_nil(),
        Value::Object(object) => object.is_nil(),
        _ => false,
    }
}

/// Whether a value is one of some others.
fn equal(first: &Value, others: &[Value], limits: Limits) -> Result<bool, Failure> {
    if others.is_empty() {
        return Err("missing argument for comparison".into());
    }
    for other in others {
        let left = basic(first);
        let right = basic(other);
        let found = match (left, right) {
            (Basic::Int, Basic::Uint) | (Basic::Uint, Basic::Int) => {
                order(first, other) == Some(Ordering::Equal)
            }
            _ if left != right => {
                if !matches!(first, Value::Nil) && !matches!(other, Value::Nil) {
                    return Err(incompatible(first, other));
                }
                false
            }
            (Basic::Other, _) => equal_others(first, other, limits)?,
            _ => order(first, other) == Some(Ordering::Equal),
        };
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}

fn incompatible(first: &Value, second: &Value) -> Failure {
    let first = first.type_name();
    let second = second.type_name();
    format!("incompatible types for comparison: {first} and {second}").into()
}

fn equal_others(first: &Value, second: &Value, limits: Limits) -> Result<bool, Failure> {
    let left = first.kind();
    let right = second.kind();
    let shown = |format: &str, value: &Value| -> Result<String, Failure> {
        let text = sprintf_within(format.as_bytes(), std::slice::from_ref(value), limits)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    };
    if left != right && left != Kind::Invalid && right != Kind::Invalid {
        let message = format!(
            "non-comparable types {}: {}, {}: {}",
            shown("%s", first)?,
            first.type_name(),
            second.type_name(),
            shown("%v", second)?
        );
        return Err(message.into());
    }
    if is_nil(first) || is_nil(second) {
        return Ok(is_nil(first) == is_nil(second));
    }
    match (first, second) {
        (Value::Object(first), Value::Object(second))
            if matches!(right, Kind::Struct | Kind::Pointer) =>
        {
            Ok(first.type_name() == second.type_name() && first.equals(&**second))
        }
        _ => {
            Err(format!("non-comparable type {}: {}", shown("%s", second)?, second.type_name())
                .into())
        }
    }
}

/// How two values of comparable kinds are ordered; nothing for floats that are no numbers.
fn order(first: &Value, second: &Value) -> Option<Ordering> {
    match (&first.underlying(), &second.underlying()) {
        (Value::Bool(first), Value::Bool(second)) => Some(first.cmp(second)),
        (Value::Complex(..), Value::Complex(..)) => {
            let parts = |value: &Value| match value.underlying() {
                Value::Complex(real, imaginary) => Some((real, imaginary)),
                _ => None,
            };
            (parts(first) == parts(second)).then_some(Ordering::Equal)
        }
        (Value::Float(first), Value::Float(second)) => first.partial_cmp(second),
        (Value::String(first), Value::String(second)) => Some(first.cmp(second)),
        (Value::Integer(first), Value::Integer(second)) => {
            let wide = |integer: &golang::value::Integer| match integer.kind().is_signed() {
                true => i128::from(integer.signed()),
                false => i128::from(integer.unsigned()),
            };
            Some(wide(first).cmp(&wide(second)))
        }
        _ => None,
    }
}

fn less(first: &Value, second: &Value) -> Result<bool, Failure> {
    let left = basic(first);
    let right = basic(second);
    if left == Basic::Other || right == Basic::Other {
        return Err("invalid type for comparison".into());
    }
    match (left, right) {
        (Basic::Int, Basic::Uint) | (Basic::Uint, Basic::Int) => {}
        _ if left != right => return Err(incompatible(first, second)),
        (Basic::Bool | Basic::Complex, _) => return Err("invalid type for comparison".into()),
        _ => {}
    }
    Ok(order(first, second) == Some(Ordering::Less))
}
