//! Fields that a spec names, found and made.

use std::convert::Infallible;

use goyaml::YamlLimits;
use goyaml::v3::{self, YamlNode, YamlNodeKind};

use super::{CreatedNodeType, FieldSpec, walk};
use crate::field;

fn parse(text: &str) -> YamlNode {
    v3::parse(text.as_bytes(), &YamlLimits::default()).expect("valid YAML").swap_remove(0)
}

fn set(text: &str, path: &str, create: bool) -> String {
    let mut object = parse(text);
    let spec = FieldSpec { path: path.to_owned().into(), create, ..FieldSpec::default() };
    let created = Some(CreatedNodeType { kind: YamlNodeKind::Scalar, tag: "!!str" });
    let walked = walk(&mut object, &spec, created, |node| {
        node.value = "new".to_owned();
        node.tag = "!!str".into();
        Ok::<(), Infallible>(())
    });
    match walked {
        Ok(_) => field::text(&object),
        Err(error) => error.to_string(),
    }
}

#[test]
fn lists_are_descended_without_a_part_of_the_path() {
    assert_eq!(
        set("a:\n- b: 1\n- - b: 2\n- c: 3\n", "a/b", false),
        "a:\n- b: new\n- - b: new\n- c: 3\n"
    );
}

#[test]
fn only_a_spec_that_creates_makes_what_is_missing() {
    assert_eq!(set("a: {}\n", "a/b/c", false), "a: {}\n");
    assert_eq!(set("a: {}\n", "a/b/c", true), "a: {b: {c: new}}\n");
    assert_eq!(set("a: {}\n", "a/b[]/c", true), "a: {}\n");
}

#[test]
fn an_error_in_a_list_says_what_was_left_of_the_path() {
    assert_eq!(
        set("a:\n- b: 1\n", "a/b/c", false),
        "visit traversal on path: [b c]: expected sequence or mapping node"
    );
}

#[test]
fn deep_lists_cost_no_stack() {
    let deep = format!("a: {}{}", "[".repeat(5000), "]".repeat(5000));
    assert!(set(&deep, "a/b", true).starts_with("a: ["));
}
