//! CustomResourceDefinitions: the parts that decide how objects are stored and validated.
//!
//! Here: reading these parts. Elsewhere: the schemas (`schema`), and comparing two definitions (`crd_change_judge`).

use serde_json::Value;

use crate::schema::CrdVersionSchema;

/// How many versions a definition may have to be judged.
const MAX_VERSIONS: usize = 64;

/// Why a definition cannot be judged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CrdDefinitionError {
    /// The object is not a CustomResourceDefinition, or has an API version that is not served any more.
    #[error("it is not a CustomResourceDefinition of apiextensions.k8s.io/v1")]
    Kind,
    /// A field that every definition has is missing or has the wrong type.
    #[error("`{0}` is missing or invalid")]
    Field(&'static str),
    /// The definition has too many versions.
    #[error("it has more than {MAX_VERSIONS} versions")]
    Versions,
    /// A schema nests too deeply or has too many parts.
    #[error("the schema of version {0} nests too deeply or is too large")]
    Schema(String),
}

/// The parts of a CustomResourceDefinition that matter for its objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrdDefinition {
    /// `metadata.name`.
    pub name: String,
    /// `spec.group`.
    pub group: String,
    /// `spec.names.kind`.
    pub kind: String,
    /// `spec.names.plural`.
    pub plural: String,
    /// `spec.names.listKind`, or the default that the API server would set.
    pub list_kind: String,
    /// Whether its objects are in namespaces.
    pub is_namespaced: bool,
    /// The versions, in the order of the definition.
    pub versions: Vec<CrdVersion>,
    /// How objects are converted between versions.
    pub conversion: CrdConversion,
    /// `status.storedVersions`.
    pub stored: Vec<String>,
}

/// One version of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrdVersion {
    /// The name of the version, such as `v1beta1`.
    pub name: String,
    /// Whether clients can use the version.
    pub is_served: bool,
    /// Whether objects are stored in the version.
    pub is_storage: bool,
    /// Whether `status` is a subresource, so that separate requests write the status and the other fields.
    pub has_status: bool,
}

/// How objects are converted between versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CrdConversion {
    /// The API server only changes `apiVersion`.
    None,
    /// A webhook converts the objects. The Service is `None` if the webhook has a URL.
    Webhook(Option<WebhookServiceReference>),
}

/// The Service of a conversion webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookServiceReference {
    /// The namespace of the Service.
    pub namespace: String,
    /// The name of the Service.
    pub name: String,
}

impl CrdDefinition {
    /// Reads a definition.
    ///
    /// # Errors
    /// The object is not a definition that can be judged.
    pub fn read(object: &Value) -> Result<Self, CrdDefinitionError> {
        if object["apiVersion"] != "apiextensions.k8s.io/v1"
            || object["kind"] != "CustomResourceDefinition"
        {
            return Err(CrdDefinitionError::Kind);
        }
        let spec = &object["spec"];
        let kind =
            text(&spec["names"]["kind"]).ok_or(CrdDefinitionError::Field("spec.names.kind"))?;
        let list_kind = text(&spec["names"]["listKind"]);
        let list_kind = list_kind.unwrap_or_else(|| format!("{kind}List"));
        let versions =
            spec["versions"].as_array().ok_or(CrdDefinitionError::Field("spec.versions"))?;
        if versions.len() > MAX_VERSIONS {
            return Err(CrdDefinitionError::Versions);
        }
        let versions = versions.iter().map(version);
        let stored = object["status"]["storedVersions"].as_array();
        Ok(Self {
            name: text(&object["metadata"]["name"])
                .ok_or(CrdDefinitionError::Field("metadata.name"))?,
            group: text(&spec["group"]).ok_or(CrdDefinitionError::Field("spec.group"))?,
            plural: text(&spec["names"]["plural"])
                .ok_or(CrdDefinitionError::Field("spec.names.plural"))?,
            kind,
            list_kind,
            is_namespaced: spec["scope"] == "Namespaced",
            versions: versions.collect::<Result<_, _>>()?,
            conversion: conversion(&spec["conversion"]),
            stored: stored.into_iter().flatten().filter_map(text).collect(),
        })
    }

    /// The schema of a version of a definition. It is empty if the version has none.
    ///
    /// # Errors
    /// The schema nests too deeply or is too large.
    pub fn schema(object: &Value, version: &str) -> Result<CrdVersionSchema, CrdDefinitionError> {
        let spec = &object["spec"];
        let versions = spec["versions"].as_array().into_iter().flatten();
        let mut found = versions.filter(|it| it["name"] == version);
        let schema = found.next().map(|it| &it["schema"]["openAPIV3Schema"]);
        let keeps_unknown = spec["preserveUnknownFields"] == true;
        CrdVersionSchema::read(schema.unwrap_or(&Value::Null), keeps_unknown)
            .ok_or_else(|| CrdDefinitionError::Schema(version.to_owned()))
    }

    /// The version of the CRD with this name. `None` if the CRD has no such version.
    pub fn version(&self, name: &str) -> Option<&CrdVersion> {
        self.versions.iter().find(|it| it.name == name)
    }

    /// The version of the CRD in which objects are stored. `None` if the CRD does not say it.
    pub fn storage(&self) -> Option<&CrdVersion> {
        self.versions.iter().find(|it| it.is_storage)
    }

    /// Whether clients can use a version.
    pub fn serves(&self, name: &str) -> bool {
        self.version(name).is_some_and(|it| it.is_served)
    }

    /// A served version in which all objects can be read: the storage version if it is served, or else the first served
    /// one. `None` if no version is served.
    pub fn readable(&self) -> Option<&CrdVersion> {
        let storage = self.storage().filter(|it| it.is_served);
        storage.or_else(|| self.versions.iter().find(|it| it.is_served))
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().filter(|it| !it.is_empty()).map(str::to_owned)
}

fn version(value: &Value) -> Result<CrdVersion, CrdDefinitionError> {
    Ok(CrdVersion {
        name: text(&value["name"]).ok_or(CrdDefinitionError::Field("spec.versions[*].name"))?,
        is_served: value["served"] == true,
        is_storage: value["storage"] == true,
        has_status: value["subresources"]["status"].is_object(),
    })
}

fn conversion(value: &Value) -> CrdConversion {
    if value["strategy"] != "Webhook" {
        return CrdConversion::None;
    }
    let service = &value["webhook"]["clientConfig"]["service"];
    let named = text(&service["namespace"]).zip(text(&service["name"]));
    CrdConversion::Webhook(
        named.map(|(namespace, name)| WebhookServiceReference { namespace, name }),
    )
}
