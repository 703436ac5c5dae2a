//! The steps of a document, in the order of the text: the output of the parser and the input of the composer.

use crate::reader::YamlMark;
use crate::token::TokenScalarStyle;

/// What happens in a document.
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
        /// Whether the text decides what the scalar means: it is plain without a tag, or has the
        /// tag `!`.
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

/// What may stand in front of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct NodeProperties {
    pub(crate) anchor: Option<String>,
    /// In its long form; empty when there is none.
    pub(crate) tag: String,
}

/// The comments of an event, lines with their `#`; empty in version 2.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct EventComments {
    /// Above it.
    pub(crate) head: String,
    /// Behind it.
    pub(crate) line: String,
    /// Below it.
    pub(crate) foot: String,
}

/// An event and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct YamlEvent {
    pub(crate) kind: YamlEventKind,
    pub(crate) start: YamlMark,
    pub(crate) comments: EventComments,
}

impl YamlEvent {
    /// An event without comments.
    pub(crate) fn new(kind: YamlEventKind, start: YamlMark) -> Self {
        Self { kind, start, comments: EventComments::default() }
    }
}
