//! Globs: those of Go's `path.Match`, and those of gobwas/glob, with which charts choose their files.
//!
//! Here: what a caller sees. Below: `path.Match` (`path.rs`); gobwas: reading (`pattern.rs`), choosing how to
//! match (`compile.rs`), matching (`matcher.rs`).
//! Elsewhere: `.helmignore`, `.sourceignore` (each its own rules around such globs).
//!
//! gobwas matches by shortcuts that do not always follow the pattern: `{**,x}/d` does not match `a/b/d`.
//! Charts were written against that, so the shortcuts are the same here.
//!
//! ```
//! use golang::glob::{Glob, path_match};
//!
//! assert_eq!(path_match("*.yaml", "values.yaml"), Ok(true));
//! let glob = Glob::new("conf/**.{yaml,json}", &['/'])?;
//! assert!(glob.is_match("conf/a/b.json")?);
//! # Ok::<(), golang::glob::Error>(())
//! ```

mod compile;
mod matcher;
mod path;
mod pattern;

pub use path::{BadPathPattern, path_match};

/// Longest glob that is read, in bytes. Differs(go): it has no limit.
pub(crate) const MAX_GLOB: usize = 512;

/// How deep braces may nest. Differs(go): it has no limit.
pub const MAX_NESTING: usize = 32;

/// Most steps that matching one text takes, about one for each byte that is examined. Differs(go): it has no
/// limit, and time can grow with the length of the text to the power of the number of stars.
pub const MAX_STEPS: usize = 4 << 20;

/// Why a text is not a glob, in gobwas' words, or has not been matched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A `[` without `]`.
    #[error("unexpected end of input")]
    UnexpectedEnd,
    /// Something behind the second end of a range.
    #[error("expected close range character")]
    RangeNotClosed,
    /// A range whose second end comes before its first.
    #[error("hi character '{high}' should be greater than lo '{low}'")]
    RangeReversed {
        /// The first end.
        low: char,
        /// The second end.
        high: char,
    },
    /// An empty class.
    #[error("could not parse range")]
    EmptyRange,
    /// A replacement character: the bytes were not UTF-8.
    #[error("could not read rune")]
    NotUtf8,
    /// Longer than [`MAX_GLOB`].
    #[error("the glob is longer than {MAX_GLOB} bytes")]
    TooLong,
    /// Deeper than [`MAX_NESTING`].
    #[error("the braces of the glob nest deeper than {MAX_NESTING}")]
    NestsTooDeeply,
    /// Longer than [`MAX_STEPS`].
    #[error("matching the glob takes more than {MAX_STEPS} steps; write it with fewer `*`")]
    TooManySteps,
}

/// A glob as gobwas/glob reads it: `*` and `?` stop at separators, `**` does not; `[a-z]`, `[!abc]`, `{a,b*}`,
/// `\` before a literal character.
#[derive(Debug, Clone)]
pub struct Glob {
    matcher: matcher::GlobMatcher,
}

impl Glob {
    /// Reads a glob.
    ///
    /// # Errors
    /// If gobwas would refuse it, or it is too long or deep.
    pub fn new(glob: &str, separators: &[char]) -> Result<Self, Error> {
        let tree = pattern::parse(glob)?;
        Ok(Self { matcher: compile::compile(tree, separators) })
    }

    /// Whether all of a text matches.
    ///
    /// # Errors
    /// If that takes too long to find out.
    pub fn is_match(&self, text: &str) -> Result<bool, Error> {
        self.is_match_in_steps(text).0
    }

    /// [`Glob::is_match`], and how many steps that took, of which there are [`MAX_STEPS`] at most.
    pub fn is_match_in_steps(&self, text: &str) -> (Result<bool, Error>, usize) {
        let mut steps = matcher::MatchStepBudget::new(MAX_STEPS);
        let is_match = self.matcher.is_match(text.as_bytes(), &mut steps);
        let is_match = if steps.are_left() { Ok(is_match) } else { Err(Error::TooManySteps) };
        (is_match, MAX_STEPS - steps.left())
    }
}

#[cfg(test)]
mod tests;
