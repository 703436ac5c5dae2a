//! Lists and maps within a line: `[a, b]`, `{a: 1}`.

use super::ValueBuilder;
use super::scalar::{is_over, meaning, plain_key, plain_key_length, quoted};

/// How deep these collections may be nested. The functions recurse to this depth.
const MAX_DEPTH: usize = 16;

/// Reads a collection that is the rest of a line. `left` is how many values may still be read. `None` if the text is
/// not simple enough for the fast path.
pub(super) fn read<M: ValueBuilder>(text: &str, left: &mut usize) -> Option<M::Value> {
    let mut line = FlowLine { rest: text, left };
    let value = line.value::<M>(MAX_DEPTH)?;
    is_over(line.rest).then_some(value)
}

struct FlowLine<'t, 'l> {
    rest: &'t str,
    left: &'l mut usize,
}

impl FlowLine<'_, '_> {
    fn skip_spaces(&mut self) {
        self.rest = self.rest.trim_start_matches(' ');
    }

    /// Skips an indicator with the spaces around it, if it is next.
    fn passes(&mut self, indicator: char) -> bool {
        self.skip_spaces();
        let rest = self.rest.strip_prefix(indicator);
        self.rest = rest.unwrap_or(self.rest);
        self.skip_spaces();
        rest.is_some()
    }

    fn value<M: ValueBuilder>(&mut self, depth: usize) -> Option<M::Value> {
        *self.left = self.left.checked_sub(1)?;
        match self.rest.as_bytes().first()? {
            b'[' => self.list::<M>(depth.checked_sub(1)?),
            b'{' => self.map::<M>(depth.checked_sub(1)?),
            b'"' | b'\'' => {
                let (said, rest) = quoted(self.rest)?;
                self.rest = rest;
                Some(M::text(&said))
            }
            _ => meaning::<M>(self.word()?),
        }
    }

    fn list<M: ValueBuilder>(&mut self, depth: usize) -> Option<M::Value> {
        let mut items = Vec::new();
        self.passes('[');
        if self.rest.starts_with(']') {
            self.rest = &self.rest[1..];
            return Some(M::list(items));
        }
        loop {
            items.push(self.value::<M>(depth)?);
            if !self.passes(',') {
                self.rest = self.rest.strip_prefix(']')?;
                return Some(M::list(items));
            }
        }
    }

    fn map<M: ValueBuilder>(&mut self, depth: usize) -> Option<M::Value> {
        let mut entries = Vec::new();
        self.passes('{');
        if self.rest.starts_with('}') {
            self.rest = &self.rest[1..];
            return Some(M::map(entries));
        }
        loop {
            let key = self.key::<M>()?;
            entries.push((key, self.value::<M>(depth)?));
            if !self.passes(',') {
                self.rest = self.rest.strip_prefix('}')?;
                return Some(M::map(entries));
            }
        }
    }

    fn key<M: ValueBuilder>(&mut self) -> Option<M::Key> {
        *self.left = self.left.checked_sub(1)?;
        let (key, rest) = match self.rest.as_bytes().first()? {
            b'"' | b'\'' => quoted(self.rest)?,
            _ => {
                let (key, rest) = self.rest.split_at(plain_key_length(self.rest));
                (plain_key(key)?, rest)
            }
        };
        self.rest = rest.strip_prefix(": ")?;
        self.skip_spaces();
        Some(M::key(&key))
    }

    /// Reads a scalar without quotes whose characters never have a special meaning. `None` if it may have one.
    fn word(&mut self) -> Option<&str> {
        let is_plain = |byte: &u8| {
            byte.is_ascii_alphanumeric()
                || !byte.is_ascii()
                || matches!(byte, b'_' | b'-' | b'.' | b'/' | b'+' | b'=' | b'~' | b'$' | b' ')
        };
        let length = self.rest.bytes().take_while(is_plain).count();
        let (word, rest) = self.rest.split_at(length);
        self.rest = rest;
        let word = word.trim_end_matches(' ');
        let begins = match word.as_bytes() {
            [b'-', second, ..] => second.is_ascii_alphanumeric(),
            [b'-'] | [] => false,
            _ => true,
        };
        // The next character has to continue or end a list or map.
        let ends = rest.starts_with([',', ']', '}']);
        (begins && ends).then_some(word)
    }
}
