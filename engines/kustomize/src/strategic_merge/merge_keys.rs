//! The keys of list items: for each item, the values of the list's merge keys. A missing value is empty.

use std::collections::BTreeSet;

use super::StrategicMergeError;
use super::arena::{ArenaNodeId, MergeNodeArena};

/// The values of all merge keys in one item.
pub(super) type MergeKeyValues = Vec<String>;

/// The distinct tuples of several lists, in the order of their first occurrence.
pub(super) fn of_items(
    arena: &mut MergeNodeArena<'_>,
    lists: &[ArenaNodeId],
    keys: &[String],
) -> Result<Vec<MergeKeyValues>, StrategicMergeError> {
    let mut tuples = Vec::new();
    let mut seen = BTreeSet::new();
    if keys.is_empty() {
        return Ok(tuples);
    }
    for list in lists {
        for at in 0..arena.children(*list).len() {
            let item = arena.children(*list)[at];
            let mut tuple = Vec::with_capacity(keys.len());
            for key in keys {
                let value = arena.entry(item, key)?.map(|(_, value)| value);
                let value = value.filter(|value| !arena.is_nil_or_empty(*value));
                tuple.push(value.map(|value| arena[value].value.clone()).unwrap_or_default());
            }
            if seen.insert(tuple.clone()) {
                tuples.push(tuple);
            }
        }
    }
    Ok(tuples)
}

/// The keys of scalar items. Each item is its own key.
pub(super) fn of_scalars(arena: &MergeNodeArena<'_>, lists: &[ArenaNodeId]) -> Vec<MergeKeyValues> {
    let mut seen = BTreeSet::new();
    let items = lists.iter().flat_map(|list| arena.children(*list));
    let values = items.map(|item| arena[*item].value.clone());
    values.filter(|value| seen.insert(value.clone())).map(|value| vec![value]).collect()
}

/// Unifies tuples that have a common value and differ only where one of them has no value.
pub(super) fn complete(
    arena: &mut MergeNodeArena<'_>,
    tuples: &mut [MergeKeyValues],
) -> Result<(), StrategicMergeError> {
    arena.count(tuples.len().saturating_mul(tuples.len()))?;
    for first in 0..tuples.len() {
        // Go uses the tuple in its state at this point.
        let this = tuples[first].clone();
        for second in 0..tuples.len() {
            if let Some(both) = joined(&this, &tuples[second]) {
                tuples[first].clone_from(&both);
                tuples[second] = both;
            }
        }
    }
    Ok(())
}

fn joined(first: &MergeKeyValues, second: &MergeKeyValues) -> Option<MergeKeyValues> {
    let mut has_common = false;
    let mut both = Vec::with_capacity(first.len());
    for (a, b) in first.iter().zip(second) {
        if a == b {
            has_common = true;
        } else if !a.is_empty() && !b.is_empty() {
            return None;
        }
        both.push(if a.is_empty() { b.clone() } else { a.clone() });
    }
    has_common.then_some(both)
}

/// The merge keys for which any tuple has a value; all merge keys if none has.
pub(super) fn used_keys(tuples: &[MergeKeyValues], keys: &[String]) -> Vec<bool> {
    let has = |at: usize| tuples.iter().any(|tuple| tuple.get(at).is_some_and(|it| !it.is_empty()));
    let used: Vec<bool> = (0..keys.len()).map(has).collect();
    if used.contains(&true) { used } else { vec![true; keys.len()] }
}

/// Keeps the keys that are used, or a tuple's values for these keys.
pub(super) fn only(used: &[bool], strings: &[String]) -> Vec<String> {
    let strings = strings.iter().zip(used);
    strings.filter(|(_, is_used)| **is_used).map(|(text, _)| text.clone()).collect()
}
