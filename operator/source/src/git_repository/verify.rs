//! Verifies the signatures of a commit and its tag, before an artifact is made of the commit.
//!
//! Elsewhere: signatures themselves (the engine `signatures`), how the result is reported (`source`).

use std::collections::BTreeMap;

use ::git::FetchedCheckout;
use reconcile::{ConditionReason, NextRunTrigger, RunOutcome};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use signatures::git::{
    self, GitTag, GitVerificationError, GitVerificationKeys, GitVerificationMode,
};

use crate::source::artifact_verification_record::VerificationRecord;
use windlass_runtime::git_remote_access::classify;

/// The objects that have to be signed, and the keys for that.
pub(super) struct CommitVerification {
    mode: GitVerificationMode,
    /// The data of the Secret with the keys.
    keys: BTreeMap<String, Vec<u8>>,
}

impl CommitVerification {
    pub(super) fn new(mode: &str, keys: BTreeMap<String, Vec<u8>>) -> Self {
        Self { mode: GitVerificationMode::named(mode), keys }
    }

    pub(super) fn mode(&self) -> GitVerificationMode {
        self.mode
    }

    /// As the plan compares it: other keys have everything verified anew. Differs(flux): there only another mode has.
    pub(super) fn shape(&self) -> Value {
        let mut digest = Sha256::new();
        for (name, value) in &self.keys {
            for part in [name.as_bytes(), value] {
                digest.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
                digest.update(part);
            }
        }
        json!({"mode": self.mode.as_str(), "keys": hex::encode(digest.finalize())})
    }

    /// Verifies the signatures of the checkout.
    pub(super) fn verify(
        &self,
        checkout: &FetchedCheckout,
    ) -> Result<VerificationRecord, RunOutcome> {
        let signable = checkout.signable().map_err(|error| classify(&error))?;
        let tag = signable.tag.as_ref().map(|tag| {
            let object = tag.object.as_ref();
            let object = object.map(|(hash, object)| (hash.as_str(), object.as_slice()));
            GitTag { name: &tag.name, object }
        });
        let found = git::CheckedOutCommit { commit: (&signable.sha, &signable.commit), tag };
        let keys = self.keys.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
        let now = jiff::Timestamp::now().as_second().try_into().unwrap_or_default();
        let text = git::verify(self.mode, &found, &GitVerificationKeys::new(keys), now)
            .map_err(refused)?;
        Ok(VerificationRecord { how: self.shape(), text })
    }
}

fn refused(refused: GitVerificationError) -> RunOutcome {
    let GitVerificationError { reason, message, is_permanent } = refused;
    let why = ConditionReason::new(reason);
    match is_permanent {
        true => RunOutcome::Stalled(why, message),
        false => RunOutcome::Failed(why, message, NextRunTrigger::default()),
    }
}
