//! JSON of nodes, compared with observed answers of Go.

use serde_json::json;

use super::to_json;
use crate::YamlLimits;
use crate::v3::parse;

fn read(text: &str) -> Result<serde_json::Value, String> {
    let documents = parse(text.as_bytes(), &YamlLimits::default()).unwrap();
    to_json(&documents[0], &YamlLimits::default()).map_err(|error| error.to_string())
}

#[test]
fn scalars_mean_what_version_3_takes_them_for() {
    let text = "[yes, true, 0o17, 0o-17, 017, 1_0, 1.0, .5, ~, '', 2020-1-2, \
                2020-01-02 3:4:5.1200, 2020-01-02T03:04:05+01:30, !!binary aGk=, ! 1, !x 1]";
    let wanted = json!([
        "yes",
        true,
        15,
        -15,
        15,
        10,
        1,
        0.5,
        null,
        "",
        "2020-01-02T00:00:00Z",
        "2020-01-02T03:04:05.12Z",
        "2020-01-02T03:04:05+01:30",
        "hi",
        1,
        "1"
    ]);
    assert_eq!(read(text), Ok(wanted));
}

#[test]
fn merged_keys_do_not_replace_existing_ones() {
    let text = "a: &a {x: 1, y: 2}\nb: &b {y: 3, z: {<<: *a}}\nc: {<<: [*b, *a], z: 4}\n";
    let wanted = json!({
        "a": { "x": 1, "y": 2 },
        "b": { "y": 3, "z": { "x": 1, "y": 2 } },
        "c": { "x": 1, "y": 3, "z": 4 },
    });
    assert_eq!(read(text), Ok(wanted));
}

#[test]
fn an_alias_means_the_anchor_before_it_where_it_was_written() {
    let text = "a: &x 1\nb: &y [*x]\nc: &x 2\nd: [*y, *x]\n";
    assert_eq!(read(text), Ok(json!({ "a": 1, "b": [1], "c": 2, "d": [[1], 2] })));
    assert_eq!(read("a: &a [*a]\n"), Err("yaml: anchor 'a' value contains itself".to_owned()));
    let unknown = Err("yaml: unknown anchor 'a' referenced".to_owned());
    let documents = parse(b"- &a 1\n- [*a]\n", &YamlLimits::default()).unwrap();
    let list = &documents[0].content[0].content[1];
    assert_eq!(to_json(list, &YamlLimits::default()).map_err(|error| error.to_string()), unknown);
}

#[test]
fn keys_are_strings_at_the_root_and_must_be_below() {
    assert_eq!(read("1: a\ntrue: b\n~: c\n"), Ok(json!({ "1": "a", "true": "b" })));
    let unsupported = "json: unsupported type: map[interface {}]interface {}";
    assert_eq!(read("a: {1: b}\n"), Err(unsupported.to_owned()));
    assert_eq!(
        read("a: {{ .Values.x }}\n"),
        Err("yaml: invalid map key: map[string]interface {}{\".Values.x\":interface {}(nil)}"
            .to_owned()),
    );
    assert_eq!(
        read("? [a]\n: 1\n"),
        Err("yaml: unmarshal errors:\n  line 1: cannot unmarshal !!seq into string".to_owned()),
    );
}

#[test]
fn keys_that_are_set_twice_are_listed() {
    let error = read("a: 1\nb: {c: 1, c: 2}\na: 3\n").unwrap_err();
    // What is below a map with such keys is not examined.
    assert_eq!(
        error,
        "yaml: unmarshal errors:\n  line 3: mapping key \"a\" already defined at line 1",
    );
}

#[test]
fn what_json_cannot_say_is_an_error() {
    assert_eq!(read("a: .nan"), Err("json: unsupported value: NaN".to_owned()));
    assert_eq!(read("a: !!int x"), Err("yaml: cannot decode !!str `x` as a !!int".to_owned()));
    assert!(read("a: 2020-01-02T03:04:05+24:00").unwrap_err().contains("timezone hour"));
}

#[test]
fn aliases_cannot_multiply_a_document_without_bound() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..9 {
        let aliases = vec![format!("*a{}", level - 1); 9].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
    }
    assert_eq!(read(&bomb), Err("yaml: document contains excessive aliasing".to_owned()));
    let deep = "[".repeat(1_001) + &"]".repeat(1_001);
    assert_eq!(read(&deep), Err("yaml: exceeded max depth of 1000".to_owned()));
}
