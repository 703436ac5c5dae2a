//! Patches of JSON, with the words of their errors.

use goyaml::YamlLimits;
use goyaml::v3::{self, YamlNode};

use super::{apply, parse};
use crate::budget::BuildBudget;
use crate::field;

fn patched(object: &str, patch: &str) -> String {
    let mut object: YamlNode =
        v3::parse(object.as_bytes(), &YamlLimits::default()).expect("valid YAML").swap_remove(0);
    let parsed = parse(patch, &YamlLimits::default());
    match parsed.and_then(|patch| apply(&patch, &mut object, &BuildBudget::default())) {
        Ok(()) => field::text(&object),
        Err(error) => error.to_string(),
    }
}

#[test]
fn an_object_loses_comments_order_and_digits() {
    let object = "b: 12345678901234567890 # big\na: 1000000\n";
    assert_eq!(patched(object, "[]"), "a: 1e+06\nb: 1.2345678901234567e+19\n");
}

#[test]
fn operations_do_what_json_patch_does() {
    let object = "a: {b: [1, 2, 3]}\n";
    let patch = "- {op: add, path: /a/b/-, value: yes}\n- {op: remove, path: /a/b/-4}\n\
                 - {op: replace, path: /a/c, value: x}\n- {op: move, from: /a/c, path: /d}\n\
                 - {op: copy, from: /d, path: /e~1f}\n- {op: test, path: /d, value: x}\n";
    assert_eq!(patched(object, patch), "a:\n  b:\n  - 2\n  - 3\n  - true\nd: x\ne/f: x\n");
}

#[test]
fn errors_are_those_of_json_patch() {
    for (patch, error) in [
        ("[{op: nope}]", "Unexpected kind: nope"),
        (
            "- {op: add, path: /x/y, value: 1}",
            "add operation does not apply: doc is missing path: \"/x/y\": missing value",
        ),
        ("- {op: test, path: /a, value: 2}", "testing value /a failed: test failed"),
        (
            "- {op: replace, path: /l/9, value: 1}",
            "replace operation does not apply: doc is missing key: /l/9: missing value",
        ),
        (
            "- {op: remove, path: /b}",
            "error in remove for path: '/b': Unable to remove nonexistent key: b: missing value",
        ),
    ] {
        let patch = if patch.starts_with('[') { format!(" {patch}") } else { patch.to_owned() };
        assert_eq!(patched("a: 1\nl: []\n", &patch), error);
    }
}

#[test]
fn copies_cannot_grow_without_end() {
    let operations: Vec<String> = (0..60)
        .map(|at| format!("{{\"op\":\"copy\",\"from\":\"/a\",\"path\":\"/a/{at}\"}}"))
        .collect();
    let patch = format!("[{}]", operations.join(","));
    let error = patched(&format!("a: {{b: {}}}\n", "x".repeat(1 << 20)), &patch);
    assert_eq!(error, "it takes more than 469762048 bytes of memory");
}
