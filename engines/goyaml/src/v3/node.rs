//! A node of a document: its content, style, position and comments.

use std::borrow::Cow;

use super::node_anchor_and_comments::NodeAnchorAndComments;
use super::node_children::YamlNodeChildren;

/// The kind of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum YamlNodeKind {
    /// A document. Its only child is its root.
    Document,
    /// A list. Its children are the items.
    Sequence,
    /// A map. Its children are keys and values in turn.
    Mapping,
    /// A scalar, whose text may stand for another type.
    #[default]
    Scalar,
    /// A reference to another node. The value is the name of that node's anchor.
    Alias,
}

/// The style in which a node is written: any of the constants, joined with `|`.
///
/// With the empty style, the writer chooses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct YamlNodeStyle(u8);

impl YamlNodeStyle {
    /// The tag is written although the value implies it.
    pub const TAGGED: Self = Self(1);
    /// The scalar is in double quotes.
    pub const DOUBLE_QUOTED: Self = Self(1 << 1);
    /// The scalar is in single quotes.
    pub const SINGLE_QUOTED: Self = Self(1 << 2);
    /// The scalar is a block after `|`.
    pub const LITERAL: Self = Self(1 << 3);
    /// The scalar is a block after `>`.
    pub const FOLDED: Self = Self(1 << 4);
    /// The collection is in `[]` or `{}`.
    pub const FLOW: Self = Self(1 << 5);

    const NAMES: [(Self, &'static str); 6] = [
        (Self::TAGGED, "TAGGED"),
        (Self::DOUBLE_QUOTED, "DOUBLE_QUOTED"),
        (Self::SINGLE_QUOTED, "SINGLE_QUOTED"),
        (Self::LITERAL, "LITERAL"),
        (Self::FOLDED, "FOLDED"),
        (Self::FLOW, "FLOW"),
    ];

    /// Whether all of `other` is part of this style.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// This style without the flags of `other`.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The number of this style in go-yaml.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Whether a scalar is in quotes or a block, and therefore always text.
    pub fn is_quoted(self) -> bool {
        let quoted = Self::DOUBLE_QUOTED | Self::SINGLE_QUOTED | Self::LITERAL | Self::FOLDED;
        self.0 & quoted.0 != 0
    }
}

impl std::ops::BitOr for YamlNodeStyle {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl std::ops::BitOrAssign for YamlNodeStyle {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl std::fmt::Debug for YamlNodeStyle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = Self::NAMES.iter().filter(|(style, _)| self.contains(*style));
        let names: Vec<&str> = names.map(|(_, name)| *name).collect();
        f.write_str(if names.is_empty() { "PLAIN" } else { "" })?;
        f.write_str(&names.join("|"))
    }
}

/// A node of a document.
///
/// Cloning, comparing, printing and dropping a node costs no stack, whatever its depth.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct YamlNode {
    /// The kind of the node.
    pub kind: YamlNodeKind,
    /// The style in which the node is written.
    pub style: YamlNodeStyle,
    /// The tag in its short form, such as `!!int` or `!custom`.
    ///
    /// After reading, only documents and aliases have an empty tag. If the text has no tag, this is the tag that the
    /// value implies. For writing, the tag may be empty. It is only written if [`YamlNodeStyle::TAGGED`] is set, or if
    /// the value would have another meaning without it.
    pub tag: Cow<'static, str>,
    /// The text of a scalar without quotes, or the name that an alias refers to.
    pub value: String,
    /// The children of the node, as [`YamlNodeKind`] says.
    pub content: YamlNodeChildren,
    /// The anchor of the node, and its comments.
    pub notes: NodeAnchorAndComments,
    /// The line where the node was read, counted from 1. It is 0 if the node was not read. Writing ignores it.
    pub line: u32,
    /// The column where the node was read, in characters, counted like `line`.
    pub column: u32,
}

impl YamlNode {
    /// A text. It is written without quotes if it is still a text without them.
    pub fn string(value: impl Into<String>) -> Self {
        Self::scalar("!!str", value)
    }

    /// A scalar with this tag, such as `!!int`.
    pub fn scalar(tag: impl Into<Cow<'static, str>>, value: impl Into<String>) -> Self {
        Self { tag: tag.into(), value: value.into(), ..Self::default() }
    }

    /// A node that is a list of these items.
    pub fn sequence(items: Vec<Self>) -> Self {
        let tag = "!!seq".into();
        Self { kind: YamlNodeKind::Sequence, tag, content: items.into(), ..Self::default() }
    }

    /// A map of keys and values.
    pub fn mapping(entries: impl IntoIterator<Item = (Self, Self)>) -> Self {
        let content: Vec<Self> = entries.into_iter().flat_map(<[Self; 2]>::from).collect();
        let tag = "!!map".into();
        Self { kind: YamlNodeKind::Mapping, tag, content: content.into(), ..Self::default() }
    }

    /// The keys and values of a map. There are none for other kinds.
    pub fn entries(&self) -> impl Iterator<Item = (&Self, &Self)> {
        let content: &[Self] = if self.kind == YamlNodeKind::Mapping { &self.content } else { &[] };
        content.chunks_exact(2).map(|entry| (&entry[0], &entry[1]))
    }

    /// The value of the first entry of a map whose key is a scalar with this text. `None` if the map has no such key.
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.entries().find(|(known, _)| known.is_key(key)).map(|(_, value)| value)
    }

    /// Like [`Self::get`], for changing the value. `None` if the map has no such key.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Self> {
        let at = self.entries().position(|(known, _)| known.is_key(key))?;
        self.content.get_mut(2 * at + 1)
    }

    /// This node and all below it in the order of the text, each with its depth.
    pub fn walk(&self) -> impl Iterator<Item = (usize, &Self)> {
        let mut open = vec![(0, self)];
        std::iter::from_fn(move || {
            let (depth, node) = open.pop()?;
            open.extend(node.content.iter().rev().map(|child| (depth + 1, child)));
            Some((depth, node))
        })
    }

    fn is_key(&self, key: &str) -> bool {
        self.kind == YamlNodeKind::Scalar && self.value == key
    }
}
