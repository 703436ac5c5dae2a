//! The anchor and the comments of a node. Only few nodes have them.

/// The kinds of notes that a node can have: an anchor and comments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnchorOrCommentKind {
    /// The name by which aliases refer to the node.
    Anchor,
    /// The comment above the node, as lines with their `#`.
    Head,
    /// The comment after the node on the same line.
    Line,
    /// The comment below the node. If it is below an entry of a map, the key has it.
    Foot,
}

/// The anchor and the comments of a node. Missing ones are empty.
///
/// Most nodes have none, and then this takes no more memory than a pointer. That matters because large documents have
/// very many nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeAnchorAndComments(
    /// Never with empty strings only, so that notes are equal if their strings are.
    Option<Box<[String; 4]>>,
);

impl NodeAnchorAndComments {
    /// Notes with these comments, without an anchor.
    pub(super) fn comments(head: String, line: String, foot: String) -> Self {
        Self::of([String::new(), head, line, foot])
    }

    fn of(strings: [String; 4]) -> Self {
        let is_any = strings.iter().any(|text| !text.is_empty());
        Self(is_any.then(|| Box::new(strings)))
    }

    /// Whether there is neither an anchor nor a comment.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// A note; empty if there is none.
    pub fn get(&self, note: AnchorOrCommentKind) -> &str {
        self.0.as_ref().map_or("", |strings| &strings[note as usize])
    }

    /// Writes a note; an empty text removes it.
    pub fn set(&mut self, note: AnchorOrCommentKind, text: impl Into<String>) {
        let text = text.into();
        if self.0.is_none() && text.is_empty() {
            return;
        }
        let mut strings = self.0.take().map(|strings| *strings).unwrap_or_default();
        strings[note as usize] = text;
        *self = Self::of(strings);
    }

    /// Removes a note and returns it.
    pub fn take(&mut self, note: AnchorOrCommentKind) -> String {
        let text = self.get(note).to_owned();
        self.set(note, "");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_that_were_removed_are_as_if_they_had_never_been() {
        let mut notes = NodeAnchorAndComments::default();
        notes.set(AnchorOrCommentKind::Line, "# one");
        notes.set(AnchorOrCommentKind::Anchor, "a");
        assert_eq!(
            (notes.get(AnchorOrCommentKind::Anchor), notes.get(AnchorOrCommentKind::Head)),
            ("a", "")
        );
        assert_ne!(notes, NodeAnchorAndComments::default());
        assert_eq!(
            (notes.take(AnchorOrCommentKind::Line), notes.take(AnchorOrCommentKind::Anchor)),
            ("# one".into(), "a".into())
        );
        assert_eq!(notes, NodeAnchorAndComments::default());
        assert!(notes.is_empty() && notes.take(AnchorOrCommentKind::Foot).is_empty());
    }
}
