//! What kustomize has built in: which lists of Kubernetes' own kinds are merged, by which keys, and which kinds live in
//! namespaces.
//!
//! The tables (`builtin/*.txt`) were made by a Go program from what kyaml 0.21.1 (kustomize 5.8.1) has built in:
//! Kubernetes 1.21.2 and Kustomization. It kept what a merged list or a field of any content can be reached through;
//! shapes that are the same are one. All but the shapes are in the order of their names, so that they can be searched:
//! every process asks a few of many lines.
//!
//! Elsewhere: what documents and comments add (`read.rs`).

use std::sync::LazyLock;

/// API version and kind.
type TypeIdentifier = (&'static str, &'static str);

/// A shape a line, referred to by its number from 0: `map FIELD=SHAPE…`, where `*` is any other field,
/// `list []=SHAPE` or `merge:KEYS []=SHAPE`.
static SHAPES: LazyLock<Vec<&'static str>> =
    LazyLock::new(|| include_str!("builtin/shapes.txt").lines().collect());

static DEFINITIONS: LazyLock<Vec<(&'static str, &'static str)>> = LazyLock::new(|| {
    let lines = include_str!("builtin/definitions.txt").lines();
    lines.filter_map(|line| line.split_once(' ')).collect()
});

static KINDS: LazyLock<Vec<(TypeIdentifier, &'static str)>> =
    LazyLock::new(|| of_kinds(include_str!("builtin/kinds.txt")));

static SCOPES: LazyLock<Vec<(TypeIdentifier, &'static str)>> =
    LazyLock::new(|| of_kinds(include_str!("builtin/scopes.txt")));

/// The kinds of a table. A line that cannot be read is skipped; a test verifies that there is none.
fn of_kinds(table: &'static str) -> Vec<(TypeIdentifier, &'static str)> {
    let line = |line: &'static str| {
        let (api_version, rest) = line.split_once(' ')?;
        let (kind, what) = rest.split_once(' ')?;
        Some(((api_version, kind), what))
    };
    table.lines().filter_map(line).collect()
}

fn find<K: Ord>(table: &[(K, &'static str)], name: &K) -> Option<&'static str> {
    let at = table.binary_search_by(|(known, _)| known.cmp(name)).ok()?;
    table.get(at).map(|(_, what)| *what)
}

/// Whether objects of a kind live in namespaces.
pub(super) fn is_namespaced(api_version: &str, kind: &str) -> Option<bool> {
    // The name that is looked for may live shorter than the table.
    let table: &[((&str, &str), &'static str)] = &SCOPES;
    find(table, &(api_version, kind)).map(|scope| scope == "namespace")
}

/// The shape of a kind.
pub(super) fn of(api_version: &str, kind: &str) -> Option<BuiltinShape> {
    let table: &[((&str, &str), &'static str)] = &KINDS;
    find(table, &(api_version, kind)).and_then(BuiltinShape::numbered)
}

/// The shape of a definition.
pub(super) fn definition(name: &str) -> Option<BuiltinShape> {
    let table: &[(&str, &'static str)] = &DEFINITIONS;
    find(table, &name).and_then(BuiltinShape::numbered)
}

/// A line of the table of shapes.
#[derive(Debug, Clone, Copy)]
pub(super) struct BuiltinShape(&'static str);

impl BuiltinShape {
    fn numbered(number: &str) -> Option<Self> {
        SHAPES.get(number.parse::<usize>().ok()?).map(|line| Self(line))
    }

    /// What it is, the keys by which items are merged, and its parts.
    fn parts(self) -> (&'static str, &'static str, &'static str) {
        let (what, parts) = self.0.split_once(' ').unwrap_or((self.0, ""));
        let (what, keys) = what.split_once(':').unwrap_or((what, ""));
        (what, keys, parts)
    }

    fn part(self, name: &str) -> Option<Self> {
        let mut parts = self.parts().2.split(' ').filter_map(|part| part.split_once('='));
        parts.find(|(known, _)| *known == name).and_then(|(_, number)| Self::numbered(number))
    }

    /// The shape of a field.
    pub(super) fn field(self, name: &str) -> Option<Self> {
        let named = if matches!(name, "[]" | "*") { None } else { self.part(name) };
        named.or_else(|| self.part("*"))
    }

    /// The shape of a list's items.
    pub(super) fn items(self) -> Option<Self> {
        self.part("[]").filter(|_| matches!(self.parts().0, "list" | "merge"))
    }

    /// Whether a list is merged item by item.
    pub(super) fn is_merged(self) -> bool {
        self.parts().0 == "merge"
    }

    /// The fields that make its items the same.
    pub(super) fn keys(self) -> impl Iterator<Item = &'static str> {
        self.parts().1.split(',').filter(|key| !key.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_tables_says_something_and_can_be_found() {
        let lines = |table: &str| table.lines().count();
        assert_eq!(DEFINITIONS.len(), lines(include_str!("builtin/definitions.txt")));
        assert_eq!(KINDS.len(), lines(include_str!("builtin/kinds.txt")));
        assert_eq!(SCOPES.len(), lines(include_str!("builtin/scopes.txt")));
        assert!(DEFINITIONS.is_sorted() && KINDS.is_sorted() && SCOPES.is_sorted());
        assert!(DEFINITIONS.iter().all(|(name, _)| definition(name).is_some()));
        assert!(KINDS.iter().all(|((api_version, kind), _)| of(api_version, kind).is_some()));
        assert!(SCOPES.iter().all(|(_, scope)| matches!(*scope, "namespace" | "cluster")));
        assert!(SHAPES.len() > 100);
        for line in SHAPES.iter() {
            let (what, _, parts) = BuiltinShape(line).parts();
            assert!(matches!(what, "map" | "list" | "merge"), "{line}");
            let numbers = parts.split(' ').filter(|part| !part.is_empty());
            let mut numbers = numbers.map(|part| part.split_once('=').map(|(_, number)| number));
            assert!(numbers.all(|it| it.and_then(BuiltinShape::numbered).is_some()), "{line}");
        }
    }
}
