//! Schemas of charts, and values for them (`helm::schema`). An input is a schema, a line `---` and the values.

use std::sync::Arc;

use helm::chart::Chart;
use helm::schema::validate;

use super::FuzzTarget;
use super::USUAL_STACK;

pub(super) const TARGET: FuzzTarget = FuzzTarget {
    name: "schema",
    stack: USUAL_STACK,
    words: &[
        b"{",
        b"}",
        b"[",
        b"]",
        b":",
        b",",
        b"\"",
        b"\\u",
        b"\n---\n",
        b"{\"$ref\":\"#\"}",
        b"{\"$ref\":\"#/definitions/a\"}",
        b"\"$ref\":\"#/allOf/0\",",
        b"\"$recursiveRef\":\"#\"",
        b"\"$dynamicRef\":\"#a\"",
        b"\"$id\":\"http://a/b\",",
        b"\"$schema\":\"http://json-schema.org/draft-07/schema#\",",
        b"\"definitions\":{\"a\":",
        b"\"type\":\"object\",",
        b"\"type\":[\"string\",\"null\"]",
        b"\"properties\":{",
        b"\"patternProperties\":{",
        b"\"additionalProperties\":false",
        b"\"items\":",
        b"\"contains\":",
        b"\"uniqueItems\":true",
        b"\"allOf\":[",
        b"\"anyOf\":[",
        b"\"oneOf\":[",
        b"\"not\":",
        b"\"if\":",
        b"\"then\":",
        b"\"required\":[\"a\"]",
        b"\"pattern\":\"(a{900}){900}\"",
        b"\"pattern\":\"^[a-z]+$\"",
        b"\"format\":\"email\"",
        b"\"enum\":[",
        b"\"const\":",
        b"\"multipleOf\":1e-300",
        b"\"maximum\":1e309",
        b"\"minLength\":-1",
        b"\"dependentSchemas\":{",
        b"\"unevaluatedProperties\":",
        b"\"contentEncoding\":\"base64\"",
        b"true",
        b"null",
        b"1e400",
        b"a: ",
        b"- ",
        b"&a ",
        b"*a",
        b"\n",
    ],
    recorded: &["recorded/schema.jsonl"],
    read,
};

fn read(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (schema, values) = text.split_once("\n---\n").unwrap_or((&text, "{}"));
    let Ok(values) = helm::chart::read_values(values.as_bytes()) else { return };
    let mut chart = Chart::default();
    "top".clone_into(&mut chart.metadata.name);
    chart.schema = Some(Arc::from(schema.as_bytes()));
    drop(validate(&chart, &values));
}
