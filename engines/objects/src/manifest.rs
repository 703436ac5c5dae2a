//! Reads objects from manifests that users write, and remembers the file and line of each object.
//!
//! Here: documents of a YAML stream, splitting `List` objects, errors with file and line.
//! Elsewhere: the meaning of a folder of manifests (the kustomization that reads it).

use serde_json::Value;

use crate::object::{Object, ObjectError};

/// An object, with the file and line where it was written.
#[derive(Debug, Clone, PartialEq)]
pub struct LocatedObject {
    /// File, relative to the root of the artifact.
    pub file: String,
    /// Line on which its document starts, counted from 1.
    pub line: usize,
    /// The object.
    pub object: Object,
}

/// Why a file is not a stream of Kubernetes manifests. `Display` names file and line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// The text is not YAML.
    #[error("{file}{}: {problem}", line.map(|line| format!(":{line}")).unwrap_or_default())]
    Yaml {
        /// The name of the file.
        file: String,
        /// The line in the file, if it is known.
        line: Option<usize>,
        /// The syntax error, in Go's words.
        problem: String,
    },
    /// The document is YAML but not an object.
    #[error("{file}:{line}: {cause}")]
    NotAnObject {
        /// The name of the file.
        file: String,
        /// Line on which the document starts.
        line: usize,
        /// The missing part of the object.
        cause: ObjectError,
    },
}

/// Reads every object of a YAML or JSON stream. An object of a `List` kind is replaced by its items.
///
/// # Errors
/// The first document that is not an object, or the first place that is not valid YAML.
pub fn read(
    file: &str,
    text: &[u8],
    limits: &goyaml::YamlLimits,
) -> Result<Vec<LocatedObject>, ManifestError> {
    let documents = goyaml::documents(text, limits).map_err(|error| ManifestError::Yaml {
        file: file.into(),
        line: error.line(),
        problem: error.problem().to_owned(),
    })?;
    let mut found = Vec::with_capacity(documents.len());
    for document in documents {
        let line = document.line;
        for value in items(document.value) {
            let object = Object::new(value).map_err(|cause| ManifestError::NotAnObject {
                file: file.into(),
                line,
                cause,
            })?;
            found.push(LocatedObject { file: file.into(), line, object });
        }
    }
    Ok(found)
}

/// The items of a `List`. Any other value is returned as the only item.
fn items(value: Value) -> Vec<Value> {
    let is_list = value.get("kind").and_then(Value::as_str).is_some_and(|k| k.ends_with("List"))
        && value.get("items").is_some_and(Value::is_array);
    match value {
        Value::Object(mut map) if is_list => match map.remove("items") {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        },
        other => vec![other],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Vec<String>, String> {
        read("a.yaml", text.as_bytes(), &goyaml::YamlLimits::default())
            .map(|all| {
                all.iter().map(|l| format!("{}:{}", l.object.id().subject(), l.line)).collect()
            })
            .map_err(|e| e.to_string())
    }

    #[test]
    fn every_document_is_an_object_with_its_line() {
        let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop}\n---\n# nothing\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: b}\n";
        assert_eq!(read_text(text).unwrap(), ["ConfigMap/shop/a:1", "Namespace/b:7"]);
    }

    #[test]
    fn a_list_is_taken_apart() {
        let text = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: s}}\n";
        assert_eq!(read_text(text).unwrap(), ["Secret/s:1"]);
    }

    #[test]
    fn a_document_that_is_no_object_is_named_by_file_and_line() {
        let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\nkind: Pod\n";
        assert_eq!(
            read_text(text).unwrap_err(),
            "a.yaml:5: `apiVersion` is missing or not a string; every manifest requires it"
        );
    }

    #[test]
    fn a_document_that_is_no_yaml_is_named_by_file_and_line() {
        assert_eq!(
            read_text("a: 1\n b: 2\n").unwrap_err(),
            "a.yaml:2: mapping values are not allowed in this context"
        );
    }
}
