//! What is put where: comments, indentation, quotes. Whole streams are replayed by
//! `cargo xtask conformance`.

use super::*;
use crate::YamlLimits;
use crate::v3::{AnchorOrCommentKind, parse};

fn layout(indent: usize, compact_sequences: bool) -> YamlLayout {
    YamlLayout { indent, compact_sequences }
}

fn again(text: &str, layout: &YamlLayout) -> String {
    emit_documents(&parse(text.as_bytes(), &YamlLimits::default()).unwrap(), layout).unwrap()
}

#[test]
fn a_text_in_the_writers_own_layout_comes_back_as_it_was() {
    let text = "\
# above the document

# above the key
apiVersion: v1 # behind
data: # behind a key
  # above an entry
  \"on\": 'yes'
  flow: {a: [1, 2], b: ~} # behind the braces
  # below the entries

# below the map
---
- |
  literal # no comment
- >-
  folded

  text
- &x !custom 1
- *x
";
    assert_eq!(again(text, &layout(2, true)), text);
}

#[test]
fn the_layout_decides_how_far_in_lists_are() {
    let text = "a:\n- b:\n  - c\n";
    assert_eq!(again(text, &layout(2, true)), text);
    assert_eq!(again(text, &layout(2, false)), "a:\n  - b:\n      - c\n");
    assert_eq!(again(text, &YamlLayout::default()), "a:\n    - b:\n        - c\n");
    assert_eq!(again(text, &layout(12, false)), again(text, &layout(2, false)));
}

#[test]
fn a_text_that_would_mean_something_else_is_quoted() {
    let plain = |text: &str| emit(&YamlNode::string(text), &YamlLayout::default()).unwrap();
    assert_eq!(plain("true"), "\"true\"\n");
    assert_eq!(plain("1"), "\"1\"\n");
    // Only version 2 reads `on` as a boolean, and no version reads `1:30` as a number in base 60.
    assert_eq!(plain("on"), "on\n");
    assert_eq!(plain("1:30"), "1:30\n");
    assert_eq!(plain("a: b"), "'a: b'\n");
    assert_eq!(plain("a\tb"), "\"a\\tb\"\n");
    assert_eq!(plain("two\nlines"), "|-\n    two\n    lines\n");
    let long = "word ".repeat(60) + "end";
    assert_eq!(plain(&long), long + "\n");
}

#[test]
fn a_tag_is_written_where_the_value_does_not_imply_it() {
    let scalar = |tag, value| emit(&YamlNode::scalar(tag, value), &YamlLayout::default()).unwrap();
    assert_eq!(scalar("!!int", "1"), "1\n");
    assert_eq!(scalar("!!int", "x"), "!!int x\n");
    assert_eq!(scalar("!own", "x"), "!own x\n");
    assert_eq!(scalar("tag:example.com,1:a b", "x"), "!<tag:example.com,1:a%20b> x\n");
    let tagged = YamlNode { style: YamlNodeStyle::TAGGED, ..YamlNode::scalar("!!str", "x") };
    assert_eq!(emit(&tagged, &YamlLayout::default()).unwrap(), "!!str x\n");
    // As Go has it, the tag of a merge key appears.
    assert_eq!(again("a: &a {}\n<<: *a\n", &layout(2, true)), "a: &a {}\n!!merge <<: *a\n");
}

#[test]
fn what_cannot_be_written_is_an_error_in_gos_words() {
    let error = |node: &YamlNode| emit(node, &YamlLayout::default()).unwrap_err().to_string();
    let document = |content: Vec<YamlNode>| YamlNode {
        kind: YamlNodeKind::Document,
        content: content.into(),
        ..YamlNode::default()
    };
    let mut anchored = YamlNode::string("x");
    anchored.notes.set(AnchorOrCommentKind::Anchor, "a b");
    assert_eq!(error(&anchored), "yaml: anchor value must contain alphanumerical characters only");
    let alias = YamlNode { kind: YamlNodeKind::Alias, ..YamlNode::default() };
    assert_eq!(error(&alias), "yaml: alias value must not be empty");
    let wanted = "yaml: expected SCALAR, SEQUENCE-START, MAPPING-START, or ALIAS, but got";
    assert_eq!(error(&document(Vec::new())), format!("{wanted} document end"));
    let nested = YamlNode::sequence(vec![document(vec![YamlNode::string("x")])]);
    assert_eq!(error(&nested), format!("{wanted} document start"));
    let two = document(vec![YamlNode::string("x"), YamlNode::string("y")]);
    assert_eq!(error(&two), "yaml: expected DOCUMENT-END");
}

#[test]
fn indentation_cannot_make_a_text_of_any_length() {
    let mut node = YamlNode::string("line\n".repeat(100));
    for _ in 0..1_000 {
        node = YamlNode::mapping([(YamlNode::string("k"), node)]);
    }
    assert_eq!(write([(&node, &layout(9, false))], 1 << 20), Err(NodeEmitError::Length));
    assert!(write([(&node, &layout(2, false))], 4 << 20).is_ok());
}
