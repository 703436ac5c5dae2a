//! Verifies cosign signatures of images: by a key, or by an identity that an identity provider confirmed (keyless).
//!
//! Here: the verdict on an image ([`verify`], [`verify_keyless`]). In the folder: bundles (`bundle`), the older format under
//! the tag `sha256-….sig` (`simple_signing`). Elsewhere: finding signatures (`referrers`), certificates, logs and identities
//! (`sigstore`).
//!
//! Parity(flux): source-controller 1.9 with cosign 3.0, texts included.
//! Differs(flux): in Flux a user who can push to the repository could make another image's signature in the older format count
//! for this one, and could hide a good signature by a bundle that counts for nothing. Here the payload must name the image, and
//! one good signature in either format is enough.

mod bundle;
mod simple_signing;

use crate::public_key::PublicKey;
use crate::referrers::{OciDescriptor, SignatureSearch};
use crate::sigstore::{AcceptedIdentities, CertificateIdentityMatcher, SigstoreTrustedRoot};

pub(crate) use bundle::SigstoreBundle;

/// The signer of a good signature of Cosign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CosignSigner {
    /// The signer: the name of a key, or the identity in a certificate.
    pub name: String,
}

/// Why no signature is valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CosignVerificationError {
    /// A key cannot be read.
    #[error("{0}")]
    BadKey(String),
    /// The image has no signature.
    #[error("no signatures found")]
    Unsigned,
    /// No bundle is valid. There is one reason for each bundle.
    #[error("no matching attestations: {}", .0.join("\n"))]
    Bundles(Vec<String>),
    /// No signature of the older format is valid. There is one reason for each signature.
    #[error("no matching signatures: {}", .0.join("\n "))]
    Signatures(Vec<String>),
}

/// Most keys of a Secret.
const MOST_KEYS: usize = 64;

/// The signer who is trusted.
enum CosignTrust<'t> {
    Key(PublicKey),
    Identities(&'t SigstoreTrustedRoot, &'t AcceptedIdentities),
}

/// Verifies that an image, `repository@digest`, is signed by one of the keys with a name ending in `.pub`. Up to 64 keys are
/// allowed.
///
/// # Errors
/// The image is not signed by a key, or no key can be used. The text is for users.
pub fn verify<'k>(
    search: &SignatureSearch,
    image: &str,
    keys: impl IntoIterator<Item = (&'k str, &'k [u8])>,
) -> Result<CosignSigner, String> {
    let keys = keys.into_iter().filter(|(name, _)| name.ends_with(".pub")).collect::<Vec<_>>();
    if keys.len() > MOST_KEYS {
        return Err(format!("the Secret has more than {MOST_KEYS} keys that end in `.pub`"));
    }
    let found = CosignSearchResult::of(search);
    let mut bad = None;
    for (name, key) in keys {
        match PublicKey::from_pem(key) {
            Ok(key) => {
                if found.any(&CosignTrust::Key(key)).is_ok() {
                    return Ok(CosignSigner { name: name.to_owned() });
                }
            }
            Err(why) => bad = bad.or(Some(why)),
        }
    }
    // Parity(flux): a key that cannot be read fails all, unless another was good before; here, wherever it stands.
    Err(bad.unwrap_or_else(|| format!("no matching signatures were found for '{image}'")))
}

/// Verifies that an image is signed by one key, given as PEM.
///
/// # Errors
/// The reasons why the image is not signed by the key.
pub fn verify_by(search: &SignatureSearch, key: &[u8]) -> Result<(), CosignVerificationError> {
    let key = PublicKey::from_pem(key).map_err(CosignVerificationError::BadKey)?;
    CosignSearchResult::of(search).any(&CosignTrust::Key(key)).map(drop)
}

/// Verifies that an image is signed with a certificate of a trusted authority for one of the identities.
///
/// Parity(flux): a bundle needs exactly one identity; without any, or with several, signatures of the older format count.
///
/// # Errors
/// The reasons why no signature is valid.
pub(crate) fn verify_keyless(
    search: &SignatureSearch,
    root: &SigstoreTrustedRoot,
    identities: &[CertificateIdentityMatcher],
) -> Result<CosignSigner, CosignVerificationError> {
    CosignSearchResult::of(search)
        .any(&CosignTrust::Identities(root, &AcceptedIdentities::new(identities)))
}

/// The result of a search, which is read once for all keys.
struct CosignSearchResult<'s> {
    search: &'s SignatureSearch,
    bundles: Vec<SigstoreBundle>,
    layers: Vec<OciDescriptor>,
}

impl<'s> CosignSearchResult<'s> {
    fn of(search: &'s SignatureSearch) -> Self {
        let bundle =
            |descriptor: Option<OciDescriptor>| SigstoreBundle::parse(search.blob(&descriptor?)?);
        let attached = search.attached().into_iter();
        let bundles = attached.filter_map(|(_, descriptor)| bundle(descriptor)).collect();
        Self { search, bundles, layers: search.old_layers() }
    }

    fn any(&self, trust: &CosignTrust<'_>) -> Result<CosignSigner, CosignVerificationError> {
        let subject = self.search.subject();
        let mut of_bundles = Vec::new();
        for bundle in &self.bundles {
            let verified = match trust {
                CosignTrust::Key(key) => bundle.verify_by(key, subject).map(|()| String::new()),
                CosignTrust::Identities(root, identities) => {
                    bundle.verify_keyless(root, identities, subject)
                }
            };
            match verified {
                Ok(name) => return Ok(CosignSigner { name }),
                Err(why) => of_bundles.push(why),
            }
        }
        let mut of_layers = Vec::new();
        for layer in &self.layers {
            let signature = simple_signing::SimpleSigningSignature::of(self.search, layer);
            let verified = signature.and_then(|signature| match trust {
                CosignTrust::Key(key) => signature.verify_by(key).map(|()| String::new()),
                CosignTrust::Identities(root, identities) => {
                    signature.verify_keyless(root, identities)
                }
            });
            match verified {
                Ok(name) => return Ok(CosignSigner { name }),
                Err(why) => of_layers.push(why),
            }
        }
        Err(match (of_bundles.is_empty(), of_layers.is_empty()) {
            (false, _) => CosignVerificationError::Bundles(of_bundles),
            (true, false) => CosignVerificationError::Signatures(of_layers),
            (true, true) => CosignVerificationError::Unsigned,
        })
    }
}

#[cfg(test)]
mod tests;
