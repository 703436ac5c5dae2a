//! Kustomization: the manifests of a source, built and kept applied.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::KustomizationStatus;
use crate::custom_resource::{AGE, READY, STATUS, custom_resource};
use crate::reconciled_object::{applier, reconciled};
use crate::string_enum::choice;
use crate::{
    CommonMetadata, ConfigKind, CustomHealthCheck, DependencyReference, GoDuration, IgnoreRule,
    Image, KubeConfigReference, LocalObjectReference, NamespacedObjectKindReference, Patch,
    omit_empty,
};

custom_resource! {
    /// A directory of manifests that is built with kustomize and kept applied to a cluster.
    Kustomization {
        spec: KustomizationSpec,
        status: KustomizationStatus,
        api: "kustomize.toolkit.fluxcd.io" / "v1",
        plural: "kustomizations",
        short: ["ks"],
        category: "fluxcd-appliers",
        columns: [AGE, READY, STATUS],
    }
}

reconciled!(Kustomization KustomizationStatus "kustomize-controller" applies = true inventory = inventory);
applier!(Kustomization);

/// Which manifests to build, how to change them, and how to apply them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct KustomizationSpec {
    /// Labels and annotations to set on all objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub common_metadata: Option<CommonMetadata>,

    /// The objects that have to exist or to be ready first: Kustomizations, unless an entry names another kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<DependencyReference>,

    /// How to decrypt what is encrypted in the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decryption: Option<Decryption>,

    /// How often to compare the cluster with the source.
    pub interval: GoDuration,

    /// How long to wait after a failure before the next attempt. Defaults to `interval`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_interval: Option<GoDuration>,

    /// The cluster to apply to. Defaults to the one in which this object lives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kube_config: Option<KubeConfigReference>,

    /// The directory in the source that holds the `kustomization.yaml`. Defaults to its root. A
    /// directory without that file is built as if it listed all manifests below it.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,

    /// Changes to make once kustomize has built the manifests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub post_build: Option<PostBuild>,

    /// Whether objects that are no longer in the source are deleted from the cluster.
    pub prune: bool,

    /// What happens to the objects when this one is deleted. Defaults to `MirrorPrune`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<DeletionPolicy>,

    /// Objects that have to be healthy before this one is ready. No effect with `wait`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health_checks: Vec<NamespacedObjectKindReference>,

    /// A prefix for the names of all objects.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 200))]
    pub name_prefix: Option<String>,

    /// A suffix for the names of all objects.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 200))]
    pub name_suffix: Option<String>,

    /// Patches to make while building.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patches: Vec<Patch>,

    /// Container images to replace while building.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,

    /// The ServiceAccount to impersonate when objects are applied.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,

    /// The source of the manifests.
    pub source_ref: CrossNamespaceSourceReference,

    /// Whether to suspend reconciliation, until this is unset.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub suspend: bool,

    /// The namespace to put all objects into.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub target_namespace: Option<String>,

    /// How long building, applying and becoming healthy may take. Defaults to `interval` minus
    /// 30 seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<GoDuration>,

    /// Whether objects are deleted and created again when a field that cannot change has changed.
    #[serde(default)]
    pub force: bool,

    /// Whether all applied objects have to be healthy before this one is ready.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub wait: bool,

    /// Facts about the build to write into annotations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub build_metadata: Vec<BuildMetadata>,

    /// Directories of kustomize components to build in, relative to `path`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<String>,

    /// Whether components that do not exist are ignored.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub ignore_missing_components: bool,

    /// How to determine the health of kinds that have no conventional status.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health_check_exprs: Vec<CustomHealthCheck>,

    /// Fields that other field managers may change, and that are not corrected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignore: Vec<IgnoreRule>,
}

choice! {
    /// What happens to the applied objects when their Kustomization is deleted.
    DeletionPolicy {
        /// They are deleted if `prune` is set, and left in the cluster otherwise.
        #[default]
        MirrorPrune = "MirrorPrune",
        /// They are deleted.
        Delete = "Delete",
        /// They are deleted, and the Kustomization stays until they are gone.
        WaitForTermination = "WaitForTermination",
        /// They are left in the cluster.
        Orphan = "Orphan",
    }
}

choice! {
    /// A fact about the build that kustomize can write into annotations.
    BuildMetadata {
        /// The file that an object came from.
        #[default]
        OriginAnnotations = "originAnnotations",
        /// The transformers that changed an object.
        TransformerAnnotations = "transformerAnnotations",
    }
}

/// Names the source of a Kustomization.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CrossNamespaceSourceReference {
    /// The API group and version of the source.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub api_version: Option<String>,

    /// The kind of the source.
    pub kind: KustomizationSourceKind,

    /// The name of the source.
    pub name: String,

    /// The namespace of the source. Defaults to that of the Kustomization.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub namespace: Option<String>,
}

choice! {
    /// The kinds of source that can hold manifests.
    KustomizationSourceKind {
        /// An artifact of a registry.
        OCIRepository = "OCIRepository",
        /// A revision of a Git repository.
        #[default]
        GitRepository = "GitRepository",
        /// The objects of an object store.
        Bucket = "Bucket",
        /// An artifact provided by another controller.
        ExternalArtifact = "ExternalArtifact",
    }
}

/// How to decrypt manifests and the files that generators read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Decryption {
    /// The format of what is encrypted.
    pub provider: DecryptionProvider,

    /// The ServiceAccount whose cloud identity is used to reach a key service.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub service_account_name: Option<String>,

    /// A Secret with the private keys, or with credentials for a key service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
}

choice! {
    /// The formats of encryption.
    DecryptionProvider {
        /// SOPS.
        #[default]
        Sops = "sops",
    }
}

/// Changes to make once kustomize has built the manifests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PostBuild {
    /// When to substitute. Defaults to `WithVariables`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub substitute_strategy: Option<SubstituteStrategy>,

    /// Variables, and the values that take the place of `${name}` in the manifests. They win over
    /// those of `substituteFrom`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub substitute: BTreeMap<String, String>,

    /// ConfigMaps and Secrets whose keys are further variables. Later ones win.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub substitute_from: Vec<SubstituteReference>,
}

choice! {
    /// When variables are substituted.
    SubstituteStrategy {
        /// If there is at least one variable.
        #[default]
        WithVariables = "WithVariables",
        /// Even without any, so that defaults in the manifests take effect.
        Always = "Always",
    }
}

/// Names a ConfigMap or Secret with variables, in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubstituteReference {
    /// The kind of the object.
    pub kind: ConfigKind,

    /// The name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// Whether the object may be missing.
    #[serde(default)]
    pub optional: bool,
}
