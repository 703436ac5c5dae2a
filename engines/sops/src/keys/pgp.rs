//! OpenPGP: private keys, and data keys that are encrypted to them.
//!
//! What rPGP reads here is of tenants: where it panics, the key or message is invalid.
//! Which key a file names does not matter, as for GnuPG: each message has the ids of the keys to which it is encrypted.

use std::io::Read as _;

use pgp::composed::{Deserializable as _, Message, SignedPublicKey, SignedSecretKey};
use pgp::types::Password;
use signatures::secret_key_bounds::{contained, protection};
use zeroize::Zeroizing;

use crate::limits::DecryptionDeadline;
use crate::value::SecretBytes;

/// The longest data key that a message may hold, also after it is decompressed.
const MAX_DATA_KEY: u64 = 4096;
/// How many recipients a message may have: rPGP tries each anonymous recipient with each key.
const MAX_SESSION_KEYS: usize = 64;
/// How many layers a message may have: encrypted, compressed, signed.
const MAX_LAYERS: usize = 8;

/// What became of a key for which rPGP panics.
const NOT_TOGETHER: &str = "the numbers of the OpenPGP key or message are invalid";

/// Private keys in the order of their Secret.
#[derive(Default)]
pub(super) struct PgpKeyring(Vec<SignedSecretKey>);

impl PgpKeyring {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds all private keys of a file, which may have several armored blocks, or be binary.
    ///
    /// Parity(flux): public keys are ignored here, as GnuPG does.
    pub(super) fn import(&mut self, file: &[u8]) -> Result<(), String> {
        let before = self.0.len();
        let text = String::from_utf8_lossy(file);
        for block in blocks(&text) {
            contained(|| {
                let (keys, _) = SignedSecretKey::from_armor_many(block.as_bytes()).ok()?;
                self.0.extend(keys.filter_map(Result::ok));
                Some(())
            });
        }
        contained(|| {
            let keys = SignedSecretKey::from_bytes_many(file).ok()?;
            self.0.extend(keys.filter_map(Result::ok));
            Some(())
        });
        if self.0.len() == before && !has_public_key(file, &text) {
            return Err("failed to import armored key data: no OpenPGP key found".to_owned());
        }
        Ok(())
    }

    /// Decrypts an armored message with any of the keys.
    pub(super) fn decrypt(
        &self,
        message: &str,
        until: DecryptionDeadline<'_>,
    ) -> Result<SecretBytes, String> {
        const FAILED: &str =
            "could not decrypt data key with PGP key: failed to decrypt sops data key with pgp";
        if contained(|| session_keys(message)).is_some_and(|count| count > MAX_SESSION_KEYS) {
            return Err(format!(
                "{FAILED}: the message has more than {MAX_SESSION_KEYS} session keys"
            ));
        }
        // All keys are tried, even after one has failed.
        let mut problem = "no secret key".to_owned();
        for key in self.0.iter().take_while(|_| !until.is_over()) {
            let decrypted = contained(|| Some(decrypt(key, message)));
            match decrypted.unwrap_or_else(|| Err(NOT_TOGETHER.to_owned())) {
                Ok(data_key) => return Ok(data_key),
                Err(error) => problem = error,
            }
        }
        Err(format!("{FAILED}: {problem}"))
    }
}

fn has_public_key(file: &[u8], text: &str) -> bool {
    let in_block = |block: &str| {
        contained(|| {
            let (mut keys, _) = SignedPublicKey::from_armor_many(block.as_bytes()).ok()?;
            keys.find_map(Result::ok)
        })
    };
    let is_binary = || {
        contained(|| SignedPublicKey::from_bytes_many(file).ok()?.find_map(Result::ok)).is_some()
    };
    blocks(text).any(|block| in_block(block).is_some()) || is_binary()
}

/// To how many keys a message is encrypted.
fn session_keys(message: &str) -> Option<usize> {
    match Message::from_armor(message.trim().as_bytes()) {
        Ok((Message::Encrypted { esk, .. }, _)) => Some(esk.len()),
        _ => None,
    }
}

/// The armored blocks of a text.
fn blocks(text: &str) -> impl Iterator<Item = &str> {
    const BEGIN: &str = "-----BEGIN PGP";
    let starts = text.match_indices(BEGIN).map(|(at, _)| at);
    let ends = text.match_indices(BEGIN).map(|(at, _)| at).skip(1).chain([text.len()]);
    starts.zip(ends).filter_map(|(from, to)| text.get(from..to))
}

fn error_text(error: pgp::errors::Error) -> String {
    error.to_string()
}

/// Checks that no part of a key has a passphrase that takes too much memory or time: the empty one is tried.
fn check(key: &SignedSecretKey) -> Result<(), String> {
    let primary = std::iter::once(key.primary_key.secret_params());
    let subkeys = key.secret_subkeys.iter().map(|subkey| subkey.key.secret_params());
    primary.chain(subkeys).try_for_each(|secret| protection(secret).and(Ok(())))
}

fn decrypt(key: &SignedSecretKey, message: &str) -> Result<SecretBytes, String> {
    check(key)?;
    let (message, _) = Message::from_armor(message.trim().as_bytes()).map_err(error_text)?;
    let mut message = message.decrypt_legacy(&Password::empty(), key).map_err(error_text)?;
    for _ in 0..MAX_LAYERS {
        if !message.is_compressed() {
            break;
        }
        message = message.decompress().map_err(error_text)?;
    }
    let mut data_key = Zeroizing::new(Vec::with_capacity(64));
    message.take(MAX_DATA_KEY).read_to_end(&mut data_key).map_err(|error| error.to_string())?;
    Ok(data_key)
}
