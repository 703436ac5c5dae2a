//! Characters of a text grouped into tokens, by rules that the place in an expression decides.
//!
//! Here: where a token ends. Elsewhere: which rules hold where (`parse.rs`).

use golang::unicode::decode;

/// A piece of the text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SubstitutionToken {
    /// The end of the text, or a NUL character.
    // Parity(flux): upstream's mark for the end of a text is the character 0.
    End,
    /// `${`.
    Open,
    /// `}`.
    Close,
    /// One or more accepted characters, escapes resolved.
    Word(Vec<u8>),
    /// A character that is not accepted.
    Other,
}

/// Which characters stand for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EscapeSyntax {
    None,
    /// `$$` is `$`.
    Dollar,
    /// Also `\/` is `/`, and `\\` is `\`.
    DollarAndBackslash,
}

/// What is looked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScanRules {
    /// Whether a word may have this character, so many bytes (its own among them) after the word's beginning.
    pub(crate) word: Option<fn(char, usize) -> bool>,
    /// Whether `${` is a token, also in the middle of a word.
    pub(crate) open: bool,
    /// Whether `}` is a token where a word could begin.
    pub(crate) close: bool,
    pub(crate) escapes: EscapeSyntax,
}

impl ScanRules {
    /// A word alone.
    pub(crate) fn word(word: fn(char, usize) -> bool) -> Self {
        Self { word: Some(word), open: false, close: false, escapes: EscapeSyntax::None }
    }

    /// The closing brace alone.
    pub(crate) const CLOSE: Self =
        Self { word: None, open: false, close: true, escapes: EscapeSyntax::None };
}

/// A place in a text.
#[derive(Debug)]
pub(crate) struct TextScanner<'t> {
    text: &'t [u8],
    at: usize,
}

impl<'t> TextScanner<'t> {
    pub(crate) fn new(text: &'t [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// How many bytes come before this place.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// The next character; NUL at the end.
    pub(crate) fn peek(&self) -> char {
        match decode(self.rest()) {
            (_, 0) => '\0',
            (character, _) => character,
        }
    }

    /// The character after the next one and its bytes, of which there are none at the end.
    pub(crate) fn peek_second(&self) -> (char, usize) {
        let (_, width) = decode(self.rest());
        decode(&self.rest()[width..])
    }

    /// Takes the next token.
    pub(crate) fn scan(&mut self, rules: ScanRules) -> SubstitutionToken {
        match self.peek() {
            '\0' => SubstitutionToken::End,
            '$' if rules.open && self.is_open() => {
                self.at += 2;
                SubstitutionToken::Open
            }
            '}' if rules.close => {
                self.at += 1;
                SubstitutionToken::Close
            }
            _ => self.scan_word(rules),
        }
    }

    fn scan_word(&mut self, rules: ScanRules) -> SubstitutionToken {
        let Some(accepts) = rules.word else { return SubstitutionToken::Other };
        let mut word = Vec::new();
        loop {
            let (character, width) = decode(self.rest());
            if width == 0 || character == '\0' || (rules.open && self.is_open()) {
                break;
            }
            if self.is_escape(rules.escapes) {
                word.push(self.text[self.at + 1]);
                self.at += 2;
                continue;
            }
            if !accepts(character, word.len() + width) {
                break;
            }
            word.extend_from_slice(&self.rest()[..width]);
            self.at += width;
        }
        if word.is_empty() { SubstitutionToken::Other } else { SubstitutionToken::Word(word) }
    }

    fn rest(&self) -> &'t [u8] {
        &self.text[self.at..]
    }

    fn is_open(&self) -> bool {
        self.rest().starts_with(b"${")
    }

    fn is_escape(&self, escapes: EscapeSyntax) -> bool {
        match self.rest() {
            [b'$', b'$', ..] => escapes != EscapeSyntax::None,
            [b'\\', b'/' | b'\\', ..] => escapes == EscapeSyntax::DollarAndBackslash,
            _ => false,
        }
    }
}
