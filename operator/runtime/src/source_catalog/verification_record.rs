//! The record, beside an artifact in the store, of how the artifact was verified. A status cannot forge it.
//!
//! Elsewhere: when it is written, and when an artifact has to be verified again (`source::verification`).

use artifacts::store::{self, ArtifactStore, ObjectFolder};
use crds::Artifact;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The record, beside an artifact in the store, of how the artifact was verified.
/// Only windlass writes it, so a status cannot forge it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredVerificationRecord {
    /// The digest of the artifact.
    pub digest: String,
    /// The uid of the source, because another source may have its name later.
    pub uid: Option<String>,
    /// The generation of the spec that requires the verification.
    pub generation: Option<i64>,
    /// Whether the artifact has a signature. A trust policy of Notation may require none.
    pub is_signed: bool,
    /// What had to be signed, and with which keys.
    pub verified: Value,
}

impl StoredVerificationRecord {
    /// Reads the record of a slot. `None` if it does not exist or cannot be read. It blocks.
    pub fn read(store: &ArtifactStore, slot: &ObjectFolder) -> Option<Self> {
        serde_json::from_slice(&store.note(slot).ok()??).ok()
    }

    /// Writes this record to a slot, and replaces the earlier one. It blocks.
    ///
    /// # Errors
    /// The write to the disk fails.
    pub fn keep(&self, store: &ArtifactStore, slot: &ObjectFolder) -> Result<(), store::Error> {
        store.keep_note(slot, &serde_json::to_vec(self).unwrap_or_default())
    }

    /// Whether this artifact was verified and signed for this object, by its uid and the generation of its spec.
    pub(crate) fn is_of(
        &self,
        artifact: &Artifact,
        uid: Option<&str>,
        generation: Option<i64>,
    ) -> bool {
        self.is_signed
            && self.digest == artifact.digest
            && self.uid.as_deref() == uid
            && self.generation == generation
    }
}
