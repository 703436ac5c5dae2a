//! Groups the characters of a text into tokens. The position in an expression decides by which rules.
//!
//! Here: the end of each token. Elsewhere: which rules hold at which position (`parse.rs`).

use golang::unicode::decode;

/// A piece of the text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SubstitutionToken {
    /// The end of the text, or a NUL character. Parity(flux): the original library marks the end of a text by the
    /// character 0.
    End,
    /// `${`.
    Open,
    /// `}`.
    Close,
    /// One or more accepted characters, with escapes replaced.
    Word(Vec<u8>),
    /// A character that is not accepted.
    Other,
}

/// Which escape sequences are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EscapeSyntax {
    None,
    /// `$$` stands for `$`.
    Dollar,
    /// In addition, `\/` stands for `/`, and `\\` stands for `\`.
    DollarAndBackslash,
}

/// Which tokens the scanner recognizes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScanRules {
    /// Whether a word may have a character. The number is the length of the word in bytes, including this character.
    pub(crate) word: Option<fn(char, usize) -> bool>,
    /// Whether `${` is a token, even in the middle of a word.
    pub(crate) open: bool,
    /// Whether `}` is a token at a position where a word could begin.
    pub(crate) close: bool,
    pub(crate) escapes: EscapeSyntax,
}

impl ScanRules {
    /// Rules that recognize only words.
    pub(crate) fn word(word: fn(char, usize) -> bool) -> Self {
        Self { word: Some(word), open: false, close: false, escapes: EscapeSyntax::None }
    }

    /// Rules that recognize only the closing brace.
    pub(crate) const CLOSE: Self =
        Self { word: None, open: false, close: true, escapes: EscapeSyntax::None };
}

/// A position in a text.
#[derive(Debug)]
pub(crate) struct TextScanner<'t> {
    text: &'t [u8],
    at: usize,
}

impl<'t> TextScanner<'t> {
    pub(crate) fn new(text: &'t [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// How many bytes come before this position.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// The next character. It is NUL at the end of the text.
    pub(crate) fn peek(&self) -> char {
        match decode(self.rest()) {
            (_, 0) => '\0',
            (character, _) => character,
        }
    }

    /// The second next character, with its bytes. There are none at the end of the text.
    pub(crate) fn peek_second(&self) -> (char, usize) {
        let (_, width) = decode(self.rest());
        decode(&self.rest()[width..])
    }

    /// Reads the next token of the text. `rules` say which characters are special at this place.
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
