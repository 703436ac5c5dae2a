//! PlanPolicy: what in some namespaces waits for the approval of a user: changes, and deletions beyond a budget.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::custom_resource::{AGE, PrinterColumn, custom_resource};
use crate::string_enum::choice;
use crate::{LocalObjectReference, omit_empty, schema};

custom_resource! {
    /// What in some namespaces waits for the approval of a user. Where several PlanPolicies select a
    /// namespace, the strictest mode and the strictest of each limit count; where none does, the
    /// defaults are in force.
    PlanPolicy {
        spec: PlanPolicySpec,
        scope: Cluster,
        api: "release.windlass.dev" / "v1alpha1",
        plural: "planpolicies",
        short: [],
        category: "fluxcd-gates",
        columns: [
            PrinterColumn::text("Mode", ".spec.mode"),
            PrinterColumn { type_: "boolean", ..PrinterColumn::text("Enabled", ".spec.deletionBudget.enabled") },
            PrinterColumn { type_: "integer", ..PrinterColumn::text("Max objects", ".spec.deletionBudget.maxObjects") },
            PrinterColumn { type_: "integer", ..PrinterColumn::text("Max percent", ".spec.deletionBudget.maxPercent") },
            AGE,
        ],
    }
}

/// What holds in which namespaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct PlanPolicySpec {
    /// Selects namespaces of Kustomizations, HelmReleases and Helmfiles by labels. An empty selector
    /// selects all of them.
    #[schemars(schema_with = "schema::label_selector")]
    pub namespace_selector: LabelSelector,

    /// Which changes wait until a user approves their Plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Automatic"))]
    pub mode: Option<PlanMode>,

    /// What a Kustomization or a release may delete without approval. Without it, this PlanPolicy has
    /// no say in that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_budget: Option<DeletionBudgetSpec>,

    /// How many different users have to approve a Plan. Where several PlanPolicies select a namespace,
    /// the highest number counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 16), extend("default" = 1))]
    pub approvals: Option<i64>,

    /// Lets a reviewed pull request approve Plans in place of users. It counts only where every
    /// PlanPolicy of a Plan has it, and takes `minimumReviews` in place of `approvals`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_request_approval: Option<PullRequestApprovalSpec>,
}

choice! {
    /// Which changes wait for an approval. What corrects drift of a result that was applied never
    /// does.
    PlanMode {
        /// None; the deletion budget is in force.
        #[default]
        Automatic = "Automatic",
        /// Those that remove or recreate an object, or uninstall a release.
        ApproveDestructive = "ApproveDestructive",
        /// All.
        Approve = "Approve",
    }
}

/// Which reviews approve Plans.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = [{
    "rule": "has(self.address) || self.provider in ['github', 'gitlab']",
    "message": "address is required: Gitea and Forgejo have no default",
}]))]
pub struct PullRequestApprovalSpec {
    /// The kind of the forge.
    pub provider: ForgeProvider,

    /// The address of the forge, without a repository. Only repositories at this host count. The default is
    /// https://github.com or https://gitlab.com.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), regex(pattern = "^https?://"))]
    pub address: Option<String>,

    /// A Secret in the namespace of windlass with `token`, or with the keys of a GitHub App, and with
    /// `ca.crt` if the forge has a certificate of a private authority. Reading pull requests is enough.
    pub secret_ref: LocalObjectReference,

    /// The repositories at the forge whose pull requests count, as `acme/fleet`, or as `acme/*` for all below an
    /// owner or group. Who may change a GitRepository may name any repository, also one of their own.
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 1024)))]
    pub repositories: Vec<String>,

    /// The accounts at the forge whose approving reviews count.
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 255)))]
    pub reviewers: Vec<String>,

    /// How many of these accounts have to approve the last commit. The author of the pull request and the
    /// account that pushed this commit do not count; if the forge does not say which account that was, one more is
    /// necessary.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 16), extend("default" = 1))]
    pub minimum_reviews: Option<i64>,
}

choice! {
    /// The kind of a forge.
    ForgeProvider {
        /// GitHub, or GitHub Enterprise Server.
        #[default]
        GitHub = "github",
        /// GitLab.
        GitLab = "gitlab",
        /// Gitea.
        Gitea = "gitea",
        /// Forgejo.
        Forgejo = "forgejo",
    }
}

/// What may be deleted without approval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct DeletionBudgetSpec {
    /// Whether deletions are limited. It has no effect where another PlanPolicy limits them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = true))]
    pub enabled: Option<bool>,

    /// How many objects may be deleted at once, and in an hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000), extend("default" = 10))]
    pub max_objects: Option<i64>,

    /// How many of the objects of a Kustomization with more than 10 objects may be deleted at once, and
    /// in an hour, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100), extend("default" = 30))]
    pub max_percent: Option<i64>,

    /// The kinds of which no object is deleted without approval, in place of the default: Namespace,
    /// PersistentVolume, PersistentVolumeClaim, CustomResourceDefinition, and StatefulSet, which counts
    /// if it has claims. Kinds that apply objects are always among them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub protected_kinds: Option<Vec<ProtectedKind>>,

    /// Objects that neither count nor need approval. Protected kinds and kinds that apply objects are
    /// never exempt. Where several PlanPolicies limit deletions, what all of them exempt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub exempt: Vec<DeletionExemption>,
}

/// A kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ProtectedKind {
    /// Its API group; empty for the core group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub group: String,

    /// The kind.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
}

/// Objects of a kind that are deleted without approval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct DeletionExemption {
    /// The API group of the kind; empty for the core group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub group: String,

    /// The kind.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,

    /// Labels that the objects have in the cluster. Without any, all objects of the kind are exempt.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "match_labels")]
    pub match_labels: BTreeMap<String, String>,
}

/// The schema of labels: bounded, since each Plan has those of its budget.
fn match_labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 8,
        "additionalProperties": { "type": "string", "maxLength": 63 },
    })
}
