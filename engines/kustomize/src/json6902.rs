//! JSON patches (RFC 6902) as kustomize applies them: the object becomes JSON, is patched as evanphx's json-patch v4
//! does, and becomes YAML again, by which it loses its comments, the order of its keys, and the digits of integers
//! that no `float64` holds.
//!
//! Here: reading a patch and applying it. Below: JSON whose scalars keep their text (`json6902/json.rs`), the
//! operations (`json6902/operation.rs`), the way back to nodes (`json6902/nodes.rs`).

mod json;
mod nodes;
mod operation;

use golang::work_meter::WorkLimitExceeded;
use goyaml::YamlLimits;
use goyaml::v3::{self, YamlNode, YamlNodeKind};

use crate::budget::{self, BuildBudget};
use crate::field;
use json::JsonPatchValue;
use operation::JsonPatchOperation;

/// How deep lists and objects nest at most. Differs(kustomize): in kustomize it is 10 000.
pub const MAX_DEPTH: usize = 1_000;

/// Bytes of memory of a value, besides its text.
const VALUE_OVERHEAD_BYTES: usize = 64;

/// Why a patch is not valid, or does not apply. In the words of json-patch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is not YAML, or the object cannot be JSON.
    #[error(transparent)]
    Yaml(#[from] goyaml::Error),
    /// The text is not JSON.
    #[error(transparent)]
    Json(#[from] golang::json::Error),
    /// Something follows the JSON.
    #[error("invalid character {0} after top-level value")]
    Trailing(String),
    /// A value of another type than is needed there.
    #[error("json: cannot unmarshal {found} into Go value of type {wanted}")]
    Type {
        /// What it is.
        found: String,
        /// What it has to be, as Go names it.
        wanted: &'static str,
    },
    /// An operation that JSON patches do not have.
    #[error("Unexpected kind: {0}")]
    Kind(String),
    /// An operation does not fit the object.
    #[error("{0}")]
    Operation(String),
    /// The patched object has no text.
    #[error(transparent)]
    Emit(#[from] v3::NodeEmitError),
    /// Deeper than [`MAX_DEPTH`].
    #[error("patched object would be nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// Patch and object take too much time or memory.
    #[error(transparent)]
    Exhausted(#[from] WorkLimitExceeded),
}

/// Operations, to be applied one after the other.
#[derive(Debug, Clone)]
pub struct JsonPatch(Vec<JsonPatchOperation>);

impl JsonPatch {
    /// How many operations there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// How many bytes of memory it takes.
    pub(crate) fn weight(&self) -> usize {
        self.0.iter().flat_map(|operation| operation.0.values()).map(JsonPatchValue::weight).sum()
    }

    /// Whether there are no operations.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Reads a patch: JSON if it begins with `[`, else YAML 1.1. Operations are examined when they are applied.
///
/// # Errors
/// It is neither, or no list of objects.
pub fn parse(text: &str, limits: &YamlLimits) -> Result<JsonPatch, Error> {
    let json = if text.starts_with('[') {
        json::parse(text)?
    } else {
        json::from_value(&goyaml::to_json_within(text.as_bytes(), limits)?)
    };
    let items = match json {
        JsonPatchValue::List(items) => items,
        JsonPatchValue::Null => Vec::new(),
        other => return Err(other.not_a("jsonpatch.Patch")),
    };
    let operations = items.into_iter().map(|item| match item {
        JsonPatchValue::Object(fields) => Ok(JsonPatchOperation(fields)),
        JsonPatchValue::Null => Ok(JsonPatchOperation::default()),
        other => Err(other.not_a("jsonpatch.Operation")),
    });
    operations.collect::<Result<_, _>>().map(JsonPatch)
}

/// Applies a patch to an object. What has been a document stays one.
///
/// # Errors
/// The object has no JSON, or an operation does not apply; then the object is as it was.
pub fn apply(patch: &JsonPatch, object: &mut YamlNode, budget: &BuildBudget) -> Result<(), Error> {
    let before = budget::weight(object);
    budget.steps(4 * before)?;
    // Text, nodes, JSON, and JSON in which scalars keep their strings.
    let _here = budget.hold(2 * before)?;
    // Parity(kustomize): the patch is applied to the text, which may differ from the nodes.
    let text = field::text(object);
    let documents = v3::parse(text.as_bytes(), &YamlLimits::default())?;
    let value = match documents.first() {
        Some(document) => v3::to_json(document, &YamlLimits::default())?,
        None => serde_json::Value::Null,
    };
    let mut json = json::from_value(&value);
    match &json {
        JsonPatchValue::Object(_) | JsonPatchValue::List(_) => {}
        JsonPatchValue::Null => json = JsonPatchValue::Object(std::collections::BTreeMap::new()),
        JsonPatchValue::Scalar(_) | JsonPatchValue::AddedNull => {
            return Err(json.not_a("map[string]interface {}"));
        }
    }
    let mut added = 0;
    for operation in &patch.0 {
        operation.apply(&mut json, &mut added, budget)?;
    }
    let _added = budget.hold(added)?;
    let mut document = nodes::document(json)?;
    if object.kind != YamlNodeKind::Document
        && let Some(root) = document.content.pop()
    {
        document = root;
    }
    budget.grown(before, budget::weight(&document))?;
    *object = document;
    Ok(())
}

#[cfg(test)]
mod tests;
