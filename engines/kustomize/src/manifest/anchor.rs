//! Replaces YAML aliases and merge keys by the nodes that they refer to.

use std::collections::{BTreeMap, BTreeSet};

use golang::work_meter::WorkLimitExceeded;
use goyaml::v3::{AnchorOrCommentKind, YamlNode, YamlNodeKind};

use crate::budget::BuildBudget;
use crate::error::{Error, Result};
use crate::field_edit;

/// Replaces each alias by a copy of its anchor's node, and each merge key by the entries that it refers to.
///
/// # Errors
/// A merge key refers to something other than maps, a map has two merge keys, the result has more than `most` nodes, or an
/// alias is within its own anchor.
pub(super) fn expand(root: YamlNode, most: usize, budget: &BuildBudget) -> Result<YamlNode> {
    let has_any = root.walk().any(|(_, node)| {
        node.kind == YamlNodeKind::Alias
            || !node.notes.get(AnchorOrCommentKind::Anchor).is_empty()
            || node.tag == "!!merge"
            || has_null_key(node)
    });
    if !has_any {
        return Ok(root);
    }
    let left = budget.bytes_left();
    let expanded = AliasExpansion { anchors: BTreeMap::new(), left: most, budget }.node(root);
    // The caller keeps the result and counts its memory.
    budget.free_to(left);
    expanded
}

/// Whether a map has a key that is null.
fn has_null_key(node: &YamlNode) -> bool {
    node.kind == YamlNodeKind::Mapping && node.content.iter().step_by(2).any(field_edit::is_null)
}

struct AliasExpansion<'b> {
    /// The nodes of the anchors so far, by name.
    anchors: BTreeMap<String, YamlNode>,
    left: usize,
    budget: &'b BuildBudget,
}

impl AliasExpansion<'_> {
    fn node(&mut self, mut node: YamlNode) -> Result<YamlNode> {
        if node.kind == YamlNodeKind::Alias {
            return self.copy(&node.value);
        }
        let anchor = node.notes.take(AnchorOrCommentKind::Anchor);
        if node.kind == YamlNodeKind::Mapping {
            self.merge(&mut node)?;
        }
        for child in std::mem::take(&mut *node.content) {
            let child = self.node(child)?;
            node.content.push(child);
        }
        if !anchor.is_empty() {
            self.budget.keep(&node)?;
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    /// A copy of the node that an alias refers to.
    fn copy(&mut self, name: &str) -> Result<YamlNode> {
        let Some(target) = self.anchors.get(name) else {
            return Err(Error::new(format!("yaml: anchor '{name}' value contains itself")));
        };
        let size = target.walk().count();
        let excessive = || Error::new("yaml: document contains excessive aliasing");
        self.left = self.left.checked_sub(size).ok_or_else(excessive)?;
        self.budget.keep(target).map_err(|exhausted| match exhausted {
            WorkLimitExceeded::Bytes(_) => excessive(),
            WorkLimitExceeded::Steps(_) | WorkLimitExceeded::Time => exhausted.into(),
        })?;
        Ok(target.clone())
    }

    /// Adds the entries of a merge key to a map. Entries of the map itself take precedence, then those of earlier merged maps.
    fn merge(&mut self, map: &mut YamlNode) -> Result<()> {
        let keys = (0..map.content.len() / 2).map(|pair| 2 * pair);
        let merges: Vec<usize> = keys.filter(|at| map.content[*at].tag == "!!merge").collect();
        let at = match merges.as_slice() {
            [] => {
                // Parity(kustomize): it sets all entries anew, and never finds a key that is null, which then comes
                // twice.
                if has_null_key(map) {
                    let entries = map.content.to_vec();
                    set_entries(map, entries);
                }
                return Ok(());
            }
            [at] => *at,
            _ => return Err(Error::new("duplicate merge key")),
        };
        let value = map.content.drain(at..at + 2).nth(1).unwrap_or_default();
        let mut result = map.clone();
        for source in self.sources(value)? {
            set_entries(&mut result, source.content.to_vec());
        }
        set_entries(&mut result, std::mem::take(&mut *map.content));
        *map = result;
        Ok(())
    }

    /// The maps of a merge key, the weakest first.
    fn sources(&mut self, value: YamlNode) -> Result<Vec<YamlNode>> {
        match value.kind {
            YamlNodeKind::Mapping => Ok(vec![value]),
            YamlNodeKind::Alias => {
                let target = self.copy(&value.value)?;
                if target.kind != YamlNodeKind::Mapping {
                    let text = "invalid map merge: received alias for a non-map value";
                    return Err(Error::new(text));
                }
                Ok(vec![target])
            }
            YamlNodeKind::Sequence => {
                let mut all = Vec::new();
                for item in value.content.iter().rev() {
                    if item.kind == YamlNodeKind::Sequence {
                        return Err(Error::new("invalid map merge: received a nested sequence"));
                    }
                    all.extend(self.sources(item.clone())?);
                }
                Ok(all)
            }
            YamlNodeKind::Scalar | YamlNodeKind::Document => {
                let text = "map merge requires map or sequence of maps as the value";
                Err(Error::new(text))
            }
        }
    }
}

/// Sets entries one after the other. An existing entry also gets the new key node.
fn set_entries(map: &mut YamlNode, entries: Vec<YamlNode>) {
    // The positions of the keys. If a key occurs twice, the first one counts.
    let mut known: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
    for (pair, key) in map.content.iter().step_by(2).enumerate() {
        known.entry(key.value.clone()).or_default().insert(2 * pair);
    }
    let mut entries = entries.into_iter();
    while let (Some(key), Some(value)) = (entries.next(), entries.next()) {
        let found = known.get(field_edit::text(&key)).and_then(BTreeSet::first).copied();
        let at = found.unwrap_or(map.content.len());
        if found.is_none() {
            map.content.extend([YamlNode::default(), YamlNode::default()]);
        }
        if found.is_none() || map.content[at].value != key.value {
            if let Some(places) = known.get_mut(&map.content[at].value) {
                places.remove(&at);
            }
            known.entry(key.value.clone()).or_default().insert(at);
        }
        map.content[at] = key;
        map.content[at + 1] = value;
    }
}
