//! LifecycleEvent: asks one Lifecycle whether one operation may pass one phase, and has the answer.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::LifecyclePhase;
use super::lifecycle_binding::parameters;
use crate::custom_resource::{AGE, PrinterColumn, SUBJECT_KIND, SUBJECT_NAME, custom_resource};
use crate::string_enum::choice;
use crate::{Time, omit_empty, schema};

custom_resource! {
    /// One operation waits at one phase for the answer of one Lifecycle. windlass creates it and
    /// deletes it when the operation continues; who handles the Lifecycle writes its status.
    LifecycleEvent {
        spec: LifecycleEventSpec,
        status: LifecycleEventStatus,
        api: "lifecycle.windlass.dev" / "v1alpha1",
        plural: "lifecycleevents",
        short: ["lce"],
        category: "fluxcd-gates",
        columns: [
            PrinterColumn::text("Lifecycle", ".spec.lifecycle"),
            SUBJECT_KIND,
            SUBJECT_NAME,
            PrinterColumn::text("Phase", ".spec.phase"),
            PrinterColumn::text("State", ".status.phase"),
            PrinterColumn::text("Message", ".status.message"),
            AGE,
        ],
    }
}

/// What is asked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = [{
    "rule": "self == oldSelf",
    "message": "the spec of an event cannot be changed",
}]))]
pub struct LifecycleEventSpec {
    /// The key of the Lifecycle, which is the label `lifecycle.windlass.dev/key` as well.
    #[schemars(length(max = 63))]
    pub key: String,

    /// The name of the Lifecycle.
    #[schemars(length(max = 253))]
    pub lifecycle: String,

    /// The object that waits.
    pub subject: LifecycleEventSubject,

    /// The phase at which it waits.
    pub phase: LifecyclePhase,

    /// The name of the operation: the events of one operation have the same, and its audit has it as
    /// `id`.
    #[schemars(length(max = 512))]
    pub operation: String,

    /// The revision before the operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<LifecycleReleaseRevision>,

    /// What is to be there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<LifecycleReleaseRevision>,

    /// The parameters of the LifecycleBinding.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "parameters")]
    pub parameters: BTreeMap<String, String>,

    /// How many users have to approve; absent if a controller answers.
    #[serde(default, skip_serializing_if = "omit_empty::is_zero")]
    #[schemars(transform = schema::without_format)]
    pub approvals: i64,

    /// Until when it has to be answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
}

/// The object that waits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct LifecycleEventSubject {
    /// Its API group.
    #[schemars(length(max = 253))]
    pub group: String,

    /// Its kind.
    #[schemars(length(max = 63))]
    pub kind: String,

    /// Its namespace, which is that of the event.
    #[schemars(length(max = 253))]
    pub namespace: String,

    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,

    /// Its uid.
    #[schemars(length(max = 64))]
    pub uid: String,

    /// The Helm release that is operated on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<LifecycleHelmRelease>,
}

/// A Helm release, as `helm list` names it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct LifecycleHelmRelease {
    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,

    /// The namespace of its objects.
    #[schemars(length(max = 253))]
    pub namespace: String,

    /// The `kubeContext` that a helmfile gives it; empty in the cluster of `spec.kubeConfig`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub kube_context: String,
}

/// A revision of a release.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct LifecycleReleaseRevision {
    /// Its number.
    #[schemars(length(max = 512))]
    pub revision: String,

    /// The name of the chart.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub chart: Option<String>,

    /// The version of the chart.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub chart_version: Option<String>,
}

choice! {
    /// How far the answer is.
    LifecycleState {
        /// Nothing was answered.
        #[default]
        Pending = "Pending",
        /// A controller works on it.
        Running = "Running",
        /// The operation may continue.
        Succeeded = "Succeeded",
        /// The operation must not continue.
        Failed = "Failed",
        /// Nothing waits for the answer any more.
        Cancelled = "Cancelled",
    }
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = [{
    "rule": "!has(oldSelf.phase) || oldSelf.phase in ['Pending', 'Running'] || (has(self.phase) && self.phase == oldSelf.phase)",
    "message": "an answer is final",
}]))]
pub struct LifecycleEventStatus {
    /// How far the answer is. `Succeeded` has no effect where users approve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<LifecycleState>,

    /// The user who answered, as the API server names it.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub answered_by: Option<String>,

    /// More about `phase`, for people.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,

    /// What was done for the answer so far.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub steps: Vec<LifecycleEventProgressStep>,

    /// The users who approved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["user"]))]
    pub approvals: Vec<LifecycleApproval>,
}

/// A step on the way to an answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct LifecycleEventProgressStep {
    /// What it is.
    #[schemars(length(max = 253))]
    pub name: String,

    /// What came of it, for people.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub message: Option<String>,

    /// When it was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,
}

/// The approval of a user.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct LifecycleApproval {
    /// The user, as the API server names it.
    #[schemars(length(min = 1, max = 253))]
    pub user: String,

    /// When.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,

    /// Why.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub comment: Option<String>,
}
