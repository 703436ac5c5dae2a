//! Rules for every source file: it says what it is, is not too long, has a name that means something.
//!
//! Here: rules about single files. Elsewhere: format, lints and function lengths (rustfmt, clippy).

use super::{assert_none, files, read};

/// The longest that a file may be.
const MAX_FILE_LINES: usize = 1000;

/// Names that say nothing about what is inside.
const MEANINGLESS: [&str; 6] = ["utils", "common", "helpers", "misc", "types", "manager"];

/// What is wrong with a file whatever is in it.
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

/// What is wrong with the text of a file.
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

/// The crate that alone may name kube's client.
const CLIENT_CRATE: &str = "operator/cluster/";

/// Lines that name kube's client.
fn client_faults(path: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let names_it = code.split(|c| !is_part(c)).any(|word| word == "Client");
        if names_it || code.contains("kube::client") {
            faults.push(format!("{path}:{}: only {CLIENT_CRATE} names kube's client", number + 1));
        }
    }
    faults
}

#[test]
fn file_names_say_what_is_inside() {
    assert_none(&files("", ".rs").iter().flat_map(|path| name_faults(path)).collect::<Vec<_>>());
    assert_eq!(name_faults("src/utils.rs").len(), 1);
    assert_eq!(name_faults("src/common/mod.rs").len(), 2);
    assert_none(&name_faults("operator/cluster/src/objects.rs"));
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

#[test]
fn only_the_cluster_edge_names_the_client_of_kube() {
    let all: Vec<String> =
        ["src", "operator"].iter().flat_map(|folder| files(folder, ".rs")).collect();
    let (inside, outside): (Vec<_>, Vec<_>) =
        all.iter().partition(|path| path.starts_with(CLIENT_CRATE));
    let found: Vec<String> =
        inside.iter().flat_map(|path| client_faults(path, &read(*path))).collect();
    assert!(!found.is_empty(), "{CLIENT_CRATE} holds the client, so the check must find it there");
    let faults: Vec<String> =
        outside.iter().flat_map(|path| client_faults(path, &read(*path))).collect();
    assert_none(&faults);
}

#[test]
fn a_client_outside_the_cluster_edge_is_found() {
    for bad in ["use kube::Client;", "use kube::{Api, Client};", "let c = Client::try_default();"] {
        assert_eq!(client_faults("src/web.rs", bad).len(), 1, "{bad}");
    }
    for good in ["// a kube::Client lives elsewhere", "/// [`kube::Client`]", "let ClientName = 1;"]
    {
        assert_none(&client_faults("src/web.rs", good));
    }
}
