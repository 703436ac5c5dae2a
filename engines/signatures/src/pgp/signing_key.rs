//! OpenPGP keys that sign commits.
//!
//! Here: reading the private key, choosing the key or subkey that signs, and the signature. Elsewhere: what its owner says of
//! it (`keyring`), which keys and signatures are good now (`policy`).

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pgp::composed::{
    ArmorOptions, Deserializable as _, DetachedSignature, SignedSecretKey, SignedSecretSubKey,
};
use pgp::packet::{SignatureConfig, SignatureType, Subpacket, SubpacketData};
use pgp::ser::Serialize as _;
use pgp::types::{
    KeyDetails as _, KeyVersion, Password, PublicParams, S2kParams, SecretParams, SigningKey,
    StringToKey, Timestamp,
};

use super::{PgpEntity, VerificationEffort, armor, armored_ring, check, policy};
use crate::sign::SigningError;

/// The memory that a passphrase may take, as the exponent of two of KiB: 128 MiB. The file of the key sets it; it is 64 MiB
/// where go-crypto makes the key.
const MAX_ARGON2_MEMORY: u8 = 17;
/// How often that memory is passed over.
const MAX_ARGON2_PASSES: u8 = 8;

/// How many subkeys are unlocked, the newest first. Each has a passphrase of its own to be derived, which takes up to half a
/// second.
const MAX_UNLOCKED_SUBKEYS: usize = 4;

/// The largest text of a key. Its packets are read before anything is known of them.
const MAX_KEY_TEXT_BYTES: usize = 256 << 10;

/// The bits of RSA keys that sign. Parity(flux): Go refuses smaller ones.
const RSA_BITS: std::ops::RangeInclusive<u16> = 1024..=8192;
/// The bits of the modulus of DSA keys that sign.
const DSA_MODULUS_BITS: std::ops::RangeInclusive<u16> = 1024..=4096;
/// The bits of the order of their group. In a smaller one, the search for a number that is invertible may never end.
const DSA_ORDER_BITS: [u16; 3] = [160, 224, 256];

/// A private OpenPGP key, with its passphrase.
pub struct OpenPgpSigningKey {
    secret: SignedSecretKey,
    entity: PgpEntity,
    passphrase: Option<Password>,
}

impl fmt::Debug for OpenPgpSigningKey {
    /// Which key it is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OpenPgpSigningKey").field(&self.entity.id()).finish()
    }
}

fn refused(why: &str) -> SigningError {
    SigningError(why.to_owned())
}

impl OpenPgpSigningKey {
    /// Reads an armored private key.
    ///
    /// Parity(flux): the armor holds exactly one key; a passphrase for a key that has none is not examined.
    ///
    /// # Errors
    /// It is no private key, or there are several; in the words of go-crypto where it has any. A passphrase that is wrong
    /// is noticed at the first signature.
    pub fn read(armored: &[u8], passphrase: Option<&str>) -> Result<Self, SigningError> {
        if armored.len() > MAX_KEY_TEXT_BYTES {
            return Err(refused(
                "the signing key is larger than 256 KiB: export it without photos",
            ));
        }
        let mut entities =
            armored_ring(armored, &mut VerificationEffort::default()).map_err(SigningError)?;
        let entity = match entities.pop() {
            Some(entity) if entities.is_empty() => entity,
            _ => return Err(refused("the signing key must be exactly one OpenPGP key")),
        };
        let content = armor::first(armored).map(|block| block.content).unwrap_or_default();
        let secret = contained(|| SignedSecretKey::from_bytes(content.as_slice()).ok());
        let secret = secret.ok_or_else(|| {
            refused("openpgp: invalid argument: signing key doesn't have a private key")
        })?;
        Ok(Self { secret, entity, passphrase: passphrase.map(Password::from) })
    }

    /// Signs a commit or tag, given as it is stored without a signature; `now` is in seconds since 1970, and becomes the time
    /// of the signature. Gives the armored signature.
    ///
    /// The newest subkey that may sign does, else the key itself. No signature is made that [`verify`](crate::git::verify)
    /// would refuse: one of a key that has expired or is revoked, for instance.
    ///
    /// # Errors
    /// No key may sign now, or the passphrase does not unlock it.
    pub fn sign(&self, payload: &[u8], now: u64) -> Result<String, SigningError> {
        let mut problem = None;
        let may_sign = |subkey: &&SignedSecretSubKey| {
            let print = subkey.key.fingerprint();
            let known = self.entity.subkeys.iter().find(|it| it.key.fingerprint() == print);
            let binding = known.and_then(|it| it.signature.as_ref());
            binding.is_some_and(policy::may_sign)
        };
        let mut subkeys: Vec<_> = self.secret.secret_subkeys.iter().filter(may_sign).collect();
        subkeys.sort_by_key(|subkey| std::cmp::Reverse(subkey.key.created_at()));
        for subkey in subkeys.into_iter().take(MAX_UNLOCKED_SUBKEYS) {
            match self.sign_with(&subkey.key, subkey.key.secret_params(), payload, now) {
                Ok(signature) => return Ok(signature),
                Err(why) => drop(problem.get_or_insert(why)),
            }
        }
        let primary = &self.secret.primary_key;
        if self.entity.primary.signature.as_ref().is_some_and(policy::may_sign) {
            match self.sign_with(primary, primary.secret_params(), payload, now) {
                Ok(signature) => return Ok(signature),
                Err(why) => drop(problem.get_or_insert(why)),
            }
        }
        Err(problem.unwrap_or_else(|| refused("the OpenPGP key has no key that may sign")))
    }

    fn sign_with<K: SigningKey>(
        &self,
        key: &K,
        secret: &SecretParams,
        payload: &[u8],
        now: u64,
    ) -> Result<String, SigningError> {
        let is_locked = is_locked(secret)?;
        if key.version() != KeyVersion::V4 {
            return Err(refused("only OpenPGP keys of version 4 can sign commits"));
        }
        check_size(key.public_params())?;
        if is_locked && self.passphrase.is_none() {
            return Err(refused("the OpenPGP key is encrypted: add its `passphrase`"));
        }
        let empty = Password::empty();
        let passphrase = self.passphrase.as_ref().unwrap_or(&empty);
        let created = u32::try_from(now)
            .map(Timestamp::from_secs)
            .map_err(|_too_late| refused("OpenPGP signatures have no time after 2106"))?;
        let made = contained(|| Some(signature(key, passphrase, payload, created)));
        let made = made.ok_or_else(|| refused("the numbers of the OpenPGP key are invalid"))?;
        let made = made.map_err(|error| match is_locked {
            true => refused("`passphrase` does not unlock the OpenPGP key"),
            false => SigningError(format!("the OpenPGP key cannot sign: {error}")),
        })?;
        let unwritable = |error: pgp::errors::Error| {
            SigningError(format!("the signature cannot be written: {error}"))
        };
        let packet = made.to_bytes().map_err(unwritable)?;
        let known = std::slice::from_ref(&self.entity);
        check(&packet, payload, known, now, &mut VerificationEffort::default())
            .map_err(SigningError)?;
        made.to_armored_string(ArmorOptions::default()).map_err(unwritable)
    }
}

/// Whether a secret key is encrypted.
///
/// # Errors
/// It is not in the file, or its passphrase takes too much memory or time.
fn is_locked(secret: &SecretParams) -> Result<bool, SigningError> {
    let SecretParams::Encrypted(encrypted) = secret else { return Ok(false) };
    let from = match encrypted.string_to_key_params() {
        S2kParams::Aead { s2k, .. }
        | S2kParams::Cfb { s2k, .. }
        | S2kParams::MalleableCfb { s2k, .. } => s2k,
        S2kParams::LegacyCfb { .. } | S2kParams::Unprotected => return Ok(true),
    };
    match from {
        StringToKey::Argon2 { t, m_enc, .. }
            if *m_enc > MAX_ARGON2_MEMORY || *t > MAX_ARGON2_PASSES =>
        {
            Err(refused("the passphrase of the OpenPGP key takes more than 128 MiB or 8 passes"))
        }
        // GnuPG exports a key without its secret part if that is on a smart card or was left out.
        StringToKey::Private { .. } | StringToKey::Other { .. } | StringToKey::Reserved { .. } => {
            Err(refused("the secret part of the OpenPGP key is not in the Secret"))
        }
        _ => Ok(true),
    }
}

/// The result of code of rPGP, which panics for some keys whose numbers do not belong together.
fn contained<T>(work: impl FnOnce() -> Option<T>) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok().flatten()
}

/// Checks that signing takes a bounded time.
fn check_size(params: &PublicParams) -> Result<(), SigningError> {
    let numbers = || {
        let bytes = params.to_bytes().map_err(|_unwritable| refused("the OpenPGP key is invalid"));
        bytes.map(|bytes| bits_of_numbers(&bytes))
    };
    match params {
        PublicParams::RSA(_) => match numbers()?.as_slice() {
            [modulus, ..] if RSA_BITS.contains(modulus) => Ok(()),
            _ => Err(refused("the RSA key does not have 1024 to 8192 bits")),
        },
        PublicParams::DSA(_) => match numbers()?.as_slice() {
            [modulus, order, ..]
                if DSA_MODULUS_BITS.contains(modulus) && DSA_ORDER_BITS.contains(order) =>
            {
                Ok(())
            }
            _ => Err(refused("the DSA key has a group of an unusual size")),
        },
        _ => Ok(()),
    }
}

/// The sizes of the numbers of a key, which each begin with it.
fn bits_of_numbers(mut bytes: &[u8]) -> Vec<u16> {
    let mut sizes = Vec::new();
    while let Some((size, rest)) = bytes.split_first_chunk::<2>() {
        let bits = u16::from_be_bytes(*size);
        sizes.push(bits);
        bytes = rest.get(usize::from(bits).div_ceil(8)..).unwrap_or_default();
    }
    sizes
}

fn signature<K: SigningKey>(
    key: &K,
    passphrase: &Password,
    payload: &[u8],
    created: Timestamp,
) -> pgp::errors::Result<DetachedSignature> {
    let mut config = SignatureConfig::v4(SignatureType::Binary, key.algorithm(), key.hash_alg());
    config.hashed_subpackets = vec![
        Subpacket::regular(SubpacketData::IssuerFingerprint(key.fingerprint()))?,
        Subpacket::regular(SubpacketData::SignatureCreationTime(created))?,
    ];
    config.unhashed_subpackets =
        vec![Subpacket::regular(SubpacketData::IssuerKeyId(key.legacy_key_id()))?];
    Ok(DetachedSignature::new(config.sign(key, passphrase, payload)?))
}

#[cfg(test)]
mod tests {
    use pgp::crypto::aead::AeadAlgorithm;
    use pgp::crypto::sym::SymmetricKeyAlgorithm;
    use pgp::types::{DsaPublicParams, EncryptedSecretParams, RsaPublicParams};

    use super::*;

    #[test]
    fn a_passphrase_that_takes_too_much_is_not_derived() {
        let locked = |t: u8, m_enc: u8| {
            let s2k = StringToKey::Argon2 { salt: [7; 16], t, p: 4, m_enc };
            let params = S2kParams::Aead {
                sym_alg: SymmetricKeyAlgorithm::AES256,
                aead_mode: AeadAlgorithm::Ocb,
                s2k,
                nonce: vec![7_u8; 15].into(),
            };
            let data = vec![7_u8].into();
            is_locked(&SecretParams::Encrypted(EncryptedSecretParams::new(data, params)))
        };
        assert_eq!(locked(3, 16), Ok(true));
        for (passes, memory) in [(3, 18), (3, 31), (9, 16)] {
            let error = locked(passes, memory).unwrap_err().to_string();
            assert!(error.contains("more than 128 MiB or 8 passes"), "{error}");
        }
    }

    #[test]
    fn the_numbers_of_a_key_are_measured() {
        assert_eq!(bits_of_numbers(&[0, 9, 1, 1, 0, 1, 1]), vec![9_u16, 1]);
        assert_eq!(bits_of_numbers(&[0xff, 0xff, 1]), vec![0xffff_u16]);
        assert_eq!(bits_of_numbers(&[0]), Vec::<u16>::new());
    }

    #[test]
    fn a_key_of_an_unusual_size_does_not_sign() {
        let rsa = |bytes: &[u8]| {
            check_size(&PublicParams::RSA(RsaPublicParams::try_from_reader(bytes).unwrap()))
        };
        assert!(rsa(&[0, 6, 49, 0, 3, 5]).is_err());
        assert_eq!(rsa(&[&[8, 0][..], &[0x81; 256], &[0, 2, 3]].concat()), Ok(()));
        // Signing with this group would never end: its order has less than eight bits.
        let group: &[u8] = &[0, 3, 7, 0, 2, 3, 0, 2, 2, 0, 3, 4];
        let dsa = PublicParams::DSA(DsaPublicParams::try_from_reader(group).unwrap());
        assert!(check_size(&dsa).unwrap_err().to_string().contains("group of an unusual size"));
    }
}
