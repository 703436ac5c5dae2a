//! ReleaseAudit: one operation on a release, or one applied revision, written once.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::custom_resource::{AGE, PrinterColumn, SUBJECT_KIND, SUBJECT_NAME, custom_resource};
use crate::schema;
use crate::string_enum::choice;
use crate::{Time, omit_empty};

custom_resource! {
    /// The record of one operation: what asked for it, what it changed, and how it ended. windlass
    /// creates it once and deletes it when it is old; its spec is immutable.
    ReleaseAudit {
        spec: ReleaseAuditSpec,
        api: "release.windlass.dev" / "v1alpha1",
        plural: "releaseaudits",
        short: ["audit"],
        category: "fluxcd-audits",
        columns: [
            SUBJECT_KIND,
            SUBJECT_NAME,
            PrinterColumn::text("Operation", ".spec.operation"),
            PrinterColumn::text("Outcome", ".spec.outcome"),
            PrinterColumn::text("Duration", ".spec.duration"),
            AGE,
        ],
    }
}

/// What happened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = [{
    "rule": "self == oldSelf",
    "message": "an audit is written once and cannot be changed",
}]))]
pub struct ReleaseAuditSpec {
    /// The object whose controller performed the operation.
    pub subject: AuditSubject,

    /// What was done.
    pub operation: AuditOperation,

    /// The name of the operation in the journal of the release; hooks that it created carry it.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub id: Option<String>,

    /// What asked for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub causes: Vec<AuditCause>,

    /// What was there before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<AuditRevision>,

    /// What was to be there afterwards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<AuditRevision>,

    /// The objects that changed.
    pub changes: AuditChanges,

    /// The steps and hooks of the operation, in the order in which they began.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub steps: Vec<AuditStep>,

    /// The lifecycles that held it, and what they answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 48))]
    pub lifecycles: Vec<AuditLifecycleAnswer>,

    /// The FreezeBypasses with which it began although Freezes denied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub freeze_bypasses: Vec<AuditFreezeBypass>,

    /// How many steps and hooks are not listed.
    #[serde(default, skip_serializing_if = "omit_empty::is_zero")]
    #[schemars(transform = schema::without_format)]
    pub omitted_steps: i64,

    /// How it ended.
    pub outcome: AuditOutcome,

    /// More about `outcome`, for people. Values of Secrets are masked.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub message: Option<String>,

    /// When it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<Time>,

    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Time>,

    /// How long it took, such as `1.25s`.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub duration: Option<String>,
}

/// An object with a uid, so that one of the same name that is created later is another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct AuditSubject {
    /// Its API group.
    #[schemars(length(max = 253))]
    pub group: String,

    /// Its kind: HelmRelease, Helmfile or Kustomization.
    #[schemars(length(max = 63))]
    pub kind: String,

    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,

    /// Its uid.
    #[schemars(length(max = 64))]
    pub uid: String,

    /// Its generation at that time.
    #[serde(default, skip_serializing_if = "omit_empty::is_zero")]
    pub generation: i64,

    /// The Helm release that was operated on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<AuditHelmRelease>,
}

/// A Helm release, as `helm list` names it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct AuditHelmRelease {
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

choice! {
    /// What was done.
    AuditOperation {
        /// The first revision of a release.
        #[default]
        Install = "Install",
        /// The next revision of a release.
        Upgrade = "Upgrade",
        /// The return to an earlier revision of a release, after a failure or on request.
        Rollback = "Rollback",
        /// The tests of a release.
        Test = "Test",
        /// The removal of a release.
        Uninstall = "Uninstall",
        /// A revision of a Kustomization, or manifests of the hooks of a Helmfile's release.
        Apply = "Apply",
        /// The removal of what a Kustomization applied.
        Delete = "Delete",
        /// Objects that were changed by others are as they were applied.
        CorrectDrift = "CorrectDrift",
        /// A user suspended the object.
        Suspend = "Suspend",
        /// The object is no longer suspended.
        Resume = "Resume",
    }
}

/// One of the reasons for an operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct AuditCause {
    /// Which sort of reason it is.
    #[serde(rename = "type")]
    pub type_: AuditCauseKind,

    /// The object that changed, as `Kind/namespace/name`: a source, or a ConfigMap or Secret with
    /// values.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 640))]
    pub object: Option<String>,

    /// The `resourceVersion` of a ConfigMap or Secret, the `generation` of a spec, the revision of a
    /// source, or the value of the annotation by which a user asked.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub version: Option<String>,

    /// The field manager that wrote the spec or the annotation.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub manager: Option<String>,

    /// The user who asked, as an annotation claims that the same field manager wrote.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub claimed_user: Option<String>,

    /// Why, in the words of the user.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub reason: Option<String>,
}

choice! {
    /// A sort of reason for an operation.
    AuditCauseKind {
        /// The spec is new or was changed.
        #[default]
        Spec = "Spec",
        /// The chart, or the revision of the source, is another.
        Source = "Source",
        /// The values are others.
        Values = "Values",
        /// A user asked for it by an annotation.
        Request = "Request",
        /// Objects were changed by others.
        Drift = "Drift",
        /// The operation before it failed: it is repeated, or undone.
        Failure = "Failure",
        /// The object was deleted, or is to be elsewhere.
        Deletion = "Deletion",
    }
}

/// A revision of a release, or of a source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct AuditRevision {
    /// The number of the release's revision, or the revision of the source that was applied.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub revision: Option<String>,

    /// The name of the chart.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub chart: Option<String>,

    /// The version of the chart.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub chart_version: Option<String>,

    /// The version of the application in the chart.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub app_version: Option<String>,

    /// The digest of the values.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub values_digest: Option<String>,

    /// The digest of all manifests of a Kustomization.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub digest: Option<String>,
}

/// Objects that changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct AuditChanges {
    /// How many objects were created.
    #[schemars(transform = schema::without_format)]
    pub added: i64,

    /// How many objects were changed.
    #[schemars(transform = schema::without_format)]
    pub changed: i64,

    /// How many objects were deleted.
    #[schemars(transform = schema::without_format)]
    pub removed: i64,

    /// Whether the operation was interrupted or failed before all of them were written.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub partial: bool,

    /// The digest of all changes, listed or not.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub digest: Option<String>,

    /// The objects, as far as they fit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 200))]
    pub objects: Vec<AuditChange>,

    /// How many objects are not listed.
    #[serde(default, skip_serializing_if = "omit_empty::is_zero")]
    #[schemars(transform = schema::without_format)]
    pub omitted: i64,
}

/// An object that changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct AuditChange {
    /// What happened to it.
    pub change: AuditChangeKind,

    /// Its API group; empty for the core group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub group: String,

    /// Its kind.
    #[schemars(length(max = 253))]
    pub kind: String,

    /// Its namespace; empty if it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub namespace: String,

    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,

    /// The fields that changed, as JSON pointers without values. Keys of Secrets are not named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "pointers")]
    pub fields: Vec<String>,
}

/// The schema of JSON pointers: bounded, or the API server would not compare two specs.
fn pointers(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "maxItems": 16, "items": { "type": "string", "maxLength": 256 } })
}

choice! {
    /// What happened to an object.
    AuditChangeKind {
        /// It was created.
        #[default]
        Added = "Added",
        /// It was changed.
        Changed = "Changed",
        /// It was deleted.
        Removed = "Removed",
    }
}

/// A step or hook of an operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct AuditStep {
    /// `Apply`, `Wait`, `Delete`, `WaitGone` or `CleanUp`, or the event of a hook, such as
    /// `pre-install`.
    #[schemars(length(max = 63))]
    pub name: String,

    /// The object of a hook, as `Kind/name`.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 320))]
    pub hook: Option<String>,

    /// When it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<Time>,

    /// When it ended; absent if that is unknown because windlass was interrupted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Time>,

    /// Whether it failed.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub failed: bool,
}

/// A FreezeBypass with which an operation began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct AuditFreezeBypass {
    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,

    /// The name of the Freeze.
    #[schemars(length(max = 253))]
    pub freeze: String,

    /// The user who let the operation begin, as the API server names it.
    #[schemars(length(max = 253))]
    pub user: String,

    /// Why.
    #[schemars(length(max = 512))]
    pub reason: String,
}

/// The answer of a lifecycle.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct AuditLifecycleAnswer {
    /// The name of the Lifecycle.
    #[schemars(length(max = 253))]
    pub lifecycle: String,

    /// The phase at which the operation waited.
    #[schemars(length(max = 63))]
    pub phase: String,

    /// `Succeeded`, `Failed`, `TimedOut`, or `Released` by break-glass.
    #[schemars(length(max = 63))]
    pub outcome: String,

    /// The user who answered, as the API server names it.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub answered_by: Option<String>,

    /// More, for people.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub message: Option<String>,

    /// The users who approved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub approvals: Vec<AuditApproval>,

    /// When it was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<Time>,

    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Time>,
}

/// The approval of a user.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct AuditApproval {
    /// The user, as the API server names it.
    #[schemars(length(max = 253))]
    pub user: String,

    /// When.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,

    /// Why.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub comment: Option<String>,
}

choice! {
    /// How an operation ended.
    AuditOutcome {
        /// As it should.
        #[default]
        Succeeded = "Succeeded",
        /// It failed.
        Failed = "Failed",
        /// It was stopped, because the object was changed, suspended or deleted.
        Stopped = "Stopped",
    }
}
