//! Prints nodes by converting them to JSON, so that comments, styles and the order of keys are lost.

use goyaml::YamlLimits;
use goyaml::v3::YamlNode;
use serde_json::Value;

use crate::budget::{self, BuildBudget};
use crate::error::{Error, ErrorContext as _, Result};
use crate::field_edit;
use crate::resource::{self, BuildResource};
use crate::transform::named;

/// The JSON value of a node. kustomize writes the node as YAML and reads it back.
///
/// # Errors
/// The node cannot be read back, for example because of keys that are not strings, or strings that do not match their tags.
pub(crate) fn value(node: &YamlNode) -> Result<Value> {
    // For most nodes writing and reading changes nothing. A node with an error is written all the same, because the error names
    // a line of the text.
    if goyaml::v3::is_stable(node)
        && let Ok(value) = goyaml::v3::to_json(node, &YamlLimits::default())
    {
        return Ok(value);
    }
    let failed = |error: &dyn std::fmt::Display| Error::new(error.to_string());
    let text = goyaml::v3::emit(node, &field_edit::LAYOUT).map_err(|error| failed(&error))?;
    let documents = goyaml::v3::parse(text.as_bytes(), &YamlLimits::default());
    let documents = documents.map_err(|error| failed(&error))?;
    let Some(document) = documents.first() else { return Ok(Value::Null) };
    goyaml::v3::to_json(document, &YamlLimits::default()).map_err(|error| failed(&error))
}

/// The text of an object.
///
/// # Errors
/// As [`value`].
pub(crate) fn yaml(node: &YamlNode) -> Result<String> {
    let value = value(node).map_err(|error| {
        // Parity(kustomize): the error shows the map that was read, which is empty if the text cannot be read.
        let is_unread = error.to_string().starts_with("yaml:");
        let id = resource::id(node);
        if is_unread { error.within("map[string]interface {}(nil)") } else { error.within(id) }
    })?;
    goyaml::emit::emit(&value).map_err(|error| Error::new(error.to_string()))
}

/// The text of objects; empty if there are none.
///
/// # Errors
/// As [`value`].
pub(crate) fn stream(resources: &[BuildResource], budget: &BuildBudget) -> Result<String> {
    let mut text = String::new();
    for resource in resources {
        if !text.is_empty() {
            text.push_str("---\n");
        }
        let yaml = counted(resource, budget).if_exhausted(|| named(resource))?;
        text.push_str(&yaml);
    }
    Ok(text)
}

/// The text of an object that is kept.
fn counted(resource: &BuildResource, budget: &BuildBudget) -> Result<String> {
    let weight = budget::weight(&resource.node);
    budget.steps(weight)?;
    let value = budget.hold(weight)?;
    let yaml = yaml(&resource.node)?;
    drop(value);
    budget.bytes(yaml.len())?;
    Ok(yaml)
}
