//! Reads keys and scalars that are on one line, and block scalars.

use std::borrow::Cow;

use super::{MAX_KEY, ValueBuilder, is_end, number};
use crate::YamlDialect;
use crate::scalar_resolve::{ResolvedScalar, resolve};

/// The text of a key, and the text after its colon. `None` if there is no simple key.
pub(super) fn key(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let (key, rest) = match text.as_bytes().first()? {
        b'"' | b'\'' => quoted(text)?,
        _ => {
            let (key, rest) = text.split_at(plain_key_length(text));
            (plain_key(key)?, rest)
        }
    };
    let value = rest.strip_prefix(':').filter(|value| is_end(value))?;
    (text.len() - rest.len() <= MAX_KEY).then_some((key, value))
}

/// How many bytes at the beginning may belong to a key without quotes.
pub(super) fn plain_key_length(text: &str) -> usize {
    let is_of_key =
        |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/');
    text.bytes().take_while(is_of_key).count()
}

/// The text of a key that is written without quotes. `None` if the fast path cannot read it.
pub(super) fn plain_key(key: &str) -> Option<Cow<'_, str>> {
    if key.starts_with('-') {
        return None;
    }
    match resolve(YamlDialect::V2, "", key).ok()? {
        ResolvedScalar::Str | ResolvedScalar::Timestamp => Some(Cow::Borrowed(key)),
        ResolvedScalar::Bool(truth) => Some(truth.to_string().into()),
        ResolvedScalar::Int(int) => Some(int.to_string().into()),
        ResolvedScalar::Null
        | ResolvedScalar::Uint(_)
        | ResolvedScalar::Float(_)
        | ResolvedScalar::Binary
        | ResolvedScalar::Other => None,
    }
}

/// A text without the comment at its end.
pub(super) fn without_comment(text: &str) -> &str {
    match text.as_bytes().contains(&b'#').then(|| text.find(" #")).flatten() {
        Some(end) => text[..end].trim_end_matches(' '),
        None => text,
    }
}

/// Whether the rest of a line is empty or a comment.
pub(super) fn is_over(rest: &str) -> bool {
    let text = rest.trim_start_matches(' ');
    text.is_empty() || text.starts_with('#') && text.len() < rest.len()
}

/// The text of a quoted scalar, and the text after the closing quote. `None` if the fast path cannot read it.
pub(super) fn quoted(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let quote = *text.as_bytes().first()?;
    let inside = text.get(1..)?;
    let is_special = |byte: u8| byte == quote || byte == b'\\' && quote == b'"';
    let mut said = Cow::Borrowed("");
    let mut rest = inside;
    loop {
        let at = rest.bytes().position(is_special)?;
        let (before, behind) = rest.split_at(at);
        if said.is_empty() {
            said = Cow::Borrowed(before);
        } else {
            said.to_mut().push_str(before);
        }
        let escaped = match (behind.as_bytes(), quote) {
            ([b'\\', b'"', ..], _) => '"',
            ([b'\\', b'\\', ..], _) => '\\',
            ([b'\\', b'n', ..], _) => '\n',
            ([b'\\', b't', ..], _) => '\t',
            // The full reader handles all other escapes.
            ([b'\\', ..], _) => return None,
            ([b'\'', b'\'', ..], b'\'') => '\'',
            _ => return Some((said, &behind[1..])),
        };
        said.to_mut().push(escaped);
        rest = &behind[2..];
    }
}

/// The value of a scalar without quotes that is the rest of a line. `None` if the fast path cannot read it.
pub(super) fn plain<M: ValueBuilder>(text: &str) -> Option<M::Value> {
    let is_key = text.ends_with(':') || text.contains(": ");
    if is_key || !begins_plain(text) {
        return None;
    }
    meaning::<M>(text)
}

/// Whether a scalar without quotes may begin like this, in a list or map with one entry on each line.
fn begins_plain(text: &str) -> bool {
    match text.as_bytes() {
        [b'-', second, ..] => *second != b' ',
        [
            b'-' | b'?' | b':' | b',' | b'[' | b']' | b'{' | b'}' | b'#' | b'&' | b'*' | b'!'
            | b'|' | b'>' | b'\'' | b'"' | b'%' | b'@' | b'`',
            ..,
        ]
        | [] => false,
        _ => true,
    }
}

/// The value that a text without quotes stands for, such as a number. `None` if the fast path cannot read it.
pub(super) fn meaning<M: ValueBuilder>(text: &str) -> Option<M::Value> {
    Some(match resolve(YamlDialect::V2, "", text).ok()? {
        ResolvedScalar::Null => M::null(),
        ResolvedScalar::Bool(truth) => M::bool(truth),
        ResolvedScalar::Int(int) => M::int(int),
        ResolvedScalar::Uint(uint) => M::uint(uint),
        ResolvedScalar::Float(float) => M::number(number(float)?),
        ResolvedScalar::Str | ResolvedScalar::Timestamp => M::text(text),
        ResolvedScalar::Binary | ResolvedScalar::Other => return None,
    })
}

/// How the line breaks at the end are treated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BlockChomping {
    Strip,
    Clip,
    Keep,
}

/// A literal or folded block scalar that is being read.
pub(super) struct OpenBlockScalar {
    is_folded: bool,
    chomping: BlockChomping,
    /// The column of the collection that contains the scalar.
    outer: usize,
    /// The column of the scalar's text, once it is known.
    indent: Option<usize>,
    /// Whether the text is needed.
    is_kept: bool,
    content: String,
    /// Whether the last line of text has ended, and how many empty lines followed it.
    is_ended: bool,
    breaks: usize,
    /// Whether the last line of text began with a space.
    was_blank: bool,
}

impl OpenBlockScalar {
    /// Begins a block scalar by its first line, such as `|-`. `None` if the line is not simple enough for the fast
    /// path.
    pub(super) fn begin(text: &str, outer: usize, is_kept: bool) -> Option<Self> {
        let chomping = match text.get(1..)? {
            "" => BlockChomping::Clip,
            "-" => BlockChomping::Strip,
            "+" => BlockChomping::Keep,
            _ => return None,
        };
        Some(Self {
            is_folded: text.starts_with('>'),
            chomping,
            outer,
            indent: None,
            is_kept,
            content: String::new(),
            is_ended: false,
            breaks: 0,
            was_blank: false,
        })
    }

    /// Adds a line, if it belongs to the scalar. `column` is the column of its first character other than a space.
    /// `false` if the line does not belong to the scalar, and `None` if the text is not simple.
    pub(super) fn line(&mut self, line: &str, column: usize, is_ended: bool) -> Option<bool> {
        let is_blank = line.len() == column;
        if is_blank && (!is_ended || self.indent.is_none() && column > 0) {
            // Spaces in front of the text count if there are more of them.
            return None;
        }
        if is_blank && column <= self.indent.unwrap_or(0) {
            self.breaks += 1;
            return Some(true);
        }
        if !is_blank && column <= self.outer {
            return Some(false);
        }
        let text = line.get(*self.indent.get_or_insert(column)..)?;
        if column < line.len() - text.len() {
            return None;
        }
        if !self.is_kept {
            return Some(true);
        }
        let begins_blank = text.starts_with(' ');
        if self.is_folded && self.is_ended && !self.was_blank && !begins_blank {
            if self.breaks == 0 {
                self.content.push(' ');
            }
        } else if self.is_ended {
            self.content.push('\n');
        }
        self.content.extend(std::iter::repeat_n('\n', std::mem::take(&mut self.breaks)));
        self.content.push_str(text);
        (self.is_ended, self.was_blank) = (is_ended, begins_blank);
        Some(true)
    }

    /// The text of the scalar.
    pub(super) fn finish(self) -> String {
        let mut content = self.content;
        if self.is_ended && self.chomping != BlockChomping::Strip {
            content.push('\n');
        }
        if self.chomping == BlockChomping::Keep {
            content.extend(std::iter::repeat_n('\n', self.breaks));
        }
        content
    }
}
