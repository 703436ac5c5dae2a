//! The events of a document, in the order of the text. The parser makes them, and the composer reads them.

use crate::reader::YamlMark;
use crate::token::TokenScalarStyle;

/// The kind of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum YamlEventKind {
    StreamStart,
    StreamEnd,
    DocumentStart,
    DocumentEnd,
    Alias {
        anchor: String,
    },
    Scalar {
        properties: NodeProperties,
        text: String,
        style: TokenScalarStyle,
        /// Whether the text decides the meaning of the scalar: it is plain without a tag, or has the tag `!`.
        implicit: bool,
    },
    SequenceStart {
        properties: NodeProperties,
        flow: bool,
    },
    SequenceEnd,
    MappingStart {
        properties: NodeProperties,
        flow: bool,
    },
    MappingEnd,
}

/// The properties that may precede a node: an anchor and a tag.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct NodeProperties {
    pub(crate) anchor: Option<String>,
    /// The tag in its long form. It is empty if there is none.
    pub(crate) tag: String,
}

/// The comments of an event, as lines with their `#`. They are empty in version 2.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct EventComments {
    /// The comment above the node.
    pub(crate) head: String,
    /// The comment after the node on the same line.
    pub(crate) line: String,
    /// The comment below the node.
    pub(crate) foot: String,
}

/// An event, with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct YamlEvent {
    pub(crate) kind: YamlEventKind,
    pub(crate) start: YamlMark,
    pub(crate) comments: EventComments,
}

impl YamlEvent {
    /// An event at this place, without comments.
    pub(crate) fn new(kind: YamlEventKind, start: YamlMark) -> Self {
        Self { kind, start, comments: EventComments::default() }
    }
}
