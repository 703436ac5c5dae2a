//! OpenPGP keys that sign commits.
//!
//! Here: reading the private key, choosing the key or subkey that signs, and the signature. Elsewhere: what its owner says of
//! it (`keyring`), which keys and signatures are good now (`policy`).

use std::fmt;

use pgp::composed::{ArmorOptions, Deserializable as _, DetachedSignature, SignedSecretKey};
use pgp::packet::{SignatureConfig, SignatureType, Subpacket, SubpacketData};
use pgp::ser::Serialize as _;
use pgp::types::{
    KeyDetails as _, KeyVersion, Password, S2kParams, SecretParams, SigningKey, StringToKey,
    Timestamp,
};

use super::{Effort, Entity, armor, armored_ring, check, policy};
use crate::sign::SigningError;

/// The memory that a passphrase may take, as the exponent of two of KiB: 256 MiB. The file of the key sets it.
const MAX_ARGON2_MEMORY: u8 = 18;
/// How often that memory is passed over.
const MAX_ARGON2_PASSES: u8 = 16;
/// A private OpenPGP key, with its passphrase.
pub struct OpenPgpSigningKey {
    secret: SignedSecretKey,
    entity: Entity,
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
        let mut entities = armored_ring(armored, &mut Effort::default()).map_err(SigningError)?;
        let entity = match entities.pop() {
            Some(entity) if entities.is_empty() => entity,
            _ => return Err(refused("the signing key must be exactly one OpenPGP key")),
        };
        let content = armor::first(armored).map(|block| block.content).unwrap_or_default();
        let secret = SignedSecretKey::from_bytes(content.as_slice()).map_err(|_no_secret_key| {
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
        let mut subkeys: Vec<_> = self.secret.secret_subkeys.iter().collect();
        subkeys.sort_by_key(|subkey| std::cmp::Reverse(subkey.key.created_at()));
        for subkey in subkeys {
            let print = subkey.key.fingerprint();
            let known = self.entity.subkeys.iter().find(|it| it.key.fingerprint() == print);
            let binding = known.and_then(|it| it.signature.as_ref());
            if binding.is_none_or(|it| !policy::may_sign(it)) {
                continue;
            }
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
        if is_locked && self.passphrase.is_none() {
            return Err(refused("the OpenPGP key is encrypted: add its `passphrase`"));
        }
        let empty = Password::empty();
        let passphrase = self.passphrase.as_ref().unwrap_or(&empty);
        let created = u32::try_from(now)
            .map(Timestamp::from_secs)
            .map_err(|_too_late| refused("OpenPGP signatures have no time after 2106"))?;
        let made =
            signature(key, passphrase, payload, created).map_err(|error| match is_locked {
                true => refused("`passphrase` does not unlock the OpenPGP key"),
                false => SigningError(format!("the OpenPGP key cannot sign: {error}")),
            })?;
        let unwritable = |error: pgp::errors::Error| {
            SigningError(format!("the signature cannot be written: {error}"))
        };
        let packet = made.to_bytes().map_err(unwritable)?;
        let known = std::slice::from_ref(&self.entity);
        check(&packet, payload, known, now, &mut Effort::default()).map_err(SigningError)?;
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
            Err(refused("the passphrase of the OpenPGP key takes more than 256 MiB or 16 passes"))
        }
        // GnuPG leaves such a stub where a secret key is on a card or was not exported.
        StringToKey::Private { .. } | StringToKey::Other { .. } | StringToKey::Reserved { .. } => {
            Err(refused("the secret part of the OpenPGP key is not in the Secret"))
        }
        _ => Ok(true),
    }
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
