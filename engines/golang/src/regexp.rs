//! Regular expressions as Go's `regexp` reads them (the RE2 dialect), run by the `regex` crate.
//!
//! Here: matching, and the messages of errors. Below: reading a pattern into the crate's dialect (`parse.rs`,
//! `class.rs`), replacing (`replace.rs`).
//! Both prefer the leftmost match and, there, what Perl would find; neither ever goes back, so time grows with
//! the length of pattern times text.
//!
//! ```
//! use golang::regexp::GoRegexp;
//!
//! let version = GoRegexp::new(r"v(?P<major>\d+)\.(\d+)")?;
//! assert_eq!(version.find("app-v1.25.3"), Some("v1.25"));
//! assert_eq!(version.replace_all("v1.25", "${major}_$2")?, "1_25");
//! assert_eq!(
//!     GoRegexp::new("a**").unwrap_err().to_string(),
//!     "error parsing regexp: invalid nested repetition operator: `**`",
//! );
//! # Ok::<(), golang::regexp::Error>(())
//! ```

mod class;
mod parse;
mod replace;

use std::convert::Infallible;

use regex::RegexBuilder;

use crate::strconv;

/// Longest pattern that is read, in bytes. Differs(go): it has no limit.
pub(crate) const MAX_PATTERN: usize = 32 << 10;

/// Most bytes that a compiled pattern takes. Differs(go): it counts instructions, of which a class of
/// characters is one, so a few patterns such as `\pL{1000}` are too large here and not in Go.
pub(crate) const MAX_COMPILED: usize = 32 << 20;

/// Most bytes that a pattern takes which [`GoRegexp::is_small`].
const MAX_SMALL_PATTERN_BYTES: usize = 256 << 10;

/// The limits that are tried one after the other, because the `regex` crate does not report the size of a pattern.
const PATTERN_SIZE_LIMITS_BYTES: [usize; 5] =
    [4 << 10, 16 << 10, MAX_SMALL_PATTERN_BYTES, 2 << 20, MAX_COMPILED];

/// Bytes that a state of a pattern takes at least.
const MIN_STATE_BYTES: usize = 64;

/// Most bytes of a text with replacements. Differs(go): it has no limit.
pub(crate) const MAX_REPLACED: usize = 64 << 20;

/// How deep a pattern may nest: groups that capture, sequences, alternatives, repetitions. Differs(go): in Go
/// it is 1000, for which the compiler of the crate would need more than a usual stack.
pub const MAX_NESTING: usize = 250;

/// What is wrong with a pattern, or too much about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RegexpError {
    /// A class such as `[z-a]`, `[[:word` or `\p{Unknown}`.
    #[error("invalid character class range")]
    ClassRange,
    /// A `\` before something that it gives no meaning.
    #[error("invalid escape sequence")]
    Escape,
    /// A group's name that is not valid.
    #[error("invalid named capture")]
    NamedCapture,
    /// A `(?` that Go does not know.
    #[error("invalid or unsupported Perl syntax")]
    PerlSyntax,
    /// A repetition of a repetition.
    #[error("invalid nested repetition operator")]
    NestedRepetition,
    /// More than a thousand times.
    #[error("invalid repeat count")]
    RepeatCount,
    /// A `[` without `]`.
    #[error("missing closing ]")]
    MissingBracket,
    /// A `(` without `)`.
    #[error("missing closing )")]
    MissingParen,
    /// A repetition of nothing.
    #[error("missing argument to repetition operator")]
    MissingArgument,
    /// A `\` at the end.
    #[error("trailing backslash at end of expression")]
    TrailingBackslash,
    /// A `)` without `(`.
    #[error("unexpected )")]
    UnexpectedParen,
    /// Deeper than [`MAX_NESTING`].
    #[error("expression nests too deeply")]
    NestsTooDeeply,
    /// More than [`MAX_PATTERN`] or [`MAX_COMPILED`].
    #[error("expression too large")]
    TooLarge,
}

/// Why a pattern is not valid, or a replacement was not made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// In Go's words.
    #[error("error parsing regexp: {fault}: `{at}`")]
    Pattern {
        /// What is wrong.
        fault: RegexpError,
        /// The part of the pattern that is.
        at: String,
    },
    /// The result would be longer than [`MAX_REPLACED`].
    #[error("the text with its replacements is longer than {MAX_REPLACED} bytes")]
    TooLong,
}

impl Error {
    fn pattern(fault: RegexpError, at: &str) -> Self {
        Self::Pattern { fault, at: at.to_owned() }
    }

    /// The text of the panic that Go's `MustCompile` ends with; templates show it.
    pub fn as_panic(&self, pattern: &str) -> String {
        let quoted = if strconv::can_backquote(pattern.as_bytes()) {
            format!("`{pattern}`")
        } else {
            let quoted = strconv::quote(pattern.as_bytes(), strconv::QuotingStyle::Printable);
            String::from_utf8_lossy(&quoted).into_owned()
        };
        format!("regexp: Compile({quoted}): {self}")
    }
}

/// A pattern that is ready to be used. Texts must be UTF-8; Go's behaviour for other bytes is not reproduced.
#[derive(Debug, Clone)]
pub struct GoRegexp {
    pattern: String,
    regex: regex::Regex,
    is_small: bool,
    /// Bytes that the pattern takes when it is compiled, or somewhat more.
    size: usize,
    /// The names of the groups, in order; those without a name are empty. The first is the whole match.
    names: Vec<String>,
}

impl GoRegexp {
    /// Reads and compiles a pattern.
    ///
    /// # Errors
    /// If Go would refuse it, or it passes one of the limits.
    pub fn new(pattern: &str) -> Result<Self, Error> {
        if pattern.len() > MAX_PATTERN {
            return Err(Error::pattern(RegexpError::TooLarge, pattern));
        }
        let parse::TranslatedPattern { regex, names } = parse::parse(pattern)?;
        let build = |size| {
            let mut builder = RegexBuilder::new(&regex);
            builder.size_limit(size).dfa_size_limit(2 << 20).nest_limit(u32::MAX).build()
        };
        // All that Go refuses has been refused before, so only the size can be the reason.
        let fitting =
            PATTERN_SIZE_LIMITS_BYTES.into_iter().find_map(|size| Some((build(size).ok()?, size)));
        let (regex, size) =
            fitting.ok_or_else(|| Error::pattern(RegexpError::TooLarge, pattern))?;
        Ok(Self {
            pattern: pattern.to_owned(),
            regex,
            is_small: size <= MAX_SMALL_PATTERN_BYTES,
            size,
            names,
        })
    }

    /// Whether it takes so little memory, a few hundred KiB and 2 MiB while it is used, that it can be kept.
    pub fn is_small(&self) -> bool {
        self.is_small
    }

    /// How much work each byte of a text may be, about in steps of a few nanoseconds: in the worst case each state of the
    /// pattern is examined for each byte.
    pub fn work(&self) -> usize {
        self.size / MIN_STATE_BYTES
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.pattern
    }

    /// The same pattern in the dialect of the crate `regex`, for a library that compiles patterns itself.
    pub fn translated(&self) -> &str {
        self.regex.as_str()
    }

    /// The names of the groups in order, empty for those without one; the first is the whole match.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Whether the pattern is found anywhere in a text.
    pub fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }

    /// The first match. Go's `FindString` returns an empty text for none.
    pub fn find<'t>(&self, text: &'t str) -> Option<&'t str> {
        self.regex.find(text).map(|found| found.as_str())
    }

    /// The groups of the first match, the whole of it first; `None` for groups that took no part.
    pub fn find_groups<'t>(&self, text: &'t str) -> Option<Vec<Option<&'t str>>> {
        let groups = self.regex.captures(text)?;
        // The crate forgets groups at the end that are repeated zero times.
        let group = |index| groups.get(index).map(|group| group.as_str());
        Some((0..self.names.len()).map(group).collect())
    }

    /// All matches one after the other, at most `limit` of them. Empty ones right behind another are left out.
    pub fn find_all<'t>(&self, text: &'t str, limit: Option<usize>) -> Vec<&'t str> {
        self.find_all_while(text, limit, free).unwrap_or_default()
    }

    /// [`GoRegexp::find_all`] as long as the caller agrees.
    ///
    /// The caller's `next` gets, before each search, the number of bytes that are left: one search can examine all of
    /// them, so all together can take a time that grows with the square of the text's length.
    ///
    /// # Errors
    /// The error of `next`.
    pub fn find_all_while<'t, E>(
        &self,
        text: &'t str,
        limit: Option<usize>,
        next: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<Vec<&'t str>, E> {
        let matches = self.matches(text, limit, next)?;
        Ok(matches.into_iter().map(|(start, end)| &text[start..end]).collect())
    }

    /// The parts of a text between the matches: at most `limit` parts, the last with all the rest.
    pub fn split<'t>(&self, text: &'t str, limit: Option<usize>) -> Vec<&'t str> {
        self.split_while(text, limit, free).unwrap_or_default()
    }

    /// [`GoRegexp::split`] as long as the caller agrees: `next` is that of [`GoRegexp::find_all_while`].
    ///
    /// # Errors
    /// The error of `next`.
    pub fn split_while<'t, E>(
        &self,
        text: &'t str,
        limit: Option<usize>,
        next: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<Vec<&'t str>, E> {
        if limit == Some(0) {
            return Ok(Vec::new());
        }
        if !self.pattern.is_empty() && text.is_empty() {
            return Ok(vec![""]);
        }
        let mut parts = Vec::new();
        let mut begin = 0;
        let mut last = 0;
        for (start, end) in self.matches(text, limit, next)? {
            if limit.is_some_and(|limit| parts.len() + 1 >= limit) {
                break;
            }
            last = start;
            // Parity(go): an empty match at the very beginning splits nothing off.
            if end != 0 {
                parts.push(&text[begin..start]);
            }
            begin = end;
        }
        // Parity(go): where the last match begins at the end of the text, nothing follows it.
        if last != text.len() {
            parts.push(&text[begin..]);
        }
        Ok(parts)
    }

    fn matches<E>(
        &self,
        text: &str,
        limit: Option<usize>,
        mut next: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<Vec<(usize, usize)>, E> {
        let limit = limit.unwrap_or(usize::MAX);
        let mut matches = Vec::new();
        let mut position = 0;
        let mut last_end = None;
        while matches.len() < limit && position <= text.len() {
            next(text.len() - position)?;
            let Some(found) = self.regex.find_at(text, position) else { break };
            let is_behind_another = found.end() == position && last_end == Some(found.start());
            position = if found.end() == position {
                position + width(text, position).max(1)
            } else {
                found.end()
            };
            last_end = Some(found.end());
            if !is_behind_another {
                matches.push((found.start(), found.end()));
            }
        }
        Ok(matches)
    }
}

/// For searches in strings that are known to be short.
fn free(_: usize) -> Result<(), Infallible> {
    Ok(())
}

/// How many bytes the character at a place takes; none at the end.
fn width(text: &str, at: usize) -> usize {
    text[at..].chars().next().map_or(0, char::len_utf8)
}

/// A pattern that matches only this text.
pub fn quote_meta(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    for character in text.chars() {
        if r"\.+*?()|[]{}^$".contains(character) {
            quoted.push('\\');
        }
        quoted.push(character);
    }
    quoted
}

#[cfg(test)]
mod tests;
