//! ImagePolicy: the latest of the tags of an image.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::{self, Condition};
use crate::custom_resource::{AGE, PrinterColumn, READY, STATUS, custom_resource};
use crate::reconciled_object::reconciled;
use crate::string_enum::choice;
use crate::{GoDuration, omit_empty};

custom_resource! {
    /// Chooses the latest of the tags that an ImageRepository lists.
    ImagePolicy {
        spec: ImagePolicySpec,
        status: ImagePolicyStatus,
        api: "image.toolkit.fluxcd.io" / "v1",
        plural: "imagepolicies",
        short: ["imgpol", "imagepol"],
        category: "fluxcd-images",
        columns: [
            PrinterColumn::text("Image", ".status.latestRef.name"),
            PrinterColumn::text("Tag", ".status.latestRef.tag"),
            READY,
            STATUS,
            AGE,
        ],
    }
}

reconciled!(ImagePolicy ImagePolicyStatus "image-reflector-controller");

/// Whose tags are compared, and how.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = [
    {
        "rule": "!has(self.interval) || (has(self.digestReflectionPolicy) && self.digestReflectionPolicy == 'Always')",
        "message": "spec.interval is only accepted when spec.digestReflectionPolicy is set to 'Always'",
    },
    {
        "rule": "has(self.interval) || !has(self.digestReflectionPolicy) || self.digestReflectionPolicy != 'Always'",
        "message": "spec.interval must be set when spec.digestReflectionPolicy is set to 'Always'",
    },
]))]
pub struct ImagePolicySpec {
    /// The ImageRepository whose tags are compared.
    pub image_repository_ref: ImageRepositoryReference,

    /// How tags are compared. Of several policies the first counts.
    pub policy: ImagePolicyChoice,

    /// Which tags are compared. Without it all are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter_tags: Option<TagFilter>,

    /// Whether the digest of the latest tag is looked up.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Never"))]
    pub digest_reflection_policy: Option<DigestReflectionPolicy>,

    /// How often to look the digest up, where `digestReflectionPolicy` is `Always`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<GoDuration>,

    /// Whether to suspend this policy. What it chose stays available.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub suspend: bool,
}

/// Names an ImageRepository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ImageRepositoryReference {
    /// The name of the ImageRepository.
    pub name: String,

    /// The namespace of the ImageRepository. Defaults to that of the policy.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

choice! {
    /// Whether the digest of a tag is looked up.
    DigestReflectionPolicy {
        /// Repeatedly, at an interval.
        Always = "Always",
        /// When the tag becomes the latest.
        IfNotPresent = "IfNotPresent",
        /// It is not.
        #[default]
        Never = "Never",
    }
}

/// The ways to compare tags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImagePolicyChoice {
    /// As semantic versions; tags that are none are left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub semver: Option<SemVerPolicy>,

    /// As strings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alphabetical: Option<AlphabeticalPolicy>,

    /// As numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numerical: Option<NumericalPolicy>,
}

/// Compares tags as semantic versions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct SemVerPolicy {
    /// The range of versions of which the highest is the latest.
    pub range: String,
}

/// The words of an order.
const ORDER_WORDS: [&str; 2] = ["asc", "desc"];

/// Compares tags as strings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AlphabeticalPolicy {
    /// With `asc` the last tag is the latest, with `desc` the first.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(extend("enum" = ORDER_WORDS, "default" = "asc"))]
    pub order: Option<String>,
}

/// Compares tags as numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NumericalPolicy {
    /// With `asc` the largest number is the latest, with `desc` the smallest.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(extend("enum" = ORDER_WORDS, "default" = "asc"))]
    pub order: Option<String>,
}

/// Chooses tags, and what of them is compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TagFilter {
    /// A regular expression. Tags in which it is found are compared.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub pattern: Option<String>,

    /// What is compared instead of the tag; `$name` stands for a group of the pattern.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub extract: Option<String>,
}

/// One version of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ImageRef {
    /// The name of the image, as the ImageRepository has it.
    pub name: String,

    /// The tag.
    pub tag: String,

    /// The digest for which the tag stood when it was looked up.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

impl std::fmt::Display for ImageRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.name, self.tag)?;
        self.digest.as_ref().map_or(Ok(()), |digest| write!(f, "@{digest}"))
    }
}

/// What was last chosen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("default" = { "observedGeneration": -1 }))]
pub struct ImagePolicyStatus {
    /// The latest version of the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest_ref: Option<ImageRef>,

    /// The version that was the latest before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_previous_ref: Option<ImageRef>,

    /// The generation of the spec that this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The conditions of this object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::list")]
    pub conditions: Vec<Condition>,

    /// The value of the `reconcile.fluxcd.io/requestedAt` annotation that was last handled.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
}
