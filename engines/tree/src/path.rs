//! The path of a file inside a tree.
//!
//! Here: normalising, joining, ordering.
//! Elsewhere: whether there is a file ([`crate::FileTree`]).

use std::{cmp::Ordering, fmt, str::FromStr};

/// A path inside a tree: `/`-separated, relative, without `.`, `..`, empty parts or NUL.
///
/// The root is the empty path, shown as `.`. Paths order as a walk visits them: a folder, then what is in it, then its next
/// sibling (`a`, `a/z`, `a-1`), and bytewise within a folder.
///
/// # Guarantees
/// Joined to a root directory, the path always stays below that directory.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct RelPath(String);

/// Why a text is not a path inside a tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RelPathError {
    /// The path begins with `/`.
    #[error("`{0}` is absolute, and only paths inside the tree can be used")]
    Absolute(String),
    /// The path climbs above the root.
    #[error("`{to}`, seen from `{from}`, leaves the tree")]
    Leaves {
        /// The folder that the path was relative to.
        from: RelPath,
        /// The path as it was written.
        to: String,
    },
    /// The path contains a NUL byte, which no file name can.
    #[error("{0:?} contains a NUL byte")]
    Nul(String),
    /// The path is longer than [`RelPath::MAX_LEN`].
    #[error("the path that begins with `{0}` is longer than {max} bytes", max = RelPath::MAX_LEN)]
    TooLong(String),
}

impl RelPath {
    /// The longest path, in bytes, as Linux has it.
    pub(crate) const MAX_LEN: usize = 4096;

    /// The path of the tree's root folder.
    #[must_use]
    pub fn root() -> Self {
        Self::default()
    }

    /// Reads and normalizes a path relative to the root.
    ///
    /// `a//b`, `./a/b`, `a/b/` and `a/x/../b` are all `a/b`; an empty text and `.` are the root.
    ///
    /// # Errors
    /// The text is absolute, climbs above the root, contains NUL, or is too long.
    pub fn parse(text: &str) -> Result<Self, RelPathError> {
        Self::root().join(text)
    }

    /// Reads `text` as a path relative to this folder.
    ///
    /// `..` is resolved by removing a name, which is correct because trees have no symbolic links.
    ///
    /// # Errors
    /// As [`RelPath::parse`]. If the path leaves the root, the error names both this path and `text`.
    pub fn join(&self, text: &str) -> Result<Self, RelPathError> {
        if text.len() > Self::MAX_LEN {
            return Err(RelPathError::TooLong(beginning(text)));
        }
        if text.contains('\0') {
            return Err(RelPathError::Nul(text.to_owned()));
        }
        if text.starts_with('/') {
            return Err(RelPathError::Absolute(text.to_owned()));
        }
        let mut parts: Vec<&str> = self.components().collect();
        for part in text.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    let outside =
                        || RelPathError::Leaves { from: self.clone(), to: text.to_owned() };
                    parts.pop().ok_or_else(outside)?;
                }
                name => parts.push(name),
            }
        }
        let joined = parts.join("/");
        if joined.len() > Self::MAX_LEN {
            return Err(RelPathError::TooLong(beginning(&joined)));
        }
        Ok(Self(joined))
    }

    /// The parent folder of this path. `None` for the root.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        match self.0.rsplit_once('/') {
            Some((parent, _)) => Some(Self(parent.to_owned())),
            None if self.is_root() => None,
            None => Some(Self::root()),
        }
    }

    /// The last part of the path. `None` for the root.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.rsplit('/').next().filter(|name| !name.is_empty())
    }

    /// The text after the last dot of the name. `None` if there is no dot, or only one at the beginning.
    #[must_use]
    pub fn extension(&self) -> Option<&str> {
        let (stem, extension) = self.name()?.rsplit_once('.')?;
        (!stem.is_empty()).then_some(extension)
    }

    /// Whether the path is the root of the tree.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this path equals `base` or is below it. `ab` is not below `a`.
    #[must_use]
    pub fn starts_with(&self, base: &Self) -> bool {
        self.strip_prefix(base).is_some()
    }

    /// This path relative to `base`. `None` if it is not below `base`.
    #[must_use]
    pub fn strip_prefix(&self, base: &Self) -> Option<Self> {
        if base.is_root() {
            return Some(self.clone());
        }
        let rest = self.0.strip_prefix(&base.0)?;
        if rest.is_empty() {
            return Some(Self::root());
        }
        rest.strip_prefix('/').map(|rest| Self(rest.to_owned()))
    }

    /// The parts of the path, from the root down; none for the root.
    pub fn components(&self) -> impl Iterator<Item = &str> {
        self.0.split('/').filter(|part| !part.is_empty())
    }

    /// The number of parts of the path, which is 0 for the root.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.components().count()
    }

    /// The path as text; empty for the root.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The smallest path that sorts after everything below this one.
    pub(crate) fn after_subtree(&self) -> Self {
        // `/` sorts as the lowest byte, so the second lowest ends the subtree.
        Self(format!("{}\u{1}", self.0))
    }
}

/// As much of an overlong text as a message can show.
fn beginning(text: &str) -> String {
    text.chars().take(64).collect()
}

impl Ord for RelPath {
    fn cmp(&self, other: &Self) -> Ordering {
        // A path never contains NUL, so NUL can replace the separator and sorts before every other byte.
        let key = |byte: u8| if byte == b'/' { 0 } else { byte };
        self.0.bytes().map(key).cmp(other.0.bytes().map(key))
    }
}

impl PartialOrd for RelPath {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_root() { "." } else { &self.0 })
    }
}

impl FromStr for RelPath {
    type Err = RelPathError;

    fn from_str(text: &str) -> Result<Self, RelPathError> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text).expect("a path inside the tree")
    }

    fn refusal(base: &str, text: &str) -> String {
        path(base).join(text).expect_err("should be refused").to_string()
    }

    #[test]
    fn equal_places_are_equal_paths() {
        for text in ["a/b", "a//b", "./a/b", "a/b/", "a/x/../b", "x/../a/./b/."] {
            assert_eq!(path(text), path("a/b"), "{text}");
        }
        for text in ["", ".", "./", "a/..", "a/b/../.."] {
            assert!(path(text).is_root(), "{text}");
        }
        assert_eq!(path("a").join("../b"), Ok(path("b")));
    }

    #[test]
    fn what_leaves_the_tree_is_named() {
        assert_eq!(refusal("", "../x"), "`../x`, seen from `.`, leaves the tree");
        assert_eq!(refusal("a/b", "../../../x"), "`../../../x`, seen from `a/b`, leaves the tree");
        assert_eq!(refusal("a", "b/../../.."), "`b/../../..`, seen from `a`, leaves the tree");
        assert_eq!(
            refusal("a", "/etc"),
            "`/etc` is absolute, and only paths inside the tree can be used"
        );
        assert_eq!(refusal("", "a\0b"), "\"a\\0b\" contains a NUL byte");
        let long = "x".repeat(RelPath::MAX_LEN + 1);
        let begins = "x".repeat(64);
        assert_eq!(
            refusal("", &long),
            format!("the path that begins with `{begins}` is longer than 4096 bytes")
        );
        assert!(path(&"x".repeat(4000)).join(&"y".repeat(200)).is_err());
    }

    #[test]
    fn parts_of_a_path() {
        assert_eq!(path("a/b.tar.gz").extension(), Some("gz"));
        assert_eq!(path("a.d/b").extension(), None);
        assert_eq!(path(".yaml").extension(), None);
        assert_eq!(path("a/b").name(), Some("b"));
        assert_eq!(RelPath::root().name(), None);
        assert_eq!(path("a/b").parent(), Some(path("a")));
        assert_eq!(path("a").parent(), Some(RelPath::root()));
        assert_eq!(RelPath::root().parent(), None);
        assert_eq!(RelPath::root().to_string(), ".");
        assert!(path("a/b").starts_with(&path("a")));
        assert!(!path("ab").starts_with(&path("a")));
        assert_eq!(path("a/b/c").strip_prefix(&path("a")), Some(path("b/c")));
        assert_eq!(path("a").strip_prefix(&path("a")), Some(RelPath::root()));
    }

    #[test]
    fn paths_order_as_a_walk_visits_them() {
        let mut paths = ["ab", "a.txt", "a/z", "é", "a0", "a", "a-1", "A", "a/b/c", "."].map(path);
        paths.sort();
        assert_eq!(
            paths.map(|path| path.to_string()),
            [".", "A", "a", "a/b/c", "a/z", "a-1", "a.txt", "a0", "ab", "é"]
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_a_path_that_climbs(base in "[a./]{0,12}", text in "\\PC{0,40}|[a./]{0,20}") {
            let Ok(base) = RelPath::parse(&base) else { return Ok(()) };
            if let Ok(path) = base.join(&text) {
                prop_assert!(!path.as_str().starts_with('/') && !path.as_str().ends_with('/'));
                prop_assert!(path.components().all(|part| !matches!(part, "" | "." | "..")));
                prop_assert_eq!(RelPath::parse(path.as_str()), Ok(path));
            }
        }

        #[test]
        fn a_joined_path_strips_back(base in "[ab](/[ab]){0,3}", rest in "[ab.](/[ab]){0,3}") {
            let base = path(&base);
            let joined = base.join(&rest).expect("goes down only");
            prop_assert_eq!(joined.strip_prefix(&base), Some(path(&rest)));
            prop_assert!(joined >= base && joined < base.after_subtree());
        }

        #[test]
        fn the_order_is_that_of_the_lists_of_parts(a in "[a-b.!]{1,3}(/[a-b.!]{1,3}){0,3}", b in "[a-b.!]{1,3}(/[a-b.!]{1,3}){0,3}") {
            let (Ok(a), Ok(b)) = (RelPath::parse(&a), RelPath::parse(&b)) else { return Ok(()) };
            prop_assert_eq!(a.cmp(&b), a.components().cmp(b.components()));
        }
    }
}
