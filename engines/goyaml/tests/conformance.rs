//! Replays what Go's libraries were recorded to answer (go-yaml v2.4.3, `sigs.k8s.io/yaml` v1.6.0).
//! What holds for every input is in `laws.rs`; what is written for values, in `emission.rs`.

#![expect(clippy::unwrap_used, reason = "a recorded case that cannot be read fails the test")]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// One recorded case: an input and Go's answers.
struct Case {
    name: String,
    input: Vec<u8>,
    json: Option<String>,
    error: Option<String>,
    strict_error: Option<String>,
    round_trip: Option<String>,
}

/// The recorded cases of a file.
macro_rules! recorded {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../e2e/conformance/", $name))
    };
}

fn cases(text: &str) -> Vec<Case> {
    text.lines()
        .map(|line| {
            let case: Value = serde_json::from_str(line).unwrap();
            let field = |name: &str| case[name].as_str().map(str::to_owned);
            let input = match field("yaml") {
                Some(yaml) => yaml.into_bytes(),
                // The recorder leaves out an empty input.
                None => STANDARD.decode(field("yaml_base64").unwrap_or_default()).unwrap(),
            };
            Case {
                name: field("name").unwrap(),
                input,
                json: field("v2_json"),
                error: field("v2_error"),
                strict_error: field("v2_strict_error"),
                round_trip: field("v2_round_trip"),
            }
        })
        .collect()
}

/// Cases that Go answers in two ways, as it ranges over a map in random order: the keys `1` and
/// `"1"` are the same in JSON.
const RANDOM: [(&str, &str); 1] = [("dup3", r#"{"1":"b"}"#)];

/// What is wrong with our answers to a case.
fn differences(case: &Case) -> Vec<String> {
    let mut found = Vec::new();
    match (goyaml::to_json(&case.input), &case.json, &case.error) {
        (Ok(ours), Some(json), _) if is_same(&ours, json) => {}
        (Ok(ours), Some(_), _) if RANDOM.contains(&(&case.name, &ours.to_string())) => {}
        (Err(ours), _, Some(error)) if ours.to_string() == *error => {}
        (ours, _, _) => {
            found.push(format!("read {ours:?}, Go {:?} {:?}", case.json, case.error));
        }
    }
    let strict = goyaml::to_json_strict(&case.input).err().map(|error| error.to_string());
    if strict != case.strict_error {
        found.push(format!("strict {strict:?}, Go {:?}", case.strict_error));
    }
    if let (Ok(value), Some(text)) = (goyaml::to_json(&case.input), &case.round_trip) {
        // The round trip was recorded through a Go value, whose numbers are all floats.
        let emitted = goyaml::emit(&with_floats(value));
        if emitted.as_ref().ok() != Some(text) {
            found.push(format!("emit {emitted:?}, Go {text:?}"));
        }
    }
    found
}

/// Whether a value is what Go's JSON says; text is compared where nesting is too deep to parse.
fn is_same(ours: &Value, json: &str) -> bool {
    match serde_json::from_str::<Value>(json) {
        Ok(theirs) => *ours == theirs,
        Err(_) => format!("{ours}") == json,
    }
}

fn with_floats(mut value: Value) -> Value {
    let mut todo = vec![&mut value];
    while let Some(value) = todo.pop() {
        match value {
            Value::Number(number) => *value = Value::from(number.as_f64().unwrap()),
            Value::Array(items) => todo.extend(items),
            Value::Object(map) => todo.extend(map.values_mut()),
            Value::Null | Value::Bool(_) | Value::String(_) => {}
        }
    }
    value
}

fn check(text: &str, count: usize) {
    let cases = cases(text);
    assert_eq!(cases.len(), count);
    let wrong: Vec<String> = cases
        .iter()
        .flat_map(|case| differences(case).into_iter().map(|text| format!("{}: {text}", case.name)))
        .collect();
    assert!(wrong.is_empty(), "{} of {count} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn the_first_collection_of_inputs_reads_as_in_go() {
    check(recorded!("yaml/read.jsonl"), 602);
}

#[test]
fn the_second_collection_of_inputs_reads_as_in_go() {
    check(recorded!("recorded/yaml2-read.jsonl"), 434);
}
