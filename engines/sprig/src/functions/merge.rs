//! The template functions that merge maps, like mergo 1.0.1.
//!
//! Maps are merged in place. Values that the destination lacks are shared with the source, so a later change of one is visible
//! in the other.

use golang::GoRuntimeValue;
use golang::value::{GoMap, GoString, GoType, ReflectKind};
use gotemplate::{FunctionCallContext, TemplateFunctionError};

use super::defaults::is_empty;
use crate::arguments::{MAP_ENTRY_OVERHEAD_BYTES, SprigResult, map};
use crate::function_table::{SprigFunctionEntry, impure};
use crate::template_environment::{NOT_ALONE, TemplateEnvironment};

pub(crate) const ENTRIES: &[SprigFunctionEntry] = &[
    impure(
        "merge",
        "func(map[string]interface {}, ...map[string]interface {}) interface {}",
        merge,
    ),
    impure(
        "mergeOverwrite",
        "func(map[string]interface {}, ...map[string]interface {}) interface {}",
        merge_overwrite,
    ),
    impure(
        "mustMerge",
        "func(map[string]interface {}, ...map[string]interface {}) (interface {}, error)",
        must_merge,
    ),
    impure(
        "mustMergeOverwrite",
        "func(map[string]interface {}, ...map[string]interface {}) (interface {}, error)",
        must_merge_overwrite,
    ),
];

/// Fills missing or empty values of the first map from the others. If the types do not match, the result is an empty text.
fn merge(
    template_environment: &dyn TemplateEnvironment,
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> SprigResult {
    forgiving(merged(template_environment, call, args, false))
}

/// Replaces values of the first map by those of the others. If the types do not match, the result is an empty text.
fn merge_overwrite(
    template_environment: &dyn TemplateEnvironment,
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> SprigResult {
    forgiving(merged(template_environment, call, args, true))
}

/// Fills missing or empty values of the first map from the others.
fn must_merge(
    template_environment: &dyn TemplateEnvironment,
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> SprigResult {
    merged(template_environment, call, args, false)
}

/// Replaces values of the first map by those of the others.
fn must_merge_overwrite(
    template_environment: &dyn TemplateEnvironment,
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> SprigResult {
    merged(template_environment, call, args, true)
}

/// mergo's message about values that do not fit.
const DIFFERENT: &str = "src and dst must be of same type";

fn forgiving(outcome: SprigResult) -> SprigResult {
    match outcome {
        Err(TemplateFunctionError::Message(message)) if message == DIFFERENT => {
            Ok(GoRuntimeValue::from(""))
        }
        outcome => outcome,
    }
}

/// Two maps that are being merged.
struct MergedMapPair {
    target: GoMap,
    rest: std::vec::IntoIter<(GoString, GoRuntimeValue)>,
    /// A map below that is merged before its own place is examined.
    pending: Option<(GoString, GoRuntimeValue, Option<GoRuntimeValue>)>,
}

impl MergedMapPair {
    fn new(
        call: &mut FunctionCallContext<'_>,
        target: GoMap,
        source: &GoMap,
    ) -> Result<Self, TemplateFunctionError> {
        call.work(source.len() + 1)?;
        // Merging two maps that contain themselves never ends, so the open values are counted as used memory.
        call.produce(
            source
                .len()
                .saturating_mul(MAP_ENTRY_OVERHEAD_BYTES)
                .saturating_add(2 * MAP_ENTRY_OVERHEAD_BYTES),
        )?;
        Ok(Self { target, rest: source.entries().into_iter(), pending: None })
    }
}

fn merged(
    template_environment: &dyn TemplateEnvironment,
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
    overwrites: bool,
) -> SprigResult {
    let mut target = map(args, 0);
    for at in 1..args.len() {
        let source = map(args, at);
        if target.is_nil() && !source.is_nil() {
            target = GoMap::default();
        }
        merge_into(template_environment, call, &target, &source, overwrites)?;
    }
    Ok(GoRuntimeValue::Map(target))
}

fn merge_into(
    template_environment: &dyn TemplateEnvironment,
    call: &mut FunctionCallContext<'_>,
    target: &GoMap,
    source: &GoMap,
    overwrites: bool,
) -> Result<(), TemplateFunctionError> {
    let mut open = vec![MergedMapPair::new(call, target.clone(), source)?];
    while let Some(pair) = open.last_mut() {
        let (key, value, old) = match pair.pending.take() {
            Some(pending) => pending,
            None => {
                let Some((key, value)) = pair.rest.next() else {
                    open.pop();
                    continue;
                };
                if matches!(value, GoRuntimeValue::Nil) {
                    if overwrites {
                        put(template_environment, call, &pair.target, key, value)?;
                    }
                    continue;
                }
                let old = pair.target.get(&key);
                if value.kind() == ReflectKind::Slice && overwrites {
                    put(template_environment, call, &pair.target, key.clone(), value.clone())?;
                }
                if let Some((target, source)) = below(old.as_ref(), &value, overwrites)? {
                    pair.pending = Some((key, value, old));
                    let below = MergedMapPair::new(call, target, &source)?;
                    open.push(below);
                    continue;
                }
                (key, value, old)
            }
        };
        let Some(pair) = open.last() else { break };
        if !stays(old.as_ref(), &value, overwrites) {
            put(template_environment, call, &pair.target, key, value)?;
        }
    }
    Ok(())
}

/// The two maps to merge below a key, if both values are maps.
fn below(
    old: Option<&GoRuntimeValue>,
    new: &GoRuntimeValue,
    overwrites: bool,
) -> Result<Option<(GoMap, GoMap)>, TemplateFunctionError> {
    let is_entered =
        matches!(new.kind(), ReflectKind::Map | ReflectKind::Struct | ReflectKind::Pointer);
    match old {
        // Parity(helm 4): a pointer only takes pointers, unless it is replaced anyway.
        Some(GoRuntimeValue::Object(old))
            if old.kind() == ReflectKind::Pointer
                && is_entered
                && new.kind() != ReflectKind::Pointer
                && !overwrites =>
        {
            Err(DIFFERENT.into())
        }
        Some(old) => Ok(match (old.underlying(), new.underlying()) {
            (GoRuntimeValue::Map(old), GoRuntimeValue::Map(new)) if !old.is_nil() => {
                Some((old, new))
            }
            _ => None,
        }),
        None => Ok(None),
    }
}

/// Whether the old value is kept.
fn stays(old: Option<&GoRuntimeValue>, new: &GoRuntimeValue, overwrites: bool) -> bool {
    let Some(old) = old.filter(|old| !is_empty(old)) else { return false };
    match new.kind() {
        ReflectKind::Slice => true,
        ReflectKind::Map if old.kind() == ReflectKind::Map => true,
        _ => !overwrites,
    }
}

fn put(
    template_environment: &dyn TemplateEnvironment,
    call: &mut FunctionCallContext<'_>,
    target: &GoMap,
    key: GoString,
    value: GoRuntimeValue,
) -> Result<(), TemplateFunctionError> {
    if !template_environment.may_change(target) {
        return Err(NOT_ALONE.into());
    }
    call.produce(if target.is_empty() {
        8 * MAP_ENTRY_OVERHEAD_BYTES
    } else {
        2 * MAP_ENTRY_OVERHEAD_BYTES
    })?;
    let wanted = target.item_type();
    if *wanted != GoType::Any && value.type_of().as_ref() != Some(wanted) {
        let given = "reflect.Value.SetMapIndex: value of type interface {}";
        return Err(format!("{given} is not assignable to type {wanted}").into());
    }
    target.insert(key, value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use golang::GoRuntimeValue;
    use gotemplate::TemplateLimits;

    use crate::testing::{check, run_with};

    #[test]
    fn what_is_missing_or_empty_is_filled() {
        check(&[
            (r#"{{ merge (dict "a" 1) (dict "a" 2 "b" 3) }}"#, "map[a:1 b:3]"),
            (
                r#"{{ merge (dict "a" 0 "b" "" "c" nil) (dict "a" 1 "b" "x" "c" 2) }}"#,
                "map[a:1 b:x c:2]",
            ),
            (
                r#"{{ merge (dict "a" (dict)) (dict "a" "x") }} {{ merge (dict) (dict "a" nil) }}"#,
                "map[a:x] map[]",
            ),
            (r#"{{ merge (dict "a" (list 1)) (dict "a" (list 2)) }}"#, "map[a:[1]]"),
            (
                r#"{{ merge nil (dict "a" 1) }} {{ mustMerge (dict "a" (dict "x" 1)) (dict "a" (dict "y" 2)) }}"#,
                "map[a:1] map[a:map[x:1 y:2]]",
            ),
        ]);
    }

    #[test]
    fn existing_values_are_replaced() {
        check(&[
            (r#"{{ mergeOverwrite (dict "a" 1) (dict "a" 0 "b" nil) }}"#, "map[a:0 b:<nil>]"),
            (
                r#"{{ mergeOverwrite (dict "a" (dict "x" 1)) (dict "a" (dict)) }}"#,
                "map[a:map[x:1]]",
            ),
            (r#"{{ mergeOverwrite (dict "a" (list 1)) (dict "a" (list)) }}"#, "map[a:[]]"),
            (
                r#"{{ mustMergeOverwrite (dict "a" (dict "x" 1)) (dict "a" 5) (dict "a" (dict "y" 2)) }}"#,
                "map[a:map[y:2]]",
            ),
        ]);
    }

    #[test]
    fn what_was_missing_is_shared_with_the_source() {
        check(&[
            (
                r#"{{ $s := dict "n" (dict "k" 1) }}{{ $d := merge (dict) $s }}{{ $_ := set $d.n "k" 9 }}{{ $s }}"#,
                "map[n:map[k:9]]",
            ),
            (
                r#"{{ $a := dict "n" (dict "k" 1) }}{{ $_ := merge (dict) $a (dict "n" (dict "j" 2)) }}{{ $a }}"#,
                "map[n:map[j:2 k:1]]",
            ),
        ]);
    }

    #[test]
    fn merging_ends() {
        let looped =
            "(dict)}}{{ $_ := set $a \"a\" $a }}{{ $b := (dict)}}{{ $_ := set $b \"a\" $b }}";
        let template = format!("{{{{ $a := {looped}{{{{ $_ := merge $a $b }}}}");
        let limits = TemplateLimits { output: 1 << 20, ..TemplateLimits::default() };
        let error = "error: error calling merge: the output is longer than 1048576 bytes";
        assert_eq!(run_with(&template, GoRuntimeValue::Nil, limits), error);
    }

    #[test]
    fn maps_that_hold_themselves_do_not_hold_up_the_run() {
        check(&[(
            r#"{{ $a := dict }}{{ $_ := set $a "a" $a }}{{ $b := dict "a" (dict "a" (dict "x" 1)) }}{{ $_ := merge $a $b }}{{ $a.x }}"#,
            "1",
        )]);
    }
}
