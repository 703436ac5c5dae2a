//! Patterns of Go's `path/filepath.Match`: `*`, `?`, classes, and `\`.
//!
//! Elsewhere: the meaning of a match (`ignore.rs`).

use golang::unicode::decode;

/// A parsed pattern of a `.helmignore` file.
#[derive(Debug, Clone)]
pub(super) struct HelmIgnoreGlob(Vec<GlobChunk>);

/// The part of a pattern between two stars.
#[derive(Debug, Clone, Default)]
struct GlobChunk {
    /// Whether a star precedes this part.
    after_star: bool,
    parts: Vec<GlobPart>,
}

#[derive(Debug, Clone)]
enum GlobPart {
    Byte(u8),
    Any,
    Class { is_negated: bool, ranges: Vec<(char, char)> },
}

impl HelmIgnoreGlob {
    /// Reads a pattern; `None` if Go reports a syntax error.
    pub(super) fn parse(pattern: &str) -> Option<Self> {
        let mut chunks = Vec::new();
        let mut chunk = GlobChunk::default();
        let mut rest = pattern;
        while let Some(first) = rest.bytes().next() {
            match first {
                b'*' => {
                    if chunk.after_star || !chunk.parts.is_empty() {
                        chunks.push(std::mem::take(&mut chunk));
                    }
                    chunk.after_star = true;
                    rest = rest.trim_start_matches('*');
                    continue;
                }
                b'?' => chunk.parts.push(GlobPart::Any),
                b'[' => {
                    let (class, after) = class(&rest[1..])?;
                    chunk.parts.push(class);
                    rest = after;
                    continue;
                }
                b'\\' => {
                    rest = &rest[1..];
                    let escaped = rest.chars().next()?;
                    let bytes = &rest[..escaped.len_utf8()];
                    chunk.parts.extend(bytes.bytes().map(GlobPart::Byte));
                    rest = &rest[bytes.len()..];
                    continue;
                }
                _ => {
                    let character = rest.chars().next()?;
                    let bytes = &rest[..character.len_utf8()];
                    chunk.parts.extend(bytes.bytes().map(GlobPart::Byte));
                    rest = &rest[bytes.len()..];
                    continue;
                }
            }
            rest = &rest[1..];
        }
        if chunk.after_star || !chunk.parts.is_empty() {
            chunks.push(chunk);
        }
        Some(Self(chunks))
    }

    /// Whether the pattern matches a whole name. The time is at most the product of both lengths.
    pub(super) fn matches(&self, name: &str) -> bool {
        let mut name = name.as_bytes();
        for (place, chunk) in self.0.iter().enumerate() {
            if chunk.after_star && chunk.parts.is_empty() {
                return !name.contains(&b'/');
            }
            let is_last = place + 1 == self.0.len();
            let fits =
                |at: usize| chunk.fit(&name[at..]).filter(|after| after.is_empty() || !is_last);
            // A star matches as little as possible, and never a slash.
            let reach = name.iter().position(|byte| *byte == b'/').unwrap_or(name.len());
            let reach = if chunk.after_star { reach } else { 0 };
            let Some(after) = (0..=reach).find_map(fits) else { return false };
            name = after;
        }
        name.is_empty()
    }
}

impl GlobChunk {
    /// Matches this part at the beginning of a name. Returns the rest of the name, or `None` if the part does not
    /// match.
    fn fit<'n>(&self, mut name: &'n [u8]) -> Option<&'n [u8]> {
        for part in &self.parts {
            let (character, width) = decode(name);
            let fits = match part {
                GlobPart::Byte(byte) => name.first() == Some(byte),
                GlobPart::Any => width > 0 && character != '/',
                GlobPart::Class { is_negated, ranges } => {
                    let is_in = ranges.iter().any(|(lo, hi)| (lo..=hi).contains(&&character));
                    width > 0 && is_in != *is_negated
                }
            };
            if !fits {
                return None;
            }
            name = &name[if matches!(part, GlobPart::Byte(_)) { 1 } else { width }..];
        }
        Some(name)
    }
}

/// Reads a character class after its `[`. Returns the class and the text after its `]`, or `None` if the class is not
/// valid.
fn class(text: &str) -> Option<(GlobPart, &str)> {
    let is_negated = text.starts_with('^');
    let mut rest = text.strip_prefix('^').unwrap_or(text);
    let mut ranges = Vec::new();
    loop {
        if let (Some(after), false) = (rest.strip_prefix(']'), ranges.is_empty()) {
            return Some((GlobPart::Class { is_negated, ranges }, after));
        }
        let (lo, after) = member(rest)?;
        let (hi, after) = match after.strip_prefix('-') {
            Some(end) => member(end)?,
            None => (lo, after),
        };
        ranges.push((lo, hi));
        rest = after;
    }
}

/// Reads one character of a class, which may be escaped. Returns it and the text after it. `None` if either is missing.
fn member(text: &str) -> Option<(char, &str)> {
    if text.starts_with(['-', ']']) {
        return None;
    }
    let text = text.strip_prefix('\\').unwrap_or(text);
    let character = text.chars().next()?;
    let after = &text[character.len_utf8()..];
    (!after.is_empty()).then_some((character, after))
}
