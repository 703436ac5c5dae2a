//! Writes the text: columns, indentation, blank lines, and each style of scalar. Choosing the style of a scalar is
//! elsewhere (`scalar.rs`).
//!
//! Unlike in version 2, a line is never folded because it is long.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::emit::scalar_style::{is_break, is_printable};
use crate::emit::writer::escape;

/// The characters that are not escaped in a tag, in addition to letters and digits.
const URI: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b';')
    .remove(b'/')
    .remove(b'?')
    .remove(b':')
    .remove(b'@')
    .remove(b'&')
    .remove(b'=')
    .remove(b'+')
    .remove(b'$')
    .remove(b',')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'*')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'[')
    .remove(b']');

/// The YAML text that is being written.
#[derive(Debug)]
pub(super) struct NodeWriter {
    out: String,
    /// The number of characters in the last line.
    column: usize,
    /// The column in which lines begin. `None` outside of all nodes.
    indent: Option<usize>,
    /// Whether the last character separates tokens.
    is_spaced: bool,
    /// Whether the last line only has indentation and indicators that count as indentation.
    is_indentation: bool,
    /// The indentation of a foot comment above. A line that begins in this column needs an empty line before it,
    /// because the comment belongs to the node before it.
    foot_indent: Option<usize>,
    limit: usize,
    is_full: bool,
}

impl NodeWriter {
    /// An empty text; it is full when it has more than `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            out: String::new(),
            column: 0,
            indent: None,
            is_spaced: true,
            is_indentation: true,
            foot_indent: None,
            limit,
            is_full: false,
        }
    }

    /// The text. `None` if it became too long.
    pub(super) fn finish(self) -> Option<String> {
        (!self.is_full()).then_some(self.out)
    }

    /// Whether the text is too long.
    pub(super) fn is_full(&self) -> bool {
        self.is_full || self.out.len() > self.limit
    }

    pub(super) fn column(&self) -> usize {
        self.column
    }

    pub(super) fn is_indentation(&self) -> bool {
        self.is_indentation
    }

    pub(super) fn indent(&self) -> usize {
        self.indent.unwrap_or(0)
    }

    /// Sets the column in which lines begin. Returns the former column. `None` counts as column 0.
    pub(super) fn replace_indent(&mut self, indent: Option<usize>) -> Option<usize> {
        std::mem::replace(&mut self.indent, indent)
    }

    pub(super) fn set_foot_indent(&mut self, indent: Option<usize>) {
        self.foot_indent = indent;
    }

    /// Moves to the indentation of an empty line, which may be the present line.
    pub(super) fn start_line(&mut self) {
        let indent = self.indent();
        let is_past = self.column > indent || self.column == indent && !self.is_spaced;
        if !self.is_indentation || is_past {
            self.put_break();
        }
        if self.foot_indent == Some(indent) {
            self.put_break();
        }
        let missing = indent.saturating_sub(self.column);
        if self.out.len() + missing > self.limit {
            self.is_full = true;
        } else {
            self.out.extend(std::iter::repeat_n(' ', missing));
        }
        self.column += missing;
        self.is_spaced = true;
        self.foot_indent = None;
    }

    pub(super) fn put_break(&mut self) {
        self.put_break_as('\n');
    }

    fn put_break_as(&mut self, c: char) {
        self.out.push(c);
        self.column = 0;
        self.is_indentation = true;
    }

    fn put(&mut self, c: char) {
        self.out.push(c);
        self.column += 1;
    }

    fn put_all(&mut self, text: &str) {
        self.out.push_str(text);
        self.column += text.chars().count();
    }

    /// Writes a space if the next text would otherwise touch the previous one.
    pub(super) fn separate(&mut self) {
        if !self.is_spaced {
            self.put(' ');
        }
    }

    /// Writes an indicator: whether it needs a space in front, is one itself, and is indentation.
    pub(super) fn indicator(
        &mut self,
        text: &str,
        separated: bool,
        is_space: bool,
        is_indentation: bool,
    ) {
        if separated {
            self.separate();
        }
        self.put_all(text);
        self.is_spaced = is_space;
        self.is_indentation &= is_indentation;
    }

    /// Writes the name of an anchor after its indicator.
    pub(super) fn word(&mut self, text: &str) {
        self.put_all(text);
        self.end_inline();
    }

    fn end_inline(&mut self) {
        self.is_spaced = false;
        self.is_indentation = false;
    }

    /// Writes a tag. Without a handle, the whole tag is written.
    pub(super) fn tag(&mut self, handle: &str, suffix: &str) {
        self.separate();
        self.put_all(if handle.is_empty() { "!<" } else { handle });
        for part in utf8_percent_encode(suffix, URI) {
            self.put_all(part);
        }
        if handle.is_empty() {
            self.put('>');
        }
        self.end_inline();
    }

    /// Writes the lines of a comment, each with a `#`, and a line break.
    pub(super) fn comment(&mut self, text: &str) {
        let mut after_break = false;
        let mut has_pound = false;
        for c in text.chars() {
            if is_break(c) {
                self.put_break_as(c);
                after_break = true;
                has_pound = false;
                continue;
            }
            if after_break {
                self.start_line();
            }
            if !has_pound && c != '#' {
                self.put_all("# ");
            }
            has_pound = true;
            self.put(c);
            self.is_indentation = false;
            after_break = false;
        }
        if !after_break {
            self.put_break();
        }
        self.is_spaced = true;
    }

    /// Writes a scalar without quotes.
    pub(super) fn plain(&mut self, text: &str) {
        if !text.is_empty() {
            self.separate();
            self.put_all(text);
            self.is_spaced = false;
        }
        self.is_indentation = false;
    }

    /// Writes a scalar in single quotes.
    pub(super) fn single_quoted(&mut self, text: &str) {
        self.indicator("'", true, false, false);
        let mut after_break = false;
        for c in text.chars() {
            if is_break(c) {
                // A single line feed would be read as a space.
                if !after_break && c == '\n' {
                    self.put_break();
                }
                self.put_break_as(c);
                after_break = true;
                continue;
            }
            if after_break {
                self.start_line();
            }
            if c == '\'' {
                self.put('\'');
            }
            self.put(c);
            if c != ' ' {
                self.is_indentation = false;
                after_break = false;
            }
        }
        self.indicator("'", false, false, false);
        self.end_inline();
    }

    /// Writes text in `"`, all in one line.
    pub(super) fn double_quoted(&mut self, text: &str) {
        // Parity(go-yaml v3): a byte order mark at the front gets all characters escaped.
        let escapes_all = text.starts_with('\u{feff}');
        self.indicator("\"", true, false, false);
        for c in text.chars() {
            if escapes_all || !is_printable(c) || is_break(c) || matches!(c, '"' | '\\') {
                let before = self.out.len();
                escape(c, &mut self.out);
                self.column += self.out.len() - before;
            } else {
                self.put(c);
            }
        }
        self.indicator("\"", false, false, false);
        self.end_inline();
    }

    /// Writes `|` or `>` with its indicators for indentation and line breaks.
    pub(super) fn block_header(&mut self, indicator: &str, text: &str, step: usize) {
        self.indicator(indicator, true, false, false);
        if text.starts_with(|c| c == ' ' || is_break(c)) {
            self.indicator(&step.to_string(), false, false, false);
        }
        let mut last = text.chars().rev();
        match (last.next().is_some_and(is_break), last.next().is_none_or(is_break)) {
            (false, _) => self.indicator("-", false, false, false),
            (true, true) => self.indicator("+", false, false, false),
            (true, false) => {}
        }
    }

    /// Begins the lines of a block scalar.
    pub(super) fn begin_block(&mut self) {
        self.is_spaced = true;
    }

    /// Writes the lines behind `|`.
    pub(super) fn literal(&mut self, text: &str) {
        let mut after_break = true;
        for c in text.chars() {
            if is_break(c) {
                self.put_break_as(c);
            } else {
                if after_break {
                    self.start_line();
                }
                self.put(c);
                self.is_indentation = false;
            }
            after_break = is_break(c);
        }
    }

    /// Writes the lines behind `>`.
    pub(super) fn folded(&mut self, text: &str) {
        // Parity(go-yaml v3): for each line feed it examines the first line of the text where it
        // means the next one.
        let first = text.chars().find(|c| !is_break(*c));
        let doubles = first.is_some_and(|c| !matches!(c, ' ' | '\t' | '\0'));
        let mut after_break = true;
        let mut is_indented = true;
        for c in text.chars() {
            if is_break(c) {
                if !after_break && !is_indented && c == '\n' && doubles {
                    self.put_break();
                }
                self.put_break_as(c);
                after_break = true;
                continue;
            }
            if after_break {
                self.start_line();
                is_indented = matches!(c, ' ' | '\t');
            }
            self.put(c);
            self.is_indentation = false;
            after_break = false;
        }
    }
}
