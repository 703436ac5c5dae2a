//! Writes the text of scalars: columns, indentation, folding, quotes and escapes.
//!
//! Here: writing each style of scalar at the caller's position. Elsewhere: choosing the style (`scalar`), and the
//! structure of the text (`super`).

use super::scalar_style::{EmittedScalarStyle, is_break, is_printable};

/// A line that is longer than this is broken at its next space.
const MAX_LINE_COLUMNS: usize = 80;
/// The initial capacity of the text, in bytes.
const INITIAL_OUTPUT_BYTES: usize = 256;
/// How many columns each level is indented.
pub(super) const INDENT_COLUMNS: usize = 2;

/// Whether a scalar may continue on the next line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineFolding {
    Allowed,
    /// The scalar is a key before a colon.
    Forbidden,
}

/// The YAML text that is being written.
#[derive(Debug)]
pub(super) struct YamlWriter {
    out: String,
    /// The number of characters in the last line.
    column: usize,
    /// Whether the last character separates tokens.
    is_spaced: bool,
    /// Whether the last line only has indentation and the indicators `-`, `?` and `:`.
    is_line_start: bool,
    /// How many bytes the text may have.
    limit: usize,
    /// Whether indentation was left out because the limit was near.
    is_full: bool,
}

impl YamlWriter {
    /// An empty text that indentation will not make longer than `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        let is_spaced = true;
        let is_line_start = true;
        let out = String::with_capacity(INITIAL_OUTPUT_BYTES);
        Self { out, column: 0, is_spaced, is_line_start, limit, is_full: false }
    }

    /// The text. `None` if it would have become too long.
    pub(super) fn finish(self) -> Option<String> {
        (!self.is_full).then_some(self.out)
    }

    /// Whether the text is too long already, so that further writing is useless.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Whether a block that begins here would share its line with the indicators before it.
    pub(super) fn is_line_start(&self) -> bool {
        self.is_line_start
    }

    /// Moves to column `indent` of an empty line, which may be the present line.
    pub(super) fn start_line(&mut self, indent: usize) {
        let is_past = self.column > indent || self.column == indent && !self.is_spaced;
        if !self.is_line_start || is_past {
            self.put_break('\n');
        }
        let missing = indent.saturating_sub(self.column);
        if self.out.len() + missing > self.limit {
            self.is_full = true;
        } else {
            self.out.push_str(&" ".repeat(missing));
        }
        self.column += missing;
        self.is_spaced = true;
        self.is_line_start = true;
    }

    /// Writes `-`, `?`, or the `:` after a `?`. A block may begin after it on the same line.
    pub(super) fn block_indicator(&mut self, indicator: char) {
        self.separate();
        self.put(indicator);
        self.is_spaced = false;
    }

    /// Writes the colon after a key on the same line.
    pub(super) fn colon(&mut self) {
        self.put(':');
        self.end_inline();
    }

    /// Writes a text that needs neither quotes nor folding.
    pub(super) fn word(&mut self, word: &str) {
        self.separate();
        self.put_all(word);
        self.end_inline();
    }

    /// Writes a string in a style. Its further lines begin at column `indent`.
    ///
    /// # Assumes
    /// The style can represent the text.
    pub(super) fn string(
        &mut self,
        text: &str,
        style: EmittedScalarStyle,
        indent: usize,
        folding: LineFolding,
    ) {
        self.separate();
        match style {
            EmittedScalarStyle::Plain => self.folded(text, indent, folding, QuoteStyle::None),
            EmittedScalarStyle::SingleQuoted => {
                self.folded(text, indent, folding, QuoteStyle::Single);
            }
            EmittedScalarStyle::DoubleQuoted => self.escaped(text, indent, folding),
            EmittedScalarStyle::Literal => return self.literal(text, indent),
        }
        self.end_inline();
    }

    fn put(&mut self, c: char) {
        self.out.push(c);
        self.column += 1;
    }

    fn put_all(&mut self, text: &str) {
        self.out.push_str(text);
        self.column += text.chars().count();
    }

    fn put_break(&mut self, c: char) {
        self.out.push(c);
        self.column = 0;
    }

    fn separate(&mut self) {
        if !self.is_spaced {
            self.put(' ');
        }
    }

    fn end_inline(&mut self) {
        self.is_spaced = false;
        self.is_line_start = false;
    }

    /// Writes plain or single-quoted text.
    fn folded(&mut self, text: &str, indent: usize, folding: LineFolding, quote: QuoteStyle) {
        if quote == QuoteStyle::Single {
            self.put('\'');
            self.end_inline();
        }
        let mut after_space = false;
        let mut after_break = false;
        let mut chars = text.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            let next = chars.peek().map(|(_, next)| *next);
            if c == ' ' {
                // Neither the first nor the last character, and no space beside it.
                let is_fold = at > 0 && !after_space && next.is_some_and(|next| next != ' ');
                if is_fold && folding == LineFolding::Allowed && self.column > MAX_LINE_COLUMNS {
                    self.start_line(indent);
                } else {
                    self.put(' ');
                }
                after_space = true;
            } else if is_break(c) {
                // A single line feed would be read as a space, but such text is never written here.
                self.put_break(c);
                self.is_line_start = true;
                after_break = true;
            } else {
                if after_break {
                    self.start_line(indent);
                }
                if c == '\'' && quote == QuoteStyle::Single {
                    self.put('\'');
                }
                self.put(c);
                self.is_line_start = false;
                after_space = false;
                after_break = false;
            }
        }
        if quote == QuoteStyle::Single {
            self.put('\'');
        }
    }

    /// Writes text in double quotes, with escapes where they are needed.
    fn escaped(&mut self, text: &str, indent: usize, folding: LineFolding) {
        // Parity(go-yaml v2): a byte order mark at the front gets all characters escaped.
        let escapes_all = text.starts_with('\u{feff}');
        self.put('"');
        self.end_inline();
        let mut after_space = false;
        let mut chars = text.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            let next = chars.peek().map(|(_, next)| *next);
            if escapes_all || !is_printable(c) || is_break(c) || c == '"' || c == '\\' {
                self.escape(c);
                after_space = false;
            } else if c == ' ' {
                let is_fold = at > 0 && !after_space && next.is_some();
                if is_fold && folding == LineFolding::Allowed && self.column > MAX_LINE_COLUMNS {
                    self.start_line(indent);
                    if next == Some(' ') {
                        self.put('\\');
                    }
                } else {
                    self.put(' ');
                }
                after_space = true;
            } else {
                self.put(c);
                after_space = false;
            }
        }
        self.put('"');
    }

    fn escape(&mut self, c: char) {
        let before = self.out.len();
        escape(c, &mut self.out);
        self.column += self.out.len() - before;
    }

    /// Writes a block after `|`.
    fn literal(&mut self, text: &str, indent: usize) {
        self.put('|');
        if text.starts_with(|c| c == ' ' || is_break(c)) {
            self.put_all(&INDENT_COLUMNS.to_string());
        }
        let mut last = text.chars().rev();
        match (last.next().is_some_and(is_break), last.next().is_none_or(is_break)) {
            (false, _) => self.put('-'),
            (true, true) => self.put('+'),
            (true, false) => {}
        }
        self.put_break('\n');
        self.is_spaced = true;
        self.is_line_start = true;
        let mut after_break = true;
        for c in text.chars() {
            if is_break(c) {
                self.put_break(c);
                self.is_line_start = true;
            } else {
                if after_break {
                    self.start_line(indent);
                }
                self.put(c);
                self.is_line_start = false;
            }
            after_break = is_break(c);
        }
    }
}

/// Writes the escape of a character that double quotes cannot contain otherwise.
pub(crate) fn escape(c: char, into: &mut String) {
    let short = match c {
        '\0' => '0',
        '\u{7}' => 'a',
        '\u{8}' => 'b',
        '\t' => 't',
        '\n' => 'n',
        '\u{b}' => 'v',
        '\u{c}' => 'f',
        '\r' => 'r',
        '\u{1b}' => 'e',
        '"' | '\\' => c,
        '\u{85}' => 'N',
        '\u{a0}' => '_',
        '\u{2028}' => 'L',
        '\u{2029}' => 'P',
        _ => {
            let code = u32::from(c);
            let text = match code {
                0..=0xff => format!("\\x{code:02X}"),
                0x100..=0xffff => format!("\\u{code:04X}"),
                _ => format!("\\U{code:08X}"),
            };
            return into.push_str(&text);
        }
    };
    into.push('\\');
    into.push(short);
}

/// What encloses text without escapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QuoteStyle {
    None,
    Single,
}
