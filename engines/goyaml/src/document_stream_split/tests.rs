//! How streams are divided.

use expect_test::{Expect, expect};

use super::documents;
use crate::YamlLimits;

fn check(input: &[u8], expected: &Expect) {
    let shown = match documents(input, &YamlLimits::default()) {
        Ok(documents) => documents
            .iter()
            .map(|document| format!("{}: {}\n", document.line, document.value))
            .collect(),
        Err(error) => format!("line {:?}: {error}\n", error.line()),
    };
    expected.assert_eq(&shown);
}

#[test]
fn documents_are_separated_by_lines_of_three_dashes() {
    check(
        b"a: 1\n---\nb: 2\n--- # comment\n# more\n\nc: 3\n---\t\nd: 4\n",
        &expect![[r#"
            1: {"a":1}
            3: {"b":2}
            7: {"c":3}
            9: {"d":4}
        "#]],
    );
}

#[test]
fn documents_that_hold_nothing_are_left_out_and_a_null_is_not() {
    check(
        b"# only a comment\n---\n---\n\n---\nnull\n---\n'' # text\n---\n",
        &expect![[r#"
            6: null
            8: ""
        "#]],
    );
    check(b"", &expect![""]);
    check(b"---", &expect![""]);
}

#[test]
fn content_may_follow_the_dashes() {
    check(
        b"--- {a: 1}\n--- |\n  text\n--- \"b\"\n",
        &expect![[r#"
            1: {"a":1}
            2: "text\n"
            4: "b"
        "#]],
    );
    check(
        b"a: 1\n---b: 2\n",
        &expect![[r#"
            line Some(2): invalid Yaml document separator: b: 2
        "#]],
    );
}

#[test]
fn a_document_may_have_directives_and_its_own_anchors() {
    check(
        b"%TAG !e! tag:example.com,2000:\n# comment\n---\na: &x !e!t 1\n---\nb: &x 2\nc: *x\n",
        &expect![[r#"
            4: {"a":"1"}
            6: {"b":2,"c":2}
        "#]],
    );
    check(
        b"a: &x 1\n---\nb: *x\n",
        &expect![[r#"
            line Some(3): yaml: unknown anchor 'x' referenced
        "#]],
    );
}

#[test]
fn errors_name_lines_of_the_whole_stream() {
    check(
        b"a: 1\n---\nb: 2\nc: d: e\n",
        &expect![[r#"
            line Some(4): yaml: line 4: mapping values are not allowed in this context
        "#]],
    );
    check(
        b"a: 1\r\n---\r\nb: 2\r\n---\rc:\r  - 1\r - 2",
        &expect![[r#"
            line Some(7): yaml: line 6: did not find expected key
        "#]],
    );
    check(
        "a: 'x\u{85}y'\n---\n\tb".as_bytes(),
        &expect![[r#"
            line Some(4): yaml: line 4: found character that cannot start any token
        "#]],
    );
}

#[test]
fn duplicate_keys_keep_the_last_value() {
    check(
        b"a: 1\na: 2\n",
        &expect![[r#"
            1: {"a":2}
        "#]],
    );
}

#[test]
fn byte_order_marks_and_utf_16_are_read() {
    check(
        b"\xef\xbb\xbf---\na: 1\n---\nb: 2\n",
        &expect![[r#"
            2: {"a":1}
            4: {"b":2}
        "#]],
    );
    let units = "a: é\n---\nb: 😀\n".encode_utf16();
    let mut input = vec![0xff, 0xfe];
    input.extend(units.flat_map(u16::to_le_bytes));
    check(
        &input,
        &expect![[r#"
            1: {"a":"é"}
            3: {"b":"😀"}
        "#]],
    );
}
