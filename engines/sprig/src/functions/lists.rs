//! The template functions for lists.
//!
//! Differs(helm 4): slices never change, so a slice cannot show items that were written beyond the end of another one.

use golang::GoRuntimeValue;
use golang::value::{GoSlice, GoType, IntegerKind, SizedInteger};
use gotemplate::{FunctionCallContext, TemplateFunctionError};

use super::defaults::is_empty;
use crate::arguments::{
    NIL, SprigResult, any, as_int, copied, int, items, length, rest as further,
};
use crate::function_table::{SprigFunctionEntry, bounded};
use crate::number_cast::{to_int, truncated};

pub(crate) const ENTRIES: &[SprigFunctionEntry] = &[
    bounded("append", "func(interface {}, interface {}) []interface {}", append),
    bounded("chunk", "func(int, interface {}) [][]interface {}", chunk),
    bounded("compact", "func(interface {}) []interface {}", compact),
    bounded("concat", "func(...interface {}) interface {}", concat),
    bounded("first", "func(interface {}) interface {}", first),
    bounded("has", "func(interface {}, interface {}) bool", has),
    bounded("initial", "func(interface {}) []interface {}", initial),
    bounded("last", "func(interface {}) interface {}", last),
    bounded("list", "func(...interface {}) []interface {}", list),
    bounded("mustAppend", "func(interface {}, interface {}) ([]interface {}, error)", append),
    bounded("mustChunk", "func(int, interface {}) ([][]interface {}, error)", chunk),
    bounded("mustCompact", "func(interface {}) ([]interface {}, error)", compact),
    bounded("mustFirst", "func(interface {}) (interface {}, error)", first),
    bounded("mustHas", "func(interface {}, interface {}) (bool, error)", has),
    bounded("mustInitial", "func(interface {}) ([]interface {}, error)", initial),
    bounded("mustLast", "func(interface {}) (interface {}, error)", last),
    bounded("mustPrepend", "func(interface {}, interface {}) ([]interface {}, error)", prepend),
    bounded("mustPush", "func(interface {}, interface {}) ([]interface {}, error)", append),
    bounded("mustRest", "func(interface {}) ([]interface {}, error)", rest),
    bounded("mustReverse", "func(interface {}) ([]interface {}, error)", reverse),
    bounded("mustSlice", "func(interface {}, ...interface {}) (interface {}, error)", slice),
    bounded("mustUniq", "func(interface {}) ([]interface {}, error)", uniq),
    bounded("mustWithout", "func(interface {}, ...interface {}) ([]interface {}, error)", without),
    bounded("prepend", "func(interface {}, interface {}) []interface {}", prepend),
    bounded("push", "func(interface {}, interface {}) []interface {}", append),
    bounded("rest", "func(interface {}) []interface {}", rest),
    bounded("reverse", "func(interface {}) []interface {}", reverse),
    bounded("slice", "func(interface {}, ...interface {}) interface {}", slice),
    bounded("tuple", "func(...interface {}) []interface {}", list),
    bounded("uniq", "func(interface {}) []interface {}", uniq),
    bounded("without", "func(interface {}, ...interface {}) []interface {}", without),
];

/// A list with one more item at its end.
fn append(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let mut items = list_of(call, any(args, 0), |kind| format!("Cannot push on type {kind}"))?;
    items.push(any(args, 1).clone());
    Ok(GoRuntimeValue::list(items))
}

/// A list with one more item at its beginning.
fn prepend(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let mut items = list_of(call, any(args, 0), |kind| format!("Cannot prepend on type {kind}"))?;
    items.insert(0, any(args, 1).clone());
    Ok(GoRuntimeValue::list(items))
}

/// Splits a list into lists of this many items.
fn chunk(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let items = list_of(call, any(args, 1), |kind| format!("Cannot chunk type {kind}"))?;
    let too_long = || TemplateFunctionError::from("runtime error: makeslice: len out of range");
    let size = int(args, 0);
    let len = as_int(items.len());
    // Parity(helm 4): sizes of zero and below give what the arithmetic gives.
    let count = truncated(((len - 1) as f64 / size as f64).floor() + 1.0);
    let count = usize::try_from(count).map_err(|_| too_long())?;
    let mut chunks = Vec::new();
    let mut rest = items.into_iter();
    for index in 0..count {
        let of_last =
            if index + 1 == count { len.checked_rem(size).unwrap_or_default() } else { 0 };
        let wanted = if of_last == 0 { size } else { of_last };
        let wanted = usize::try_from(wanted).map_err(|_| too_long())?;
        copied(call, wanted.min(rest.len()))?;
        chunks.push(GoRuntimeValue::list(rest.by_ref().take(wanted)));
    }
    Ok(GoRuntimeValue::List(GoSlice::new(GoType::list(), chunks)))
}

/// A list without empty values.
fn compact(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let items = list_of(call, any(args, 0), |kind| format!("Cannot compact on type {kind}"))?;
    Ok(GoRuntimeValue::list(items.into_iter().filter(|item| !is_empty(item))))
}

/// The function `concat` of templates: joins lists into one.
fn concat(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let mut all = Vec::new();
    for list in args {
        all.extend(list_of(call, list, |kind| format!("Cannot concat type {kind} as list"))?);
    }
    Ok(if all.is_empty() { nil() } else { GoRuntimeValue::list(all) })
}

/// The first item; nil if the list is empty.
fn first(_: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    one(any(args, 0), "first", |items| items.first())
}

/// The last item; nil if the list is empty.
fn last(_: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    one(any(args, 0), "last", |items| items.last())
}

fn one(
    list: &GoRuntimeValue,
    name: &str,
    choose: for<'a> fn(&'a [GoRuntimeValue]) -> Option<&'a GoRuntimeValue>,
) -> SprigResult {
    if let GoRuntimeValue::List(list) = list {
        return Ok(choose(list.items()).cloned().unwrap_or_default());
    }
    if let GoRuntimeValue::Bytes(bytes) = list {
        let ends = [bytes.first(), bytes.last()].into_iter().flatten();
        let ends: Vec<GoRuntimeValue> = ends
            .map(|byte| {
                GoRuntimeValue::Integer(SizedInteger::new(IntegerKind::Uint8, i64::from(*byte)))
            })
            .collect();
        return Ok(choose(&ends).cloned().unwrap_or_default());
    }
    let items = items(list)
        .ok_or_else(|| refusal(list, |kind| format!("Cannot find {name} on type {kind}")))?;
    Ok(choose(&items).cloned().unwrap_or_default())
}

/// Whether a list contains a value. A nil list contains nothing.
fn has(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let needle = any(args, 0);
    let haystack = any(args, 1);
    if matches!(haystack, GoRuntimeValue::Nil) {
        return Ok(GoRuntimeValue::Bool(false));
    }
    let items = list_of(call, haystack, |kind| format!("Cannot find has on type {kind}"))?;
    Ok(GoRuntimeValue::Bool(contains(call, &items, needle)?))
}

/// A list without its last item; nil if the list is empty.
fn initial(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let mut items =
        list_of(call, any(args, 0), |kind| format!("Cannot find initial on type {kind}"))?;
    Ok(if items.pop().is_none() { nil() } else { GoRuntimeValue::list(items) })
}

/// A list without its first item; nil if the list is empty.
fn rest(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let items = list_of(call, any(args, 0), |kind| format!("Cannot find rest on type {kind}"))?;
    Ok(if items.is_empty() { nil() } else { GoRuntimeValue::list(items.into_iter().skip(1)) })
}

/// A list of its arguments.
fn list(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    copied(call, args.len())?;
    Ok(GoRuntimeValue::list(args.iter().cloned()))
}

/// A list from its end.
fn reverse(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let mut items =
        list_of(call, any(args, 0), |kind| format!("Cannot find reverse on type {kind}"))?;
    items.reverse();
    Ok(GoRuntimeValue::list(items))
}

/// The items between two indexes; nil if the list is empty.
fn slice(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let list = any(args, 0);
    let underlying = list.underlying();
    let (len, capacity) = match &underlying {
        GoRuntimeValue::List(list) => (list.len(), list.capacity()),
        GoRuntimeValue::Bytes(bytes) => (bytes.len(), bytes.len()),
        _ => {
            return Err(refusal(list, |kind| {
                format!("list should be type of slice or array but {kind}")
            }));
        }
    };
    if len == 0 {
        return Ok(GoRuntimeValue::Nil);
    }
    let out_of_bounds =
        || TemplateFunctionError::from("reflect.Value.Slice: slice index out of bounds");
    let bound = |at: usize, or: usize| match args.get(at) {
        Some(value) => usize::try_from(to_int(value)).map_err(|_| out_of_bounds()),
        None => Ok(or),
    };
    let from = bound(1, 0)?;
    let to = bound(2, len)?;
    if from > to || to > capacity {
        return Err(out_of_bounds());
    }
    // Items beyond the end can become visible again, so they are copied, too.
    copied(call, capacity - from)?;
    match &underlying {
        GoRuntimeValue::Bytes(bytes) => Ok(GoRuntimeValue::Bytes(bytes[from..to].into())),
        GoRuntimeValue::List(list) => {
            list.slice(from, to, capacity).map(GoRuntimeValue::List).ok_or_else(out_of_bounds)
        }
        _ => Ok(GoRuntimeValue::Nil),
    }
}

/// A list in which each item occurs once.
fn uniq(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let items = list_of(call, any(args, 0), |kind| format!("Cannot find uniq on type {kind}"))?;
    let mut unique = Vec::new();
    for item in items {
        if !contains(call, &unique, &item)? {
            unique.push(item);
        }
    }
    Ok(GoRuntimeValue::list(unique))
}

/// A list without certain values.
fn without(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let items = list_of(call, any(args, 0), |kind| format!("Cannot find without on type {kind}"))?;
    let mut kept = Vec::new();
    for item in items {
        if !contains(call, further(args, 1), &item)? {
            kept.push(item);
        }
    }
    Ok(GoRuntimeValue::list(kept))
}

fn contains(
    call: &mut FunctionCallContext<'_>,
    items: &[GoRuntimeValue],
    wanted: &GoRuntimeValue,
) -> Result<bool, TemplateFunctionError> {
    for item in items {
        if wanted.deep_equal(item, |items| call.work(items))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A copy of the items of a list. `refuse` makes the error for values that are not lists.
fn list_of(
    call: &mut FunctionCallContext<'_>,
    list: &GoRuntimeValue,
    refuse: impl Fn(&str) -> String,
) -> Result<Vec<GoRuntimeValue>, TemplateFunctionError> {
    copied(call, length(list))?;
    items(list).ok_or_else(|| refusal(list, refuse))
}

fn refusal(value: &GoRuntimeValue, refuse: impl Fn(&str) -> String) -> TemplateFunctionError {
    match value {
        GoRuntimeValue::Nil => NIL.into(),
        value => refuse(&value.kind().to_string()).into(),
    }
}

/// The nil slice of Go, `[]interface {}(nil)`, as a value.
fn nil() -> GoRuntimeValue {
    GoRuntimeValue::List(GoSlice::nil(GoType::Any))
}

#[cfg(test)]
mod tests {
    use crate::testing::check;

    #[test]
    fn lists_are_made_and_taken_apart() {
        check(&[
            (
                r#"{{ append (list 1) 2 }} {{ push (list) nil }} {{ prepend (list 1) 0 }}"#,
                "[1 2] [<nil>] [0 1]",
            ),
            (r#"{{ first (list 1 2) }} {{ last (until 3) }} {{ first (list) }}"#, "1 2 <no value>"),
            (r#"{{ rest (list 1 2) }} {{ initial (list 1 2) }} {{ rest (list) }}"#, "[2] [1] []"),
            (
                r#"{{ reverse (list 1 2) }} {{ concat (list 1) (splitList "," "a,b") }}"#,
                "[2 1] [1 a b]",
            ),
            (r#"{{ uniq (list 1 1 2 "a" 1.0) }} {{ without (list 1 2 1) 1 }}"#, "[1 2 a 1] [2]"),
            (
                r#"{{ has 1 (list 1.0) }} {{ has "a" (list "a") }} {{ has 1 nil }}"#,
                "false true false",
            ),
            (
                r#"{{ compact (list 0 1 "" nil "a") }} {{ tuple 1 2 }} {{ mustUniq (list 1 1) }}"#,
                "[1 a] [1 2] [1]",
            ),
            (
                r#"{{ slice (list 1 2 3) 1 }} {{ slice (list 1 2 3) 0 2 }} {{ mustSlice (list) }}"#,
                "[2 3] [1 2] <no value>",
            ),
            (
                r#"{{ chunk 2 (list 1 2 3) }} {{ chunk 5 (list) }} {{ mustChunk 3 (list 1 2 3) }}"#,
                "[[1 2] [3]] [] [[1 2 3]]",
            ),
        ]);
    }

    #[test]
    fn what_is_no_list_is_refused_in_go_s_words() {
        let nil = "runtime error: invalid memory address or nil pointer dereference";
        check(&[
            (r#"{{ append "a" 1 }}"#, "error: error calling append: Cannot push on type string"),
            (r#"{{ first (dict) }}"#, "error: error calling first: Cannot find first on type map"),
            (r#"{{ rest nil }}"#, &format!("error: error calling rest: {nil}")),
            (
                r#"{{ slice (list 1) 1 5 }}"#,
                "error: error calling slice: reflect.Value.Slice: slice index out of bounds",
            ),
            (
                r#"{{ chunk -1 (list 1 2 3) }}"#,
                "error: error calling chunk: runtime error: makeslice: len out of range",
            ),
            (
                r#"{{ concat (list) 5 }}"#,
                "error: error calling concat: Cannot concat type int as list",
            ),
        ]);
    }
}
