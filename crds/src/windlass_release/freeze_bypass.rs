//! FreezeBypass: a user lets one operation begin although a Freeze denies.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Time;
use crate::custom_resource::{AGE, PrinterColumn, SUBJECT_KIND, SUBJECT_NAME, custom_resource};
use crate::schema;

custom_resource! {
    /// The permission of a user for one operation that a Freeze holds. It counts only where the
    /// admission policy of windlass proves the user, and for four hours at most.
    FreezeBypass {
        spec: FreezeBypassSpec,
        status: FreezeBypassStatus,
        api: "release.windlass.dev" / "v1alpha1",
        plural: "freezebypasses",
        short: [],
        category: "fluxcd-gates",
        columns: [
            PrinterColumn::text("Freeze", ".spec.freeze.name"),
            SUBJECT_KIND,
            SUBJECT_NAME,
            PrinterColumn::text("User", ".spec.user"),
            PrinterColumn::text("Used", ".status.usedAt"),
            PrinterColumn::wide("Revision", ".spec.revision"),
            PrinterColumn::wide("Expires", ".spec.expires"),
            AGE,
        ],
    }
}

/// What may begin, and who says so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = [{
    "rule": "self == oldSelf",
    "message": "the spec of a FreezeBypass cannot be changed",
}]))]
pub struct FreezeBypassSpec {
    /// The Freeze that holds the operation. The user needs the verb `bypass` on it.
    pub freeze: BypassedFreeze,

    /// The object whose operation begins.
    pub subject: FreezeBypassSubject,

    /// What the operation brings the object to: the revision of its source or of its chart, or the
    /// annotation `windlass.dev/rollback` of a requested rollback.
    #[schemars(length(min = 1, max = 512))]
    pub revision: String,

    /// Why.
    #[schemars(length(min = 1, max = 512))]
    pub reason: String,

    /// The user, as the API server names it.
    #[schemars(length(min = 1, max = 253))]
    pub user: String,

    /// When it ends. What is later than four hours after the creation does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<Time>,
}

/// A Freeze.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct BypassedFreeze {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// Its uid.
    #[schemars(length(min = 1, max = 64))]
    pub uid: String,
}

/// The object whose operation begins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct FreezeBypassSubject {
    /// Its API group.
    #[schemars(length(max = 253))]
    pub group: String,

    /// Its kind.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,

    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// Its uid.
    #[schemars(length(min = 1, max = 64))]
    pub uid: String,

    /// Its generation: the bypass is for this spec.
    #[schemars(transform = schema::without_format)]
    pub generation: i64,
}

/// What became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct FreezeBypassStatus {
    /// When the operation began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_at: Option<Time>,

    /// When the operation was seen to have come to its end. The FreezeBypass is over then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Time>,
}
