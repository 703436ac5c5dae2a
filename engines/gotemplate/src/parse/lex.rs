//! Divides the text of a template into tokens.
//!
//! Here: delimiters, trim markers, comments, and the tokens within actions. Elsewhere: the grammar (`parse/parser.rs`),
//! and checking numbers and escapes (`parse/number.rs`, `golang::strconv`).

use golang::strconv::{QuotingStyle, quote};
use golang::unicode::{decode, is_digit, is_letter, is_print};

/// The kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LexTokenKind {
    /// The scan ended; [`LexToken::error`] has the reason.
    Error,
    Bool,
    Char,
    CharConstant,
    Complex,
    Assign,
    Declare,
    Eof,
    Field,
    Identifier,
    LeftDelim,
    LeftParen,
    Number,
    Pipe,
    RawString,
    RightDelim,
    RightParen,
    Space,
    String,
    Text,
    Variable,
    Dot,
    Nil,
    Block,
    Break,
    Continue,
    Define,
    Else,
    End,
    If,
    Range,
    Template,
    With,
}

/// A token: bytes of the text, and the line on which they begin. [`TemplateLexer::problem`] has the message of
/// [`LexTokenKind::Error`].
#[derive(Debug, Clone, Copy)]
pub(super) struct LexToken {
    pub(super) kind: LexTokenKind,
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) line: u32,
}

impl LexToken {
    /// The value before the first token.
    pub(super) const NONE: Self = Self { kind: LexTokenKind::Error, start: 0, end: 0, line: 0 };

    /// The bytes of the token in the text.
    pub(super) fn of<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        &text[self.start as usize..self.end as usize]
    }

    /// The token as messages name it, unless it is an error.
    pub(super) fn shown(&self, text: &[u8]) -> String {
        let value = self.of(text);
        let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match self.kind {
            LexTokenKind::Eof => "EOF".to_owned(),
            LexTokenKind::Dot
            | LexTokenKind::Nil
            | LexTokenKind::Block
            | LexTokenKind::Break
            | LexTokenKind::Continue
            | LexTokenKind::Define
            | LexTokenKind::Else
            | LexTokenKind::End
            | LexTokenKind::If
            | LexTokenKind::Range
            | LexTokenKind::Template
            | LexTokenKind::With => format!("<{}>", lossy(value)),
            _ if value.len() > 10 => {
                let mut end = 0;
                let mut count = 0;
                while count < 10 && end < value.len() {
                    end += decode(&value[end..]).1;
                    count += 1;
                }
                format!("{}...", lossy(&quote(&value[..end], QuotingStyle::Printable)))
            }
            _ => lossy(&quote(value, QuotingStyle::Printable)),
        }
    }
}

/// The scanner that splits the text of a template into tokens.
pub(super) struct TemplateLexer<'a> {
    text: &'a [u8],
    left: &'a [u8],
    right: &'a [u8],
    at: usize,
    start: usize,
    line: usize,
    start_line: usize,
    parens: usize,
    is_inside: bool,
    is_over: bool,
    /// The message of the error, if there is one. No token follows an error.
    problem: Box<str>,
    /// Whether a function has the name `break`, which then is not a keyword.
    pub(super) has_break: bool,
    pub(super) has_continue: bool,
}

const LEFT_COMMENT: &[u8] = b"/*";
const RIGHT_COMMENT: &[u8] = b"*/";
/// The length of a trim marker: a dash and a space.
const TRIM_MARKER_BYTES: usize = 2;

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

fn is_alphanumeric(character: char) -> bool {
    character == '_' || is_letter(character) || is_digit(character)
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    let first = *wanted.first()?;
    let mut from = 0;
    loop {
        let at = from + memchr::memchr(first, &text[from..])?;
        if text[at..].starts_with(wanted) {
            return Some(at);
        }
        from = at + 1;
    }
}

fn newlines(text: &[u8]) -> usize {
    memchr::memchr_iter(b'\n', text).count()
}

/// A position in a text, or its line. The caller keeps texts below 4 GiB.
fn place(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl<'a> TemplateLexer<'a> {
    /// Begins to scan a text. The delimiters must not be empty.
    pub(super) fn new(text: &'a [u8], left: &'a [u8], right: &'a [u8]) -> Self {
        Self {
            text,
            left,
            right,
            at: 0,
            start: 0,
            line: 1,
            start_line: 1,
            parens: 0,
            is_inside: false,
            is_over: false,
            problem: Box::default(),
            has_break: false,
            has_continue: false,
        }
    }

    /// The next token. After an error or the end, it is the end again.
    pub(super) fn next_token(&mut self) -> LexToken {
        if self.is_over {
            return LexToken {
                kind: LexTokenKind::Eof,
                start: 0,
                end: 0,
                line: place(self.start_line),
            };
        }
        if self.is_inside { self.inside() } else { self.outside() }
    }

    fn rest(&self) -> &'a [u8] {
        &self.text[self.at..]
    }

    /// The next character. `None` at the end of the text.
    fn peek(&self) -> Option<char> {
        match self.text.get(self.at) {
            Some(ascii) if ascii.is_ascii() => Some(char::from(*ascii)),
            Some(_) => Some(decode(self.rest()).0),
            None => None,
        }
    }

    fn next(&mut self) -> Option<char> {
        let (character, width) = match self.text.get(self.at) {
            Some(ascii) if ascii.is_ascii() => (char::from(*ascii), 1),
            _ => decode(self.rest()),
        };
        self.at += width;
        if character == '\n' {
            self.line += 1;
        }
        (width > 0).then_some(character)
    }

    fn accept(&mut self, set: &[u8]) -> bool {
        let found = self.rest().first().is_some_and(|byte| set.contains(byte));
        self.at += usize::from(found);
        found
    }

    fn accept_run(&mut self, set: &[u8]) {
        while self.accept(set) {}
    }

    fn token(&mut self, kind: LexTokenKind) -> LexToken {
        let start = place(self.start);
        let end = place(self.at);
        let line = place(self.start_line);
        let token = LexToken { kind, start, end, line };
        self.start = self.at;
        self.start_line = self.line;
        token
    }

    /// Skips to the present position, and counts lines.
    fn ignore(&mut self) {
        self.line += newlines(&self.text[self.start..self.at]);
        self.start = self.at;
        self.start_line = self.line;
    }

    fn error(&mut self, message: impl Into<Box<str>>) -> LexToken {
        self.is_over = true;
        self.problem = message.into();
        let start = place(self.start);
        let line = place(self.start_line);
        LexToken { kind: LexTokenKind::Error, start, end: start, line }
    }

    /// The message of the error. It is empty if there is none.
    pub(super) fn problem(&self) -> &str {
        &self.problem
    }

    fn has_left_marker(text: &[u8]) -> bool {
        matches!(text, [b'-', space, ..] if is_space(*space))
    }

    fn has_right_marker(text: &[u8]) -> bool {
        matches!(text, [space, b'-', ..] if is_space(*space))
    }

    fn spaces(text: &[u8]) -> usize {
        text.iter().take_while(|byte| is_space(**byte)).count()
    }

    /// Whether the closing delimiter that is next trims the text after it. `None` if the closing delimiter is not next.
    fn right_delimiter(&self) -> Option<bool> {
        let rest = self.rest();
        if Self::has_right_marker(rest) && rest[TRIM_MARKER_BYTES..].starts_with(self.right) {
            return Some(true);
        }
        rest.starts_with(self.right).then_some(false)
    }

    fn outside(&mut self) -> LexToken {
        loop {
            let Some(found) = find(self.rest(), self.left) else {
                self.at = self.text.len();
                if self.at > self.start {
                    self.line += newlines(&self.text[self.start..]);
                    return self.token(LexTokenKind::Text);
                }
                return self.token(LexTokenKind::Eof);
            };
            if found > 0 {
                self.at += found;
                let mut trimmed = 0;
                if Self::has_left_marker(&self.text[self.at + self.left.len()..]) {
                    let text = &self.text[self.start..self.at];
                    trimmed = text.iter().rev().take_while(|byte| is_space(**byte)).count();
                }
                self.at -= trimmed;
                self.line += newlines(&self.text[self.start..self.at]);
                let token = self.token(LexTokenKind::Text);
                self.at += trimmed;
                self.ignore();
                if token.start < token.end {
                    return token;
                }
            }
            self.at += self.left.len();
            let marker = if Self::has_left_marker(self.rest()) { TRIM_MARKER_BYTES } else { 0 };
            if self.rest()[marker..].starts_with(LEFT_COMMENT) {
                self.at += marker;
                self.ignore();
                if let Some(error) = self.comment() {
                    return error;
                }
                continue;
            }
            let token = self.token(LexTokenKind::LeftDelim);
            self.is_inside = true;
            self.at += marker;
            self.ignore();
            self.parens = 0;
            return token;
        }
    }

    /// Skips a comment. `None` means that the comment is closed, and a token reports that it is not.
    fn comment(&mut self) -> Option<LexToken> {
        self.at += LEFT_COMMENT.len();
        let Some(found) = find(self.rest(), RIGHT_COMMENT) else {
            return Some(self.error("unclosed comment"));
        };
        self.at += found + RIGHT_COMMENT.len();
        let Some(trims) = self.right_delimiter() else {
            return Some(self.error("comment ends before closing delimiter"));
        };
        self.at += self.right.len();
        if trims {
            self.at += TRIM_MARKER_BYTES;
            self.at += Self::spaces(self.rest());
        }
        self.ignore();
        None
    }

    fn close(&mut self, trims: bool) -> LexToken {
        if trims {
            self.at += TRIM_MARKER_BYTES;
            self.ignore();
        }
        self.at += self.right.len();
        let token = self.token(LexTokenKind::RightDelim);
        if trims {
            self.at += Self::spaces(self.rest());
            self.ignore();
        }
        self.is_inside = false;
        token
    }

    fn inside(&mut self) -> LexToken {
        if let Some(trims) = self.right_delimiter() {
            return match self.parens {
                0 => self.close(trims),
                _ => self.error("unclosed left paren"),
            };
        }
        let Some(character) = self.peek() else { return self.error("unclosed action") };
        match character {
            ' ' | '\t' | '\r' | '\n' => return self.space(),
            '+' | '-' | '0'..='9' => return self.number(),
            '.' if self.rest().get(1).is_some_and(u8::is_ascii_digit) || self.rest().len() == 1 => {
                return self.number();
            }
            _ if is_alphanumeric(character) => return self.identifier(),
            _ => {}
        }
        self.next();
        match character {
            '=' => self.token(LexTokenKind::Assign),
            ':' => {
                if self.next() != Some('=') {
                    return self.error("expected :=");
                }
                self.token(LexTokenKind::Declare)
            }
            '|' => self.token(LexTokenKind::Pipe),
            '"' => self.quoted(b'"', LexTokenKind::String, "unterminated quoted string"),
            '\'' => {
                self.quoted(b'\'', LexTokenKind::CharConstant, "unterminated character constant")
            }
            '`' => {
                let Some(length) = memchr::memchr(b'`', self.rest()) else {
                    return self.error("unterminated raw quoted string");
                };
                self.line += newlines(&self.rest()[..length]);
                self.at += length + 1;
                self.token(LexTokenKind::RawString)
            }
            '$' => self.field_or_variable(LexTokenKind::Variable, LexTokenKind::Variable),
            '.' => self.field_or_variable(LexTokenKind::Field, LexTokenKind::Dot),
            '(' => {
                self.parens += 1;
                self.token(LexTokenKind::LeftParen)
            }
            ')' if self.parens == 0 => self.error("unexpected right paren"),
            ')' => {
                self.parens -= 1;
                self.token(LexTokenKind::RightParen)
            }
            ' '..='~' => self.token(LexTokenKind::Char),
            other => self.error(format!("unrecognized character in action: {}", code(other))),
        }
    }

    fn space(&mut self) -> LexToken {
        let spaces = Self::spaces(self.rest());
        self.line += newlines(&self.rest()[..spaces]);
        self.at += spaces;
        let last = &self.text[self.at - 1..];
        if Self::has_right_marker(last) && last[TRIM_MARKER_BYTES..].starts_with(self.right) {
            self.at -= 1;
            self.line -= usize::from(last[0] == b'\n');
            if spaces == 1 {
                return self.close(true);
            }
        }
        self.token(LexTokenKind::Space)
    }

    /// Skips letters, digits and underscores.
    fn word(&mut self) {
        loop {
            let rest = self.rest();
            let is_plain = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_';
            self.at += rest.iter().take_while(is_plain).count();
            match self.peek() {
                Some(other) if !other.is_ascii() && is_alphanumeric(other) => self.next(),
                _ => return,
            };
        }
    }

    fn identifier(&mut self) -> LexToken {
        self.word();
        let word = &self.text[self.start..self.at];
        if !self.at_terminator() {
            return self.bad_character();
        }
        let kind = match word {
            b"block" => LexTokenKind::Block,
            b"break" if !self.has_break => LexTokenKind::Break,
            b"continue" if !self.has_continue => LexTokenKind::Continue,
            b"define" => LexTokenKind::Define,
            b"else" => LexTokenKind::Else,
            b"end" => LexTokenKind::End,
            b"if" => LexTokenKind::If,
            b"range" => LexTokenKind::Range,
            b"nil" => LexTokenKind::Nil,
            b"template" => LexTokenKind::Template,
            b"with" => LexTokenKind::With,
            b"true" | b"false" => LexTokenKind::Bool,
            _ => LexTokenKind::Identifier,
        };
        self.token(kind)
    }

    fn bad_character(&mut self) -> LexToken {
        let shown = match self.peek() {
            Some(character) => code(character),
            None => "U+FFFFFFFFFFFFFFFF".to_owned(),
        };
        self.error(format!("bad character {shown}"))
    }

    /// Reads a field or variable, after its dot or dollar sign.
    fn field_or_variable(&mut self, kind: LexTokenKind, alone: LexTokenKind) -> LexToken {
        if self.at_terminator() {
            return self.token(alone);
        }
        self.word();
        if self.at_terminator() { self.token(kind) } else { self.bad_character() }
    }

    /// Whether a word can end here.
    fn at_terminator(&self) -> bool {
        match self.rest().first() {
            None | Some(b'.' | b',' | b'|' | b':' | b')' | b'(') => true,
            Some(byte) => is_space(*byte) || self.rest().starts_with(self.right),
        }
    }

    /// Reads a constant up to its closing quote, after the opening one.
    fn quoted(&mut self, mark: u8, kind: LexTokenKind, unterminated: &str) -> LexToken {
        loop {
            // No other character has a meaning within quotes.
            let plain = memchr::memchr3(mark, b'\\', b'\n', self.rest());
            self.at += plain.unwrap_or(self.rest().len());
            let character = match self.next() {
                Some('\\') => match self.next() {
                    Some(escaped) if escaped != '\n' => continue,
                    _ => None,
                },
                other => other,
            };
            match character {
                None | Some('\n') => return self.error(unterminated),
                Some(character) if character == char::from(mark) => return self.token(kind),
                Some(_) => {}
            }
        }
    }

    fn number(&mut self) -> LexToken {
        let is_good = self.scan_number();
        let is_complex = is_good && matches!(self.rest().first(), Some(b'+' | b'-'));
        let is_good =
            is_good && (!is_complex || (self.scan_number() && self.text[self.at - 1] == b'i'));
        if !is_good {
            let shown = quote(&self.text[self.start..self.at], QuotingStyle::Printable);
            return self.error(format!("bad number syntax: {}", String::from_utf8_lossy(&shown)));
        }
        self.token(if is_complex { LexTokenKind::Complex } else { LexTokenKind::Number })
    }

    fn scan_number(&mut self) -> bool {
        self.accept(b"+-");
        let mut digits: &[u8] = b"0123456789_";
        if self.accept(b"0") {
            if self.accept(b"xX") {
                digits = b"0123456789abcdefABCDEF_";
            } else if self.accept(b"oO") {
                digits = b"01234567_";
            } else if self.accept(b"bB") {
                digits = b"01_";
            }
        }
        self.accept_run(digits);
        if self.accept(b".") {
            self.accept_run(digits);
        }
        let exponent: &[u8] = match digits.len() {
            11 => b"eE",
            23 => b"pP",
            _ => b"",
        };
        if self.accept(exponent) {
            self.accept(b"+-");
            self.accept_run(b"0123456789_");
        }
        self.accept(b"i");
        if self.peek().is_some_and(is_alphanumeric) {
            self.next();
            return false;
        }
        true
    }
}

/// A character as Go's `%#U` prints it.
fn code(character: char) -> String {
    let number = format!("U+{:04X}", u32::from(character));
    if is_print(character) { format!("{number} '{character}'") } else { number }
}
