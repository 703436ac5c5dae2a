//! Checks each source file by itself. It says what it is, is not too long, and has a name with a meaning. Its comments name
//! only files that exist.
//!
//! rustfmt and clippy check format, lints and the length of functions.

use super::{assert_none, files, read};

/// How many lines a source file may have.
const MAX_FILE_LINES: usize = 1000;

/// Names of files that do not say what is inside.
const MEANINGLESS: [&str; 6] = ["utils", "common", "helpers", "misc", "types", "manager"];

/// The faults in the name of a file.
fn name_faults(path: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if path.ends_with("/mod.rs") {
        faults.push(format!("{path}: write foo.rs beside foo/, not foo/mod.rs"));
    }
    for part in path.split('/') {
        let name = part.strip_suffix(".rs").unwrap_or(part);
        if MEANINGLESS.contains(&name) {
            faults.push(format!("{path}: `{name}` does not say what is inside"));
        }
    }
    faults
}

/// The faults in the text of a file.
fn text_faults(path: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if !text.starts_with("//! ") {
        faults.push(format!("{path} does not begin with `//!` and what is here"));
    }
    let length = text.lines().count();
    if length > MAX_FILE_LINES {
        faults.push(format!("{path} has {length} lines: split it by nouns"));
    }
    for (number, line) in text.lines().map(str::trim).enumerate() {
        let at = format!("{path}:{}", number + 1);
        let words: Vec<&str> = line.split([' ', '{', ';']).collect();
        let module = words.iter().skip_while(|word| **word != "mod").nth(1);
        let is_declaration =
            matches!(words.first(), Some(&("mod" | "pub" | "pub(crate)" | "pub(super)")));
        if let Some(module) = module.filter(|name| is_declaration && MEANINGLESS.contains(*name)) {
            faults.push(format!("{at}: module `{module}` does not say what is inside"));
        }
        let reason = line.strip_prefix("#[ignore").map(|rest| rest.trim_start_matches([' ', '=']));
        if reason.is_some_and(|reason| !reason.starts_with('"') || reason.starts_with("\"\"")) {
            faults.push(format!("{at}: a test that is ignored says why"));
        }
    }
    faults
}

/// The files that comments name in backticks and that no path in `paths` ends with. A comment may leave out folders.
fn reference_faults(path: &str, text: &str, paths: &[String]) -> Vec<String> {
    let comments = text.lines().map(str::trim).enumerate().filter(|(_, it)| it.starts_with("//"));
    let mut faults = Vec::new();
    for (number, comment) in comments {
        let quoted = comment.split('`').skip(1).step_by(2).filter(|it| it.ends_with(".rs"));
        for name in quoted.filter(|it| !it.contains(' ')).map(|it| it.trim_start_matches("../")) {
            let end = format!("/{name}");
            if !paths.iter().any(|it| it == name || it.ends_with(&end)) {
                faults.push(format!("{path}:{}: there is no file `{name}`", number + 1));
            }
        }
    }
    faults
}

#[test]
fn files_that_comments_name_exist() {
    let paths = files("", ".rs");
    let faults = paths.iter().flat_map(|path| reference_faults(path, &read(path), &paths));
    assert_none(&faults.collect::<Vec<_>>());
    let text =
        "//! See `git/push.rs` and `../push.rs`.\n    // Not `sh.rs`.\nlet text = \"`gone.rs`\";\n";
    let faults = reference_faults("a.rs", text, &["sources/git/push.rs".to_owned()]);
    assert_eq!(faults, ["a.rs:2: there is no file `sh.rs`"]);
}

#[test]
fn file_names_say_what_is_inside() {
    assert_none(&files("", ".rs").iter().flat_map(|path| name_faults(path)).collect::<Vec<_>>());
    assert_eq!(name_faults("src/utils.rs").len(), 1);
    assert_eq!(name_faults("src/common/mod.rs").len(), 2);
    assert_none(&name_faults("operator/cluster/src/untyped_objects.rs"));
}

#[test]
fn files_say_what_they_are_and_are_not_too_long() {
    let all = files("", ".rs");
    assert!(all.len() > 100, "only {} files", all.len());
    assert_none(&all.iter().flat_map(|path| text_faults(path, &read(path))).collect::<Vec<_>>());
}

#[test]
fn bad_files_are_found() {
    let check = |text: &str| text_faults("a.rs", text).len();
    assert_eq!(check("//! What is here.\nmod parser;\n#[ignore = \"needs a cluster\"]\n"), 0);
    assert_eq!(check("use std::fs;\n"), 1);
    assert_eq!(check(&format!("//! Here.\n    #[{}]\n", "ignore")), 1);
    assert_eq!(check("//! Here.\n#[ignore = \"\"]\n"), 1);
    assert_eq!(check("//! Here.\npub(crate) mod helpers {\n"), 1);
    assert_eq!(check("//! Here.\nmod misc;\n"), 1);
    assert_eq!(check(&format!("//! Here.\n{}", "\n".repeat(MAX_FILE_LINES))), 1);
    assert_eq!(check(&format!("//! Here.\n{}", "\n".repeat(MAX_FILE_LINES - 1))), 0);
}
