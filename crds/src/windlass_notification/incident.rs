//! Incident: a failure with one cause, the objects that it affects, and what was sent about it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::custom_resource::{AGE, PrinterColumn, SUBJECT_KIND, SUBJECT_NAME, custom_resource};
use crate::string_enum::choice;
use crate::{Time, omit_empty, schema};

custom_resource! {
    /// A failure: one for all objects that fail for the same cause, if Alerts with `windlass.dev/incidents`
    /// select them, and one for each Provider whose service does not accept notifications. windlass creates
    /// it, writes its status, and deletes it when it is old.
    Incident {
        spec: IncidentSpec,
        status: IncidentStatus,
        api: "notification.windlass.dev" / "v1alpha1",
        plural: "incidents",
        short: [],
        category: "fluxcd-incidents",
        columns: [
            PrinterColumn::text("State", ".status.state"),
            SUBJECT_KIND,
            SUBJECT_NAME,
            PrinterColumn::text("Reason", ".spec.cause.reason"),
            PrinterColumn::text("Opened", ".status.openedAt"),
            PrinterColumn::text("Message", ".status.message"),
            AGE,
        ],
    }
}

/// What fails.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = [{
    "rule": "self == oldSelf",
    "message": "the spec of an incident cannot be changed",
}]))]
pub struct IncidentSpec {
    /// The object whose failure is the deepest that is known. It is in the namespace of the Incident.
    pub subject: IncidentSubject,

    /// The class of the failure, such as `Fetch` or `Build`. Failures of the same object and class are
    /// the same incident, whatever their messages say.
    #[schemars(length(min = 1, max = 63))]
    pub reason: String,

    /// The cause, as it was when the Incident was created.
    pub cause: IncidentCause,
}

/// An object that fails.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct IncidentSubject {
    /// Its API version.
    #[schemars(length(max = 317))]
    pub api_version: String,

    /// Its kind.
    #[schemars(length(max = 63))]
    pub kind: String,

    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,

    /// Its uid; absent if it does not exist.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub uid: Option<String>,
}

/// The deepest cause of a failure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct IncidentCause {
    /// The object that has to be mended, as `Kind/namespace/name`. It is the subject, or an object that
    /// the subject applies.
    #[schemars(length(max = 600))]
    pub object: String,

    /// The reason in the condition `Ready` of the subject, such as `BuildFailed`.
    #[schemars(length(max = 1024))]
    pub reason: String,

    /// What happened.
    #[schemars(length(max = 2048))]
    pub message: String,
}

choice! {
    /// Whether the subject still fails.
    IncidentState {
        /// It fails.
        #[default]
        Open = "Open",
        /// It is ready again, or was deleted.
        Resolved = "Resolved",
    }
}

choice! {
    /// What was sent for an Alert last.
    IncidentStep {
        /// That the incident is open.
        #[default]
        Opened = "Opened",
        /// That it is resolved.
        Resolved = "Resolved",
        /// Nothing: the service rejected it, and an event on the Alert says why.
        Failed = "Failed",
    }
}

/// What became of the failure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct IncidentStatus {
    /// Whether the subject still fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<IncidentState>,

    /// When it was opened; when it was opened last, if it was resolved in between.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opened_at: Option<Time>,

    /// Since when the subject fails by its condition `Ready`, which may be before this Incident was opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,

    /// When it was resolved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved_at: Option<Time>,

    /// What the subject says now, or said last.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub message: Option<String>,

    /// The other objects that fail for this cause, or get no newer revisions because of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affected: Option<IncidentAffectedObjects>,

    /// What was sent about it, by Alert and Provider.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub notifications: Vec<IncidentNotification>,

    /// Until when nothing but its end is sent, by the request of a user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silence: Option<IncidentSilence>,
}

/// A user's request to send nothing but the end of an incident for some time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct IncidentSilence {
    /// The user, as the API server names it.
    #[schemars(length(min = 1, max = 253))]
    pub user: String,

    /// When the user requested it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,

    /// When it ends: seven days after it was requested at the latest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,

    /// Why.
    #[schemars(length(min = 1, max = 512))]
    pub reason: String,
}

/// Objects that an incident affects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct IncidentAffectedObjects {
    /// How many there are.
    #[schemars(transform = schema::without_format)]
    pub count: i64,

    /// The first of them, as `Kind/namespace/name`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub objects: Vec<String>,
}

/// What was sent for an Alert.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct IncidentNotification {
    /// The namespace of the Alert and of its Provider.
    #[schemars(length(max = 253))]
    pub namespace: String,

    /// The Alert.
    #[schemars(length(max = 253))]
    pub alert: String,

    /// The Provider.
    #[schemars(length(max = 253))]
    pub provider: String,

    /// What was sent last.
    pub state: IncidentStep,

    /// When the service accepted it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,

    /// The key by which a service that has incidents of its own knows this one since it was opened last,
    /// such as the `dedup_key` of PagerDuty.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub key: Option<String>,

    /// The message that opened it, by the id that a service with threads gave it. What follows is posted in its
    /// thread.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 255))]
    pub thread: Option<String>,
}
