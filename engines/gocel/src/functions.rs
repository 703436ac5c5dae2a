//! The functions of CEL, for values that their signatures accept.
//!
//! Here: choosing the function by name, sizes, containers, and optional values. Below: numbers and times
//! (`arithmetic`), conversions (`convert`), strings (`text`, `format`), and parts of times (`timestamp`). Elsewhere:
//! signatures ([`crate::overloads`]).

mod arithmetic;
mod convert;
mod format;
mod text;
mod timestamp;

use std::cmp::Ordering;
use std::rc::Rc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

use crate::budget::{CelBudget, CelError};
use crate::evaluation_plan::CelFunctionCall;
use crate::value::{CelList, CelMapEntries, CelValue};

type FunctionResult<'a> = Result<CelValue<'a>, CelError>;

/// Whether a function with only one implementation accepts the type of its first argument.
pub(crate) fn has_trait(name: &str, first: &CelValue<'_>) -> bool {
    use CelValue::{Bytes, Double, Duration, Int, List, Map, String, Timestamp, Uint};
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
        "-_" => matches!(first, CelValue::Bool(_) | Double(_) | Duration(_) | Int(_)),
        "_<_" | "_<=_" | "_>_" | "_>=_" => !matches!(
            first,
            List(_) | Map(_) | CelValue::Null | CelValue::Type(_) | CelValue::Optional(_)
        ),
        "size" => matches!(first, Bytes(_) | List(_) | Map(_) | String(_)),
        "matches" => matches!(first, String(_)),
        _ => true,
    }
}

/// The list index that a value stands for.
pub(crate) fn index(key: &CelValue<'_>) -> Result<i64, CelError> {
    let unsupported =
        || CelError::failed(format!("unsupported index value {} in list", key.shown()));
    match key {
        CelValue::Int(index) => Ok(*index),
        CelValue::Uint(index) => i64::try_from(*index).map_err(|_| unsupported()),
        CelValue::Double(index) => arithmetic::whole(*index).ok_or_else(unsupported),
        other => {
            let name = other.type_name();
            Err(CelError::failed(format!("unsupported index type '{name}' in list")))
        }
    }
}

/// Calls a function of the expression language with evaluated arguments, and spends the costs from `budget`.
pub(crate) fn call<'a>(
    call: &CelFunctionCall,
    args: Vec<CelValue<'a>>,
    budget: &mut CelBudget,
) -> FunctionResult<'a> {
    let name = call.name.as_str();
    match (name, args.as_slice()) {
        ("_<_" | "_<=_" | "_>_" | "_>=_", [one, two]) => compare(name, one, two, budget),
        ("!_", [CelValue::Bool(value)]) => Ok(CelValue::Bool(!value)),
        ("_+_", [CelValue::List(one), CelValue::List(two)]) => {
            let length = one.len() + two.len();
            budget.spend(length)?;
            budget.spend_bytes(length.saturating_mul(size_of::<CelValue<'_>>()))?;
            Ok(CelValue::List(CelList::made(one.iter().chain(two.iter()).collect())))
        }
        ("_+_" | "_-_" | "_*_" | "_/_" | "_%_", [one, two]) => {
            arithmetic::binary(name, one, two, budget)
        }
        ("-_", [value]) => arithmetic::negate(value),
        ("@in", [element, container]) => is_in(element, container, budget),
        ("size", [value]) => size(value, budget),
        ("type", [value]) => Ok(CelValue::Type(value.type_name().into())),
        ("dyn", [value]) => Ok(value.clone()),
        (
            "bool" | "bytes" | "double" | "duration" | "int" | "string" | "timestamp" | "uint",
            [value],
        ) => convert::to(name, value, budget),
        ("matches", [CelValue::String(text), CelValue::String(pattern)]) => {
            text::matches(text, pattern, call.pattern.as_ref(), budget)
        }
        ("base64.encode", [CelValue::Bytes(bytes)]) => {
            budget.spend_bytes(bytes.len().saturating_mul(2))?;
            Ok(CelValue::text(STANDARD.encode(bytes)))
        }
        ("base64.decode", [CelValue::String(text)]) => {
            budget.spend_bytes(text.len())?;
            decode(text)
        }
        ("sets.contains", [CelValue::List(one), CelValue::List(two)]) => {
            Ok(CelValue::Bool(contains_all(one, two, budget)?))
        }
        ("sets.equivalent", [CelValue::List(one), CelValue::List(two)]) => {
            let equal = contains_all(one, two, budget)? && contains_all(two, one, budget)?;
            Ok(CelValue::Bool(equal))
        }
        ("sets.intersects", [CelValue::List(one), CelValue::List(two)]) => {
            for element in one.iter() {
                element.is_read(budget)?;
                if contains(two, &element, budget)? {
                    return Ok(CelValue::Bool(true));
                }
            }
            Ok(CelValue::Bool(false))
        }
        _ if name.starts_with("get") => timestamp::part(name, &args),
        _ => match optional(name, &args, budget) {
            Some(outcome) => outcome,
            None => text::call(name, &args, budget),
        },
    }
}

fn optional<'a>(
    name: &str,
    args: &[CelValue<'a>],
    budget: &mut CelBudget,
) -> Option<FunctionResult<'a>> {
    let of = |value: Option<CelValue<'a>>| Ok(CelValue::Optional(value.map(Rc::new)));
    Some(match (name, args) {
        ("optional.none", _) => of(None),
        ("optional.of", [value]) => of(Some(value.clone())),
        ("optional.ofNonZeroValue", [value]) => of(Some(value.clone()).filter(|v| !v.is_zero())),
        ("hasValue", [CelValue::Optional(value)]) => Ok(CelValue::Bool(value.is_some())),
        ("value", [CelValue::Optional(value)]) => match value {
            Some(value) => Ok((**value).clone()),
            None => Err(CelError::failed("optional.none() dereference")),
        },
        ("first", [CelValue::List(list)]) => of(list.get(0)),
        ("last", [CelValue::List(list)]) => of(list.len().checked_sub(1).and_then(|i| list.get(i))),
        ("optional.unwrap" | "unwrapOpt", [CelValue::List(list)]) => {
            if let Err(fault) = budget.spend(list.len()) {
                return Some(Err(fault));
            }
            let values = list.iter().filter_map(|value| match value {
                CelValue::Optional(value) => value.map(|value| (*value).clone()),
                other => Some(other),
            });
            Ok(CelValue::List(CelList::made(values.collect())))
        }
        _ => return None,
    })
}

fn compare<'a>(
    name: &str,
    one: &CelValue<'a>,
    two: &CelValue<'a>,
    budget: &mut CelBudget,
) -> FunctionResult<'a> {
    if let (CelValue::String(one), CelValue::String(two)) = (one, two) {
        budget.spend_bytes(one.len().min(two.len()))?;
    }
    let is_nan =
        |value: &CelValue<'_>| matches!(value, CelValue::Double(double) if double.is_nan());
    let is_number = |value: &CelValue<'_>| {
        matches!(value, CelValue::Double(_) | CelValue::Int(_) | CelValue::Uint(_))
    };
    if is_nan(one) || (is_nan(two) && is_number(one)) {
        return Err(CelError::failed("NaN values cannot be ordered"));
    }
    let order = one.order(two).ok_or_else(CelError::no_such_overload)?;
    Ok(CelValue::Bool(match name {
        "_<_" => order == Ordering::Less,
        "_<=_" => order != Ordering::Greater,
        "_>_" => order == Ordering::Greater,
        _ => order != Ordering::Less,
    }))
}

fn is_in<'a>(
    element: &CelValue<'a>,
    container: &CelValue<'a>,
    budget: &mut CelBudget,
) -> FunctionResult<'a> {
    match container {
        CelValue::List(list) => Ok(CelValue::Bool(contains(list, element, budget)?)),
        CelValue::Map(CelMapEntries::Data(entries)) => Ok(CelValue::Bool(match element {
            CelValue::String(key) => entries.contains_key(&**key),
            _ => false,
        })),
        CelValue::Map(entries) => Ok(CelValue::Bool(entries.get(element, budget)?.is_some())),
        _ => Err(CelError::no_such_overload()),
    }
}

fn contains(
    list: &CelList<'_>,
    element: &CelValue<'_>,
    budget: &mut CelBudget,
) -> Result<bool, CelError> {
    for own in list.iter() {
        own.is_read(budget)?;
        if element.equals(&own, budget)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn contains_all(
    all: &CelList<'_>,
    some: &CelList<'_>,
    budget: &mut CelBudget,
) -> Result<bool, CelError> {
    for element in some.iter() {
        element.is_read(budget)?;
        if !contains(all, &element, budget)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn size<'a>(value: &CelValue<'a>, budget: &mut CelBudget) -> FunctionResult<'a> {
    let length = match value {
        CelValue::String(text) => {
            budget.spend_bytes(text.len())?;
            text.chars().count()
        }
        CelValue::Bytes(bytes) => bytes.len(),
        CelValue::List(list) => list.len(),
        CelValue::Map(entries) => entries.len(),
        _ => return Err(CelError::no_such_overload()),
    };
    Ok(CelValue::Int(i64::try_from(length).unwrap_or(i64::MAX)))
}

/// Parity(cel-go): padding may be left out.
fn decode<'a>(text: &str) -> FunctionResult<'a> {
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
        .map_err(|at| CelError::failed(format!("illegal base64 data at input byte {at}")))?;
    Ok(CelValue::Bytes(bytes.into()))
}
