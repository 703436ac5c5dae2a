//! Paths as strings: their folders and names, and detecting two YAML lines that were joined to one path.
//! Elsewhere: joining and cleaning paths (`golang::path`).

/// A path that YAML made from two lines. The first line is lost.
pub(crate) struct JoinedPathLines<'p> {
    /// The path of the first line.
    pub(crate) lost: &'p str,
    /// The path of the second line, to which both together lead.
    pub(crate) kept: &'p str,
}

/// Detects a path of the form `lost - kept` that YAML joined from two lines by mistake. In such a path, the `..` of
/// `kept` leave a folder whose name contains ` - `. `None` if the path has another form.
///
/// YAML continues a text with any line that is indented deeper, even if that line begins with `-`.
pub(crate) fn joined_lines(path: &str) -> Option<JoinedPathLines<'_>> {
    const MARK: &str = " - ";
    let mut parts: Vec<&str> = Vec::new();
    let mut is_left = false;
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                is_left |= parts.pop().is_some_and(|left| left.contains(MARK));
            }
            part => parts.push(part),
        }
    }
    let (lost, kept) = path.rsplit_once(MARK).filter(|_| is_left)?;
    Some(JoinedPathLines { lost, kept })
}

/// The folder and the name of a cleaned absolute path.
pub(crate) fn split(path: &str) -> (&str, &str) {
    match path.rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some((dir, name)) => (dir, name),
        None => (".", path),
    }
}

/// Whether a folder is `other` or below it. Both paths must be absolute and cleaned.
pub(crate) fn is_within(dir: &str, other: &str) -> bool {
    other == "/"
        || dir == other
        || dir.strip_prefix(other).is_some_and(|rest| rest.starts_with('/'))
}
