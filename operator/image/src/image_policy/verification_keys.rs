//! The keys with which images have to be signed: read from Secrets, used for one image.
//!
//! Elsewhere: which Secrets (`crate::image_verification`), finding signatures (`sources::oci`), what a signature is worth (engine
//! `signatures`), which images are verified when (`candidate_image_check`).

use std::sync::Arc;

use reconcile::{NextRunTrigger, RunOutcome, reason};
use signatures::image_verification::{ImageTrust, ImageVerification, SignatureSecretData};
use signatures::referrers::SignatureSearch;
use sources::source_reasons::VERIFICATION_ERROR;
use windlass_cluster::spec_references::ReadReferences;

use crate::image_verification::ImageVerificationKeySecretReference;
use crate::verified_versions;

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
        let fingerprint = verified_versions::fingerprint(&data);
        Ok(Self { place, fingerprint, trust: Arc::new(ImageTrust::Keys(data)) })
    }

    /// Who signed the image that was searched for, in a repository at a time in seconds. Takes a processor.
    ///
    /// # Errors
    /// It is not signed with one of the keys; the text is for people.
    pub(super) fn signer(
        &self,
        search: &SignatureSearch,
        repository: &str,
        now: i64,
    ) -> Result<String, String> {
        match self.trust.verify(search, repository, now)? {
            ImageVerification::By(name) => Ok(name),
            ImageVerification::Ignored => Err("its signature is not verified".to_owned()),
        }
    }
}

/// Why the keys for the signatures of images are not known.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum VerificationKeyError {
    /// A Secret does not exist or has no key, so that no image is signed as it has to be.
    Missing(String),
    /// A Secret could not be read, from which nothing is concluded.
    Unread(String),
}

impl VerificationKeyError {
    /// The outcome of the run.
    pub(super) fn outcome(&self) -> RunOutcome {
        let (Self::Missing(why) | Self::Unread(why)) = self;
        let text = format!("failed to read the keys for the signatures of images: {why}");
        let of_condition = match self {
            Self::Missing(_) => VERIFICATION_ERROR,
            Self::Unread(_) => reason::DEPENDENCY_NOT_READY,
        };
        RunOutcome::Failed(of_condition, text, NextRunTrigger::default())
    }
}

/// Reads the keys of some Secrets; those that could be read are among the references then, whether they exist or not.
///
/// # Errors
/// A Secret is missing, cannot be read, or has no key.
pub(super) async fn read(
    secrets: &[ImageVerificationKeySecretReference],
    references: &mut ReadReferences,
) -> Result<Vec<VerificationKeys>, VerificationKeyError> {
    let mut all = Vec::new();
    for secret in secrets {
        let data = references.secret(&secret.namespace, &secret.name).await;
        all.push(keys_of(secret, data.map_err(|error| error.to_string())));
    }
    all_keys(all)
}

/// The keys of a Secret that was read.
fn keys_of(
    secret: &ImageVerificationKeySecretReference,
    data: Result<Option<SignatureSecretData>, String>,
) -> Result<VerificationKeys, VerificationKeyError> {
    let place = secret.place();
    match data {
        Ok(Some(data)) => VerificationKeys::of(place, data).map_err(VerificationKeyError::Missing),
        Ok(None) => {
            let text = format!("secret '{place}' not found; {}", secret.advice);
            Err(VerificationKeyError::Missing(text))
        }
        Err(error) => {
            Err(VerificationKeyError::Unread(format!("failed to get secret '{place}': {error}")))
        }
    }
}

/// The keys of all Secrets. What is missing counts, whatever could not be read.
fn all_keys(
    all: Vec<Result<VerificationKeys, VerificationKeyError>>,
) -> Result<Vec<VerificationKeys>, VerificationKeyError> {
    let mut keys = Vec::new();
    let mut missing = None;
    let mut unread = None;
    for of_secret in all {
        match of_secret {
            Ok(of_secret) => keys.push(of_secret),
            Err(failure @ VerificationKeyError::Missing(_)) => missing = missing.or(Some(failure)),
            Err(failure @ VerificationKeyError::Unread(_)) => unread = unread.or(Some(failure)),
        }
    }
    missing.or(unread).map_or(Ok(keys), Err)
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
    fn a_secret_that_could_not_be_read_is_not_a_secret_that_is_missing() {
        let secret = ImageVerificationKeySecretReference {
            namespace: "apps".to_owned(),
            name: "keys".to_owned(),
            advice: "create it",
        };
        let of = |data: Result<Option<SignatureSecretData>, String>| keys_of(&secret, data);
        let unread = || of(Err("503".to_owned()));
        let failure = all_keys(vec![
            keys(&[("a.pub", "x")]).map_err(VerificationKeyError::Missing),
            unread(),
        ]);
        let failure = failure.unwrap_err();
        assert_eq!(
            failure,
            VerificationKeyError::Unread("failed to get secret 'apps/keys': 503".to_owned())
        );
        assert_eq!(failure.outcome().reason(), reason::DEPENDENCY_NOT_READY);
        let no_key = Some(SignatureSecretData::new());
        for missing in [None, no_key] {
            let failure = all_keys(vec![unread(), of(Ok(missing))]).unwrap_err();
            assert!(matches!(failure, VerificationKeyError::Missing(_)), "{failure:?}");
            assert_eq!(failure.outcome().reason(), VERIFICATION_ERROR);
        }
    }

    #[test]
    fn an_image_without_signatures_is_signed_with_no_key() {
        let search = SignatureSearch::for_cosign(&OciDigest::of(b"x").to_string());
        let signer = keys(&[("cosign.pub", "not a key")]).unwrap().signer(&search, "r.io/app", 0);
        assert!(signer.is_err(), "{signer:?}");
    }
}
