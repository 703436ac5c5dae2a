//! Manifests and indices, with the fields that are needed to find signatures.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

/// The description of a blob.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct OciDescriptor {
    #[serde(deserialize_with = "or_default")]
    pub(crate) media_type: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) digest: String,
    pub(crate) size: u64,
    #[serde(deserialize_with = "or_default")]
    pub(crate) artifact_type: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) annotations: BTreeMap<String, String>,
}

/// A manifest or an index.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct OciManifest {
    pub(crate) media_type: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) layers: Vec<OciDescriptor>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) manifests: Vec<OciDescriptor>,
}

impl OciManifest {
    /// Reads a manifest; `None` if the bytes are not a manifest.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut manifest: Self = serde_json::from_slice(bytes).ok()?;
        // Entries without a SHA-256 digest cannot be requested, so they are dropped.
        manifest.manifests.retain(|it| super::is_sha256(&it.digest));
        Some(manifest)
    }
}

/// Go reads null as nothing.
fn or_default<'de, T, D>(from: D) -> Result<T, D::Error>
where
    T: Deserialize<'de> + Default,
    D: Deserializer<'de>,
{
    Ok(Option::deserialize(from)?.unwrap_or_default())
}
