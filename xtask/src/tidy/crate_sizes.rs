//! Limits the size of crates, and how many crates of the operator are stacked on each other. A developer waits for
//! both when a change is compiled.
//!
//! `source_file` limits the length of files. `layers` says which crate may use which.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::Package;

use super::dependencies::metadata;
use super::layers::uses;
use super::words::is_test;
use super::{assert_none, files, read};

/// How many lines a crate may have without its tests.
const MAX_CRATE_LINES: usize = 15_000;

/// The folder of the engines. An engine has no limit, because it is as large as its format or decision.
const ENGINES: &str = "engines/";

/// A crate that may be larger.
struct LargeCrate {
    folder: &'static str,
    max_lines: usize,
    /// Why the crate is not split.
    reason: &'static str,
}

/// The crates that may be larger. Each has a limit, which changes may only lower.
const LARGE_CRATES: [LargeCrate; 0] = [];

/// The longest chain of crates of the operator in which each uses the next one.
///
/// The chain is `kinds`, `helmfile`, `helm`, `runtime` and `cluster`. `helmfile` uses `helm` for its releases.
const MAX_OPERATOR_FLOORS: usize = 5;

/// The number of lines of a file without its tests.
fn lines_without_tests(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    if lines.iter().any(|line| line.trim() == "#![cfg(test)]") {
        return 0;
    }
    let mut count = 0;
    let mut at = 0;
    while at < lines.len() {
        if lines[at].trim() == "#[cfg(test)]" {
            at = end_of_item(&lines, at);
        } else {
            count += 1;
            at += 1;
        }
    }
    count
}

/// The line after an item whose first line is an attribute.
fn end_of_item(lines: &[&str], attribute: usize) -> usize {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let is_attribute = |line: &&&str| line.trim_start().starts_with("#[");
    let begin = attribute + lines[attribute..].iter().take_while(is_attribute).count();
    let is_end = |line: &str| line.ends_with([';', '}']);
    let Some(first) = lines.get(begin) else { return lines.len() };
    if is_end(first) {
        return begin + 1;
    }
    let is_last = |line: &&str| {
        indent(line) == indent(first)
            && line.trim_start().starts_with(['}', ')', ']'])
            && is_end(line)
    };
    let rest = &lines[begin + 1..];
    begin + 1 + rest.iter().position(is_last).map_or(rest.len(), |last| last + 1)
}

/// The files and folders of modules that a file declares for tests only.
fn test_modules(path: &str, text: &str) -> Vec<String> {
    let folder = match path.rsplit_once('/') {
        Some((folder, "lib.rs" | "main.rs")) => folder,
        _ => path.trim_end_matches(".rs"),
    };
    let mut found = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let declaration = lines.peek().filter(|_| line == "#[cfg(test)]");
        let declaration = declaration.and_then(|next| next.strip_suffix(';'));
        let name = declaration.and_then(|next| next.split_once("mod ")).map(|(_, name)| name);
        if let Some(name) = name {
            found.extend([format!("{folder}/{name}.rs"), format!("{folder}/{name}/")]);
        }
    }
    found
}

/// The number of lines of some files of a crate, without tests.
fn size(texts: &BTreeMap<String, String>) -> usize {
    let of_tests: Vec<String> =
        texts.iter().flat_map(|(path, text)| test_modules(path, text)).collect();
    let is_counted =
        |path: &str| !is_test(path) && !of_tests.iter().any(|it| path.starts_with(it.as_str()));
    let counted = texts.iter().filter(|(path, _)| is_counted(path));
    counted.map(|(_, text)| lines_without_tests(text)).sum()
}

/// The folder of a crate below the root. It is empty for the root crate.
fn folder(package: &Package) -> String {
    let folder = package.manifest_path.parent();
    let folder = folder.and_then(|it| it.strip_prefix(&metadata().workspace_root).ok());
    folder.map(|it| it.as_str().to_owned()).unwrap_or_default()
}

/// The sizes of all crates of the workspace, by their folders.
fn sizes() -> BTreeMap<String, usize> {
    let members = metadata().workspace_packages();
    let sizes = members.into_iter().map(|package| {
        let folder = folder(package);
        let source = if folder.is_empty() { "src".to_owned() } else { format!("{folder}/src") };
        let texts = files(&source, ".rs").into_iter().map(|path| {
            let text = read(&path);
            (path, text)
        });
        let texts: BTreeMap<String, String> = texts.collect();
        (folder, size(&texts))
    });
    sizes.collect()
}

/// The crates that are too large, and exceptions that no crate needs.
fn size_faults(sizes: &BTreeMap<String, usize>, exceptions: &[LargeCrate]) -> Vec<String> {
    let mut faults = Vec::new();
    for (folder, lines) in sizes.iter().filter(|(folder, _)| !folder.starts_with(ENGINES)) {
        let exception = exceptions.iter().find(|it| it.folder == folder);
        let most = exception.map_or(MAX_CRATE_LINES, |it| it.max_lines);
        if *lines > most {
            faults.push(format!(
                "{folder} has {lines} lines without tests, of at most {most}: make a part of it a crate"
            ));
        }
    }
    for LargeCrate { folder, reason, .. } in exceptions {
        if reason.is_empty() {
            faults.push(format!("{folder} is an exception without a reason"));
        }
        if sizes.get(*folder).is_none_or(|lines| *lines <= MAX_CRATE_LINES) {
            faults.push(format!(
                "{folder} is an exception and has at most {MAX_CRATE_LINES} lines: remove it from the list"
            ));
        }
    }
    faults
}

/// How many crates of the operator are stacked on each other, from this crate down.
fn floors(uses: &BTreeMap<String, BTreeSet<String>>, name: &str) -> usize {
    let below = uses.get(name).into_iter().flatten().filter(|it| it.starts_with("operator/"));
    1 + below.map(|it| floors(uses, it)).max().unwrap_or(0)
}

#[test]
fn no_crate_is_too_large() {
    let sizes = sizes();
    assert!(sizes.len() > 40 && sizes["cli"] > 5_000, "{sizes:?}");
    assert_none(&size_faults(&sizes, &LARGE_CRATES));
}

#[test]
fn the_operator_has_few_floors() {
    let uses = uses();
    let floors = |name: &String| floors(&uses, name);
    let most = uses.keys().filter(|it| it.starts_with("operator/")).map(floors).max();
    assert_eq!(
        most,
        Some(MAX_OPERATOR_FLOORS),
        "a chain of crates of the operator became longer, or the bound can go down: {uses:?}"
    );
}

#[test]
fn floors_are_counted_along_the_longest_chain_of_the_operator() {
    let edges =
        [("operator/a", "operator/b"), ("operator/b", "operator/c"), ("operator/a", "sources")];
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (from, to) in edges {
        uses.entry(from.to_owned()).or_default().insert(to.to_owned());
    }
    assert_eq!((floors(&uses, "operator/a"), floors(&uses, "operator/c")), (3, 1));
}

#[test]
fn lines_of_tests_are_not_counted() {
    let text = "//! Here.\n\nmod a;\n#[cfg(test)]\nmod tests;\n\nfn b() {}\n\n#[cfg(test)]\nmod inline {\n    fn c() {\n    }\n}\n";
    assert_eq!(lines_without_tests(text), 6);
    let items = "#[cfg(test)]\n#[derive(Debug)]\nstruct A {\n    b: u8,\n}\n#[cfg(test)]\npub(super) fn long(\n    \
                 a: u8,\n) -> u8 {\n    a\n}\n#[cfg(test)]\nconst A: [u8; 1] = [\n    1,\n];\nfn counted() {}\n";
    assert_eq!(lines_without_tests(items), 1);
    assert_eq!(lines_without_tests("//! Here.\n#![cfg(test)]\nfn a() {}\n"), 0);
    assert_eq!(lines_without_tests("fn a() {}\n#[cfg(test)]\n"), 1);
}

#[test]
fn files_of_tests_are_not_counted() {
    let texts = [
        ("a/src/lib.rs", "mod b;\n#[cfg(test)]\nmod page;\n"),
        ("a/src/b.rs", "#[cfg(test)]\npub(crate) mod samples;\nfn b() {}\n"),
        ("a/src/b/samples.rs", "fn c() {}\n"),
        ("a/src/b/samples/d.rs", "fn d() {}\n"),
        ("a/src/b/tests.rs", "fn e() {}\n"),
        ("a/src/page.rs", "fn f() {}\n"),
        ("a/src/pages.rs", "fn g() {}\n"),
    ];
    let texts = texts.map(|(path, text)| (path.to_owned(), text.to_owned()));
    assert_eq!(size(&texts.into()), 3);
}

#[test]
fn a_crate_that_is_too_large_and_an_exception_that_is_none_are_found() {
    let sizes = |lines: usize| BTreeMap::from([("a".to_owned(), lines)]);
    let exception =
        |max_lines: usize| [LargeCrate { folder: "a", max_lines, reason: "one format" }];
    assert_none(&size_faults(&sizes(15_000), &[]));
    assert_eq!(size_faults(&sizes(15_001), &[]).len(), 1);
    assert_none(&size_faults(&sizes(15_001), &exception(16_000)));
    assert_eq!(size_faults(&sizes(16_001), &exception(16_000)).len(), 1);
    assert_eq!(size_faults(&sizes(15_000), &exception(16_000)).len(), 1);
    assert_none(&size_faults(&BTreeMap::from([("engines/a".to_owned(), 20_000)]), &[]));
}
