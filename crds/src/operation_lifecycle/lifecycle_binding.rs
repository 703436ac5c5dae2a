//! LifecycleBinding: which objects of a namespace a lifecycle holds.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::LifecyclePhase;
use crate::custom_resource::{AGE, PrinterColumn, custom_resource};
use crate::omit_empty;
use crate::string_enum::choice;

custom_resource! {
    /// Has a Lifecycle hold objects of this namespace.
    LifecycleBinding {
        spec: LifecycleBindingSpec,
        api: "lifecycle.windlass.dev" / "v1alpha1",
        plural: "lifecyclebindings",
        short: [],
        category: "fluxcd-gates",
        columns: [PrinterColumn::text("Lifecycle", ".spec.lifecycle"), AGE],
    }
}

/// Which Lifecycle holds which objects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct LifecycleBindingSpec {
    /// The name of the Lifecycle. While it does not exist, the objects are not changed.
    #[schemars(length(min = 1, max = 253))]
    pub lifecycle: String,

    /// The objects that are held.
    #[schemars(length(min = 1, max = 32))]
    pub subjects: Vec<LifecycleSubject>,

    /// The phases; all of the Lifecycle if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 9))]
    pub phases: Vec<LifecyclePhase>,

    /// What its events say to who answers them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "parameters")]
    pub parameters: BTreeMap<String, String>,

    /// The place among the lifecycles that hold the same object at a phase: lower ones come first.
    #[serde(default, skip_serializing_if = "omit_empty::is_zero")]
    #[schemars(range(min = -1000, max = 1000))]
    pub order: i64,
}

/// Objects that are held.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct LifecycleSubject {
    /// Their kind.
    pub kind: SubjectKind,

    /// The name of one object; all of the kind without it.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub name: Option<String>,

    /// Labels that the objects have to have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

choice! {
    /// A kind whose objects are held.
    SubjectKind {
        /// A HelmRelease.
        #[default]
        HelmRelease = "HelmRelease",
        /// A Helmfile: each of its releases is held.
        Helmfile = "Helmfile",
        /// A Kustomization: its first revision is an installation, others are upgrades.
        Kustomization = "Kustomization",
    }
}

/// The schema of parameters: bounded, since each operation that is held keeps them in its journal.
pub(super) fn parameters(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 16,
        "additionalProperties": { "type": "string", "maxLength": 256 },
    })
}
