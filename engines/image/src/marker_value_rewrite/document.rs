//! Splits a file into documents, and finds the object in each document.
//!
//! Here: documents, split and read like kyaml. Elsewhere: YAML (`goyaml`).

use std::borrow::Cow;

use goyaml::YamlLimits;
use goyaml::v3::{YamlNode, YamlNodeDocumentReader, YamlNodeKind};

use crate::update_result::ObjectIdentifier;

/// The tag of a null.
const NULL: &str = "!!null";

/// The number of a line from 1, if it is known, and the problem in it.
pub(super) type DocumentProblem = (Option<usize>, String);

/// A text with line feeds as line ends. It can translate its positions back to the original text.
#[derive(Debug)]
pub(super) struct LineFeedText<'t> {
    original: &'t str,
    text: Cow<'t, str>,
    /// The positions of line feeds in `text` that originally followed a carriage return.
    returns: Vec<usize>,
}

/// A part of a text between the lines that divide documents.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamDocumentPart<'p> {
    pub(super) text: &'p str,
    /// The number of bytes before the part.
    pub(super) start: usize,
    /// The number of lines before the part.
    pub(super) line: usize,
}

impl<'t> LineFeedText<'t> {
    pub(super) fn new(original: &'t str) -> Self {
        let mut returns = Vec::new();
        for (passed, (at, _)) in original.match_indices("\r\n").enumerate() {
            returns.push(at - passed);
        }
        let text = match returns.is_empty() {
            true => Cow::Borrowed(original),
            false => Cow::Owned(original.replace("\r\n", "\n")),
        };
        Self { original, text, returns }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// The text of the document before any change.
    pub(super) fn original(&self) -> &'t str {
        self.original
    }

    /// The position of a byte in the original text. The position of a line feed includes the carriage return before it.
    pub(super) fn original_offset(&self, offset: usize) -> usize {
        offset + self.returns.partition_point(|at| *at < offset)
    }

    /// The parts in order. They are separated by lines that begin with `---`, except at the beginning.
    ///
    /// # Errors
    /// Something other than a comment follows the `---`.
    pub(super) fn parts(&self) -> Result<Vec<StreamDocumentPart<'_>>, DocumentProblem> {
        let text = self.as_str();
        let mut parts = Vec::new();
        let mut rest = StreamDocumentPart { text, start: 0, line: 0 };
        while let Some(at) = rest.text.find("\n---") {
            let (content, divider) = rest.text.split_at(at + 1);
            let Some(length) = divider.find('\n') else { break };
            let lines = rest.line + content.matches('\n').count();
            let divider = divider.get(..length).unwrap_or_default();
            let behind = divider.get(3..).unwrap_or_default().trim();
            if !(behind.is_empty() || behind.starts_with('#')) {
                let reason = format!("invalid document separator: {}", divider.trim());
                return Err((Some(lines + 1), reason));
            }
            parts.push(StreamDocumentPart { text: content, ..rest });
            let passed = content.len() + length + 1;
            let start = rest.start + passed;
            rest = StreamDocumentPart {
                text: rest.text.get(passed..).unwrap_or_default(),
                start,
                line: lines + 1,
            };
        }
        parts.push(rest);
        Ok(parts)
    }
}

/// The document in a part of a stream; `None` if there is none, or a null. Text after the document is not read.
pub(super) fn document(
    part: &StreamDocumentPart<'_>,
    limits: &YamlLimits,
) -> Result<Option<YamlNode>, DocumentProblem> {
    let read = YamlNodeDocumentReader::new(part.text.as_bytes(), limits)
        .and_then(|mut documents| documents.next().transpose());
    let document = read
        .map_err(|error| (error.line().map(|line| part.line + line), error.problem().to_owned()))?;
    Ok(document.filter(|document| document.content.first().is_some_and(|it| it.tag != NULL)))
}

/// The value of the first key of a map with this text. `None` if the map has no such key.
pub(super) fn field<'n>(node: &'n YamlNode, name: &str) -> Option<&'n YamlNode> {
    node.entries().find(|(key, _)| key.value == name).map(|(_, value)| value)
}

/// Whether kyaml treats a value as absent.
pub(super) fn is_nothing(node: &YamlNode) -> bool {
    let is_collection = matches!(node.kind, YamlNodeKind::Mapping | YamlNodeKind::Sequence);
    node.tag == NULL || is_collection && node.content.is_empty()
}

/// The text of a field; empty if there is none.
pub(super) fn text_of(node: &YamlNode, name: &str) -> String {
    let value = field(node, name).filter(|value| !is_nothing(value));
    value.map(|value| value.value.clone()).unwrap_or_default()
}

/// Which object a node is.
pub(super) fn identity(root: &YamlNode) -> ObjectIdentifier {
    let of_metadata =
        |name: &str| field(root, "metadata").map(|it| text_of(it, name)).unwrap_or_default();
    ObjectIdentifier {
        api_version: text_of(root, "apiVersion"),
        kind: text_of(root, "kind"),
        name: of_metadata("name"),
        namespace: of_metadata("namespace"),
    }
}

/// Whether the only document of a file is a list of objects.
pub(super) fn is_list(root: &YamlNode) -> bool {
    matches!(text_of(root, "kind").as_str(), "List" | "ResourceList")
        && (field(root, "items").is_some() || field(root, "functionConfig").is_some())
}
