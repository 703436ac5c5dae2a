//! Finds `pub` functions and constants of library crates that no other crate names. With `pub(crate)`, the compiler
//! itself would find unused ones.
//!
//! Types are not checked. A public function may take or return a type that no other crate names.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Ident, Span, TokenStream, TokenTree};

use super::words::is_test;
use super::{assert_none, files, read};

/// The folders of the crates that other crates depend on.
fn libraries() -> Vec<String> {
    let folders = ["cli", "crds", "sources", "operator", "engines", "web"];
    let manifests = folders.into_iter().flat_map(|folder| files(folder, "Cargo.toml"));
    manifests.map(|it| it.trim_end_matches("Cargo.toml").to_owned()).collect()
}

/// Collects every identifier of a text, also inside of macros.
pub(super) fn identifiers(tokens: TokenStream, all: &mut BTreeSet<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(name) => {
                all.insert(name.to_string());
            }
            TokenTree::Group(group) => identifiers(group.stream(), all),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// Collects the names of the `pub` functions, constants and statics of a text.
fn public_items(tokens: TokenStream, all: &mut BTreeSet<String>) {
    let public = Ident::new("pub", Span::call_site());
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Ident(word) if *word == public => {
                all.extend(item_name(&tokens[at + 1..]));
            }
            TokenTree::Group(group) => public_items(group.stream(), all),
            TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// The name of the function, constant or static that begins at these tokens. `None` if another item begins there.
fn item_name(tokens: &[TokenTree]) -> Option<String> {
    let words: Vec<String> = tokens
        .iter()
        .take(5)
        .map_while(|token| match token {
            TokenTree::Ident(word) => Some(word.to_string()),
            _ => None,
        })
        .collect();
    let is_keyword = |word: &&String| ["fn", "static"].contains(&word.as_str());
    let is_const = words.first().is_some_and(|word| word == "const");
    match words.iter().position(|word| is_keyword(&word)) {
        Some(at) => words.get(at + 1).cloned(),
        None if is_const => words.get(1).cloned(),
        None => None,
    }
}

/// The `pub` items of libraries that no other crate names.
fn unused(texts: &BTreeMap<String, String>, libraries: &[String]) -> Vec<String> {
    let mut names_of_crate: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let folder_of = |path: &str| {
        // The folder of a crate may be inside of the folder of another crate.
        let above = libraries.iter().filter(|it| path.starts_with(it.as_str()));
        let deepest = above.max_by_key(|it| it.len()).map_or("", String::as_str);
        // Integration tests are crates of their own.
        let is_integration_test = path[deepest.len()..].starts_with("tests/");
        if is_integration_test { "" } else { deepest }
    };
    for (path, text) in texts {
        let tokens: TokenStream = text.parse().unwrap_or_else(|e| panic!("{path}: {e}"));
        identifiers(tokens, names_of_crate.entry(folder_of(path)).or_default());
    }
    let mut found = Vec::new();
    for (path, text) in texts {
        let folder = folder_of(path);
        if folder.is_empty() || is_test(path) {
            continue;
        }
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let Ok(tokens) = code.parse::<TokenStream>() else { continue };
        let mut items = BTreeSet::new();
        public_items(tokens, &mut items);
        let others = names_of_crate.iter().filter(|(crate_folder, _)| **crate_folder != folder);
        let used: BTreeSet<&String> = others.flat_map(|(_, names)| names).collect();
        let unused = items.iter().filter(|name| !used.contains(name));
        found.extend(unused.map(|name| {
            format!("{path}: no other crate names `{name}`: write `pub(crate)`, so that the compiler says whether it is used")
        }));
    }
    found
}

#[test]
fn what_is_public_is_used_by_another_crate() {
    let texts = files("", ".rs").into_iter().map(|path| {
        let text = read(&path);
        (path, text)
    });
    let texts: BTreeMap<String, String> = texts.collect();
    assert_none(&unused(&texts, &libraries()));
}

#[test]
fn a_function_that_no_other_crate_names_is_found() {
    let library = "impl A { pub fn used() {} pub async fn unused(&self) {} }\npub const MAX_UNUSED: u8 = 1;\n\
        pub(crate) fn internal() {}\n#[cfg(test)]\nmod tests { pub fn of_tests() {} }";
    let texts = [("a/src/lib.rs", library), ("src/main.rs", "fn main() { a::A::used() }")];
    let texts = texts.map(|(path, text)| (path.to_owned(), text.to_owned()));
    let found = unused(&texts.into(), &["a/".to_owned()]);
    let names: Vec<&str> = found.iter().filter_map(|it| it.split('`').nth(1)).collect();
    assert_eq!(names, ["MAX_UNUSED", "unused"]);
}

#[test]
fn a_crate_in_the_folder_of_another_one_is_another_one() {
    let texts =
        [("a/b/src/lib.rs", "pub fn used() {}"), ("a/src/lib.rs", "fn call() { b::used() }")];
    let texts = texts.map(|(path, text)| (path.to_owned(), text.to_owned()));
    assert_none(&unused(&texts.clone().into(), &["a/".to_owned(), "a/b/".to_owned()]));
    assert_eq!(unused(&texts.into(), &["a/".to_owned()]).len(), 1);
}
