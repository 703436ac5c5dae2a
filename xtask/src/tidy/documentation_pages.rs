//! Checks the pages that people read. The paths on them exist, the README has the main commands, and every dependency
//! has its reason.
//!
//! The pages are `README.md`, `ARCHITECTURE.md`, `CONTRIBUTING.md` and `docs`.

use toml::Table;

use super::{assert_none, files, read, settings};
use testbed::root;

/// The pages whose paths are checked, in addition to those in `docs`.
const PAGES: [&str; 3] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"];

/// The folder for cargo's output. A checkout may lack it, so its paths are not checked.
const BUILD_FOLDER: &str = "target";

/// The commands that a reader of the README can run without further knowledge.
const COMMANDS: [&str; 2] = ["cargo xtask demo", "cargo xtask test"];

/// The endings of a text that make it a path even if its first folder does not exist.
const ENDINGS: [&str; 5] = [".rs", ".md", ".toml", ".sh", "/"];

/// The texts in backticks on a page, outside of code blocks.
fn quoted(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut is_block = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_block = !is_block;
        } else if !is_block {
            found.extend(line.split('`').skip(1).step_by(2));
        }
    }
    found
}

/// Whether a text in backticks is a file or folder of the checkout.
fn is_path(text: &str, exists: impl Fn(&str) -> bool) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let Some((first, _)) = text.split_once('/') else { return false };
    let is_ours = exists(first) || ENDINGS.iter().any(|ending| text.ends_with(ending));
    text.chars().all(is_part) && !first.is_empty() && first != BUILD_FOLDER && is_ours
}

/// The paths on a page that do not exist.
fn dead_paths(page: &str, text: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let paths = quoted(text).into_iter().filter(|text| is_path(text, &exists));
    let dead = paths.filter(|path| !exists(path.trim_end_matches('/')));
    dead.map(|path| format!("{page}: `{path}` does not exist")).collect()
}

/// Names of third-party crates in a manifest's `[workspace.dependencies]`.
fn third_parties(manifest: &Table) -> Vec<&str> {
    let entries = manifest["workspace"]["dependencies"].as_table().into_iter().flatten();
    entries.filter(|(_, it)| it.get("path").is_none()).map(|(name, _)| name.as_str()).collect()
}

/// Whether a text has a word that is not a part of a longer word.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    text.split(|c| !is_part(c)).any(|it| it == word)
}

#[test]
fn every_path_on_a_page_exists() {
    let exists = |path: &str| root().join(path).exists();
    let pages = PAGES.iter().map(|&page| page.to_owned()).chain(files("docs", ".md"));
    let dead = pages.flat_map(|page| dead_paths(&page, &read(&page), exists));
    assert_none(&dead.collect::<Vec<_>>());
}

#[test]
fn a_path_that_does_not_exist_is_found() {
    let exists = |path: &str| ["src", "src/cli", "src/main.rs"].contains(&path);
    let check = |text: &str| dead_paths("A.md", text, exists);
    assert_none(&check(
        "`src/cli/`, `src/main.rs` and `cargo test`, `apps/v1`, `windlass.dev/hold`",
    ));
    assert_none(&check("```sh\n`src/none.rs`\n```\n"));
    assert_none(&dead_paths("A.md", "`target/release/windlass`", |path| path == "target"));
    assert_eq!(check("see `src/none`"), ["A.md: `src/none` does not exist"]);
    assert_eq!(check("`gone/lib.rs`, `gone/`").len(), 2);
}

#[test]
fn the_readme_names_the_commands_that_show_and_check_everything() {
    let text = read("README.md");
    let missing = COMMANDS.iter().filter(|command| !text.contains(**command));
    assert_none(
        &missing.map(|it| format!("README.md does not mention `{it}`")).collect::<Vec<_>>(),
    );
}

#[test]
fn every_dependency_has_its_reason_in_the_decisions() {
    let decisions: String = files("docs/decisions", ".md").into_iter().map(read).collect();
    let manifest = settings("Cargo.toml");
    let names = third_parties(&manifest);
    assert!(names.contains(&"kube") && !names.contains(&"crds"), "{names:?}");
    let missing = names.iter().filter(|name| !has_word(&decisions, name));
    assert_none(
        &missing.map(|it| format!("docs/decisions says nothing about {it}")).collect::<Vec<_>>(),
    );
}

#[test]
fn third_parties_are_distinguished_from_our_own() {
    let manifest = "[package]\nx = 1\n[workspace.dependencies]\n# a = b\nours = { path = \"x\" }\n\
                    tokio-util = \"1\"\n\n[lints]\ny = 1\n";
    assert_eq!(third_parties(&toml::from_str(manifest).unwrap()), ["tokio-util"]);
    assert!(has_word("- `tokio-util`: why", "tokio-util"));
    assert!(!has_word("- `tokio-util`: why", "tokio"));
}
