//! Checks that `windlass why` knows every annotation of windlass. It can then name the annotations of an object that
//! windlass does not know.
//!
//! The check compares the command's list with the constants of the program.

use std::collections::BTreeSet;

use super::{assert_none, files, read};

/// The file with the list.
const ANNOTATION_LIST: &str = "cli/answers/src/why/unknown_annotations.rs";

/// The beginning of every annotation of windlass.
const ANNOTATION_PREFIX: &str = "windlass.dev/";

/// The folders of the program.
const PROGRAM_FOLDERS: [&str; 6] = ["cli", "crds", "engines", "operator", "sources", "web"];

/// The annotations that the constants of a source file name, without the prefix. Names with a capital letter are
/// types of conditions, and are left out.
fn constants(source: &str) -> Vec<String> {
    let is_of_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
    };
    let quoted = format!("\"{ANNOTATION_PREFIX}");
    let places = source.match_indices(&quoted);
    let constants = places.filter(|(at, _)| source[..*at].trim_end().ends_with("&str ="));
    let names = constants.filter_map(|(at, _)| source[at + quoted.len()..].split('"').next());
    names.filter(|name| is_of_name(name)).map(str::to_owned).collect()
}

/// The names of the list.
fn listed(source: &str) -> BTreeSet<String> {
    let (_, list) = source.split_once("const KNOWN_ANNOTATIONS").unwrap();
    let (list, _) = list.split_once("];").unwrap();
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Annotations that are only in the program or only in the list.
fn faults(sources: &[String], listed: &BTreeSet<String>) -> Vec<String> {
    let used: BTreeSet<String> = sources.iter().flat_map(|it| constants(it)).collect();
    let unlisted = used.difference(listed).map(|name| format!("{ANNOTATION_LIST}: add `{name}`"));
    let unused = listed.difference(&used);
    let unused = unused.map(|name| {
        format!("{ANNOTATION_LIST}: no constant is `{ANNOTATION_PREFIX}{name}`; remove it")
    });
    unlisted.chain(unused).collect()
}

#[test]
fn every_annotation_of_the_program_is_known_by_name() {
    let sources: Vec<String> =
        PROGRAM_FOLDERS.iter().flat_map(|folder| files(folder, ".rs")).map(read).collect();
    assert_none(&faults(&sources, &listed(&read(ANNOTATION_LIST))));
}

#[test]
fn a_name_that_is_missing_and_one_that_is_unused_are_found() {
    let source = |name: &str| {
        format!(
            "const A: &str =\n    \"{ANNOTATION_PREFIX}{name}\";\nread(\"{ANNOTATION_PREFIX}x\")"
        )
    };
    let list =
        listed("const KNOWN_ANNOTATIONS: [&str; 2] = [\n    \"a-b\",\n    \"c\",\n];\n\"d\"");
    assert_none(&faults(&[source("a-b"), source("c"), source("Hold")], &list));
    assert_eq!(faults(&[source("a-b"), source("e")], &list).len(), 2);
}
