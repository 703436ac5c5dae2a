//! Conditions: what a status says about its object.
//!
//! Here: the schema of a list of them, with the bounds that Kubernetes asks for.
//! Elsewhere: which conditions a run ends with (`engines/reconcile`).

use schemars::{Schema, SchemaGenerator, json_schema};

/// One condition; the type of k8s-openapi, whose JSON is Kubernetes' own.
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// The pattern of a condition's type: a label name with an optional domain in front.
const TYPE: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";

/// The schema of a list of conditions.
pub(crate) fn list(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "description": "One aspect of the object's state, as last observed.",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "lastTransitionTime": {
                    "type": "string",
                    "format": "date-time",
                    "description": "When `status` last took another value.",
                },
                "message": {
                    "type": "string",
                    "maxLength": 32768,
                    "description": "What happened, for people. May be empty.",
                },
                "observedGeneration": {
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                    "description": "The `metadata.generation` to which this condition refers.",
                },
                "reason": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                    "description": "Why, as one CamelCase word that programs may compare.",
                },
                "status": {
                    "type": "string",
                    "enum": ["True", "False", "Unknown"],
                    "description": "Whether the condition holds.",
                },
                "type": {
                    "type": "string",
                    "maxLength": 316,
                    "pattern": TYPE,
                    "description": "Which aspect this is, such as `Ready`.",
                },
            },
        },
    })
}
