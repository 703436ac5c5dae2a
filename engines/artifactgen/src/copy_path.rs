//! The `from` and `to` of a copy: `@alias/pattern` and `@artifact/path`.
//!
//! Here: reading both, and refusing invalid ones before any file is copied. Elsewhere: the files that a pattern matches
//! (`glob.rs`), and copying (`copy.rs`).

use tree::{RelPath, RelPathError};

/// The most commas in the groups of a pattern. Each comma may double the work of matching.
pub(crate) const MAX_ALTERNATIVES: usize = 20;

/// The longest pattern, in bytes. Differs(flux): an exclude pattern has no limit there.
pub(crate) const MAX_PATTERN_BYTES: usize = 4096;

/// The beginning of every `to`.
const ARTIFACT: &str = "@artifact/";

/// Why `from` or `to` of a copy is invalid, in Flux's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CopyPathError {
    /// `from` does not begin with `@`.
    #[error("source must start with '@'")]
    NoAlias,
    /// `from` has no path.
    #[error("source format must be '@alias/pattern'")]
    NoPattern,
    /// The groups of the pattern have more than 20 commas.
    #[error(
        "pattern has {0} alternatives in '{{}}' groups, at most {MAX_ALTERNATIVES} are allowed"
    )]
    TooManyAlternatives(usize),
    /// The pattern is longer than 4096 bytes.
    #[error("pattern has {0} bytes, at most {MAX_PATTERN_BYTES} are allowed")]
    TooLong(usize),
    /// `to` does not begin with `@artifact/`.
    #[error("destination must start with '@artifact/'")]
    NoArtifact,
    /// `to` is an absolute path, or goes above the root of the artifact.
    #[error("destination path must stay within the artifact root")]
    Outside,
    /// `to` has a part `..`, although it stays within the artifact.
    #[error("destination path must not contain '..'")]
    Climbs,
    /// `to` is not a valid path of a file.
    #[error(transparent)]
    Path(#[from] RelPathError),
}

/// The `from` of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CopySource<'a> {
    pub(crate) alias: &'a str,
    pub(crate) pattern: &'a str,
}

impl<'a> CopySource<'a> {
    pub(crate) fn parse(from: &'a str) -> Result<Self, CopyPathError> {
        let from = from.strip_prefix('@').ok_or(CopyPathError::NoAlias)?;
        let (alias, pattern) = from.split_once('/').ok_or(CopyPathError::NoPattern)?;
        check_pattern(pattern)?;
        Ok(Self { alias, pattern })
    }

    /// Whether `from` has a pattern and not a plain path.
    pub(crate) fn is_glob(&self) -> bool {
        has_wildcard(self.pattern)
    }

    /// The folder before the first part with a wildcard. Exclude patterns are relative to it. `None` if no tree can
    /// have such a path.
    pub(crate) fn folder(&self) -> Option<RelPath> {
        let clean = golang::path::clean(self.pattern);
        let parts = clean.split('/').take_while(|part| !has_wildcard(part));
        let folder = parts.collect::<Vec<_>>().join("/");
        RelPath::parse(&folder).ok()
    }
}

/// Refuses a pattern that would cost too much to match.
pub(crate) fn check_pattern(pattern: &str) -> Result<(), CopyPathError> {
    if pattern.len() > MAX_PATTERN_BYTES {
        return Err(CopyPathError::TooLong(pattern.len()));
    }
    let mut depth = 0_usize;
    let mut commas = 0;
    let mut bytes = pattern.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            b',' if depth > 0 => commas += 1,
            _ => {}
        }
    }
    if commas > MAX_ALTERNATIVES {
        return Err(CopyPathError::TooManyAlternatives(commas));
    }
    Ok(())
}

fn has_wildcard(text: &str) -> bool {
    text.contains(['*', '?', '[', ']'])
}

/// The `to` of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CopyDestination<'a> {
    /// The value of `to`, as messages name it.
    pub(crate) text: &'a str,
    pub(crate) path: RelPath,
    /// Whether `to` ends with a slash, so that a file is copied into that folder.
    pub(crate) is_folder: bool,
}

impl<'a> CopyDestination<'a> {
    pub(crate) fn parse(to: &'a str) -> Result<Self, CopyPathError> {
        let path = to.strip_prefix(ARTIFACT).ok_or(CopyPathError::NoArtifact)?;
        let text = if path.is_empty() { "." } else { path };
        let parsed = match RelPath::parse(text) {
            Ok(parsed) => parsed,
            Err(RelPathError::Absolute(_) | RelPathError::Leaves { .. }) => {
                return Err(CopyPathError::Outside);
            }
            Err(error @ (RelPathError::Nul(_) | RelPathError::TooLong(_))) => {
                return Err(error.into());
            }
        };
        if text.split('/').any(|part| part == "..") {
            return Err(CopyPathError::Climbs);
        }
        Ok(Self { text, path: parsed, is_folder: to.ends_with('/') })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_an_alias_and_all_behind_the_first_slash() {
        let parse = CopySource::parse;
        assert_eq!(parse("@a/b/*"), Ok(CopySource { alias: "a", pattern: "b/*" }));
        assert_eq!(parse("@a/"), Ok(CopySource { alias: "a", pattern: "" }));
        assert_eq!(parse("a/b"), Err(CopyPathError::NoAlias));
        assert_eq!(parse("@a"), Err(CopyPathError::NoPattern));
        let folder = |from| parse(from).unwrap().folder().map(|it| it.to_string());
        assert_eq!(folder("@a/b/./c/d*/e"), Some("b/c".to_owned()));
        assert_eq!(folder("@a/*"), Some(".".to_owned()));
        assert_eq!(folder("@a/../b*"), None);
    }

    #[test]
    fn only_commas_within_groups_are_counted() {
        let twenty = format!("{{{}}}", ",".repeat(20));
        assert_eq!(check_pattern(&twenty), Ok(()));
        assert_eq!(check_pattern(&",".repeat(100)), Ok(()));
        let more = format!("{twenty}{{a,b}}");
        assert_eq!(check_pattern(&more), Err(CopyPathError::TooManyAlternatives(21)));
        assert_eq!(check_pattern(&"a".repeat(4097)), Err(CopyPathError::TooLong(4097)));
    }

    #[test]
    fn a_destination_stays_in_the_artifact() {
        let parse = CopyDestination::parse;
        let path = |to| parse(to).map(|it| (it.path.to_string(), it.is_folder));
        assert_eq!(path("@artifact/"), Ok((".".to_owned(), true)));
        assert_eq!(path("@artifact/./x//y"), Ok(("x/y".to_owned(), false)));
        assert_eq!(path("@artifact"), Err(CopyPathError::NoArtifact));
        for to in ["@artifact//x", "@artifact/..", "@artifact/x/../../y"] {
            assert_eq!(path(to), Err(CopyPathError::Outside), "{to}");
        }
        assert_eq!(path("@artifact/x/../y"), Err(CopyPathError::Climbs));
    }
}
