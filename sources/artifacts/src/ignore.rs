//! Decides which files are left out of an archive, by `.sourceignore` files and `spec.ignore`.
//!
//! Here: which patterns apply to a path, in which order, and the defaults.
//! Elsewhere: one pattern (`pattern`), the wildcards in one name (`glob`), leaving the files out
//! ([`crate::archive::ArchiveContents`]).

mod glob;
mod pattern;

use std::collections::BTreeMap;

use tree::RelPath;

use pattern::{IgnorePattern, IgnoreVerdict};

/// The name of the files that hold patterns for their own folder.
pub const IGNORE_FILE: &str = ".sourceignore";

/// The most patterns that one source may have.
pub const MAX_PATTERNS: usize = 20_000;

/// The longest pattern in bytes. File names are much shorter.
pub const MAX_PATTERN_LEN: usize = 4096;

/// Left out of every archive, unless a pattern brings it back.
const VCS: [&str; 4] = [".git/", ".gitignore", ".gitmodules", ".gitattributes"];

/// Left out too as long as the source has no pattern of its own.
const DEFAULTS: [&str; 20] = [
    "*.jpg",
    "*.jpeg",
    "*.gif",
    "*.png",
    "*.wmv",
    "*.flv",
    "*.tar.gz",
    "*.zip",
    ".github/",
    ".circleci/",
    ".travis.yml",
    ".gitlab-ci.yml",
    "appveyor.yml",
    ".drone.yml",
    "cloudbuild.yaml",
    "codeship-services.yml",
    "codeship-steps.yml",
    "**/.goreleaser.yml",
    "**/.sops.yaml",
    "**/.flux.yaml",
];

/// The reason why the patterns of a source are not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A line is longer than [`MAX_PATTERN_LEN`].
    #[error(
        "line {line} of {place} is longer than the maximum of {MAX_PATTERN_LEN} bytes for a pattern"
    )]
    TooLong {
        /// The ignore file, or `spec.ignore`.
        place: String,
        /// The line, from 1.
        line: usize,
    },
    /// There are more than [`MAX_PATTERNS`].
    #[error("{place} exceeds the maximum of {MAX_PATTERNS} ignore patterns")]
    TooMany {
        /// The ignore file, or `spec.ignore`, that has the first one too many.
        place: String,
    },
}

/// Decides which paths of one source are left out.
///
/// The last pattern that matches a path wins: those of `spec.ignore` stand last,
/// before them those of the ignore file nearest to the path, and the defaults stand first.
///
/// Parity(flux): each path is judged alone, so `dir/` with `!dir/keep` leaves `dir` out and keeps `dir/keep`.
#[derive(Debug)]
pub struct IgnoreMatcher {
    defaults: Vec<IgnorePattern>,
    /// The patterns by the folder of their ignore file.
    scoped: BTreeMap<RelPath, Vec<IgnorePattern>>,
    spec: Vec<IgnorePattern>,
}

impl IgnoreMatcher {
    /// Reads the strings of all ignore files, each with its folder, and `spec.ignore`.
    ///
    /// # Errors
    /// There are too many patterns, or one is too long.
    pub fn new(ignore_files: &[(RelPath, String)], spec: Option<&str>) -> Result<Self, Error> {
        let mut budget = MAX_PATTERNS;
        let mut scoped: BTreeMap<RelPath, Vec<IgnorePattern>> = BTreeMap::new();
        for (dir, text) in ignore_files {
            // Parity(flux): ignore files are looked for everywhere but in `.git`, in folders that are left out too.
            if dir.components().any(|part| part == ".git") {
                continue;
            }
            let place = || match dir.as_str() {
                "" => format!("`{IGNORE_FILE}`"),
                dir => format!("`{dir}/{IGNORE_FILE}`"),
            };
            let patterns = parse(text, place, &mut budget)?;
            if !patterns.is_empty() {
                scoped.entry(dir.clone()).or_default().extend(patterns);
            }
        }
        let spec = parse(spec.unwrap_or_default(), || "`spec.ignore`".to_owned(), &mut budget)?;
        let mut defaults: Vec<IgnorePattern> = VCS.into_iter().map(IgnorePattern::parse).collect();
        // Parity(flux): a single pattern anywhere turns the other defaults off everywhere.
        if scoped.is_empty() && spec.is_empty() {
            defaults.extend(DEFAULTS.into_iter().map(IgnorePattern::parse));
        }
        Ok(Self { defaults, scoped, spec })
    }

    /// Parses the text of an ignore file at the root, and `spec.ignore`, without further patterns.
    ///
    /// # Errors
    /// As [`IgnoreMatcher::new`].
    pub fn without_defaults(root: Option<&str>, spec: Option<&str>) -> Result<Self, Error> {
        let root: Vec<_> =
            root.map(|text| (RelPath::root(), text.to_owned())).into_iter().collect();
        Ok(Self { defaults: Vec::new(), ..Self::new(&root, spec)? })
    }

    /// Whether a file or folder is left out. The root is never left out.
    #[must_use]
    pub fn is_ignored(&self, path: &RelPath, is_dir: bool) -> bool {
        let parts: Vec<&str> = path.components().collect();
        if parts.is_empty() {
            return false;
        }
        let root = |patterns| last_verdict(patterns, &parts, is_dir);
        let in_files = || {
            let mut above = path.parent();
            while let Some(dir) = above {
                let inside = &parts[dir.depth()..];
                let patterns = self.scoped.get(&dir);
                if let Some(verdict) = patterns.and_then(|p| last_verdict(p, inside, is_dir)) {
                    return Some(verdict);
                }
                above = dir.parent();
            }
            None
        };
        let verdict = root(&self.spec).or_else(in_files).or_else(|| root(&self.defaults));
        verdict == Some(IgnoreVerdict::Exclude)
    }
}

fn last_verdict(patterns: &[IgnorePattern], path: &[&str], is_dir: bool) -> Option<IgnoreVerdict> {
    patterns.iter().rev().find_map(|pattern| pattern.judge(path, is_dir))
}

/// Reads the patterns of one text and takes them from the budget.
fn parse(
    text: &str,
    place: impl Fn() -> String,
    budget: &mut usize,
) -> Result<Vec<IgnorePattern>, Error> {
    let mut patterns = Vec::new();
    for (index, line) in text.split('\n').enumerate() {
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.starts_with('#') || line.trim().is_empty() {
            continue;
        }
        // Differs(flux): in Flux a line over 64 KiB silently ends the file; here a line that can match nothing is an
        // error.
        if line.len() > MAX_PATTERN_LEN {
            return Err(Error::TooLong { place: place(), line: index + 1 });
        }
        *budget = budget.checked_sub(1).ok_or_else(|| Error::TooMany { place: place() })?;
        patterns.push(IgnorePattern::parse(line));
    }
    Ok(patterns)
}
