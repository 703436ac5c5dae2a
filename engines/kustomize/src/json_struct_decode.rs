//! Decodes JSON values into structs like Go's `encoding/json`. Names match in any case. Only the first error is reported, and
//! it names the struct and field.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::budget::BuildBudget;
use crate::error::{Error, Result};

/// How strictly fields and types are checked when JSON is decoded into a struct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DecodeMode {
    /// Unknown fields are errors, and strings are strings.
    Strict,
    /// Unknown fields are errors. Numbers and booleans are converted to strings where a string is expected.
    StrictYaml,
    /// Like `StrictYaml`, but unknown fields are ignored.
    Yaml,
}

/// The state of one decoding.
#[derive(Debug)]
pub(crate) struct JsonFieldDecoder {
    mode: DecodeMode,
    structure: &'static str,
    path: Vec<&'static str>,
    first_error: Option<String>,
}

impl JsonFieldDecoder {
    fn fail(&mut self, text: String) {
        self.first_error.get_or_insert(text);
    }

    /// Notes that a value is of the wrong type.
    fn mismatch(&mut self, value: &Value, wanted: &str) {
        let got = match value {
            Value::Null => "null".to_owned(),
            Value::Bool(_) => "bool".to_owned(),
            Value::Number(number) if wanted.starts_with("int") => format!("number {number}"),
            Value::Number(_) => "number".to_owned(),
            Value::String(_) => "string".to_owned(),
            Value::Array(_) => "array".to_owned(),
            Value::Object(_) => "object".to_owned(),
        };
        let place = if self.structure.is_empty() {
            "Go value".to_owned()
        } else {
            format!("Go struct field {}.{}", self.structure, self.path.join("."))
        };
        self.fail(format!("json: cannot unmarshal {got} into {place} of type {wanted}"));
    }

    fn unknown(&mut self, name: &str) {
        if self.mode != DecodeMode::Yaml {
            let name =
                golang::strconv::quote(name.as_bytes(), golang::strconv::QuotingStyle::Printable);
            self.fail(format!("json: unknown field {}", String::from_utf8_lossy(&name)));
        }
    }

    /// Decodes the fields of a struct. The closure `field` decodes the field with a given index in `names`.
    ///
    /// A name may begin with the names of embedded structs, each followed by a dot. They appear only in errors.
    pub(crate) fn fields(
        &mut self,
        structure: &'static str,
        names: &[&'static str],
        fields: &Map<String, Value>,
        field: &mut dyn FnMut(usize, &Value, &mut Self),
    ) {
        let outer = std::mem::replace(&mut self.structure, structure);
        for (name, value) in fields {
            let own = |known: &str| known.rsplit('.').next() == Some(name.as_str());
            let similar = |known: &str| {
                known.rsplit('.').next().is_some_and(|known| known.eq_ignore_ascii_case(name))
            };
            let exact = names.iter().position(|known| own(known));
            let known = exact.or_else(|| names.iter().position(|known| similar(known)));
            match known {
                Some(at) => {
                    self.path.push(names[at]);
                    field(at, value, self);
                    self.path.pop();
                }
                None => self.unknown(name),
            }
        }
        self.structure = outer;
    }

    /// Notes that a struct was wanted.
    pub(crate) fn no_struct(&mut self, value: &Value, go_type: &str) {
        self.mismatch(value, go_type);
    }
}

/// A type that can be decoded from a JSON value.
pub(crate) trait DecodableField: Default {
    /// The type's name, as Go prints it.
    fn go_type() -> String;

    /// Reads a value. A null changes nothing.
    fn decode(&mut self, value: &Value, decoder: &mut JsonFieldDecoder);
}

/// Decodes a whole value.
///
/// # Errors
/// The first thing that does not fit, in Go's words.
pub(crate) fn decode<T: DecodableField>(value: &Value, mode: DecodeMode) -> Result<T> {
    let mut decoder = JsonFieldDecoder { mode, structure: "", path: Vec::new(), first_error: None };
    let mut result = T::default();
    result.decode(value, &mut decoder);
    match decoder.first_error {
        Some(text) => Err(Error::new(text)),
        None => Ok(result),
    }
}

/// Decodes YAML as `sigs.k8s.io/yaml` does.
///
/// # Errors
/// The text is not YAML, or does not fit.
pub(crate) fn from_yaml<T: DecodableField>(
    text: &[u8],
    mode: DecodeMode,
    budget: &BuildBudget,
) -> Result<T> {
    let limits = budget.reading(text.len())?;
    let value = match mode == DecodeMode::StrictYaml {
        true => goyaml::to_json_strict_within(text, &limits),
        false => goyaml::to_json_within(text, &limits),
    };
    let value =
        value.map_err(|error| Error::new(format!("error converting YAML to JSON: {error}")))?;
    decode(&value, mode)
        .map_err(|error| error.within("error unmarshaling JSON: while decoding JSON"))
}

impl DecodableField for String {
    fn go_type() -> String {
        "string".to_owned()
    }

    fn decode(&mut self, value: &Value, decoder: &mut JsonFieldDecoder) {
        match value {
            Value::Null => {}
            Value::String(text) => self.clone_from(text),
            Value::Bool(_) | Value::Number(_) if decoder.mode != DecodeMode::Strict => {
                *self = value.to_string();
            }
            other => decoder.mismatch(other, "string"),
        }
    }
}

impl DecodableField for Cow<'static, str> {
    fn go_type() -> String {
        String::go_type()
    }

    fn decode(&mut self, value: &Value, decoder: &mut JsonFieldDecoder) {
        let mut text = std::mem::take(self).into_owned();
        text.decode(value, decoder);
        *self = text.into();
    }
}

impl DecodableField for bool {
    fn go_type() -> String {
        "bool".to_owned()
    }

    fn decode(&mut self, value: &Value, decoder: &mut JsonFieldDecoder) {
        match value {
            Value::Null => {}
            Value::Bool(claim) => *self = *claim,
            other => decoder.mismatch(other, "bool"),
        }
    }
}

/// Go's `int64`.
impl DecodableField for i64 {
    fn go_type() -> String {
        "int64".to_owned()
    }

    fn decode(&mut self, value: &Value, decoder: &mut JsonFieldDecoder) {
        match value {
            Value::Null => {}
            value => match value.as_i64() {
                Some(number) => *self = number,
                None => decoder.mismatch(value, "int64"),
            },
        }
    }
}

/// A field of Go's type `int`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct GoInt(pub(crate) i64);

impl DecodableField for GoInt {
    fn go_type() -> String {
        "int".to_owned()
    }

    fn decode(&mut self, value: &Value, decoder: &mut JsonFieldDecoder) {
        match value {
            Value::Null => {}
            value => match value.as_i64() {
                Some(number) => self.0 = number,
                None => decoder.mismatch(value, "int"),
            },
        }
    }
}

impl<T: DecodableField> DecodableField for Vec<T> {
    fn go_type() -> String {
        format!("[]{}", T::go_type())
    }

    fn decode(&mut self, value: &Value, decoder: &mut JsonFieldDecoder) {
        match value {
            Value::Null => self.clear(),
            Value::Array(items) => {
                self.clear();
                for item in items {
                    let mut new = T::default();
                    new.decode(item, decoder);
                    self.push(new);
                }
            }
            other => decoder.mismatch(other, &Self::go_type()),
        }
    }
}

impl<T: DecodableField> DecodableField for Option<T> {
    fn go_type() -> String {
        T::go_type()
    }

    fn decode(&mut self, value: &Value, decoder: &mut JsonFieldDecoder) {
        match value {
            Value::Null => *self = None,
            value => self.get_or_insert_default().decode(value, decoder),
        }
    }
}

impl<T: DecodableField> DecodableField for BTreeMap<String, T> {
    fn go_type() -> String {
        format!("map[string]{}", T::go_type())
    }

    fn decode(&mut self, value: &Value, decoder: &mut JsonFieldDecoder) {
        match value {
            Value::Null => self.clear(),
            Value::Object(entries) => {
                for (key, value) in entries {
                    let mut new = T::default();
                    new.decode(value, decoder);
                    self.insert(key.clone(), new);
                }
            }
            other => decoder.mismatch(other, &Self::go_type()),
        }
    }
}

impl DecodableField for Value {
    fn go_type() -> String {
        "interface {}".to_owned()
    }

    fn decode(&mut self, value: &Value, _: &mut JsonFieldDecoder) {
        self.clone_from(value);
    }
}

/// Maps the fields of a struct to their names in JSON.
macro_rules! decode_struct {
    ($type:ty, $package:literal, $name:literal, { $($key:literal => $($field:ident).+),* $(,)? }) => {
        impl $crate::json_struct_decode::DecodableField for $type {
            fn go_type() -> String {
                concat!($package, ".", $name).to_owned()
            }

            fn decode(&mut self, value: &serde_json::Value, decoder: &mut $crate::json_struct_decode::JsonFieldDecoder) {
                let fields = match value {
                    serde_json::Value::Null => return,
                    serde_json::Value::Object(fields) => fields,
                    other => return decoder.no_struct(other, &Self::go_type()),
                };
                const NAMES: &[&str] = &[$($key),*];
                decoder.fields($name, NAMES, fields, &mut |at, value, decoder| match NAMES[at] {
                    $($key => $crate::json_struct_decode::DecodableField::decode(&mut self.$($field).+, value, decoder),)*
                    _ => {}
                });
            }
        }
    };
}

pub(crate) use decode_struct;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::{DecodeMode, GoInt, decode};

    #[derive(Debug, Default, PartialEq)]
    struct InnerFixture {
        count: i64,
    }

    decode_struct!(InnerFixture, "types", "Inner", { "Embedded.count" => count });

    #[derive(Debug, Default, PartialEq)]
    struct OuterFixture {
        name: String,
        inner: Vec<InnerFixture>,
        strings: BTreeMap<String, String>,
        number: Option<GoInt>,
    }

    decode_struct!(OuterFixture, "types", "Outer", {
        "name" => name,
        "inner" => inner,
        "strings" => strings,
        "number" => number,
    });

    fn check(value: &serde_json::Value, mode: DecodeMode, wanted: Result<OuterFixture, &str>) {
        let decoded = decode::<OuterFixture>(value, mode).map_err(|error| error.to_string());
        assert_eq!(decoded, wanted.map_err(str::to_owned), "{value}");
    }

    #[test]
    fn names_fit_in_any_case_and_errors_are_those_of_go() {
        let value = json!({ "NAME": "a", "Inner": [{ "Count": 3 }], "number": null });
        let wanted = OuterFixture {
            name: "a".to_owned(),
            inner: vec![InnerFixture { count: 3 }],
            ..OuterFixture::default()
        };
        check(&value, DecodeMode::Strict, Ok(wanted));
        let cases = [
            (
                json!({ "name": true }),
                "cannot unmarshal bool into Go struct field Outer.name of type string",
            ),
            (
                json!({ "inner": [{ "count": "3" }] }),
                "cannot unmarshal string into Go struct field Inner.inner.Embedded.count of type int64",
            ),
            (
                json!({ "inner": {} }),
                "cannot unmarshal object into Go struct field Outer.inner of type []types.Inner",
            ),
            (
                json!({ "strings": { "a": 1 } }),
                "cannot unmarshal number into Go struct field Outer.strings of type string",
            ),
            (
                json!({ "number": 1.5 }),
                "cannot unmarshal number 1.5 into Go struct field Outer.number of type int",
            ),
            (json!([]), "cannot unmarshal array into Go value of type types.Outer"),
            (json!({ "names": 1 }), "unknown field \"names\""),
        ];
        for (value, wanted) in cases {
            check(&value, DecodeMode::Strict, Err(&format!("json: {wanted}")));
        }
    }

    #[test]
    fn yaml_bends_numbers_into_strings_and_may_ignore_what_it_does_not_know() {
        let value = json!({ "name": 12, "other": 1 });
        let wanted = || OuterFixture { name: "12".to_owned(), ..OuterFixture::default() };
        check(&value, DecodeMode::Yaml, Ok(wanted()));
        check(&value, DecodeMode::StrictYaml, Err("json: unknown field \"other\""));
    }
}
