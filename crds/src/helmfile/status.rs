//! The status of a Helmfile: a row for each release.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::{self, Condition};
use crate::helm::HelmReleaseStatus;
use crate::omit_empty;
use crate::string_enum::choice;

/// What was last applied, and how each release is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("default" = { "observedGeneration": -1 }))]
pub struct HelmfileStatus {
    /// The generation of the spec that was last reconciled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The conditions of this object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::list")]
    pub conditions: Vec<Condition>,

    /// The revision of the source whose releases were last all applied with success.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub last_applied_revision: Option<String>,

    /// The revision of the source that was last attempted.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub last_attempted_revision: Option<String>,

    /// The releases that are in the cluster or are to be there, those that are needed first. It is the
    /// inventory: a release is in it before it is installed, and until it is uninstalled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    // Atomic, since one writes all of it: hundreds of rows would each have their fields noted in `managedFields`.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub releases: Vec<HelmfileReleaseStatus>,

    /// The value of the `reconcile.fluxcd.io/requestedAt` annotation that was last handled.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
}

/// How one release is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmfileReleaseStatus {
    /// The name of the release.
    pub name: String,

    /// The namespace of the release.
    pub namespace: String,

    /// The `kubeContext` that the helmfile gives it; empty in the cluster of `spec.kubeConfig`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(extend("default" = ""))]
    pub kube_context: String,

    /// The file of the helmfile that has the release, in the source; a digest of a long path.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub helmfile: Option<String>,

    /// Where it is in its life.
    pub state: ReleaseState,

    /// The name and version of its chart, as `helm list` writes it.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub chart: Option<String>,

    /// Its revision in Helm's history.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,

    /// The digest of its chart and values, as they were last applied with success.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub digest: Option<String>,

    /// More about `state`, for people.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub message: Option<String>,

    /// The releases that it needs, as `NAMESPACE/NAME`, or `KUBECONTEXT/NAMESPACE/NAME`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<String>,

    /// The state of the release as a HelmRelease has it: conditions, history, inventory.
    #[serde(default)]
    pub status: HelmReleaseStatus,
}

choice! {
    /// Where a release is in its life.
    ReleaseState {
        /// Nothing was done yet.
        #[default]
        Pending = "Pending",
        /// A release that it needs is not there yet.
        Waiting = "Waiting",
        /// An operation of Helm is under way.
        Progressing = "Progressing",
        /// It is as the helmfile says.
        Ready = "Ready",
        /// The last operation failed.
        Failed = "Failed",
        /// It is not changed, as `suspendedReleases` says.
        Suspended = "Suspended",
        /// It left the helmfile, and is being uninstalled.
        Uninstalling = "Uninstalling",
        /// It is in the helmfile, and selectors or its condition leave it out: it stays as it is.
        LeftOut = "LeftOut",
    }
}
