//! The steps of a document, in the order of the text: the output of the parser and the input of the composer.

use crate::reader::Mark;
use crate::token::Style;

/// What happens in a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EventKind {
    StreamStart,
    StreamEnd,
    DocumentStart,
    DocumentEnd,
    Alias {
        anchor: String,
    },
    Scalar {
        properties: Properties,
        text: String,
        style: Style,
        /// Whether the text decides what the scalar means: it is plain without a tag, or has the
        /// tag `!`.
        implicit: bool,
    },
    SequenceStart {
        properties: Properties,
        flow: bool,
    },
    SequenceEnd,
    MappingStart {
        properties: Properties,
        flow: bool,
    },
    MappingEnd,
}

/// What may stand in front of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Properties {
    pub(crate) anchor: Option<String>,
    /// In its long form; empty when there is none.
    pub(crate) tag: String,
}

/// The comments of an event, lines with their `#`; empty in version 2.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Comments {
    /// Above it.
    pub(crate) head: String,
    /// Behind it.
    pub(crate) line: String,
    /// Below it.
    pub(crate) foot: String,
}

/// An event and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) kind: EventKind,
    pub(crate) start: Mark,
    pub(crate) comments: Comments,
}

impl Event {
    /// An event without comments.
    pub(crate) fn new(kind: EventKind, start: Mark) -> Self {
        Self { kind, start, comments: Comments::default() }
    }
}
