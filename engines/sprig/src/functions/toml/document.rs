//! The document during reading: its tables, and which keys may still be set.
//! Elsewhere: parsing the text (`parse.rs`).

use std::collections::{BTreeMap, BTreeSet};

use golang::GoRuntimeValue;
use golang::value::{GoMap, GoSlice, GoString, GoType};

use super::encode::string;

/// The deepest nesting of tables. The Go library has no limit.
pub(super) const MAX_DEPTH: usize = 500;

type TomlTable = BTreeMap<GoString, TomlItem>;

/// The value of a key.
#[derive(Debug)]
enum TomlItem {
    Value(GoRuntimeValue),
    Table(TomlTable),
    /// The tables with the same array header. The last one is the current table.
    Tables(Vec<TomlTable>),
}

/// Tables and keys so far.
#[derive(Debug, Default)]
pub(super) struct TomlDocument {
    root: TomlTable,
    /// The table that keys belong to.
    pub(super) context: Vec<GoString>,
    /// The key whose value is being read.
    pub(super) key: GoString,
    /// Tables that were only implied by other keys, so that they may still be defined.
    implicit: BTreeSet<Vec<u8>>,
    /// Keys that hold arrays.
    arrays: BTreeSet<Vec<u8>>,
}

/// The result of setting a key. The caller adds the line to the error.
type TomlInsertResult = Result<(), String>;

impl TomlDocument {
    /// The last key in errors.
    pub(super) fn last_key(&self) -> Vec<u8> {
        let context = shown(&self.context);
        match (self.key.is_empty(), self.context.is_empty()) {
            (true, _) => context,
            (false, true) => self.key.to_vec(),
            (false, false) => [&*context, b".", &*self.key].concat(),
        }
    }

    /// Enters a table, and creates it if necessary.
    pub(super) fn enter(&mut self, key: &[GoString], is_array: bool) -> TomlInsertResult {
        let Some((last, parents)) = key.split_last() else { return Ok(()) };
        if key.len() > MAX_DEPTH {
            return Err(format!("tables are nested more than {MAX_DEPTH} deep"));
        }
        let mut table = &mut self.root;
        for (at, part) in parents.iter().enumerate() {
            if !table.contains_key(part) {
                self.implicit.insert(shown(&parents[..=at]));
                table.insert(part.clone(), TomlItem::Table(TomlTable::new()));
            }
            table = inside(table.get_mut(part)).ok_or_else(|| {
                format!("Key '{}' was already created as a hash.", lossy(&parents[..=at]))
            })?;
        }
        self.context = parents.to_vec();
        if is_array {
            let tables = table.entry(last.clone()).or_insert_with(|| TomlItem::Tables(Vec::new()));
            let TomlItem::Tables(tables) = tables else {
                return Err(format!(
                    "Key '{}' was already created and cannot be used as an array.",
                    lossy(key)
                ));
            };
            tables.push(TomlTable::new());
        } else {
            self.put(last, TomlItem::Table(TomlTable::new()))?;
        }
        self.context.push(last.clone());
        Ok(())
    }

    /// Like [`TomlDocument::enter`], for a table that is implied by a dotted key.
    pub(super) fn enter_implicitly(&mut self, key: &[GoString]) -> TomlInsertResult {
        self.imply(key);
        self.enter(key, false)
    }

    /// Notes that a table is only mentioned.
    pub(super) fn imply(&mut self, key: &[GoString]) {
        self.implicit.insert(shown(key));
    }

    /// Sets the present key to the value that was read.
    pub(super) fn set(&mut self, value: GoRuntimeValue) -> TomlInsertResult {
        self.put(&self.key.clone(), TomlItem::Value(value))
    }

    fn put(&mut self, key: &GoString, item: TomlItem) -> TomlInsertResult {
        let mut table = &mut self.root;
        for (at, part) in self.context.iter().enumerate() {
            table = inside(table.get_mut(part)).ok_or_else(|| {
                format!("Key '{}' has already been defined.", lossy(&self.context[..=at]))
            })?;
        }
        let mut path = self.context.clone();
        path.push(key.clone());
        let name = shown(&path);
        if table.contains_key(key) {
            // A table that was only implied becomes defined. An array replaces the tables in it.
            let was_implicit = self.implicit.remove(&name);
            let is_array = self.arrays.contains(&name);
            if !was_implicit {
                return Err(format!("Key '{}' has already been defined.", lossy(&path)));
            }
            if !is_array {
                return Ok(());
            }
        }
        table.insert(key.clone(), item);
        Ok(())
    }

    /// Records whether the value of a key is an array. The empty key stands for the table itself.
    pub(super) fn note_array(&mut self, key: &GoString, is_array: bool) {
        let mut path = self.context.clone();
        if !key.is_empty() || path.is_empty() {
            path.push(key.clone());
        }
        let name = shown(&path);
        if is_array {
            self.arrays.insert(name);
        } else {
            self.arrays.remove(&name);
        }
    }

    /// The whole document as a map.
    pub(super) fn finish(self) -> GoMap {
        map(self.root)
    }
}

/// The table that a key holds, which is the last one of an array of tables. `None` if the key is missing or holds a
/// plain value.
fn inside(item: Option<&mut TomlItem>) -> Option<&mut TomlTable> {
    match item? {
        TomlItem::Table(table) => Some(table),
        TomlItem::Tables(tables) => tables.last_mut(),
        TomlItem::Value(_) => None,
    }
}

fn map(table: TomlTable) -> GoMap {
    let value = |item| match item {
        TomlItem::Value(value) => value,
        TomlItem::Table(table) => GoRuntimeValue::Map(map(table)),
        TomlItem::Tables(tables) => {
            let tables = tables.into_iter().map(|table| GoRuntimeValue::Map(map(table))).collect();
            GoRuntimeValue::List(GoSlice::new(GoType::map(), tables))
        }
    };
    GoMap::new(GoType::Any, table.into_iter().map(|(key, item)| (key, value(item))))
}

/// Keys in the notation of the Go library's errors.
fn shown(keys: &[GoString]) -> Vec<u8> {
    let is_bare = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let key = |key: &GoString| {
        if !key.is_empty() && key.iter().all(is_bare) { key.to_vec() } else { string(key) }
    };
    keys.iter().map(key).collect::<Vec<_>>().join(&b'.')
}

fn lossy(keys: &[GoString]) -> String {
    String::from_utf8_lossy(&shown(keys)).into_owned()
}
