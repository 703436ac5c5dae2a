//! HelmRepository: the index of a chart repository, or the address of a registry with charts.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::RegistryProvider;
use crate::condition::{self, Condition};
use crate::custom_resource::{AGE, READY, STATUS, URL, custom_resource};
use crate::duration::FETCH_PATTERN;
use crate::reconciled_object::{reconciled, source};
use crate::string_enum::choice;
use crate::{Artifact, GoDuration, LocalObjectReference, omit_empty};

custom_resource! {
    /// A repository of Helm charts. Its index is fetched into an artifact, unless it is a registry.
    HelmRepository {
        spec: HelmRepositorySpec,
        status: HelmRepositoryStatus,
        api: "source.toolkit.fluxcd.io" / "v1",
        plural: "helmrepositories",
        short: ["helmrepo"],
        category: "fluxcd-sources",
        columns: [URL, AGE, READY, STATUS],
    }
}

reconciled!(HelmRepository HelmRepositoryStatus "source-controller");
source!(HelmRepository HelmRepositoryStatus [url]);

/// Which repository to use, and how often to fetch its index.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct HelmRepositorySpec {
    /// The address of the repository, over HTTP or HTTPS or as `s3://bucket/prefix`, or of the
    /// registry as `oci://…`.
    // Differs(flux): there is no `s3://`.
    #[schemars(regex(pattern = "^(http|https|oci|s3)://.*$"))]
    pub url: String,

    /// A Secret with `username` and `password`, for a registry one of type
    /// `kubernetes.io/dockerconfigjson`, or for a bucket `accesskey` and `secretkey`, with
    /// `endpoint` and `region` where it is not at AWS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,

    /// A Secret with `ca.crt`, or with `tls.crt` and `tls.key`, for the connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_secret_ref: Option<LocalObjectReference>,

    /// Whether credentials are also sent to other hosts that the index refers to, or used for other
    /// buckets.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub pass_credentials: bool,

    /// How often to check for a new index. Defaults to `1m`. No effect for OCI registries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<GoDuration>,

    /// Whether the registry or the server of the bucket may be reached over plain HTTP. For
    /// registries and buckets only.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub insecure: bool,

    /// How long fetching the index may take, or a chart of a registry. Defaults to `60s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = FETCH_PATTERN))]
    pub timeout: Option<GoDuration>,

    /// Whether to suspend checking for a new index. The artifact stays available.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub suspend: bool,

    /// Who may use this repository from other namespaces. Flux has never put it into effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_from: Option<AccessFrom>,

    /// Whether the address is that of a repository with an index, or of a registry. Defaults to
    /// `default`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<HelmRepositoryType>,

    /// Where the credentials of a registry come from.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "generic"))]
    pub provider: Option<RegistryProvider>,
}

choice! {
    /// The type of the server of a HelmRepository.
    HelmRepositoryType {
        /// A web server with an `index.yaml`.
        #[default]
        Default = "default",
        /// An OCI registry, which has no index and is not reconciled.
        Oci = "oci",
    }
}

/// Which namespaces may refer to an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccessFrom {
    /// The selectors of which a namespace has to match one.
    pub namespace_selectors: Vec<NamespaceSelector>,
}

/// Selects namespaces by their labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceSelector {
    /// The labels that a namespace must have. Without any, all namespaces match.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
}

/// What was last fetched.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("default" = { "observedGeneration": -1 }))]
pub struct HelmRepositoryStatus {
    /// The generation of the spec that this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The conditions of this object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::list")]
    pub conditions: Vec<Condition>,

    /// A stable address of whatever index is the newest.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,

    /// The index of the last fetch that succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,

    /// The value of the `reconcile.fluxcd.io/requestedAt` annotation that was last handled.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
}
