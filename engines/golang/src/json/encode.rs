//! Writes JSON as Go's `encoding/json` does.
//!
//! Here: values and their strings. Elsewhere: reading (`super`), and base64 (`base64`).

use std::any::Any;
use std::vec;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::strconv::{FloatTextFormat, format_float};
use crate::time::{GoTime, RFC3339_NANO};
use crate::value::{GoMap, GoObject, GoRuntimeValue, GoSlice, GoString, ReflectKind};

/// How deep values may be nested.
const MAX_DEPTH: usize = 10_000;
/// From which depth on Go checks whether a value contains itself.
const CYCLES_FROM: usize = 1_000;

/// The layout of written JSON.
#[derive(Debug, Clone, Copy)]
pub struct JsonLayout {
    /// Whether `<`, `>` and `&` are written as escapes.
    pub escapes_html: bool,
    /// The indentation of a level. Without it, everything is on one line.
    pub indent: Option<&'static str>,
}

impl Default for JsonLayout {
    /// The layout of `json.Marshal`: one line that is safe in HTML.
    fn default() -> Self {
        Self { escapes_html: true, indent: None }
    }
}

/// Why a value cannot be written as JSON. The messages are Go's, except those about the limits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonEncodeError {
    /// A float is infinite or not a number, or a value contains itself.
    #[error("json: unsupported value: {0}")]
    Value(String),
    /// The value is a function or a complex number.
    #[error("json: unsupported type: {0}")]
    Type(String),
    /// The value's own method reports that it cannot be written as JSON.
    #[error("json: error calling MarshalJSON for type {0}: {1}")]
    Marshaler(String, String),
    /// The value is nested too deeply. Go has no such limit.
    #[error("the value is nested more than {MAX_DEPTH} deep")]
    TooDeep,
    /// The text is longer than the limit.
    #[error("the JSON is longer than {0} bytes")]
    TooLong(usize),
}

/// Writes a value as `json.Marshal` does, in at most `limit` bytes. Keys are sorted byte by byte. The depth of the
/// value costs no stack.
///
/// # Errors
/// See [`JsonEncodeError`].
pub fn encode(
    value: &GoRuntimeValue,
    form: JsonLayout,
    limit: usize,
) -> Result<String, JsonEncodeError> {
    let mut encoder = JsonEncoder { out: String::new(), form, open: Vec::new() };
    encoder.begin(value.clone())?;
    while let Some(innermost) = encoder.open.last_mut() {
        match innermost.next() {
            Some((key, value)) => {
                encoder.separate(key.as_ref());
                encoder.begin(value)?;
            }
            None => encoder.close(),
        }
        if encoder.out.len() > limit {
            return Err(JsonEncodeError::TooLong(limit));
        }
    }
    Ok(encoder.out)
}

/// A list or object that is partly written.
struct OpenJsonEncodeContainer {
    rest: RemainingJsonItems,
    is_begun: bool,
}

enum RemainingJsonItems {
    List(GoSlice, usize),
    Map(GoMap, vec::IntoIter<(GoString, GoRuntimeValue)>),
    Fields(vec::IntoIter<(&'static str, GoRuntimeValue)>),
}

impl OpenJsonEncodeContainer {
    /// The next item to encode, with its key if it is in an object. `None` if no item is left.
    fn next(&mut self) -> Option<(Option<GoString>, GoRuntimeValue)> {
        match &mut self.rest {
            RemainingJsonItems::List(list, at) => {
                let item = list.items().get(*at)?.clone();
                *at += 1;
                Some((None, item))
            }
            RemainingJsonItems::Map(_, entries) => {
                entries.next().map(|(key, value)| (Some(key), value))
            }
            RemainingJsonItems::Fields(fields) => {
                fields.next().map(|(key, value)| (Some(key.into()), value))
            }
        }
    }

    fn is_list(&self) -> bool {
        matches!(self.rest, RemainingJsonItems::List(..))
    }

    /// Whether a value is the same collection, and not only an equal one.
    fn holds(&self, value: &GoRuntimeValue) -> bool {
        match (&self.rest, value) {
            (RemainingJsonItems::List(list, _), GoRuntimeValue::List(other)) => list.is_same(other),
            (RemainingJsonItems::Map(map, _), GoRuntimeValue::Map(other)) => map.is_same(other),
            _ => false,
        }
    }
}

struct JsonEncoder {
    out: String,
    form: JsonLayout,
    open: Vec<OpenJsonEncodeContainer>,
}

impl JsonEncoder {
    /// Writes a scalar or an empty collection, or opens a collection whose items are written later.
    fn begin(&mut self, mut value: GoRuntimeValue) -> Result<(), JsonEncodeError> {
        loop {
            match value {
                GoRuntimeValue::Nil => self.out.push_str("null"),
                GoRuntimeValue::Bool(truth) => {
                    self.out.push_str(if truth { "true" } else { "false" });
                }
                GoRuntimeValue::Integer(integer) if integer.kind().is_signed() => {
                    self.out.push_str(&integer.signed().to_string());
                }
                GoRuntimeValue::Integer(integer) => {
                    self.out.push_str(&integer.unsigned().to_string());
                }
                GoRuntimeValue::Float(float) => self.out.push_str(&number(float)?),
                GoRuntimeValue::Complex(..) | GoRuntimeValue::Function(_) => {
                    return Err(JsonEncodeError::Type(value.type_name()));
                }
                GoRuntimeValue::String(text) => {
                    string(&mut self.out, &text, self.form.escapes_html);
                }
                GoRuntimeValue::Bytes(bytes) => {
                    self.out.push('"');
                    STANDARD.encode_string(&*bytes, &mut self.out);
                    self.out.push('"');
                }
                GoRuntimeValue::List(list) if list.is_nil() => self.out.push_str("null"),
                GoRuntimeValue::List(list) => self.push(RemainingJsonItems::List(list, 0))?,
                GoRuntimeValue::Map(map) if map.is_nil() => self.out.push_str("null"),
                GoRuntimeValue::Map(map) => {
                    let entries = map.entries().into_iter();
                    self.push(RemainingJsonItems::Map(map, entries))?;
                }
                GoRuntimeValue::Object(object) => match instead(&*object)? {
                    None => {
                        self.push(RemainingJsonItems::Fields(object.json_fields().into_iter()))?;
                    }
                    Some(instead) => {
                        value = instead;
                        continue;
                    }
                },
            }
            return Ok(());
        }
    }

    fn push(&mut self, rest: RemainingJsonItems) -> Result<(), JsonEncodeError> {
        let value = match &rest {
            RemainingJsonItems::List(list, _) => GoRuntimeValue::List(list.clone()),
            RemainingJsonItems::Map(map, _) => GoRuntimeValue::Map(map.clone()),
            RemainingJsonItems::Fields(_) => GoRuntimeValue::Nil,
        };
        let depth = self.open.len();
        if depth >= CYCLES_FROM && self.open.iter().any(|open| open.holds(&value)) {
            let cycle = format!("encountered a cycle via {}", value.type_name());
            return Err(JsonEncodeError::Value(cycle));
        }
        if depth >= MAX_DEPTH {
            return Err(JsonEncodeError::TooDeep);
        }
        self.out.push(if matches!(rest, RemainingJsonItems::List(..)) { '[' } else { '{' });
        self.open.push(OpenJsonEncodeContainer { rest, is_begun: false });
        Ok(())
    }

    /// Writes the separator and the key before an item.
    fn separate(&mut self, key: Option<&GoString>) {
        if let Some(open) = self.open.last_mut() {
            if open.is_begun {
                self.out.push(',');
            }
            open.is_begun = true;
        }
        self.line(self.open.len());
        if let Some(key) = key {
            string(&mut self.out, key, self.form.escapes_html);
            self.out.push(':');
            if self.form.indent.is_some() {
                self.out.push(' ');
            }
        }
    }

    fn close(&mut self) {
        let Some(open) = self.open.pop() else { return };
        if open.is_begun {
            self.line(self.open.len());
        }
        self.out.push(if open.is_list() { ']' } else { '}' });
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = self.form.indent {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(indent, depth));
        }
    }
}

/// The value that is written instead of an object. `None` if the fields of the object are written.
fn instead(object: &dyn GoObject) -> Result<Option<GoRuntimeValue>, JsonEncodeError> {
    if object.is_nil() {
        return Ok(Some(GoRuntimeValue::Nil));
    }
    if let Some(marshalled) = marshalled(object) {
        let error = |error| JsonEncodeError::Marshaler(object.type_name().to_owned(), error);
        return marshalled.map(Some).map_err(error);
    }
    match (object.underlying(), object.kind()) {
        (Some(value), _) => Ok(Some(value)),
        (None, ReflectKind::Struct | ReflectKind::Pointer) => Ok(None),
        (None, _) => Err(JsonEncodeError::Type(object.type_name().to_owned())),
    }
}

/// The result of an object's method `MarshalJSON`, or the text of its error. `None` if the object does not have this
/// method.
///
/// Times and versions have it. In YAML and TOML, they are written as the same text.
pub fn marshalled(object: &dyn GoObject) -> Option<Result<GoRuntimeValue, String>> {
    let any: &dyn Any = object;
    if let Some(time) = any.downcast_ref::<GoTime>() {
        return Some(if (0..10_000).contains(&time.date().year) {
            Ok(GoRuntimeValue::from(time.format(RFC3339_NANO)))
        } else {
            Err("Time.MarshalJSON: year outside of range [0,9999]".to_owned())
        });
    }
    matches!(object.type_name(), "*semver.Version" | "semver.Version")
        .then(|| Ok(object.text().map_or(GoRuntimeValue::Nil, GoRuntimeValue::String)))
}

/// Writes a float in the form of ECMAScript.
fn number(float: f64) -> Result<String, JsonEncodeError> {
    if !float.is_finite() {
        return Err(JsonEncodeError::Value(format_float(float, FloatTextFormat::General, None)));
    }
    let size = float.abs();
    if float.fract() == 0.0 && size < 1e15 && float.is_sign_positive() {
        return Ok((float as i64).to_string());
    }
    if size == 0.0 || (1e-6..1e21).contains(&size) {
        return Ok(format_float(float, FloatTextFormat::Fixed, None));
    }
    let text = format_float(float, FloatTextFormat::Exponent, None);
    // `e-09` becomes `e-9`.
    Ok(match text.split_once("e-0") {
        Some((mantissa, digit)) => format!("{mantissa}e-{digit}"),
        None => text,
    })
}

/// Writes a string in quotes.
fn string(out: &mut String, text: &[u8], escapes_html: bool) {
    out.reserve(text.len() + 2);
    out.push('"');
    for chunk in text.utf8_chunks() {
        let valid = chunk.valid();
        let mut done = 0;
        for (at, byte) in valid.bytes().enumerate() {
            let escape = match byte {
                b'"' => "\\\"",
                b'\\' => "\\\\",
                b'\n' => "\\n",
                b'\r' => "\\r",
                b'\t' => "\\t",
                0x8 => "\\b",
                0xc => "\\f",
                b'<' if escapes_html => "\\u003c",
                b'>' if escapes_html => "\\u003e",
                b'&' if escapes_html => "\\u0026",
                0..=0x1f => CONTROLS[usize::from(byte)],
                // Line and paragraph separators end lines in JavaScript.
                0xe2 if valid[at..].starts_with('\u{2028}') => "\\u2028",
                0xe2 if valid[at..].starts_with('\u{2029}') => "\\u2029",
                _ => continue,
            };
            out.push_str(&valid[done..at]);
            out.push_str(escape);
            done = at + if byte == 0xe2 { '\u{2028}'.len_utf8() } else { 1 };
        }
        out.push_str(&valid[done..]);
        out.extend(chunk.invalid().iter().map(|_| "\\ufffd"));
    }
    out.push('"');
}

/// The escapes of the first characters.
const CONTROLS: [&str; 32] = [
    "\\u0000", "\\u0001", "\\u0002", "\\u0003", "\\u0004", "\\u0005", "\\u0006", "\\u0007",
    "\\u0008", "\\u0009", "\\u000a", "\\u000b", "\\u000c", "\\u000d", "\\u000e", "\\u000f",
    "\\u0010", "\\u0011", "\\u0012", "\\u0013", "\\u0014", "\\u0015", "\\u0016", "\\u0017",
    "\\u0018", "\\u0019", "\\u001a", "\\u001b", "\\u001c", "\\u001d", "\\u001e", "\\u001f",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::GoType;

    fn check(value: &GoRuntimeValue, wanted: &str) {
        let got = encode(value, JsonLayout::default(), 1 << 20);
        assert_eq!(got.unwrap_or_else(|error| error.to_string()), wanted);
    }

    #[test]
    fn numbers_are_written_as_ecmascript_does() {
        let floats = [1e6, 1e20, 1e21, 1e-6, 1e-7, -0.0, 0.1, 123_456_789_012.5, 5e-324, 1e-10];
        check(
            &GoRuntimeValue::list(floats.map(GoRuntimeValue::Float)),
            "[1000000,100000000000000000000,1e+21,0.000001,1e-7,-0,0.1,123456789012.5,5e-324,1e-10]",
        );
        check(&GoRuntimeValue::Float(f64::NEG_INFINITY), "json: unsupported value: -Inf");
        check(&GoRuntimeValue::Complex(1.0, 2.0), "json: unsupported type: complex128");
    }

    #[test]
    fn strings_are_escaped_for_html_and_javascript() {
        let text = GoRuntimeValue::string(
            &b"<&>\"\\\n\t\x08\x0c\x01\x7f\xff\xe2\x82\xc3\xa9\xe2\x80\xa8"[..],
        );
        check(
            &text,
            "\"\\u003c\\u0026\\u003e\\\"\\\\\\n\\t\\b\\f\\u0001\u{7f}\\ufffd\\ufffd\\ufffdé\\u2028\"",
        );
        let raw = JsonLayout { escapes_html: false, indent: None };
        assert_eq!(
            encode(&GoRuntimeValue::from("<&>\u{2028}"), raw, 99).unwrap(),
            "\"<&>\\u2028\""
        );
    }

    #[test]
    fn what_is_nil_is_null_and_what_is_empty_is_not() {
        let value = GoRuntimeValue::list([
            GoRuntimeValue::Nil,
            GoRuntimeValue::List(GoSlice::nil(GoType::Any)),
            GoRuntimeValue::list([]),
            GoRuntimeValue::Map(GoMap::nil(GoType::Any)),
            GoRuntimeValue::map::<&str>([]),
            GoRuntimeValue::Bytes("abc".into()),
        ]);
        check(&value, "[null,null,[],null,{},\"YWJj\"]");
        let form = JsonLayout { indent: Some("  "), ..JsonLayout::default() };
        let value = GoRuntimeValue::map([
            ("b", GoRuntimeValue::list([GoRuntimeValue::int(1), GoRuntimeValue::list([])])),
            ("a", GoRuntimeValue::Nil),
        ]);
        let pretty = "{\n  \"a\": null,\n  \"b\": [\n    1,\n    []\n  ]\n}";
        assert_eq!(encode(&value, form, 99).unwrap(), pretty);
    }

    #[test]
    fn times_and_versions_are_strings_and_durations_are_numbers() {
        use crate::time::{GoDuration, GoTimeZone};
        let time = GoTime::from_unix(1_577_923_200, 5_000_000, GoTimeZone::fixed("", 3600));
        let value = GoRuntimeValue::list([
            GoRuntimeValue::object(time),
            GoRuntimeValue::object(GoDuration(1_500)),
        ]);
        check(&value, "[\"2020-01-02T01:00:00.005+01:00\",1500]");
        let late = GoRuntimeValue::object(GoTime::from_unix(1 << 40, 0, GoTimeZone::Utc));
        check(
            &late,
            "json: error calling MarshalJSON for type time.Time: Time.MarshalJSON: year outside of range [0,9999]",
        );
    }

    #[test]
    fn what_holds_itself_or_grows_too_long_is_refused() {
        let map = GoMap::default();
        map.insert("a", GoRuntimeValue::Map(map.clone()));
        let cycle = "json: unsupported value: encountered a cycle via map[string]interface {}";
        check(&GoRuntimeValue::Map(map.clone()), cycle);
        map.remove(b"a");
        let long = encode(&GoRuntimeValue::from("x".repeat(200)), JsonLayout::default(), 100);
        assert!(matches!(long, Ok(_) | Err(JsonEncodeError::TooLong(100))));
        let items = GoRuntimeValue::list((0..200).map(GoRuntimeValue::int));
        assert_eq!(encode(&items, JsonLayout::default(), 100), Err(JsonEncodeError::TooLong(100)));
    }
}
