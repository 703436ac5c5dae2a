//! Converts nodes to JSON. go-yaml v3 decodes a map at the root into `map[string]interface{}`, and any other node into
//! `interface{}`. `encoding/json` then writes the result. The meaning of a single scalar is in `decode/scalar.rs`.
//!
//! The decoder has its own stack of open collections.

mod scalar;

pub(super) use scalar::{binary_of, meaning};

use std::collections::{BTreeMap, BTreeSet};
use std::ptr;

use serde_json::{Map, Value};

use super::node::{YamlNode, YamlNodeKind};
use super::node_anchor_and_comments::AnchorOrCommentKind;
use super::tag;
use crate::decode::{MAX_DUPLICATES, allowed_alias_ratio};
use crate::error::Error;
use crate::go_format;
use crate::limits::{YamlBudget, YamlLimits};
use crate::reader::YamlMark;

/// Converts a document or another node to JSON, as kustomize converts its resources to objects.
///
/// Aliases and merge keys are followed, and their anchors have to be in `node`. The keys of the outermost map may be
/// any scalars, and become text. In inner maps, a key that is not text is an error, because Go cannot write such maps.
/// The result equals the parsed JSON of Go, so `1.0` is 1.
///
/// Differs(go): of several values that JSON cannot express, the error names the first in the text.
///
/// # Errors
/// A key is set twice, a scalar does not fit its tag, an alias contains itself or multiplies the document, or JSON
/// cannot represent a value. These messages are Go's. Or [`YamlLimits`] are exceeded; their depth applies to the value.
pub fn to_json(node: &YamlNode, limits: &YamlLimits) -> Result<Value, Error> {
    let (decoded, not_json) = decode(node, limits)?;
    not_json.map_or(Ok(decoded), |text| Err(Error::value(text)))
}

/// Whether Go can decode a document or another node. It is like [`to_json`], for callers that need no JSON.
///
/// # Errors
/// As for [`to_json`], except for values that only JSON cannot represent.
pub fn check(node: &YamlNode, limits: &YamlLimits) -> Result<(), Error> {
    decode(node, limits).map(drop)
}

/// The value of a node, and the first part of it that JSON cannot represent.
fn decode(node: &YamlNode, limits: &YamlLimits) -> Result<(Value, Option<String>), Error> {
    let decoder = NodeDecoder {
        targets: targets(node),
        budget: YamlBudget::new(&[], limits)?,
        frames: Vec::new(),
        maps: Vec::new(),
        merged: Vec::new(),
        depth: 0,
        followed: BTreeSet::new(),
        decoded: 0,
        aliased: 0,
        problems: Vec::new(),
        problem_line: 0,
        not_json: None,
    };
    decoder.run(node)
}

/// The node to which each alias below `root` refers, by the address of the alias.
fn targets(root: &YamlNode) -> BTreeMap<*const YamlNode, &YamlNode> {
    let mut anchors = BTreeMap::new();
    let mut targets = BTreeMap::new();
    for (_, node) in root.walk() {
        if node.kind == YamlNodeKind::Alias {
            if let Some(target) = anchors.get(node.value.as_str()) {
                targets.insert(ptr::from_ref(node), *target);
            }
        } else if !node.notes.get(AnchorOrCommentKind::Anchor).is_empty() {
            anchors.insert(node.notes.get(AnchorOrCommentKind::Anchor), node);
        }
    }
    targets
}

/// A map that is being filled.
struct YamlMapBuilder {
    entries: Map<String, Value>,
    /// Whether a key that is not text becomes text. This holds at the root, and for a map with string keys that merges
    /// other maps.
    takes_all: bool,
}

/// A complete value, or `None` where a problem has been noted instead.
type DecodedValue = Option<Value>;

/// An open part of the tree that waits for a value below it.
enum NodeDecodeFrame<'n> {
    Sequence {
        node: &'n YamlNode,
        next: usize,
        items: Vec<Value>,
    },
    Mapping {
        node: &'n YamlNode,
        next: usize,
        /// The index of the map that is being filled. A merged mapping fills the map of another one.
        map: usize,
        /// The keys that are set, if this one is merged.
        merged: Option<usize>,
        key: Option<String>,
        /// Whether the key is a list or map, which is an error once it is decoded.
        is_key: bool,
        merge: Option<&'n YamlNode>,
        /// Which set of keys it has made for what it merges.
        owned: Option<usize>,
    },
    /// The remaining mappings of a merge key, the next one last.
    Merges {
        left: Vec<&'n YamlNode>,
        map: usize,
        merged: usize,
    },
    Alias(*const YamlNode),
}

struct NodeDecoder<'n> {
    targets: BTreeMap<*const YamlNode, &'n YamlNode>,
    budget: YamlBudget,
    frames: Vec<NodeDecodeFrame<'n>>,
    maps: Vec<YamlMapBuilder>,
    merged: Vec<BTreeSet<String>>,
    depth: usize,
    followed: BTreeSet<*const YamlNode>,
    /// How many nodes were decoded, and how many of them within aliases.
    decoded: usize,
    aliased: usize,
    /// Problems that do not end the decoding.
    problems: Vec<String>,
    problem_line: u32,
    /// The first value that JSON cannot represent.
    not_json: Option<String>,
}

impl<'n> NodeDecoder<'n> {
    fn run(mut self, root: &'n YamlNode) -> Result<(Value, Option<String>), Error> {
        let mut done = self.begin(root, None)?;
        loop {
            if let Some(value) = done.take() {
                self.close_aliases();
                let Some(frame) = self.frames.last_mut() else { return self.finish(value) };
                if let Some((map, key, value)) = deliver(frame, value)?
                    && let Some(map) = self.maps.get_mut(map)
                {
                    map.entries.insert(key, value);
                }
            }
            done = self.step()?;
        }
    }

    fn finish(self, value: DecodedValue) -> Result<(Value, Option<String>), Error> {
        if !self.problems.is_empty() {
            return Err(Error::duplicates(&self.problems, mark(self.problem_line)));
        }
        Ok((value.unwrap_or_default(), self.not_json))
    }

    /// Continues with the innermost frame. Returns its value if it is complete.
    fn step(&mut self) -> Result<Option<DecodedValue>, Error> {
        match self.frames.last_mut() {
            Some(NodeDecodeFrame::Sequence { node, next, items }) => {
                if let Some(item) = node.content.get(*next) {
                    *next += 1;
                    return self.begin(item, None);
                }
                let items = std::mem::take(items);
                self.frames.pop();
                self.depth -= 1;
                Ok(Some(Some(Value::Array(items))))
            }
            Some(NodeDecodeFrame::Mapping { .. }) => self.step_mapping(),
            Some(NodeDecodeFrame::Merges { left, map, merged }) => {
                let into = Some((*map, *merged));
                let Some(node) = left.pop() else {
                    self.frames.pop();
                    return Ok(None);
                };
                self.check_mergeable(node)?;
                self.begin(node, into)
            }
            Some(NodeDecodeFrame::Alias(_)) | None => {
                Err(Error::node("nothing to decode", mark(0)))
            }
        }
    }

    fn step_mapping(&mut self) -> Result<Option<DecodedValue>, Error> {
        let Some(NodeDecodeFrame::Mapping { node, next, map, merged, merge, owned, .. }) =
            self.frames.last_mut()
        else {
            return Ok(None);
        };
        let node = *node;
        let map = *map;
        let [key, value] = match node.content.get(*next..*next + 2) {
            Some([key, value]) => [key, value],
            _ => match merge.take() {
                Some(source) => {
                    let into = *merged;
                    return self.merge(node, source, map, into);
                }
                None => {
                    let is_merged = merged.is_some();
                    let owned = owned.is_some();
                    self.frames.pop();
                    return Ok(self.end_mapping(is_merged, owned));
                }
            },
        };
        *next += 2;
        if is_merge(key) {
            *merge = Some(value);
            return Ok(None);
        }
        let merged = *merged;
        let target = self.targets.get(&ptr::from_ref(key)).copied().unwrap_or(key);
        if target.kind != YamlNodeKind::Scalar && !self.maps[map].takes_all {
            if let Some(NodeDecodeFrame::Mapping { is_key, .. }) = self.frames.last_mut() {
                *is_key = true;
            }
            return self.begin(key, None);
        }
        let Some(text) = self.key(key, map)? else { return Ok(None) };
        if let Some(merged) = merged
            && !self.merged[merged].insert(text.clone())
        {
            return Ok(None);
        }
        if let Some(NodeDecodeFrame::Mapping { key, .. }) = self.frames.last_mut() {
            *key = Some(text);
        }
        self.begin(value, None)
    }

    fn end_mapping(&mut self, is_merged: bool, owned: bool) -> Option<DecodedValue> {
        if owned {
            self.merged.pop();
        }
        if is_merged {
            self.close_aliases();
            return None;
        }
        self.depth -= 1;
        self.maps.pop().map(|map| Some(Value::Object(map.entries)))
    }

    /// Begins the mappings that a merge key names. Keys that are set already win.
    fn merge(
        &mut self,
        parent: &'n YamlNode,
        source: &'n YamlNode,
        map: usize,
        merged: Option<usize>,
    ) -> Result<Option<DecodedValue>, Error> {
        let merged = match merged {
            Some(merged) => merged,
            None => {
                let mut keys = BTreeSet::new();
                for (key, _) in parent.entries() {
                    self.count(key)?;
                    // Parity(go-yaml v3): a number or null does not protect itself.
                    if let Some(text) = self.text_of(key)? {
                        keys.insert(text);
                    }
                }
                self.merged.push(keys);
                if let Some(NodeDecodeFrame::Mapping { owned, .. }) = self.frames.last_mut() {
                    *owned = Some(self.merged.len() - 1);
                }
                self.merged.len() - 1
            }
        };
        if source.kind == YamlNodeKind::Sequence {
            let left = source.content.iter().rev().collect();
            self.frames.push(NodeDecodeFrame::Merges { left, map, merged });
            return Ok(None);
        }
        self.check_mergeable(source)?;
        self.begin(source, Some((map, merged)))
    }

    fn check_mergeable(&self, node: &'n YamlNode) -> Result<(), Error> {
        let target = self.targets.get(&ptr::from_ref(node)).copied().unwrap_or(node);
        if matches!(target.kind, YamlNodeKind::Mapping | YamlNodeKind::Alias) {
            return Ok(());
        }
        let text = "map merge requires map or sequence of maps as the value";
        Err(Error::node(text, mark(node.line)))
    }

    /// Begins a node. Returns its value if it is complete.
    ///
    /// `into` is the map that a merged mapping fills, with the keys that are set there.
    fn begin(
        &mut self,
        node: &'n YamlNode,
        into: Option<(usize, usize)>,
    ) -> Result<Option<DecodedValue>, Error> {
        let mut node = node;
        loop {
            self.count(node)?;
            match node.kind {
                YamlNodeKind::Document => match node.content.first() {
                    Some(root) => node = root,
                    None => return Ok(Some(Some(Value::Null))),
                },
                YamlNodeKind::Alias => node = self.follow(node)?,
                YamlNodeKind::Scalar => return self.scalar(node).map(|value| Some(Some(value))),
                YamlNodeKind::Sequence => {
                    self.deepen(node)?;
                    self.frames.push(NodeDecodeFrame::Sequence {
                        node,
                        next: 0,
                        items: Vec::new(),
                    });
                    return Ok(None);
                }
                YamlNodeKind::Mapping => return self.begin_mapping(node, into),
            }
        }
    }

    fn begin_mapping(
        &mut self,
        node: &'n YamlNode,
        into: Option<(usize, usize)>,
    ) -> Result<Option<DecodedValue>, Error> {
        if self.note_duplicates(node)? {
            if into.is_some() {
                self.close_aliases();
                return Ok(None);
            }
            return Ok(Some(None));
        }
        let (map, merged) = match into {
            Some((map, merged)) => (map, Some(merged)),
            None => {
                let takes_all = self.depth == 0 || self.has_text_keys(node);
                self.deepen(node)?;
                self.maps.push(YamlMapBuilder { entries: Map::new(), takes_all });
                (self.maps.len() - 1, None)
            }
        };
        if !self.maps[map].takes_all {
            let text = "json: unsupported type: map[interface {}]interface {}";
            self.not_json.get_or_insert_with(|| text.to_owned());
        }
        let key = None;
        let is_key = false;
        let merge = None;
        let owned = None;
        self.frames.push(NodeDecodeFrame::Mapping {
            node,
            next: 0,
            map,
            merged,
            key,
            is_key,
            merge,
            owned,
        });
        Ok(None)
    }

    /// Records equal keys. go-yaml compares their texts, not their meanings.
    fn note_duplicates(&mut self, node: &'n YamlNode) -> Result<bool, Error> {
        let mut known: BTreeMap<(u8, &str), Vec<(usize, &YamlNode)>> = BTreeMap::new();
        let mut pairs = Vec::new();
        for (at, (key, _)) in node.entries().enumerate() {
            let same = known.entry((key.kind as u8, key.value.as_str())).or_default();
            // Differs(go-yaml v3): Go lists all of them, however many.
            if pairs.len() < MAX_DUPLICATES {
                pairs.extend(same.iter().map(|(place, first)| (*place, at, *first, key)));
            }
            same.push((at, key));
        }
        // In the order of the first key of a pair, then of the second.
        pairs.sort_by_key(|(first, second, ..)| (*first, *second));
        for (.., first, second) in &pairs {
            if self.problems.is_empty() {
                self.problem_line = second.line;
            }
            if self.problems.len() < MAX_DUPLICATES {
                let mut shown = String::new();
                go_format::quote(second.value.as_bytes(), &mut shown);
                self.problems.push(format!(
                    "line {}: mapping key {shown} already defined at line {}",
                    second.line, first.line
                ));
            }
        }
        // Its entries will not be decoded, but examining them is work too.
        if !pairs.is_empty() {
            self.count_keys(node)?;
        }
        Ok(!pairs.is_empty())
    }

    fn count_keys(&mut self, map: &YamlNode) -> Result<(), Error> {
        map.entries().try_for_each(|(key, _)| self.budget.take_node(mark(key.line)))
    }

    /// The node to which an alias refers. It is recorded that the alias is being followed.
    fn follow(&mut self, alias: &'n YamlNode) -> Result<&'n YamlNode, Error> {
        let address = ptr::from_ref(alias);
        let name = &alias.value;
        let Some(target) = self.targets.get(&address) else {
            let text = format_args!("unknown anchor '{name}' referenced");
            return Err(Error::node(text, mark(alias.line)));
        };
        if !self.followed.insert(address) {
            let text = format_args!("anchor '{name}' value contains itself");
            return Err(Error::node(text, mark(alias.line)));
        }
        self.frames.push(NodeDecodeFrame::Alias(address));
        Ok(target)
    }

    /// Leaves the aliases whose value is complete.
    fn close_aliases(&mut self) {
        while let Some(&NodeDecodeFrame::Alias(address)) = self.frames.last() {
            self.frames.pop();
            self.followed.remove(&address);
        }
    }

    /// Counts a node against Go's budget of aliases. A node that an alias repeats also counts against the limits of
    /// this crate.
    fn count(&mut self, node: &YamlNode) -> Result<(), Error> {
        let at = mark(node.line);
        self.decoded += 1;
        if !self.followed.is_empty() {
            self.aliased += 1;
            self.budget.take_repeated(node.value.len(), at)?;
        }
        self.budget.take_node(at)?;
        let ratio = self.aliased as f64 / self.decoded as f64;
        if self.aliased > 100 && self.decoded > 1000 && ratio > allowed_alias_ratio(self.decoded) {
            return Err(Error::node("document contains excessive aliasing", at));
        }
        Ok(())
    }

    fn deepen(&mut self, node: &YamlNode) -> Result<(), Error> {
        self.depth += 1;
        self.budget.check_depth(self.depth, mark(node.line))
    }
}

/// Gives a value to the frame that waits for it. For a map, returns the new entry.
fn deliver(
    frame: &mut NodeDecodeFrame<'_>,
    value: DecodedValue,
) -> Result<Option<(usize, String, Value)>, Error> {
    match (frame, value) {
        (NodeDecodeFrame::Sequence { items, .. }, value) => {
            items.extend(value);
            Ok(None)
        }
        (NodeDecodeFrame::Mapping { node, is_key: true, .. }, Some(value)) => {
            let shown = scalar::show(&value);
            Err(Error::node(format_args!("invalid map key: {shown}"), mark(node.line)))
        }
        (NodeDecodeFrame::Mapping { map, key, is_key, .. }, value) => {
            *is_key = false;
            Ok(key.take().zip(value).map(|(key, value)| (*map, key, value)))
        }
        (NodeDecodeFrame::Merges { .. } | NodeDecodeFrame::Alias(_), _) => Ok(None),
    }
}

/// Whether a key merges its value into the map.
fn is_merge(key: &YamlNode) -> bool {
    key.kind == YamlNodeKind::Scalar
        && key.value == "<<"
        && (matches!(key.tag.as_ref(), "" | "!") || key.short_tag() == tag::MERGE)
}

/// The place of a line that is counted from 1.
fn mark(line: u32) -> YamlMark {
    YamlMark { line: line.saturating_sub(1) as usize, ..YamlMark::default() }
}

#[cfg(test)]
mod tests;
