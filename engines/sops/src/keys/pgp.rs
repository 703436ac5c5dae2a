//! OpenPGP: private keys, and data keys that are encrypted to them.
//!
//! Which key a file names does not matter, as for GnuPG: each message has the ids of the keys to which it is encrypted.

use std::io::Read as _;

use pgp::composed::{Deserializable as _, Message, SignedPublicKey, SignedSecretKey};
use pgp::types::Password;
use zeroize::Zeroizing;

use crate::limits::DecryptionDeadline;
use crate::value::SecretBytes;

/// The longest data key that a message may hold, also after it is decompressed.
const MAX_DATA_KEY: u64 = 4096;
/// How many recipients a message may have: rPGP tries each anonymous recipient with each key.
const MAX_SESSION_KEYS: usize = 64;
/// How many layers a message may have: encrypted, compressed, signed.
const MAX_LAYERS: usize = 8;

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
            let Ok((keys, _)) = SignedSecretKey::from_armor_many(block.as_bytes()) else {
                continue;
            };
            self.0.extend(keys.filter_map(Result::ok));
        }
        if let Ok(keys) = SignedSecretKey::from_bytes_many(file) {
            self.0.extend(keys.filter_map(Result::ok));
        }
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
        // All keys are tried, even after one has failed.
        if let Ok((Message::Encrypted { esk, .. }, _)) =
            Message::from_armor(message.trim().as_bytes())
            && esk.len() > MAX_SESSION_KEYS
        {
            return Err(format!(
                "{FAILED}: the message has more than {MAX_SESSION_KEYS} session keys"
            ));
        }
        let mut problem = "no secret key".to_owned();
        for key in self.0.iter().take_while(|_| !until.is_over()) {
            match decrypt(key, message) {
                Ok(data_key) => return Ok(data_key),
                Err(error) => problem = error,
            }
        }
        Err(format!("{FAILED}: {problem}"))
    }
}

fn has_public_key(file: &[u8], text: &str) -> bool {
    let in_block = |block: &str| {
        let keys = SignedPublicKey::from_armor_many(block.as_bytes());
        keys.is_ok_and(|(keys, _)| keys.into_iter().any(|key| key.is_ok()))
    };
    let is_binary =
        || SignedPublicKey::from_bytes_many(file).is_ok_and(|mut keys| keys.any(|key| key.is_ok()));
    blocks(text).any(in_block) || is_binary()
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

fn decrypt(key: &SignedSecretKey, message: &str) -> Result<SecretBytes, String> {
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
