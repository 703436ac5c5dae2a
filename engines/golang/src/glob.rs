//! Globs of two libraries: Go's `path.Match`, and gobwas/glob, by which charts select their files.
//!
//! Here: the public types. Below: `path.Match` (`path.rs`). For gobwas: reading (`pattern.rs`), choosing a matcher
//! (`compile.rs`), and matching (`matcher.rs`). Elsewhere: `.helmignore` and `.sourceignore`, which have their own
//! rules for globs.
//!
//! gobwas uses shortcuts that do not always follow the pattern. For example, `{**,x}/d` does not match `a/b/d`. Charts
//! rely on that, so the shortcuts are the same here.
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

/// How long a glob may be, in bytes. Differs(go): it has no limit.
pub(crate) const MAX_GLOB: usize = 512;

/// How deep braces may nest. Differs(go): it has no limit.
pub const MAX_NESTING: usize = 32;

/// How many steps matching one text may take, about one for each examined byte. Differs(go): it has no limit. The time
/// can grow with the length of the text to the power of the number of stars.
pub const MAX_STEPS: usize = 4 << 20;

/// Why a text is not a glob, in gobwas' words, or why it was not matched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A `[` has no `]`.
    #[error("unexpected end of input")]
    UnexpectedEnd,
    /// A range has more text after its second end.
    #[error("expected close range character")]
    RangeNotClosed,
    /// The second end of a range is less than its first.
    #[error("hi character '{high}' should be greater than lo '{low}'")]
    RangeReversed {
        /// The first end of the range.
        low: char,
        /// The second end of the range.
        high: char,
    },
    /// A class is empty.
    #[error("could not parse range")]
    EmptyRange,
    /// The text has a replacement character, because its bytes were not UTF-8.
    #[error("could not read rune")]
    NotUtf8,
    /// The glob is longer than [`MAX_GLOB`].
    #[error("the glob is longer than {MAX_GLOB} bytes")]
    TooLong,
    /// The braces are nested deeper than [`MAX_NESTING`].
    #[error("the braces of the glob nest deeper than {MAX_NESTING}")]
    NestsTooDeeply,
    /// Matching takes more steps than [`MAX_STEPS`].
    #[error("matching the glob takes more than {MAX_STEPS} steps; write it with fewer `*`")]
    TooManySteps,
}

/// A glob of gobwas/glob. `*` and `?` stop at separators, and `**` does not. It also has `[a-z]`, `[!abc]` and
/// `{a,b*}`. A `\` precedes a literal character.
#[derive(Debug, Clone)]
pub struct Glob {
    matcher: matcher::GlobMatcher,
}

impl Glob {
    /// Reads a glob.
    ///
    /// # Errors
    /// gobwas refuses the text, or the glob is too long or nested too deeply.
    pub fn new(glob: &str, separators: &[char]) -> Result<Self, Error> {
        let tree = pattern::parse(glob)?;
        Ok(Self { matcher: compile::compile(tree, separators) })
    }

    /// Whether the glob matches a whole text.
    ///
    /// # Errors
    /// Matching takes too many steps.
    pub fn is_match(&self, text: &str) -> Result<bool, Error> {
        self.is_match_in_steps(text).0
    }

    /// Like [`Glob::is_match`], with the number of steps that it took. It is at most [`MAX_STEPS`].
    pub fn is_match_in_steps(&self, text: &str) -> (Result<bool, Error>, usize) {
        let mut steps = matcher::MatchStepBudget::new(MAX_STEPS);
        let is_match = self.matcher.is_match(text.as_bytes(), &mut steps);
        let is_match = if steps.are_left() { Ok(is_match) } else { Err(Error::TooManySteps) };
        (is_match, MAX_STEPS - steps.left())
    }
}

#[cfg(test)]
mod tests;
