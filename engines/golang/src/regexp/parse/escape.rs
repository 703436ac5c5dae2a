//! Reads escapes that begin with `\`, and classes between `[` and `]`.

use super::super::character_class::{self, CharacterClass, NOTHING, folded};
use super::super::{Error, RegexpErrorReason};
use super::{RegexpParser, first, until};

impl<'p> RegexpParser<'p> {
    /// Reads an escape that begins with a `\`. Returns the rest of the pattern.
    pub(super) fn backslash(&mut self, at: &'p str) -> Result<&'p str, Error> {
        let rest = at.get(2..).unwrap_or_default();
        match at.as_bytes().get(1) {
            Some(b'A') => self.atom(r"\A"),
            Some(b'z') => self.atom(r"\z"),
            Some(b'b') => self.atom(r"(?-u:\b)"),
            Some(b'B') => self.atom(r"(?-u:\B)"),
            Some(b'C') => return Err(Error::pattern(RegexpErrorReason::Escape, until(at, rest))),
            Some(b'Q') => {
                let (quoted, rest) = rest.split_once(r"\E").unwrap_or((rest, ""));
                for character in quoted.chars() {
                    self.literal(character);
                }
                return Ok(rest);
            }
            _ => {
                if let Some((class, rest)) = unicode_class(at)?.or_else(|| perl_class(at)) {
                    self.atom(folded(class, self.flags.fold_case));
                    return Ok(rest);
                }
                let (code, rest) = escape(at)?;
                match char::from_u32(code) {
                    Some(character) => self.literal(character),
                    // A pattern may name a surrogate, but no text contains one.
                    None => self.atom(NOTHING),
                }
                return Ok(rest);
            }
        }
        Ok(rest)
    }

    /// Reads a class `[…]`. Returns the rest of the pattern.
    pub(super) fn class(&mut self, at: &'p str) -> Result<&'p str, Error> {
        let mut class = CharacterClass::default();
        let inside = &at[1..];
        let (mut rest, is_negated) =
            inside.strip_prefix('^').map_or((inside, false), |rest| (rest, true));
        let mut is_first = true;
        while is_first || !rest.starts_with(']') {
            is_first = false;
            if let Some((inner, after)) = named_class(rest)? {
                class.class(&inner);
                rest = after;
                continue;
            }
            if let Some((inner, after)) = unicode_class(rest)?.or_else(|| perl_class(rest)) {
                class.class(&inner);
                rest = after;
                continue;
            }
            let (low, after) = class_character(rest, at)?;
            let mut high = low;
            let mut end = after;
            if let Some(after) = after.strip_prefix('-')
                && !after.is_empty()
                && !after.starts_with(']')
            {
                (high, end) = class_character(after, at)?;
                if high < low {
                    return Err(Error::pattern(RegexpErrorReason::ClassRange, until(rest, end)));
                }
            }
            class.range(low, high);
            rest = end;
        }
        self.atom(class.written(is_negated, self.flags.fold_case));
        Ok(&rest[1..])
    }
}

fn class_character<'p>(at: &'p str, whole: &str) -> Result<(u32, &'p str), Error> {
    if at.is_empty() {
        return Err(Error::pattern(RegexpErrorReason::MissingBracket, whole));
    }
    if at.starts_with('\\') {
        return escape(at);
    }
    let (character, rest) = first(at);
    Ok((character.into(), rest))
}

/// Reads `[:alpha:]` within a class.
fn named_class(at: &str) -> Result<Option<(String, &str)>, Error> {
    let Some((name, rest)) = at.strip_prefix("[:").and_then(|inner| inner.split_once(":]")) else {
        return Ok(None);
    };
    match character_class::posix(name) {
        Some(class) => Ok(Some((class, rest))),
        None => Err(Error::pattern(RegexpErrorReason::ClassRange, until(at, rest))),
    }
}

/// Reads a character class such as `\d`. Returns the translated class and the text after it. `None` if the text begins
/// with no such class.
fn perl_class(at: &str) -> Option<(String, &str)> {
    let letter = at.strip_prefix('\\')?.bytes().next()?;
    Some((character_class::perl(letter)?.to_owned(), &at[2..]))
}

/// Reads `\pL`, `\p{Greek}` or `\P{^Greek}`.
fn unicode_class(at: &str) -> Result<Option<(String, &str)>, Error> {
    let (is_negated, inner) = match (at.strip_prefix(r"\p"), at.strip_prefix(r"\P")) {
        (Some(inner), _) => (false, inner),
        (None, Some(inner)) => (true, inner),
        (None, None) => return Ok(None),
    };
    let (name, rest) = match inner.strip_prefix('{') {
        Some(inner) => match inner.split_once('}') {
            Some(split) => split,
            None => return Err(Error::pattern(RegexpErrorReason::ClassRange, at)),
        },
        None => {
            let (_, rest) = first(inner);
            (until(inner, rest), rest)
        }
    };
    let (is_negated, plain) =
        name.strip_prefix('^').map_or((is_negated, name), |name| (!is_negated, name));
    match character_class::unicode(plain, is_negated) {
        Some(class) => Ok(Some((class, rest))),
        None => Err(Error::pattern(RegexpErrorReason::ClassRange, until(at, rest))),
    }
}

/// Reads an escape for one character. Returns its code point, which may be a surrogate.
fn escape(at: &str) -> Result<(u32, &str), Error> {
    let inner = &at[1..];
    if inner.is_empty() {
        return Err(Error::pattern(RegexpErrorReason::TrailingBackslash, ""));
    }
    let (character, rest) = first(inner);
    let invalid = |rest: &str| Err(Error::pattern(RegexpErrorReason::Escape, until(at, rest)));
    let code = match character {
        // A single digit would be a reference to a group, which Go does not support.
        '1'..='7' if !rest.starts_with(|next: char| next.is_digit(8)) => return invalid(rest),
        '0'..='7' => return Ok(octal(inner)),
        'x' => return hexadecimal(rest).or_else(invalid),
        'a' => '\u{7}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\u{b}',
        _ if character.is_ascii() && !character.is_ascii_alphanumeric() => character,
        _ => return invalid(rest),
    };
    Ok((code.into(), rest))
}

/// Reads at most three octal digits.
fn octal(text: &str) -> (u32, &str) {
    let end = text.bytes().take(3).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
    let (digits, rest) = text.split_at(end);
    (digits.bytes().fold(0, |code, digit| code * 8 + u32::from(digit - b'0')), rest)
}

/// Reads two hexadecimal digits, or any number of them in braces. An error has the text after the invalid part.
fn hexadecimal(text: &str) -> Result<(u32, &str), &str> {
    let Some(mut rest) = text.strip_prefix('{') else {
        // Parity(go): both characters belong to the escape, even if they are not digits.
        let (high, rest) = first(text);
        let (low, rest) = first(rest);
        return match (high.to_digit(16), low.to_digit(16)) {
            (Some(high), Some(low)) => Ok((high * 16 + low, rest)),
            _ => Err(rest),
        };
    };
    let mut code = 0u32;
    let mut count = 0;
    loop {
        let (character, after) = first(rest);
        rest = after;
        match character.to_digit(16) {
            Some(digit) => {
                (code, count) = (code * 16 + digit, count + 1);
                if code > u32::from(char::MAX) {
                    return Err(rest);
                }
            }
            None if character == '}' && count > 0 => return Ok((code, rest)),
            None => return Err(rest),
        }
    }
}
