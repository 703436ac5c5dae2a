//! The fields of a manifest that Helm reads before it knows the object: kind, name and annotations.
//!
//! Helm reads them into a struct. Keys therefore match without regard to case, numbers and booleans become strings, and
//! a value of another type is an error in the words of Go's `encoding/json`. Elsewhere: YAML (`goyaml`).

use std::collections::BTreeMap;

use serde_json::{Map, Number, Value};

/// The part of a manifest that Helm reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ManifestHead {
    /// `apiVersion`.
    pub api_version: String,
    /// `kind`.
    pub kind: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
}

/// Why a manifest cannot be read. The messages are Helm's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestHeadError {
    /// The text is not YAML.
    #[error("error converting YAML to JSON: {0}")]
    Yaml(#[from] goyaml::Error),
    /// A value has another type than its field.
    #[error(
        "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {found} into {place}"
    )]
    Shape {
        /// The type of the value, in Go's words for JSON.
        found: &'static str,
        /// The field and its type, as Go names them.
        place: &'static str,
    },
}

const ROOT: &str = "Go value of type util.SimpleHead";
const API_VERSION: &str = "Go struct field SimpleHead.apiVersion of type string";
const KIND: &str = "Go struct field SimpleHead.kind of type string";
const METADATA: &str = r#"Go struct field SimpleHead.metadata of type struct { Name string "json:\"name\""; Annotations map[string]string "json:\"annotations\"" }"#;
const NAME: &str = "Go struct field .metadata.name of type string";
const ANNOTATIONS: &str = "Go struct field .metadata.annotations of type map[string]string";
const ANNOTATION: &str = "Go struct field .metadata.annotations of type string";

impl ManifestHead {
    /// Reads the first document of a text.
    ///
    /// # Errors
    /// The text is not YAML, or does not have the form of an object.
    pub fn parse(text: &[u8]) -> Result<Self, ManifestHeadError> {
        let mut head = Self::default();
        match goyaml::to_json_of(text, is_read)? {
            Value::Null => Ok(head),
            Value::Object(object) => head.fill(&object).map(|()| head),
            other => Err(misfit(&other, ROOT)),
        }
    }

    /// The value of an annotation of the manifest. `None` if the manifest does not have the annotation.
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.annotations.get(name).map(String::as_str)
    }

    /// Fills the fields. Keys that differ only in case fill the same field, in the order of their bytes.
    fn fill(&mut self, object: &Map<String, Value>) -> Result<(), ManifestHeadError> {
        for (key, value) in object {
            if is_field(key, "apiVersion") {
                set(&mut self.api_version, value, API_VERSION)?;
            } else if is_field(key, "kind") {
                set(&mut self.kind, value, KIND)?;
            } else if is_field(key, "metadata") {
                match value {
                    Value::Null => {
                        self.name.clear();
                        self.annotations.clear();
                    }
                    Value::Object(metadata) => self.fill_metadata(metadata)?,
                    other => return Err(misfit(other, METADATA)),
                }
            }
        }
        Ok(())
    }

    fn fill_metadata(&mut self, metadata: &Map<String, Value>) -> Result<(), ManifestHeadError> {
        for (key, value) in metadata {
            if is_field(key, "name") {
                set(&mut self.name, value, NAME)?;
            } else if is_field(key, "annotations") {
                match value {
                    Value::Null => self.annotations.clear(),
                    Value::Object(annotations) => {
                        for (name, value) in annotations {
                            let mut text = String::new();
                            set(&mut text, value, ANNOTATION)?;
                            self.annotations.insert(name.clone(), text);
                        }
                    }
                    other => return Err(misfit(other, ANNOTATIONS)),
                }
            }
        }
        Ok(())
    }
}

/// Whether an entry with this key is needed at this depth of maps.
///
/// Skipping the others saves most of the time, because CRDs have megabytes.
fn is_read(depth: usize, key: &str) -> bool {
    let fields: &[&str] = match depth {
        1 => &["apiVersion", "kind", "metadata"],
        2 => &["name", "annotations"],
        _ => return true,
    };
    fields.iter().any(|field| is_field(key, field))
}

/// Whether `encoding/json` accepts a key for this field. Two letters outside of ASCII count as ASCII letters.
fn is_field(key: &str, field: &str) -> bool {
    if key.is_ascii() {
        return key.eq_ignore_ascii_case(field);
    }
    let folded = |character: char| match character {
        'ſ' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    };
    key.chars().map(folded).eq(field.chars().map(folded))
}

/// Sets a text field to a value. A null changes nothing.
fn set(field: &mut String, value: &Value, place: &'static str) -> Result<(), ManifestHeadError> {
    *field = match value {
        Value::Null => return Ok(()),
        Value::String(text) => text.clone(),
        Value::Bool(truth) => truth.to_string(),
        Value::Number(number) => number_text(number),
        Value::Array(_) | Value::Object(_) => return Err(misfit(value, place)),
    };
    Ok(())
}

/// Writes a YAML number into a text field, as `sigs.k8s.io/yaml` does: floats with the precision of 32 bits.
///
/// Differs(helm): a whole float such as `1e6` is an integer here, so it is `1000000` and not `1e+06`.
#[expect(clippy::cast_possible_truncation, reason = "the precision that Go writes")]
fn number_text(number: &Number) -> String {
    let float = match (number.is_f64(), number.as_f64()) {
        (true, Some(float)) => float as f32,
        _ => return number.to_string(),
    };
    let scientific = format!("{float:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    match exponent.parse::<i32>() {
        Ok(small) if (-4..6).contains(&small) => float.to_string(),
        Ok(exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
        }
        Err(_) => scientific,
    }
}

fn misfit(value: &Value, place: &'static str) -> ManifestHeadError {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    ManifestHeadError::Shape { found, place }
}
