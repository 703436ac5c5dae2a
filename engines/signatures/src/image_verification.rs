//! How an image is to be verified, according to a source, and the result in Flux's words.
//!
//! Elsewhere: the signatures themselves (`cosign`, `notation`), the conditions (the program).

use std::collections::BTreeMap;

use crate::cosign;
use crate::notation::{NotationTrust, NotationVerdict};
use crate::referrers::SignatureSearch;
use crate::sigstore::{CertificateIdentity, TrustedRoot};

/// The data of a Secret.
pub type SignatureSecretData = BTreeMap<String, Vec<u8>>;

/// Identities of a spec: each expression is compiled.
const MOST_IDENTITIES: usize = 64;

/// The entry of a Secret with a trusted root.
const TRUSTED_ROOT: &str = "trusted_root.json";

/// The signers that an image may have.
#[derive(Debug, Clone)]
pub enum ImageTrust {
    /// The owner of one of these keys of cosign; entries that do not end in `.pub` are ignored.
    Keys(SignatureSecretData),
    /// One of these identities, which an identity provider confirmed.
    Identities(Box<TrustedRoot>, Vec<CertificateIdentity>),
    /// A signer whom a trust policy of Notation trusts.
    Notation(Box<NotationTrust>),
}

/// The result for an image that may be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageVerification {
    /// It is signed, by this signer.
    By(String),
    /// Its signature is not asked for by the trust policy, or does not have to be trusted.
    Ignored,
}

impl ImageTrust {
    /// Identities that the public Sigstore certifies, of which one has to match.
    ///
    /// # Errors
    /// The root that windlass has cannot be used, or there are more than 64 identities; the text is for people.
    pub fn public(identities: Vec<CertificateIdentity>) -> Result<Self, String> {
        few(&identities)?;
        Ok(Self::Identities(Box::new(TrustedRoot::public()?), identities))
    }

    /// The trusted root in a Secret, which is at `place`, and identities of which one has to match.
    ///
    /// # Errors
    /// The root cannot be used, or there are more than 64 identities; the text is for people.
    pub fn identities(
        place: &str,
        data: &SignatureSecretData,
        identities: Vec<CertificateIdentity>,
    ) -> Result<Self, String> {
        few(&identities)?;
        let root = data.get(TRUSTED_ROOT).ok_or_else(|| {
            format!("failed to read trusted root from secret '{place}': '{TRUSTED_ROOT}' not found in secret '{place}'")
        })?;
        Ok(Self::Identities(Box::new(TrustedRoot::parse(root)?), identities))
    }

    /// The trust policy and certificates in a Secret, which is at `place`.
    ///
    /// # Errors
    /// They cannot be used; the text is for people.
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

    /// Whether the image that was searched for, in a repository, may be used now, in seconds of Unix time.
    ///
    /// # Errors
    /// It may not; the text is for people.
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

fn few(identities: &[CertificateIdentity]) -> Result<(), String> {
    if identities.len() <= MOST_IDENTITIES {
        return Ok(());
    }
    Err(format!("matchOIDCIdentity has more than {MOST_IDENTITIES} identities"))
}

/// Flux's message about an image that may not be used; the provider is `cosign`, `cosign keyless` or `notation`.
pub fn refusal(provider: &str, why: &str) -> String {
    format!("failed to verify the signature using provider '{provider}': {why}")
}

/// Flux's message about an image that is signed.
pub fn acceptance(revision: &str) -> String {
    format!("verified signature of revision {revision}")
}
