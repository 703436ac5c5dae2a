//! A Notation signature with its attributes, in a form that is common to JSON and CBOR.
//!
//! Elsewhere: JSON (`jws`), CBOR (`cose`).

use serde::Deserialize;

use super::{certificate_chain, cose, jws};
use crate::public_key::PublicKey;
use crate::referrers::OciDescriptor;
use crate::x509::ParsedCertificate;

/// The largest signature in bytes, because all of it is parsed.
const MOST_BYTES: usize = 256 << 10;
/// Certificates that are sent with a signature.
const MOST_CERTIFICATES: usize = 16;
/// The most headers of a signature in CBOR, and the most critical headers in either form.
pub(super) const MOST_HEADERS: usize = 64;
/// The media type of the signed payload.
const PAYLOAD: &str = "application/vnd.cncf.notary.payload.v1+json";

pub(super) const SCHEME: &str = "io.cncf.notary.signingScheme";
pub(super) const TIME: &str = "io.cncf.notary.signingTime";
pub(super) const AUTHENTIC_TIME: &str = "io.cncf.notary.authenticSigningTime";
pub(super) const EXPIRY: &str = "io.cncf.notary.expiry";
pub(super) const TIMESTAMP: &str = "io.cncf.notary.timestampSignature";

/// Why a signature is rejected.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotationEnvelopeError {
    /// The envelope cannot be read.
    Unreadable(String),
    /// The signature is invalid.
    Invalid(String),
}

/// The authority for the time of signing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SigningScheme {
    /// The signer itself, or a signing authority.
    X509,
    /// The signing authority itself.
    Authority,
}

/// A signature whose integrity has been verified.
pub(super) struct NotationEnvelope {
    payload: Vec<u8>,
    pub(super) scheme: SigningScheme,
    pub(super) signing_time: i64,
    expiry: Option<i64>,
    /// The certificates from the signer to the root.
    pub(super) chain: Vec<ParsedCertificate>,
    pub(super) has_timestamp: bool,
    /// A critical attribute that nothing here knows.
    pub(super) unknown_critical: Option<String>,
}

/// A parsed signature that has not been verified.
#[derive(Debug, Default)]
pub(super) struct UnverifiedNotationEnvelope {
    /// The bytes that are signed, which the payload is part of.
    pub(super) signed: Vec<u8>,
    pub(super) signature: Vec<u8>,
    pub(super) payload: Vec<u8>,
    pub(super) algorithm: String,
    pub(super) content_type: String,
    pub(super) critical: Vec<String>,
    /// All protected headers.
    pub(super) protected: Vec<String>,
    pub(super) scheme: String,
    pub(super) time: Option<i64>,
    pub(super) authentic_time: Option<i64>,
    pub(super) expiry: Option<i64>,
    /// The certificates in DER.
    pub(super) certificates: Vec<Vec<u8>>,
    pub(super) has_timestamp: bool,
}

impl NotationEnvelope {
    /// Reads a signature, and verifies that it has not changed since the owner of the certificate made it.
    pub(super) fn verified(media_type: &str, bytes: &[u8]) -> Result<Self, NotationEnvelopeError> {
        if bytes.len() > MOST_BYTES {
            return Err(NotationEnvelopeError::Unreadable(format!(
                "it is larger than {MOST_BYTES} bytes"
            )));
        }
        let parts = match media_type {
            "application/jose+json" => jws::read(bytes)?,
            "application/cose" => cose::read(bytes)?,
            other => {
                let why =
                    format!("signature envelope format with media type {other:?} is not supported");
                return Err(NotationEnvelopeError::Unreadable(why));
            }
        };
        Self::of(parts, media_type).map_err(NotationEnvelopeError::Invalid)
    }

    fn of(parts: UnverifiedNotationEnvelope, media_type: &str) -> Result<Self, String> {
        if parts.certificates.is_empty() {
            return Err("certificate chain is not present".to_owned());
        }
        if parts.certificates.len() > MOST_CERTIFICATES {
            return Err(format!("more than {MOST_CERTIFICATES} certificates are sent"));
        }
        let chain = parts.certificates.iter().map(|der| ParsedCertificate::from_der(der));
        let chain = chain
            .collect::<Result<Vec<_>, _>>()
            .map_err(|why| format!("malformed certificate: {why}"))?;
        let key = chain.first().map(|leaf| leaf.key.as_ref());
        let key = key.and_then(Result::ok).ok_or("the key of the certificate is not supported")?;
        let demanded = algorithm(key).ok_or("the key of the certificate is not supported")?;
        let invalid = |why: &str| format!("signature is invalid. Error: {why}");
        if parts.algorithm != demanded {
            return Err(invalid(&format!(
                "the algorithm is {:?}, and the certificate demands {demanded:?}",
                parts.algorithm
            )));
        }
        key.verify_envelope(&parts.signed, &parts.signature).map_err(|_| {
            invalid(match (media_type, key) {
                ("application/cose", _) => "verification error",
                (_, PublicKey::Rsa(..)) => "crypto/rsa: verification error",
                _ => "crypto/ecdsa: verification error",
            })
        })?;
        let scheme = match parts.scheme.as_str() {
            "notary.x509" => SigningScheme::X509,
            "notary.x509.signingAuthority" => SigningScheme::Authority,
            other => return Err(format!("the signing scheme {other:?} is not supported")),
        };
        let unknown_critical = parts.check_critical(scheme)?;
        if parts.content_type != PAYLOAD {
            return Err(format!("payload content type {:?} not supported", parts.content_type));
        }
        let time = if scheme == SigningScheme::X509 { parts.time } else { parts.authentic_time };
        let signing_time = time.ok_or("signing-time is not present")?;
        if parts.expiry.is_some_and(|expiry| expiry <= signing_time) {
            return Err("expiry cannot be equal or before the signing time".to_owned());
        }
        certificate_chain::check(&chain, signing_time)
            .map_err(|why| format!("certificate-chain is invalid, {why}"))?;
        Ok(Self {
            payload: parts.payload,
            scheme,
            signing_time,
            expiry: parts.expiry,
            chain,
            has_timestamp: parts.has_timestamp,
            unknown_critical,
        })
    }

    pub(super) fn is_unexpired(&self, now: i64) -> Result<(), String> {
        match self.expiry {
            Some(expiry) if now > expiry => {
                Err(format!("digital signature has expired on {:?}", shown(expiry)))
            }
            _ => Ok(()),
        }
    }

    /// Whether the signature is about the content of a descriptor.
    pub(super) fn is_about(&self, subject: &OciDescriptor) -> Result<bool, String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct NotationPayload {
            target_artifact: OciDescriptor,
        }
        let payload: NotationPayload = serde_json::from_slice(&self.payload)
            .map_err(|error| format!("failed to unmarshal the payload content: {error}"))?;
        let OciDescriptor { media_type, digest, size, .. } = &payload.target_artifact;
        Ok((media_type, digest, size) == (&subject.media_type, &subject.digest, &subject.size))
    }
}

impl UnverifiedNotationEnvelope {
    /// Gives a critical attribute that is not known.
    pub(super) fn check_critical(&self, scheme: SigningScheme) -> Result<Option<String>, String> {
        if self.critical.len() > MOST_HEADERS {
            return Err(format!("it has more than {MOST_HEADERS} critical headers"));
        }
        let mut demanded = vec![SCHEME];
        if scheme == SigningScheme::Authority {
            demanded.push(AUTHENTIC_TIME);
        }
        if self.expiry.is_some() {
            demanded.push(EXPIRY);
        }
        if let Some(missing) =
            demanded.iter().find(|it| !self.critical.iter().any(|had| had == *it))
        {
            return Err(format!("these required headers are not marked as critical: [{missing}]"));
        }
        if let Some(missing) = self.critical.iter().find(|it| !self.protected.contains(it)) {
            return Err(format!("the critical header {missing:?} is not present"));
        }
        let known = [SCHEME, TIME, AUTHENTIC_TIME, EXPIRY];
        Ok(self.critical.iter().find(|it| !known.contains(&it.as_str())).cloned())
    }
}

/// The algorithm of signatures that a key demands. `None` if keys of this kind or size are not supported.
fn algorithm(key: &PublicKey) -> Option<&'static str> {
    use crate::public_key::EllipticCurve;
    Some(match key {
        PublicKey::Rsa(_, 2048..3072) => "PS256",
        PublicKey::Rsa(_, 3072..4096) => "PS384",
        PublicKey::Rsa(_, 4096..=8192) => "PS512",
        PublicKey::Ec(EllipticCurve::P256, _) => "ES256",
        PublicKey::Ec(EllipticCurve::P384, _) => "ES384",
        PublicKey::Ec(EllipticCurve::P521, _) => "ES512",
        _ => return None,
    })
}

/// A time in the form of RFC 1123.
pub(super) fn shown(seconds: i64) -> String {
    let time = jiff::Timestamp::from_second(seconds);
    time.map_or_else(
        |_| seconds.to_string(),
        |time| time.strftime("%a, %d %b %Y %H:%M:%S +0000").to_string(),
    )
}
