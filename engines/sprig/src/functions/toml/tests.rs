//! What the library writes and reads; each of these was compared with version 1.6.0.

use golang::GoRuntimeValue;
use golang::time::{GoDuration, GoTime, GoTimeZone};

use crate::test_rendering::{check, render_with};

fn check_written(data: GoRuntimeValue, wanted: &str) {
    assert_eq!(render_with("{{ toToml . }}", data), wanted);
}

fn check_read(text: &str, wanted: &str) {
    let data = GoRuntimeValue::from(text);
    assert_eq!(render_with("{{ fromToml . | toJson }}", data), wanted, "{text}");
}

fn check_refused(text: &str, wanted: &str) {
    let data = GoRuntimeValue::from(text);
    assert_eq!(render_with("{{ (fromToml .).Error }}", data), wanted, "{text}");
}

#[test]
fn tables_come_behind_other_values_and_are_indented() {
    let inner = GoRuntimeValue::map([
        ("d", GoRuntimeValue::list([GoRuntimeValue::Float(1.0), GoRuntimeValue::Float(2.5)])),
        ("e", GoRuntimeValue::Nil),
    ]);
    let data = GoRuntimeValue::map([
        ("c", GoRuntimeValue::map([("x", inner)])),
        ("a b", GoRuntimeValue::from("line\n\"q\" \\ é\u{1}")),
        (
            "l",
            GoRuntimeValue::list([
                GoRuntimeValue::map([("n", GoRuntimeValue::int(1))]),
                GoRuntimeValue::map([("n", GoRuntimeValue::int(2))]),
            ]),
        ),
        (
            "i",
            GoRuntimeValue::list([GoRuntimeValue::list([GoRuntimeValue::map([(
                "k",
                GoRuntimeValue::Bool(true),
            )])])]),
        ),
        ("f", GoRuntimeValue::Float(1e30)),
    ]);
    check_written(
        data,
        "\"a b\" = \"line\\n\\\"q\\\" \\\\ é\\u0001\"\nf = 1e+30\ni = [[{k = true}]]\n\n[c]\n  [c.x]\n    d = [1.0, 2.5]\n\n[[l]]\n  n = 1\n\n[[l]]\n  n = 2\n",
    );
}

#[test]
fn times_and_durations_have_forms_of_their_own() {
    let time = GoTime::from_unix(1_577_923_200, 0, GoTimeZone::Utc);
    let data = GoRuntimeValue::map([
        ("t", GoRuntimeValue::object(time)),
        ("d", GoRuntimeValue::object(GoDuration(1_500_000_000))),
    ]);
    check_written(data, "d = \"1.5s\"\nt = 2020-01-02T00:00:00Z\n");
    check(
        r#"{{ fromToml "a = 2020-01-02\nb = 03:04:05.5\nc = 2020-01-02 03:04:05\nd = 2020-01-02T03:04Z" | toToml }}"#,
        "a = 2020-01-02\nb = 03:04:05.5\nc = 2020-01-02T03:04:05\nd = 2020-01-02T03:04:00Z\n",
    );
}

#[test]
fn what_has_no_toml_is_text_or_an_error() {
    check_written(
        GoRuntimeValue::list([GoRuntimeValue::map::<&str>([])]),
        "toml: top-level values must be Go maps or structs",
    );
    check_written(
        GoRuntimeValue::list([GoRuntimeValue::Nil]),
        "toml: cannot encode array with nil element",
    );
    check_written(
        GoRuntimeValue::list([GoRuntimeValue::int(1), GoRuntimeValue::from("a")]),
        "[1, \"a\"]",
    );
    let panic = "reflect: call of reflect.Value.Type on zero Value";
    check("{{ toToml nil }}", &format!("error calling toToml: {panic}"));
    check("{{ mustToToml nil }}", &format!("error calling mustToToml: {panic}"));
    check("{{ mustToToml 5 }}{{ toToml \"x\" }}{{ toToml 5.0 }}", "5\"x\"5.0");
    let map = golang::value::GoMap::default();
    map.insert("a", GoRuntimeValue::Map(map.clone()));
    let deep = "error calling toToml: the value is nested more than 500 deep, or holds itself";
    check_written(GoRuntimeValue::Map(map.clone()), deep);
    map.remove(b"a");
}

#[test]
fn values_of_all_kinds_are_read() {
    check_read(
        "a.b = 0x1F # c\n'q r' = [1, [2.5, -inf_], ]".replace("-inf_", "\"x\"").as_str(),
        r#"{"a":{"b":31},"q r":[1,[2.5,"x"]]}"#,
    );
    check_read(
        "[[t]]\nn = {x = 1, y.z = true,}\n[[t]]\n[t.u]",
        r#"{"t":[{"n":{"x":1,"y":{"z":true}}},{"u":{}}]}"#,
    );
    check_read("a = [{n = 1}, {n = 2}]", r#"{"a":[{"n":1},{"n":2}]}"#);
    check_read(
        "s = '''raw\\n'''\nm = \"\"\"\nl1 \\\n   l2\\u00e9\"\"\"\"\"",
        r#"{"m":"l1 l2é\"\"","s":"raw\\n"}"#,
    );
    check(r#"{{ (fromToml "a = 1_000\nb = 1e3").a | printf "%T" }}"#, "int64");
    check(
        r#"{{ fromToml "[[t]]" | printf "%T" }} {{ fromToml "" }}"#,
        "map[string]interface {} map[]",
    );
}

#[test]
fn what_is_no_toml_is_said_in_the_words_of_the_library() {
    check_refused(
        "a = 1\na = 2",
        "toml: line 2 (last key \"a\"): Key 'a' has already been defined.",
    );
    check_refused(
        "a = 01",
        "toml: line 1 (last key \"a\"): Invalid integer \"01\": cannot have leading zeroes",
    );
    check_refused("a = ", "toml: line 1 (last key \"a\"): unexpected EOF; expected value");
    check_refused(
        "a = 1 b",
        "toml: line 1: expected a top-level item to end with a newline, comment, or EOF, but got 'b' instead",
    );
    check_refused("[a]\n[a]", "toml: line 2: Key 'a' has already been defined.");
    check_refused("a", "toml: line 1: unexpected EOF; expected key separator '='");
}

#[test]
fn deep_text_is_refused() {
    let arrays = format!("a = {}", "[".repeat(100_000));
    check_refused(
        &arrays,
        "toml: line 1 (last key \"a\"): arrays and tables are nested more than 500 deep",
    );
    let tables = format!("[{}a]", "a.".repeat(100_000));
    check_refused(&tables, "toml: line 1: tables are nested more than 500 deep");
}
