//! Paths as text, as in Go's `path`, and in `path/filepath` on Unix. No function accesses a disk.

/// Go's `path.Clean`: the shortest equivalent path. It is `.` if no part remains.
#[must_use]
pub fn clean(path: &str) -> String {
    // Only whole parts of the path are removed, so it stays UTF-8.
    String::from_utf8_lossy(&clean_bytes(path.as_bytes())).into_owned()
}

/// Like [`clean`], for a path that need not be UTF-8.
#[must_use]
pub fn clean_bytes(path: &[u8]) -> Vec<u8> {
    let is_absolute = path.starts_with(b"/");
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." if parts.last().is_some_and(|last| *last != b"..") => drop(parts.pop()),
            b".." if is_absolute => {}
            part => parts.push(part),
        }
    }
    let joined = parts.join(&b'/');
    match (is_absolute, joined.is_empty()) {
        (true, _) => [b"/", &*joined].concat(),
        (false, true) => b".".to_vec(),
        (false, false) => joined,
    }
}

/// Go's `path.Join`: joins and cleans two paths. An empty path is ignored. If both are empty, so is the result.
#[must_use]
pub fn join(left: &str, right: &str) -> String {
    match (left, right) {
        ("", "") => String::new(),
        ("", path) | (path, "") => clean(path),
        (left, right) => clean(&[left, "/", right].concat()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cleaned_and_joined_as_go_does() {
        for (path, cleaned) in [
            ("", "."),
            ("/", "/"),
            ("a//b/./c/", "a/b/c"),
            ("a/../..", ".."),
            ("../../a", "../../a"),
            ("/../a/b/..", "/a"),
            ("a/..", "."),
            ("./", "."),
            ("../a/..", ".."),
            ("a//b/./c/..", "a/b"),
            ("/..", "/"),
            ("/a/../../b", "/b"),
            ("/../a", "/a"),
            ("ä/../ö", "ö"),
        ] {
            assert_eq!(clean(path), cleaned, "{path}");
        }
        assert_eq!(clean_bytes(b"\xff/./\xfe"), b"\xff/\xfe");
        let joined = [join("", ""), join("a", ""), join("", "b/"), join("a/b", "../c")];
        assert_eq!(joined, ["", "a", "b", "a/c"]);
    }
}
