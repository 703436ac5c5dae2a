//! Alerts, providers and Secrets as this engine sees them.
//!
//! Here: the fields that decide something. Elsewhere: the definitions (`crds`).

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// For lists and maps that Go writes as null when they are empty.
pub(crate) fn nil<'de, T, D>(from: D) -> Result<T, D::Error>
where
    T: Deserialize<'de> + Default,
    D: Deserializer<'de>,
{
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// The part of an object's metadata that counts here.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ApiObjectMetadata {
    /// The name.
    pub name: String,
    /// The namespace.
    pub namespace: String,
    /// The UID.
    pub uid: String,
}

/// A name in the same namespace.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NameReference {
    /// The name.
    pub name: String,
}

/// Objects whose events an Alert wants, or that a Receiver wakes.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EventSourceSelector {
    /// The API version; it does not count on an Alert.
    pub api_version: String,
    /// The kind.
    pub kind: String,
    /// The name, or `*`.
    pub name: String,
    /// The namespace; that of the referring object if empty.
    pub namespace: String,
    /// Labels that the object has to have.
    pub match_labels: Option<BTreeMap<String, String>>,
    /// An expression of a Receiver.
    pub filter: String,
}

/// What an Alert asks for.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AlertSpec {
    /// Where its events go.
    pub provider_ref: NameReference,
    /// `info` for all, else exactly these.
    pub event_severity: String,
    /// Whose events it wants.
    #[serde(deserialize_with = "nil")]
    pub event_sources: Vec<EventSourceSelector>,
    /// Metadata for its events.
    #[serde(deserialize_with = "nil")]
    pub event_metadata: BTreeMap<String, String>,
    /// Patterns of which a message has to match one, if there are any.
    #[serde(deserialize_with = "nil")]
    pub inclusion_list: Vec<String>,
    /// Patterns of which a message may match none.
    #[serde(deserialize_with = "nil")]
    pub exclusion_list: Vec<String>,
    /// Deprecated: the value of the metadata key `summary`.
    pub summary: String,
    /// Whether it takes no events.
    pub suspend: bool,
}

/// An Alert.
#[derive(Debug, Clone, Default)]
pub struct Alert {
    /// Its metadata.
    pub metadata: ApiObjectMetadata,
    /// Its spec.
    pub spec: AlertSpec,
    /// All of it, for expressions.
    pub object: Value,
}

/// What a Provider asks for.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProviderSpec {
    /// One of [`crate::TYPES`].
    pub r#type: String,
    /// Where to send.
    pub address: String,
    /// Channel, room, topic or routing key.
    pub channel: String,
    /// The user name shown by the service.
    pub username: String,
    /// Deprecated: the proxy.
    pub proxy: String,
    /// The Secret of the proxy.
    pub proxy_secret_ref: Option<NameReference>,
    /// The Secret with credentials.
    pub secret_ref: Option<NameReference>,
    /// The Secret with certificates.
    pub cert_secret_ref: Option<NameReference>,
    /// The ServiceAccount whose identity is used.
    pub service_account_name: String,
    /// The expression that gives the id of a commit status.
    pub commit_status_expr: String,
    /// Whether nothing is sent.
    pub suspend: bool,
    /// How long sending may take, as Go writes durations; 15 s if empty.
    pub timeout: String,
}

/// A Provider.
#[derive(Debug, Clone, Default)]
pub struct Provider {
    /// Its metadata.
    pub metadata: ApiObjectMetadata,
    /// Its spec.
    pub spec: ProviderSpec,
    /// All of it, for expressions.
    pub object: Value,
}

/// The error of a value that is not an object of the expected kind.
#[derive(Debug, thiserror::Error)]
#[error("the object cannot be read: {0}")]
pub struct UnreadableObjectError(#[from] serde_json::Error);

#[derive(Deserialize)]
#[serde(default, bound = "S: Default + Deserialize<'de>")]
struct ObjectParts<S: Default> {
    metadata: ApiObjectMetadata,
    spec: S,
}

impl<S: Default> Default for ObjectParts<S> {
    fn default() -> Self {
        Self { metadata: ApiObjectMetadata::default(), spec: S::default() }
    }
}

impl Alert {
    /// Reads an Alert.
    ///
    /// # Errors
    /// If a member has another type than in the definition.
    pub fn new(object: Value) -> Result<Self, UnreadableObjectError> {
        let ObjectParts { metadata, spec } = ObjectParts::deserialize(&object)?;
        Ok(Self { metadata, spec, object })
    }
}

impl Provider {
    /// Reads a Provider.
    ///
    /// # Errors
    /// If a member has another type than in the definition.
    pub fn new(object: Value) -> Result<Self, UnreadableObjectError> {
        let ObjectParts { metadata, spec } = ObjectParts::deserialize(&object)?;
        Ok(Self { metadata, spec, object })
    }
}

/// The data of a Secret. Its `Debug` shows no values.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretData {
    /// Namespace and name, as in messages.
    pub name: String,
    /// The data.
    pub data: BTreeMap<String, Vec<u8>>,
}

impl fmt::Debug for SecretData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<_> = self.data.keys().collect();
        f.debug_struct("SecretData").field("name", &self.name).field("keys", &keys).finish()
    }
}

impl SecretData {
    /// A value, which need not be text.
    pub(crate) fn bytes(&self, key: &str) -> Option<&[u8]> {
        self.data.get(key).map(Vec::as_slice)
    }

    /// A value as text.
    pub(crate) fn text(&self, key: &str) -> Option<String> {
        self.bytes(key).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }
}
