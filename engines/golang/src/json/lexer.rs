//! The tokens of JSON, and Go's message about a byte that belongs to no token.
//!
//! Elsewhere: building values from tokens (`json.rs`).

use super::Error;
use crate::strconv::{QuotingStyle, quote_char};
use crate::unicode::decode;
use crate::value::GoString;

/// The token with which a value begins.
pub(super) enum JsonToken<'t> {
    OpenList,
    OpenObject,
    Number(&'t str),
    String(GoString),
    Bool(bool),
    Null,
}

pub(super) struct JsonLexer<'t> {
    text: &'t [u8],
    at: usize,
}

impl<'t> JsonLexer<'t> {
    pub(super) fn new(text: &'t [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// How many bytes were read.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn next(&mut self) -> Result<u8, Error> {
        let byte = self.peek().ok_or(Error::UnexpectedEnd)?;
        self.at += 1;
        Ok(byte)
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    /// The first byte of the next token.
    fn begin(&mut self) -> Result<u8, Error> {
        self.skip_space();
        self.next()
    }

    pub(super) fn value(&mut self) -> Result<JsonToken<'t>, Error> {
        Ok(match self.begin()? {
            b'[' => JsonToken::OpenList,
            b'{' => JsonToken::OpenObject,
            b'"' => JsonToken::String(self.string()?),
            digit @ (b'-' | b'0'..=b'9') => JsonToken::Number(self.number(digit)?),
            b't' => {
                let steps = [
                    (b'r', "in literal true (expecting 'r')"),
                    (b'u', "in literal true (expecting 'u')"),
                    (b'e', "in literal true (expecting 'e')"),
                ];
                self.literal(&steps).map(|()| JsonToken::Bool(true))?
            }
            b'f' => {
                let steps = [
                    (b'a', "in literal false (expecting 'a')"),
                    (b'l', "in literal false (expecting 'l')"),
                    (b's', "in literal false (expecting 's')"),
                    (b'e', "in literal false (expecting 'e')"),
                ];
                self.literal(&steps).map(|()| JsonToken::Bool(false))?
            }
            b'n' => {
                let steps = [
                    (b'u', "in literal null (expecting 'u')"),
                    (b'l', "in literal null (expecting 'l')"),
                    (b'l', "in literal null (expecting 'l')"),
                ];
                self.literal(&steps).map(|()| JsonToken::Null)?
            }
            other => return Err(invalid(other, "looking for beginning of value")),
        })
    }

    /// Reads the end of a list or object, if it follows its beginning immediately.
    pub(super) fn closes(&mut self, end: u8) -> bool {
        self.skip_space();
        let closes = self.peek() == Some(end);
        self.at += usize::from(closes);
        closes
    }

    /// Reads the token after an item of a list. Returns whether another item follows.
    pub(super) fn list_goes_on(&mut self) -> Result<bool, Error> {
        match self.begin()? {
            b',' => Ok(true),
            b']' => Ok(false),
            other => Err(invalid(other, "after array element")),
        }
    }

    /// Reads the first key of an object, and the colon after it.
    pub(super) fn first_key(&mut self) -> Result<GoString, Error> {
        self.key("looking for beginning of object key string")
    }

    /// Reads the token after a value of an object. Returns the next key, if another one follows.
    pub(super) fn next_key(&mut self) -> Result<Option<GoString>, Error> {
        match self.begin()? {
            b',' => self.key("looking for beginning of object key string").map(Some),
            b'}' => Ok(None),
            other => Err(invalid(other, "after object key:value pair")),
        }
    }

    fn key(&mut self, context: &'static str) -> Result<GoString, Error> {
        match self.begin()? {
            b'"' => {}
            other => return Err(invalid(other, context)),
        }
        let key = self.string()?;
        match self.begin()? {
            b':' => Ok(key),
            other => Err(invalid(other, "after object key")),
        }
    }

    fn literal(&mut self, steps: &[(u8, &'static str)]) -> Result<(), Error> {
        for (wanted, context) in steps {
            let byte = self.next()?;
            if byte != *wanted {
                return Err(invalid(byte, context));
            }
        }
        Ok(())
    }

    fn number(&mut self, first: u8) -> Result<&'t str, Error> {
        let from = self.at - 1;
        let digit = if first == b'-' { self.digit("in numeric literal")? } else { first };
        if digit != b'0' {
            self.skip_digits();
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digit("after decimal point in numeric literal")?;
            self.skip_digits();
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digit("in exponent of numeric literal")?;
            self.skip_digits();
        }
        Ok(std::str::from_utf8(&self.text[from..self.at]).unwrap_or_default())
    }

    fn digit(&mut self, context: &'static str) -> Result<u8, Error> {
        match self.next()? {
            digit @ b'0'..=b'9' => Ok(digit),
            other => Err(invalid(other, context)),
        }
    }

    fn skip_digits(&mut self) {
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
    }

    /// Reads a string after its opening quotation mark.
    fn string(&mut self) -> Result<GoString, Error> {
        let mut text = String::new();
        loop {
            let rest = &self.text[self.at..];
            match self.next()? {
                b'"' => return Ok(text.into()),
                b'\\' => self.escape(&mut text)?,
                control @ 0..=0x1f => return Err(invalid(control, "in string literal")),
                _ => {
                    let (character, width) = decode(rest);
                    text.push(character);
                    self.at += width - 1;
                }
            }
        }
    }

    fn escape(&mut self, text: &mut String) -> Result<(), Error> {
        text.push(match self.next()? {
            plain @ (b'"' | b'\\' | b'/') => char::from(plain),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let high = self.hexadecimal()?;
                // Two surrogates form one character. A single surrogate is U+FFFD, and the text after it stands
                // for itself.
                let after = self.at;
                let low = match (high, self.text.get(after..after + 2)) {
                    (0xd800..0xdc00, Some(b"\\u")) => {
                        self.at += 2;
                        self.hexadecimal()?
                    }
                    _ => 0,
                };
                if (0xdc00..0xe000).contains(&low) {
                    let code = 0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00);
                    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
                } else {
                    self.at = after;
                    char::from_u32(high).unwrap_or(char::REPLACEMENT_CHARACTER)
                }
            }
            other => return Err(invalid(other, "in string escape code")),
        });
        Ok(())
    }

    fn hexadecimal(&mut self) -> Result<u32, Error> {
        let mut code = 0;
        for _ in 0..4 {
            let byte = self.next()?;
            let Some(digit) = char::from(byte).to_digit(16) else {
                return Err(invalid(byte, "in \\u hexadecimal character escape"));
            };
            code = code * 16 + digit;
        }
        Ok(code)
    }
}

/// The error about a byte that is not allowed at its position.
pub(super) fn invalid(byte: u8, context: &'static str) -> Error {
    let character = match byte {
        b'"' => "'\"'".to_owned(),
        _ => {
            let quoted = quote_char(char::from(byte), QuotingStyle::Printable);
            String::from_utf8_lossy(&quoted).into_owned()
        }
    };
    Error::InvalidCharacter { character, context }
}
