//! Checks rendered manifests and CRDs by the rules of `helm lint`.

use std::collections::BTreeMap;

use goyaml::DecodeTarget;
use serde_json::Value;

use super::{LintMessages, deprecated, object_names};
use crate::chart::{Chart, ChartFile, documents, extension, quoted};
use crate::render_environment::RenderEnvironment;

/// The fields of an object that Helm reads for a lint.
const OBJECT: &[(&str, DecodeTarget)] = &[
    ("apiVersion", DecodeTarget::Text),
    ("kind", DecodeTarget::Text),
    (
        "metadata",
        DecodeTarget::Struct(&[("namespace", DecodeTarget::Text), ("name", DecodeTarget::Text)]),
    ),
];

/// The part of an object that is checked.
#[derive(Debug, Default)]
struct LintedObject {
    api_version: String,
    kind: String,
    name: String,
}

/// Checks the rendered templates of a chart in their order. It stops at the first file that is not YAML.
pub(super) fn check(
    chart: &Chart,
    files: &BTreeMap<String, Vec<u8>>,
    env: &RenderEnvironment,
    found: &mut LintMessages,
) {
    for template in &chart.templates {
        let path = &template.name;
        let ending = extension(path);
        if !matches!(ending, ".yaml" | ".yml" | ".tpl" | ".txt") {
            found.error(
                path,
                format!(
                    "file extension '{ending}' not valid. Valid extensions are .yaml, .yml, .tpl, or .txt"
                ),
            );
        }
        if !matches!(ending.to_ascii_lowercase().as_str(), ".yaml" | ".yml") {
            continue;
        }
        let Some(text) = files.get(&format!("{}/{path}", chart.metadata.name)) else { continue };
        if text.trim_ascii().is_empty() {
            continue;
        }
        if let Some(line) = indented(text) {
            found.warn(
                path,
                format!(
                    "document starts with an illegal indent: {}, which may cause parsing problems",
                    quoted(&line)
                ),
            );
        }
        let is_read = each(path, text, found, |object, found| {
            if let Some(problem) = object_names::problem(&object.kind, &object.name) {
                found.warn(path, problem);
            }
            let version = &env.capabilities.kube_version;
            if let Some(text) = deprecated::warning(&object.api_version, &object.kind, version) {
                found.warn(path, text);
            }
            check_whole(path, object, text, found);
        });
        if !is_read {
            return;
        }
    }
}

/// Checks a file of CRDs. Returns false if the file is not YAML.
pub(super) fn check_crd(file: &ChartFile, found: &mut LintMessages) -> bool {
    let path = &file.name;
    each(path, &file.data, found, |object, found| {
        if !object.api_version.starts_with("apiextensions.k8s.io") {
            found.error(path, "apiVersion is not in 'apiextensions.k8s.io'");
        }
        if object.kind != "CustomResourceDefinition" {
            found.error(path, "object kind is not 'CustomResourceDefinition'");
        }
    })
}

/// Calls a function for each object of a text, until an object cannot be read.
fn each(
    path: &str,
    text: &[u8],
    found: &mut LintMessages,
    mut check: impl FnMut(&LintedObject, &mut LintMessages),
) -> bool {
    let documents = match documents(text) {
        Ok(documents) => documents,
        Err(error) => {
            found.error(path, format!("unable to parse YAML: {error}"));
            return false;
        }
    };
    for document in documents {
        match LintedObject::read(&document) {
            Ok(None) => {}
            Ok(Some(object)) => check(&object, found),
            Err(problem) => {
                found.error(path, format!("unable to parse YAML: {problem}"));
                return false;
            }
        }
    }
    true
}

impl LintedObject {
    /// Reads a document. `None` if it is empty.
    fn read(document: &[u8]) -> Result<Option<Self>, String> {
        let value = goyaml::to_json_for(document, &DecodeTarget::Struct(OBJECT))
            .map_err(|error| format!("error converting YAML to JSON: {error}"))?;
        let fields = match &value {
            Value::Null => return Ok(None),
            Value::Object(fields) => fields,
            other => return Err(misfit(other, "value of type rules.k8sYamlStruct")),
        };
        let mut object = Self::default();
        for (key, value) in fields {
            if goyaml::is_field(key, "apiVersion") {
                set(&mut object.api_version, value, "k8sYamlStruct.apiVersion")?;
            } else if goyaml::is_field(key, "kind") {
                set(&mut object.kind, value, "k8sYamlStruct.Kind")?;
            } else if goyaml::is_field(key, "metadata") {
                object.read_metadata(value)?;
            }
        }
        Ok(Some(object))
    }

    fn read_metadata(&mut self, metadata: &Value) -> Result<(), String> {
        let fields = match metadata {
            Value::Null => return Ok(()),
            Value::Object(fields) => fields,
            other => {
                let place = "struct field k8sYamlStruct.Metadata of type rules.k8sYamlMetadata";
                return Err(misfit(other, place));
            }
        };
        for (key, value) in fields {
            if goyaml::is_field(key, "name") {
                set(&mut self.name, value, "k8sYamlMetadata.Metadata.Name")?;
            } else if goyaml::is_field(key, "namespace") {
                set(&mut String::new(), value, "k8sYamlMetadata.Metadata.Namespace")?;
            }
        }
        Ok(())
    }
}

fn set(field: &mut String, value: &Value, name: &str) -> Result<(), String> {
    match value {
        Value::String(text) => field.clone_from(text),
        Value::Null => {}
        other => return Err(misfit(other, &format!("struct field {name} of type string"))),
    }
    Ok(())
}

fn misfit(value: &Value, place: &str) -> String {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    format!(
        "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {found} into Go {place}"
    )
}

/// The first line that is not empty, if it is indented. `None` if it is not, or if all lines are empty.
fn indented(text: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    let line = text.lines().find(|line| !line.trim().is_empty())?;
    line.starts_with([' ', '\t']).then(|| line.to_owned())
}

/// Checks for words anywhere in the file. Helm repeats this for each object of the file.
fn check_whole(path: &str, object: &LintedObject, text: &[u8], found: &mut LintMessages) {
    let has = |word: &str| memchr::memmem::find(text, word.as_bytes()).is_some();
    let kind = &object.kind;
    if matches!(kind.as_str(), "Deployment" | "ReplicaSet" | "DaemonSet" | "StatefulSet")
        && !has("matchLabels")
        && !has("matchExpressions")
    {
        let name = quoted(&object.name);
        found.error(
            path,
            format!("a {kind} must contain matchLabels or matchExpressions, and {name} does not"),
        );
    }
    if kind == "List" {
        let list = goyaml::to_json(text).unwrap_or_default();
        let items = list.get("items").and_then(Value::as_array);
        let is_kept = |item: &Value| {
            item.pointer("/metadata/annotations")
                .is_some_and(|it| it.get("helm.sh/resource-policy").is_some())
        };
        if items.is_some_and(|items| items.iter().any(is_kept)) {
            found.error(
                path,
                "annotation 'helm.sh/resource-policy' within List objects are ignored",
            );
        }
    }
}
