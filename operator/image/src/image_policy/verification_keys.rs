//! The keys with which images have to be signed: read from Secrets, used for one image.
//!
//! Elsewhere: which Secrets (`crate::image_verification`), finding signatures (`sources::oci`), what a signature is worth (engine
//! `signatures`), which images are verified when (`content_check`).

use std::sync::Arc;

use reconcile::{RunOutcome, WakeTrigger};
use signatures::image_verification::{ImageTrust, ImageVerification, SignatureSecretData};
use signatures::referrers::Search;
use sources::source_reasons::VERIFICATION_ERROR;
use windlass_runtime::spec_references::ReadReferences;

use crate::image_verification::KeySecret;
use crate::verification_notes;

/// What the names of keys in a Secret end with, as in that of an OCIRepository.
const PUBLIC_KEY_SUFFIX: &str = ".pub";

/// Keys of one Secret, with one of which an image has to be signed.
#[derive(Debug, Clone)]
pub(super) struct VerificationKeys {
    /// The Secret, as `namespace/name`.
    pub(super) place: String,
    /// A digest of the keys: what was verified with others is verified anew.
    pub(super) fingerprint: String,
    trust: Arc<ImageTrust>,
}

impl VerificationKeys {
    /// Takes the keys of a Secret.
    ///
    /// # Errors
    /// It has none; the text is for people.
    pub(super) fn of(place: String, data: SignatureSecretData) -> Result<Self, String> {
        let is_key = |name: &String| name.ends_with(PUBLIC_KEY_SUFFIX);
        if !data.keys().any(is_key) {
            return Err(format!("secret '{place}' has no key that ends in `{PUBLIC_KEY_SUFFIX}`"));
        }
        let fingerprint = verification_notes::fingerprint(&data);
        Ok(Self { place, fingerprint, trust: Arc::new(ImageTrust::Keys(data)) })
    }

    /// Who signed the image that was searched for, in a repository at a time in seconds. Takes a processor.
    ///
    /// # Errors
    /// It is not signed with one of the keys; the text is for people.
    pub(super) fn signer(
        &self,
        search: &Search,
        repository: &str,
        now: i64,
    ) -> Result<String, String> {
        match self.trust.verify(search, repository, now)? {
            ImageVerification::By(name) => Ok(name),
            ImageVerification::Ignored => Err("its signature is not verified".to_owned()),
        }
    }
}

/// Reads the keys of some Secrets; all of them are among the references then.
///
/// # Errors
/// A Secret is missing, cannot be read, or has no key.
pub(super) async fn read(
    secrets: &[KeySecret],
    references: &mut ReadReferences,
) -> Result<Vec<VerificationKeys>, RunOutcome> {
    let mut read = Vec::new();
    let mut failure = None;
    for secret in secrets {
        let KeySecret { namespace, name, advice } = secret;
        let place = secret.place();
        let keys = match references.secret(namespace, name).await {
            Ok(Some(data)) => VerificationKeys::of(place, data),
            Ok(None) => Err(format!("secret '{place}' not found; {advice}")),
            Err(error) => Err(format!("failed to get secret '{place}': {error}")),
        };
        match keys {
            Ok(keys) => read.push(keys),
            Err(why) => failure = failure.or(Some(why)),
        }
    }
    match failure {
        None => Ok(read),
        Some(why) => {
            let text = format!("failed to read the keys for the signatures of images: {why}");
            Err(RunOutcome::Failed(VERIFICATION_ERROR, text, WakeTrigger::default()))
        }
    }
}

#[cfg(test)]
mod tests {
    use sources::oci::OciDigest;

    use super::*;

    fn keys(entries: &[(&str, &str)]) -> Result<VerificationKeys, String> {
        let entry = |(name, key): &(&str, &str)| ((*name).to_owned(), key.as_bytes().to_vec());
        VerificationKeys::of("apps/keys".to_owned(), entries.iter().map(entry).collect())
    }

    #[test]
    fn a_secret_without_a_key_verifies_nothing() {
        for entries in [vec![], vec![("cosign.key", "x")]] {
            let why = keys(&entries).unwrap_err();
            assert_eq!(why, "secret 'apps/keys' has no key that ends in `.pub`");
        }
        assert_eq!(keys(&[("cosign.pub", "x")]).unwrap().place, "apps/keys");
    }

    #[test]
    fn an_image_without_signatures_is_signed_with_no_key() {
        let search = Search::for_cosign(&OciDigest::of(b"x").to_string());
        let signer = keys(&[("cosign.pub", "not a key")]).unwrap().signer(&search, "r.io/app", 0);
        assert!(signer.is_err(), "{signer:?}");
    }
}
