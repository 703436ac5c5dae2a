//! Plan: changes or deletions that wait for the approval of a user, and the approvals.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{DeletionExemption, ProtectedKind};
use crate::condition::{self, Condition};
use crate::custom_resource::{AGE, PrinterColumn, SUBJECT_KIND, SUBJECT_NAME, custom_resource};
use crate::string_enum::choice;
use crate::{Time, omit_empty, schema};

custom_resource! {
    /// What a Kustomization or a release would do and does not do before a user approves it: all
    /// changes where a PlanPolicy or an annotation asks for that, and otherwise deletions of more
    /// objects than its deletion budget allows. windlass creates it, carries it out after a user
    /// approved it, and then deletes the Plan.
    Plan {
        spec: PlanSpec,
        status: PlanStatus,
        api: "release.windlass.dev" / "v1alpha1",
        plural: "plans",
        short: [],
        category: "fluxcd-gates",
        columns: [
            SUBJECT_KIND,
            SUBJECT_NAME,
            PrinterColumn::wide("Release", ".spec.subject.release"),
            PrinterColumn { type_: "integer", ..PrinterColumn::text("Deletions", ".spec.count") },
            PrinterColumn { type_: "integer", ..PrinterColumn::text("Added", ".spec.changes.added") },
            PrinterColumn { type_: "integer", ..PrinterColumn::text("Changed", ".spec.changes.changed") },
            PrinterColumn::text("Approved by", ".status.approvals[*].user"),
            PrinterColumn::text("Rejected by", ".status.rejection.user"),
            PrinterColumn { type_: "integer", ..PrinterColumn::text("Pull request", ".status.pullRequest.number") },
            PrinterColumn::wide("Revision", ".spec.revision"),
            AGE,
        ],
    }
}

/// What is to be approved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = [{
    "rule": "self == oldSelf",
    "message": "the spec of a Plan cannot be changed",
}]))]
pub struct PlanSpec {
    /// The object that waits.
    pub subject: PlanSubject,

    /// The revision of its source that would be applied, or whose manifests lack the objects.
    #[schemars(length(max = 512))]
    pub revision: String,

    /// Names the operation of a release that waits, with a digest of what it is made from:
    /// chart, values and spec. An approval is for this operation.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub operation: String,

    /// The digest of the objects that left the manifests and of the uid of the subject. Without
    /// `changes`, an approval is for these objects.
    #[schemars(length(max = 128))]
    pub digest: String,

    /// How many objects left the manifests.
    #[schemars(transform = schema::without_format)]
    pub count: i64,

    /// How many objects would be deleted in addition, because the objects that left apply them.
    #[serde(default, skip_serializing_if = "omit_empty::is_zero")]
    #[schemars(transform = schema::without_format)]
    pub following: i64,

    /// The objects that left the manifests, as `<namespace>_<name>_<group>_<kind>`; the first 1000 of
    /// them.
    #[schemars(length(max = 1000), inner(length(max = 640)))]
    pub objects: Vec<String>,

    /// What of the deletion budget is exceeded.
    #[schemars(length(max = 8), inner(length(max = 1024)))]
    pub rules: Vec<String>,

    /// The deletion budget.
    pub budget: PlanDeletionBudget,

    /// The PlanPolicies that are in force, the first 8 of them. Approving requires the verb `approve`
    /// on each of them; on `default` if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), inner(length(max = 253)))]
    pub policies: Vec<String>,

    /// How many different users have to approve; absent if one is enough.
    #[serde(default, skip_serializing_if = "omit_empty::is_zero")]
    #[schemars(transform = schema::without_format)]
    pub approvals: i64,

    /// Everything that would be done, where more than deletions waits. An approval is for exactly this
    /// result, and for the deletions that are part of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<PlanChanges>,

    /// When approvals of this Plan end; a new Plan replaces it then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<Time>,
}

/// Everything that a run or an operation would do. No value of an object is in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct PlanChanges {
    /// Names the result: built or rendered objects, hooks, tests and CustomResourceDefinitions,
    /// removals and recreations, the target, the subject, and the result that it starts from. It is
    /// made with a key of this cluster, so that it gives no value of a Secret away.
    #[schemars(length(max = 128))]
    pub digest: String,

    /// How many objects would be created.
    #[schemars(transform = schema::without_format)]
    pub added: i64,

    /// How many would be changed.
    #[schemars(transform = schema::without_format)]
    pub changed: i64,

    /// How many would be deleted.
    #[schemars(transform = schema::without_format)]
    pub removed: i64,

    /// How many would be deleted and created again.
    #[schemars(transform = schema::without_format)]
    pub recreated: i64,

    /// How many cannot be tried before others are applied.
    #[serde(default, skip_serializing_if = "omit_empty::is_zero")]
    #[schemars(transform = schema::without_format)]
    pub unverified: i64,

    /// The objects; those that are removed or recreated first, the first 1000 of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub objects: Vec<PlanChange>,

    /// How many objects are not listed, because the list would be too long.
    #[serde(default, skip_serializing_if = "omit_empty::is_zero")]
    #[schemars(transform = schema::without_format)]
    pub omitted: i64,

    /// The hooks of a release that would run, as `<event>: <kind>/<name>`; the first 100 of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(max = 512)))]
    pub hooks: Vec<String>,

    /// The tests of a release that would run, as `<kind>/<name>`; the first 100 of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(max = 512)))]
    pub tests: Vec<String>,
}

/// What would become of an object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct PlanChange {
    /// The object, as `<namespace>_<name>_<group>_<kind>`.
    #[schemars(length(max = 640))]
    pub id: String,

    /// What would become of it.
    pub action: PlanAction,

    /// JSON pointers of the fields that would change, the first 16 of them; none of a Secret.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 256)))]
    pub fields: Vec<String>,

    /// Whether this could not be tried, because other objects of the same Plan have to be applied
    /// before it.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub unverified: bool,
}

choice! {
    /// What would become of an object.
    PlanAction {
        /// It would be created.
        #[default]
        Added = "Added",
        /// It would be changed.
        Changed = "Changed",
        /// It would be deleted.
        Removed = "Removed",
        /// It would be deleted and created again.
        Recreated = "Recreated",
    }
}

/// The object that waits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct PlanSubject {
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

    /// The release of a Helmfile that waits, as `<namespace>/<name>`, with the kubeContext in
    /// front if it has one, and with ` hooks` behind it if only manifests of its hooks wait.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 512))]
    pub release: String,
}

/// The deletion budget that a Plan was made by.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct PlanDeletionBudget {
    /// How many objects may be deleted without approval, also in an hour.
    #[schemars(transform = schema::without_format)]
    pub max_objects: i64,

    /// How many of the objects, in percent.
    #[schemars(transform = schema::without_format)]
    pub max_percent: i64,

    /// The kinds of which no object is deleted without approval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub protected_kinds: Vec<ProtectedKind>,

    /// Objects that neither count nor need approval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub exempt: Vec<DeletionExemption>,
}

/// The approvals.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = [{
    "rule": "!has(oldSelf.rejection) || (has(self.rejection) && self.rejection == oldSelf.rejection)",
    "message": "a rejection is final",
}]))]
pub struct PlanStatus {
    /// The users who approved. Approvals of ServiceAccounts do not count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["user"]))]
    pub approvals: Vec<PlanApproval>,

    /// The user who rejected. It is final: nothing of the Plan is carried out, with or without approvals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejection: Option<PlanRejection>,

    /// The reviewed pull request that approves. Only windlass writes it, and reads the reviews at the
    /// forge again before it acts on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_request: Option<PlanApprovingPullRequest>,

    /// `PullRequestApproved` says whether a reviewed pull request approves, and why not. Only windlass
    /// writes it, where the PlanPolicies allow that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::list")]
    pub conditions: Vec<Condition>,
}

/// The reviewed pull request that approves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct PlanApprovingPullRequest {
    /// Its number in the repository.
    #[schemars(transform = schema::without_format)]
    pub number: i64,

    /// Its page; empty if the forge names none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 2048))]
    pub url: String,

    /// The last commit of its branch, which the reviewers approved.
    #[schemars(length(max = 64))]
    pub head_commit: String,

    /// The commit that it became, which is that of the revision.
    #[schemars(length(max = 64))]
    pub merge_commit: String,

    /// The accounts at the forge whose reviews approve.
    #[schemars(length(max = 64), inner(length(max = 255)))]
    pub reviewers: Vec<String>,

    /// When windlass found that it approves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,
}

/// The approval of a user.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct PlanApproval {
    /// The user, as the API server names it.
    #[schemars(length(min = 1, max = 253))]
    pub user: String,

    /// Groups of the user, as the API server names them. The right to approve is reviewed with them
    /// once more when what the Plan is for begins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 1024)))]
    pub groups: Vec<String>,

    /// When.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,

    /// Why.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub comment: Option<String>,

    /// Objects of the Plan that stay in the cluster and are given up, in the form of `spec.objects`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000), inner(length(max = 640)))]
    pub keep: Vec<String>,
}

/// The rejection of a user.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct PlanRejection {
    /// The user, as the API server names it.
    #[schemars(length(min = 1, max = 253))]
    pub user: String,

    /// When.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,

    /// Why.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 512))]
    pub comment: Option<String>,
}
