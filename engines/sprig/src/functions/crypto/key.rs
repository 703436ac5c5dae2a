//! Private keys: reading and writing PEM, and signing certificates.
//!
//! Keys of elliptic curves use the environment's random numbers. RSA keys and elliptic curve signatures use random numbers of
//! the library, so a template with them never renders the same twice.

use aws_lc_rs::agreement::{self, ECDH_P256};
use aws_lc_rs::encoding::{AsBigEndian, AsDer, EcPrivateKeyBin, Pkcs8V1Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, ECDSA_P521_SHA512_ASN1_SIGNING,
    EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256,
    RsaKeyPair,
};
use yasna::models::ObjectIdentifier;
use yasna::{ASN1Result, DERWriter, Tag};

use super::pem::{self, PemBlock};
use crate::template_environment::RandomBytesEnvironment;

/// A private key that a template generated or was given.
pub(super) enum PrivateKey {
    Rsa(RsaKey),
    Ec(EcKey),
    Ed25519(Ed25519KeyPair, Vec<u8>),
    /// A DSA key in its own DER form. It cannot sign.
    Dsa(Vec<u8>),
}

/// A key of RSA, and its form of PKCS#1.
pub(super) struct RsaKey {
    pair: RsaKeyPair,
    der: Vec<u8>,
}

/// A key of a curve.
pub(super) struct EcKey {
    pair: EcdsaKeyPair,
    curve: &'static EcCurve,
}

/// An elliptic curve, and the digest for its signatures.
pub(super) struct EcCurve {
    signing: &'static EcdsaSigningAlgorithm,
    oid: &'static [u64],
    signature_oid: &'static [u64],
}

const CURVES: [EcCurve; 3] = [
    EcCurve {
        signing: &ECDSA_P256_SHA256_ASN1_SIGNING,
        oid: &[1, 2, 840, 10045, 3, 1, 7],
        signature_oid: &[1, 2, 840, 10045, 4, 3, 2],
    },
    EcCurve {
        signing: &ECDSA_P384_SHA384_ASN1_SIGNING,
        oid: &[1, 3, 132, 0, 34],
        signature_oid: &[1, 2, 840, 10045, 4, 3, 3],
    },
    EcCurve {
        signing: &ECDSA_P521_SHA512_ASN1_SIGNING,
        oid: &[1, 3, 132, 0, 35],
        signature_oid: &[1, 2, 840, 10045, 4, 3, 4],
    },
];

const RSA_ALGORITHM_OID: &[u64] = &[1, 2, 840, 113_549, 1, 1, 1];
const SHA256_WITH_RSA: &[u64] = &[1, 2, 840, 113_549, 1, 1, 11];
const EC_ALGORITHM_OID: &[u64] = &[1, 2, 840, 10045, 2, 1];
const ED25519_ALGORITHM_OID: &[u64] = &[1, 3, 101, 112];

/// Go's message about bytes that do not have the form of a key.
const MALFORMED: &str = "asn1: structure error: tags don't match";

impl PrivateKey {
    /// A new key of RSA.
    ///
    /// # Errors
    /// The library fails.
    pub(super) fn rsa(size: KeySize) -> Result<Self, String> {
        let failed = || "error generating rsa key: the library failed".to_owned();
        let pair = RsaKeyPair::generate(size).map_err(|_| failed())?;
        let der = AsDer::<Pkcs8V1Der<'_>>::as_der(&pair).map_err(|_| failed())?;
        let (_, der) = pkcs8(der.as_ref()).map_err(|_| failed())?;
        Ok(Self::Rsa(RsaKey { pair, der }))
    }

    /// A new key of the curve P-256.
    ///
    /// # Errors
    /// The library fails.
    pub(super) fn p256(template_environment: RandomBytesEnvironment<'_>) -> Result<Self, String> {
        // All but a vanishing part of the numbers of 32 bytes are keys.
        for _ in 0..64 {
            let mut secret = [0; 32];
            template_environment.fill(&mut secret);
            let Ok(key) = agreement::PrivateKey::from_private_key(&ECDH_P256, &secret) else {
                continue;
            };
            let [curve, ..] = &CURVES;
            let pair = key.compute_public_key().ok().and_then(|public| {
                let public = public.as_ref();
                EcdsaKeyPair::from_private_key_and_public_key(curve.signing, &secret, public).ok()
            });
            if let Some(pair) = pair {
                return Ok(Self::Ec(EcKey { pair, curve }));
            }
        }
        Err("failed to generate private key: the randomness holds no key".to_owned())
    }

    /// A new key of Ed25519.
    ///
    /// # Errors
    /// The library fails.
    pub(super) fn ed25519(
        template_environment: RandomBytesEnvironment<'_>,
    ) -> Result<Self, String> {
        let mut seed = vec![0; 32];
        template_environment.fill(&mut seed);
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed)
            .map_err(|_| "failed to generate private key: the library failed")?;
        Ok(Self::Ed25519(pair, seed))
    }

    /// The key in the first PEM block of a text.
    ///
    /// Differs(sprig): keys of RSA have 2048 to 8192 bits, and P-224 is not known.
    ///
    /// # Errors
    /// The text has no key, in sprig's words.
    pub(super) fn from_pem(text: &[u8]) -> Result<Self, String> {
        let PemBlock { label, bytes } = pem::decode(text).ok_or("no PEM data in input")?;
        if label == "PRIVATE KEY" {
            return from_pkcs8(&bytes).map_err(|error| format!("decoding PEM as PKCS#8: {error}"));
        }
        let Some(kind) = label.strip_suffix(" PRIVATE KEY") else {
            return Err(format!("no private key data in PEM block of type {label}"));
        };
        let key = match kind {
            "RSA" => from_pkcs1(bytes),
            "EC" => from_sec1(&bytes),
            "DSA" => super::dsa::check(&bytes)
                .map(|()| Self::Dsa(bytes))
                .map_err(|_| MALFORMED.to_owned()),
            _ => return Err(format!("invalid private key type {kind}")),
        };
        key.map_err(|error| format!("parsing {kind} private key from PEM: {error}"))
    }

    /// The key in PEM, in the form that is the custom of its kind.
    pub(super) fn to_pem(&self) -> String {
        match self {
            Self::Rsa(RsaKey { der, .. }) => pem::encode("RSA PRIVATE KEY", der),
            Self::Ec(ec) => pem::encode("EC PRIVATE KEY", &ec.to_sec1()),
            Self::Ed25519(_, seed) => {
                let secret = yasna::construct_der(|writer| writer.write_bytes(seed));
                let der = yasna::construct_der(|writer| {
                    writer.write_sequence(|writer| {
                        writer.next().write_i64(0);
                        writer
                            .next()
                            .write_sequence(|writer| oid(writer.next(), ED25519_ALGORITHM_OID));
                        writer.next().write_bytes(&secret);
                    });
                });
                pem::encode("PRIVATE KEY", &der)
            }
            Self::Dsa(der) => pem::encode("DSA PRIVATE KEY", der),
        }
    }

    /// Whether the key can sign certificates.
    pub(super) fn is_signer(&self) -> bool {
        !matches!(self, Self::Dsa(_))
    }

    /// The bits of the public key.
    pub(super) fn public_key(&self) -> &[u8] {
        match self {
            Self::Rsa(RsaKey { pair, .. }) => pair.public_key().as_ref(),
            Self::Ec(EcKey { pair, .. }) => pair.public_key().as_ref(),
            Self::Ed25519(pair, _) => pair.public_key().as_ref(),
            Self::Dsa(_) => &[],
        }
    }

    /// The `SubjectPublicKeyInfo` of X.509.
    ///
    /// # Errors
    /// Certificates do not know its kind, in Go's words.
    pub(super) fn public_info(&self) -> Result<Vec<u8>, String> {
        let bits = self.public_key();
        let algorithm: &dyn Fn(DERWriter<'_>) = match self {
            Self::Rsa(_) => &|writer| with_null(writer, RSA_ALGORITHM_OID),
            Self::Ec(EcKey { curve, .. }) => &|writer| {
                writer.write_sequence(|writer| {
                    oid(writer.next(), EC_ALGORITHM_OID);
                    oid(writer.next(), curve.oid);
                });
            },
            Self::Ed25519(..) => {
                &|writer| writer.write_sequence(|writer| oid(writer.next(), ED25519_ALGORITHM_OID))
            }
            Self::Dsa(_) => {
                return Err("x509: unsupported public key type: *dsa.PublicKey".to_owned());
            }
        };
        Ok(yasna::construct_der(|writer| {
            writer.write_sequence(|writer| {
                algorithm(writer.next());
                writer.next().write_bitvec_bytes(bits, bits.len() * 8);
            });
        }))
    }

    /// The `AlgorithmIdentifier` of its signatures.
    pub(super) fn signature_algorithm(&self) -> Vec<u8> {
        yasna::construct_der(|writer| match self {
            Self::Rsa(_) | Self::Dsa(_) => with_null(writer, SHA256_WITH_RSA),
            Self::Ec(EcKey { curve, .. }) => {
                writer.write_sequence(|writer| oid(writer.next(), curve.signature_oid));
            }
            Self::Ed25519(..) => {
                writer.write_sequence(|writer| oid(writer.next(), ED25519_ALGORITHM_OID));
            }
        })
    }

    /// Signs a message; `None` if the library fails.
    pub(super) fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        // The library requires this argument but does not use it.
        let random = SystemRandom::new();
        match self {
            Self::Rsa(RsaKey { pair, .. }) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).ok()?;
                Some(signature)
            }
            Self::Ec(EcKey { pair, .. }) => {
                Some(pair.sign(&random, message).ok()?.as_ref().to_vec())
            }
            Self::Ed25519(pair, _) => Some(pair.sign(message).as_ref().to_vec()),
            Self::Dsa(_) => None,
        }
    }
}

impl EcKey {
    /// The `ECPrivateKey` of SEC 1.
    fn to_sec1(&self) -> Vec<u8> {
        let secret = AsBigEndian::<EcPrivateKeyBin<'_>>::as_be_bytes(&self.pair.private_key());
        let secret = secret.map(|secret| secret.as_ref().to_vec()).unwrap_or_default();
        let public = self.pair.public_key().as_ref();
        yasna::construct_der(|writer| {
            writer.write_sequence(|writer| {
                writer.next().write_i64(1);
                writer.next().write_bytes(&secret);
                writer.next().write_tagged(Tag::context(0), |writer| oid(writer, self.curve.oid));
                writer.next().write_tagged(Tag::context(1), |writer| {
                    writer.write_bitvec_bytes(public, public.len() * 8);
                });
            });
        })
    }
}

/// Writes the identifier of an object.
pub(super) fn oid(writer: DERWriter<'_>, components: &[u64]) {
    writer.write_oid(&ObjectIdentifier::from_slice(components));
}

fn with_null(writer: DERWriter<'_>, algorithm: &[u64]) {
    writer.write_sequence(|writer| {
        oid(writer.next(), algorithm);
        writer.next().write_null();
    });
}

fn from_pkcs1(der: Vec<u8>) -> Result<PrivateKey, String> {
    let pair = RsaKeyPair::from_der(&der).map_err(|_| MALFORMED)?;
    Ok(PrivateKey::Rsa(RsaKey { pair, der }))
}

fn from_sec1(der: &[u8]) -> Result<PrivateKey, String> {
    let key = |curve: &'static EcCurve| {
        let pair = EcdsaKeyPair::from_private_key_der(curve.signing, der).ok()?;
        Some(PrivateKey::Ec(EcKey { pair, curve }))
    };
    Ok(CURVES.iter().find_map(key).ok_or(MALFORMED)?)
}

fn from_pkcs8(der: &[u8]) -> Result<PrivateKey, String> {
    let (algorithm, inner) = pkcs8(der).map_err(|_| MALFORMED)?;
    let components = algorithm.components().as_slice();
    if components == RSA_ALGORITHM_OID {
        from_pkcs1(inner)
    } else if components == EC_ALGORITHM_OID {
        from_sec1(der)
    } else if components == ED25519_ALGORITHM_OID {
        let seed = yasna::parse_der(&inner, |reader| reader.read_bytes()).map_err(|_| MALFORMED)?;
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| MALFORMED)?;
        Ok(PrivateKey::Ed25519(pair, seed))
    } else {
        Err(format!(
            "x509: PKCS#8 wrapping contained private key with unknown algorithm: {algorithm}"
        ))
    }
}

/// The algorithm of a key in PKCS#8, and its own form.
fn pkcs8(der: &[u8]) -> ASN1Result<(ObjectIdentifier, Vec<u8>)> {
    yasna::parse_der(der, |reader| {
        reader.read_sequence(|reader| {
            reader.next().read_i64()?;
            let algorithm = reader.next().read_sequence(|reader| {
                let algorithm = reader.next().read_oid()?;
                reader.read_optional(|reader| reader.read_der())?;
                Ok(algorithm)
            })?;
            let inner = reader.next().read_bytes()?;
            // Attributes, and the public key.
            while reader.read_optional(|reader| reader.read_der())?.is_some() {}
            Ok((algorithm, inner))
        })
    })
}
