//! The note beside an artifact in the store, of how it was verified: what no status can claim.
//!
//! Elsewhere: when it is written, and when an artifact has to be verified anew (`source::verification`).

use artifacts::store::{self, ArtifactStore, ObjectFolder};
use crds::Artifact;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The record, beside an artifact in the store, of how the artifact was verified.
/// Only windlass writes it, so a status cannot forge it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredVerificationRecord {
    /// Of the artifact.
    pub digest: String,
    /// Of the object, as another one may have its name later.
    pub uid: Option<String>,
    /// Of the spec that says how.
    pub generation: Option<i64>,
    /// Whether it is signed: a trust policy of Notation may demand no signature.
    pub is_signed: bool,
    /// What had to be signed, and by which keys.
    pub verified: Value,
}

impl StoredVerificationRecord {
    /// The record of a slot; `None` if there is none or it cannot be read. Blocks.
    pub fn read(store: &ArtifactStore, slot: &ObjectFolder) -> Option<Self> {
        serde_json::from_slice(&store.note(slot).ok()??).ok()
    }

    /// Writes this record to a slot, in place of the one before. Blocks.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn keep(&self, store: &ArtifactStore, slot: &ObjectFolder) -> Result<(), store::Error> {
        store.keep_note(slot, &serde_json::to_vec(self).unwrap_or_default())
    }

    /// Whether an artifact was verified and signed as an object asks: its uid and the generation of its spec.
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
