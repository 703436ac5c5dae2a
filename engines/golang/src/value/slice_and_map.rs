//! Slices and maps.
//!
//! Dropping them does not recurse: a template can nest lists as deep as it likes.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::{GoRuntimeValue, GoString, GoType};

/// A slice of Go: items of one type, which may be `interface {}`, with room behind them.
#[derive(Debug, Clone)]
pub struct GoSlice(Arc<GoSliceItems>);

#[derive(Debug)]
struct GoSliceItems {
    item_type: GoType,
    /// What the slice shows, and what is known of the room behind it.
    items: Vec<GoRuntimeValue>,
    len: usize,
    capacity: usize,
    is_nil: bool,
}

impl GoSlice {
    /// A slice without room behind its items.
    pub fn new(item_type: GoType, items: Vec<GoRuntimeValue>) -> Self {
        let len = items.len();
        Self::with_capacity(item_type, items, len)
    }

    /// A slice with room for so many items in all, which reslicing shows as zeros.
    pub fn with_capacity(item_type: GoType, items: Vec<GoRuntimeValue>, capacity: usize) -> Self {
        let len = items.len();
        let capacity = capacity.max(len);
        Self(Arc::new(GoSliceItems { item_type, items, len, capacity, is_nil: false }))
    }

    /// The slice that is nil.
    pub fn nil(item_type: GoType) -> Self {
        Self(Arc::new(GoSliceItems {
            item_type,
            items: Vec::new(),
            len: 0,
            capacity: 0,
            is_nil: true,
        }))
    }

    /// The type of the items.
    pub fn item_type(&self) -> &GoType {
        &self.0.item_type
    }

    /// Whether it was never made; such a slice is empty.
    pub fn is_nil(&self) -> bool {
        self.0.is_nil
    }

    /// How many items reslicing can show.
    pub fn capacity(&self) -> usize {
        self.0.capacity
    }

    /// The items.
    pub fn items(&self) -> &[GoRuntimeValue] {
        &self.0.items[..self.0.len]
    }

    /// How many items there are.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Go's `list[from:to:capacity]`; `None` unless `from <= to <= capacity`, and the list has that capacity.
    pub fn slice(&self, from: usize, to: usize, capacity: usize) -> Option<Self> {
        if from > to || to > capacity || capacity > self.0.capacity {
            return None;
        }
        let known = self.0.items.len();
        let mut items = self.0.items[from.min(known)..known.min(capacity)].to_vec();
        let len = to - from;
        while items.len() < len {
            items.push(self.0.item_type.zero());
        }
        let item_type = self.0.item_type.clone();
        let capacity = capacity - from;
        Some(Self(Arc::new(GoSliceItems {
            item_type,
            items,
            len,
            capacity,
            is_nil: self.0.is_nil,
        })))
    }

    /// Whether both are the same slice, not only equal ones.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// A number that no other slice has while this one exists.
    pub fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

impl Drop for GoSliceItems {
    fn drop(&mut self) {
        dismantle(std::mem::take(&mut self.items));
    }
}

/// A map of Go with strings as keys, ordered byte by byte.
///
/// Clones are the same map: a change through one is seen through all.
/// A map that was put into itself is never freed.
#[derive(Debug, Clone)]
pub struct GoMap(Arc<GoMapEntries>);

#[derive(Debug)]
struct GoMapEntries {
    item_type: GoType,
    entries: RwLock<BTreeMap<GoString, GoRuntimeValue>>,
    is_nil: bool,
}

impl Default for GoMap {
    /// An empty `map[string]interface {}`.
    fn default() -> Self {
        Self::new(GoType::Any, [])
    }
}

impl GoMap {
    /// A map with some entries; of equal keys the last counts.
    pub fn new(
        item_type: GoType,
        entries: impl IntoIterator<Item = (GoString, GoRuntimeValue)>,
    ) -> Self {
        let entries = RwLock::new(entries.into_iter().collect());
        Self(Arc::new(GoMapEntries { item_type, entries, is_nil: false }))
    }

    /// The map that is nil, in which nothing can be put.
    pub fn nil(item_type: GoType) -> Self {
        Self(Arc::new(GoMapEntries { item_type, entries: RwLock::default(), is_nil: true }))
    }

    /// The type of the values.
    pub fn item_type(&self) -> &GoType {
        &self.0.item_type
    }

    /// Whether it was never made; such a map is empty.
    pub fn is_nil(&self) -> bool {
        self.0.is_nil
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Option<GoRuntimeValue> {
        self.read().get(key).cloned()
    }

    /// Whether there is such a key.
    pub fn contains_key(&self, key: &[u8]) -> bool {
        self.read().contains_key(key)
    }

    /// Puts a value under a key and gives back the former value.
    ///
    /// # Assumes
    /// The map is not nil, where Go panics, and the value is of the type of the map's values.
    pub fn insert(
        &self,
        key: impl Into<GoString>,
        value: GoRuntimeValue,
    ) -> Option<GoRuntimeValue> {
        self.write().insert(key.into(), value)
    }

    /// Removes a key and gives back its value.
    pub fn remove(&self, key: &[u8]) -> Option<GoRuntimeValue> {
        self.write().remove(key)
    }

    /// Keys and values as they are now, in the order of the keys.
    pub fn entries(&self) -> Vec<(GoString, GoRuntimeValue)> {
        self.read().iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.read().len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.read().is_empty()
    }

    /// Whether both are the same map, not only equal ones.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// A number that no other map has while this one exists.
    pub fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    // No code of others runs while the lock is held, so a panic elsewhere cannot leave the entries half changed.
    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<GoString, GoRuntimeValue>> {
        self.0.entries.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<GoString, GoRuntimeValue>> {
        self.0.entries.write()
    }
}

impl Drop for GoMapEntries {
    fn drop(&mut self) {
        let entries = self.entries.get_mut();
        dismantle(std::mem::take(entries).into_values().collect());
    }
}

/// Drops values, and what only they hold, from a list instead of from the stack.
fn dismantle(mut pending: Vec<GoRuntimeValue>) {
    while let Some(value) = pending.pop() {
        match value {
            GoRuntimeValue::List(GoSlice(slice)) => {
                if let Some(mut slice) = Arc::into_inner(slice) {
                    pending.append(&mut slice.items);
                }
            }
            GoRuntimeValue::Map(GoMap(table)) => {
                if let Some(mut table) = Arc::into_inner(table) {
                    let entries = table.entries.get_mut();
                    pending.extend(std::mem::take(entries).into_values());
                }
            }
            other => drop(other),
        }
    }
}
