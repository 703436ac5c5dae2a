//! The steps of a walk over a tree, and their tags. The emitter writes their output (`node_emitter.rs`).

use super::scalar_style::ScalarStyle;
use crate::scalar_resolve::tag;

/// A tag as it is written: a handle and a suffix. Without a handle, it is `!<…>`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct TagHandleAndSuffix {
    pub(super) handle: &'static str,
    pub(super) suffix: String,
}

impl TagHandleAndSuffix {
    /// Abbreviates a tag in its long form; an empty one is not written.
    pub(super) fn of(long: &str) -> Self {
        let (handle, suffix) = if let Some(suffix) = long.strip_prefix('!') {
            ("!", suffix)
        } else if let Some(suffix) = long.strip_prefix(tag::PREFIX) {
            ("!!", suffix)
        } else {
            ("", long)
        };
        Self { handle, suffix: suffix.to_owned() }
    }

    pub(super) fn len(&self) -> usize {
        self.handle.len() + self.suffix.len()
    }
}

/// The kind of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EmitEventKind {
    DocumentStart,
    DocumentEnd,
    Alias,
    Scalar(ScalarStyle),
    SequenceStart { is_flow: bool, is_empty: bool },
    SequenceEnd,
    MappingStart { is_flow: bool, is_empty: bool },
    MappingEnd,
}

impl EmitEventKind {
    /// Go's name of an event that is not a node.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::DocumentStart => "document start",
            Self::DocumentEnd => "document end",
            _ => "the end of a collection",
        }
    }
}

/// A step of the walk.
#[derive(Debug)]
pub(super) struct EmitEvent<'n> {
    pub(super) kind: EmitEventKind,
    pub(super) anchor: &'n str,
    pub(super) tag: TagHandleAndSuffix,
    /// The text of a scalar, or the name of an alias.
    pub(super) value: &'n str,
    pub(super) head: &'n str,
    pub(super) line: &'n str,
    pub(super) foot: &'n str,
    /// The foot comment of the preceding entry of the map.
    pub(super) tail: &'n str,
}

impl EmitEvent<'_> {
    pub(super) fn new(kind: EmitEventKind) -> Self {
        let anchor = "";
        let value = "";
        let tag = TagHandleAndSuffix::default();
        Self { kind, anchor, tag, value, head: "", line: "", foot: "", tail: "" }
    }
}
