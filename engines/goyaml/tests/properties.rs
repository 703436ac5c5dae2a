//! What holds for every input: nothing panics, hangs or exhausts the stack, and limits are kept.
//! What Go answers to single inputs is replayed by `cargo xtask conformance`.

#![expect(clippy::unwrap_used, reason = "what is unwrapped here is what the tests assert")]

use goyaml::{YamlLimits, documents, to_json, to_json_strict};
use proptest::prelude::*;
use serde_json::{Value, json};

fn error(input: &[u8]) -> String {
    to_json(input).unwrap_err().to_string()
}

/// Runs a test on a thread with a small stack.
fn on_a_small_stack(test: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(512 << 10).spawn(test).unwrap().join().unwrap();
}

/// Pieces with a meaning for the scanner, so that random sequences of them reach deep into the parser.
fn piece() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "a",
        "b: ",
        "- ",
        "? ",
        ": ",
        "\n",
        "  ",
        "\t",
        "{",
        "}",
        "[",
        "]",
        ", ",
        "\"",
        "'",
        "#",
        "|\n",
        ">-\n",
        "&a ",
        "*a",
        "!!str ",
        "!!int ",
        "<<: ",
        "---\n",
        "...\n",
        "%YAML 1.1\n",
        "\\x41",
        "1",
        "0x",
        ".5",
        "~",
        "yes",
        "é",
        "\u{85}",
        "\u{2028}",
        "\u{feff}",
        "\r\n",
        "😀",
    ])
}

proptest! {
    #[test]
    fn no_bytes_make_reading_panic(input in prop::collection::vec(any::<u8>(), 0..200)) {
        let lenient = to_json(&input);
        prop_assert!(to_json_strict(&input).is_err() || lenient.is_ok());
        drop(documents(&input, &YamlLimits::default()));
    }

    #[test]
    fn what_is_read_strictly_is_read_the_same_leniently(
        pieces in prop::collection::vec(piece(), 0..40),
    ) {
        let input = pieces.concat();
        if let Ok(strict) = to_json_strict(input.as_bytes()) {
            prop_assert_eq!(to_json(input.as_bytes()), Ok(strict));
        }
        drop(documents(input.as_bytes(), &YamlLimits::default()));
    }

    #[test]
    fn a_text_in_double_quotes_reads_back(text in "[a-zé😀 \\\\\"\n\t:#-]{0,40}") {
        let mut quoted = String::from("\"");
        for character in text.chars() {
            quoted.push_str(&format!("\\U{:08x}", u32::from(character)));
        }
        quoted.push('"');
        prop_assert_eq!(to_json(quoted.as_bytes()), Ok(Value::from(text)));
    }
}

#[test]
fn nesting_up_to_the_limit_reads_on_a_small_stack() {
    on_a_small_stack(|| {
        let deep = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        let value = to_json(deep(1000).as_bytes()).unwrap();
        let mut levels = 1;
        let mut inner = &value;
        while let Some(next) = inner.get(0) {
            (levels, inner) = (levels + 1, next);
        }
        assert_eq!(levels, 1000);
        drop(value);
        assert_eq!(error(deep(1001).as_bytes()), "yaml: exceeded max depth of 1000");
        assert_eq!(error(deep(10_001).as_bytes()), "yaml: exceeded max depth of 10000");
        assert_eq!(error(deep(100_000).as_bytes()), "yaml: exceeded max depth of 10000");
        let maps = "{a: ".repeat(9_000) + &"}".repeat(9_000);
        assert_eq!(error(maps.as_bytes()), "yaml: exceeded max depth of 1000");
        let keys = "? ".repeat(9_000);
        assert_eq!(error(keys.as_bytes()), "yaml: exceeded max depth of 1000");
    });
}

#[test]
fn long_lines_of_indicators_end_in_an_error_at_once() {
    assert_eq!(error("- ".repeat(1_000_000).as_bytes()), "yaml: exceeded max depth of 10000");
    assert_eq!(error("{".repeat(1_000_000).as_bytes()), "yaml: exceeded max depth of 10000");
    let dashes = "-".repeat(1_000_000);
    assert_eq!(to_json(dashes.as_bytes()), Ok(Value::from(dashes)));
    // The first anchor is that of an empty scalar; what follows is behind the document.
    assert_eq!(to_json("&a ".repeat(100_000).as_bytes()), Ok(Value::Null));
}

#[test]
fn aliases_cannot_multiply_a_document_without_bound() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..9 {
        let aliases = vec![format!("*a{}", level - 1); 9].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
    }
    assert_eq!(error(bomb.as_bytes()), "yaml: document contains excessive aliasing");

    // Few nodes, much text.
    let text = "x".repeat(1_000_000);
    let aliases = format!("a: &a {text}\nb:\n") + &"- *a\n".repeat(90);
    assert_eq!(error(aliases.as_bytes()), "yaml: document contains excessive aliasing");

    let mut merges = String::from("m0: &m0 {k: v}\n");
    for level in 1..2_000 {
        merges.push_str(&format!("m{level}: &m{level} {{<<: *m{}}}\n", level - 1));
    }
    assert_eq!(error(merges.as_bytes()), "yaml: document contains excessive aliasing");
}

#[test]
fn limits_are_kept_and_say_so() {
    let small = YamlLimits { bytes: 22, depth: 2, documents: 2, nodes: 8 };
    let read = |input: &str| match documents(input.as_bytes(), &small) {
        Ok(documents) => Ok(documents.len()),
        Err(error) => Err((error.to_string(), error.line())),
    };
    assert_eq!(read("a\n---\nb\n"), Ok(2));
    assert_eq!(
        read("a\n---\nb\n---\nc\n"),
        Err(("yaml: stream has more than 2 documents".to_owned(), Some(5))),
    );
    assert_eq!(
        read("a: 'a long enough text'\n"),
        Err(("yaml: input of 24 bytes is longer than 22".to_owned(), Some(1))),
    );
    assert_eq!(
        read("[1,2,3,4]\n---\n[5,6,7]"),
        Err(("yaml: stream has more than 8 nodes".to_owned(), Some(3))),
    );
    assert_eq!(read("a:\n- [1]"), Err(("yaml: exceeded max depth of 2".to_owned(), Some(2))),);
}

#[test]
fn floats_without_a_fraction_are_the_integers_that_go_writes() {
    let value = to_json(b"[1.0, 1e3, 1e20, 1e19, -0.0, 12345678901234567890.0, 1.5]").unwrap();
    let expected = json!([
        1,
        1000,
        1e20,
        10_000_000_000_000_000_000_u64,
        -0.0,
        12_345_678_901_234_567_000_u64,
        1.5
    ]);
    assert_eq!(value, expected);
    assert!(value[0].is_i64() && value[2].is_f64() && value[4].is_f64());
}

#[test]
fn the_line_is_the_true_one_also_where_gos_text_names_another_or_none() {
    for (input, text, line) in [
        ("a: b: c", "yaml: mapping values are not allowed in this context", 1),
        ("a:\n  - 1\n - 2", "yaml: line 2: did not find expected key", 3),
        ("a: 1\nb: *x", "yaml: unknown anchor 'x' referenced", 2),
        ("a: 1\nb:\n  ? [c]\n  : 1", "yaml: invalid map key: []interface {}{\"c\"}", 3),
        ("\n\na: .nan", "json: unsupported value: NaN", 3),
    ] {
        let error = to_json(input.as_bytes()).unwrap_err();
        assert_eq!((error.to_string().as_str(), error.line()), (text, Some(line)));
    }
    let error = to_json_strict(b"a: 1\nb: {c: 1, c: 2}\na: 3").unwrap_err();
    assert_eq!(
        error.to_string(),
        "yaml: unmarshal errors:\n  line 2: key \"c\" already set in map\n  line 3: key \"a\" already set in map",
    );
    assert_eq!(error.line(), Some(2));
}
