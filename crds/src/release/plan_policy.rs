//! PlanPolicy: how many objects may be deleted in some namespaces before a user has to approve it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::custom_resource::{AGE, PrinterColumn, custom_resource};
use crate::schema;

custom_resource! {
    /// The deletion budget of some namespaces. Where several PlanPolicies select a namespace, the
    /// strictest of each limit counts; where none does, the defaults are in force.
    PlanPolicy {
        spec: PlanPolicySpec,
        scope: Cluster,
        api: "release.windlass.dev" / "v1alpha1",
        plural: "planpolicies",
        short: [],
        category: "fluxcd-gates",
        columns: [
            PrinterColumn { type_: "boolean", ..PrinterColumn::text("Enabled", ".spec.deletionBudget.enabled") },
            PrinterColumn { type_: "integer", ..PrinterColumn::text("Max objects", ".spec.deletionBudget.maxObjects") },
            PrinterColumn { type_: "integer", ..PrinterColumn::text("Max percent", ".spec.deletionBudget.maxPercent") },
            AGE,
        ],
    }
}

/// What holds in which namespaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct PlanPolicySpec {
    /// Selects namespaces of Kustomizations by labels. An empty selector selects all of them.
    #[schemars(schema_with = "schema::label_selector")]
    pub namespace_selector: LabelSelector,

    /// What a Kustomization may delete without approval.
    pub deletion_budget: DeletionBudgetSpec,
}

/// What may be deleted without approval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct DeletionBudgetSpec {
    /// Whether deletions are limited. It has no effect where another PlanPolicy limits them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = true))]
    pub enabled: Option<bool>,

    /// How many objects may be deleted at once, and in an hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000), extend("default" = 10))]
    pub max_objects: Option<i64>,

    /// How many of the objects of a Kustomization with more than 10 objects may be deleted at once, and
    /// in an hour, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100), extend("default" = 30))]
    pub max_percent: Option<i64>,

    /// The kinds of which no object is deleted without approval, in place of the default: Namespace,
    /// PersistentVolume, PersistentVolumeClaim, CustomResourceDefinition, and StatefulSet, which counts
    /// if it has claims. Kinds that apply objects are always among them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub protected_kinds: Option<Vec<ProtectedKind>>,
}

/// A kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ProtectedKind {
    /// Its API group; empty for the core group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub group: String,

    /// The kind.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
}
