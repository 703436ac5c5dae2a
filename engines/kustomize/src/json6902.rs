//! Applies JSON patches (RFC 6902) like kustomize. The object is converted to JSON, patched as by evanphx's json-patch v4, and
//! converted back to YAML. This loses comments, the order of keys, and digits of large integers beyond a `float64`.
//!
//! Here: reading a patch and applying it. Below: JSON that keeps the text of scalars (`json6902/text_preserving_json.rs`),
//! the operations (`json6902/operation.rs`), converting JSON to nodes (`json6902/json_to_yaml_nodes.rs`).

mod json_to_yaml_nodes;
mod operation;
mod text_preserving_json;

use golang::work_meter::WorkLimitExceeded;
use goyaml::YamlLimits;
use goyaml::v3::{self, YamlNode, YamlNodeKind};

use crate::budget::{self, BuildBudget};
use crate::field;
use operation::JsonPatchOperation;
use text_preserving_json::JsonPatchValue;

/// The deepest nesting of lists and objects. Differs(kustomize): in kustomize it is 10 000.
pub const MAX_DEPTH: usize = 1_000;

/// The memory of a value in addition to its text, in bytes.
const VALUE_OVERHEAD_BYTES: usize = 64;

/// Why a patch is not valid, or cannot be applied. The text is json-patch's.
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
    /// A value has another type than expected.
    #[error("json: cannot unmarshal {found} into Go value of type {wanted}")]
    Type {
        /// The type that was found.
        found: String,
        /// The expected type, as Go names it.
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
    /// Patch and object need too much time or memory.
    #[error(transparent)]
    Exhausted(#[from] WorkLimitExceeded),
}

/// Operations that are applied one after the other.
#[derive(Debug, Clone)]
pub struct JsonPatch(Vec<JsonPatchOperation>);

impl JsonPatch {
    /// The number of operations in the patch.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The memory of the patch in bytes.
    pub(crate) fn weight(&self) -> usize {
        self.0.iter().flat_map(|operation| operation.0.values()).map(JsonPatchValue::weight).sum()
    }

    /// Whether there are no operations.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Reads a patch. A text that begins with `[` is JSON, any other text is YAML 1.1. The operations are checked only when they
/// are applied.
///
/// # Errors
/// The text is neither JSON nor YAML, or is not a list of objects.
pub fn parse(text: &str, limits: &YamlLimits) -> Result<JsonPatch, Error> {
    let json = if text.starts_with('[') {
        text_preserving_json::parse(text)?
    } else {
        text_preserving_json::from_value(&goyaml::to_json_within(text.as_bytes(), limits)?)
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

/// Applies a patch to an object. A document node stays a document node.
///
/// # Errors
/// The object cannot be converted to JSON, or an operation does not apply. The object is unchanged then.
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
    let mut json = text_preserving_json::from_value(&value);
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
    let mut document = json_to_yaml_nodes::document(json)?;
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
