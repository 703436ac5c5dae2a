//! One ignore pattern, as go-git reads it.
//!
//! Here: negation, anchoring, `**` between slashes.
//! Elsewhere: wildcards inside one name ([`super::glob`]), which pattern wins ([`super::IgnoreMatcher`]).

use super::glob::IgnoreGlob;

/// The effect of a matching pattern on a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IgnoreVerdict {
    /// The path is left out.
    Exclude,
    /// The path is kept, even if an earlier pattern excluded it.
    Include,
}

/// One pattern, ready to match.
#[derive(Debug)]
pub(super) struct IgnorePattern {
    verdict: IgnoreVerdict,
    only_dirs: bool,
    shape: IgnorePatternShape,
}

#[derive(Debug)]
enum IgnorePatternShape {
    /// A pattern without a slash. Any part of the path may match it.
    Name(IgnoreGlob),
    /// A pattern with a slash. It is matched from the beginning of the path.
    Path(Vec<PathPatternPart>),
    /// A malformed pattern, which matches no path.
    Nothing,
}

#[derive(Debug)]
enum PathPatternPart {
    /// The empty part between two slashes.
    Empty,
    /// `**`: any number of folders.
    Deep,
    Name(IgnoreGlob),
}

impl IgnorePattern {
    /// Reads a line that is neither blank nor a comment.
    pub(super) fn parse(line: &str) -> Self {
        let (verdict, text) = match line.strip_prefix('!') {
            Some(rest) => (IgnoreVerdict::Include, rest),
            None => (IgnoreVerdict::Exclude, line),
        };
        // Parity(go-git): one escaped space at the end keeps all spaces before it too.
        let text = if text.ends_with("\\ ") { text } else { text.trim_end_matches(' ') };
        let (only_dirs, text) = match text.strip_suffix('/') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let shape = if text.contains('/') {
            let parts: Option<Vec<PathPatternPart>> =
                text.split('/').map(PathPatternPart::parse).collect();
            parts.map(IgnorePatternShape::Path)
        } else {
            IgnoreGlob::parse(text).map(IgnorePatternShape::Name)
        };
        Self { verdict, only_dirs, shape: shape.unwrap_or(IgnorePatternShape::Nothing) }
    }

    /// The effect on a path, given as its parts; `None` when the pattern does not match.
    pub(super) fn judge(&self, path: &[&str], is_dir: bool) -> Option<IgnoreVerdict> {
        let rest = match &self.shape {
            IgnorePatternShape::Nothing => None,
            // A match on a folder above covers everything below it.
            IgnorePatternShape::Name(glob) => {
                path.iter().position(|name| glob.matches(name)).map(|at| &path[at + 1..])
            }
            IgnorePatternShape::Path(parts) => match_parts(parts, path),
        }?;
        let is_folder = is_dir || !rest.is_empty();
        (is_folder || !self.only_dirs).then_some(self.verdict)
    }
}

impl PathPatternPart {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "" => Some(Self::Empty),
            "**" => Some(Self::Deep),
            // Parity(go-git): beside a slash, `**` glued to something matches nothing.
            glued if glued.contains("**") => None,
            name => IgnoreGlob::parse(name).map(Self::Name),
        }
    }
}

/// Matches the beginning of a path. Returns the parts of the path that follow, or `None` if it does not match.
///
/// Parity(go-git): `**` takes the first name that fits and never tries a later one,
/// so `**/a/b` does not match `a/x/a/b`; and parts that name nothing do not make a match.
fn match_parts<'p>(parts: &[PathPatternPart], mut path: &'p [&'p str]) -> Option<&'p [&'p str]> {
    let mut is_matched = false;
    let mut is_deep = false;
    for part in parts {
        match part {
            PathPatternPart::Empty => is_deep = false,
            PathPatternPart::Deep => is_deep = true,
            PathPatternPart::Name(glob) => {
                let reach = if is_deep { path.len() } else { 1 };
                let at = path.iter().take(reach).position(|name| glob.matches(name))?;
                path = &path[at + 1..];
                is_matched = true;
                is_deep = false;
            }
        }
    }
    is_matched.then_some(path)
}
