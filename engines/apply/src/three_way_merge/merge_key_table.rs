//! The fields by which lists of built-in kinds are merged, according to the struct tags of Kubernetes 1.36 in Go's
//! client.
//!
//! Here: reading the table. Elsewhere: merging by these fields ([`super`]), and the program that writes the table
//! (`e2e/testbed/types/mergekeys`, which says how to run it).
//!
//! A line that begins with `@` has an API version, and its kinds with the numbers of their types. The other lines are the
//! types, in order: of each field that matters its name, `~` if a map or an item keeps no key that is not wanted, `=` if
//! it is replaced, `[` and the key by which items are known (none: items are strings), and `:` with the number of its type.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use objects::Object;

/// How a field is merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct FieldMergeRule {
    /// Whether a map, or each item of a list, loses the keys that the manifest does not have.
    pub(super) retains_wanted_only: bool,
    /// Whether a map is replaced as a whole.
    pub(super) is_replaced: bool,
    /// The merge key of the items of a list. `None` if the list is replaced as a whole.
    pub(super) items: Option<ListMergeKey>,
    /// The index of the type of the map, or of the items.
    pub(super) below: Option<usize>,
}

/// The merge key of the items of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListMergeKey {
    /// The items are strings, and each string is its own key.
    Strings,
    /// The items are objects, and this field is their key.
    By(&'static str),
}

#[derive(Default)]
struct MergeKeys {
    kinds: BTreeMap<(&'static str, &'static str), usize>,
    types: Vec<BTreeMap<&'static str, FieldMergeRule>>,
}

static MERGE_TABLE: LazyLock<MergeKeys> = LazyLock::new(|| read(include_str!("keys.txt")));

fn read(text: &'static str) -> MergeKeys {
    let mut table = MergeKeys::default();
    for line in text.lines() {
        match line.strip_prefix('@') {
            Some(line) => {
                let mut words = line.split(' ');
                let version = words.next().unwrap_or_default();
                while let (Some(kind), Some(number)) = (words.next(), words.next()) {
                    if let Ok(number) = number.parse() {
                        table.kinds.insert((version, kind), number);
                    }
                }
            }
            None => table.types.push(line.split(' ').filter_map(field).collect()),
        }
    }
    table
}

fn field(word: &'static str) -> Option<(&'static str, FieldMergeRule)> {
    let (word, below) = match word.split_once(':') {
        Some((word, number)) => (word, Some(number.parse().ok()?)),
        None => (word, None),
    };
    let (word, items) = match word.split_once('[') {
        Some((word, "")) => (word, Some(ListMergeKey::Strings)),
        Some((word, key)) => (word, Some(ListMergeKey::By(key))),
        None => (word, None),
    };
    let name = word.trim_end_matches(['~', '=']);
    let retains_wanted_only = word.ends_with('~');
    let is_replaced = word.ends_with('=');
    let field = FieldMergeRule { retains_wanted_only, is_replaced, items, below };
    (!name.is_empty()).then_some((name, field))
}

/// The index of an object's type. `None` for kinds that are not built in.
pub(super) fn type_of(object: &Object) -> Option<usize> {
    MERGE_TABLE.kinds.get(&(object.api_version(), object.kind())).copied()
}

/// How a field of a type is merged.
pub(super) fn of(type_: Option<usize>, name: &str) -> FieldMergeRule {
    let fields = type_.and_then(|number| MERGE_TABLE.types.get(number));
    fields.and_then(|fields| fields.get(name)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_the_table_is_read_and_leads_to_a_type() {
        let text = include_str!("keys.txt");
        let words = text.lines().filter(|line| !line.starts_with('@')).flat_map(|it| it.split(' '));
        let words = words.filter(|word| !word.is_empty()).count();
        let fields = || MERGE_TABLE.types.iter().flat_map(BTreeMap::values);
        assert_eq!(fields().count(), words);
        let mut below =
            fields().filter_map(|it| it.below).chain(MERGE_TABLE.kinds.values().copied());
        assert!(below.all(|number| number < MERGE_TABLE.types.len()));
        assert!(MERGE_TABLE.kinds.contains_key(&("apps/v1", "Deployment")));
    }
}
