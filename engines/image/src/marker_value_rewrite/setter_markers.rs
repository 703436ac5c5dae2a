//! Finds the values of a document that have markers, and records which markers of a file were read.
//!
//! Elsewhere: the meaning of a marker (`image_setter.rs`), replacing a value (`value_replacement.rs`, `whole_file_like_flux.rs`).

use std::collections::{BTreeMap, BTreeSet};

use goyaml::v3::{AnchorOrCommentKind, YamlNode, YamlNodeKind, YamlNodeStyle};

use super::TOKEN;
use crate::image_setter::{ImageSetterValues, MarkerAssignment, SetterMarker};

/// Comments that are markers of values.
#[derive(Debug, Default)]
pub(super) struct SeenMarkers {
    comments: BTreeMap<MarkerComment, SeenMarker>,
    /// The setters of values, where a tag may need its digest.
    setters: BTreeSet<String>,
}

/// A comment, and whether other text comes before it on its line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct MarkerComment {
    text: String,
    is_behind: bool,
}

/// A comment that was read, perhaps several times.
#[derive(Debug)]
struct SeenMarker {
    count: usize,
    /// The setter that does not exist.
    unknown: Option<String>,
}

/// A value and its place in the document.
struct PlacedYamlNode<'n> {
    node: &'n mut YamlNode,
    is_in_flow: bool,
}

/// Visits the values below a node in the order of the text. Calls `set` for each value with a marker, and says whether it is
/// within brackets or braces.
///
/// Parity(flux): of a key that a map has twice only the first counts.
pub(super) fn assign(
    root: &mut YamlNode,
    is_in_flow: bool,
    setters: &ImageSetterValues,
    markers: &mut SeenMarkers,
    mut set: impl FnMut(&mut YamlNode, MarkerAssignment, bool),
) {
    let mut open = vec![PlacedYamlNode { node: root, is_in_flow }];
    while let Some(PlacedYamlNode { node, is_in_flow }) = open.pop() {
        let is_in_flow = is_in_flow || node.style.contains(YamlNodeStyle::FLOW);
        match node.kind {
            YamlNodeKind::Scalar => {
                if let Some(assignment) = markers.read(node, setters) {
                    set(node, assignment, is_in_flow);
                }
            }
            YamlNodeKind::Alias => {}
            YamlNodeKind::Mapping => {
                let first = open.len();
                let mut known = BTreeSet::new();
                let mut entries = node.content.iter_mut();
                while let (Some(key), Some(value)) = (entries.next(), entries.next()) {
                    if known.insert(key.value.as_str()) {
                        open.push(PlacedYamlNode { node: value, is_in_flow });
                    }
                }
                reverse_from(&mut open, first);
            }
            YamlNodeKind::Sequence | YamlNodeKind::Document => {
                let first = open.len();
                open.extend(
                    node.content.iter_mut().map(|node| PlacedYamlNode { node, is_in_flow }),
                );
                reverse_from(&mut open, first);
            }
        }
    }
}

/// Reverses the last nodes, so that the first of them is taken first.
fn reverse_from(open: &mut [PlacedYamlNode<'_>], first: usize) {
    if let Some(new) = open.get_mut(first..) {
        new.reverse();
    }
}

impl SeenMarkers {
    /// The assignment in the comment after a value, or else in the comment above it. `None` if the comment has no
    /// marker or names an unknown setter.
    fn read(&mut self, node: &YamlNode, setters: &ImageSetterValues) -> Option<MarkerAssignment> {
        let line = node.notes.get(AnchorOrCommentKind::Line);
        let is_behind = !line.is_empty();
        let comment = if is_behind { line } else { node.notes.get(AnchorOrCommentKind::Head) };
        let marker = SetterMarker::read(comment, setters)?;
        if comment.contains(TOKEN) {
            let unknown = match &marker {
                SetterMarker::Unknown(name) => Some(name.clone()),
                SetterMarker::Assign(_) => None,
            };
            let text = comment.to_owned();
            let seen = self.comments.entry(MarkerComment { text, is_behind });
            seen.or_insert(SeenMarker { count: 0, unknown }).count += 1;
        }
        match marker {
            SetterMarker::Assign(assignment) => {
                if setters.requires_digests() && assignment.is_of_policy {
                    self.setters.insert(assignment.setter.clone());
                }
                Some(assignment)
            }
            SetterMarker::Unknown(_) => None,
        }
    }

    /// The setters that set values, to check that a tag has its digest.
    pub(super) fn setters(&self) -> &BTreeSet<String> {
        &self.setters
    }

    /// The lines of a text with markers that set nothing, each with the setter if that does not exist.
    pub(super) fn unread(mut self, text: &str) -> Vec<(usize, Option<String>)> {
        let mut unread = Vec::new();
        for (at, line) in text.split('\n').enumerate() {
            let Some(token) = line.find(TOKEN) else { continue };
            let before = line.get(..token).unwrap_or_default();
            let seen = before.rfind('#').and_then(|hash| {
                let content = before.get(..hash).unwrap_or_default().trim_end_matches('#');
                let text = line.get(content.len()..).unwrap_or_default().to_owned();
                // A comment after a lone `-` does not belong to the `-`.
                let is_behind = content.contains(|c| !matches!(c, ' ' | '\t' | '-'));
                self.comments.get_mut(&MarkerComment { text, is_behind })
            });
            match seen.filter(|seen| seen.count > 0) {
                Some(seen) => {
                    seen.count -= 1;
                    unread.extend(seen.unknown.clone().map(|setter| (at + 1, Some(setter))));
                }
                None => unread.push((at + 1, None)),
            }
        }
        unread
    }
}
