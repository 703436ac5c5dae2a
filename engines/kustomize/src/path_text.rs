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
