//! Quarantine: a result of an applier that failed, and is not applied again before a user lifts that.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::custom_resource::{AGE, PrinterColumn, SUBJECT_KIND, SUBJECT_NAME, custom_resource};
use crate::string_enum::choice;
use crate::{Time, omit_empty, schema};

custom_resource! {
    /// A result of a Kustomization that failed its health checks or lifecycles or that a user rolled
    /// back, or of a HelmRelease or Helmfile whose remediation is over. It is not applied again: not by
    /// the next reconciliation, and not after a restart. Only windlass creates it; users lift it with
    /// `windlass resume --revision`.
    Quarantine {
        spec: QuarantineSpec,
        status: QuarantineStatus,
        api: "release.windlass.dev" / "v1alpha1",
        plural: "quarantines",
        short: [],
        category: "fluxcd-gates",
        columns: [
            SUBJECT_KIND,
            SUBJECT_NAME,
            PrinterColumn::text("Revision", ".spec.result.revision"),
            PrinterColumn::text("Action", ".spec.action"),
            PrinterColumn::text("Last good", ".spec.lastGood.revision"),
            PrinterColumn::text("Lifted by", ".status.lift.user"),
            PrinterColumn::wide("Reason", ".spec.reason"),
            AGE,
        ],
    }
}

/// What failed, and what is applied in its place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = [{
    "rule": "self == oldSelf",
    "message": "the spec of a Quarantine cannot be changed",
}]))]
pub struct QuarantineSpec {
    /// The object whose result failed.
    pub subject: QuarantineSubject,

    /// The result that failed.
    pub result: QuarantinedResult,

    /// Why it failed, as the reason of the condition `Ready`.
    #[schemars(length(max = 128))]
    pub reason: String,

    /// What failed, for people.
    #[schemars(length(max = 1024))]
    pub message: String,

    /// What windlass does about it.
    pub action: QuarantineAction,

    /// Why nothing is rolled back, for people, such as the Secret that differs from the last good
    /// result; the first 8 of these reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), inner(length(max = 512)))]
    pub causes: Vec<String>,

    /// The last result that was applied completely and healthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_good: Option<QuarantinedResult>,
}

/// The object whose result failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct QuarantineSubject {
    /// Its API group.
    #[schemars(length(max = 253))]
    pub group: String,

    /// Its kind.
    #[schemars(length(max = 63))]
    pub kind: String,

    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,

    /// Its uid.
    #[schemars(length(max = 64))]
    pub uid: String,
}

/// A result of an applier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct QuarantinedResult {
    /// Names the built objects; of a release, what it is rendered from.
    #[schemars(length(max = 128))]
    pub digest: String,

    /// The revision of its source; of a release, the version of its chart.
    #[schemars(length(max = 512))]
    pub revision: String,

    /// The digest of the artifact that it was made from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub artifact_digest: String,

    /// Where this artifact lies below the root of the storage.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub artifact_path: String,

    /// Names the spec that it was made with.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub spec_digest: String,

    /// Names what else it was made from: Secrets and ConfigMaps. It is made with a key of this
    /// cluster, so that it gives no value of a Secret away.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub inputs_digest: String,

    /// The images of its workloads, if there are no more than 64. ImagePolicies of the namespace skip
    /// the tags of a result that failed, unless the last good result has them, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 512)))]
    pub images: Vec<String>,
}

choice! {
    /// What windlass does about a result that failed.
    QuarantineAction {
        /// It applies the last good result.
        RollBack = "RollBack",
        /// It applies nothing: what the failed result changed stays.
        #[default]
        Hold = "Hold",
    }
}

/// Whether it counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct QuarantineStatus {
    /// How often the result failed again after a user had lifted the Quarantine.
    #[serde(default, skip_serializing_if = "omit_empty::is_zero")]
    #[schemars(transform = schema::without_format)]
    pub repeated: i64,

    /// The user who lifted it. The result may be applied again; if it fails again, windlass removes
    /// this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lift: Option<QuarantineLift>,

    /// When windlass forgot the failures of a release whose Quarantine was lifted, so that it is
    /// attempted as often as its spec says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempted_at: Option<Time>,
}

/// Who lifted a Quarantine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct QuarantineLift {
    /// The user, as the API server names it.
    #[schemars(length(min = 1, max = 253))]
    pub user: String,

    /// When.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,

    /// Why.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub reason: Option<String>,
}
