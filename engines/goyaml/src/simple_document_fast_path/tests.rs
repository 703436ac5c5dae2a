//! What is read plainly is what the whole reader reads.

use proptest::prelude::*;
use serde_json::Value;

use super::{JsonBuilder, read};
use crate::{DecodeTarget, first_document};

/// Whether a text is plain; then both readers have to give the same.
fn is_plain(text: &str) -> bool {
    let whole = || first_document(text.as_bytes(), false, &DecodeTarget::Any);
    let chosen = read::<JsonBuilder>(text.as_bytes(), wants);
    let Some(value) = read::<JsonBuilder>(text.as_bytes(), |_, _| true) else {
        assert_eq!(chosen, None, "{text:?}");
        return false;
    };
    assert_eq!(Ok(&value), whole().as_ref(), "{text:?}");
    let chosen = chosen.map(|chosen| without_unwanted(chosen, 1));
    assert_eq!(chosen, Some(without_unwanted(value, 1)), "{text:?}");
    true
}

/// Wants two of the keys.
fn wants(depth: usize, key: &str) -> bool {
    key == "a" || depth > 1 && key == "c"
}

/// A value without the entries that are not wanted.
fn without_unwanted(value: Value, depth: usize) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.into_iter().filter(|(key, _)| wants(depth, key));
            kept.map(|(key, value)| (key, without_unwanted(value, depth + 1))).collect()
        }
        Value::Array(items) => {
            items.into_iter().map(|item| without_unwanted(item, depth + 1)).collect()
        }
        other => other,
    }
}

#[test]
fn what_people_write_is_plain() {
    for text in [
        "a: 1\n",
        "a: b # c\nd:\n  - 1.5\n  -  e: f\n     g:\n     - h\n  -\n  - - i\n    - j\n",
        "# a\n\na: |\n  b\n\n   c\n  d # e\nf: >-\n\n  g\n  h\n   i\n\n  j\n\n# k\nl: |+\n  m\n\nn:\n",
        "a: [b, 1, \"c, d\", ['e''f', {}], [ ]] # g\nh: {i: 1, \"j\": yes , k: {l: m n}}\n",
        "a: \"b \\\"c\\\" \\\\ \\n\" # d\n\"e f\": 'g: h'\n'i': 'it''s'  # j\n",
        "yes: no\n1: 2\n0x10: 1_000\n2020-01-02: 2020-01-02\na: ~\nb: null\nc: -1\nd: -a\ne: 1e3\nf: 1e400\n",
        "a: x:y\nb: http://c/d?e=f#g\nc: a\"b'c\nd: <e>\nf: .g\nh: $(i)\nj: (k)\nl: é ü\nm: 100%\n",
        "a: 1\na: 2\nb: {c: 1, c: 2}\n1: x\n'1': y\n",
        "a: 18446744073709551615\nb: 1.0\nc: -0.0\nd: 123456789012345678901\ne: 0.1\n",
        "a:\n  b\nc:\n  'd'\ne:\n  [f]\ng:\n  |\n  h\ni:\n- |\n  j\n-\n  k\n",
        "a:\n  b:\n    c:\nd: |",
        "# a\n\n--- \nb: c\n",
        "a: |\n\n  b",
        "a: |-\n  b\n     \n  c\n",
    ] {
        assert!(is_plain(text), "{text:?}");
    }
}

#[test]
fn what_only_the_whole_reader_understands_is_not_plain() {
    for text in [
        "",
        "\n",
        "a",
        "a\n",
        "- a\n",
        "{}",
        " a: b\n",
        "---\n",
        "--- a: b\n",
        "---\n---\na: b\n",
        "a: b\n---\nc: d\n",
        "a: b\n...\n",
        "%YAML 1.1\n---\na: b\n",
        "a: b\n  c\n",
        "a: 'b\n  c'\n",
        "a: &b c\n",
        "a: *b\n",
        "a: !!str b\n",
        "a: b: c\n",
        "a: - b\n",
        "a: -\n",
        "a: ? b\n",
        "? a\n",
        "<<: a\n",
        "null: a\n",
        "1.5: a\n",
        "a: .inf\n",
        "a: .nan\n",
        "a:\tb\n",
        "a: b\r\n",
        "a: \u{85}\n",
        "a: \u{feff}b\n",
        "a: \"\\x41\"\n",
        "a: 'b' c\n",
        "a: 'b'#c\n",
        "a: |2\n   b\n",
        "a: | # b\n  c\n",
        "a: |\n   \n  b\n",
        "a: |\n   b\n  c\n",
        "a: |\n  b\n ",
        "a: [b\n",
        "a: [b: c]\n",
        "a: [b,]\n",
        "a: [b] c\n",
        "a: {b}\n",
        "a: {b:c}\n",
        "a: [b ? c]\n",
        "a: @b\n",
        "a:\nb\n",
        "a:\n    b: c\n  d: e\n",
        "a:\n  - b\n c: d\n",
        "a:\n  - b\n  c: d\n",
        "a:\n  b: c\n  - d\n",
    ] {
        assert!(!is_plain(text), "{text:?}");
    }
    let deep = |levels: usize| {
        let line = |level: usize| format!("{}a:\n", " ".repeat(level));
        (0..levels).map(line).collect::<String>()
    };
    assert!(is_plain(&deep(100)) && !is_plain(&deep(101)), "deep strings are left to who counts");
    assert!(!is_plain(&format!("{}: b\n", "a".repeat(257))));
    assert!(!is_plain(&format!("a: {}{}", "[".repeat(17), "]".repeat(17))));
}

/// Lines that mean something to one reader or the other.
const LINES: [&str; 30] = [
    "a: b",
    "a:",
    "c:",
    "- d",
    "- a: e",
    "  a: f",
    "  - g: |",
    "  - - h",
    "    i: j",
    "    k",
    " l:",
    "",
    "   ",
    "# m",
    "  # n",
    "o: >-",
    "o: |+",
    "  p: 'q'",
    "-",
    "  -",
    "\"a\": r",
    "  {}",
    "  s: 't ''u'",
    "   v: \"",
    "  w: [1, x, {y: z}]",
    "1: 2 # 3",
    "  true: {a: b}",
    "'4': \"5\\n\" # 6",
    "7: :8",
    "---",
];

#[test]
fn every_few_lines_that_are_plain_are_read_as_the_whole_reader_does() {
    let mut plain = 0;
    for number in (0..LINES.len().pow(4)).step_by(7) {
        let mut left = number;
        let mut text = String::new();
        for _ in 0..4 {
            text.push_str(LINES[left % LINES.len()]);
            text.push('\n');
            left /= LINES.len();
        }
        plain += usize::from(is_plain(&text));
        text.pop();
        is_plain(&text);
    }
    assert!(plain > 1000, "{plain} strings are plain");
}

proptest! {
    #[test]
    fn many_lines_that_are_plain_are_read_as_the_whole_reader_does(
        lines in prop::collection::vec((0_usize..6, prop::sample::select(&LINES[..])), 0..12),
    ) {
        let line = |(indent, line): &(usize, &str)| format!("{}{line}\n", " ".repeat(*indent));
        let text: String = lines.iter().map(line).collect();
        is_plain(&text);
        is_plain(&format!("a:\n{text}"));
    }

    #[test]
    fn a_scalar_that_is_plain_is_read_as_the_whole_reader_does(
        text in "[a-c0-9 :#,\\[\\]{}'\"\\\\n?!&*|>%@`~<=+._/$()-]{0,12}",
    ) {
        is_plain(&format!("a: {text}\n"));
        is_plain(&format!("a:\n- {text}\n"));
        is_plain(&format!("a: [{text}]\n"));
        is_plain(&format!("a: {{{text}}}\n"));
        is_plain(&format!("a: '{text}'\n"));
        is_plain(&format!("a: \"{text}\"\n"));
        is_plain(&format!("{text}: a\n"));
        is_plain(&format!("a: {{{text}: b}}\n"));
    }
}
