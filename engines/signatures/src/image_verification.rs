//! Verifies an image as its source specifies, and returns the result in Flux's words.
//!
//! Elsewhere: the signatures themselves (`cosign`, `notation`), the conditions (the program).

use std::collections::BTreeMap;

use crate::cosign;
use crate::notation::{NotationTrust, NotationVerdict};
use crate::referrers::SignatureSearch;
use crate::sigstore::{CertificateIdentityMatcher, SigstoreTrustedRoot};

/// The data of a Secret.
pub type SignatureSecretData = BTreeMap<String, Vec<u8>>;

/// The most identities of a spec, because each expression is compiled.
const MOST_IDENTITIES: usize = 64;

/// The entry of a Secret with a trusted root.
const TRUSTED_ROOT: &str = "trusted_root.json";

/// The signers that an image may have.
#[derive(Debug, Clone)]
pub enum ImageTrust {
    /// The signer must own one of these cosign keys. Entries that do not end in `.pub` are ignored.
    Keys(SignatureSecretData),
    /// One of these identities, which an identity provider confirmed.
    Identities(Box<SigstoreTrustedRoot>, Vec<CertificateIdentityMatcher>),
    /// A signer whom a trust policy of Notation trusts.
    Notation(Box<NotationTrust>),
}

/// The result for an image that may be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageVerification {
    /// The image is signed by this signer.
    By(String),
    /// The trust policy does not require a signature, or does not require it to be trusted.
    Ignored,
}

impl ImageTrust {
    /// Requires a signer that matches one of the identities, certified by the public Sigstore.
    ///
    /// # Errors
    /// The root that is built into windlass cannot be used, or there are more than 64 identities. The text is for users.
    pub fn public(identities: Vec<CertificateIdentityMatcher>) -> Result<Self, String> {
        few(&identities)?;
        Ok(Self::Identities(Box::new(SigstoreTrustedRoot::public()?), identities))
    }

    /// Requires a signer that matches one of the identities, certified by the trusted root in the Secret `place`.
    ///
    /// # Errors
    /// The root cannot be used, or there are more than 64 identities. The text is for users.
    pub fn identities(
        place: &str,
        data: &SignatureSecretData,
        identities: Vec<CertificateIdentityMatcher>,
    ) -> Result<Self, String> {
        few(&identities)?;
        let root = data.get(TRUSTED_ROOT).ok_or_else(|| {
            format!("failed to read trusted root from secret '{place}': '{TRUSTED_ROOT}' not found in secret '{place}'")
        })?;
        Ok(Self::Identities(Box::new(SigstoreTrustedRoot::parse(root)?), identities))
    }

    /// Requires a signature that matches the trust policy and certificates in the Secret `place`.
    ///
    /// # Errors
    /// The trust policy or certificates cannot be used. The text is for users.
    pub fn notation(place: &str, data: &SignatureSecretData) -> Result<Self, String> {
        NotationTrust::from_secret(place, data).map(|it| Self::Notation(Box::new(it)))
    }

    /// The search for the signatures of an image.
    pub fn search(&self, digest: &str) -> SignatureSearch {
        match self {
            Self::Keys(_) | Self::Identities(..) => SignatureSearch::for_cosign(digest),
            Self::Notation(_) => SignatureSearch::for_notation(digest),
        }
    }

    /// Verifies that an image of a repository may be used now, in seconds of Unix time. The search must be about this image.
    ///
    /// # Errors
    /// Why the image may not be used. The text is for users.
    pub fn verify(
        &self,
        search: &SignatureSearch,
        repository: &str,
        now: i64,
    ) -> Result<ImageVerification, String> {
        let image = format!("{repository}@{}", search.subject());
        match self {
            Self::Keys(data) => {
                let keys = data.iter().map(|(name, key)| (name.as_str(), key.as_slice()));
                cosign::verify(search, &image, keys)
                    .map(|signer| ImageVerification::By(signer.name))
            }
            Self::Identities(root, identities) => {
                let signer = cosign::verify_keyless(search, root, identities);
                signer
                    .map(|signer| ImageVerification::By(signer.name))
                    .map_err(|why| why.to_string())
            }
            Self::Notation(notation) => match notation.verify(search, &image, now)? {
                NotationVerdict::Verified(subject) => Ok(ImageVerification::By(subject)),
                NotationVerdict::Ignored => Ok(ImageVerification::Ignored),
            },
        }
    }
}

fn few(identities: &[CertificateIdentityMatcher]) -> Result<(), String> {
    if identities.len() <= MOST_IDENTITIES {
        return Ok(());
    }
    Err(format!("matchOIDCIdentity has more than {MOST_IDENTITIES} identities"))
}

/// Flux's message about an image that may not be used. The provider is `cosign`, `cosign keyless` or `notation`.
pub fn refusal(provider: &str, why: &str) -> String {
    format!("failed to verify the signature using provider '{provider}': {why}")
}

/// Flux's message about an image that is signed.
pub fn acceptance(revision: &str) -> String {
    format!("verified signature of revision {revision}")
}
