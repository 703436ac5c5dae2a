//! Helmfile: which helmfile of which source, and how its releases are kept.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::HelmfileStatus;
use crate::custom_resource::{AGE, PrinterColumn, READY, STATUS, custom_resource};
use crate::helm::{DriftDetection, ValuesReference};
use crate::kustomize::{CrossNamespaceSourceReference, Decryption, DeletionPolicy};
use crate::reconciled_object::reconciled;
use crate::string_enum::choice;
use crate::{
    Applier, ConfigKind, CustomHealthCheck, DependencyReference, GoDuration, KubeConfigReference,
    Time, omit_empty, schema,
};

pub(crate) const REVISION: PrinterColumn =
    PrinterColumn::text("Revision", ".status.lastAppliedRevision");

custom_resource! {
    /// A helmfile in a source, whose releases are installed and kept as it says.
    Helmfile {
        spec: HelmfileSpec,
        status: HelmfileStatus,
        api: "helmfile.windlass.dev" / "v1alpha1",
        plural: "helmfiles",
        short: ["hf"],
        category: "fluxcd-appliers",
        columns: [AGE, READY, STATUS, REVISION],
    }
}

reconciled!(Helmfile HelmfileStatus "helmfile-controller" applies = true);

/// Health is Helm's business here, by its own rules.
impl Applier for Helmfile {
    fn depends_on(&self) -> &[DependencyReference] {
        &self.spec.depends_on
    }

    fn health_check_exprs(&self) -> &[CustomHealthCheck] {
        &[]
    }

    fn kube_config(&self) -> Option<&KubeConfigReference> {
        self.spec.kube_config.as_ref()
    }

    fn service_account_name(&self) -> Option<&str> {
        self.spec.service_account_name.as_deref()
    }
}

/// Which helmfile to read, with which environment and values, and how to keep its releases.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = [
    {
        "rule": "has(self.sourceRef) != has(self.source)",
        "message": "exactly one of spec.sourceRef or spec.source must be specified",
    },
    {
        "rule": "!(has(self.path) && has(self.source))",
        "message": "spec.path goes with spec.sourceRef; in spec.source the path follows `@`",
    },
]))]
pub struct HelmfileSpec {
    /// The source that holds the helmfile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_ref: Option<CrossNamespaceSourceReference>,

    /// The address of the helmfile instead of a source, as go-getter has it:
    /// `git::https://HOST/REPOSITORY@PATH?ref=REFERENCE`, `https://HOST/PATH`,
    /// `https::https://HOST/ARCHIVE@PATH` or `s3://BUCKET/OBJECT`. It is fetched anonymously, and again
    /// at each interval.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub source: Option<String>,

    /// The helmfile in the source, or the directory of a `helmfile.yaml`, `helmfile.yaml.gotmpl` or
    /// `helmfile.d`. Defaults to the root of the source.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,

    /// The version of helmfile for which the helmfile was written. Defaults to `v1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dialect: Option<Dialect>,

    /// The environment of the helmfile. Defaults to `default`.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,

    /// Which releases to keep: each selector lists labels as `helmfile --selector` does, and a release
    /// is kept if one of the selectors matches. Defaults to all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub selectors: Vec<String>,

    /// State values, above those of the environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::anything")]
    pub values: Option<Value>,

    /// Files of state values in the source, relative to the helmfile; below `valuesFrom` and `values`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values_files: Vec<String>,

    /// ConfigMaps and Secrets with state values, below `values`; later ones are above earlier ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values_from: Vec<ValuesReference>,

    /// Environment variables that templates see. Those of the controller are not visible to them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<EnvironmentVariable>,

    /// ConfigMaps and Secrets whose keys are environment variables, below `env`; later ones are above
    /// earlier ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_from: Vec<EnvironmentSource>,

    /// How to decrypt `secrets` of the helmfile and what its `ref+sops` references name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decryption: Option<Decryption>,

    /// How often to compare the cluster with the helmfile, and repositories of charts with its version
    /// ranges.
    pub interval: GoDuration,

    /// How long to wait after a failure before the next attempt. Defaults to `interval`, at most a
    /// minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_interval: Option<GoDuration>,

    /// How long the operation of a release may take that has no `timeout` in the helmfile. Defaults to
    /// five minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<GoDuration>,

    /// Whether to suspend reconciliation, until this is unset.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub suspend: bool,

    /// Releases that are not changed while the others go on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suspended_releases: Vec<SuspendedRelease>,

    /// Whether releases that are no longer in the helmfile are uninstalled.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub prune: bool,

    /// What happens to the releases when this object is deleted. Defaults to `MirrorPrune`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<DeletionPolicy>,

    /// The ServiceAccount to impersonate when releases are installed.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,

    /// The cluster of the releases. Defaults to the one in which this object lives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kube_config: Option<KubeConfigReference>,

    /// The clusters of releases with a `kubeContext`, by the name of the context. Releases without one
    /// are in the cluster of `kubeConfig`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64, "x-kubernetes-validations" = [{
        "rule": "!('' in self)",
        "message": "the name of a context must not be empty",
    }]))]
    pub kube_contexts: BTreeMap<String, KubeConfigReference>,

    /// The namespace of releases that name none. Defaults to that of this object.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub target_namespace: Option<String>,

    /// The objects that have to exist or to be ready first: Helmfiles, unless an entry names another kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<DependencyReference>,

    /// Whether the objects of all releases have to be healthy, as with `wait: true` in the helmfile.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub wait: bool,

    /// What to do when the cluster differs from a release. Without it, differences are corrected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drift_detection: Option<DriftDetection>,
}

choice! {
    /// For which version of helmfile a helmfile was written.
    Dialect {
        /// Before 1.0: every helmfile is a template and is rendered twice, and old keys are read.
        V0 = "v0",
        /// Since 1.0: only files that end in `.gotmpl` are templates.
        #[default]
        V1 = "v1",
    }
}

/// An environment variable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnvironmentVariable {
    /// The name of the variable.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// Its value.
    #[serde(default)]
    pub value: String,
}

/// A ConfigMap or Secret whose keys are environment variables, in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnvironmentSource {
    /// The kind of the object.
    pub kind: ConfigKind,

    /// The name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// Whether the object may be missing.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub optional: bool,
}

/// A release that is not changed for a while.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SuspendedRelease {
    /// The name of the release.
    #[schemars(length(min = 1, max = 53))]
    pub name: String,

    /// The namespace of the release. Defaults to every namespace.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub namespace: Option<String>,

    /// The `kubeContext` of the release; an empty one is the cluster of `kubeConfig`. Defaults to every
    /// context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kube_context: Option<String>,

    /// Why it is suspended, for people.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub reason: Option<String>,

    /// When it goes on by itself. Without it, when this entry is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
}
