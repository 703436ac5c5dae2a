//! OCIRepository: an artifact of an OCI registry as an artifact of ours.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::OCIRepositoryVerification;
use crate::condition::{self, Condition};
use crate::custom_resource::{AGE, READY, STATUS, URL, custom_resource};
use crate::duration::FETCH_PATTERN;
use crate::reconciled_object::{reconciled, source};
use crate::string_enum::choice;
use crate::{Artifact, GoDuration, LocalObjectReference, omit_empty};

custom_resource! {
    /// A repository of an OCI registry, of which one layer of one revision is fetched into an
    /// artifact.
    OCIRepository {
        spec: OCIRepositorySpec,
        status: OCIRepositoryStatus,
        api: "source.toolkit.fluxcd.io" / "v1",
        plural: "ocirepositories",
        short: ["ocirepo"],
        category: "fluxcd-sources",
        columns: [URL, READY, STATUS, AGE],
    }
}

reconciled!(OCIRepository OCIRepositoryStatus "source-controller");
source!(OCIRepository OCIRepositoryStatus [url]);

/// Which repository, revision and layer to fetch, and how often to check for changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct OCIRepositorySpec {
    /// The address of the repository, as `oci://` and its name without tag or digest.
    #[schemars(regex(pattern = "^oci://.*$"))]
    pub url: String,

    /// The revision to fetch. Defaults to the tag `latest`.
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<OCIRepositoryRef>,

    /// The layer to take. Defaults to the first, extracted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer_selector: Option<OCILayerSelector>,

    /// Where credentials come from.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "generic"))]
    pub provider: Option<RegistryProvider>,

    /// A Secret of type `kubernetes.io/dockerconfigjson` with the credentials of the registry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,

    /// The signature that the revision must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<OCIRepositoryVerification>,

    /// The ServiceAccount whose image pull secrets or cloud identity are used to authenticate.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,

    /// A Secret with `ca.crt`, or with `tls.crt` and `tls.key`, for the connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_secret_ref: Option<LocalObjectReference>,

    /// A Secret that describes a proxy: `address`, and `username` and `password` if it asks for
    /// them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_secret_ref: Option<LocalObjectReference>,

    /// How often to check for a new revision.
    pub interval: GoDuration,

    /// How long fetching may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = FETCH_PATTERN), extend("default" = "60s"))]
    pub timeout: Option<GoDuration>,

    /// Patterns of files to leave out, in the notation of `.gitignore`. They are added to the
    /// `.sourceignore` files of the layer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignore: Option<String>,

    /// Whether the registry may be reached over plain HTTP, or without checking its certificate.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub insecure: bool,

    /// Whether to suspend checking for new revisions. The artifact stays available.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub suspend: bool,
}

choice! {
    /// Where the credentials of a registry come from.
    RegistryProvider {
        /// Secrets.
        #[default]
        Generic = "generic",
        /// The workload identity of AWS.
        Aws = "aws",
        /// The workload identity of Azure.
        Azure = "azure",
        /// The workload identity of Google Cloud.
        Gcp = "gcp",
    }
}

/// A revision in a repository. If several fields are set, `digest` wins over `semver` over `tag`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OCIRepositoryRef {
    /// The manifest with this digest, as `sha256:<hex>`.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub digest: Option<String>,

    /// The highest tag in this range of semantic versions.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub semver: Option<String>,

    /// A regular expression that tags must match to be considered for `semver`.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub semver_filter: Option<String>,

    /// The manifest with this tag.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub tag: Option<String>,
}

/// A layer of a manifest and what to do with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OCILayerSelector {
    /// The first layer of this media type. Without it, the first layer.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub media_type: Option<String>,

    /// What to do with the layer. Defaults to `extract`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<LayerOperation>,
}

choice! {
    /// How a layer becomes an artifact.
    LayerOperation {
        /// Its files are unpacked, filtered and packed again.
        #[default]
        Extract = "extract",
        /// It is stored as it is, as Helm charts have to be.
        Copy = "copy",
    }
}

/// What was last fetched.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("default" = { "observedGeneration": -1 }))]
pub struct OCIRepositoryStatus {
    /// The generation of the spec that this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The conditions of this object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::list")]
    pub conditions: Vec<Condition>,

    /// A stable address of whatever artifact is the newest.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,

    /// The artifact of the last fetch that succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,

    /// The `ignore` of the spec that the artifact was made with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_ignore: Option<String>,

    /// The `layerSelector` of the spec that the artifact was made with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_layer_selector: Option<OCILayerSelector>,

    /// The value of the `reconcile.fluxcd.io/requestedAt` annotation that was last handled.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
}
