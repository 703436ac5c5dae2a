//! Paths of replacements, and what they lead to.

use goyaml::YamlLimits;
use goyaml::v3::{self, YamlNode, YamlNodeKind};

use super::{PathMatch, at, lookup, matches, split, split_brackets};
use crate::budget::BuildBudget;

fn parse(text: &str) -> YamlNode {
    v3::parse(text.as_bytes(), &YamlLimits::default()).expect("valid YAML").swap_remove(0)
}

#[test]
fn paths_are_split_with_escapes_and_brackets() {
    assert_eq!(split(r"/a/b\/c/d[]", '/'), ["a", "b/c", "d[]"]);
    assert_eq!(split("", '/'), [""]);
    assert_eq!(split_brackets("a.[b.c/d].[name=x.y].0", '.'), ["a", "b.c/d", "[name=x.y]", "0"]);
}

#[test]
fn a_lookup_finds_items_by_number_last_and_value() {
    let node = parse("a:\n- name: x\n  b: 1\n- name: y\n  b: 2\n");
    let value = |path: &[&str]| lookup(&node, path).map(|found| found.map(|it| it.value.clone()));
    assert_eq!(value(&["a", "[name=y]", "b"]), Ok(Some("2".to_owned())));
    assert_eq!(value(&["a", "0", "b"]), Ok(Some("1".to_owned())));
    assert_eq!(value(&["a", "-", "name"]), Ok(Some("y".to_owned())));
    assert_eq!(value(&["a", "7", "name"]), Ok(None));
}

#[test]
fn an_expression_in_a_path_is_not_anchored() {
    let mut node = parse("a:\n- name: c1\n- name: c2\n- name: d\n");
    let found = matches(&mut node, &["a", "[name=c]", "name"], None, &BuildBudget::default())
        .expect("it leads somewhere");
    let strings: Vec<_> = found
        .iter()
        .map(|found| match found {
            PathMatch::Node(place) => at(&node, place).map(|it| it.value.as_str()),
            PathMatch::InText(_) => None,
        })
        .collect();
    assert_eq!(strings, [Some("c1"), Some("c2")]);
}

#[test]
fn what_is_missing_is_created_for_the_next_part() {
    let mut node = parse("{}\n");
    matches(
        &mut node,
        &["a", "[name=x]", "b"],
        Some(YamlNodeKind::Scalar),
        &BuildBudget::default(),
    )
    .expect("it can be created");
    let root = lookup(&node, &["a", "[name=x]"]).expect("a path").expect("an item");
    assert_eq!(root.content.len(), 4);
}
