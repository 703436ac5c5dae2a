//! Schemas: limits, and numbers in errors. Verdicts and messages are recorded answers of Helm.

use std::sync::Arc;

use golang::GoRuntimeValue;
use serde_json::{Value as Json, json};

use golang::work_meter::{StopSignal, WorkAllowance, WorkMeter};

use super::{check_one, validate};
use crate::chart::Chart;
use crate::warning::HelmWarning;

fn check(schema: &Json, values: &Json) -> Result<(), String> {
    check_text(&schema.to_string(), values)
}

fn check_text(schema: &str, values: &Json) -> Result<(), String> {
    let mut chart = Chart { schema: Some(Arc::from(schema.as_bytes())), ..Chart::default() };
    "top".clone_into(&mut chart.metadata.name);
    let GoRuntimeValue::Map(values) = GoRuntimeValue::from_json(values) else {
        panic!("values are a table")
    };
    validate(&chart, &values).map_err(|error| error.to_string())
}

#[test]
fn numbers_are_written_as_helm_prints_them() {
    let cases = [
        (json!(70_000), "70,000"),
        (json!(999_999.5), "999,999.5"),
        (json!(1_000_000), "1×10⁰⁶"),
        (json!(-1_234_567.25), "-1.23456725×10⁰⁶"),
        (json!(0.00001), "1×10⁻⁰⁵"),
        (json!(0.0001), "0.0001"),
        (json!(1e100), "1×10¹⁰⁰"),
        (json!(0), "0"),
        (json!(-1234.5), "-1,234.5"),
    ];
    for (number, text) in cases {
        let error = check(
            &json!({"properties": {"p": {"not": {}, "exclusiveMaximum": -2e300}}}),
            &json!({"p": number}),
        );
        let wanted = format!("exclusiveMaximum: got {text}, want -2×10³⁰⁰");
        assert!(error.clone().unwrap_err().contains(&wanted), "{error:?}");
    }
}

#[test]
fn nothing_is_fetched() {
    for address in ["http://localhost:1/x", "file:///etc/passwd", "other.json", "ftp://x/y"] {
        let error = check(&json!({"$ref": address}), &json!({})).unwrap_err();
        assert!(error.contains("remote schemas are not supported"), "{error}");
    }
    assert_eq!(check(&json!({"$ref": "urn:example:x"}), &json!({})), Ok(()));
}

#[test]
fn a_schema_of_too_many_schemas_is_not_compiled() {
    let checked = |count: usize| {
        let schema = json!({"allOf": vec![json!({}); count]}).to_string();
        let mut meter = WorkMeter::new(
            WorkAllowance { steps: 50_000_000, ..WorkAllowance::UNLIMITED },
            StopSignal::default(),
        );
        let values = golang::value::GoMap::new(golang::value::GoType::Any, []);
        check_one(schema.as_bytes(), &values, &mut meter, &mut Vec::new())
    };
    assert_eq!(checked(1_000), Ok(()));
    let error = checked(150_000).unwrap_err();
    assert!(error.starts_with("checking values is stopped"), "{error}");
}

#[test]
fn many_unresolved_urns_are_few_warnings() {
    let properties: serde_json::Map<String, Json> =
        (0..200).map(|at| (format!("p{at}"), json!({"$ref": format!("urn:x:{at}")}))).collect();
    let schema = json!({"properties": properties}).to_string();
    let values = golang::value::GoMap::new(golang::value::GoType::Any, []);
    let mut meter = WorkMeter::new(WorkAllowance::UNLIMITED, StopSignal::default());
    let mut warnings = Vec::new();
    check_one(schema.as_bytes(), &values, &mut meter, &mut warnings).unwrap();
    assert_eq!(warnings.len(), 16);
}

#[test]
fn each_urn_that_nothing_resolves_is_warned_of_once() {
    let schema = json!({"properties": {
        "a": {"$ref": "urn:example:x"}, "b": {"$ref": "urn:example:x"}, "c": {"$ref": "urn:other:y"},
    }});
    let GoRuntimeValue::Map(values) = GoRuntimeValue::from_json(&json!({"a": 1})) else {
        panic!("values are a table")
    };
    let mut warnings: Vec<HelmWarning> = Vec::new();
    for _ in 0..2 {
        let mut meter = WorkMeter::new(WorkAllowance::UNLIMITED, StopSignal::default());
        check_one(schema.to_string().as_bytes(), &values, &mut meter, &mut warnings).unwrap();
    }
    // Answered by helm 4.2.4.
    let lines: Vec<String> = warnings.iter().map(HelmWarning::line).collect();
    let line = |urn: &str| {
        format!(
            "level=WARN msg=\"unresolved URN reference ignored; using permissive schema\" urn={urn}"
        )
    };
    assert_eq!(lines, [line("urn:example:x"), line("urn:other:y")]);
}

#[test]
fn a_schema_that_applies_itself_without_end_is_refused() {
    let mut defs = serde_json::Map::new();
    for level in 0..40 {
        let next = json!({"$ref": format!("#/$defs/l{}", level + 1)});
        defs.insert(format!("l{level}"), json!({"allOf": [next, next]}));
    }
    defs.insert("l40".to_owned(), json!({}));
    let error = check(&json!({"$defs": defs, "$ref": "#/$defs/l0"}), &json!({})).unwrap_err();
    assert!(error.contains("more than 500000 steps"), "{error}");
}

#[test]
fn values_in_each_other_are_bounded_and_leave_the_stack_alone() {
    let schema = json!({"properties": {"a": {"$ref": "#"}, "x": {"type": "string"}}});
    let nested = |depth: usize| (0..depth).fold(json!({"x": 5}), |inner, _| json!({"a": inner}));
    assert!(check(&schema, &nested(140)).unwrap_err().contains("got number, want string"));
    assert!(check(&schema, &nested(200)).unwrap_err().contains("deeper than 300"));
}

#[test]
fn patterns_are_those_of_go() {
    let of = |pattern: &str| json!({"properties": {"p": {"pattern": pattern}}});
    assert_eq!(check(&of(r"\Aa\z"), &json!({"p": "a"})), Ok(()));
    assert!(check(&of(r"^\s$"), &json!({"p": "\u{a0}"})).is_err());
    let error = check(&of(r"a(?=b)"), &json!({"p": "a"})).unwrap_err();
    assert!(
        error.contains(r"'a(?=b)' is not valid regex: error parsing regexp: invalid or unsupported Perl syntax: `(?=`"),
        "{error}"
    );
    let both = json!({"properties": {"p": {"pattern": "[0-9]"}, "q": {"pattern": r"\d"}}});
    let error = check(&both, &json!({"p": "x", "q": "x"})).unwrap_err();
    assert!(error.contains("pattern '[0-9]'") && error.contains(r"pattern '\\d'"), "{error}");
}

#[test]
fn a_text_that_is_no_schema_is_reported_in_gos_words() {
    let cases = [
        ("", "top:\nEOF"),
        ("{\"type\":", "top:\nunexpected EOF"),
        ("{} {}", "top:\ninvalid character after top-level value"),
    ];
    for (text, wanted) in cases {
        assert_eq!(check_text(text, &json!({})).unwrap_err(), wanted);
    }
}
