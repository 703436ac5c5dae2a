//! ExternalArtifact: an artifact provided by another controller.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::{self, Condition};
use crate::custom_resource::{AGE, PrinterColumn, READY, STATUS, custom_resource};
use crate::reconciled_object::source;
use crate::{Artifact, NamespacedObjectKindReference, ObjectStatus, ReconciledObject};

custom_resource! {
    /// An artifact that a controller outside of Flux makes, for the consumers inside.
    ExternalArtifact {
        spec: ExternalArtifactSpec,
        status: ExternalArtifactStatus,
        api: "source.toolkit.fluxcd.io" / "v1",
        plural: "externalartifacts",
        short: ["ea"],
        category: "fluxcd-sources",
        columns: [AGE, READY, STATUS, PrinterColumn::text("Source", ".spec.sourceRef.name")],
    }
}

/// An ExternalArtifact belongs to another controller: nothing here runs for it.
impl ReconciledObject for ExternalArtifact {
    type Status = ExternalArtifactStatus;

    const CONTROLLER: &'static str = "source-controller";

    fn is_suspended(&self) -> bool {
        false
    }

    fn status(&self) -> Option<&ExternalArtifactStatus> {
        self.status.as_ref()
    }

    fn set_status(&mut self, status: ExternalArtifactStatus) {
        self.status = Some(status);
    }
}

impl ObjectStatus for ExternalArtifactStatus {
    fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    fn set_conditions(&mut self, conditions: Vec<Condition>) {
        self.conditions = conditions;
    }

    fn observed_generation(&self) -> Option<i64> {
        None
    }

    fn set_observed_generation(&mut self, _: i64) {}

    fn last_handled_reconcile_at(&self) -> Option<&str> {
        None
    }

    fn set_last_handled_reconcile_at(&mut self, _: &str) {}
}

source!(ExternalArtifact ExternalArtifactStatus []);

/// Where the artifact comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ExternalArtifactSpec {
    /// The object that the artifact was made from. For information only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_ref: Option<NamespacedObjectKindReference>,
}

/// What was last made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ExternalArtifactStatus {
    /// The artifact that consumers should use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,

    /// The conditions of this object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::list")]
    pub conditions: Vec<Condition>,
}
