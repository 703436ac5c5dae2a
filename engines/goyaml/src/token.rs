//! The words of the scanner: what the grammar is made of.

use crate::reader::YamlMark;

/// How a scalar is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenScalarStyle {
    Plain,
    SingleQuoted,
    DoubleQuoted,
    Literal,
    Folded,
}

/// What a token is, with the text it carries.
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
    /// An empty handle makes the suffix the whole tag.
    Tag {
        handle: String,
        suffix: String,
    },
    Scalar {
        text: String,
        style: TokenScalarStyle,
    },
}

/// A token and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct YamlToken {
    pub(crate) kind: YamlTokenKind,
    pub(crate) start: YamlMark,
    pub(crate) end: YamlMark,
}
