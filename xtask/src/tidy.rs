//! Tests of the project's rules that no compiler checks. `cargo test -p xtask` runs them.
//!
//! This module finds files, and fails with a list of faults. The submodules have the rules:
//! * which crate may depend on which, and what may enter the tree (`dependencies`, `layers`, `licence`,
//!   `third_party_crate_features`);
//! * sizes, names and words of crates and files (`crate_sizes`, `source_file`, `names`, `words`,
//!   `editor_and_merge_leftovers`);
//! * code that no lint checks (`dead_code`, `ungated_deletions`, `kind_field_tests`, `annotations_known_to_why`, `markup`),
//!   lints (`lints`) and pages (`documentation_pages`).
//!
//! `tools/crd-manifests` checks the CRDs, and `tools/conformance` the recorded answers. Every check is a function
//! over text or names that returns faults, so a bad example can show that it finds some.
#![cfg(test)]

mod annotations_known_to_why;
mod crate_sizes;
mod dead_code;
mod dependencies;
mod documentation_pages;
mod editor_and_merge_leftovers;
mod kind_field_tests;
mod layers;
mod licence;
mod lints;
mod markup;
mod names;
mod source_file;
mod third_party_crate_features;
mod ungated_deletions;
mod words;

use std::path::{Path, PathBuf};

use testbed::root;

/// Folders without files of the project.
const FOREIGN: [&str; 2] = ["target", "node_modules"];

/// Fails if there are faults, and prints each on a line.
fn assert_none(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

/// The files below a folder of the checkout whose names end in `ending`. The paths are relative to the root, and
/// sorted.
fn files(folder: &str, ending: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name.starts_with('.') || FOREIGN.contains(&name.as_str()) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(ending) {
                found.push(relative(&path));
            }
        }
    }
    found.sort();
    found
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().to_string_lossy().into_owned()
}

/// Reads the text of a file of the checkout.
fn read(path: impl Into<PathBuf>) -> String {
    let path = path.into();
    std::fs::read_to_string(root().join(&path))
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Reads a TOML file of the checkout.
fn settings(path: impl Into<PathBuf>) -> toml::Table {
    toml::from_str(&read(path)).unwrap()
}

#[test]
fn files_are_found_by_their_ending_and_build_output_is_not() {
    let found = files("", ".rs");
    assert!(found.contains(&"xtask/src/tidy.rs".to_owned()));
    assert!(!found.iter().any(|path| path.starts_with("target/")));
    assert_eq!(files("xtask/src/tidy", "tidy.rs"), Vec::<String>::new());
}
