//! Nodes by number. While kyaml merges, it puts the same node into several places and changes it in all of them.
//!
//! Here: moving trees in and out, and fields of maps. Elsewhere: items of lists (`list.rs`).

use std::collections::BTreeSet;
use std::ops::{Index, IndexMut};

use goyaml::v3::{YamlNode, YamlNodeKind, YamlNodeStyle};

use super::{MAX_DEPTH, StrategicMergeError};
use crate::budget::{self, BuildBudget};
use crate::field::{self, WrongNodeKind};

/// The place of a node in the arena of a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ArenaNodeId(usize);

/// All nodes of a merge. The content of each node is empty; [`MergeNodeArena::children`] has its children instead.
#[derive(Debug)]
pub(super) struct MergeNodeArena<'b> {
    nodes: Vec<YamlNode>,
    children: Vec<Vec<ArenaNodeId>>,
    budget: &'b BuildBudget,
}

impl Index<ArenaNodeId> for MergeNodeArena<'_> {
    type Output = YamlNode;

    fn index(&self, id: ArenaNodeId) -> &YamlNode {
        &self.nodes[id.0]
    }
}

impl IndexMut<ArenaNodeId> for MergeNodeArena<'_> {
    fn index_mut(&mut self, id: ArenaNodeId) -> &mut YamlNode {
        &mut self.nodes[id.0]
    }
}

impl<'b> MergeNodeArena<'b> {
    /// An arena without nodes, which takes its costs from `budget`.
    pub(super) fn new(budget: &'b BuildBudget) -> Self {
        Self { nodes: Vec::new(), children: Vec::new(), budget }
    }

    /// Adds a node without children.
    pub(super) fn push(&mut self, node: YamlNode) -> ArenaNodeId {
        self.nodes.push(node);
        self.children.push(Vec::new());
        ArenaNodeId(self.nodes.len() - 1)
    }

    /// Adds a tree of nodes to the arena and returns the id of its root.
    pub(super) fn import(
        &mut self,
        mut root: YamlNode,
    ) -> Result<ArenaNodeId, StrategicMergeError> {
        let content = std::mem::take(&mut *root.content);
        let id = self.push(root);
        let mut left = vec![(id, content)];
        while let Some((parent, content)) = left.pop() {
            for mut node in content {
                let content = std::mem::take(&mut *node.content);
                let child = self.push(node);
                self.children[parent.0].push(child);
                if !content.is_empty() {
                    left.push((child, content));
                }
            }
        }
        Ok(id)
    }

    /// A copy of a tree, and its memory. A node with several parents is copied for each of them.
    pub(super) fn export(
        &self,
        root: ArenaNodeId,
    ) -> Result<(YamlNode, usize), StrategicMergeError> {
        // Each level has a node, the children that were copied, and the children that are left.
        let mut levels: Vec<(YamlNode, Vec<YamlNode>, &[ArenaNodeId])> = Vec::new();
        let mut weight = 0;
        let mut most = usize::try_from(self.budget.bytes_left()).unwrap_or(usize::MAX);
        let mut next = Some(root);
        loop {
            if let Some(id) = next.take() {
                let own = budget::weight_alone(&self[id]);
                weight += own;
                if own > most {
                    // Fails, because the budget is used up.
                    self.budget.bytes(weight)?;
                }
                most = most.saturating_sub(own);
                // A node that has come to contain itself has no end.
                if levels.len() > 2 * MAX_DEPTH {
                    return Err(StrategicMergeError::TooDeep);
                }
                let children = self.children(id);
                levels.push((self[id].clone(), Vec::with_capacity(children.len()), children));
            }
            let Some((_, _, left)) = levels.last_mut() else {
                return Ok((YamlNode::default(), weight));
            };
            if let Some((first, rest)) = left.split_first() {
                (next, *left) = (Some(*first), rest);
                continue;
            }
            let Some((mut node, content, _)) = levels.pop() else {
                return Ok((YamlNode::default(), weight));
            };
            node.content = content.into();
            match levels.last_mut() {
                Some((_, copied, _)) => copied.push(node),
                None => return Ok((node, weight)),
            }
        }
    }

    /// The items of a list, or the keys and values of a map.
    pub(super) fn children(&self, id: ArenaNodeId) -> &[ArenaNodeId] {
        &self.children[id.0]
    }

    /// Like [`Self::children`], but the returned children can be changed.
    pub(super) fn children_mut(&mut self, id: ArenaNodeId) -> &mut Vec<ArenaNodeId> {
        &mut self.children[id.0]
    }

    /// Counts nodes that are examined.
    pub(super) fn count(&mut self, nodes: usize) -> Result<(), StrategicMergeError> {
        Ok(self.budget.steps(nodes)?)
    }

    /// Whether a node is tagged as null.
    pub(super) fn is_null(&self, id: ArenaNodeId) -> bool {
        field::is_null(&self[id])
    }

    /// Whether a node is null, or a map or list without content.
    pub(super) fn is_nil_or_empty(&self, id: ArenaNodeId) -> bool {
        self.is_null(id)
            || matches!(self[id].kind, YamlNodeKind::Mapping | YamlNodeKind::Sequence)
                && self.children(id).is_empty()
    }

    /// Whether a node is null or an empty map.
    pub(super) fn is_null_or_empty_map(&self, id: ArenaNodeId) -> bool {
        self.is_null(id) || self[id].kind == YamlNodeKind::Mapping && self.children(id).is_empty()
    }

    /// Checks the kind of a node. A null is accepted as any kind.
    pub(super) fn expect(
        &self,
        id: ArenaNodeId,
        expected: YamlNodeKind,
    ) -> Result<(), StrategicMergeError> {
        let found = self[id].kind;
        if self.is_null(id) || found == expected {
            return Ok(());
        }
        let contents = self.export(id).map(|(node, _)| field::text(&node)).unwrap_or_default();
        Err(WrongNodeKind { expected, found, contents }.into())
    }

    /// The first entry with this key; none if the node is not a map.
    pub(super) fn entry(
        &mut self,
        map: ArenaNodeId,
        key: &str,
    ) -> Result<Option<(ArenaNodeId, ArenaNodeId)>, StrategicMergeError> {
        if self[map].kind != YamlNodeKind::Mapping {
            return Ok(None);
        }
        let children = &self.children[map.0];
        let at = children.chunks_exact(2).position(|entry| self[entry[0]].value == key);
        let entry = at.map(|at| (children[2 * at], children[2 * at + 1]));
        self.count(at.unwrap_or(self.children[map.0].len() / 2))?;
        Ok(entry)
    }

    /// The text of a map's field, unless it is missing or empty.
    pub(super) fn text_field(
        &mut self,
        map: ArenaNodeId,
        key: &str,
    ) -> Result<Option<String>, StrategicMergeError> {
        let value = self.entry(map, key)?.map(|(_, value)| value);
        let value = value.filter(|value| !self.is_nil_or_empty(*value));
        Ok(value.map(|value| self[value].value.clone()).filter(|text| !text.is_empty()))
    }

    /// Adds the keys of a map.
    pub(super) fn collect_keys(
        &mut self,
        map: ArenaNodeId,
        keys: &mut BTreeSet<String>,
    ) -> Result<(), StrategicMergeError> {
        self.expect(map, YamlNodeKind::Mapping)?;
        let found = self.children(map).iter().step_by(2);
        keys.extend(found.map(|key| self[*key].value.clone()));
        self.count(self.children(map).len())
    }

    /// Sets the value of a key like [`field::set`]. The key is removed if there is no value, or a null that must not stay. A
    /// new key has the style `key_style`.
    pub(super) fn set_field(
        &mut self,
        map: ArenaNodeId,
        key: &str,
        value: Option<(ArenaNodeId, bool)>,
        key_style: YamlNodeStyle,
    ) -> Result<(), StrategicMergeError> {
        if let Some((value, _)) = value {
            self.quote_if_ambiguous(value);
        }
        let value = value.filter(|(value, is_kept)| *is_kept || !self.is_null(*value));
        let Some((value, _)) = value else { return self.clear_field(map, key) };
        self.expect(map, YamlNodeKind::Mapping)?;
        match self.entry(map, key)? {
            Some((_, known)) => {
                self[value].style = self[known].style;
                if value != known {
                    self[known] = self[value].clone();
                    self.children[known.0] = self.children[value.0].clone();
                }
            }
            None => {
                let node =
                    YamlNode { value: key.to_owned(), style: key_style, ..YamlNode::default() };
                let key = self.push(node);
                self.children[map.0].extend([key, value]);
            }
        }
        Ok(())
    }

    /// Removes the first entry with this key.
    pub(super) fn clear_field(
        &mut self,
        map: ArenaNodeId,
        key: &str,
    ) -> Result<(), StrategicMergeError> {
        self.expect(map, YamlNodeKind::Mapping)?;
        let keys = self.children(map).iter().step_by(2);
        let at = keys.into_iter().position(|known| self[*known].value == key);
        self.count(self.children(map).len() / 2)?;
        if let Some(at) = at {
            let end = (2 * at + 2).min(self.children(map).len());
            self.children_mut(map).drain(2 * at..end);
        }
        Ok(())
    }

    fn quote_if_ambiguous(&mut self, id: ArenaNodeId) {
        field::quote_if_ambiguous(&mut self[id]);
    }
}
