//! Go's slices and maps.
//!
//! Dropping them does not recurse, because a template can nest lists to any depth.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::{GoRuntimeValue, GoString, GoType};

/// A Go slice: items of one type, which may be `interface {}`, with spare capacity after them.
#[derive(Debug, Clone)]
pub struct GoSlice(Arc<GoSliceItems>);

#[derive(Debug)]
struct GoSliceItems {
    item_type: GoType,
    /// The visible items, and the known items in the spare capacity.
    items: Vec<GoRuntimeValue>,
    len: usize,
    capacity: usize,
    is_nil: bool,
}

impl GoSlice {
    /// A slice without spare capacity.
    pub fn new(item_type: GoType, items: Vec<GoRuntimeValue>) -> Self {
        let len = items.len();
        Self::with_capacity(item_type, items, len)
    }

    /// A slice with this capacity. Reslicing shows the spare part as zeros.
    pub fn with_capacity(item_type: GoType, items: Vec<GoRuntimeValue>, capacity: usize) -> Self {
        let len = items.len();
        let capacity = capacity.max(len);
        Self(Arc::new(GoSliceItems { item_type, items, len, capacity, is_nil: false }))
    }

    /// Go's nil slice of this item type.
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

    /// Whether this is the nil slice, which is empty.
    pub fn is_nil(&self) -> bool {
        self.0.is_nil
    }

    /// The capacity: how many items reslicing can show.
    pub fn capacity(&self) -> usize {
        self.0.capacity
    }

    /// The items of the slice.
    pub fn items(&self) -> &[GoRuntimeValue] {
        &self.0.items[..self.0.len]
    }

    /// How many items there are.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether the slice is empty.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Go's `list[from:to:capacity]`. `None` unless `from <= to <= capacity`, and the slice has that capacity.
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

    /// Whether both are the same slice, and not only equal ones.
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

/// A Go map with strings as keys, sorted byte by byte.
///
/// A clone is the same map, so a change through one clone is visible in all. A map that contains itself is never freed.
#[derive(Debug, Clone)]
pub struct GoMap(Arc<GoMapEntries>);

#[derive(Debug)]
struct GoMapEntries {
    item_type: GoType,
    entries: RwLock<BTreeMap<GoString, GoRuntimeValue>>,
    is_nil: bool,
}

impl Default for GoMap {
    /// An empty map of Go's type `map[string]interface {}`.
    fn default() -> Self {
        Self::new(GoType::Any, [])
    }
}

impl GoMap {
    /// A map with these entries. If a key occurs several times, the last entry counts.
    pub fn new(
        item_type: GoType,
        entries: impl IntoIterator<Item = (GoString, GoRuntimeValue)>,
    ) -> Self {
        let entries = RwLock::new(entries.into_iter().collect());
        Self(Arc::new(GoMapEntries { item_type, entries, is_nil: false }))
    }

    /// The nil map, into which no entry can be put.
    pub fn nil(item_type: GoType) -> Self {
        Self(Arc::new(GoMapEntries { item_type, entries: RwLock::default(), is_nil: true }))
    }

    /// The type of the values.
    pub fn item_type(&self) -> &GoType {
        &self.0.item_type
    }

    /// Whether this is the nil map, which is empty.
    pub fn is_nil(&self) -> bool {
        self.0.is_nil
    }

    /// The value of a key. `None` if the map does not have the key.
    pub fn get(&self, key: &[u8]) -> Option<GoRuntimeValue> {
        self.read().get(key).cloned()
    }

    /// Whether the map has this key.
    pub fn contains_key(&self, key: &[u8]) -> bool {
        self.read().contains_key(key)
    }

    /// Sets the value of a key and returns the former value. `None` if the key is new.
    ///
    /// # Assumes
    /// The map is not nil, for which Go panics. The value has the type of the map's values.
    pub fn insert(
        &self,
        key: impl Into<GoString>,
        value: GoRuntimeValue,
    ) -> Option<GoRuntimeValue> {
        self.write().insert(key.into(), value)
    }

    /// Removes a key and returns its value. `None` if the map did not have the key.
    pub fn remove(&self, key: &[u8]) -> Option<GoRuntimeValue> {
        self.write().remove(key)
    }

    /// The present keys and values, in the order of the keys.
    pub fn entries(&self) -> Vec<(GoString, GoRuntimeValue)> {
        self.read().iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// How many keys the map has.
    pub fn len(&self) -> usize {
        self.read().len()
    }

    /// Whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.read().is_empty()
    }

    /// Whether both are the same map, and not only equal ones.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// A number that no other map has while this one exists.
    pub fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    // No foreign code runs while the lock is held, so a panic elsewhere cannot leave the entries half changed.
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

/// Drops values and their content by a list, without using the stack.
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
