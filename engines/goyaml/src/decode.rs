//! Nodes to values: resolution, merge keys, duplicate keys and the budget of aliases, as go-yaml
//! v2 decodes into an `interface{}`.
//! What a single text means is decided in `resolve.rs`; JSON comes later.
//!
//! The decoder keeps what it is within on a stack of its own.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::Dialect;
use crate::error::Error;
use crate::limits::YamlBudget;
use crate::node::{LoadedNode, NodeId, NodeKind, Nodes};
use crate::reader::Mark;
use crate::resolve::{Scalar, resolve, tag};
use crate::value::{GoValue, Key, ValueId, Values};

/// Go's base64 reads what is left over in the last character without a check.
pub(crate) const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// How many duplicate keys an error lists.
pub(crate) const MAX_DUPLICATES: usize = 1_000;

/// Decodes a document; returns its values and which of them is the root.
///
/// With `strict`, a key that is set twice is an error, which is reported when all else is well.
pub(crate) fn decode<'n>(
    nodes: &'n Nodes,
    strict: bool,
    budget: &mut YamlBudget,
) -> Result<(Values<'n>, ValueId), Error> {
    let decoder = Decoder {
        nodes,
        strict,
        budget,
        values: Values::default(),
        stack: Vec::new(),
        depth: 0,
        // The document is a node to Go.
        decoded: 1,
        aliased: 0,
        followed: vec![false; nodes.len()],
        following: 0,
        duplicates: Vec::new(),
        first_duplicate: Mark::default(),
    };
    decoder.run()
}

/// Something that waits for the value of a node below it.
enum Frame<'n> {
    Sequence {
        next: NodeId,
        end: NodeId,
        items: Vec<ValueId>,
    },
    Mapping {
        /// The key or value that is being decoded.
        child: NodeId,
        next: NodeId,
        end: NodeId,
        /// Which map is filled; a merged mapping fills that of another one.
        map: usize,
        merged: bool,
        key: Option<Key<'n>>,
    },
    /// The list of a merge key, from its end, as earlier mappings win.
    Merges {
        left: Vec<NodeId>,
        map: usize,
    },
    Alias(NodeId),
}

struct Decoder<'n, 'l> {
    nodes: &'n Nodes,
    strict: bool,
    budget: &'l mut YamlBudget,
    values: Values<'n>,
    stack: Vec<Frame<'n>>,
    /// How many collections of the stack are values within each other.
    depth: usize,
    /// Nodes decoded, and how many of them within aliases.
    decoded: usize,
    aliased: usize,
    /// Which aliases are being followed, and how many.
    followed: Vec<bool>,
    following: usize,
    duplicates: Vec<String>,
    first_duplicate: Mark,
}

impl<'n> Decoder<'n, '_> {
    fn run(mut self) -> Result<(Values<'n>, ValueId), Error> {
        let mut done = self.visit(0, None)?;
        loop {
            // A finished value goes to the frame that waits for it; then that frame goes on.
            if let Some(value) = done
                && let Some(root) = self.deliver(value)?
            {
                if self.duplicates.is_empty() {
                    return Ok((self.values, root));
                }
                return Err(Error::duplicates(&self.duplicates, self.first_duplicate));
            }
            done = self.step()?;
        }
    }

    /// Goes on with the innermost frame; returns its value if that completes it.
    fn step(&mut self) -> Result<Option<ValueId>, Error> {
        match self.stack.last_mut() {
            Some(Frame::Sequence { next, end, items }) if next == end => {
                let items = std::mem::take(items);
                self.stack.pop();
                self.depth -= 1;
                Ok(Some(self.values.push(GoValue::Sequence(items))))
            }
            Some(Frame::Sequence { next, .. }) => {
                let child = *next;
                *next = self.nodes.get(child).end;
                self.visit(child, None)
            }
            Some(Frame::Mapping { next, end, map, merged, .. }) if next == end => {
                let map = *map;
                let merged = *merged;
                self.stack.pop();
                if merged {
                    self.close_alias();
                    return Ok(None);
                }
                self.depth -= 1;
                Ok(Some(self.values.push(GoValue::Map(map))))
            }
            Some(Frame::Mapping { child, next, map, key, .. }) => {
                let id = *next;
                let node = self.nodes.get(id);
                *next = node.end;
                if key.is_none() && is_merge(node) {
                    let value = node.end;
                    let map = *map;
                    *next = self.nodes.get(value).end;
                    return self.merge(value, map);
                }
                *child = id;
                self.visit(id, None)
            }
            Some(Frame::Merges { left, map }) => {
                let map = *map;
                let Some(node) = left.pop() else {
                    self.stack.pop();
                    return Ok(None);
                };
                self.check_mergeable(node)?;
                self.visit(node, Some(map))
            }
            Some(Frame::Alias(_)) | None => Err(Error::node("nothing to decode", Mark::default())),
        }
    }

    /// Hands a value to the frame that waits for it; without one, it is the root.
    fn deliver(&mut self, value: ValueId) -> Result<Option<ValueId>, Error> {
        self.close_alias();
        match self.stack.last_mut() {
            None => return Ok(Some(value)),
            Some(Frame::Sequence { items, .. }) => items.push(value),
            Some(Frame::Mapping { child, map, key, .. }) => match key.take() {
                None => match self.values.key(value) {
                    Some(found) => *key = Some(found),
                    None => {
                        let shown = self.values.show(value);
                        let at = self.nodes.get(*child).start;
                        return Err(Error::node(format_args!("invalid map key: {shown}"), at));
                    }
                },
                Some(key) => {
                    let map = *map;
                    let at = self.nodes.get(*child).start;
                    self.set(map, key, value, at);
                }
            },
            Some(Frame::Merges { .. } | Frame::Alias(_)) => {}
        }
        Ok(None)
    }

    /// Leaves the aliases whose value is complete.
    fn close_alias(&mut self) {
        while let Some(&Frame::Alias(id)) = self.stack.last() {
            self.stack.pop();
            self.followed[id] = false;
            self.following -= 1;
        }
    }

    /// Sets a key whose value stands at `at`.
    fn set(&mut self, map: usize, key: Key<'n>, value: ValueId, at: Mark) {
        let map = &mut self.values.maps[map];
        if !self.strict || !map.contains_key(&key) {
            map.insert(key, value);
            return;
        }
        if self.duplicates.is_empty() {
            self.first_duplicate = at;
        }
        // Parity(go-yaml v2): the line is that of the value, also within a mapping that is merged.
        // Differs(go-yaml v2): Go lists all of them, however many.
        if self.duplicates.len() < MAX_DUPLICATES {
            let text = format!("line {}: key {} already set in map", at.line + 1, key.show());
            self.duplicates.push(text);
        }
    }

    /// Begins a node; returns its value if it is complete.
    ///
    /// `into` is the map which a merged mapping fills.
    fn visit(&mut self, id: NodeId, into: Option<usize>) -> Result<Option<ValueId>, Error> {
        let nodes = self.nodes;
        let mut id = id;
        loop {
            let node = nodes.get(id);
            self.count(node)?;
            match &node.kind {
                NodeKind::Alias { anchor, target } => {
                    if self.followed[id] {
                        return Err(Error::node(
                            format_args!("anchor '{anchor}' value contains itself"),
                            node.start,
                        ));
                    }
                    self.followed[id] = true;
                    self.following += 1;
                    self.stack.push(Frame::Alias(id));
                    id = *target;
                }
                NodeKind::Scalar { text, implicit, .. } => {
                    let value = self.scalar(node, text, *implicit)?;
                    return Ok(Some(self.values.push(value)));
                }
                NodeKind::Sequence => {
                    self.deepen(node)?;
                    let items = Vec::new();
                    self.stack.push(Frame::Sequence { next: id + 1, end: node.end, items });
                    return Ok(None);
                }
                NodeKind::Mapping => {
                    let merged = into.is_some();
                    let map = match into {
                        Some(map) => map,
                        None => {
                            self.deepen(node)?;
                            self.values.maps.push(BTreeMap::new());
                            self.values.maps.len() - 1
                        }
                    };
                    let child = id;
                    let next = id + 1;
                    let end = node.end;
                    self.stack.push(Frame::Mapping { child, next, end, map, merged, key: None });
                    return Ok(None);
                }
            }
        }
    }

    fn merge(&mut self, id: NodeId, map: usize) -> Result<Option<ValueId>, Error> {
        if self.nodes.get(id).kind == NodeKind::Sequence {
            let left = self.nodes.children(id).collect();
            self.stack.push(Frame::Merges { left, map });
            return Ok(None);
        }
        self.check_mergeable(id)?;
        self.visit(id, Some(map))
    }

    fn check_mergeable(&self, id: NodeId) -> Result<(), Error> {
        let node = self.nodes.get(id);
        let named = match &node.kind {
            NodeKind::Alias { target, .. } => self.nodes.get(*target),
            _ => node,
        };
        if named.kind == NodeKind::Mapping {
            return Ok(());
        }
        Err(Error::node("map merge requires map or sequence of maps as the value", node.start))
    }

    /// Counts a node against Go's budget of aliases, and against ours when an alias repeats it.
    fn count(&mut self, node: &LoadedNode) -> Result<(), Error> {
        self.decoded += 1;
        if self.following > 0 {
            self.aliased += 1;
            self.budget.take_node(node.start)?;
            if let NodeKind::Scalar { text, .. } = &node.kind {
                self.budget.take_repeated(text.len(), node.start)?;
            }
        }
        let ratio = self.aliased as f64 / self.decoded as f64;
        if self.aliased > 100 && self.decoded > 1000 && ratio > allowed_alias_ratio(self.decoded) {
            return Err(Error::node("document contains excessive aliasing", node.start));
        }
        Ok(())
    }

    fn deepen(&mut self, node: &LoadedNode) -> Result<(), Error> {
        self.depth += 1;
        self.budget.check_depth(self.depth, node.start)
    }

    fn scalar(
        &self,
        node: &LoadedNode,
        text: &'n str,
        implicit: bool,
    ) -> Result<GoValue<'n>, Error> {
        if node.tag.is_empty() && !implicit {
            return Ok(GoValue::Str(Cow::Borrowed(text)));
        }
        let meaning = resolve(Dialect::V2, &node.tag, text)
            .map_err(|mismatch| Error::node(mismatch, node.start))?;
        Ok(match meaning {
            Scalar::Null => GoValue::Null,
            Scalar::Bool(bool) => GoValue::Bool(bool),
            Scalar::Int(int) => GoValue::Int(int),
            Scalar::Uint(uint) => GoValue::Uint(uint),
            Scalar::Float(float) => GoValue::Float(float),
            Scalar::Str | Scalar::Timestamp | Scalar::Other => GoValue::Str(Cow::Borrowed(text)),
            Scalar::Binary => binary(text).ok_or_else(|| {
                Error::node("!!binary value contains invalid base64 data", node.start)
            })?,
        })
    }
}

fn binary<'n>(text: &str) -> Option<GoValue<'n>> {
    let characters: Vec<u8> = text.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
    let bytes = BASE64.decode(characters).ok()?;
    Some(match String::from_utf8(bytes) {
        Ok(text) => GoValue::Str(Cow::Owned(text)),
        Err(error) => GoValue::Bytes(error.into_bytes()),
    })
}

/// Whether a key merges its value into the map: a plain `<<`, or one tagged `!` or `!!merge`.
fn is_merge(node: &LoadedNode) -> bool {
    match &node.kind {
        NodeKind::Scalar { text, implicit, .. } => {
            text == "<<" && (*implicit || node.tag == tag::MERGE)
        }
        _ => false,
    }
}

/// How much of a document may come from aliases: 99 % of a small one, 10 % of a huge one.
pub(crate) fn allowed_alias_ratio(decoded: usize) -> f64 {
    const ALIAS_RATIO_RANGE_LOW: usize = 400_000;
    const ALIAS_RATIO_RANGE_HIGH: usize = 4_000_000;
    match decoded {
        ..=ALIAS_RATIO_RANGE_LOW => 0.99,
        ALIAS_RATIO_RANGE_HIGH.. => 0.10,
        _ => {
            0.99 - 0.89
                * ((decoded - ALIAS_RATIO_RANGE_LOW) as f64
                    / (ALIAS_RATIO_RANGE_HIGH - ALIAS_RATIO_RANGE_LOW) as f64)
        }
    }
}
