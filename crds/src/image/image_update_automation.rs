//! ImageUpdateAutomation: the latest versions of images are committed to a Git repository.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ImageRef;
use crate::condition::{self, Condition};
use crate::custom_resource::{AGE, PrinterColumn, READY, STATUS, custom_resource};
use crate::reconciled_object::reconciled;
use crate::source::GitRepositoryRef;
use crate::{GoDuration, LocalObjectReference, Time, omit_empty};

custom_resource! {
    /// Writes the latest versions of images into files of a Git repository, and pushes them as a commit.
    ImageUpdateAutomation {
        spec: ImageUpdateAutomationSpec,
        status: ImageUpdateAutomationStatus,
        api: "image.toolkit.fluxcd.io" / "v1",
        plural: "imageupdateautomations",
        short: ["iua", "imgupd", "imgauto"],
        category: "fluxcd-images",
        columns: [
            READY,
            STATUS,
            PrinterColumn::wide("Last run", ".status.lastAutomationRunTime"),
            AGE,
        ],
    }
}

reconciled!(ImageUpdateAutomation ImageUpdateAutomationStatus "image-automation-controller");

/// Which repository and files to update, with the results of which policies, and how to commit and push.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ImageUpdateAutomationSpec {
    /// The GitRepository that says where to fetch from and push to, and with which credentials.
    pub source_ref: ImageUpdateSourceReference,

    /// How to fetch, commit and push.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git: Option<ImageUpdateGitSpec>,

    /// How often to run.
    pub interval: GoDuration,

    /// The ImagePolicies of this namespace whose results are written. Without it all are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "label_selector")]
    pub policy_selector: Option<LabelSelector>,

    /// Which files are updated, and how.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = { "strategy": "Setters" }))]
    pub update: Option<UpdateStrategy>,

    /// Whether to suspend this automation.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub suspend: bool,
}

/// The schema of a label selector.
fn label_selector(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchLabels": {
                "type": "object",
                "description": "Labels with exactly these values.",
                "additionalProperties": { "type": "string" },
            },
            "matchExpressions": {
                "type": "array",
                "x-kubernetes-list-type": "atomic",
                "description": "What else the labels have to meet.",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": { "type": "string", "description": "The label." },
                        "operator": {
                            "type": "string",
                            "description": "How the value of the label relates to `values`: In, NotIn, Exists or DoesNotExist.",
                        },
                        "values": {
                            "type": "array",
                            "x-kubernetes-list-type": "atomic",
                            "description": "Values, for `In` and `NotIn`.",
                            "items": { "type": "string" },
                        },
                    },
                },
            },
        },
    })
}

/// Names the source of files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ImageUpdateSourceReference {
    /// The API group and version of the source.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,

    /// The kind of the source.
    #[schemars(extend("enum" = ["GitRepository"], "default" = "GitRepository"))]
    pub kind: String,

    /// The name of the source.
    pub name: String,

    /// The namespace of the source. Defaults to that of the automation.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// How to fetch, commit and push.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ImageUpdateGitSpec {
    /// What to fetch. Without it, the reference of the GitRepository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkout: Option<GitCheckoutSpec>,

    /// How to commit.
    pub commit: GitCommitSpec,

    /// Where to push. Without it, to the branch that was fetched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub push: Option<GitPushSpec>,
}

/// What to fetch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct GitCheckoutSpec {
    /// The reference to fetch, in place of that of the GitRepository.
    #[serde(rename = "ref")]
    pub reference: GitRepositoryRef,
}

/// How to commit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct GitCommitSpec {
    /// The author of the commit.
    pub author: CommitUser,

    /// The key that signs the commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signing_key: Option<CommitSigningKey>,

    /// The message of the commit, as a template of Go.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub message_template: Option<String>,

    /// Values that the template has as `.Values`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub message_template_values: BTreeMap<String, String>,
}

/// The author of a commit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct CommitUser {
    /// The name.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,

    /// The address.
    pub email: String,
}

/// The key that signs commits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct CommitSigningKey {
    /// A Secret with the key. For `gpg`: `git.asc`, and its `passphrase`. For `ssh`: `identity`, and
    /// its `password`.
    pub secret_ref: LocalObjectReference,

    /// Which sort of key it is. Defaults to `gpg`.
    #[serde(
        rename = "type",
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(extend("enum" = ["gpg", "ssh"]))]
    pub type_: Option<String>,
}

/// Where to push.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitPushSpec {
    /// The branch to push to. It is created if it is missing.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub branch: Option<String>,

    /// A refspec, such as `HEAD:refs/for/main`, by which the commit is pushed to another reference
    /// besides the branch.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(regex(pattern = "^$|^[^+:]"))]
    pub refspec: Option<String>,

    /// Push options, which hooks of the server read.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, String>,
}

/// Which files are updated, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateStrategy {
    /// `Setters` sets values that are marked by comments such as `# {"$imagepolicy": "apps:web"}`.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(extend("enum" = ["Setters"], "default" = "Setters"))]
    pub strategy: Option<String>,

    /// The folder of the files. Defaults to the whole repository.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub path: Option<String>,
}

/// What was last pushed, and of what.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("default" = { "observedGeneration": -1 }))]
pub struct ImageUpdateAutomationStatus {
    /// When the automation last ran, even if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_automation_run_time: Option<Time>,

    /// The hash of the last commit that was pushed.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub last_push_commit: Option<String>,

    /// When it was pushed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_push_time: Option<Time>,

    /// The generation of the spec that this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The results of policies that were last written, by the names of the policies.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub observed_policies: BTreeMap<String, ImageRef>,

    /// The revision in which all files were up to date.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub observed_source_revision: Option<String>,

    /// The conditions of this object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::list")]
    pub conditions: Vec<Condition>,

    /// The value of the `reconcile.fluxcd.io/requestedAt` annotation that was last handled.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
}
