//! Verifies signatures that go-crypto accepts but rPGP rejects.
//!
//! Here: digests shorter than rPGP requires. Elsewhere: which digests are accepted (`policy`), curves that rPGP lacks
//! (`brainpool`).

use std::io;

use pgp::crypto::hash::HashAlgorithm;
use pgp::crypto::public_key::PublicKeyAlgorithm;
use pgp::errors::Result;
use pgp::ser::Serialize;
use pgp::types::{
    EcdsaPublicParams, Fingerprint, KeyDetails, KeyId, KeyVersion, PublicParams, SignatureBytes,
    Timestamp, VerifyingKey,
};

use super::brainpool;

/// The largest key in bytes. With a larger key, a few signatures would take seconds.
const MAX_KEY_BYTES: usize = 4096;

/// A key that verifies the signatures that go-crypto verifies.
#[derive(Debug)]
pub(super) struct PgpVerifyingKey<'k, K>(pub(super) &'k K);

/// Whether a key is small enough to be used.
pub(super) fn is_usable(key: &impl Serialize) -> bool {
    key.write_len() <= MAX_KEY_BYTES
}

/// The name of a key's algorithm in an error.
pub(super) fn algorithm(key: &impl KeyDetails) -> &'static str {
    match key.public_params() {
        PublicParams::RSA(_) => "RSA",
        PublicParams::DSA(_) => "DSA",
        PublicParams::ECDSA(_) => "ECDSA",
        PublicParams::EdDSALegacy(_) => "EdDSA",
        PublicParams::Ed25519(_) => "Ed25519",
        PublicParams::Ed448(_) => "ed448",
        _ => "unsupported",
    }
}

impl<K: KeyDetails> KeyDetails for PgpVerifyingKey<'_, K> {
    fn version(&self) -> KeyVersion {
        self.0.version()
    }

    fn fingerprint(&self) -> Fingerprint {
        self.0.fingerprint()
    }

    fn legacy_key_id(&self) -> KeyId {
        self.0.legacy_key_id()
    }

    fn algorithm(&self) -> PublicKeyAlgorithm {
        self.0.algorithm()
    }

    fn created_at(&self) -> Timestamp {
        self.0.created_at()
    }

    fn legacy_v3_expiration_days(&self) -> Option<u16> {
        self.0.legacy_v3_expiration_days()
    }

    fn public_params(&self) -> &PublicParams {
        self.0.public_params()
    }
}

impl<K: VerifyingKey> VerifyingKey for PgpVerifyingKey<'_, K> {
    fn verify(&self, hash: HashAlgorithm, digest: &[u8], signature: &SignatureBytes) -> Result<()> {
        let field = match self.0.public_params() {
            // The digest itself is the signed message. The algorithm is only compared with a minimum.
            PublicParams::EdDSALegacy(_) | PublicParams::Ed25519(_) => 0,
            // A digest is a number, which leading zeros do not change.
            PublicParams::ECDSA(
                EcdsaPublicParams::P256 { .. } | EcdsaPublicParams::Secp256k1 { .. },
            ) => 32,
            PublicParams::ECDSA(EcdsaPublicParams::P384 { .. }) => 48,
            PublicParams::ECDSA(EcdsaPublicParams::P521 { .. }) => 66,
            PublicParams::ECDSA(EcdsaPublicParams::Unsupported { curve, opaque }) => {
                return brainpool::verify(curve, opaque, digest, signature);
            }
            _ => return self.0.verify(hash, digest, signature),
        };
        let mut padded = vec![0; field - digest.len().min(field)];
        padded.extend(digest);
        self.0.verify(HashAlgorithm::Sha512, &padded, signature)
    }
}

impl<K: Serialize> Serialize for PgpVerifyingKey<'_, K> {
    fn to_writer<W: io::Write>(&self, writer: &mut W) -> Result<()> {
        self.0.to_writer(writer)
    }

    fn write_len(&self) -> usize {
        self.0.write_len()
    }
}
