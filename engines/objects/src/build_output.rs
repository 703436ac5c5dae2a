//! Reads the objects that a build printed, as Flux does before it applies them. Errors have Flux's wording.
//!
//! Here: documents, splitting lists, documents that are left out. Elsewhere: hand-written manifests, with file and line
//! ([`crate::manifest`]).
//!
//! Source of the semantics: fluxcd/pkg/ssa 0.76 `utils.ReadObjects`, apimachinery 0.36 `util/yaml`.

use serde_json::{Map, Value};

/// Why a text is not a stream of objects. The messages have Go's wording.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildOutputError {
    /// After the dashes between two documents, there is text other than a comment.
    #[error("invalid Yaml document separator: {0}")]
    Separator(String),
    /// A document is not YAML.
    #[error("error converting YAML to JSON: {0}")]
    Yaml(String),
    /// A document is not a map.
    #[error(
        "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {0} into Go value of type map[string]interface {{}}"
    )]
    NoMap(&'static str),
    /// A document has no kind.
    #[error("error unmarshaling JSON: while decoding JSON: Object 'Kind' is missing in '{0}'")]
    NoKind(String),
    /// An element of a list is not an object.
    #[error("items member should be an object")]
    Item,
}

/// Reads all objects of a stream of YAML or JSON.
///
/// Lists of any kind are replaced by their items. Other documents are left out if they have no name or API version, and so are
/// kustomizations of kustomize itself. Whole numbers beyond 64 bits are floats, and `1.0` is the integer 1.
///
/// # Errors
/// The first document that is not an object.
pub fn read(text: &str) -> Result<Vec<Map<String, Value>>, BuildOutputError> {
    let mut objects = Vec::new();
    let mut rest = text;
    if text.trim_start().starts_with('{') {
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
        // A text that is not JSON may still be YAML that begins with a brace.
        while let Some(Ok(value)) = values.next() {
            add(value, &mut objects)?;
            rest = text.get(values.byte_offset()..).unwrap_or_default();
        }
    }
    for document in documents(rest)? {
        let value = goyaml::to_json(document.as_bytes())
            .map_err(|error| BuildOutputError::Yaml(error.to_string()))?;
        add(value, &mut objects)?;
    }
    Ok(objects)
}

/// The documents between lines that begin with three dashes.
fn documents(text: &str) -> Result<Vec<String>, BuildOutputError> {
    let mut documents = vec![String::new()];
    for line in text.split_inclusive('\n') {
        let Some(behind) = line.strip_prefix("---") else {
            if let Some(document) = documents.last_mut() {
                document.push_str(line);
            }
            continue;
        };
        let behind = behind.trim();
        if !behind.is_empty() && !behind.starts_with('#') {
            return Err(BuildOutputError::Separator(behind.to_owned()));
        }
        documents.push(String::new());
    }
    documents.retain(|document| !document.is_empty());
    Ok(documents)
}

fn add(value: Value, objects: &mut Vec<Map<String, Value>>) -> Result<(), BuildOutputError> {
    let mut object = match value {
        Value::Null => return Ok(()),
        Value::Object(object) => object,
        Value::String(_) => return Err(BuildOutputError::NoMap("string")),
        Value::Number(_) => return Err(BuildOutputError::NoMap("number")),
        Value::Bool(_) => return Err(BuildOutputError::NoMap("bool")),
        Value::Array(_) => return Err(BuildOutputError::NoMap("array")),
    };
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    if text("kind").is_empty() {
        return Err(BuildOutputError::NoKind(go_json(&object)));
    }
    let is_kustomization = text("kind").eq_ignore_ascii_case("kustomization")
        && text("apiVersion").starts_with("kustomize.config.k8s.io/");
    let name = object.get("metadata").and_then(|it| it.get("name")).and_then(Value::as_str);
    let is_object = name.is_some_and(|name| !name.is_empty()) && !text("apiVersion").is_empty();
    if matches!(object.get("items"), Some(Value::Array(_))) {
        let Some(Value::Array(items)) = object.remove("items") else { return Ok(()) };
        for item in items {
            let Value::Object(mut item) = item else { return Err(BuildOutputError::Item) };
            item.values_mut().for_each(as_go_numbers);
            objects.push(item);
        }
    } else if is_object && !is_kustomization {
        object.values_mut().for_each(as_go_numbers);
        objects.push(object);
    }
    Ok(())
}

/// Numbers that are not 64-bit integers are floats, and as in Go's JSON `1.0` is 1. The depth is bounded by the reader.
#[expect(clippy::cast_possible_truncation, reason = "the bounds are checked before")]
fn as_go_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if number.as_i64().is_none() => {
            let float = number.as_f64().unwrap_or_default();
            let is_whole = float.fract() == 0.0 && float.abs() < 2f64.powi(63);
            *value = if is_whole { Value::from(float as i64) } else { Value::from(float) };
        }
        Value::Array(items) => items.iter_mut().for_each(as_go_numbers),
        Value::Object(fields) => fields.values_mut().for_each(as_go_numbers),
        _ => {}
    }
}

/// Parity(go): `<`, `>` and `&` are escaped.
fn go_json(object: &Map<String, Value>) -> String {
    let text = serde_json::to_string(object).unwrap_or_default();
    text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        let objects = read(text).unwrap();
        let name = |it: &Map<String, Value>| it["metadata"]["name"].as_str().map(str::to_owned);
        objects.iter().filter_map(name).collect()
    }

    #[test]
    fn documents_and_lists_give_their_objects_in_order() {
        let text = "# nothing\n---\n{apiVersion: v1, kind: A, metadata: {name: a}}\n--- # next\nkind: AList\nitems:\n- metadata: {name: b}\n- metadata: {name: c}\n---\n";
        assert_eq!(names(text), ["a", "b", "c"]);
        let one = r#"{"apiVersion":"v1","kind":"A","metadata":{"name":"a"}}"#;
        assert_eq!(names(&format!("{one}\n{}", one.replace("\"a\"", "\"b\""))), ["a", "b"]);
        assert_eq!(names(&format!("{one}\n---\n{one}")), ["a", "a"]);
    }

    #[test]
    fn what_has_no_name_and_kustomizations_are_left_out() {
        assert!(read("apiVersion: v1\nkind: A\n").unwrap().is_empty());
        let own = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nmetadata: {name: k}\n";
        assert!(read(own).unwrap().is_empty());
    }

    #[test]
    fn a_document_that_is_no_object_is_refused() {
        assert_eq!(read("- a\n"), Err(BuildOutputError::NoMap("array")));
        assert_eq!(read("a: <\n"), Err(BuildOutputError::NoKind("{\"a\":\"\\u003c\"}".into())));
        assert_eq!(read("--- a\n"), Err(BuildOutputError::Separator("a".into())));
        assert_eq!(read("kind: L\nitems: [1]\n"), Err(BuildOutputError::Item));
        assert!(matches!(read("a: [\n"), Err(BuildOutputError::Yaml(_))));
    }
}
