//! Tables of values: copying them, removing nulls, and finding a value by a path with dots.
//!
//! Elsewhere: merging tables (`coalesce.rs`).

use golang::GoRuntimeValue;
use golang::strconv::{QuotingStyle, quote};
use golang::value::{GoMap, GoSlice, GoType};

use super::{Error, ValuesBudget};

/// A table of values without entries.
pub(crate) fn empty() -> GoMap {
    GoMap::new(GoType::Any, [])
}

/// A copy of a table that shares nothing with the original.
pub(crate) fn copied(table: &GoMap, budget: &mut ValuesBudget) -> Result<GoMap, Error> {
    copied_table(table, 0, budget)
}

fn copied_table(table: &GoMap, depth: usize, budget: &mut ValuesBudget) -> Result<GoMap, Error> {
    budget.spend_table()?;
    let mut entries = table.entries();
    for (_, value) in &mut entries {
        *value = copied_value(value, depth + 1, budget)?;
    }
    Ok(GoMap::new(table.item_type().clone(), entries))
}

fn copied_value(
    value: &GoRuntimeValue,
    depth: usize,
    budget: &mut ValuesBudget,
) -> Result<GoRuntimeValue, Error> {
    budget.spend(depth)?;
    Ok(match value {
        GoRuntimeValue::Map(table) => GoRuntimeValue::Map(copied_table(table, depth, budget)?),
        GoRuntimeValue::List(list) => {
            let items = list.items().iter().map(|item| copied_value(item, depth + 1, budget));
            let items = items.collect::<Result<_, _>>()?;
            GoRuntimeValue::List(GoSlice::with_capacity(
                list.item_type().clone(),
                items,
                list.capacity(),
            ))
        }
        other => other.clone(),
    })
}

/// Removes the nulls of a table and of the tables in it.
pub(super) fn remove_nulls(
    table: &GoMap,
    depth: usize,
    budget: &mut ValuesBudget,
) -> Result<(), Error> {
    for (key, value) in table.entries() {
        budget.spend(depth)?;
        match value {
            GoRuntimeValue::Nil => {
                table.remove(&key);
            }
            GoRuntimeValue::Map(inner) => remove_nulls(&inner, depth + 1, budget)?,
            _ => {}
        }
    }
    Ok(())
}

/// Empties all tables, so that a table that contains itself is freed.
pub(super) fn dismantle(table: &GoMap) {
    let mut pending = vec![table.clone()];
    while let Some(table) = pending.pop() {
        for (key, value) in table.entries() {
            table.remove(&key);
            if let GoRuntimeValue::Map(inner) = value {
                pending.push(inner);
            }
        }
    }
}

/// There is no table of this name.
#[derive(Debug, thiserror::Error)]
#[error("{0} is not a table")]
pub(super) struct NoTableError(String);

/// The table at a path.
pub(super) fn table_at(values: &GoMap, path: &str) -> Result<GoMap, NoTableError> {
    let mut table = values.clone();
    for name in path.split('.') {
        table = match table.get(name.as_bytes()) {
            Some(GoRuntimeValue::Map(inner)) => inner,
            Some(_) | None => {
                let quoted = quote(name.as_bytes(), QuotingStyle::Printable);
                return Err(NoTableError(String::from_utf8_lossy(&quoted).into_owned()));
            }
        };
    }
    Ok(table)
}

/// The value at a path. `None` if it is a table.
pub(super) fn value_at(values: &GoMap, path: &str) -> Option<GoRuntimeValue> {
    let found = match path.rsplit_once('.') {
        None => values.get(path.as_bytes()),
        Some((tables, name)) => table_at(values, tables).ok()?.get(name.as_bytes()),
    };
    found.filter(|value| !matches!(value, GoRuntimeValue::Map(_)))
}

/// Merges two tables as Helm merges values files. A value of `more` replaces that of `under`, and tables in both are
/// merged in the same way. The depth of the tables, which bounds the recursion, was limited when they were read.
#[must_use]
pub fn over(under: &GoMap, more: &GoMap) -> GoMap {
    let merged = GoMap::new(GoType::Any, under.entries());
    for (key, value) in more.entries() {
        let value = match (merged.get(&key), value) {
            (Some(GoRuntimeValue::Map(under)), GoRuntimeValue::Map(more)) => {
                GoRuntimeValue::Map(over(&under, &more))
            }
            (_, value) => value,
        };
        merged.insert(key, value);
    }
    merged
}
