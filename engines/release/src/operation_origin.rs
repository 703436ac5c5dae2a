//! The inputs with which an operation was begun. They are kept in its journal, so that the audit of the next operation can list
//! what changed.
//!
//! Elsewhere: comparing the inputs ([`crate::audit`]), reading them from objects (the program).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The most ConfigMaps and Secrets that are recorded, because the journal is written with every step.
const MAX_VALUES: usize = 32;

/// The inputs with which an operation began, kept in its journal for the audit of the next operation.
/// An empty string is an unknown value.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OperationOrigin {
    /// The generation of the spec.
    #[serde(skip_serializing_if = "is_zero")]
    pub generation: i64,
    /// The field manager that last changed the spec.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub manager: String,
    /// The reconciliation that an annotation requests and that was not handled yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<AnnotationRequest>,
    /// The rollback that an annotation requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollback: Option<AnnotationRequest>,
    /// The source, as `Kind/namespace/name`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// The revision of its artifact.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub revision: String,
    /// The `resourceVersion` of each ConfigMap and Secret with values, by `Kind/namespace/name`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, String>,
}

/// A reconciliation or rollback that was requested by annotation.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AnnotationRequest {
    /// The value of the annotation.
    pub at: String,
    /// The field manager that wrote the request.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub manager: String,
    /// The user who requested it, according to another annotation.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// The user's reason.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &i64) -> bool {
    *count == 0
}

impl OperationOrigin {
    /// Whether nothing is known about the origin.
    pub fn is_unknown(&self) -> bool {
        *self == Self::default()
    }

    /// Remembers the versions of ConfigMaps and Secrets, as many as fit.
    #[must_use]
    pub fn with_values(self, values: impl IntoIterator<Item = (String, String)>) -> Self {
        Self { values: values.into_iter().take(MAX_VALUES).collect(), ..self }
    }
}
