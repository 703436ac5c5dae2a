//! The tokens that the scanner makes and the grammar consists of.

use crate::reader::YamlMark;

/// The style in which a scalar is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenScalarStyle {
    Plain,
    SingleQuoted,
    DoubleQuoted,
    Literal,
    Folded,
}

/// The kind of a token, with its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum YamlTokenKind {
    StreamStart,
    StreamEnd,
    VersionDirective {
        major: u8,
        minor: u8,
    },
    TagDirective {
        handle: String,
        prefix: String,
    },
    DocumentStart,
    DocumentEnd,
    BlockSequenceStart,
    BlockMappingStart,
    BlockEnd,
    FlowSequenceStart,
    FlowSequenceEnd,
    FlowMappingStart,
    FlowMappingEnd,
    BlockEntry,
    FlowEntry,
    Key,
    Value,
    Alias(String),
    Anchor(String),
    /// A tag. With an empty handle, the suffix is the whole tag.
    Tag {
        handle: String,
        suffix: String,
    },
    Scalar {
        text: String,
        style: TokenScalarStyle,
    },
}

/// A token, with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct YamlToken {
    pub(crate) kind: YamlTokenKind,
    pub(crate) start: YamlMark,
    pub(crate) end: YamlMark,
}
