//! References: how one object names another.
//!
//! Here: the shapes that several kinds share. References that accept only certain kinds are
//! declared beside the spec that holds them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::omit_empty;
use crate::string_enum::choice;

/// Names an object of a known kind in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalObjectReference {
    /// The name of the object.
    pub name: String,
}

impl From<&str> for LocalObjectReference {
    fn from(name: &str) -> Self {
        Self { name: name.to_owned() }
    }
}

/// Names a Secret in the same namespace, and optionally one of its keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyReference {
    /// The key to read. Each user of the reference has its own default.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub key: Option<String>,

    /// The name of the Secret.
    pub name: String,
}

/// Names an object of any kind in any namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamespacedObjectKindReference {
    /// The API group and version of the object.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub api_version: Option<String>,

    /// The kind of the object.
    pub kind: String,

    /// The name of the object.
    pub name: String,

    /// The namespace of the object. Defaults to that of the object that holds the reference.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub namespace: Option<String>,
}

/// Names an object that has to exist or to be ready first: one of the same kind, or of any other kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DependencyReference {
    /// The API group and version of the object. Defaults to those of the object that holds the reference.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub api_version: Option<String>,

    /// The kind of the object. Defaults to that of the object that holds the reference. Another kind needs `apiVersion`, too.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub kind: Option<String>,

    /// The name of the object.
    pub name: String,

    /// The namespace of the object. Defaults to that of the object that holds the reference.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub namespace: Option<String>,

    /// Whether the object has to be ready; otherwise it only has to exist. Defaults to true for Kustomizations, HelmReleases
    /// and Helmfiles, and to false for objects of other kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,

    /// A CEL expression that says whether the dependency is ready, instead of the Ready condition.
    /// It sees this object as `self` and the dependency as `dep`, and must yield a boolean.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub ready_expr: Option<String>,
}

/// Says how to reach a remote cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "has(self.configMapRef) || has(self.secretRef)",
        "message": "exactly one of spec.kubeConfig.configMapRef or spec.kubeConfig.secretRef must be specified",
    },
    {
        "rule": "!has(self.configMapRef) || !has(self.secretRef)",
        "message": "exactly one of spec.kubeConfig.configMapRef or spec.kubeConfig.secretRef must be specified",
    },
]))]
pub struct KubeConfigReference {
    /// A ConfigMap that describes the cluster and the identity to use there, without holding
    /// credentials. Its keys are `provider` (required), `cluster`, `address`, `ca.crt`,
    /// `audiences` and `serviceAccountName`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<LocalObjectReference>,

    /// A Secret that holds a kubeconfig. Without `key`, `value` and then `value.yaml` are tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretKeyReference>,
}

choice! {
    /// The kind of object that configuration values are read from.
    ConfigKind {
        /// A Secret.
        #[default]
        Secret = "Secret",
        /// A ConfigMap.
        ConfigMap = "ConfigMap",
    }
}
