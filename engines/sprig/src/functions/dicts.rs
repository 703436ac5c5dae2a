//! The template functions for maps. Maps are shared, so a change is visible through all references. Elsewhere: merging
//! (`merge.rs`).
//!
//! Differs(helm 4): keys and values come in the order of the keys, where Go's come in any order.

use std::collections::BTreeSet;
use std::sync::Arc;

use golang::GoRuntimeValue;
use golang::semver::SemverVersion;
use golang::value::{GoMap, GoObject, GoSlice, GoString, GoType, ReflectKind};
use gotemplate::{FunctionCallContext, TemplateFunctionError};

use crate::arguments::{
    MAP_ENTRY_OVERHEAD_BYTES, SprigResult, any, copied, made, map, mapped, text, text_of,
};
use crate::function_table::{SprigFunctionEntry, bounded, impure, plain};
use crate::template_environment::{NOT_ALONE, TemplateEnvironment};

pub(crate) const ENTRIES: &[SprigFunctionEntry] = &[
    bounded("deepCopy", "func(interface {}) interface {}", deep_copy),
    bounded("dict", "func(...interface {}) map[string]interface {}", dict),
    plain("dig", "func(...interface {}) (interface {}, error)", dig),
    plain("get", "func(map[string]interface {}, string) interface {}", get),
    plain("hasKey", "func(map[string]interface {}, string) bool", has_key),
    bounded("keys", "func(...map[string]interface {}) []string", keys),
    bounded("mustDeepCopy", "func(interface {}) (interface {}, error)", deep_copy),
    bounded("omit", "func(map[string]interface {}, ...string) map[string]interface {}", omit),
    bounded("pick", "func(map[string]interface {}, ...string) map[string]interface {}", pick),
    plain("pluck", "func(string, ...map[string]interface {}) []interface {}", pluck),
    impure(
        "set",
        "func(map[string]interface {}, string, interface {}) map[string]interface {}",
        set,
    ),
    impure("unset", "func(map[string]interface {}, string) map[string]interface {}", unset),
    bounded("values", "func(map[string]interface {}) []interface {}", values),
];

/// Creates a map from alternating keys and values. If the last key has no value, its value is an empty text.
fn dict(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    mapped(call, args.len().div_ceil(2))?;
    let dict = GoMap::default();
    for pair in args.chunks(2) {
        let key = text_of(call, any(pair, 0))?;
        dict.insert(key, pair.get(1).cloned().unwrap_or_else(|| GoRuntimeValue::from("")));
    }
    Ok(GoRuntimeValue::Map(dict))
}

/// The value at a path of keys in the map, which is the last argument. If a key is missing, the default before the map is
/// returned.
fn dig(args: &[GoRuntimeValue]) -> SprigResult {
    let [keys @ .., default, dict] = args else {
        return Err("dig needs at least three arguments".into());
    };
    if keys.is_empty() {
        return Err("dig needs at least three arguments".into());
    }
    let mut dict = plain_map(dict)?;
    let text = |key: &GoRuntimeValue| match key {
        GoRuntimeValue::String(key) => Ok(key.clone()),
        other => Err(conversion(other, "string")),
    };
    let keys = keys.iter().map(text).collect::<Result<Vec<GoString>, _>>()?;
    for (index, key) in keys.iter().enumerate() {
        let Some(step) = dict.get(key) else { break };
        if index + 1 == keys.len() {
            return Ok(step);
        }
        dict = plain_map(&step)?;
    }
    Ok(default.clone())
}

/// A `map[string]interface {}` without a name.
fn plain_map(value: &GoRuntimeValue) -> Result<GoMap, TemplateFunctionError> {
    match value {
        GoRuntimeValue::Map(map) if *map.item_type() == GoType::Any => Ok(map.clone()),
        other => Err(conversion(other, "map[string]interface {}")),
    }
}

fn conversion(value: &GoRuntimeValue, wanted: &str) -> TemplateFunctionError {
    let given = match value {
        GoRuntimeValue::Nil => "nil".to_owned(),
        value => value.type_name(),
    };
    format!("interface conversion: interface {{}} is {given}, not {wanted}").into()
}

/// The value of a key; an empty text if the key is missing.
fn get(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(map(args, 0).get(text(args, 1)).unwrap_or_else(|| GoRuntimeValue::from("")))
}

/// Whether a map has a key.
fn has_key(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::Bool(map(args, 0).contains_key(text(args, 1))))
}

/// The keys of all maps.
fn keys(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let maps = (0..args.len()).map(|at| map(args, at));
    made(call, maps.clone().map(|map| map.len()).sum())?;
    Ok(GoRuntimeValue::strings(maps.flat_map(|map| map.entries()).map(|(key, _)| key)))
}

/// A map without certain keys.
fn omit(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let without: BTreeSet<&[u8]> = (1..args.len()).map(|at| text(args, at)).collect();
    chosen(call, &map(args, 0), |key| !without.contains(key))
}

/// A map with certain keys alone.
fn pick(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let wanted: BTreeSet<&[u8]> = (1..args.len()).map(|at| text(args, at)).collect();
    chosen(call, &map(args, 0), |key| wanted.contains(key))
}

fn chosen(
    call: &mut FunctionCallContext<'_>,
    map: &GoMap,
    is_chosen: impl Fn(&[u8]) -> bool,
) -> SprigResult {
    mapped(call, map.len())?;
    let entries = map.entries().into_iter().filter(|(key, _)| is_chosen(key));
    Ok(GoRuntimeValue::Map(GoMap::new(GoType::Any, entries)))
}

/// The values that maps have under a key.
fn pluck(args: &[GoRuntimeValue]) -> SprigResult {
    let key = text(args, 0);
    Ok(GoRuntimeValue::list((1..args.len()).filter_map(|at| map(args, at).get(key))))
}

/// Sets a value in a map, and returns the map.
fn set(
    template_environment: &dyn TemplateEnvironment,
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> SprigResult {
    let map = map(args, 0);
    let key = text(args, 1);
    if !template_environment.may_change(&map) {
        return Err(NOT_ALONE.into());
    }
    if map.is_nil() {
        return Err("assignment to entry in nil map".into());
    }
    // The first entry of a map takes as much memory as several later ones.
    call.produce(
        key.len()
            + if map.is_empty() {
                8 * MAP_ENTRY_OVERHEAD_BYTES
            } else {
                2 * MAP_ENTRY_OVERHEAD_BYTES
            },
    )?;
    map.insert(key, any(args, 2).clone());
    Ok(GoRuntimeValue::Map(map))
}

/// Removes a key from a map, and returns the map.
fn unset(
    template_environment: &dyn TemplateEnvironment,
    _: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> SprigResult {
    let map = map(args, 0);
    if !template_environment.may_change(&map) {
        return Err(NOT_ALONE.into());
    }
    map.remove(text(args, 1));
    Ok(GoRuntimeValue::Map(map))
}

/// The values of a map.
fn values(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    made(call, map(args, 0).len())?;
    Ok(GoRuntimeValue::list(map(args, 0).entries().into_iter().map(|(_, value)| value)))
}

/// A container that is being copied.
enum DeepCopyCollection {
    List { list: GoSlice, next: usize, copies: Vec<GoRuntimeValue> },
    Map { copy: GoMap, key: GoString, rest: std::vec::IntoIter<(GoString, GoRuntimeValue)> },
}

/// The first step of copying a value.
enum DeepCopyStep {
    /// A container whose values must be copied one after the other.
    Container(DeepCopyCollection),
    /// The copy itself.
    Value(GoRuntimeValue),
}

/// A copy that shares nothing which can change.
fn deep_copy(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let mut next = any(args, 0).clone();
    if matches!(next, GoRuntimeValue::Nil) {
        return Err("reflect: call of reflect.Value.Type on zero Value".into());
    }
    let mut open: Vec<DeepCopyCollection> = Vec::new();
    loop {
        let mut done = match begun(call, next)? {
            DeepCopyStep::Container(container) => {
                open.push(container);
                None
            }
            DeepCopyStep::Value(copy) => Some(copy),
        };
        next = loop {
            let Some(innermost) = open.last_mut() else { return Ok(done.unwrap_or_default()) };
            match innermost.next(done.take()) {
                Some(value) => break value,
                None => done = open.pop().map(DeepCopyCollection::close),
            }
        };
    }
}

/// Begins to copy a value.
fn begun(
    call: &mut FunctionCallContext<'_>,
    value: GoRuntimeValue,
) -> Result<DeepCopyStep, TemplateFunctionError> {
    call.work(1)?;
    Ok(match value {
        GoRuntimeValue::List(list) if !list.is_nil() => {
            copied(call, list.len())?;
            DeepCopyStep::Container(DeepCopyCollection::List { list, next: 0, copies: Vec::new() })
        }
        GoRuntimeValue::Map(map) if !map.is_nil() => {
            mapped(call, map.len())?;
            let entries = map.entries();
            let copy = GoMap::new(map.item_type().clone(), []);
            let rest = entries.into_iter();
            DeepCopyStep::Container(DeepCopyCollection::Map {
                copy,
                key: GoString::default(),
                rest,
            })
        }
        GoRuntimeValue::Object(object) => match object.underlying() {
            Some(underlying @ (GoRuntimeValue::List(_) | GoRuntimeValue::Map(_))) => {
                return begun(call, underlying);
            }
            _ => DeepCopyStep::Value(copied_object(object)),
        },
        other => DeepCopyStep::Value(other),
    })
}

/// Parity(helm 4): fields that are not exported are not copied, so that a version becomes `0.0.0`.
fn copied_object(object: Arc<dyn GoObject>) -> GoRuntimeValue {
    if object.kind() == ReflectKind::Pointer
        && object.type_name() == "*semver.Version"
        && let Ok(empty) = SemverVersion::parse("0")
    {
        return GoRuntimeValue::object(empty);
    }
    GoRuntimeValue::Object(object)
}

impl DeepCopyCollection {
    /// Adds the copy of the last value to the container's copy. Returns the next value to copy, or `None` if none is
    /// left.
    fn next(&mut self, done: Option<GoRuntimeValue>) -> Option<GoRuntimeValue> {
        match self {
            Self::List { list, next, copies } => {
                copies.extend(done);
                *next += 1;
                list.items().get(*next - 1).cloned()
            }
            Self::Map { copy, key, rest } => {
                if let Some(done) = done {
                    copy.insert(key.clone(), done);
                }
                let (next_key, next) = rest.next()?;
                *key = next_key;
                Some(next)
            }
        }
    }

    fn close(self) -> GoRuntimeValue {
        match self {
            Self::List { list, copies, .. } => {
                let item_type = list.item_type().clone();
                GoRuntimeValue::List(GoSlice::with_capacity(item_type, copies, list.capacity()))
            }
            Self::Map { copy, .. } => GoRuntimeValue::Map(copy),
        }
    }
}

#[cfg(test)]
mod tests {
    use golang::GoRuntimeValue;
    use gotemplate::TemplateLimits;

    use crate::testing::{check, run_with};

    #[test]
    fn maps_are_read_and_changed() {
        check(&[
            (
                r#"{{ dict "a" 1 "b" }} {{ dict nil 1 2 3 }} {{ dict }}"#,
                "map[a:1 b:] map[2:3 <nil>:1] map[]",
            ),
            (r#"{{ get (dict "a" 1) "a" }}|{{ get (dict) "a" }}|"#, "1||"),
            (
                r#"{{ $d := dict }}{{ $_ := set $d "a" 1 }}{{ $d }} {{ unset $d "a" }} {{ $d }}"#,
                "map[a:1] map[] map[]",
            ),
            (r#"{{ set nil "a" 1 }}"#, "error: error calling set: assignment to entry in nil map"),
            (
                r#"{{ hasKey (dict "a" nil) "a" }} {{ keys (dict "b" 1) (dict "a" 2) }} {{ values (dict "a" 1) }}"#,
                "true [b a] [1]",
            ),
            (r#"{{ pluck "a" (dict "a" 1) (dict) (dict "a" 2) }}"#, "[1 2]"),
            (
                r#"{{ pick (dict "a" 1 "b" 2) "a" "z" }} {{ omit (dict "a" 1 "b" 2) "a" }}"#,
                "map[a:1] map[b:2]",
            ),
        ]);
    }

    #[test]
    fn dig_follows_plain_maps_alone() {
        check(&[
            (
                r#"{{ dig "a" "b" "d" (dict "a" (dict "b" 5)) }} {{ dig "a" "z" "d" (dict "a" (dict)) }}"#,
                "5 d",
            ),
            (
                r#"{{ dig "a" "b" "d" (dict "a" 1) }}"#,
                "error: error calling dig: interface conversion: interface {} is int, not map[string]interface {}",
            ),
            (
                r#"{{ dig 1 "d" (dict) }}"#,
                "error: error calling dig: interface conversion: interface {} is int, not string",
            ),
            (
                r#"{{ dig "a" (dict) }}"#,
                "error: error calling dig: dig needs at least three arguments",
            ),
        ]);
    }

    #[test]
    fn a_copy_shares_nothing() {
        check(&[
            (
                r#"{{ $a := dict "n" (dict "x" 1) "l" (list (dict)) }}{{ $b := deepCopy $a }}{{ $_ := set $b.n "x" 2 }}{{ $_ := set (first $b.l) "y" 1 }}{{ $a }} {{ $b }}"#,
                "map[l:[map[]] n:map[x:1]] map[l:[map[y:1]] n:map[x:2]]",
            ),
            (r#"{{ mustDeepCopy (list 1 nil) }}"#, "[1 <nil>]"),
            (
                r#"{{ deepCopy nil }}"#,
                "error: error calling deepCopy: reflect: call of reflect.Value.Type on zero Value",
            ),
        ]);
    }

    #[test]
    fn copying_ends() {
        let limits = TemplateLimits { output: 1 << 20, ..TemplateLimits::default() };
        let doubled = r#"{{ $x := list 1 }}{{ range until 40 }}{{ $x = list $x $x }}{{ end }}{{ $_ := deepCopy $x }}"#;
        let looped = r#"{{ $d := dict }}{{ $_ := set $d "d" $d }}{{ $_ := deepCopy $d }}"#;
        for template in [doubled, looped] {
            let error = "error: error calling deepCopy: the output is longer than 1048576 bytes";
            assert_eq!(run_with(template, GoRuntimeValue::Nil, limits), error);
        }
    }
}
