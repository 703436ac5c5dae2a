//! Chooses the style of a scalar: the requested style, if its characters and its position allow that. The writer writes
//! the text in that style.

use crate::emit::scalar_style::{is_break, is_printable};

/// The style in which a scalar is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScalarStyle {
    Plain,
    SingleQuoted,
    DoubleQuoted,
    Literal,
    Folded,
}

/// The styles that can represent a text without changing it. Double quotes can represent any text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NodeScalarAnalysis {
    is_empty: bool,
    pub(super) is_multiline: bool,
    flow_plain: bool,
    block_plain: bool,
    single_quoted: bool,
    block: bool,
}

impl NodeScalarAnalysis {
    pub(super) fn of(text: &str) -> Self {
        let mut found = NodeCharacterFindings::default();
        let mut previous = None;
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            found.look(previous, c, chars.peek().copied());
            previous = Some(c);
        }
        let marks_document = text.starts_with("---") || text.starts_with("...");
        let is_edge = |c: char| c == ' ' || is_break(c);
        let is_edged = text.starts_with(is_edge) || text.ends_with(is_edge);
        let unquotable = found.space_break || found.tab || found.special;
        let plain = !(is_edged || found.break_space || unquotable || found.line_break);
        let is_empty = text.is_empty();
        Self {
            is_empty,
            is_multiline: found.line_break,
            flow_plain: plain && !(found.flow_indicator || marks_document || is_empty),
            block_plain: plain && !(found.block_indicator || marks_document),
            single_quoted: !(found.break_space || unquotable),
            block: !(text.ends_with(' ') || found.space_break || found.special || is_empty),
        }
    }

    /// The style in which a text is written if the style `asked` is requested.
    pub(super) fn style(&self, asked: ScalarStyle, is_flow: bool, simple_key: bool) -> ScalarStyle {
        let mut style = asked;
        if simple_key && self.is_multiline {
            return ScalarStyle::DoubleQuoted;
        }
        if style == ScalarStyle::Plain {
            let plain = if is_flow { self.flow_plain } else { self.block_plain };
            if !plain || self.is_empty && simple_key {
                style = ScalarStyle::SingleQuoted;
            }
        }
        match style {
            ScalarStyle::SingleQuoted if !self.single_quoted => ScalarStyle::DoubleQuoted,
            ScalarStyle::Literal | ScalarStyle::Folded if !self.block || is_flow || simple_key => {
                ScalarStyle::DoubleQuoted
            }
            style => style,
        }
    }
}

/// The properties of a text that one pass over its characters finds.
#[derive(Default)]
struct NodeCharacterFindings {
    line_break: bool,
    tab: bool,
    /// A character that only an escape can write.
    special: bool,
    /// Whether a character has a special meaning at its position, in a block or in a flow collection.
    block_indicator: bool,
    flow_indicator: bool,
    /// A space in front of a line break, or behind one.
    space_break: bool,
    break_space: bool,
}

impl NodeCharacterFindings {
    fn look(&mut self, previous: Option<char>, c: char, next: Option<char>) {
        let is_followed_by_blank = matches!(next, None | Some(' ' | '\t'));
        let (flow, block) = match (previous, c) {
            (
                None,
                '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%'
                | '@' | '`',
            ) => (true, true),
            (None, '?') | (_, ':') => (true, is_followed_by_blank),
            (None, '-') => (is_followed_by_blank, is_followed_by_blank),
            (Some(_), ',' | '?' | '[' | ']' | '{' | '}') => (true, false),
            (Some(before), '#') => {
                let is_comment = matches!(before, ' ' | '\t' | '\0') || is_break(before);
                (is_comment, is_comment)
            }
            _ => (false, false),
        };
        self.flow_indicator |= flow;
        self.block_indicator |= block;
        self.tab |= c == '\t';
        self.special |= c != '\t' && !is_printable(c);
        self.line_break |= is_break(c);
        self.break_space |= c == ' ' && previous.is_some_and(is_break);
        self.space_break |= is_break(c) && previous == Some(' ');
    }
}
