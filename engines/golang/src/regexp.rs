//! Regular expressions as Go's `regexp` reads them (the RE2 dialect), run by the `regex` crate.
//!
//! Here: matching, and the messages of errors. Below: translating a pattern into the crate's dialect (`parse.rs`,
//! `character_class.rs`), and replacing matches (`replace.rs`). Both implementations find the leftmost match, and at that
//! position the one that Perl would find. Neither backtracks, so the time grows with the length of the pattern times
//! that of the text.
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

mod character_class;
mod parse;
mod replace;

use std::convert::Infallible;

use regex::RegexBuilder;

use crate::strconv;

/// How long a pattern may be, in bytes. Differs(go): it has no limit.
pub(crate) const MAX_PATTERN: usize = 32 << 10;

/// How many bytes a compiled pattern may take. Differs(go): it counts instructions, and a class of characters is one
/// instruction. A few patterns such as `\pL{1000}` are too large here and not in Go.
pub(crate) const MAX_COMPILED: usize = 32 << 20;

/// How many bytes a pattern may take and still be small ([`GoRegexp::is_small`]).
const MAX_SMALL_PATTERN_BYTES: usize = 256 << 10;

/// The size limits that are tried in turn, because the `regex` crate does not report the size of a pattern.
const PATTERN_SIZE_LIMITS_BYTES: [usize; 5] =
    [4 << 10, 16 << 10, MAX_SMALL_PATTERN_BYTES, 2 << 20, MAX_COMPILED];

/// How many bytes a state of a pattern takes at least.
const MIN_STATE_BYTES: usize = 64;

/// How many bytes a text with replacements may have. Differs(go): it has no limit.
pub(crate) const MAX_REPLACED: usize = 64 << 20;

/// How deep a pattern may nest: capturing groups, sequences, alternatives, and repetitions. Differs(go): in Go it is
/// 1000. For that depth, the compiler of the crate would need more than a usual stack.
pub const MAX_NESTING: usize = 250;

/// What is wrong with a pattern, or which limit it exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RegexpErrorReason {
    /// A class is invalid, such as `[z-a]`, `[[:word` or `\p{Unknown}`.
    #[error("invalid character class range")]
    ClassRange,
    /// A `\` precedes a character for which no escape exists.
    #[error("invalid escape sequence")]
    Escape,
    /// The name of a group is not valid.
    #[error("invalid named capture")]
    NamedCapture,
    /// Go does not support this form of `(?`.
    #[error("invalid or unsupported Perl syntax")]
    PerlSyntax,
    /// A repetition follows another repetition.
    #[error("invalid nested repetition operator")]
    NestedRepetition,
    /// A repetition count is over a thousand.
    #[error("invalid repeat count")]
    RepeatCount,
    /// A `[` has no `]`.
    #[error("missing closing ]")]
    MissingBracket,
    /// A `(` has no `)`.
    #[error("missing closing )")]
    MissingParen,
    /// A repetition has nothing to repeat.
    #[error("missing argument to repetition operator")]
    MissingArgument,
    /// The pattern ends with a `\`.
    #[error("trailing backslash at end of expression")]
    TrailingBackslash,
    /// A `)` has no `(`.
    #[error("unexpected )")]
    UnexpectedParen,
    /// The pattern is nested deeper than [`MAX_NESTING`].
    #[error("expression nests too deeply")]
    NestsTooDeeply,
    /// The pattern exceeds [`MAX_PATTERN`] or [`MAX_COMPILED`].
    #[error("expression too large")]
    TooLarge,
}

/// Why a pattern is not valid, or a replacement was not made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The pattern is not valid. The message is Go's.
    #[error("error parsing regexp: {fault}: `{at}`")]
    Pattern {
        /// What is wrong with it.
        fault: RegexpErrorReason,
        /// The part of the pattern that is wrong.
        at: String,
    },
    /// The result would be longer than [`MAX_REPLACED`].
    #[error("the text with its replacements is longer than {MAX_REPLACED} bytes")]
    TooLong,
}

impl Error {
    fn pattern(fault: RegexpErrorReason, at: &str) -> Self {
        Self::Pattern { fault, at: at.to_owned() }
    }

    /// The text of the panic of Go's `MustCompile`. Templates show it.
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

/// A compiled pattern. Texts must be UTF-8, because Go's behaviour for other bytes is not reproduced.
#[derive(Debug, Clone)]
pub struct GoRegexp {
    pattern: String,
    regex: regex::Regex,
    is_small: bool,
    /// How many bytes the compiled pattern takes, rounded up.
    size: usize,
    /// The names of the groups, in order. A group without a name has an empty one. The first group is the whole match.
    names: Vec<String>,
}

impl GoRegexp {
    /// Reads and compiles a pattern.
    ///
    /// # Errors
    /// Go refuses the pattern, or it exceeds one of the limits.
    pub fn new(pattern: &str) -> Result<Self, Error> {
        if pattern.len() > MAX_PATTERN {
            return Err(Error::pattern(RegexpErrorReason::TooLarge, pattern));
        }
        let parse::TranslatedPattern { regex, names } = parse::parse(pattern)?;
        let build = |size| {
            let mut builder = RegexBuilder::new(&regex);
            builder.size_limit(size).dfa_size_limit(2 << 20).nest_limit(u32::MAX).build()
        };
        // All patterns that Go refuses were refused before, so only the size can be the reason.
        let fitting =
            PATTERN_SIZE_LIMITS_BYTES.into_iter().find_map(|size| Some((build(size).ok()?, size)));
        let (regex, size) =
            fitting.ok_or_else(|| Error::pattern(RegexpErrorReason::TooLarge, pattern))?;
        Ok(Self {
            pattern: pattern.to_owned(),
            regex,
            is_small: size <= MAX_SMALL_PATTERN_BYTES,
            size,
            names,
        })
    }

    /// Whether the pattern takes so little memory that it can be kept: a few hundred KiB, and 2 MiB while it is used.
    pub fn is_small(&self) -> bool {
        self.is_small
    }

    /// How many steps of a few nanoseconds each byte of a text may take. In the worst case, each state of the pattern
    /// is examined for each byte.
    pub fn work(&self) -> usize {
        self.size / MIN_STATE_BYTES
    }

    /// The text of the pattern.
    pub fn as_str(&self) -> &str {
        &self.pattern
    }

    /// The same pattern in the dialect of the crate `regex`, for a library that compiles patterns itself.
    pub fn translated(&self) -> &str {
        self.regex.as_str()
    }

    /// The names of the groups, in order. A group without a name has an empty one. The first group is the whole match.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Whether the pattern is found anywhere in a text.
    pub fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }

    /// The first match. `None` if there is none, where Go's `FindString` returns an empty text.
    pub fn find<'t>(&self, text: &'t str) -> Option<&'t str> {
        self.regex.find(text).map(|found| found.as_str())
    }

    /// The groups of the first match, beginning with the whole match. A group that took no part is `None`.
    pub fn find_groups<'t>(&self, text: &'t str) -> Option<Vec<Option<&'t str>>> {
        let groups = self.regex.captures(text)?;
        // The crate drops groups at the end that are repeated zero times.
        let group = |index| groups.get(index).map(|group| group.as_str());
        Some((0..self.names.len()).map(group).collect())
    }

    /// All matches in order, at most `limit` of them. An empty match directly after another one is left out.
    pub fn find_all<'t>(&self, text: &'t str, limit: Option<usize>) -> Vec<&'t str> {
        self.find_all_while(text, limit, free).unwrap_or_default()
    }

    /// Like [`GoRegexp::find_all`], until the caller stops it.
    ///
    /// Before each search, `next` gets the number of remaining bytes. One search can examine all of them. All searches
    /// together can therefore take a time that grows with the square of the text's length.
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

    /// The parts of a text between the matches. There are at most `limit` parts, and the last one has the rest of the
    /// text.
    pub fn split<'t>(&self, text: &'t str, limit: Option<usize>) -> Vec<&'t str> {
        self.split_while(text, limit, free).unwrap_or_default()
    }

    /// Like [`GoRegexp::split`], until the caller stops it. `next` is as for [`GoRegexp::find_all_while`].
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

/// Allows every search. It is for texts that are known to be short.
fn free(_: usize) -> Result<(), Infallible> {
    Ok(())
}

/// How many bytes the character at a position takes. It is 0 at the end.
fn width(text: &str, at: usize) -> usize {
    text[at..].chars().next().map_or(0, char::len_utf8)
}

/// A pattern that matches exactly this text.
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
