//! The older signature format of cosign: layers under the tag `sha256-….sig`, with signatures in their annotations.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::bundle::decoded;
use crate::public_key::PublicKey;
use crate::referrers::{OciDescriptor, SignatureSearch};
use crate::sigstore::keyless_simple_signing::{RekorBundle, verify_keyless};
use crate::sigstore::{AcceptedIdentities, SigstoreTrustedRoot};

const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
const BUNDLE: &str = "dev.sigstore.cosign/bundle";
const CERTIFICATE: &str = "dev.sigstore.cosign/certificate";

/// A signature together with its signed payload.
pub(super) struct SimpleSigningSignature<'a> {
    subject: &'a str,
    payload: &'a [u8],
    signature: Vec<u8>,
    /// Rekor's entry for the signature.
    logged: Option<RekorBundle>,
    annotations: &'a BTreeMap<String, String>,
}

impl<'a> SimpleSigningSignature<'a> {
    /// Reads the signature in a layer of a manifest. The error says what the layer lacks.
    pub(super) fn of(
        search: &'a SignatureSearch,
        layer: &'a OciDescriptor,
    ) -> Result<Self, String> {
        let annotations = &layer.annotations;
        let digest = &layer.digest;
        let Some(signature) = annotations.get(SIGNATURE) else {
            return Err(format!("signature layer {digest} is missing \"{SIGNATURE}\" annotation"));
        };
        let logged =
            annotations.get(BUNDLE).map(|text| RekorBundle::parse(text.as_str())).transpose();
        let logged = logged.map_err(|why| format!("unmarshaling bundle: {why}"))?;
        let signature = decoded(signature)
            .ok_or_else(|| format!("the signature of layer {digest} is not base64"))?;
        let payload = search
            .blob(layer)
            .ok_or_else(|| format!("the payload {digest} is missing or too large"))?;
        Ok(Self { subject: search.subject(), payload, signature, logged, annotations })
    }

    /// Whether a key signed this image.
    pub(super) fn verify_by(&self, key: &PublicKey) -> Result<(), String> {
        key.verify_sigstore(self.payload, &self.signature).map_err(|wrong| wrong.to_string())?;
        self.is_about_image()
    }

    /// Verifies that a signer with one of the identities signed this image. Returns the identity.
    pub(super) fn verify_keyless(
        &self,
        root: &SigstoreTrustedRoot,
        identities: &AcceptedIdentities,
    ) -> Result<String, String> {
        let certificate = self.annotations.get(CERTIFICATE).map(String::as_str).unwrap_or_default();
        let logged = self.logged.as_ref();
        let by =
            verify_keyless(certificate, logged, self.payload, &self.signature, root, identities)?;
        self.is_about_image()?;
        Ok(by)
    }

    /// Differs(flux): the payload is compared with the image, as `cosign verify` does; else a user who can push could
    /// make another image's signature count.
    fn is_about_image(&self) -> Result<(), String> {
        let payload: SimpleSigningPayload = serde_json::from_slice(self.payload)
            .map_err(|_| "the signed payload is not a claim about an image".to_owned())?;
        let digest = payload.critical.image.digest;
        if digest == self.subject {
            return Ok(());
        }
        let shown: String = digest.chars().filter(|c| !c.is_control()).take(80).collect();
        Err(format!("invalid or missing digest in claim: {shown}"))
    }
}

#[derive(Deserialize)]
struct SimpleSigningPayload {
    critical: SimpleSigningCritical,
}

#[derive(Deserialize)]
struct SimpleSigningCritical {
    image: SimpleSigningImage,
}

#[derive(Deserialize)]
struct SimpleSigningImage {
    #[serde(rename = "docker-manifest-digest")]
    digest: String,
}
