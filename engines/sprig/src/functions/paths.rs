//! The template functions for paths with slashes, like Go's `path` and `path/filepath` on Linux.

use golang::GoRuntimeValue;
use golang::path::clean_bytes;

use crate::arguments::{SprigResult, text};
use crate::function_table::{SprigFunctionEntry, plain};

pub(crate) const ENTRIES: &[SprigFunctionEntry] = &[
    plain("base", "func(string) string", base),
    plain("clean", "func(string) string", clean),
    plain("dir", "func(string) string", dir),
    plain("ext", "func(string) string", ext),
    plain("isAbs", "func(string) bool", is_abs),
    plain("osBase", "func(string) string", base),
    plain("osClean", "func(string) string", clean),
    plain("osDir", "func(string) string", dir),
    plain("osExt", "func(string) string", ext),
    plain("osIsAbs", "func(string) bool", is_abs),
];

/// The function `base` of templates: the last element of a path.
fn base(args: &[GoRuntimeValue]) -> SprigResult {
    let path = text(args, 0);
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let last = path[..end].rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    Ok(GoRuntimeValue::string(match (path.is_empty(), end) {
        (true, _) => b".",
        (false, 0) => b"/",
        _ => last,
    }))
}

/// Cleans a path: removes `.`, and resolves `..` where possible.
fn clean(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::string(clean_bytes(text(args, 0))))
}

/// All but the last element.
fn dir(args: &[GoRuntimeValue]) -> SprigResult {
    let path = text(args, 0);
    let end = path.iter().rposition(|byte| *byte == b'/').map_or(0, |last| last + 1);
    Ok(GoRuntimeValue::string(clean_bytes(&path[..end])))
}

/// The extension of a path: the last point of the last element, and the text after it.
fn ext(args: &[GoRuntimeValue]) -> SprigResult {
    let path = text(args, 0);
    let last = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let point = last.iter().rposition(|byte| *byte == b'.').unwrap_or(last.len());
    Ok(GoRuntimeValue::string(&last[point..]))
}

/// Whether a path begins with a slash.
fn is_abs(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::Bool(text(args, 0).starts_with(b"/")))
}

#[cfg(test)]
mod tests {
    use crate::testing::check;

    #[test]
    fn paths_have_slashes() {
        check(&[
            (r#"{{ base "/a/b.c" }} {{ base "" }} {{ base "//" }} {{ osBase "a/" }}"#, "b.c . / a"),
            (
                r#"{{ dir "/a/b.c" }} {{ dir "a" }} {{ dir "/" }} {{ osDir "a//b/../c/d" }}"#,
                "/a . / a/c",
            ),
            (
                r#"{{ clean "/../a/./b/.." }} {{ clean "../../a" }} {{ osClean "" }}"#,
                "/a ../../a .",
            ),
            (r#"{{ ext "a.b.c" }}|{{ ext "a.b/c" }}|{{ osExt ".x" }}"#, ".c||.x"),
            (r#"{{ isAbs "/a" }} {{ osIsAbs "a" }}"#, "true false"),
        ]);
    }
}
