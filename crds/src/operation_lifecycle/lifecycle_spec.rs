//! Lifecycle: what has to be answered at which phases, and by whom.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LifecycleEventHandlerSpec, LifecyclePhase};
use crate::custom_resource::{AGE, PrinterColumn, custom_resource};
use crate::string_enum::choice;
use crate::{GoDuration, schema};

custom_resource! {
    /// Something that has to be answered before an operation on a release continues. windlass creates
    /// a LifecycleEvent for each operation and phase, and waits for its status.
    Lifecycle {
        spec: LifecycleSpec,
        scope: Cluster,
        api: "lifecycle.windlass.dev" / "v1alpha1",
        plural: "lifecycles",
        short: [],
        category: "fluxcd-gates",
        columns: [
            PrinterColumn::text("Key", ".spec.key"),
            PrinterColumn::text("Timeout", ".spec.timeout"),
            PrinterColumn::text("On timeout", ".spec.onTimeout"),
            AGE,
        ],
    }
}

/// What has to be answered, and by whom.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct LifecycleSpec {
    /// The value of the label `lifecycle.windlass.dev/key` of its events, by which a controller
    /// selects those that it answers.
    #[schemars(length(max = 63), regex(pattern = "^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"))]
    pub key: String,

    /// The phases at which operations wait.
    #[schemars(length(min = 1, max = 9))]
    pub phases: Vec<LifecyclePhase>,

    /// How long an event may be unanswered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "1h"))]
    pub timeout: Option<GoDuration>,

    /// What happens when an event is not answered in time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Fail"))]
    pub on_timeout: Option<OnTimeout>,

    /// What windlass itself does with the events. Without it another controller answers them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
    pub handler: Option<LifecycleEventHandlerSpec>,

    /// The namespaces in which it holds all releases, without a LifecycleBinding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required: Option<LifecycleRequirement>,
}

choice! {
    /// What happens when an event is not answered in time.
    OnTimeout {
        /// The operation fails, and the configured remediation follows.
        #[default]
        Fail = "Fail",
        /// The operation continues.
        Continue = "Continue",
        /// The operation waits until the event is answered.
        Hold = "Hold",
    }
}

/// The namespaces that require a lifecycle.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct LifecycleRequirement {
    /// Selects namespaces by labels. An empty selector selects all of them.
    #[schemars(schema_with = "schema::label_selector")]
    pub namespace_selector: LabelSelector,
}
