//! OpenPGP keys that sign commits.
//!
//! Here: reading the private key, choosing the key or subkey that signs, and the signature. Elsewhere: the key's identities and
//! bindings (`keyring`), which keys and signatures are valid now (`policy`), the allowed cost (`secret_key_bounds`).

use std::fmt;

use pgp::composed::{
    ArmorOptions, Deserializable as _, DetachedSignature, SignedSecretKey, SignedSecretSubKey,
};
use pgp::packet::{SignatureConfig, SignatureType, Subpacket, SubpacketData};
use pgp::ser::Serialize as _;
use pgp::types::{KeyDetails as _, KeyVersion, Password, SecretParams, SigningKey, Timestamp};

use super::secret_key_bounds::{SecretKeyProtection, check_size, contained, protection};
use super::{PgpEntity, PgpVerificationBudget, armor, armored_ring, check, signature_validity};
use crate::commit_signing::SigningError;

/// The most subkeys that are unlocked, with the newest first. Deriving a key from its passphrase takes up to half a second for
/// each.
const MAX_UNLOCKED_SUBKEYS: usize = 4;

/// The longest text of a key. Its packets are read before anything about them is known.
const MAX_KEY_TEXT_BYTES: usize = 256 << 10;

/// A private OpenPGP key, with its passphrase.
pub struct OpenPgpSigningKey {
    secret: SignedSecretKey,
    entity: PgpEntity,
    passphrase: Option<Password>,
}

impl fmt::Debug for OpenPgpSigningKey {
    /// Shows only which key it is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OpenPgpSigningKey").field(&self.entity.id()).finish()
    }
}

fn refused(why: &str) -> SigningError {
    SigningError::Refused(why.to_owned())
}

impl OpenPgpSigningKey {
    /// Reads an armored private key.
    ///
    /// Parity(flux): the armor holds exactly one key; a passphrase for a key that has none is not examined.
    ///
    /// # Errors
    /// The armor has no private key, or several. The message is go-crypto's where go-crypto has one. A wrong passphrase is only
    /// detected at the first signature.
    pub fn read(armored: &[u8], passphrase: Option<&str>) -> Result<Self, SigningError> {
        if armored.len() > MAX_KEY_TEXT_BYTES {
            return Err(refused(
                "the signing key is larger than 256 KiB: export it without photos",
            ));
        }
        let mut entities = armored_ring(armored, &mut PgpVerificationBudget::default())
            .map_err(SigningError::Refused)?;
        let entity = match entities.pop() {
            Some(entity) if entities.is_empty() => entity,
            _ => return Err(SigningError::SeveralKeys),
        };
        let content = armor::first(armored).map(|block| block.content).unwrap_or_default();
        let secret = contained(|| SignedSecretKey::from_bytes(content.as_slice()).ok());
        let secret = secret.ok_or(SigningError::PublicKeyOnly)?;
        Ok(Self { secret, entity, passphrase: passphrase.map(Password::from) })
    }

    /// Checks that the passphrase unlocks the key by making a signature and dropping it. `now` is in seconds since 1970.
    /// Whether the key may sign is not checked.
    ///
    /// # Errors
    /// [`SigningError::Locked`] or [`SigningError::WrongPassphrase`].
    pub fn check_passphrase(&self, now: u64) -> Result<(), SigningError> {
        match self.sign(&[], now) {
            Err(error @ (SigningError::Locked | SigningError::WrongPassphrase)) => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Signs a commit or tag, given in its stored form without a signature. `now` is in seconds since 1970 and becomes the time
    /// of the signature. Returns the armored signature.
    ///
    /// The newest subkey that may sign is used, else the key itself. If [`verify`](crate::git::verify) would reject the
    /// signature, for example because the key has expired or is revoked, no signature is made.
    ///
    /// # Errors
    /// No key may sign now, or the passphrase does not unlock it.
    pub fn sign(&self, payload: &[u8], now: u64) -> Result<String, SigningError> {
        let mut problem = None;
        let may_sign = |subkey: &&SignedSecretSubKey| {
            let print = subkey.key.fingerprint();
            let known = self.entity.subkeys.iter().find(|it| it.key.fingerprint() == print);
            let binding = known.and_then(|it| it.signature.as_ref());
            binding.is_some_and(signature_validity::may_sign)
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
        if self.entity.primary.signature.as_ref().is_some_and(signature_validity::may_sign) {
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
        let is_locked = match protection(secret).map_err(SigningError::Refused)? {
            SecretKeyProtection::Plain => false,
            SecretKeyProtection::Passphrase => true,
            SecretKeyProtection::Elsewhere => {
                return Err(refused("the secret part of the OpenPGP key is not in the Secret"));
            }
        };
        if key.version() != KeyVersion::V4 {
            return Err(refused("only OpenPGP keys of version 4 can sign commits"));
        }
        check_size(key.public_params()).map_err(SigningError::Refused)?;
        if is_locked && self.passphrase.is_none() {
            return Err(SigningError::Locked);
        }
        let empty = Password::empty();
        let passphrase = self.passphrase.as_ref().unwrap_or(&empty);
        let created = u32::try_from(now)
            .map(Timestamp::from_secs)
            .map_err(|_too_late| refused("OpenPGP signatures have no time after 2106"))?;
        let made = contained(|| Some(signature(key, passphrase, payload, created)));
        let made = made.ok_or_else(|| refused("the numbers of the OpenPGP key are invalid"))?;
        let made = made.map_err(|error| match is_locked {
            true => SigningError::WrongPassphrase,
            false => SigningError::Refused(format!("the OpenPGP key cannot sign: {error}")),
        })?;
        let unwritable = |error: pgp::errors::Error| {
            SigningError::Refused(format!("the signature cannot be written: {error}"))
        };
        let packet = made.to_bytes().map_err(unwritable)?;
        let known = std::slice::from_ref(&self.entity);
        check(&packet, payload, known, now, &mut PgpVerificationBudget::default())
            .map_err(SigningError::Refused)?;
        made.to_armored_string(ArmorOptions::default()).map_err(unwritable)
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
