//! What an artifact was made of, kept beside it, so that only what changed is fetched again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What an artifact was made of. Only ever saves requests: without it everything is fetched.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketArtifactNote {
    /// The digest of the artifact.
    pub artifact: String,
    /// Entity tags, by key.
    pub objects: BTreeMap<String, String>,
    /// The patterns at the root of the bucket.
    pub ignore: Option<IgnoreFileNote>,
}

/// A `.sourceignore`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IgnoreFileNote {
    /// Its entity tag.
    pub etag: String,
    /// Its text.
    pub text: String,
}

impl BucketArtifactNote {
    /// Reads a note; one that cannot be read counts as empty.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        serde_json::from_slice(bytes).unwrap_or_default()
    }

    /// The bytes of the note as it is stored.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}
