//! How the parts work together. Recorded answers of Go are replayed by `cargo xtask conformance`.

use std::thread;

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::{EmitInputForm, JsonRereadError, emit, emit_in_byte_order, emit_with_escapes, write};

fn check(value: &Value, wanted: Expect) {
    wanted.assert_eq(&emit(value).unwrap_or_else(|error| format!("error: {error}")));
}

/// Something like `[{"a": [{"a": …}]}]`, whose drop would overflow a small stack too.
fn nested(depth: usize) -> Value {
    (0..depth).fold(Value::Null, |inner, level| match level % 2 {
        0 => Value::Object([("a".to_owned(), inner)].into_iter().collect()),
        _ => Value::Array(vec![inner]),
    })
}

/// Takes the value apart level by level.
fn dismantle(mut value: Value) {
    loop {
        value = match value {
            Value::Array(mut items) => items.pop().unwrap_or_default(),
            Value::Object(mut entries) => entries.remove("a").unwrap_or_default(),
            _ => return,
        };
    }
}

#[test]
fn sequences_are_not_indented_below_a_key_on_the_same_line() {
    let long = "k".repeat(129);
    let value = json!({
        "a": [1, [2, { "b": [], "c": { "d": {} } }]],
        long: [{ "x": 1, "y": 2 }],
    });
    check(
        &value,
        expect![[r#"
            a:
            - 1
            - - 2
              - b: []
                c:
                  d: {}
            ? kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk
            : - x: 1
                "y": 2
        "#]],
    );
}

#[test]
fn text_folds_at_the_first_space_beyond_column_80() {
    let words = "word ".repeat(20);
    check(
        &json!({ "plain": words.trim_end(), "single": words, "double": format!("\t{words}   x") }),
        expect![[r#"
            double: "\tword word word word word word word word word word word word word word word
              word word word word word    x"
            plain: word word word word word word word word word word word word word word word
              word word word word word
            single: 'word word word word word word word word word word word word word word word
              word word word word word '
        "#]],
    );
}

#[test]
fn blocks_say_how_they_begin_and_end() {
    check(
        &json!(["a\nb", "a\n", "a\n\n", " a\n", "\n", ["a\nb"]]),
        expect![[r#"
        - |-
          a
          b
        - |
          a
        - |+
          a

        - |2
           a
        - |2+

        - - |-
            a
            b
    "#]],
    );
}

#[test]
fn a_scalar_may_stand_alone() {
    check(
        &json!("a\nb\n"),
        expect![[r#"
        |
          a
          b
    "#]],
    );
    check(
        &json!("\u{feff}a b"),
        expect![[r#"
        "\uFEFF\x61\x20\x62"
    "#]],
    );
    check(
        &json!([]),
        expect![[r#"
        []
    "#]],
    );
    check(&json!("\u{80}"), expect!["error: yaml: control characters are not allowed"]);
}

#[test]
fn ten_thousand_levels_fit_a_small_stack_and_one_more_is_refused() {
    let lines = |value: Value| {
        let text = emit(&value);
        dismantle(value);
        text.map(|text| text.lines().count()).map_err(|error| error.to_string())
    };
    let work = move || (lines(nested(10_000)), lines(nested(10_001)));
    let thread = thread::Builder::new().stack_size(512 << 10).spawn(work).unwrap();
    let refusal = "yaml: exceeded max depth of 10000".to_owned();
    assert_eq!(thread.join().unwrap(), (Ok(5_000), Err(refusal)));
}

#[test]
fn the_refusal_of_deep_values_names_the_line() {
    let value = Value::Array(vec!["\u{85}".into(), nested(10_000)]);
    check(&value, expect!["error: yaml: line 2: exceeded max depth of 10000"]);
    dismantle(value);
}

#[test]
fn indentation_does_not_make_a_text_of_any_length() {
    // A few bytes each, but a hundred columns further in than they look.
    let lines = Value::String("x\n".repeat(1_000));
    let value = (0..50).fold(lines, |inner, _| json!({ "a": inner }));
    assert_eq!(
        write(&&value, EmitInputForm::Reread, 50_000).map(drop),
        Err(JsonRereadError::Length)
    );
    assert_eq!(
        write(&&value, EmitInputForm::Reread, 200_000).map(|(text, _)| text.len()),
        Ok(104_602)
    );
}

#[test]
fn what_go_refuses_is_written_with_escapes_and_all_else_as_go_does() {
    let value = json!({"a10": "x\u{1b}[2J", "a2": "\u{7f}\u{9b}31m", "b\u{85}": ["\0\u{fffe}", "x \u{85} y"],
        "\u{80}": {"k".repeat(2_000): 1}});
    assert!(emit(&value).is_err());
    let text = emit_with_escapes(&value).unwrap();
    assert!(text.contains("a2: \"\\x7F\\x9B31m\"\na10: \"x\\e[2J\"\n"), "{text}");
    assert!(text.chars().all(|it| it == '\n' || !it.is_control()), "{text:?}");
    assert_eq!(crate::to_json(text.as_bytes()).unwrap(), value);
    let value =
        json!({"v10": "first\nsecond\n", "v9": [{"a": "on"}, "a: b", null], "\u{e9}": "\u{2028}"});
    assert_eq!(emit_with_escapes(&value), emit(&value));
}

#[test]
fn keys_in_byte_order_are_written_with_what_json_would_lose() {
    let value = serde_json::json!({"b": {"a2": 1, "a10": 2}, "B": "x\u{85}y", "c": "\u{7f}"});
    let text = emit_in_byte_order(&value).unwrap();
    assert_eq!(text, "B: \"x\\Ny\"\nb:\n  a10: 2\n  a2: 1\nc: \"\\x7F\"\n");
}
