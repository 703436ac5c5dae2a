//! Names of files and charts, treated as by Go's `path` and `%q`.

use golang::strconv::{QuotingStyle, quote};

/// A text as Go's `%q` prints it.
pub(crate) fn quoted(text: &str) -> String {
    String::from_utf8_lossy(&quote(text.as_bytes(), QuotingStyle::Printable)).into_owned()
}

/// The last part of a path, as Go's `path.Base` finds it.
pub(crate) fn base(path: &str) -> &str {
    match path.trim_end_matches('/').rsplit('/').next() {
        _ if path.is_empty() => ".",
        None | Some("") => "/",
        Some(last) => last,
    }
}

/// The extension of a name, from its last dot on, as Go's `path.Ext` finds it.
pub(crate) fn extension(path: &str) -> &str {
    let last = path.rsplit('/').next().unwrap_or_default();
    last.rfind('.').map_or("", |dot| &last[dot..])
}

#[cfg(test)]
mod tests {
    use super::{base, extension};

    #[test]
    fn parts_of_names_are_those_of_go() {
        assert_eq!([base(""), base("///"), base("a/b/"), base("a")], [".", "/", "b", "a"]);
        assert_eq!(
            [extension("a.b/c"), extension(".tgz"), extension("x.tar.gz")],
            ["", ".tgz", ".gz"]
        );
    }
}
