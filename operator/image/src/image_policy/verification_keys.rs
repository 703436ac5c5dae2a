//! The keys with which images have to be signed. A run reads them from Secrets, and verifies one image with them.
//!
//! Elsewhere: which Secrets (`crate::image_verification`), finding signatures (`sources::oci`), judging signatures (engine
//! `signatures`), which images are verified when (`candidate_image_check`).

use std::sync::Arc;

use reconcile::{NextRunTrigger, RunOutcome, condition_reason};
use signatures::image_verification::{ImageTrust, ImageVerification, SignatureSecretData};
use signatures::referrers::SignatureSearch;
use sources::source_condition_reasons::VERIFICATION_ERROR;
use windlass_cluster::referenced_secrets_and_config_maps::RunReferenceReads;

use crate::image_verification::ImageVerificationKeySecretReference;
use crate::verified_image_versions;

/// The suffix of entries with keys in a Secret, as for an OCIRepository.
const PUBLIC_KEY_SUFFIX: &str = ".pub";

/// The keys of one Secret. An image has to be signed with one of them.
#[derive(Debug, Clone)]
pub(super) struct VerificationKeys {
    /// The Secret, as `namespace/name`.
    pub(super) place: String,
    /// A digest of the keys. If the keys change, images are verified again.
    pub(super) fingerprint: String,
    trust: Arc<ImageTrust>,
}

impl VerificationKeys {
    /// Reads the keys from the data of a Secret.
    ///
    /// # Errors
    /// The Secret has no key. The text is for people.
    pub(super) fn of(place: String, data: SignatureSecretData) -> Result<Self, String> {
        let is_key = |name: &String| name.ends_with(PUBLIC_KEY_SUFFIX);
        if !data.keys().any(is_key) {
            return Err(format!("secret '{place}' has no key that ends in `{PUBLIC_KEY_SUFFIX}`"));
        }
        let fingerprint = verified_image_versions::fingerprint(&data);
        Ok(Self { place, fingerprint, trust: Arc::new(ImageTrust::Keys(data)) })
    }

    /// The signer of the image in `repository`, by the signatures that `search` found. `now` is in seconds. This takes CPU
    /// time.
    ///
    /// # Errors
    /// The image is not signed with one of the keys. The text is for people.
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

/// The reason why the keys for the signatures of images are not known.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum VerificationKeyError {
    /// A Secret does not exist or has no key, so no image has the required signature.
    Missing(String),
    /// A Secret could not be read. The images count neither as signed nor as unsigned.
    Unread(String),
}

impl VerificationKeyError {
    /// The outcome of the run.
    pub(super) fn outcome(&self) -> RunOutcome {
        let (Self::Missing(why) | Self::Unread(why)) = self;
        let text = format!("failed to read the keys for the signatures of images: {why}");
        let of_condition = match self {
            Self::Missing(_) => VERIFICATION_ERROR,
            Self::Unread(_) => condition_reason::DEPENDENCY_NOT_READY,
        };
        RunOutcome::Failed(of_condition, text, NextRunTrigger::default())
    }
}

/// Reads the keys of some Secrets. The references then contain each Secret that was asked for, whether it exists or not.
///
/// # Errors
/// A Secret is missing, cannot be read, or has no key.
pub(super) async fn read(
    secrets: &[ImageVerificationKeySecretReference],
    references: &mut RunReferenceReads,
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

/// The keys of all Secrets. A missing Secret decides the error, even if another one could not be read.
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
        assert_eq!(failure.outcome().reason(), condition_reason::DEPENDENCY_NOT_READY);
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
