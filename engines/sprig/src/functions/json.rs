//! The template functions for JSON of Helm 4.2 and sprig. Helm replaces `toJson`, `mustToJson` and `fromJson`, and the others
//! are sprig's.

use golang::GoRuntimeValue;
use golang::json::{self, DecodedJson, JsonEncodeError, JsonLayout};
use golang::value::{GoMap, GoSlice, GoType, ReflectKind};
use gotemplate::{FunctionCallContext, TemplateFunctionError};

use crate::arguments::{TEXT_OVERHEAD_BYTES, any, text};
use crate::function_table::{SprigFunctionEntry, bounded};
use crate::memory_size::weight;

pub(crate) const ENTRIES: &[SprigFunctionEntry] = &[
    bounded("toJson", "func(interface {}) string", to_json),
    bounded("mustToJson", "func(interface {}) string", must_to_json),
    bounded("toPrettyJson", "func(interface {}) string", to_pretty_json),
    bounded("mustToPrettyJson", "func(interface {}) (string, error)", must_to_pretty_json),
    bounded("toRawJson", "func(interface {}) string", must_to_raw_json),
    bounded("mustToRawJson", "func(interface {}) (string, error)", must_to_raw_json),
    bounded("fromJson", "func(string) map[string]interface {}", from_json),
    bounded("mustFromJson", "func(string) (interface {}, error)", must_from_json),
    bounded("fromJsonArray", "func(string) []interface {}", from_json_array),
];

const HTML: JsonLayout = JsonLayout { escapes_html: true, indent: None };
const RAW: JsonLayout = JsonLayout { escapes_html: false, indent: None };
const PRETTY: JsonLayout = JsonLayout { escapes_html: true, indent: Some("  ") };

/// A value as JSON; empty if the value has no JSON form.
fn to_json(
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    Ok(GoRuntimeValue::from(encode(call, any(args, 0), HTML)?.or_empty()))
}

/// A function of templates that writes a value as JSON, and fails if that is not possible.
fn must_to_json(
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    Ok(GoRuntimeValue::from(encode(call, any(args, 0), HTML)?.or_failure()?))
}

/// A value as indented JSON; empty if the value has no JSON form.
fn to_pretty_json(
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    Ok(GoRuntimeValue::from(encode(call, any(args, 0), PRETTY)?.or_empty()))
}

/// A value as JSON on many lines.
fn must_to_pretty_json(
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    Ok(GoRuntimeValue::from(encode(call, any(args, 0), PRETTY)?.or_failure()?))
}

/// A value as JSON without escapes for `<`, `>` and `&`. `toRawJson` fails in the same way as `mustToRawJson`.
fn must_to_raw_json(
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    Ok(GoRuntimeValue::from(encode(call, any(args, 0), RAW)?.or_failure()?))
}

/// Parses a JSON object. If the text is not valid, the result is a map with the error under the key `Error`.
fn from_json(
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    let text = text(args, 0);
    read(call, text, weight(text))?;
    Ok(match json::decode(text) {
        Ok(decoded) => map(decoded),
        Err(error) => with_error(GoMap::default(), &error.to_string()),
    })
}

/// sprig's `fromJson`, which Helm replaces: parses any JSON value, or returns nil.
pub(crate) fn from_json_as_sprig(
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    let text = text(args, 0);
    read(call, text, weight(text))?;
    Ok(json::decode(text).map_or(GoRuntimeValue::Nil, |decoded| decoded.value))
}

/// The value that a text is.
fn must_from_json(
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    let text = text(args, 0);
    read(call, text, weight(text))?;
    let DecodedJson { value, misfit } = json::decode(text).map_err(|error| error.to_string())?;
    misfit.map_or(Ok(value), |error| Err(error.to_string().into()))
}

/// Parses a JSON array. If the text is not valid, the error is the only item of the result.
fn from_json_array(
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    let text = text(args, 0);
    read(call, text, weight(text))?;
    let decoded = json::decode(text).map_err(|error| error.to_string());
    Ok(decoded
        .and_then(list)
        .unwrap_or_else(|error| GoRuntimeValue::list([GoRuntimeValue::from(error)])))
}

/// Counts a text before it is parsed. Its values will take this many bytes.
pub(super) fn read(
    call: &mut FunctionCallContext<'_>,
    text: &[u8],
    weight: usize,
) -> Result<(), TemplateFunctionError> {
    call.work(text.len())?;
    call.produce(weight)
}

/// What Go gives for decoding JSON into `map[string]any`. If the text is not an object, or a number does not fit, the map has
/// the error under the key `Error`. `null` gives a nil map.
fn map(DecodedJson { value, misfit }: DecodedJson) -> GoRuntimeValue {
    match (value, misfit) {
        (value @ GoRuntimeValue::Map(_), None) => value,
        (GoRuntimeValue::Map(map), Some(error)) => with_error(map, &error.to_string()),
        // Parity(go): null makes a map that is there nil.
        (GoRuntimeValue::Nil, None) => GoRuntimeValue::Map(GoMap::nil(GoType::Any)),
        (value, _) => with_error(GoMap::default(), &mismatch(&value, "map[string]interface {}")),
    }
}

/// The list that was decoded, or Go's message about another value.
pub(super) fn list(DecodedJson { value, misfit }: DecodedJson) -> Result<GoRuntimeValue, String> {
    match (value, misfit) {
        (value @ GoRuntimeValue::List(_), None) => Ok(value),
        (GoRuntimeValue::List(_), Some(error)) => Err(error.to_string()),
        (GoRuntimeValue::Nil, None) => Ok(GoRuntimeValue::List(GoSlice::nil(GoType::Any))),
        (value, _) => Err(mismatch(&value, "[]interface {}")),
    }
}

/// Adds an error to a map.
pub(super) fn with_error(map: GoMap, error: &str) -> GoRuntimeValue {
    map.insert("Error", GoRuntimeValue::from(error));
    GoRuntimeValue::Map(map)
}

/// Go's message about a value whose type does not match the target type.
pub(super) fn mismatch(value: &GoRuntimeValue, wanted: &str) -> String {
    let found = match value.kind() {
        ReflectKind::Bool => "bool",
        ReflectKind::String => "string",
        ReflectKind::Slice => "array",
        ReflectKind::Map => "object",
        // Nil stands for a number that is too large.
        _ => "number",
    };
    format!("json: cannot unmarshal {found} into Go value of type {wanted}")
}

/// The text that a value is written as.
pub(super) enum JsonEncodingResult {
    Text(String),
    /// Why the value cannot be written.
    Failure(String),
}

impl JsonEncodingResult {
    /// The text; empty if the value has no JSON form.
    pub(super) fn or_empty(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Failure(_) => String::new(),
        }
    }

    /// The text.
    ///
    /// # Errors
    /// Why the value has no JSON form.
    pub(super) fn or_failure(self) -> Result<String, String> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Failure(error) => Err(error),
        }
    }
}

/// A value as JSON.
///
/// # Errors
/// A limit was reached.
pub(super) fn encode(
    call: &mut FunctionCallContext<'_>,
    value: &GoRuntimeValue,
    form: JsonLayout,
) -> Result<JsonEncodingResult, TemplateFunctionError> {
    match json::encode(value, form, call.room()) {
        Ok(text) => {
            call.work(text.len() / 8)?;
            call.produce(text.len() + TEXT_OVERHEAD_BYTES)?;
            Ok(JsonEncodingResult::Text(text))
        }
        Err(JsonEncodeError::TooLong(most)) => Err(golang::fmt::Error::TooLong(most).into()),
        Err(error @ JsonEncodeError::TooDeep) => Err(error.to_string().into()),
        Err(error) => Ok(JsonEncodingResult::Failure(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_rendering::{check, render_with};

    fn data() -> GoRuntimeValue {
        GoRuntimeValue::map([
            (
                "m",
                GoRuntimeValue::map([
                    ("b", GoRuntimeValue::from("<&>")),
                    ("a", GoRuntimeValue::Float(1e21)),
                ]),
            ),
            ("e", GoRuntimeValue::list([])),
            ("inf", GoRuntimeValue::Float(f64::INFINITY)),
        ])
    }

    fn check_with(template: &str, wanted: &str) {
        assert_eq!(render_with(template, data()), wanted, "{template}");
    }

    #[test]
    fn values_are_written_in_three_forms() {
        check_with("{{ toJson .m }}", r#"{"a":1e+21,"b":"\u003c\u0026\u003e"}"#);
        check_with("{{ mustToJson .m }}", r#"{"a":1e+21,"b":"\u003c\u0026\u003e"}"#);
        check_with("{{ toRawJson .m }}{{ mustToRawJson .e }}", r#"{"a":1e+21,"b":"<&>"}[]"#);
        check_with(
            "{{ toPrettyJson .m }}",
            "{\n  \"a\": 1e+21,\n  \"b\": \"\\u003c\\u0026\\u003e\"\n}",
        );
        check_with("{{ mustToPrettyJson .e }} {{ toJson .nope }}", "[] null");
    }

    #[test]
    fn what_has_no_json_is_empty_or_an_error() {
        check_with("{{ toJson .inf }}{{ toPrettyJson .inf }}", "");
        let error = "json: unsupported value: +Inf";
        for function in ["mustToJson", "mustToPrettyJson", "toRawJson", "mustToRawJson"] {
            let template = format!("{{{{ {function} .inf }}}}");
            check_with(&template, &format!("error calling {function}: {error}"));
        }
    }

    #[test]
    fn maps_and_lists_are_read_or_hold_what_is_wrong() {
        check(r#"{{ fromJson "{\"a\":[1]}" }}"#, "map[a:[1]]");
        check(r#"{{ fromJson "" }}"#, "map[Error:unexpected end of JSON input]");
        let cut = "map[Error:invalid character ' ' in literal null (expecting 'l')]";
        check(r#"{{ fromJson "nul" }}"#, cut);
        check(r#"{{ fromJson "null" | toJson }}"#, "null");
        check(r#"{{ fromJson "{} x" }}"#, "map[Error:invalid character 'x' after top-level value]");
        check(
            r#"{{ fromJson "5" }}"#,
            "map[Error:json: cannot unmarshal number into Go value of type map[string]interface {}]",
        );
        check(
            r#"{{ fromJson "{\"a\":1,\"b\":1e999}" }}"#,
            "map[Error:json: cannot unmarshal number 1e999 into Go value of type float64 a:1 b:<nil>]",
        );
        check(r#"{{ fromJsonArray "[1,\"a\"]" }}{{ fromJsonArray "null" }}"#, "[1 a][]");
        check(
            r#"{{ fromJsonArray "{}" }}"#,
            "[json: cannot unmarshal object into Go value of type []interface {}]",
        );
    }

    #[test]
    fn any_value_is_read_or_an_error() {
        check(r#"{{ mustFromJson "[1,2]" }} {{ mustFromJson "5" }}"#, "[1 2] 5");
        let error =
            "error calling mustFromJson: invalid character '}' in literal true (expecting 'e')";
        check(r#"{{ mustFromJson "{\"a\": tru}" }}"#, error);
    }
}
