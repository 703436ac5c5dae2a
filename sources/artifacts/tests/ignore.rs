//! What is left out of archives.
//!
//! Here: the root, line ends, limits.
//! Elsewhere: wildcards in one name (inline in `ignore/glob.rs`), the answers of Flux (`cargo xtask conformance`).

use artifacts::ignore::{Error, IgnoreMatcher, MAX_PATTERN_LEN, MAX_PATTERNS};
use tree::RelPath;

fn path(text: &str) -> RelPath {
    RelPath::parse(text).expect("a path inside the tree")
}

fn matcher(files: &[(&str, &str)], spec: Option<&str>) -> Result<IgnoreMatcher, Error> {
    let files: Vec<_> = files.iter().map(|(dir, text)| (path(dir), (*text).to_owned())).collect();
    IgnoreMatcher::new(&files, spec)
}

#[test]
fn the_root_is_never_left_out() {
    let matcher = matcher(&[("", "*\n")], Some("/*\n**\n")).expect("a few patterns");
    assert!(!matcher.is_ignored(&RelPath::root(), true));
    assert!(matcher.is_ignored(&path("a"), true));
}

#[test]
fn a_carriage_return_before_the_end_is_no_part_of_a_pattern() {
    for text in ["abc\r", "abc\r\n", "x\nabc\r\n"] {
        let matcher = matcher(&[("", text)], None).expect("a few patterns");
        assert!(matcher.is_ignored(&path("abc"), false), "{text:?}");
    }
}

#[test]
fn too_much_to_match_is_refused_where_it_stands() {
    let long = format!("a\n# c\n{}\n", "x".repeat(MAX_PATTERN_LEN + 1));
    assert_eq!(
        matcher(&[("deep/down", &long)], None).expect_err("too long").to_string(),
        "line 3 of `deep/down/.sourceignore` is longer than the maximum of 4096 bytes for a pattern"
    );
    let many = "x\n".repeat(MAX_PATTERNS);
    assert!(matcher(&[("", &many)], None).is_ok());
    assert_eq!(
        matcher(&[("", &many)], Some("y")).expect_err("too many").to_string(),
        "`spec.ignore` exceeds the maximum of 20000 ignore patterns"
    );
}

#[test]
fn patterns_made_to_be_slow_are_not() {
    let hostile = ["*a*a*a*a*a*a*a*a*b\n", "**/*a*a*a*a*b/**/*a*a*a*b/**/c\n"].concat().repeat(500);
    let matcher = matcher(&[("", &hostile)], None).expect("a thousand patterns");
    let deep = vec!["a".repeat(200); 20].join("/");
    assert!(!matcher.is_ignored(&path(&deep), false));
}
