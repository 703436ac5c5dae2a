//! The functions `eq`, `ne`, `lt`, `le`, `gt`, `ge`.

use std::cmp::Ordering;

use golang::GoRuntimeValue;
use golang::fmt::{FormatLimits, sprintf_within};
use golang::value::{IntegerKind, ReflectKind};

use super::BuiltinFunction;
use crate::error::TemplateFunctionError;
use crate::reflect_value::ReflectedValue;

/// Calls one of the comparisons.
pub(super) fn compare(
    function: BuiltinFunction,
    first: &ReflectedValue,
    rest: &[ReflectedValue],
    limits: FormatLimits,
) -> Result<bool, TemplateFunctionError> {
    let second = rest.first().unwrap_or(&ReflectedValue::ABSENT).value();
    let first = first.value();
    let eq = || equal(first, std::slice::from_ref(second), limits);
    let values: Vec<GoRuntimeValue> = rest.iter().map(|slot| slot.value().clone()).collect();
    match function {
        BuiltinFunction::Eq => equal(first, &values, limits),
        BuiltinFunction::Ne => Ok(!eq()?),
        BuiltinFunction::Lt => less(first, second),
        BuiltinFunction::Le => Ok(less(first, second)? || eq()?),
        BuiltinFunction::Gt => Ok(!(less(first, second)? || eq()?)),
        _ => Ok(!less(first, second)?),
    }
}

/// The groups of types whose values can be compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BasicKind {
    Bool,
    Complex,
    Int,
    Float,
    String,
    Uint,
    Other,
}

fn basic(value: &GoRuntimeValue) -> BasicKind {
    match value.kind() {
        ReflectKind::Bool => BasicKind::Bool,
        ReflectKind::Complex128 => BasicKind::Complex,
        ReflectKind::Integer(kind) if IntegerKind::is_signed(kind) => BasicKind::Int,
        ReflectKind::Integer(_) => BasicKind::Uint,
        ReflectKind::Float64 => BasicKind::Float,
        ReflectKind::String => BasicKind::String,
        ReflectKind::Invalid
        | ReflectKind::Slice
        | ReflectKind::Map
        | ReflectKind::Func
        | ReflectKind::Struct
        | ReflectKind::Pointer => BasicKind::Other,
    }
}

fn is_nil(value: &GoRuntimeValue) -> bool {
    match value {
        GoRuntimeValue::Nil => true,
        GoRuntimeValue::List(list) => list.is_nil(),
        GoRuntimeValue::Map(map) => map.is_nil(),
        GoRuntimeValue::Object(object) => object.is_nil(),
        _ => false,
    }
}

/// Whether a value equals one of the other values.
fn equal(
    first: &GoRuntimeValue,
    others: &[GoRuntimeValue],
    limits: FormatLimits,
) -> Result<bool, TemplateFunctionError> {
    if others.is_empty() {
        return Err("missing argument for comparison".into());
    }
    for other in others {
        let left = basic(first);
        let right = basic(other);
        let found = match (left, right) {
            (BasicKind::Int, BasicKind::Uint) | (BasicKind::Uint, BasicKind::Int) => {
                order(first, other) == Some(Ordering::Equal)
            }
            _ if left != right => {
                if !matches!(first, GoRuntimeValue::Nil) && !matches!(other, GoRuntimeValue::Nil) {
                    return Err(incompatible(first, other));
                }
                false
            }
            (BasicKind::Other, _) => equal_others(first, other, limits)?,
            _ => order(first, other) == Some(Ordering::Equal),
        };
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}

fn incompatible(first: &GoRuntimeValue, second: &GoRuntimeValue) -> TemplateFunctionError {
    let first = first.type_name();
    let second = second.type_name();
    format!("incompatible types for comparison: {first} and {second}").into()
}

fn equal_others(
    first: &GoRuntimeValue,
    second: &GoRuntimeValue,
    limits: FormatLimits,
) -> Result<bool, TemplateFunctionError> {
    let left = first.kind();
    let right = second.kind();
    let shown = |format: &str, value: &GoRuntimeValue| -> Result<String, TemplateFunctionError> {
        let text = sprintf_within(format.as_bytes(), std::slice::from_ref(value), limits)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    };
    if left != right && left != ReflectKind::Invalid && right != ReflectKind::Invalid {
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
        (GoRuntimeValue::Object(first), GoRuntimeValue::Object(second))
            if matches!(right, ReflectKind::Struct | ReflectKind::Pointer) =>
        {
            Ok(first.type_name() == second.type_name() && first.equals(&**second))
        }
        _ => {
            Err(format!("non-comparable type {}: {}", shown("%s", second)?, second.type_name())
                .into())
        }
    }
}

/// The order of two values of comparable types. `None` if one of them is NaN.
fn order(first: &GoRuntimeValue, second: &GoRuntimeValue) -> Option<Ordering> {
    match (&first.underlying(), &second.underlying()) {
        (GoRuntimeValue::Bool(first), GoRuntimeValue::Bool(second)) => Some(first.cmp(second)),
        (GoRuntimeValue::Complex(..), GoRuntimeValue::Complex(..)) => {
            let parts = |value: &GoRuntimeValue| match value.underlying() {
                GoRuntimeValue::Complex(real, imaginary) => Some((real, imaginary)),
                _ => None,
            };
            (parts(first) == parts(second)).then_some(Ordering::Equal)
        }
        (GoRuntimeValue::Float(first), GoRuntimeValue::Float(second)) => first.partial_cmp(second),
        (GoRuntimeValue::String(first), GoRuntimeValue::String(second)) => Some(first.cmp(second)),
        (GoRuntimeValue::Integer(first), GoRuntimeValue::Integer(second)) => {
            let wide = |integer: &golang::value::SizedInteger| match integer.kind().is_signed() {
                true => i128::from(integer.signed()),
                false => i128::from(integer.unsigned()),
            };
            Some(wide(first).cmp(&wide(second)))
        }
        _ => None,
    }
}

fn less(first: &GoRuntimeValue, second: &GoRuntimeValue) -> Result<bool, TemplateFunctionError> {
    let left = basic(first);
    let right = basic(second);
    if left == BasicKind::Other || right == BasicKind::Other {
        return Err("invalid type for comparison".into());
    }
    match (left, right) {
        (BasicKind::Int, BasicKind::Uint) | (BasicKind::Uint, BasicKind::Int) => {}
        _ if left != right => return Err(incompatible(first, second)),
        (BasicKind::Bool | BasicKind::Complex, _) => {
            return Err("invalid type for comparison".into());
        }
        _ => {}
    }
    Ok(order(first, second) == Some(Ordering::Less))
}
