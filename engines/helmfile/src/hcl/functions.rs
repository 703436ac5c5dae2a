//! Functions for HCL expressions: the functions of cty's standard library that helmfile supports.
//!
//! Here: calls, numbers, lists and objects. Below: strings (`functions/strings.rs`), addresses (`functions/ip_networks.rs`).
//!
//! Differs(helmfile 1.8): `csvdecode` and `formatdate` are not supported.

mod ip_networks;
mod strings;

use ::hcl::expr::FuncCall;
use serde_json::Value;

use super::evaluate::{HclEvaluator, HclScope, float, is_equal, number, text};
use crate::error::{Error, Result};
use crate::state_values_merge::ValuesMap;

/// The most items in the result of `range`, as in cty.
const MAX_RANGE_ITEMS: usize = 1024;

/// The value of a call.
pub(super) fn call(
    evaluator: &mut HclEvaluator,
    call: &FuncCall,
    scope: &HclScope<'_>,
) -> Result<Value> {
    let name = call.name.name.as_str();
    if !call.name.namespace.is_empty() {
        return Err(format!("there is no function named {name:?} in a namespace").into());
    }
    // These two functions do not fail if their arguments do.
    if name == "can" {
        let [only] = call.args.as_slice() else { return Err(wrong_count(name)) };
        return Ok(Value::Bool(evaluator.value(only, scope).is_ok()));
    }
    if name == "try" {
        let mut last = Err(wrong_count(name));
        for argument in &call.args {
            evaluator.take(1)?;
            last = evaluator.value(argument, scope);
            if last.is_ok() {
                break;
            }
        }
        return last;
    }
    let mut arguments = call
        .args
        .iter()
        .map(|argument| evaluator.value(argument, scope))
        .collect::<Result<Vec<_>>>()?;
    if call.expand_final {
        match arguments.pop() {
            Some(Value::Array(items)) => arguments.extend(items),
            _ => return Err("only a list can be expanded into arguments".into()),
        }
    }
    // The result of most functions is about as large as their arguments. The few functions with larger results count more steps
    // themselves.
    for argument in &arguments {
        evaluator.take_value(argument)?;
    }
    let value = of_numbers(name, &arguments)
        .or_else(|| of_lists(evaluator, name, &arguments))
        .or_else(|| of_objects(name, &arguments))
        .or_else(|| strings::call(evaluator, name, &arguments))
        .or_else(|| ip_networks::call(name, &arguments));
    let value = value.unwrap_or_else(|| Err(format!("there is no function named {name:?}").into()));
    let value = value.map_err(|error| error.at(&format!("in {name}")))?;
    evaluator.take_value(&value)?;
    Ok(value)
}

fn wrong_count(name: &str) -> Error {
    format!("{name} was called with a wrong number of arguments").into()
}

/// Checks that there are exactly this many arguments.
fn exactly<const ARGUMENT_COUNT: usize>(arguments: &[Value]) -> Result<&[Value; ARGUMENT_COUNT]> {
    arguments.try_into().map_err(|_| "a wrong number of arguments".into())
}

fn list(value: &Value) -> Result<&Vec<Value>> {
    value.as_array().ok_or_else(|| "a list is required".into())
}

fn object(value: &Value) -> Result<&ValuesMap> {
    value.as_object().ok_or_else(|| "an object is required".into())
}

/// Reads a value as a whole number. The error says that a whole number is required.
fn whole(value: &Value) -> Result<i64> {
    let float = float(value)?;
    #[expect(clippy::cast_possible_truncation, reason = "it is a whole number that fits")]
    if float.fract() == 0.0 && float.abs() < 9e15 {
        return Ok(float as i64);
    }
    Err("a whole number is required".into())
}

/// A whole number from 0 on.
fn index(value: &Value) -> Result<usize> {
    usize::try_from(whole(value)?).map_err(|_| "a number that is not negative is required".into())
}

fn of_numbers(name: &str, arguments: &[Value]) -> Option<Result<Value>> {
    let one = |run: fn(f64) -> f64| exactly(arguments).and_then(|[one]| number(run(float(one)?)));
    let two = |run: fn(f64, f64) -> f64| {
        exactly(arguments).and_then(|[one, other]| number(run(float(one)?, float(other)?)))
    };
    let all = |run: fn(f64, f64) -> f64| {
        let floats = arguments.iter().map(float).collect::<Result<Vec<_>>>()?;
        floats.into_iter().reduce(run).map_or_else(|| Err("a number is required".into()), number)
    };
    Some(match name {
        "abs" => one(f64::abs),
        "ceil" => one(f64::ceil),
        "floor" => one(f64::floor),
        "int" => one(f64::trunc),
        "signum" => one(|float| if float == 0.0 { 0.0 } else { float.signum() }),
        "log" => two(f64::log),
        "pow" => two(f64::powf),
        "max" => all(f64::max),
        "min" => all(f64::min),
        "parseint" => exactly(arguments).and_then(|[digits, base]| {
            let base = u32::try_from(whole(base)?).ok().filter(|base| (2..=36).contains(base));
            let base = base.ok_or("a base from 2 to 36 is required")?;
            let parsed = i64::from_str_radix(&text(digits)?, base);
            parsed.map(Value::from).map_err(|error| error.to_string().into())
        }),
        _ => return None,
    })
}

fn of_lists(
    evaluator: &mut HclEvaluator,
    name: &str,
    arguments: &[Value],
) -> Option<Result<Value>> {
    Some(match name {
        "chunklist" => exactly(arguments).and_then(|[items, size]| {
            let items = list(items)?;
            let size = index(size)?;
            let size = if size == 0 { items.len().max(1) } else { size };
            Ok(items.chunks(size).map(|chunk| Value::Array(chunk.to_vec())).collect())
        }),
        "coalesce" => {
            let found = arguments.iter().find(|value| !value.is_null());
            found.cloned().ok_or_else(|| "all arguments are null".into())
        }
        "coalescelist" => {
            let found = arguments
                .iter()
                .find(|value| value.as_array().is_some_and(|items| !items.is_empty()));
            found.cloned().ok_or_else(|| "all lists are empty".into())
        }
        "compact" => exactly(arguments).and_then(|[items]| {
            let kept =
                list(items)?.iter().filter(|item| !item.is_null() && item.as_str() != Some(""));
            Ok(kept.cloned().collect())
        }),
        "concat" => {
            let lists = arguments.iter().map(list).collect::<Result<Vec<_>>>();
            lists.map(|lists| lists.into_iter().flatten().cloned().collect())
        }
        "contains" => exactly(arguments).and_then(|[items, wanted]| {
            Ok(Value::Bool(list(items)?.iter().any(|item| is_equal(item, wanted))))
        }),
        "distinct" | "setunion" => {
            arguments.iter().map(list).collect::<Result<Vec<_>>>().and_then(|lists| {
                let all: Vec<Value> = lists.into_iter().flatten().cloned().collect();
                distinct(evaluator, all)
            })
        }
        "setintersection" => in_all(evaluator, arguments, true),
        "setsubtract" => in_all(evaluator, arguments, false),
        "setproduct" => product(evaluator, arguments),
        "element" => exactly(arguments).and_then(|[items, at]| {
            let items = list(items)?;
            let at = whole(at)?;
            let count = i64::try_from(items.len()).unwrap_or(i64::MAX);
            let at = at.checked_rem_euclid(count).and_then(|at| usize::try_from(at).ok());
            at.and_then(|at| items.get(at)).cloned().ok_or_else(|| "the list is empty".into())
        }),
        "flatten" => {
            exactly(arguments).and_then(|[items]| list(items).map(|items| flat(items).into()))
        }
        "length" => exactly(arguments).and_then(|[value]| match value {
            Value::Array(items) => Ok(items.len().into()),
            Value::Object(map) => Ok(map.len().into()),
            _ => Err("a list or an object is required".into()),
        }),
        "range" => range(arguments),
        "reverselist" => {
            exactly(arguments).and_then(|[items]| Ok(list(items)?.iter().rev().cloned().collect()))
        }
        "slice" => exactly(arguments).and_then(|[items, from, to]| {
            let slice = list(items)?.get(index(from)?..index(to)?);
            slice
                .map(|items| Value::Array(items.to_vec()))
                .ok_or_else(|| "the indexes are out of range".into())
        }),
        "sort" => exactly(arguments).and_then(|[items]| {
            let mut strings = list(items)?.iter().map(text).collect::<Result<Vec<_>>>()?;
            strings.sort();
            Ok(strings.into())
        }),
        _ => return None,
    })
}

fn distinct(evaluator: &mut HclEvaluator, items: Vec<Value>) -> Result<Value> {
    let mut kept: Vec<Value> = Vec::new();
    for item in items {
        evaluator.take(kept.len())?;
        if !kept.iter().any(|known| is_equal(known, &item)) {
            kept.push(item);
        }
    }
    Ok(Value::Array(kept))
}

/// The items of the first list that are in all other lists, or in none of them.
fn in_all(evaluator: &mut HclEvaluator, arguments: &[Value], is_wanted: bool) -> Result<Value> {
    let lists = arguments.iter().map(list).collect::<Result<Vec<_>>>()?;
    let Some((first, others)) = lists.split_first() else {
        return Err("a list is required".into());
    };
    let mut kept = Vec::new();
    for item in *first {
        evaluator.take(others.iter().map(|list| list.len()).sum())?;
        let is_in = |list: &&Vec<Value>| list.iter().any(|known| is_equal(known, item));
        if others.iter().all(|list| is_in(list) == is_wanted) {
            kept.push(item.clone());
        }
    }
    distinct(evaluator, kept)
}

fn product(evaluator: &mut HclEvaluator, arguments: &[Value]) -> Result<Value> {
    let mut rows: Vec<Vec<Value>> = vec![Vec::new()];
    for argument in arguments {
        let items = list(argument)?;
        evaluator.take(rows.len().saturating_mul(items.len()).saturating_mul(arguments.len()))?;
        rows = rows
            .iter()
            .flat_map(|row| {
                items.iter().map(move |item| row.iter().cloned().chain([item.clone()]).collect())
            })
            .collect();
    }
    Ok(rows.into_iter().map(Value::Array).collect())
}

/// The items of a list, with nested lists flattened.
fn flat(items: &[Value]) -> Vec<Value> {
    let mut out = Vec::new();
    let mut left: Vec<&Value> = items.iter().rev().collect();
    while let Some(item) = left.pop() {
        match item {
            Value::Array(items) => left.extend(items.iter().rev()),
            other => out.push(other.clone()),
        }
    }
    out
}

fn range(arguments: &[Value]) -> Result<Value> {
    let floats = arguments.iter().map(float).collect::<Result<Vec<_>>>()?;
    let (start, end, step) = match *floats.as_slice() {
        [end] => (0.0, end, if end < 0.0 { -1.0 } else { 1.0 }),
        [start, end] => (start, end, if end < start { -1.0 } else { 1.0 }),
        [start, end, step] => (start, end, step),
        _ => return Err("one, two or three numbers are required".into()),
    };
    if step == 0.0 {
        return Err("the step must not be zero".into());
    }
    let mut items = Vec::new();
    let mut next = start;
    while (step > 0.0 && next < end) || (step < 0.0 && next > end) {
        if items.len() >= MAX_RANGE_ITEMS {
            return Err(format!("more than {MAX_RANGE_ITEMS} values").into());
        }
        items.push(number(next)?);
        next += step;
    }
    Ok(Value::Array(items))
}

fn of_objects(name: &str, arguments: &[Value]) -> Option<Result<Value>> {
    Some(match name {
        "keys" => exactly(arguments)
            .and_then(|[map]| Ok(object(map)?.keys().cloned().collect::<Vec<_>>().into())),
        "values" => {
            exactly(arguments).and_then(|[map]| Ok(object(map)?.values().cloned().collect()))
        }
        "lookup" => match arguments {
            [map, key] => text(key).and_then(|key| {
                let found = object(map)?.get(&key).cloned();
                found.ok_or_else(|| format!("there is no key {key:?}").into())
            }),
            [map, key, default] => text(key).and_then(|key| {
                let found = object(map)?.get(&key);
                Ok(found.unwrap_or(default).clone())
            }),
            _ => Err(wrong_count(name)),
        },
        "merge" => {
            let mut merged = ValuesMap::new();
            for argument in arguments.iter().filter(|argument| !argument.is_null()) {
                match object(argument) {
                    Ok(map) => merged.extend(map.clone()),
                    Err(error) => return Some(Err(error)),
                }
            }
            Ok(Value::Object(merged))
        }
        "zipmap" => exactly(arguments).and_then(|[keys, values]| {
            let keys = list(keys)?;
            let values = list(values)?;
            if keys.len() != values.len() {
                return Err("as many keys as values are required".into());
            }
            let pairs = keys.iter().zip(values).map(|(key, value)| Ok((text(key)?, value.clone())));
            pairs.collect::<Result<ValuesMap>>().map(Value::Object)
        }),
        _ => return None,
    })
}
