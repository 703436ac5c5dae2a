//! Public keys and verifying their signatures: RSA, ECDSA on the curves of NIST, Ed25519.
//! Here: reading a key, and verifying a signature. Elsewhere: certificates (`x509`), trusted signers (`cosign`, `notation`).

use aws_lc_rs::signature::{self as aws, UnparsedPublicKey, VerificationAlgorithm};
use x509_parser::prelude::FromDer as _;
use x509_parser::public_key::PublicKey as Parsed;
use x509_parser::x509::SubjectPublicKeyInfo;

use crate::pem;

/// The hash of a message that is signed in place of the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignatureHash {
    Sha256,
    Sha384,
    Sha512,
}

/// The elliptic curves of NIST that keys may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EllipticCurve {
    P256,
    P384,
    P521,
}

/// A public key of one of the supported algorithms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PublicKey {
    /// An `RSAPublicKey` in DER, and the bits of its modulus.
    Rsa(Vec<u8>, usize),
    /// A point that is not compressed.
    Ec(EllipticCurve, Vec<u8>),
    Ed25519(Vec<u8>),
}

/// Why a signature is not valid. Parity(flux): the texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SignatureFault {
    #[error("crypto/rsa: verification error")]
    Rsa,
    #[error("invalid signature when validating ASN.1 encoded signature")]
    Asn1,
    #[error("ecdsa: Invalid IEEE_P1363 encoded bytes")]
    NotP1363,
    #[error("invalid signature when validating IEEE_P1363 encoded signature")]
    P1363,
    #[error("failed to verify signature")]
    Ed25519,
    #[error("the key has another algorithm than the signature")]
    Algorithm,
}

fn is_by(
    algorithm: &'static dyn VerificationAlgorithm,
    key: &[u8],
    message: &[u8],
    signature: &[u8],
) -> bool {
    UnparsedPublicKey::new(algorithm, key).verify(message, signature).is_ok()
}

impl PublicKey {
    /// Reads a `SubjectPublicKeyInfo` in DER.
    pub(crate) fn from_spki(der: &[u8]) -> Result<Self, &'static str> {
        let (rest, info) =
            SubjectPublicKeyInfo::from_der(der).map_err(|_| "the public key is malformed")?;
        if !rest.is_empty() {
            return Err("the public key has trailing data");
        }
        Self::from_info(&info)
    }

    pub(crate) fn from_info(info: &SubjectPublicKeyInfo<'_>) -> Result<Self, &'static str> {
        let bits = info.subject_public_key.data.to_vec();
        if info.algorithm.algorithm.to_id_string() == "1.3.101.112" {
            return Ok(Self::Ed25519(bits));
        }
        let parsed = info.parsed().map_err(|_| "the public key is malformed")?;
        match parsed {
            Parsed::RSA(key) => Ok(Self::Rsa(bits, key.key_size())),
            Parsed::EC(_) => {
                let parameters = info.algorithm.parameters.as_ref();
                let curve =
                    parameters.and_then(|it| it.as_oid().ok()).map(|oid| oid.to_id_string());
                let curve = match curve.as_deref() {
                    Some("1.2.840.10045.3.1.7") => EllipticCurve::P256,
                    Some("1.3.132.0.34") => EllipticCurve::P384,
                    Some("1.3.132.0.35") => EllipticCurve::P521,
                    _ => return Err("the curve of the public key is not supported"),
                };
                Ok(Self::Ec(curve, bits))
            }
            _ => Err("the algorithm of the public key is not supported"),
        }
    }

    /// Reads the first block of a PEM text.
    ///
    /// Parity(flux): the texts.
    pub(crate) fn from_pem(text: &[u8]) -> Result<Self, String> {
        let block = pem::first(text).ok_or("PEM decoding failed")?;
        match block.kind.as_str() {
            "PUBLIC KEY" => Ok(Self::from_spki(&block.content)?),
            "RSA PUBLIC KEY" => {
                let (_, key) = x509_parser::public_key::RSAPublicKey::from_der(&block.content)
                    .map_err(|_| "the RSA public key is malformed")?;
                Ok(Self::Rsa(block.content.clone(), key.key_size()))
            }
            kind => Err(format!(
                "unknown Public key PEM file type: {kind}. Are you passing the correct public key?"
            )),
        }
    }

    /// Verifies a signature in the form of Sigstore and certificates: RSA with the padding of PKCS #1 1.5, ECDSA in ASN.1,
    /// Ed25519 of the message itself.
    pub(crate) fn verify(
        &self,
        hash: SignatureHash,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), SignatureFault> {
        let (is_good, wrong) = match self {
            Self::Rsa(key, _) => {
                let algorithm = match hash {
                    SignatureHash::Sha256 => &aws::RSA_PKCS1_2048_8192_SHA256,
                    SignatureHash::Sha384 => &aws::RSA_PKCS1_2048_8192_SHA384,
                    SignatureHash::Sha512 => &aws::RSA_PKCS1_2048_8192_SHA512,
                };
                (is_by(algorithm, key, message, signature), SignatureFault::Rsa)
            }
            Self::Ec(curve, key) => {
                (is_by(asn1(*curve, hash), key, message, signature), SignatureFault::Asn1)
            }
            Self::Ed25519(key) => {
                (is_by(&aws::ED25519, key, message, signature), SignatureFault::Ed25519)
            }
        };
        if is_good { Ok(()) } else { Err(wrong) }
    }

    /// Like `verify` with SHA-256. An ECDSA signature may also be two concatenated numbers.
    ///
    /// Parity(flux): how Sigstore reads signatures of keys.
    pub(crate) fn verify_sigstore(
        &self,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), SignatureFault> {
        let Self::Ec(..) = self else {
            return self.verify(SignatureHash::Sha256, message, signature);
        };
        if is_asn1(signature) {
            return self.verify(SignatureHash::Sha256, message, signature);
        }
        if signature.is_empty() || signature.len() > 132 || !signature.len().is_multiple_of(2) {
            return Err(SignatureFault::NotP1363);
        }
        let (r, s) = signature.split_at(signature.len() / 2);
        let encoded = sequence(&[integer(r), integer(s)].concat());
        self.verify(SignatureHash::Sha256, message, &encoded).map_err(|_| SignatureFault::P1363)
    }

    /// Verifies a signature in the form of JOSE and COSE: RSA with PSS, ECDSA as two numbers. The size of the key determines
    /// the hash.
    pub(crate) fn verify_envelope(
        &self,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), SignatureFault> {
        let (is_good, wrong) = match self {
            Self::Rsa(key, bits) => {
                let algorithm = match bits {
                    0..3072 => &aws::RSA_PSS_2048_8192_SHA256,
                    3072..4096 => &aws::RSA_PSS_2048_8192_SHA384,
                    _ => &aws::RSA_PSS_2048_8192_SHA512,
                };
                (is_by(algorithm, key, message, signature), SignatureFault::Rsa)
            }
            Self::Ec(curve, key) => {
                let algorithm = match curve {
                    EllipticCurve::P256 => &aws::ECDSA_P256_SHA256_FIXED,
                    EllipticCurve::P384 => &aws::ECDSA_P384_SHA384_FIXED,
                    EllipticCurve::P521 => &aws::ECDSA_P521_SHA512_FIXED,
                };
                (is_by(algorithm, key, message, signature), SignatureFault::P1363)
            }
            Self::Ed25519(_) => return Err(SignatureFault::Algorithm),
        };
        if is_good { Ok(()) } else { Err(wrong) }
    }
}

fn asn1(curve: EllipticCurve, hash: SignatureHash) -> &'static dyn VerificationAlgorithm {
    match (curve, hash) {
        (EllipticCurve::P256, SignatureHash::Sha256) => &aws::ECDSA_P256_SHA256_ASN1,
        (EllipticCurve::P256, SignatureHash::Sha384) => &aws::ECDSA_P256_SHA384_ASN1,
        (EllipticCurve::P256, SignatureHash::Sha512) => &aws::ECDSA_P256_SHA512_ASN1,
        (EllipticCurve::P384, SignatureHash::Sha256) => &aws::ECDSA_P384_SHA256_ASN1,
        (EllipticCurve::P384, SignatureHash::Sha384) => &aws::ECDSA_P384_SHA384_ASN1,
        (EllipticCurve::P384, SignatureHash::Sha512) => &aws::ECDSA_P384_SHA512_ASN1,
        (EllipticCurve::P521, SignatureHash::Sha256) => &aws::ECDSA_P521_SHA256_ASN1,
        (EllipticCurve::P521, SignatureHash::Sha384) => &aws::ECDSA_P521_SHA384_ASN1,
        (EllipticCurve::P521, SignatureHash::Sha512) => &aws::ECDSA_P521_SHA512_ASN1,
    }
}

/// Whether the bytes begin with a sequence of two integers.
fn is_asn1(signature: &[u8]) -> bool {
    let two = || {
        let (sequence, _) = crate::der::read(signature)?;
        let (r, rest) = crate::der::read(sequence.content)?;
        let (s, _) = crate::der::read(rest)?;
        Some(sequence.tag == 0x30 && r.tag == 2 && s.tag == 2)
    };
    two().unwrap_or(false)
}

fn integer(bytes: &[u8]) -> Vec<u8> {
    let at = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
    let mut content = vec![0];
    content.extend_from_slice(bytes.get(at..).unwrap_or_default());
    if content.len() > 1 && content.get(1).is_some_and(|byte| byte & 0x80 == 0) {
        content.remove(0);
    }
    crate::der::write(2, &content)
}

fn sequence(content: &[u8]) -> Vec<u8> {
    crate::der::write(0x30, content)
}
