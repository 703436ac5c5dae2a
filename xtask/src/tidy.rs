//! The rules of the project that no compiler checks, as tests: `cargo test -p xtask`.
//!
//! Here: finding files, and failing with a list of faults.
//! Elsewhere: who may depend on whom and what may enter the tree (`dependencies`, `layers`, `licence`), how often it is
//! compiled (`features`), sizes of crates (`crate_sizes`), source files (`source_file`), leftovers of tools (`leftovers`),
//! settings of the tools (`lints`), markup of web pages (`markup`), pages (`pages`), public items that nothing uses (`dead_code`), deletions without a gate
//! (`removals`), tests of every kind (`kinds`), names of annotations (`annotations`), words (`words`), names (`names`), CRDs
//! (`tools/crd-manifests`), recorded answers (`tools/conformance`).
//!
//! Every check is a function over text or names that returns faults, so a bad example can show that it finds some.
#![cfg(test)]

mod annotations;
mod crate_sizes;
mod dead_code;
mod dependencies;
mod features;
mod kinds;
mod layers;
mod leftovers;
mod licence;
mod lints;
mod markup;
mod names;
mod pages;
mod removals;
mod source_file;
mod words;

use std::path::{Path, PathBuf};

use testbed::root;

/// Folders that hold nothing of ours.
const FOREIGN: [&str; 2] = ["target", "node_modules"];

/// Fails with everything that was found, a line each.
fn assert_none(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

/// Files below a folder of the checkout whose name ends so, as paths relative to the root, sorted.
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

/// The text of a file of the checkout.
fn read(path: impl Into<PathBuf>) -> String {
    let path = path.into();
    std::fs::read_to_string(root().join(&path))
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// What a TOML file of the checkout sets.
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
