//! ChangeSet: one revision of a source, the appliers that it changes, and one verdict about all of them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::custom_resource::{AGE, PrinterColumn, custom_resource};
use crate::string_enum::choice;
use crate::{Time, omit_empty, schema};

custom_resource! {
    /// One revision of a source, and what became of all Kustomizations, Helmfiles and HelmReleases
    /// that it changes. Only windlass creates it; users roll it back with `windlass rollback
    /// change/NAME`.
    ChangeSet {
        spec: ChangeSetSpec,
        status: ChangeSetStatus,
        api: "release.windlass.dev" / "v1alpha1",
        plural: "changesets",
        short: ["change"],
        category: "fluxcd-audits",
        columns: [
            PrinterColumn::text("Source", ".spec.source.name"),
            PrinterColumn { type_: "integer", ..PrinterColumn::text("Sequence", ".spec.sequence") },
            PrinterColumn::text("Revision", ".spec.revision"),
            PrinterColumn::text("Verdict", ".status.verdict"),
            PrinterColumn { type_: "integer", ..PrinterColumn::text("Members", ".status.counts.members") },
            PrinterColumn { type_: "integer", ..PrinterColumn::text("Failed", ".status.counts.failed") },
            PrinterColumn::wide("Subject", ".spec.commit.subject"),
            PrinterColumn::wide("Message", ".status.message"),
            AGE,
        ],
    }
}

/// Which change it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = [{
    "rule": "self == oldSelf",
    "message": "the spec of a ChangeSet cannot be changed",
}]))]
pub struct ChangeSetSpec {
    /// The source.
    pub source: ChangeSetSource,

    /// Its revision.
    #[schemars(length(max = 512))]
    pub revision: String,

    /// The digest of its artifact.
    #[schemars(length(max = 128))]
    pub digest: String,

    /// Where this artifact lies below the root of the storage.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub path: String,

    /// Counts the changes of the source: a revision that comes back is another change.
    #[schemars(transform = schema::without_format)]
    pub sequence: i64,

    /// The commit, as the source read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<ChangeSetCommit>,
}

/// The source of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ChangeSetSource {
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

/// A commit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ChangeSetCommit {
    /// The first line of its message.
    #[schemars(length(max = 256))]
    pub subject: String,

    /// The name of its author, as the commit claims.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub author: String,

    /// When it was written, by the clock of the author.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub time: String,
}

/// What became of the members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ChangeSetStatus {
    /// The verdict about all members.
    pub verdict: ChangeSetVerdict,

    /// The same in a sentence, for people.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,

    /// The members in the namespace of the source, one line each, such as `Failed ks/shop`; `>` marks
    /// those whose spec another member applied. Failures come first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1900), inner(length(max = 64)))]
    pub members: Vec<String>,

    /// How many of these members are not listed.
    #[serde(default, skip_serializing_if = "omit_empty::is_zero")]
    #[schemars(transform = schema::without_format)]
    pub omitted: i64,

    /// How many members there are in the namespace of the source, by their states.
    pub counts: ChangeSetCounts,

    /// The same in all other namespaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_namespaces: Option<ChangeSetCounts>,

    /// How many appliers of the source build the same as before, so that they are no members.
    #[serde(default, skip_serializing_if = "omit_empty::is_zero")]
    #[schemars(transform = schema::without_format)]
    pub unchanged: i64,

    /// Since when no member is added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_at: Option<Time>,

    /// When a member came to its end last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progressed_at: Option<Time>,

    /// The user who asked for the rollback.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollback: Option<ChangeSetRollbackRequest>,

    /// When this rollback was carried out, as far as it can be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rolled_back_at: Option<Time>,

    /// The members that this rollback leaves as they are, and why, for people; the first 32 of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(max = 512)))]
    pub not_rolled_back: Vec<String>,
}

choice! {
    /// The verdict about all members of a change.
    ChangeSetVerdict {
        /// A member has not come to its end.
        #[default]
        Progressing = "Progressing",
        /// All members succeeded, or were suspended.
        Succeeded = "Succeeded",
        /// All members came to their end, and one failed.
        Failed = "Failed",
        /// The source moved on before that.
        Superseded = "Superseded",
        /// A member went back to what was applied before.
        RolledBack = "RolledBack",
        /// No member came to its end for an hour, and some have not.
        Stalled = "Stalled",
    }
}

/// How many members there are, by their states.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ChangeSetCounts {
    /// All of them.
    #[schemars(transform = schema::without_format)]
    pub members: i64,

    /// How many are being applied, or are about to be.
    #[serde(default, skip_serializing_if = "omit_empty::is_zero")]
    #[schemars(transform = schema::without_format)]
    pub progressing: i64,

    /// How many wait for a window, an approval or another object.
    #[serde(default, skip_serializing_if = "omit_empty::is_zero")]
    #[schemars(transform = schema::without_format)]
    pub waiting: i64,

    /// How many succeeded.
    #[serde(default, skip_serializing_if = "omit_empty::is_zero")]
    #[schemars(transform = schema::without_format)]
    pub succeeded: i64,

    /// How many failed.
    #[serde(default, skip_serializing_if = "omit_empty::is_zero")]
    #[schemars(transform = schema::without_format)]
    pub failed: i64,

    /// How many are suspended.
    #[serde(default, skip_serializing_if = "omit_empty::is_zero")]
    #[schemars(transform = schema::without_format)]
    pub skipped: i64,

    /// How many went back to what was applied before.
    #[serde(default, skip_serializing_if = "omit_empty::is_zero")]
    #[schemars(transform = schema::without_format)]
    pub rolled_back: i64,
}

/// Who asked for the rollback of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ChangeSetRollbackRequest {
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
