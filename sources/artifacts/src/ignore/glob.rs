//! Wildcards in one file name, as Go's `filepath.Match` reads them.
//!
//! Here: `*`, `?`, `[a-z]`, `[^a]` and `\`.
//! Elsewhere: slashes and `**` ([`super::pattern`]).

/// A pattern for one name.
///
/// Matching never backtracks beyond the last `*`: its cost is bounded by the length of the name times that of the pattern.
#[derive(Debug)]
pub(super) struct IgnoreGlob {
    chunks: Vec<GlobChunk>,
    /// Every item takes a byte at least.
    min_len: usize,
}

/// The part of a pattern between two stars.
#[derive(Debug)]
struct GlobChunk {
    after_star: bool,
    items: Vec<GlobItem>,
}

#[derive(Debug)]
enum GlobItem {
    Byte(u8),
    /// `?`
    Any,
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
}

impl IgnoreGlob {
    /// Compiles a pattern. `None` if the pattern is malformed.
    ///
    /// Go finds the error only while it matches a name, but there a malformed pattern matches no name either.
    pub(super) fn parse(pattern: &str) -> Option<Self> {
        let mut chunks = Vec::new();
        let mut rest = pattern;
        while !rest.is_empty() {
            let unstarred = rest.trim_start_matches('*');
            let after_star = unstarred.len() < rest.len();
            let (chunk, following) = unstarred.split_at(chunk_len(unstarred));
            chunks.push(GlobChunk { after_star, items: items(chunk)? });
            rest = following;
        }
        let min_len = chunks.iter().map(|chunk| chunk.items.len()).sum();
        Some(Self { chunks, min_len })
    }

    /// Whether the pattern matches the whole name.
    pub(super) fn matches(&self, name: &str) -> bool {
        let mut name = name.as_bytes();
        if name.len() < self.min_len {
            return false;
        }
        for (index, chunk) in self.chunks.iter().enumerate() {
            if chunk.after_star && chunk.items.is_empty() {
                return true;
            }
            let is_last = index + 1 == self.chunks.len();
            // Parity(go): a star skips bytes, not characters, so `*??` matches the three bytes of one character.
            let reach = if chunk.after_star { name.len() } else { 0 };
            let rest = (0..=reach).find_map(|skip| {
                let rest = chunk.strip(&name[skip..])?;
                (!is_last || rest.is_empty()).then_some(rest)
            });
            match rest {
                Some(rest) => name = rest,
                None => return false,
            }
        }
        name.is_empty()
    }
}

impl GlobChunk {
    /// The rest of `name` after this chunk of the pattern. `None` if the name does not begin with the chunk.
    fn strip<'n>(&self, mut name: &'n [u8]) -> Option<&'n [u8]> {
        for item in &self.items {
            let first = *name.first()?;
            let width = match item {
                GlobItem::Byte(byte) if *byte == first => 1,
                GlobItem::Byte(_) => return None,
                GlobItem::Any => decode(name).1,
                GlobItem::Class { negated, ranges } => {
                    let (found, width) = decode(name);
                    let is_in = ranges.iter().any(|(low, high)| (low..=high).contains(&&found));
                    if is_in == *negated {
                        return None;
                    }
                    width
                }
            };
            name = &name[width..];
        }
        Some(name)
    }
}

/// The length of the text before the next star outside of a class.
fn chunk_len(pattern: &str) -> usize {
    let mut in_class = false;
    let mut bytes = pattern.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'\\' => _ = bytes.next(),
            b'[' => in_class = true,
            b']' => in_class = false,
            b'*' if !in_class => return at,
            _ => {}
        }
    }
    pattern.len()
}

fn items(chunk: &str) -> Option<Vec<GlobItem>> {
    let mut items = Vec::new();
    let mut rest = chunk.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        items.push(match byte {
            b'?' => GlobItem::Any,
            b'[' => {
                let (class, after) = class(rest)?;
                rest = after;
                class
            }
            b'\\' => {
                let (escaped, after) = rest.split_first()?;
                rest = after;
                GlobItem::Byte(*escaped)
            }
            literal => GlobItem::Byte(*literal),
        });
    }
    Some(items)
}

/// Reads a character class whose `[` was read already. Returns the class and the text after it, or `None` if it is
/// malformed.
fn class(text: &[u8]) -> Option<(GlobItem, &[u8])> {
    let (negated, mut rest) = match text.strip_prefix(b"^") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut ranges = Vec::new();
    loop {
        match rest.strip_prefix(b"]") {
            Some(after) if !ranges.is_empty() => {
                return Some((GlobItem::Class { negated, ranges }, after));
            }
            _ => {}
        }
        let (low, after) = class_char(rest)?;
        let (high, after) = match after.strip_prefix(b"-") {
            Some(after) => class_char(after)?,
            None => (low, after),
        };
        ranges.push((low, high));
        rest = after;
    }
}

/// Reads one character of a class, which may be escaped and is never the last of the pattern. Returns it and the text
/// after it, or `None` if it is malformed.
fn class_char(text: &[u8]) -> Option<(char, &[u8])> {
    let text = match text {
        [] | [b'-' | b']', ..] => return None,
        [b'\\', rest @ ..] => rest,
        _ => text,
    };
    if text.is_empty() {
        return None;
    }
    let (found, width) = decode(text);
    let rest = &text[width..];
    (!rest.is_empty()).then_some((found, rest))
}

/// The first character and its width. An invalid byte counts as one replacement character.
fn decode(text: &[u8]) -> (char, usize) {
    let width = match text.first() {
        Some(0xc2..=0xdf) => 2,
        Some(0xe0..=0xef) => 3,
        Some(0xf0..=0xf4) => 4,
        _ => 1,
    };
    let found = text.get(..width).and_then(|bytes| str::from_utf8(bytes).ok());
    match found.and_then(|text| text.chars().next()) {
        Some(found) => (found, width),
        None => (char::REPLACEMENT_CHARACTER, 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, matching: &[&str], other: &[&str]) {
        let glob = IgnoreGlob::parse(pattern).expect("well formed");
        for name in matching {
            assert!(glob.matches(name), "{pattern} should match {name}");
        }
        for name in other {
            assert!(!glob.matches(name), "{pattern} should not match {name}");
        }
    }

    #[test]
    fn wildcards_are_those_of_go() {
        check("", &[""], &["a"]);
        check("a*b*c", &["abc", "axxbyybc", "abbc"], &["ab", "abcd", "acb"]);
        check("*a", &["a", "aaa", "ba"], &["", "ab"]);
        check("[a-c]?[^x-z]", &["aéa", "c?é"], &["d?a", "a?y", "ab"]);
        check("[\\]\\-]", &["]", "-"], &["\\"]);
        check("\\*[*]", &["**"], &["a*", "*a"]);
        check("*??", &["日", "ab"], &["a"]);
        check("*é", &["é", "xé"], &["e"]);
        check("[é-ü]", &["ö"], &["e", "ä"]);
    }

    #[test]
    fn malformed_patterns_are_refused() {
        for pattern in ["[", "[]", "[]a]", "[a", "[a-", "[a-]", "[-a]", "[^]", "x\\", "[\\", "[a\\"]
        {
            assert!(IgnoreGlob::parse(pattern).is_none(), "{pattern}");
        }
    }

    #[test]
    fn many_stars_cost_no_more_than_the_product_of_both_lengths() {
        let glob = IgnoreGlob::parse(&"a*".repeat(2000)).expect("well formed");
        assert!(!glob.matches(&format!("{}b", "a".repeat(1999))));
        assert!(glob.matches(&"a".repeat(4000)));
        let glob = IgnoreGlob::parse(&format!("{}b", "*a".repeat(100))).expect("well formed");
        assert!(!glob.matches(&"a".repeat(4000)));
    }
}
