//! Decodes nodes into values as go-yaml v2 decodes into an `interface{}`: types of scalars, merge keys, duplicate keys,
//! and the budget of aliases. The meaning of a single scalar is in `scalar_resolve.rs`, and JSON comes later.
//!
//! The decoder has its own stack of open collections.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::YamlDialect;
use crate::error::Error;
use crate::limits::YamlBudget;
use crate::node::{DocumentNodes, LoadedNode, LoadedNodeId, LoadedNodeKind};
use crate::reader::YamlMark;
use crate::scalar_resolve::{ResolvedScalar, resolve, tag};
use crate::value::{GoDocumentValues, GoMapKey, GoValue, GoValueId};

/// Like Go's base64, it does not check the unused bits of the last character.
pub(crate) const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// How many duplicate keys an error lists.
pub(crate) const MAX_DUPLICATES: usize = 1_000;

/// Decodes a document. Returns its values and the id of its root value.
///
/// With `strict`, a key that is set twice is an error. It is only reported if there is no other error.
pub(crate) fn decode<'n>(
    nodes: &'n DocumentNodes,
    strict: bool,
    budget: &mut YamlBudget,
) -> Result<(GoDocumentValues<'n>, GoValueId), Error> {
    let decoder = YamlDecoder {
        nodes,
        strict,
        budget,
        values: GoDocumentValues::default(),
        stack: Vec::new(),
        depth: 0,
        // The document is a node to Go.
        decoded: 1,
        aliased: 0,
        followed: vec![false; nodes.len()],
        following: 0,
        duplicates: Vec::new(),
        first_duplicate: YamlMark::default(),
    };
    decoder.run()
}

/// An open part of the document that waits for the value of a node below it.
enum YamlDecodeFrame<'n> {
    Sequence {
        next: LoadedNodeId,
        end: LoadedNodeId,
        items: Vec<GoValueId>,
    },
    Mapping {
        /// The key or value that is being decoded.
        child: LoadedNodeId,
        next: LoadedNodeId,
        end: LoadedNodeId,
        /// The index of the map that is being filled. A merged mapping fills the map of another one.
        map: usize,
        merged: bool,
        key: Option<GoMapKey<'n>>,
    },
    /// The mappings in the list of a merge key, from its end, because earlier mappings win.
    Merges {
        left: Vec<LoadedNodeId>,
        map: usize,
    },
    Alias(LoadedNodeId),
}

struct YamlDecoder<'n, 'l> {
    nodes: &'n DocumentNodes,
    strict: bool,
    budget: &'l mut YamlBudget,
    values: GoDocumentValues<'n>,
    stack: Vec<YamlDecodeFrame<'n>>,
    /// How many collections on the stack are nested values.
    depth: usize,
    /// How many nodes were decoded, and how many of them within aliases.
    decoded: usize,
    aliased: usize,
    /// Which aliases are being followed, and how many.
    followed: Vec<bool>,
    following: usize,
    duplicates: Vec<String>,
    first_duplicate: YamlMark,
}

impl<'n> YamlDecoder<'n, '_> {
    fn run(mut self) -> Result<(GoDocumentValues<'n>, GoValueId), Error> {
        let mut done = self.visit(0, None)?;
        loop {
            // A finished value goes to the frame that waits for it, and that frame continues.
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

    /// Continues with the innermost frame. Returns its value if it is complete.
    fn step(&mut self) -> Result<Option<GoValueId>, Error> {
        match self.stack.last_mut() {
            Some(YamlDecodeFrame::Sequence { next, end, items }) if next == end => {
                let items = std::mem::take(items);
                self.stack.pop();
                self.depth -= 1;
                Ok(Some(self.values.push(GoValue::Sequence(items))))
            }
            Some(YamlDecodeFrame::Sequence { next, .. }) => {
                let child = *next;
                *next = self.nodes.get(child).end;
                self.visit(child, None)
            }
            Some(YamlDecodeFrame::Mapping { next, end, map, merged, .. }) if next == end => {
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
            Some(YamlDecodeFrame::Mapping { child, next, map, key, .. }) => {
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
            Some(YamlDecodeFrame::Merges { left, map }) => {
                let map = *map;
                let Some(node) = left.pop() else {
                    self.stack.pop();
                    return Ok(None);
                };
                self.check_mergeable(node)?;
                self.visit(node, Some(map))
            }
            Some(YamlDecodeFrame::Alias(_)) | None => {
                Err(Error::node("nothing to decode", YamlMark::default()))
            }
        }
    }

    /// Gives a value to the frame that waits for it. If there is none, the value is the root.
    fn deliver(&mut self, value: GoValueId) -> Result<Option<GoValueId>, Error> {
        self.close_alias();
        match self.stack.last_mut() {
            None => return Ok(Some(value)),
            Some(YamlDecodeFrame::Sequence { items, .. }) => items.push(value),
            Some(YamlDecodeFrame::Mapping { child, map, key, .. }) => match key.take() {
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
            Some(YamlDecodeFrame::Merges { .. } | YamlDecodeFrame::Alias(_)) => {}
        }
        Ok(None)
    }

    /// Leaves the aliases whose value is complete.
    fn close_alias(&mut self) {
        while let Some(&YamlDecodeFrame::Alias(id)) = self.stack.last() {
            self.stack.pop();
            self.followed[id] = false;
            self.following -= 1;
        }
    }

    /// Sets a key of a map. The value is at the position `at`.
    fn set(&mut self, map: usize, key: GoMapKey<'n>, value: GoValueId, at: YamlMark) {
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

    /// Begins a node. Returns its value if it is complete.
    ///
    /// `into` is the map that a merged mapping fills.
    fn visit(&mut self, id: LoadedNodeId, into: Option<usize>) -> Result<Option<GoValueId>, Error> {
        let nodes = self.nodes;
        let mut id = id;
        loop {
            let node = nodes.get(id);
            self.count(node)?;
            match &node.kind {
                LoadedNodeKind::Alias { anchor, target } => {
                    if self.followed[id] {
                        return Err(Error::node(
                            format_args!("anchor '{anchor}' value contains itself"),
                            node.start,
                        ));
                    }
                    self.followed[id] = true;
                    self.following += 1;
                    self.stack.push(YamlDecodeFrame::Alias(id));
                    id = *target;
                }
                LoadedNodeKind::Scalar { text, implicit, .. } => {
                    let value = self.scalar(node, text, *implicit)?;
                    return Ok(Some(self.values.push(value)));
                }
                LoadedNodeKind::Sequence => {
                    self.deepen(node)?;
                    let items = Vec::new();
                    self.stack.push(YamlDecodeFrame::Sequence {
                        next: id + 1,
                        end: node.end,
                        items,
                    });
                    return Ok(None);
                }
                LoadedNodeKind::Mapping => {
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
                    self.stack.push(YamlDecodeFrame::Mapping {
                        child,
                        next,
                        end,
                        map,
                        merged,
                        key: None,
                    });
                    return Ok(None);
                }
            }
        }
    }

    fn merge(&mut self, id: LoadedNodeId, map: usize) -> Result<Option<GoValueId>, Error> {
        if self.nodes.get(id).kind == LoadedNodeKind::Sequence {
            let left = self.nodes.children(id).collect();
            self.stack.push(YamlDecodeFrame::Merges { left, map });
            return Ok(None);
        }
        self.check_mergeable(id)?;
        self.visit(id, Some(map))
    }

    fn check_mergeable(&self, id: LoadedNodeId) -> Result<(), Error> {
        let node = self.nodes.get(id);
        let named = match &node.kind {
            LoadedNodeKind::Alias { target, .. } => self.nodes.get(*target),
            _ => node,
        };
        if named.kind == LoadedNodeKind::Mapping {
            return Ok(());
        }
        Err(Error::node("map merge requires map or sequence of maps as the value", node.start))
    }

    /// Counts a node against Go's budget of aliases. A node that an alias repeats also counts against the limits of
    /// this crate.
    fn count(&mut self, node: &LoadedNode) -> Result<(), Error> {
        self.decoded += 1;
        if self.following > 0 {
            self.aliased += 1;
            self.budget.take_node(node.start)?;
            if let LoadedNodeKind::Scalar { text, .. } = &node.kind {
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
        let meaning = resolve(YamlDialect::V2, &node.tag, text)
            .map_err(|mismatch| Error::node(mismatch, node.start))?;
        Ok(match meaning {
            ResolvedScalar::Null => GoValue::Null,
            ResolvedScalar::Bool(bool) => GoValue::Bool(bool),
            ResolvedScalar::Int(int) => GoValue::Int(int),
            ResolvedScalar::Uint(uint) => GoValue::Uint(uint),
            ResolvedScalar::Float(float) => GoValue::Float(float),
            ResolvedScalar::Str | ResolvedScalar::Timestamp | ResolvedScalar::Other => {
                GoValue::Str(Cow::Borrowed(text))
            }
            ResolvedScalar::Binary => binary(text).ok_or_else(|| {
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
        LoadedNodeKind::Scalar { text, implicit, .. } => {
            text == "<<" && (*implicit || node.tag == tag::MERGE)
        }
        _ => false,
    }
}

/// Which share of a document may come from aliases: 99 % of a small document, and 10 % of a huge one.
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
