//! Strategic merges; a program that runs kyaml beside this has compared many more.

use goyaml::YamlLimits;
use goyaml::v3::{self, YamlNode};

use super::{MergeOutcome, strategic};
use crate::budget::BuildBudget;
use crate::field;
use crate::openapi_schema::OpenApiSchemas;

fn parse(text: &str) -> YamlNode {
    v3::parse(text.as_bytes(), &YamlLimits::default()).expect("valid YAML").swap_remove(0)
}

fn merged(target: &str, patch: &str) -> String {
    let mut target = parse(target);
    match strategic(&parse(patch), &mut target, &OpenApiSchemas::builtin(), &BuildBudget::default())
    {
        Ok(MergeOutcome::Merged) => field::text(&target),
        Ok(MergeOutcome::Deleted) => "deleted".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn maps_are_merged_and_null_removes() {
    assert_eq!(
        merged("a: {b: 1, c: 2}\nd: x\n", "a: {c: null, e: 3}\nd: ~\n"),
        "a: {b: 1, e: 3}\n"
    );
    assert_eq!(merged("a: null\nb:\n", "c: 1\n"), "a: null\nc: 1\n");
}

#[test]
fn directives_delete_and_replace() {
    assert_eq!(merged("a: {b: 1}\nc: 1\n", "a: {$patch: delete}\n"), "c: 1\n");
    assert_eq!(merged("a: {b: 1}\n", "a: {$patch: replace, c: 2}\n"), "a: {c: 2}\n");
    assert_eq!(merged("a: 1\n", "$patch: delete\n"), "deleted");
    assert_eq!(merged("a: 1\n", "$patch: replace\nb: 1\n"), "a: 1\n");
    assert_eq!(merged("a: {b: 1}\n", "a: {$patch: what}\n"), "unknown patch strategy 'what'");
}

#[test]
fn items_of_the_patch_come_first() {
    let head = "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n";
    let target = format!("{head}  - name: a\n    image: x\n  - name: b\n    image: q\n");
    let patch = format!("{head}  - name: c\n    image: z\n  - name: b\n    image: new\n");
    assert_eq!(
        merged(&target, &patch),
        format!(
            "{head}  - name: c\n    image: z\n  - name: b\n    image: new\n  - name: a\n    image: x\n"
        )
    );
    let patch = format!("{head}  - name: a\n    $patch: delete\n");
    assert_eq!(merged(&target, &patch), format!("{head}  - name: b\n    image: q\n"));
}

#[test]
fn lists_of_unknown_kinds_are_replaced() {
    assert_eq!(merged("a: [{name: x}]\n", "a: [{name: y}]\n"), "a: [{name: y}]\n");
}

#[test]
fn other_kinds_in_the_same_place_are_refused() {
    assert_eq!(
        merged("a: {b: 1}\n", "a: [1]\n"),
        "wrong node kind: expected MappingNode but got SequenceNode: node contents:\n[1]\n"
    );
}

#[test]
fn deep_trees_cost_no_stack() {
    let deep = format!("a: {}1{}\n", "{b: ".repeat(5000), "}".repeat(5000));
    assert!(merged(&deep, &deep).starts_with("a: {b: {b: "));
}
