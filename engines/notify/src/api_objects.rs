//! The fields of Alerts, Providers and Secrets that this engine uses.
//!
//! Elsewhere: the definitions (`crds`).

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Reads lists and maps, which Go writes as null when they are empty.
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

/// A reference by name to an object in the same namespace.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NameReference {
    /// The name.
    pub name: String,
}

/// Selects objects: those whose events an Alert sends, or those that a Receiver reconciles.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EventSourceSelector {
    /// The API version. An Alert ignores it.
    pub api_version: String,
    /// The kind.
    pub kind: String,
    /// The name, or `*`.
    pub name: String,
    /// The namespace; if empty, that of the object with the selector.
    pub namespace: String,
    /// Labels that the object has to have.
    pub match_labels: Option<BTreeMap<String, String>>,
    /// An expression of a Receiver.
    pub filter: String,
}

/// The spec of an Alert.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AlertSpec {
    /// The Provider to which events are sent.
    pub provider_ref: NameReference,
    /// The severity of the events that are sent. `info` includes all severities.
    pub event_severity: String,
    /// The objects whose events are sent.
    #[serde(deserialize_with = "nil")]
    pub event_sources: Vec<EventSourceSelector>,
    /// Metadata for its events.
    #[serde(deserialize_with = "nil")]
    pub event_metadata: BTreeMap<String, String>,
    /// Patterns for messages. If there are any, a message must match at least one.
    #[serde(deserialize_with = "nil")]
    pub inclusion_list: Vec<String>,
    /// Patterns for messages. A message that matches one of them is not sent.
    #[serde(deserialize_with = "nil")]
    pub exclusion_list: Vec<String>,
    /// Deprecated: the value of the metadata key `summary`.
    pub summary: String,
    /// Whether the Alert is suspended and sends no events.
    pub suspend: bool,
}

/// An Alert.
#[derive(Debug, Clone, Default)]
pub struct Alert {
    /// The metadata of the Alert.
    pub metadata: ApiObjectMetadata,
    /// The spec of the Alert.
    pub spec: AlertSpec,
    /// The whole object, for expressions.
    pub object: Value,
}

/// The spec of a Provider.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProviderSpec {
    /// One of [`crate::TYPES`].
    pub r#type: String,
    /// The address to which messages are sent.
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
    /// The ServiceAccount that is used to log in.
    pub service_account_name: String,
    /// The expression that computes the id of a commit status.
    pub commit_status_expr: String,
    /// Whether nothing is sent.
    pub suspend: bool,
    /// How long sending may take, in Go's notation for durations; 15 s if empty.
    pub timeout: String,
}

/// A Provider.
#[derive(Debug, Clone, Default)]
pub struct Provider {
    /// The metadata of the Provider.
    pub metadata: ApiObjectMetadata,
    /// The spec of the Provider.
    pub spec: ProviderSpec,
    /// The whole object, for expressions.
    pub object: Value,
}

/// The error of a value that is not an object of the expected kind.
#[derive(Debug, thiserror::Error)]
#[error("the object cannot be read: {0}")]
pub struct UnreadableObjectError(#[from] serde_json::Error);

#[derive(Deserialize)]
#[serde(default, bound = "S: Default + Deserialize<'de>")]
struct MetadataAndSpec<S: Default> {
    metadata: ApiObjectMetadata,
    spec: S,
}

impl<S: Default> Default for MetadataAndSpec<S> {
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
        let MetadataAndSpec { metadata, spec } = MetadataAndSpec::deserialize(&object)?;
        Ok(Self { metadata, spec, object })
    }
}

impl Provider {
    /// Reads a Provider.
    ///
    /// # Errors
    /// If a member has another type than in the definition.
    pub fn new(object: Value) -> Result<Self, UnreadableObjectError> {
        let MetadataAndSpec { metadata, spec } = MetadataAndSpec::deserialize(&object)?;
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
    /// The bytes under a key of the Secret's data, which need not be UTF-8. `None` if the key is missing.
    pub(crate) fn bytes(&self, key: &str) -> Option<&[u8]> {
        self.data.get(key).map(Vec::as_slice)
    }

    /// A value as text.
    pub(crate) fn text(&self, key: &str) -> Option<String> {
        self.bytes(key).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }
}
