//! Quotes and unquotes strings and characters as Go does.

use super::QuoteSyntaxError;
use crate::unicode::{decode, is_print};

/// Which characters are not escaped within quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotingStyle {
    /// All characters that Go calls printable.
    Printable,
    /// Printable ASCII characters only.
    Ascii,
}

/// Go's `strconv.Quote`, or `QuoteToASCII`. The bytes need not be UTF-8.
pub fn quote(bytes: &[u8], quoting: QuotingStyle) -> Vec<u8> {
    let mut into = Vec::with_capacity(bytes.len() + 2);
    into.push(b'"');
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            escape(character, '"', quoting, &mut into);
        }
        for byte in chunk.invalid() {
            write_hex(&mut into, "\\x", u32::from(*byte), 2);
        }
    }
    into.push(b'"');
    into
}

/// Puts a character in single quotes and escapes it, like Go's `strconv.QuoteRune` or `QuoteRuneToASCII`.
pub fn quote_char(character: char, quoting: QuotingStyle) -> Vec<u8> {
    let mut into = vec![b'\''];
    escape(character, '\'', quoting, &mut into);
    into.push(b'\'');
    into
}

/// Go's `strconv.CanBackquote`: whether bytes can be written between backquotes on one line.
pub(crate) fn can_backquote(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|text| {
        text.chars().all(|character| {
            !matches!(character, '\u{feff}' | '`' | '\x7f')
                && (character >= ' ' || character == '\t')
        })
    })
}

fn escape(character: char, mark: char, quoting: QuotingStyle, into: &mut Vec<u8>) {
    let plain = match quoting {
        QuotingStyle::Printable => is_print(character),
        QuotingStyle::Ascii => character.is_ascii() && is_print(character),
    };
    match character {
        '\\' => into.extend(b"\\\\"),
        _ if character == mark => {
            into.push(b'\\');
            into.extend(character.encode_utf8(&mut [0; 4]).as_bytes());
        }
        _ if plain => into.extend(character.encode_utf8(&mut [0; 4]).as_bytes()),
        '\x07' => into.extend(b"\\a"),
        '\x08' => into.extend(b"\\b"),
        '\x0c' => into.extend(b"\\f"),
        '\n' => into.extend(b"\\n"),
        '\r' => into.extend(b"\\r"),
        '\t' => into.extend(b"\\t"),
        '\x0b' => into.extend(b"\\v"),
        '\0'..' ' | '\x7f' => write_hex(into, "\\x", u32::from(character), 2),
        '\u{80}'..'\u{10000}' => write_hex(into, "\\u", u32::from(character), 4),
        _ => write_hex(into, "\\U", u32::from(character), 8),
    }
}

fn write_hex(into: &mut Vec<u8>, prefix: &str, code: u32, digits: usize) {
    into.extend(format!("{prefix}{code:0digits$x}").bytes());
}

/// Go's `strconv.Unquote` of a text in double quotes or backquotes.
///
/// # Errors
/// The text has other quotes, or an escape is invalid.
pub fn unquote(text: &[u8]) -> Result<Vec<u8>, QuoteSyntaxError> {
    match text {
        [b'`', raw @ .., b'`'] if !raw.contains(&b'`') => Ok(match raw.contains(&b'\r') {
            true => raw.iter().copied().filter(|byte| *byte != b'\r').collect(),
            false => raw.to_vec(),
        }),
        [b'"', inner @ .., b'"'] => {
            let mut bytes = Vec::with_capacity(inner.len());
            let mut rest = inner;
            loop {
                let is_special = |byte: &u8| matches!(byte, b'\n' | b'\\' | b'"');
                let (plain, special) =
                    rest.split_at(rest.iter().position(is_special).unwrap_or(rest.len()));
                bytes.extend_from_slice(plain);
                match special.first() {
                    None => return Ok(bytes),
                    Some(b'\\') => {}
                    Some(_) => return Err(QuoteSyntaxError),
                }
                let (meant, tail) = unquote_escape(special, b'"')?;
                match meant {
                    EscapedCharacter::Byte(byte) => bytes.push(byte),
                    EscapedCharacter::Character(character) => {
                        bytes.extend(character.encode_utf8(&mut [0; 4]).as_bytes());
                    }
                }
                rest = tail;
            }
        }
        _ => Err(QuoteSyntaxError),
    }
}

/// Go's `strconv.UnquoteChar`: the code of the first character or escape before a closing `mark`, and the rest of the
/// text.
///
/// # Errors
/// The text is empty or begins with the mark, or an escape is invalid.
pub fn unquote_char(text: &[u8], mark: u8) -> Result<(u32, &[u8]), QuoteSyntaxError> {
    match text.first() {
        None => Err(QuoteSyntaxError),
        Some(first) if *first == mark => Err(QuoteSyntaxError),
        Some(b'\\') => {
            let (meant, rest) = unquote_escape(text, mark)?;
            let code = match meant {
                EscapedCharacter::Byte(byte) => u32::from(byte),
                EscapedCharacter::Character(character) => u32::from(character),
            };
            Ok((code, rest))
        }
        Some(_) => {
            let (character, width) = decode(text);
            Ok((u32::from(character), &text[width..]))
        }
    }
}

enum EscapedCharacter {
    Byte(u8),
    Character(char),
}

/// Reads an escape. `text` begins with its backslash.
fn unquote_escape(text: &[u8], mark: u8) -> Result<(EscapedCharacter, &[u8]), QuoteSyntaxError> {
    let (&letter, rest) = text.get(1..).and_then(<[u8]>::split_first).ok_or(QuoteSyntaxError)?;
    let simple = |byte| Ok((EscapedCharacter::Byte(byte), rest));
    let coded = |digits: usize, radix: u32, from: &'_ [u8]| {
        let digits = from.get(..digits).ok_or(QuoteSyntaxError)?;
        digits.iter().try_fold(0_u32, |code, digit| {
            let digit = char::from(*digit).to_digit(radix).ok_or(QuoteSyntaxError)?;
            // Eight hexadecimal digits fit.
            Ok(code.wrapping_mul(radix) | digit)
        })
    };
    match letter {
        b'a' => simple(0x07),
        b'b' => simple(0x08),
        b'f' => simple(0x0c),
        b'n' => simple(b'\n'),
        b'r' => simple(b'\r'),
        b't' => simple(b'\t'),
        b'v' => simple(0x0b),
        b'\\' => simple(b'\\'),
        b'\'' | b'"' if letter == mark => simple(letter),
        b'x' => {
            let code = coded(2, 16, rest)?;
            Ok((
                EscapedCharacter::Byte(u8::try_from(code).map_err(|_| QuoteSyntaxError)?),
                &rest[2..],
            ))
        }
        b'u' | b'U' => {
            let digits = if letter == b'u' { 4 } else { 8 };
            let character = char::from_u32(coded(digits, 16, rest)?).ok_or(QuoteSyntaxError)?;
            Ok((EscapedCharacter::Character(character), &rest[digits..]))
        }
        b'0'..=b'7' => {
            let code = coded(3, 8, &text[1..])?;
            Ok((
                EscapedCharacter::Byte(u8::try_from(code).map_err(|_| QuoteSyntaxError)?),
                &text[4..],
            ))
        }
        _ => Err(QuoteSyntaxError),
    }
}

#[cfg(test)]
mod tests {
    use super::{QuotingStyle, can_backquote, quote, quote_char, unquote, unquote_char};

    #[test]
    fn strings_are_quoted_also_when_they_are_not_utf_8() {
        let quoted = |quoting| {
            String::from_utf8(quote(b"a\"'\\\n\x7f\xff\xc3\xa9\xc2\xa0\xf0\x9f\x98\x80", quoting))
        };
        assert_eq!(quoted(QuotingStyle::Printable).unwrap(), r#""a\"'\\\n\x7f\xffé\u00a0😀""#);
        assert_eq!(
            quoted(QuotingStyle::Ascii).unwrap(),
            r#""a\"'\\\n\x7f\xff\u00e9\u00a0\U0001f600""#
        );
        assert_eq!(quote_char('\'', QuotingStyle::Printable), br"'\''");
    }

    #[test]
    fn what_was_quoted_is_read_back() {
        for bytes in [b"".as_slice(), b"a\x00\xff\xfe\"\\`", "é\u{feff}😀\u{7f}".as_bytes()] {
            assert_eq!(unquote(&quote(bytes, QuotingStyle::Printable)).unwrap(), bytes);
            assert_eq!(unquote(&quote(bytes, QuotingStyle::Ascii)).unwrap(), bytes);
        }
        assert_eq!(unquote(b"`a\r\n\\n`").unwrap(), b"a\n\\n");
        assert_eq!(unquote(br#""\101\x41\u0041""#).unwrap(), b"AAA");
    }

    #[test]
    fn wrong_escapes_are_refused() {
        for text in [
            r#""\'""#,
            r#""\400""#,
            r#""\ud800""#,
            r#""\U00110000""#,
            r#""\x4""#,
            r#""\q""#,
            r#"""#,
            "a",
        ] {
            assert!(unquote(text.as_bytes()).is_err(), "{text}");
        }
        assert!(unquote_char(b"'", b'\'').is_err());
        assert_eq!(unquote_char(br"\xff'", b'\'').unwrap(), (255, b"'".as_slice()));
        assert_eq!(
            (can_backquote(b"a\tb"), can_backquote(b"a`"), can_backquote(b"\xff")),
            (true, false, false)
        );
    }
}
