//! Finds the paths of a tree that match a pattern.
//!
//! Here: both ways in which Flux finds paths. For files it is Go's `fs.Glob`, where `**` is a single star and `{a,b}`
//! is literal. For archives it is doublestar's `Glob`. Elsewhere: matching one path (`doublestar.rs`, `golang::glob`).

use golang::glob::path_match;
use golang::work_meter::{WorkLimitExceeded, WorkMeter};
use tree::{FileKind, FileMetadata, FileTree, RelPath, TreeError};

use crate::doublestar::{self, PatternMatchError, PatternSyntaxCheck};

/// About how many steps it takes to list an entry of a folder.
pub(crate) const STEPS_PER_LISTED_ENTRY: u64 = 64;

/// About how many bytes a path or a pattern takes in addition to its text.
pub(crate) const BYTES_PER_PATH: u64 = 64;

/// Why no paths were found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GlobError {
    /// The pattern is malformed, in Go's words.
    #[error("syntax error in pattern")]
    Malformed,
    /// A folder of the tree cannot be listed.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The search costs more than the meter allows.
    #[error(transparent)]
    Work(#[from] WorkLimitExceeded),
}

impl From<PatternMatchError> for GlobError {
    fn from(error: PatternMatchError) -> Self {
        match error {
            PatternMatchError::Malformed => Self::Malformed,
            PatternMatchError::Work(error) => Self::Work(error),
        }
    }
}

/// The paths that Go's `fs.Glob` finds, in its order.
///
/// # Errors
/// The pattern, or its beginning up to a slash, is malformed, or the search costs more than the meter allows.
pub(crate) fn simple(
    tree: &dyn FileTree,
    pattern: &str,
    meter: &mut WorkMeter,
) -> Result<Vec<RelPath>, GlobError> {
    let mut head = pattern;
    loop {
        meter.steps(1 + head.len() as u64)?;
        path_match(head, "").map_err(|_| GlobError::Malformed)?;
        match head.rsplit_once('/') {
            Some((before, _)) if has_meta(before) => head = before,
            Some(_) | None => break,
        }
    }
    let segments: Vec<&str> = pattern.split('/').collect();
    let literal = segments.iter().take_while(|segment| !has_meta(segment)).count();
    let (literal, segments) = segments.split_at(literal);
    let Some(start) = literal_path(literal) else { return Ok(Vec::new()) };
    let mut found = vec![start];
    found.retain(|path| tree.entry(path).is_some());
    for segment in segments {
        meter.steps(1 + segment.len() as u64)?;
        let mut next = Vec::new();
        for folder in &found {
            for (name, _) in listed(tree, folder, meter)? {
                meter.steps((1 + segment.len() as u64) * (1 + name.len() as u64))?;
                if path_match(segment, &name).map_err(|_| GlobError::Malformed)? {
                    add(folder, &name, &mut next, meter)?;
                }
            }
        }
        found = next;
    }
    Ok(found)
}

/// The paths that doublestar's `Glob` finds, in its order. The root is one of them if `**` may match the empty path.
///
/// Differs(doublestar): if several alternatives of a group before `**` match, all of their paths are sorted together.
///
/// # Errors
/// The pattern is malformed, or the search costs more than the meter allows.
pub(crate) fn with_double_stars(
    tree: &dyn FileTree,
    pattern: &str,
    meter: &mut WorkMeter,
) -> Result<Vec<RelPath>, GlobError> {
    if !doublestar::is_well_formed(pattern) {
        return Err(GlobError::Malformed);
    }
    let mut all = Vec::new();
    let alternatives = without_groups(pattern, meter)?;
    for alternative in &alternatives {
        all.extend(of_alternative(tree, alternative, meter)?);
    }
    if alternatives.len() > 1 {
        // Parity(doublestar): with `**` before the end, paths are sorted as strings, else folder by folder.
        if has_double_star_before_end(pattern) {
            all.sort_by(|a: &RelPath, b| a.as_str().cmp(b.as_str()));
        } else {
            all.sort();
        }
        all.dedup();
    }
    Ok(all)
}

/// The patterns without groups that a pattern with groups of alternatives stands for.
fn without_groups(pattern: &str, meter: &mut WorkMeter) -> Result<Vec<String>, GlobError> {
    let mut waiting = vec![pattern.to_owned()];
    let mut plain = Vec::new();
    while let Some(pattern) = waiting.pop() {
        meter.steps(1 + pattern.len() as u64)?;
        meter.bytes(BYTES_PER_PATH + pattern.len() as u64)?;
        let Some(open) = first_group(&pattern) else {
            plain.push(pattern);
            continue;
        };
        let (before, inner) = pattern.split_at(open);
        let inner = inner.get(1..).unwrap_or_default();
        let end = doublestar::group_end(inner).ok_or(GlobError::Malformed)?;
        let behind = inner.get(end + 1..).unwrap_or_default();
        let mut rest = inner.get(..end).unwrap_or_default();
        let mut alternatives = Vec::new();
        // Parity(doublestar): an empty alternative at the end does not count.
        while !rest.is_empty() {
            let end = doublestar::alternative_end(rest).unwrap_or(rest.len());
            alternatives.push([before, rest.get(..end).unwrap_or_default(), behind].concat());
            rest = rest.get(end + 1..).unwrap_or_default();
        }
        waiting.extend(alternatives.into_iter().rev());
    }
    Ok(plain)
}

/// The position of the first `{` in a pattern that is not escaped. `None` if there is none.
fn first_group(pattern: &str) -> Option<usize> {
    let mut bytes = pattern.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'{' => return Some(at),
            _ => {}
        }
    }
    None
}

fn has_double_star_before_end(pattern: &str) -> bool {
    let end = pattern.len().saturating_sub(3);
    let mut bytes = pattern.as_bytes().windows(2).enumerate().take(end);
    while let Some((_, pair)) = bytes.next() {
        match pair {
            [b'\\', _] => drop(bytes.next()),
            b"**" => return true,
            _ => {}
        }
    }
    false
}

/// The paths that a pattern without groups finds.
fn of_alternative(
    tree: &dyn FileTree,
    pattern: &str,
    meter: &mut WorkMeter,
) -> Result<Vec<RelPath>, GlobError> {
    meter.steps(1 + pattern.len() as u64)?;
    let segments: Vec<&str> = pattern.split('/').collect();
    let literal = segments.iter().take_while(|segment| !has_unescaped_meta(segment)).count();
    let (literal, segments) = segments.split_at(literal);
    let text = unescaped(&literal.join("/"));
    let text = match segments {
        // A pattern without wildcards may end with a slash.
        [] => text.strip_suffix('/').filter(|text| !text.is_empty()).unwrap_or(&text),
        _ => &text,
    };
    let parts: Vec<&str> = text.split('/').collect();
    let start = if literal.is_empty() { Some(RelPath::root()) } else { literal_path(&parts) };
    let Some(start) = start else { return Ok(Vec::new()) };
    let mut found = vec![start];
    found.retain(|path| tree.entry(path).is_some());
    for (at, segment) in segments.iter().enumerate() {
        meter.steps(1 + segment.len() as u64)?;
        let is_last = at + 1 == segments.len();
        let mut next = Vec::new();
        for folder in &found {
            match *segment {
                "" => {
                    charge(folder.as_str().len(), meter)?;
                    if is_folder(tree, folder) {
                        next.push(folder.clone());
                    }
                }
                "**" => all_below(tree, folder, is_last, &mut next, meter)?,
                segment => {
                    for (name, kind) in listed(tree, folder, meter)? {
                        let is_wanted = is_last || kind == FileKind::Dir;
                        let check = PatternSyntaxCheck::PartThatWasRead;
                        if doublestar::is_match(segment, &name, check, meter)? && is_wanted {
                            add(folder, &name, &mut next, meter)?;
                        }
                    }
                }
            }
        }
        found = next;
    }
    Ok(found)
}

/// A folder and everything below it, or only the folders. Each folder comes before its content.
fn all_below(
    tree: &dyn FileTree,
    folder: &RelPath,
    with_files: bool,
    into: &mut Vec<RelPath>,
    meter: &mut WorkMeter,
) -> Result<(), GlobError> {
    charge(folder.as_str().len(), meter)?;
    if !is_folder(tree, folder) {
        return Ok(());
    }
    let mut waiting = vec![folder.clone()];
    while let Some(path) = waiting.pop() {
        let mut children = Vec::new();
        for (name, kind) in listed(tree, &path, meter)? {
            if with_files || kind == FileKind::Dir {
                add(&path, &name, &mut children, meter)?;
            }
        }
        waiting.extend(children.into_iter().rev());
        into.push(path);
    }
    Ok(())
}

fn is_folder(tree: &dyn FileTree, path: &RelPath) -> bool {
    tree.entry(path).map(FileMetadata::kind) == Some(FileKind::Dir)
}

/// The direct entries of a folder. A file has none.
fn listed(
    tree: &dyn FileTree,
    folder: &RelPath,
    meter: &mut WorkMeter,
) -> Result<Vec<(String, FileKind)>, GlobError> {
    meter.steps(STEPS_PER_LISTED_ENTRY)?;
    let entries = match tree.list(folder) {
        Ok(entries) => entries,
        Err(TreeError::NotDirectory(_)) => return Ok(Vec::new()),
        Err(error @ (TreeError::NotFound(_) | TreeError::IsDirectory(_))) => {
            return Err(error.into());
        }
    };
    meter.steps(STEPS_PER_LISTED_ENTRY * entries.len() as u64)?;
    Ok(entries)
}

/// Charges the meter for a path of this length. The caller does so before it creates the path.
fn charge(length: usize, meter: &mut WorkMeter) -> Result<(), WorkLimitExceeded> {
    meter.steps(1 + length as u64)?;
    meter.bytes(BYTES_PER_PATH + length as u64)
}

fn add(
    folder: &RelPath,
    name: &str,
    into: &mut Vec<RelPath>,
    meter: &mut WorkMeter,
) -> Result<(), WorkLimitExceeded> {
    charge(folder.as_str().len() + name.len(), meter)?;
    // The names of a tree lead nowhere else.
    into.extend(folder.join(name));
    Ok(())
}

/// The path that pattern parts without wildcards name, where no parts or only `.` name the root. `None` if a part is
/// empty, `.` or `..`, since Go's file systems have no such paths.
fn literal_path(parts: &[&str]) -> Option<RelPath> {
    if matches!(parts, [] | ["."]) {
        return Some(RelPath::root());
    }
    let is_odd = parts.iter().any(|part| matches!(*part, "" | "." | ".."));
    if is_odd { None } else { RelPath::parse(&parts.join("/")).ok() }
}

/// Whether Go's `fs.Glob` treats a text as a pattern and not as a plain name.
fn has_meta(text: &str) -> bool {
    text.contains(['*', '?', '[', '\\'])
}

fn has_unescaped_meta(text: &str) -> bool {
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'*' | b'?' | b'[' => return true,
            _ => {}
        }
    }
    false
}

/// Removes the backslashes before wildcards.
fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let is_escape = character == '\\'
            && characters.peek().is_some_and(|it| ['*', '?', '[', ']', '{', '}'].contains(it));
        if !is_escape {
            plain.push(character);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use golang::work_meter::{StopSignal, WorkAllowance};
    use tree::MemoryTree;

    use super::*;

    fn meter(steps: u64) -> WorkMeter {
        WorkMeter::new(WorkAllowance { steps, bytes: 1 << 20 }, StopSignal::default())
    }

    fn tree() -> MemoryTree {
        let files = ["b.tgz", "a/a.tgz", "a/b/c.tgz", "a/x.md", "a-1/a.tgz", "]"];
        MemoryTree::from_files(files.map(|file| (file, ""))).unwrap()
    }

    fn texts(found: Result<Vec<RelPath>, GlobError>) -> Vec<String> {
        found.unwrap().iter().map(RelPath::to_string).collect()
    }

    #[test]
    fn in_a_simple_pattern_two_stars_are_one() {
        let tree = tree();
        let found = |pattern| texts(simple(&tree, pattern, &mut meter(100_000)));
        assert_eq!(found("**"), ["]", "a", "a-1", "b.tgz"]);
        assert_eq!(found("**/*.tgz"), ["a/a.tgz", "a-1/a.tgz"]);
        assert_eq!(found("a/[!x]*"), ["a/x.md"]);
        assert_eq!(found("]"), ["]"]);
        assert_eq!(found("./b*"), ["b.tgz"]);
        for pattern in ["/*", "./a/*", "a//*", "a/./*", "../*", "*/", "{a,b}*"] {
            assert!(found(pattern).is_empty(), "{pattern}");
        }
        for pattern in ["[", "[a/b]*", "a/["] {
            let found = simple(&tree, pattern, &mut meter(100_000));
            assert_eq!(found, Err(GlobError::Malformed), "{pattern}");
        }
    }

    #[test]
    fn two_stars_mean_any_folders_where_archives_are_wanted() {
        let tree = tree();
        let found = |pattern| texts(with_double_stars(&tree, pattern, &mut meter(100_000)));
        assert_eq!(found("**/*.tgz"), ["b.tgz", "a/a.tgz", "a/b/c.tgz", "a-1/a.tgz"]);
        assert_eq!(found("a/**"), ["a", "a/a.tgz", "a/b", "a/b/c.tgz", "a/x.md"]);
        assert_eq!(found("**/{b,a}.tgz"), ["a-1/a.tgz", "a/a.tgz", "b.tgz"]);
        assert_eq!(found("*/{x.md,a.tgz,}"), ["a/a.tgz", "a/x.md", "a-1/a.tgz"]);
        assert_eq!(found("{a,a}/b/"), ["a/b"]);
        assert_eq!(found("*/"), ["a", "a-1"]);
        assert_eq!(found("./b*"), ["b.tgz"]);
        assert!(found("a/./*").is_empty() && found("/*").is_empty() && found("{}*").is_empty());
        let found = with_double_stars(&tree, "{a", &mut meter(100_000));
        assert_eq!(found, Err(GlobError::Malformed));
    }

    #[test]
    fn each_listed_entry_and_each_path_that_is_found_is_counted() {
        let files: Vec<String> = (0..1_000).map(|at| at.to_string()).collect();
        let wide = MemoryTree::from_files(files.iter().map(|file| (file, ""))).unwrap();
        // Each of the three parts lists the root.
        let steps = 3 * 1_000 * STEPS_PER_LISTED_ENTRY;
        let exceeded = Err(GlobError::Work(WorkLimitExceeded::Steps(steps)));
        assert_eq!(with_double_stars(&wide, "**/**/**", &mut meter(steps)), exceeded);
        let bytes = 1_000 * BYTES_PER_PATH;
        let mut meter =
            WorkMeter::new(WorkAllowance { steps: u64::MAX, bytes }, StopSignal::default());
        let exceeded = Err(GlobError::Work(WorkLimitExceeded::Bytes(bytes)));
        assert_eq!(simple(&wide, "*", &mut meter), exceeded);
    }

    #[test]
    fn patterns_that_multiply_their_paths_end_with_an_error() {
        let deep = MemoryTree::from_files([(vec!["d"; 100].join("/"), "")]).unwrap();
        let pattern = vec!["**"; 40].join("/");
        let exceeded = Err(GlobError::Work(WorkLimitExceeded::Steps(100_000)));
        assert_eq!(with_double_stars(&deep, &pattern, &mut meter(100_000)), exceeded);
        let pattern = "{a,b}".repeat(20);
        assert_eq!(with_double_stars(&deep, &pattern, &mut meter(100_000)), exceeded);
    }
}
