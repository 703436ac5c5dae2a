//! Globs of the original library, which has a variant of Go's `path.Match`.
//!
//! `*` matches any text, `?` one character, and `[a-z]` and `[^a-z]` match classes. A `\` makes the next character
//! literal. Unlike in Go's `path.Match`, `*`, `?` and classes also match `/`. A malformed pattern is only an error for
//! a text whose matching reaches the malformed position.

use golang::unicode::decode;

use crate::error::LimitError;
use crate::limits::SubstitutionBudget;

/// A glob in an expression such as `${name#glob}`, split into chunks.
#[derive(Debug)]
pub(super) struct GlobPattern(Vec<PatternChunk>);

/// The part of a pattern between two stars.
#[derive(Debug)]
struct PatternChunk {
    /// Whether a star precedes this part.
    after_star: bool,
    items: Vec<GlobPatternItem>,
}

#[derive(Debug)]
enum GlobPatternItem {
    Byte(u8),
    Any,
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
    /// The pattern is malformed from here on.
    Wrong,
}

/// The result of matching a text with a pattern or one of its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PatternMatch<T> {
    Yes(T),
    No,
    /// The pattern is malformed.
    Wrong,
}

impl GlobPattern {
    /// Reads a pattern. Every text is accepted.
    pub(super) fn parse(mut pattern: &[u8]) -> Self {
        let mut chunks = Vec::new();
        while !pattern.is_empty() {
            let stars = pattern.iter().take_while(|byte| **byte == b'*').count();
            pattern = &pattern[stars..];
            let (chunk, rest) = pattern.split_at(chunk_length(pattern));
            chunks.push(PatternChunk { after_star: stars > 0, items: items(chunk) });
            pattern = rest;
        }
        Self(chunks)
    }

    /// The length in bytes of the longest beginning of a text that matches. It is 0 if none matches.
    pub(super) fn longest(
        &self,
        text: &[u8],
        budget: &mut SubstitutionBudget,
    ) -> Result<usize, LimitError> {
        for end in (1..=text.len()).rev() {
            match self.matches(&text[..end], budget)? {
                PatternMatch::Yes(()) => return Ok(end),
                PatternMatch::No => {}
                PatternMatch::Wrong => return Ok(0),
            }
        }
        Ok(0)
    }

    /// The length in bytes of the shortest beginning of a text that matches and is not empty. It is 0 if none matches.
    /// Parity(flux): the longer ones are tried nevertheless, since the pattern may be wrong for one of them.
    pub(super) fn shortest(
        &self,
        text: &[u8],
        budget: &mut SubstitutionBudget,
    ) -> Result<usize, LimitError> {
        let mut shortest = 0;
        for end in (1..=text.len()).rev() {
            match self.matches(&text[..end], budget)? {
                PatternMatch::Yes(()) => shortest = end,
                PatternMatch::No => {}
                PatternMatch::Wrong => return Ok(0),
            }
        }
        Ok(shortest)
    }

    /// Whether the pattern matches a whole text. A part that is not the last one matches at the first position that
    /// fits, without backtracking.
    fn matches(
        &self,
        mut text: &[u8],
        budget: &mut SubstitutionBudget,
    ) -> Result<PatternMatch<()>, LimitError> {
        budget.spend(1)?;
        for (index, chunk) in self.0.iter().enumerate() {
            if chunk.after_star && chunk.items.is_empty() {
                return Ok(PatternMatch::Yes(()));
            }
            let is_last = index + 1 == self.0.len();
            match chunk.find(text, is_last, budget)? {
                PatternMatch::Yes(rest) => text = rest,
                PatternMatch::No => return Ok(PatternMatch::No),
                PatternMatch::Wrong => return Ok(PatternMatch::Wrong),
            }
        }
        Ok(if text.is_empty() { PatternMatch::Yes(()) } else { PatternMatch::No })
    }
}

impl PatternChunk {
    /// Matches this part at the beginning of a text. After a star, it matches at the first position that fits. Returns
    /// the rest of the text. For the last part, the rest is empty.
    fn find<'t>(
        &self,
        text: &'t [u8],
        is_last: bool,
        budget: &mut SubstitutionBudget,
    ) -> Result<PatternMatch<&'t [u8]>, LimitError> {
        let farthest = if self.after_star { text.len() } else { 0 };
        // An item of the pattern matches four bytes at most. If the last part began farther from the end, it could not
        // reach the end.
        let nearest = match self.items.iter().any(|item| matches!(item, GlobPatternItem::Wrong)) {
            false if is_last => text.len().saturating_sub(4 * self.items.len()),
            _ => 0,
        };
        for start in nearest..=farthest {
            match self.match_at(&text[start..], budget)? {
                PatternMatch::Yes(rest) if rest.is_empty() || !is_last => {
                    return Ok(PatternMatch::Yes(rest));
                }
                PatternMatch::Yes(_) | PatternMatch::No => {}
                PatternMatch::Wrong => return Ok(PatternMatch::Wrong),
            }
        }
        Ok(PatternMatch::No)
    }

    fn match_at<'t>(
        &self,
        mut text: &'t [u8],
        budget: &mut SubstitutionBudget,
    ) -> Result<PatternMatch<&'t [u8]>, LimitError> {
        for item in &self.items {
            budget.spend(1)?;
            let Some(byte) = text.first() else { return Ok(PatternMatch::No) };
            let width = match item {
                GlobPatternItem::Byte(wanted) if wanted == byte => 1,
                GlobPatternItem::Byte(_) => return Ok(PatternMatch::No),
                GlobPatternItem::Any => decode(text).1,
                GlobPatternItem::Class { negated, ranges } => {
                    budget.spend(ranges.len())?;
                    let (character, width) = decode(text);
                    let is_in = ranges.iter().any(|(low, high)| (low..=high).contains(&&character));
                    if is_in == *negated {
                        return Ok(PatternMatch::No);
                    }
                    width
                }
                GlobPatternItem::Wrong => return Ok(PatternMatch::Wrong),
            };
            text = &text[width..];
        }
        Ok(PatternMatch::Yes(text))
    }
}

/// The length of a pattern up to its next star. Within `[` and `]`, a star has no meaning.
fn chunk_length(pattern: &[u8]) -> usize {
    let mut is_class = false;
    let mut at = 0;
    while let Some(byte) = pattern.get(at) {
        match byte {
            b'\\' => at += 1,
            b'[' => is_class = true,
            b']' => is_class = false,
            b'*' if !is_class => return at,
            _ => {}
        }
        at += 1;
    }
    pattern.len()
}

fn items(mut chunk: &[u8]) -> Vec<GlobPatternItem> {
    let mut items = Vec::new();
    while let [first, rest @ ..] = chunk {
        chunk = rest;
        let item = match first {
            b'?' => GlobPatternItem::Any,
            b'[' => class(&mut chunk).unwrap_or(GlobPatternItem::Wrong),
            b'\\' => match chunk.split_first() {
                Some((byte, rest)) => {
                    chunk = rest;
                    GlobPatternItem::Byte(*byte)
                }
                None => GlobPatternItem::Wrong,
            },
            byte => GlobPatternItem::Byte(*byte),
        };
        let is_wrong = matches!(item, GlobPatternItem::Wrong);
        items.push(item);
        if is_wrong {
            break;
        }
    }
    items
}

/// Reads the class after a `[`. `None` if it is malformed.
fn class(chunk: &mut &[u8]) -> Option<GlobPatternItem> {
    let negated = chunk.first() == Some(&b'^');
    if negated {
        *chunk = &chunk[1..];
    }
    let mut ranges = Vec::new();
    while ranges.is_empty() || chunk.first() != Some(&b']') {
        let low = bound(chunk)?;
        let high = if chunk.first() == Some(&b'-') {
            *chunk = &chunk[1..];
            bound(chunk)?
        } else {
            low
        };
        ranges.push((low, high));
    }
    *chunk = &chunk[1..];
    Some(GlobPatternItem::Class { negated, ranges })
}

/// Reads one bound of a range in a character class, which may be escaped. `None` if it is missing, not text, or the
/// last character of the pattern.
fn bound(chunk: &mut &[u8]) -> Option<char> {
    if matches!(chunk.first()?, b'-' | b']') {
        return None;
    }
    if chunk.first() == Some(&b'\\') {
        *chunk = &chunk[1..];
    }
    let (character, width) = decode(chunk);
    let is_text = width > 1 || chunk.first()?.is_ascii();
    *chunk = &chunk[width..];
    (is_text && !chunk.is_empty()).then_some(character)
}
