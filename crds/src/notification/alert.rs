//! Alert: which events go to a Provider.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::KINDS;
use crate::custom_resource::{AGE, custom_resource};
use crate::reconciled_object::without_status;
use crate::string_enum::choice;
use crate::{LocalObjectReference, omit_empty};

custom_resource! {
    /// Events that are sent to a Provider.
    Alert {
        spec: AlertSpec,
        api: "notification.toolkit.fluxcd.io" / "v1beta3",
        plural: "alerts",
        short: [],
        category: "fluxcd-notifications",
        columns: [AGE],
    }
}

without_status!(Alert "notification-controller");

/// Which events are sent, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct AlertSpec {
    /// The Provider to which events are sent.
    pub provider_ref: LocalObjectReference,

    /// How severe an event has to be: `info` for all of them, `error` for failures only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "info"))]
    pub event_severity: Option<EventSeverity>,

    /// The objects whose events are sent.
    pub event_sources: Vec<EventSource>,

    /// Metadata that is added to each event.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub event_metadata: BTreeMap<String, String>,

    /// Regular expressions in Go's notation. If there are any, the message has to match one of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inclusion_list: Vec<String>,

    /// Regular expressions in Go's notation. An event whose message matches one of them is not sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclusion_list: Vec<String>,

    /// A short description of the impact. Deprecated: use `summary` in `eventMetadata`.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 255))]
    pub summary: Option<String>,

    /// Whether to send nothing.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub suspend: bool,
}

choice! {
    /// How severe an event has to be.
    EventSeverity {
        /// All events.
        #[default]
        Info = "info",
        /// Failures only.
        Error = "error",
    }
}

/// Objects of a kind whose events are sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventSource {
    /// The API version of the objects. It is not compared.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub api_version: Option<String>,

    /// The kind of the objects.
    #[schemars(extend("enum" = KINDS))]
    pub kind: String,

    /// The name of the object, or `*` for all.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// The namespace of the objects. Defaults to that of the Alert.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(min = 1, max = 253))]
    pub namespace: Option<String>,

    /// Labels that the objects must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub match_labels: Option<BTreeMap<String, String>>,
}
