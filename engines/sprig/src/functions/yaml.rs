//! The template functions for YAML, like those of Helm 4.2: `sigs.k8s.io/yaml`, and go-yaml v3 for `toYamlPretty`.
//!
//! Here: the functions. Below: adapting Go's values for the writers (`yaml/emittable_value.rs`).

mod emittable_value;

use golang::GoRuntimeValue;
use golang::json::{DecodedJson, JsonLayout};
use golang::value::{GoMap, ReflectKind};
use gotemplate::{FunctionCallContext, TemplateFunctionError};
use goyaml::v3::{self, YamlLayout};

use super::json::{self, JsonEncodingResult};
use crate::arguments::{MAP_ENTRY_OVERHEAD_BYTES, TEXT_OVERHEAD_BYTES, any, text, walked};
use crate::function_table::{SprigFunctionEntry, bounded};
use crate::memory_size::weight;
use emittable_value::{DirectYamlView, JsonRoundTripView};

pub(crate) const ENTRIES: &[SprigFunctionEntry] = &[
    bounded("toYaml", "func(interface {}) string", to_yaml),
    bounded("mustToYaml", "func(interface {}) string", must_to_yaml),
    bounded("toYamlPretty", "func(interface {}) string", to_yaml_pretty),
    bounded("fromYaml", "func(string) map[string]interface {}", from_yaml),
    bounded("fromYamlArray", "func(string) []interface {}", from_yaml_array),
];

/// A value as YAML without the last newline; empty if the value has no YAML form.
fn to_yaml(
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    Ok(GoRuntimeValue::from(emit(call, any(args, 0))?.or_empty()))
}

/// A value as YAML without the last newline.
fn must_to_yaml(
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    Ok(GoRuntimeValue::from(emit(call, any(args, 0))?.or_failure()?))
}

/// A value as YAML in another style: lists are indented below their keys, and long text is not folded.
fn to_yaml_pretty(
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    // Each value becomes a node, and then a text.
    walked(call, any(args, 0), 3 * MAP_ENTRY_OVERHEAD_BYTES)?;
    let text = write_yaml_v3(any(args, 0))?;
    call.produce(text.len())?;
    Ok(GoRuntimeValue::from(without_newline(text)))
}

/// Writes a value like go-yaml v3, with an indentation of two and the last newline.
///
/// # Errors
/// Why the value has no YAML form.
pub fn write_yaml_v3(value: &GoRuntimeValue) -> Result<String, String> {
    let layout = YamlLayout { indent: 2, compact_sequences: false };
    v3::encode(&DirectYamlView(value.clone()), &layout).map_err(|error| error.to_string())
}

/// Parses the first document of a text to a map. If the text is not valid, the map has the error under the key `Error`.
fn from_yaml(
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    Ok(match read(call, args)? {
        YamlDocument::Value(value @ GoRuntimeValue::Map(_)) => value,
        YamlDocument::Value(GoRuntimeValue::Nil) => GoRuntimeValue::Map(GoMap::default()),
        YamlDocument::Value(other) => json::with_error(
            GoMap::default(),
            &mismatch(&json::mismatch(&other, "map[string]interface {}")),
        ),
        YamlDocument::Invalid(error) => json::with_error(GoMap::default(), &error),
    })
}

/// Parses the first document of a text to a list. If the text is not valid, the error is the only item.
fn from_yaml_array(
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    let list = match read(call, args)? {
        YamlDocument::Value(value) => {
            let value =
                if value.kind() == ReflectKind::Invalid { GoRuntimeValue::list([]) } else { value };
            json::list(DecodedJson { value, misfit: None }).map_err(|error| mismatch(&error))
        }
        YamlDocument::Invalid(error) => Err(error),
    };
    Ok(list.unwrap_or_else(|error| GoRuntimeValue::list([GoRuntimeValue::from(error)])))
}

fn mismatch(error: &str) -> String {
    format!("error unmarshaling JSON: while decoding JSON: {error}")
}

/// The first document of a text.
enum YamlDocument {
    Value(GoRuntimeValue),
    /// The text is not valid. The value is the error.
    Invalid(String),
}

/// The first document of a text.
///
/// # Errors
/// A limit was reached.
fn read(
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<YamlDocument, TemplateFunctionError> {
    let text = text(args, 0);
    json::read(call, text, weight(text))?;
    let value = crate::read_yaml(text);
    if let Ok(value) = &value
        && memchr::memchr(b'*', text).is_some()
    {
        // A node that an alias repeats exists again in memory.
        walked(call, value, MAP_ENTRY_OVERHEAD_BYTES)?;
    }
    Ok(match value {
        Ok(value) => YamlDocument::Value(value),
        Err(error) => YamlDocument::Invalid(format!("error converting YAML to JSON: {error}")),
    })
}

/// A value as YAML without the last newline.
///
/// # Errors
/// A limit was reached.
fn emit(
    call: &mut FunctionCallContext<'_>,
    value: &GoRuntimeValue,
) -> Result<JsonEncodingResult, TemplateFunctionError> {
    let limit = call.room();
    match goyaml::emit_value(&JsonRoundTripView(value.clone()), limit) {
        Ok(text) => {
            call.work(text.len() / 8)?;
            call.produce(text.len() + TEXT_OVERHEAD_BYTES)?;
            Ok(JsonEncodingResult::Text(without_newline(text)))
        }
        // Go converts the value to JSON first, so an error of that step takes precedence.
        Err(error) => {
            let json = json::encode(call, value, JsonLayout::default())?;
            if error.is_limit() {
                return Err(golang::fmt::Error::TooLong(limit).into());
            }
            Ok(JsonEncodingResult::Failure(match json {
                JsonEncodingResult::Failure(why) => why,
                JsonEncodingResult::Text(_) => error.to_string(),
            }))
        }
    }
}

fn without_newline(mut text: String) -> String {
    if text.ends_with('\n') {
        text.pop();
    }
    text
}

#[cfg(test)]
mod tests {
    use golang::time::{GoDuration, GoTime, GoTimeZone};

    use super::*;
    use crate::test_rendering::{check, render_with};

    fn check_with(template: &str, data: GoRuntimeValue, wanted: &str) {
        assert_eq!(render_with(template, data), wanted, "{template}");
    }

    fn values() -> GoRuntimeValue {
        GoRuntimeValue::map([
            (
                "f10",
                GoRuntimeValue::list([
                    GoRuntimeValue::Float(1e6),
                    GoRuntimeValue::int(5),
                    GoRuntimeValue::Nil,
                ]),
            ),
            ("f9", GoRuntimeValue::Bytes("abc".into())),
            ("y", GoRuntimeValue::from("yes")),
            ("t", GoRuntimeValue::object(GoTime::from_unix(1_577_923_200, 0, GoTimeZone::Utc))),
            ("d", GoRuntimeValue::object(GoDuration(1_500_000_000))),
            ("x", GoRuntimeValue::string(&b"\xff\xfe"[..])),
        ])
    }

    #[test]
    fn values_are_written_as_the_yaml_of_their_json() {
        let wanted = "d: 1500000000\nf9: YWJj\nf10:\n- 1000000\n- 5\n- null\nt: \"2020-01-02T00:00:00Z\"\nx: \u{fffd}\u{fffd}\n\"y\": \"yes\"";
        check_with("{{ toYaml . }}", values(), wanted);
        check_with("{{ mustToYaml . }}", values(), wanted);
        check("{{ toYaml nil }} {{ toYaml \"\" }} {{ toYaml 1e20 }}", "null \"\" 1e+20");
    }

    #[test]
    fn pretty_values_are_written_without_a_detour() {
        let wanted = "d: 1.5s\nf9:\n  - 97\n  - 98\n  - 99\nf10:\n  - 1e+06\n  - 5\n  - null\nt: 2020-01-02T00:00:00Z\nx: !!binary //4=\n\"y\": \"yes\"";
        check_with("{{ toYamlPretty . }}", values(), wanted);
        check("{{ toYamlPretty \"yes\" }} {{ toYamlPretty \"a\\nb\\n\" }}", "\"yes\" |\n  a\n  b");
    }

    #[test]
    fn what_has_no_yaml_is_empty_or_an_error() {
        check("{{ toYaml \"\\u0080\" }}", "");
        let error = "error calling mustToYaml: ";
        check(
            "{{ mustToYaml \"\\u0080\" }}",
            &format!("{error}yaml: control characters are not allowed"),
        );
        let infinite = GoRuntimeValue::Float(f64::NEG_INFINITY);
        check_with("{{ toYaml . }}", infinite.clone(), "");
        check_with(
            "{{ mustToYaml . }}",
            infinite.clone(),
            &format!("{error}json: unsupported value: -Inf"),
        );
        check_with("{{ toYamlPretty . }}", infinite, "-.inf");
        let map = GoMap::default();
        map.insert("a", GoRuntimeValue::Map(map.clone()));
        let cycle = "json: unsupported value: encountered a cycle via map[string]interface {}";
        check_with(
            "{{ mustToYaml . }}",
            GoRuntimeValue::Map(map.clone()),
            &format!("{error}{cycle}"),
        );
        let deep =
            "error calling toYamlPretty: the value is nested more than 10000 deep, or holds itself";
        check_with("{{ toYamlPretty . }}", GoRuntimeValue::Map(map.clone()), deep);
        map.remove(b"a");
    }

    #[test]
    fn maps_and_lists_are_read_or_hold_what_is_wrong() {
        check("{{ fromYaml \"a: 1\\nb: [x, y]\\n\" }}", "map[a:1 b:[x true]]");
        check("{{ fromYaml \"\" }} {{ fromYaml \"\" | toJson }}", "map[] {}");
        check(
            "{{ fromYaml \"- a\" }}",
            "map[Error:error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go value of type map[string]interface {}]",
        );
        check(
            "{{ fromYaml \"inf: .inf\" }}",
            "map[Error:error converting YAML to JSON: json: unsupported value: +Inf]",
        );
        check("{{ fromYamlArray \"[1, [2]]\" }}{{ fromYamlArray \"\" | toJson }}", "[1 [2]][]");
        check(
            "{{ fromYamlArray \"a: 1\" }}",
            "[error unmarshaling JSON: while decoding JSON: json: cannot unmarshal object into Go value of type []interface {}]",
        );
    }
}
