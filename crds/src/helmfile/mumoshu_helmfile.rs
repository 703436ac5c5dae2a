//! The Helmfile of helmfile-operator: its resources apply unchanged.
//!
//! Fields that helmfile-operator does not have are at the end of the spec; each has a default.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::HelmfileStatus;
use super::spec::REVISION;
use crate::custom_resource::{AGE, READY, STATUS, custom_resource};
use crate::kustomize::DeletionPolicy;
use crate::reconciled_object::reported;
use crate::{
    Applier, CustomHealthCheck, DependencyReference, GoDuration, KubeConfigReference, omit_empty,
    schema,
};

custom_resource! {
    /// A helmfile at an address, whose releases are installed and kept as it says.
    Helmfile {
        spec: HelmfileSpec,
        status: HelmfileStatus,
        api: "apps.mumoshu.github.io" / "v1alpha1",
        plural: "helmfiles",
        short: [],
        category: "fluxcd-appliers",
        columns: [AGE, READY, STATUS, REVISION],
    }
}

// It has the status of the other kind.
reported!(Helmfile HelmfileStatus "helmfile-controller" applies = true);

/// It knows neither dependencies nor other clusters.
impl Applier for Helmfile {
    fn depends_on(&self) -> &[DependencyReference] {
        &[]
    }

    fn health_check_exprs(&self) -> &[CustomHealthCheck] {
        &[]
    }

    fn kube_config(&self) -> Option<&KubeConfigReference> {
        None
    }

    fn service_account_name(&self) -> Option<&str> {
        self.spec.service_account_name.as_deref()
    }
}

/// Which helmfile to read, and with which values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct HelmfileSpec {
    /// The address of the helmfile, as go-getter has it: `git::https://HOST/REPOSITORY@PATH?ref=REFERENCE`,
    /// `https://HOST/PATH`, `https::https://HOST/ARCHIVE@PATH` or `s3://BUCKET/OBJECT`.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub source: Option<String>,

    /// The branch, tag or commit of a repository, instead of `?ref=` in its address.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,

    /// The image of the Pod that helmfile-operator runs. It has no effect: no Pod is run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<HelmfileOperatorPodImage>,

    /// The program of that Pod. It has no effect either.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,

    /// State values, above those of the environment and of `valuesFiles`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::anything")]
    pub values: Option<Value>,

    /// Files of state values, relative to the helmfile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values_files: Vec<String>,

    /// The environment variables that templates see.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub envvars: BTreeMap<String, String>,

    /// The environment of the helmfile. Defaults to `default`.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,

    /// How often to fetch the helmfile and to compare the cluster with it. Defaults to a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<GoDuration>,

    /// Whether to suspend reconciliation, until this is unset.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub suspend: bool,

    /// Whether releases that are no longer in the helmfile are uninstalled.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub prune: bool,

    /// What happens to the releases when this object is deleted. Defaults to `Orphan`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<DeletionPolicy>,

    /// The ServiceAccount to impersonate when releases are installed.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
}

/// An image, as helmfile-operator names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmfileOperatorPodImage {
    /// The repository of the image.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub repository: Option<String>,

    /// The tag of the image.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub tag: Option<String>,
}
