//! The note beside an artifact with the objects it was made from, so that only changed objects are fetched again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The objects from which an artifact was made. The note only saves requests. Without it, everything is fetched.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketFetchState {
    /// The digest of the artifact.
    pub artifact: String,
    /// Entity tags, by key.
    pub objects: BTreeMap<String, String>,
    /// The patterns at the root of the bucket.
    pub ignore: Option<FetchedIgnoreFile>,
}

/// The `.sourceignore` file of a bucket, as it was fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchedIgnoreFile {
    /// The entity tag of the file.
    pub etag: String,
    /// The text of the file.
    pub text: String,
}

impl BucketFetchState {
    /// Parses a note. An unreadable note counts as empty.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        serde_json::from_slice(bytes).unwrap_or_default()
    }

    /// The bytes of the note for storing it.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}
