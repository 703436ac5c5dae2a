//! CEL expressions of specs (`gocel`). They are parsed, checked and evaluated over an object.

use gocel::CelExpression;
use serde_json::json;

use super::FuzzTarget;

pub(super) const TARGET: FuzzTarget = FuzzTarget {
    name: "cel",
    stack: gocel::REQUIRED_STACK_BYTES,
    words: &[
        b"(",
        b")",
        b"[",
        b"]",
        b"{",
        b"}",
        b".",
        b".?",
        b"[?",
        b"?",
        b":",
        b",",
        b" + ",
        b" - ",
        b"-",
        b"!",
        b" * ",
        b" / ",
        b" % ",
        b" == ",
        b" != ",
        b" < ",
        b" >= ",
        b" in ",
        b"&&",
        b"||",
        b"//",
        b"\n",
        b"\"",
        b"'",
        b"\"\"\"",
        b"'''",
        b"r\"",
        b"b'",
        b"br\"",
        b"\\",
        b"\\u00e9",
        b"\\x4",
        b"`",
        b"self",
        b"dep",
        b"status",
        b"conditions",
        b"e",
        b"true",
        b"null",
        b"1",
        b"0x1f",
        b"1u",
        b"1.5",
        b"1e309",
        b"9223372036854775807",
        b"-9223372036854775808",
        b"has(",
        b".all(e, ",
        b".exists(e, ",
        b".exists_one(e, ",
        b".filter(e, ",
        b".map(e, ",
        b".optMap(e, ",
        b".optFlatMap(e, ",
        b".orValue(",
        b".size()",
        b".matches(\"(a{900}){900}\")",
        b".matches(\".*a{50}\")",
        b".format([",
        b"%s%d%.9f",
        b".replace(\"\", ",
        b".split(",
        b".join(",
        b".substring(",
        b"duration(\"1h\")",
        b"timestamp(\"2026-01-02T03:04:05Z\")",
        b".getHours(\"Europe/Berlin\")",
        b"int(",
        b"string(",
        b"bytes(",
        b"type(",
        b"dyn(",
        b"base64.decode(",
        b"sets.contains(",
        b"optional.of(",
        b"optional.none()",
        b"google.protobuf.Timestamp",
        b"T{a: 1}",
    ],
    recorded: &[],
    read,
};

/// Evaluates the input like Flux's `readyExpr`, and like `healthCheckExprs`.
fn read(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let object = json!({
        "metadata": {"name": "podinfo", "generation": 3, "labels": {"a.b/c": "d"}, "annotations": null},
        "spec": {"replicas": 2, "ratio": 1.5, "list": [1, 2, 3], "names": ["a", "b", "ü"], "on": true},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "at": "2026-01-02T03:04:05Z"},
    });
    if let Ok(expression) = CelExpression::compile(text, &["self", "dep"]) {
        drop(expression.evaluate_bool(&[("self", &object), ("dep", &object)]));
    }
    if let Ok(expression) = CelExpression::parse(text)
        && let Some(fields) = object.as_object()
    {
        drop(expression.evaluate_bool_over(fields));
    }
}
