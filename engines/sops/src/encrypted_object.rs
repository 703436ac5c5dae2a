//! Encrypted objects of a build.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use crate::decryptor::{MacPolicy, SopsDecryptor};
use crate::error::Error;
use crate::format::SopsFormat;

/// Whether an object was decrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecryptionOutcome {
    /// It has nothing that Flux would decrypt.
    LeftAlone,
    /// The object is a Secret or was encrypted. Its content may be unchanged.
    Decrypted,
}

/// Switches decryption off, in any spelling of case, as an annotation only.
const ANNOTATION: &str = "kustomize.toolkit.fluxcd.io/decrypt";

fn text<'o>(object: &'o Map<String, Value>, path: &[&str]) -> &'o str {
    let mut members = object;
    let Some((last, outer)) = path.split_last() else { return "" };
    for name in outer {
        let Some(Value::Object(inner)) = members.get(*name) else { return "" };
        members = inner;
    }
    members.get(*last).and_then(Value::as_str).unwrap_or_default()
}

/// Whether an object was encrypted as a whole. Its `sops.mac` is then neither null nor an empty list or map.
fn is_encrypted(object: &Map<String, Value>) -> bool {
    let mac = object.get("sops").and_then(|sops| sops.get("mac"));
    mac.is_some_and(|mac| match mac {
        Value::Null => false,
        Value::Object(members) => !members.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => true,
    })
}

impl SopsDecryptor<'_> {
    /// Decrypts an object in place. If sops encrypted the object, all of it is decrypted. In a Secret, entries that are
    /// encrypted files are decrypted.
    ///
    /// # Errors
    /// The object and the part of it that cannot be decrypted. Changes up to this point remain in the object.
    pub fn decrypt_resource(
        &self,
        object: &mut Map<String, Value>,
    ) -> Result<DecryptionOutcome, Error> {
        if text(object, &["metadata", "annotations", ANNOTATION]).eq_ignore_ascii_case("disabled") {
            return Ok(DecryptionOutcome::LeftAlone);
        }
        if is_encrypted(object) {
            let kind = text(object, &["kind"]).to_owned();
            *object = self
                .whole(object)
                .map_err(|error| failed(object, format!("{kind} data"), error))?;
            return Ok(DecryptionOutcome::Decrypted);
        }
        if text(object, &["kind"]) != "Secret" {
            return Ok(DecryptionOutcome::LeftAlone);
        }
        let mut decrypted = Vec::new();
        for (name, value) in object.get("data").and_then(Value::as_object).into_iter().flatten() {
            let encoded = value.as_str().unwrap_or_default();
            let encoded: String =
                encoded.chars().filter(|char| !matches!(char, '\r' | '\n')).collect();
            // The API server refuses data that is not base64.
            let Ok(data) = STANDARD.decode(encoded) else { continue };
            let to = SopsFormat::of_name(name);
            if let Some(result) = self.entry(&data, to) {
                let what = format!("Secret field '{name}'");
                let plain = result.map_err(|error| failed(object, what, error))?;
                decrypted.push((name.clone(), STANDARD.encode(plain.as_slice())));
            }
        }
        match object.get_mut("data") {
            Some(Value::Object(data)) if !data.is_empty() => {
                data.values_mut().for_each(to_text);
                data.extend(decrypted.into_iter().map(|(name, text)| (name, Value::String(text))));
            }
            // Parity(flux): data without entries are removed.
            _ => drop(object.remove("data")),
        }
        Ok(DecryptionOutcome::Decrypted)
    }

    /// Decrypts an entry of a Secret, whose format is detected from its content. `None` if the content does not look
    /// encrypted in any of the formats.
    ///
    /// Differs(flux): in Flux the choice between formats is random; here it is the first that decrypts.
    fn entry(
        &self,
        data: &[u8],
        to: SopsFormat,
    ) -> Option<Result<crate::value::SecretBytes, Error>> {
        let mut result = None;
        for from in SopsFormat::detect(data) {
            let tried = self.decrypt(data, from, to);
            if tried.is_ok() {
                return Some(tried);
            }
            result.get_or_insert(tried);
        }
        result
    }

    fn whole(&self, object: &Map<String, Value>) -> Result<Map<String, Value>, Error> {
        let emit =
            |problem: &str| Error::Emit(SopsFormat::Json, SopsFormat::Json, problem.to_owned());
        let json = serde_json::to_vec(object).map_err(|_| emit("the object has no JSON"))?;
        let json = Zeroizing::new(json);
        // A build may have changed any part of the object.
        let lenient = self.with_mac(MacPolicy::Ignore);
        let plain = lenient.decrypt(&json, SopsFormat::Json, SopsFormat::Json)?;
        let mut plain: Map<String, Value> =
            serde_json::from_slice(&plain).map_err(|_| emit("the plain object is no JSON"))?;
        plain.values_mut().for_each(through_floats);
        Ok(plain)
    }
}

/// Converts an entry of a Secret's data to a string.
///
/// Parity(flux): kustomize's data are strings. A value without a text, such as null or a list, becomes an empty string.
fn to_text(value: &mut Value) {
    match value {
        Value::String(_) => {}
        Value::Bool(_) | Value::Number(_) => *value = Value::String(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => *value = Value::String(String::new()),
    }
}

/// Converts all numbers to a float and back.
///
/// Parity(flux): kustomize reads the plain object in this way, so integers beyond 2⁵³ lose digits.
fn through_floats(value: &mut Value) {
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(members) => open.extend(members.values_mut()),
            Value::Number(number) => {
                let float = golang::GoRuntimeValue::from(number.as_f64().unwrap_or_default());
                let text = golang::json::encode(&float, golang::json::JsonLayout::default(), 64);
                let read = text.ok().and_then(|text| serde_json::from_str(&text).ok());
                if let Some(read) = read {
                    *number = read;
                }
            }
            _ => {}
        }
    }
}

fn failed(object: &Map<String, Value>, what: String, error: Error) -> Error {
    Error::Object {
        namespace: text(object, &["metadata", "namespace"]).to_owned(),
        name: text(object, &["metadata", "name"]).to_owned(),
        what,
        error: Box::new(error),
    }
}
