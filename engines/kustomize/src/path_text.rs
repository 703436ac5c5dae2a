//! Paths as strings: joining and cleaning as Go's `path/filepath` does on Unix.

/// The shortest text for the same path, `.` if nothing is left.
pub fn clean(path: &str) -> String {
    let is_absolute = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            ".." if is_absolute => {}
            part => parts.push(part),
        }
    }
    if parts.is_empty() {
        return if is_absolute { "/" } else { "." }.to_owned();
    }
    let mut text = String::with_capacity(path.len());
    for part in parts {
        if is_absolute || !text.is_empty() {
            text.push('/');
        }
        text.push_str(part);
    }
    text
}

/// A path that two lines of YAML became, of which the first one leads nowhere.
pub(crate) struct JoinedLines<'p> {
    /// The path of the first line.
    pub(crate) lost: &'p str,
    /// The path of the second line, to which both together lead.
    pub(crate) kept: &'p str,
}

/// Whether a path is `lost - kept`, where the `..` of `kept` leave what looks like a folder and is the end of `lost`.
///
/// YAML continues a text with a line that is indented deeper, also if that line begins with `-`.
pub(crate) fn joined_lines(path: &str) -> Option<JoinedLines<'_>> {
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
    Some(JoinedLines { lost, kept })
}

/// Two paths one behind the other, cleaned; empty ones do not count.
pub fn join(left: &str, right: &str) -> String {
    match (left, right) {
        ("", "") => String::new(),
        ("", path) | (path, "") => clean(path),
        (left, right) => clean(&[left, "/", right].concat()),
    }
}

/// The folder and the name of a cleaned absolute path.
pub(crate) fn split(path: &str) -> (&str, &str) {
    match path.rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some((dir, name)) => (dir, name),
        None => (".", path),
    }
}

/// Whether a folder is `other` or below it; both absolute and cleaned.
pub(crate) fn is_within(dir: &str, other: &str) -> bool {
    other == "/"
        || dir == other
        || dir.strip_prefix(other).is_some_and(|rest| rest.starts_with('/'))
}
