//! Merges lists item by item.
//!
//! Parity(kustomize): this follows kyaml step by step, since the result for unusual lists (items without keys, with the same
//! keys, with some of several keys) depends on those steps.

use goyaml::v3::{YamlNode, YamlNodeKind, YamlNodeStyle};

use super::arena::{ArenaNodeId, MergeNodeArena};
use super::merge_keys::{self, MergeKeyValues};
use super::{MergedValue, StrategicMergeError, TargetAndPatchNodes};
use crate::openapi_schema::ResourceSchema;

/// A list that is being merged, item by item.
pub(super) struct ListMergeFrame<'s> {
    /// The schema of its items.
    pub(super) schema: Option<ResourceSchema<'s>>,
    value: MergedValue,
    sources: TargetAndPatchNodes,
    keys: Vec<String>,
    tuples: Vec<MergeKeyValues>,
    /// Which of the keys any item has.
    used: Vec<bool>,
    next: usize,
    /// The keys and values of the item that is waited for.
    valid_keys: Vec<String>,
    valid_values: Vec<String>,
    /// The items that are complete.
    done: ArenaNodeId,
}

impl<'s> ListMergeFrame<'s> {
    pub(super) fn new(
        arena: &mut MergeNodeArena<'_>,
        sources: TargetAndPatchNodes,
        value: MergedValue,
        schema: Option<&ResourceSchema<'s>>,
    ) -> Result<Self, StrategicMergeError> {
        let mut keys = schema.map(ResourceSchema::merge_keys).unwrap_or_default();
        // The patch's items come first.
        let lists: Vec<ArenaNodeId> =
            [sources.patch, sources.target].into_iter().flatten().collect();
        let mut tuples = merge_keys::of_items(arena, &lists, &keys)?;
        if keys.is_empty() {
            tuples = merge_keys::of_scalars(arena, &lists);
            keys = vec![String::new()];
        }
        if keys.len() > 1 {
            merge_keys::complete(arena, &mut tuples)?;
        }
        let used = merge_keys::used_keys(&tuples, &keys);
        let done = arena.push(YamlNode { kind: YamlNodeKind::Sequence, ..YamlNode::default() });
        Ok(Self {
            schema: schema.and_then(ResourceSchema::elements),
            value,
            sources,
            keys,
            tuples,
            used,
            next: 0,
            valid_keys: Vec::new(),
            valid_values: Vec::new(),
            done,
        })
    }

    /// The next pair of items to merge; `None` at the end.
    pub(super) fn next(
        &mut self,
        arena: &mut MergeNodeArena,
    ) -> Result<Option<TargetAndPatchNodes>, StrategicMergeError> {
        let Some(tuple) = self.tuples.get(self.next) else { return Ok(None) };
        self.next += 1;
        self.valid_keys = merge_keys::only(&self.used, &self.keys);
        self.valid_values = merge_keys::only(&self.used, tuple);
        // An item is found by the keys for which it has a value.
        let used =
            merge_keys::used_keys(std::slice::from_ref(&self.valid_values), &self.valid_keys);
        let keys = merge_keys::only(&used, &self.valid_keys);
        let values = merge_keys::only(&used, &self.valid_values);
        let mut find = |list: Option<ArenaNodeId>| {
            list.map_or(Ok(None), |list| find_item(arena, list, &keys, &values))
        };
        Ok(Some(TargetAndPatchNodes {
            target: find(self.sources.target)?,
            patch: find(self.sources.patch)?,
        }))
    }

    /// Takes an item of the list after its merge. An item with content is put into the merged list. `None` or an empty
    /// item is removed.
    pub(super) fn take(
        &mut self,
        arena: &mut MergeNodeArena<'_>,
        item: Option<MergedValue>,
    ) -> Result<(), StrategicMergeError> {
        let keys = &self.valid_keys;
        let values = &self.valid_values;
        let Some(item) = item.filter(|item| !arena.is_null_or_empty_map(item.id)) else {
            for _ in keys {
                set_item(arena, self.value.id, None, keys, values)?;
            }
            return Ok(());
        };
        for (key, value) in keys.iter().zip(values) {
            if value.is_empty() || arena.entry(item.id, key)?.is_some() {
                continue;
            }
            let node = YamlNode { value: value.clone(), ..YamlNode::default() };
            if key.is_empty() {
                // Parity(kustomize): an item of a list of scalars loses its tag and comments.
                arena.expect(item.id, YamlNodeKind::Scalar)?;
                let style = arena[item.id].style;
                arena[item.id] = YamlNode { style, ..node };
            } else {
                let node = arena.push(node);
                arena.set_field(item.id, key, Some((node, false)), YamlNodeStyle::default())?;
            }
        }
        set_item(arena, self.done, Some(item.id), keys, values)
    }

    /// The merged list, after all items were taken.
    pub(super) fn finish(
        &mut self,
        arena: &mut MergeNodeArena,
    ) -> Result<Option<MergedValue>, StrategicMergeError> {
        let mut value = self.value;
        if !self.tuples.is_empty() {
            append(arena, self.done, value.id, &self.valid_keys)?;
            value = MergedValue::new(self.done);
        }
        Ok(Some(value).filter(|value| !arena.is_null(value.id)))
    }
}

/// Adds the items of `from` to `list`. They replace items with the same keys.
fn append(
    arena: &mut MergeNodeArena<'_>,
    list: ArenaNodeId,
    from: ArenaNodeId,
    keys: &[String],
) -> Result<(), StrategicMergeError> {
    for item in arena.children(from).to_vec() {
        if keys.first().is_none_or(String::is_empty) {
            let value = arena[item].value.clone();
            set_item(arena, list, Some(item), &[String::new()], &[value])?;
            continue;
        }
        let mut values = Vec::new();
        for key in keys {
            if !arena.is_null(item) {
                arena.expect(item, YamlNodeKind::Mapping)?;
            }
            match arena.entry(item, key)? {
                Some((_, value)) => values.push(arena[value].value.clone()),
                // Parity(kustomize): it is added for each key that it lacks, and again below.
                None => arena.children_mut(list).push(item),
            }
        }
        if keys.len() > 1 {
            set_item(arena, list, None, keys, &values)?;
        }
        set_item(arena, list, Some(item), keys, &values)?;
    }
    Ok(())
}

/// Replaces each item that has these values, or appends the new item if none has them. Without a new item, the matching items
/// are removed. Nulls and empty maps are always removed.
pub(super) fn set_item(
    arena: &mut MergeNodeArena<'_>,
    list: ArenaNodeId,
    item: Option<ArenaNodeId>,
    keys: &[String],
    values: &[String],
) -> Result<(), StrategicMergeError> {
    arena.expect(list, YamlNodeKind::Sequence)?;
    let is_for_maps = keys.first().is_some_and(|key| !key.is_empty())
        && values.first().is_some_and(|value| !value.is_empty());
    let old = std::mem::take(arena.children_mut(list));
    arena.count(old.len())?;
    let mut new = Vec::with_capacity(old.len() + 1);
    let mut is_placed = false;
    for known in old {
        if arena.is_null_or_empty_map(known) {
            continue;
        }
        if is_for_maps && arena[known].kind != YamlNodeKind::Mapping {
            new.push(known);
            continue;
        }
        if !has_values(arena, known, keys, values)? {
            if !values.is_empty() {
                new.push(known);
            }
            continue;
        }
        is_placed = true;
        new.extend(item);
    }
    if let Some(item) = item.filter(|item| !is_placed && !arena.is_null(*item)) {
        new.push(item);
    }
    *arena.children_mut(list) = new;
    Ok(())
}

/// Whether an item has all values. An empty value matches any.
fn has_values(
    arena: &mut MergeNodeArena<'_>,
    item: ArenaNodeId,
    keys: &[String],
    values: &[String],
) -> Result<bool, StrategicMergeError> {
    let mut found = false;
    for (at, key) in keys.iter().enumerate() {
        // Parity(kustomize): for a key without a value, what was found for the one before counts.
        if let Some(value) = values.get(at) {
            found = has_value(arena, item, key, value)?;
        }
        if !found {
            return Ok(false);
        }
    }
    Ok(found)
}

fn has_value(
    arena: &mut MergeNodeArena<'_>,
    item: ArenaNodeId,
    key: &str,
    value: &str,
) -> Result<bool, StrategicMergeError> {
    if key.is_empty() {
        arena.expect(item, YamlNodeKind::Scalar)?;
        return Ok(arena[item].value == value);
    }
    arena.expect(item, YamlNodeKind::Mapping)?;
    let found = arena.entry(item, key)?;
    Ok(found.is_some_and(|(_, found)| value.is_empty() || arena[found].value == value))
}

/// The first item that has exactly these values.
fn find_item(
    arena: &mut MergeNodeArena<'_>,
    list: ArenaNodeId,
    keys: &[String],
    values: &[String],
) -> Result<Option<ArenaNodeId>, StrategicMergeError> {
    if arena[list].kind != YamlNodeKind::Sequence {
        return Ok(None);
    }
    arena.count(arena.children(list).len())?;
    let is_scalar = keys.first().is_none_or(String::is_empty);
    for at in 0..arena.children(list).len() {
        let item = arena.children(list)[at];
        if is_scalar {
            if values.first().is_some_and(|value| arena[item].value == *value) {
                return Ok(Some(item));
            }
            continue;
        }
        let mut has_all = arena[item].kind == YamlNodeKind::Mapping && !arena.is_null(item);
        for (key, value) in keys.iter().zip(values) {
            has_all = has_all
                && arena.entry(item, key)?.is_some_and(|(_, found)| arena[found].value == *value);
        }
        if has_all {
            return Ok(Some(item));
        }
    }
    Ok(None)
}
