//! OpenPGP: reading private keys, and decrypting data keys for them.
//!
//! The keys and messages come from tenants. If rPGP panics for one, it is treated as invalid. As with GnuPG, the key that a
//! file names does not matter, because each message has the ids of its recipients' keys.

use std::io::{self, Cursor, Read as _};

use pgp::composed::{
    DecryptionOptions, Deserializable as _, Esk, Message, SignedPublicKey, SignedSecretKey, TheRing,
};
use pgp::packet::{PublicKeyEncryptedSessionKey, SecretKey, SecretSubkey};
use pgp::types::{DecryptionKey, EskType, Password, PkeskVersion, SecretParams};
use signatures::secret_key_bounds::{SecretKeyProtection, contained, protection};
use zeroize::Zeroizing;

use crate::limits::DecryptionDeadline;
use crate::value::SecretBytes;

/// The longest data key in a message, also after decompression.
const MAX_DATA_KEY: u64 = 4096;
/// The most recipients of a message, because any key may belong to an anonymous recipient.
const MAX_SESSION_KEYS: usize = 64;
/// The most attempts to decrypt a session key of a message, with all keys and subkeys together. An attempt with RSA of 8192
/// bits takes about a tenth of a second, and a message of sops has one session key.
const MAX_ATTEMPTS: usize = 256;
/// The most keys and subkeys with a passphrase that are unlocked for a message. Deriving a key takes up to a second.
const MAX_UNLOCKED: usize = 4;
/// The most nested layers of a message, because each layer is compressed.
const MAX_LAYERS: usize = 8;
/// The longest layer after decompression. A kilobyte of bzip2 can contain a gigabyte of padding, which rPGP would skip.
const MAX_LAYER_BYTES: u64 = 64 << 10;

/// GnuPG's error if a message is not encrypted for any of the keys.
const NO_SECRET_KEY: &str = "no secret key";
/// The error about a key for which rPGP panics.
const NOT_TOGETHER: &str = "the numbers of the OpenPGP key or message are invalid";

/// Private keys in the order of their Secret.
#[derive(Default)]
pub(super) struct PgpKeyring(Vec<SignedSecretKey>);

impl PgpKeyring {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds all private keys of a file. It is binary, or has one or more armored blocks.
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
        self.data_key(message, until).map_err(|problem| {
            format!(
                "could not decrypt data key with PGP key: failed to decrypt sops data key with pgp: {problem}"
            )
        })
    }

    /// Decrypts the data key. All keys are tried even if one fails; keys without a passphrase come first.
    fn data_key(
        &self,
        message: &str,
        until: DecryptionDeadline<'_>,
    ) -> Result<SecretBytes, String> {
        let session_keys = caught(|| session_keys(message));
        if session_keys.as_ref().is_ok_and(|keys| keys.len() > MAX_SESSION_KEYS) {
            return Err(format!("the message has more than {MAX_SESSION_KEYS} session keys"));
        }
        let parts = self.parts(until)?;
        let session_keys = session_keys?;
        let is_recipient = |part: &PgpSecretKeyPart<'_>| {
            !until.is_over() && session_keys.iter().any(|session_key| part.is_of(session_key))
        };
        let locked: Vec<_> = parts.locked.into_iter().filter(is_recipient).collect();
        let are_left_out = locked.len() > MAX_UNLOCKED;
        let plain = parts.plain.into_iter().filter(is_recipient);
        let mut problem = NO_SECRET_KEY.to_owned();
        let mut attempts = 0;
        for part in plain.chain(locked.into_iter().take(MAX_UNLOCKED)) {
            let key = match caught(|| part.unlocked()) {
                Ok(key) => key,
                Err(error) => {
                    problem = error;
                    continue;
                }
            };
            for session_key in session_keys.iter().filter(|it| part.is_of(it)) {
                if until.is_over() {
                    return Err(problem);
                }
                if attempts == MAX_ATTEMPTS {
                    return Err(format!(
                        "decrypting its session keys failed {MAX_ATTEMPTS} times, and the others are not tried: \
                         encrypt it to named recipients, or keep fewer private keys in the Secret"
                    ));
                }
                attempts += 1;
                match caught(|| open(&*key, session_key, message)) {
                    Ok(data_key) => return Ok(data_key),
                    Err(error) => problem = error,
                }
            }
        }
        if are_left_out {
            return Err(format!(
                "more than {MAX_UNLOCKED} private keys to which it may be encrypted have a passphrase: export them \
                 without one"
            ));
        }
        Err(problem)
    }

    /// The secret parts of all usable keys.
    ///
    /// # Errors
    /// There are none.
    fn parts(&self, until: DecryptionDeadline<'_>) -> Result<PgpSecretKeyParts<'_>, String> {
        let mut parts = PgpSecretKeyParts::default();
        let mut problem = NO_SECRET_KEY.to_owned();
        let all = self.0.iter().flat_map(PgpSecretKeyPart::all);
        for part in all.take_while(|_| !until.is_over()) {
            match protection(part.params()) {
                Ok(SecretKeyProtection::Plain) => parts.plain.push(part),
                Ok(SecretKeyProtection::Passphrase) => parts.locked.push(part),
                Ok(SecretKeyProtection::Elsewhere) => {}
                Err(error) => problem = error,
            }
        }
        if parts.plain.is_empty() && parts.locked.is_empty() {
            return Err(problem);
        }
        Ok(parts)
    }
}

/// Runs code of rPGP. If it panics, the key or message is treated as invalid.
fn caught<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    contained(|| Some(work())).unwrap_or_else(|| Err(NOT_TOGETHER.to_owned()))
}

/// Secret parts of keys, separated by whether they need a passphrase.
#[derive(Default)]
struct PgpSecretKeyParts<'k> {
    plain: Vec<PgpSecretKeyPart<'k>>,
    /// The empty passphrase is tried.
    locked: Vec<PgpSecretKeyPart<'k>>,
}

/// A key or a subkey with its secret part.
#[derive(Clone, Copy)]
enum PgpSecretKeyPart<'k> {
    Primary(&'k SecretKey),
    Subkey(&'k SecretSubkey),
}

impl<'k> PgpSecretKeyPart<'k> {
    fn all(key: &'k SignedSecretKey) -> impl Iterator<Item = Self> {
        let subkeys = key.secret_subkeys.iter().map(|subkey| Self::Subkey(&subkey.key));
        std::iter::once(Self::Primary(&key.primary_key)).chain(subkeys)
    }

    fn params(self) -> &'k SecretParams {
        match self {
            Self::Primary(key) => key.secret_params(),
            Self::Subkey(key) => key.secret_params(),
        }
    }

    /// Whether a session key may be encrypted for this key.
    fn is_of(self, session_key: &PublicKeyEncryptedSessionKey) -> bool {
        let is_of = contained(|| {
            Some(match self {
                Self::Primary(key) => session_key.match_identity(key),
                Self::Subkey(key) => session_key.match_identity(key),
            })
        });
        is_of.unwrap_or_default()
    }

    /// Unlocks the key with its passphrase. This happens once here instead of for each session key.
    fn unlocked(self) -> Result<Box<dyn DecryptionKey>, String> {
        let empty = Password::empty();
        match self {
            Self::Primary(key) => {
                let mut key = key.clone();
                key.remove_password(&empty).map_err(error_text)?;
                Ok(Box::new(key))
            }
            Self::Subkey(key) => {
                let mut key = key.clone();
                key.remove_password(&empty).map_err(error_text)?;
                Ok(Box::new(key))
            }
        }
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

/// The encrypted session key of a message for each recipient.
///
/// # Errors
/// The message is not encrypted. A message with an outer signature is rejected, too, because sops makes none and its session
/// keys would not be counted.
fn session_keys(message: &str) -> Result<Vec<PublicKeyEncryptedSessionKey>, String> {
    let (message, _) = Message::from_armor(message.trim().as_bytes()).map_err(error_text)?;
    let Message::Encrypted { esk, .. } = message else {
        return Err("the message is not encrypted".to_owned());
    };
    let of_recipient = |esk| match esk {
        Esk::PublicKeyEncryptedSessionKey(session_key) => Some(session_key),
        // The session key is encrypted with a passphrase.
        Esk::SymKeyEncryptedSessionKey(_) => None,
    };
    Ok(esk.into_iter().filter_map(of_recipient).collect())
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

/// Decrypts a message with one of its session keys.
fn open(
    key: &dyn DecryptionKey,
    session_key: &PublicKeyEncryptedSessionKey,
    message: &str,
) -> Result<SecretBytes, String> {
    let kind = match session_key.version() {
        PkeskVersion::V3 => EskType::V3_4,
        PkeskVersion::V6 => EskType::V6,
        PkeskVersion::Other(version) => {
            return Err(format!("session keys of version {version} are not supported"));
        }
    };
    let encrypted = session_key.values().map_err(error_text)?;
    let decrypted =
        key.decrypt(&Password::empty(), encrypted, kind).and_then(|decrypted| decrypted);
    let ring = TheRing {
        session_keys: vec![decrypted.map_err(error_text)?],
        decrypt_options: DecryptionOptions::new().enable_legacy(),
        ..TheRing::default()
    };
    let (message, _) = Message::from_armor(message.trim().as_bytes()).map_err(error_text)?;
    let (mut message, _) = message.decrypt_the_ring(ring, true).map_err(error_text)?;
    for _ in 0..MAX_LAYERS {
        if !message.is_compressed() {
            break;
        }
        message = decompressed(message)?;
    }
    let mut data_key = Zeroizing::new(Vec::with_capacity(64));
    message.take(MAX_DATA_KEY).read_to_end(&mut data_key).map_err(|error| error.to_string())?;
    Ok(data_key)
}

/// Decompresses a message. A message that is not compressed stays unchanged.
fn decompressed(message: Message<'_>) -> Result<Message<'_>, String> {
    match message {
        Message::Compressed { reader, .. } => {
            let unreadable = |error: io::Error| error.to_string();
            let mut reader = reader.decompress().map_err(unreadable)?;
            let mut layer = Zeroizing::new(Vec::with_capacity(4096));
            let read = reader.by_ref().take(MAX_LAYER_BYTES + 1).read_to_end(&mut layer);
            if read.map_err(unreadable)? as u64 > MAX_LAYER_BYTES {
                return Err(format!("it is longer than {MAX_LAYER_BYTES} bytes when decompressed"));
            }
            // The outer layers are authentic only if they can be read to their end.
            io::copy(reader.get_mut(), &mut io::sink()).map_err(unreadable)?;
            io::copy(reader.get_mut().get_mut(), &mut io::sink()).map_err(unreadable)?;
            Message::from_bytes(Cursor::new(layer)).map_err(error_text)
        }
        other => Ok(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(tag: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&[0xc0 | tag, 0xff][..], &length, body].concat()
    }

    #[test]
    fn what_is_compressed_has_a_bounded_length() {
        let open = |padding: usize| {
            let literal = packet(11, b"b\0\0\0\0\0key");
            let layer = [packet(21, &vec![0; padding]), literal].concat();
            let compressed = packet(8, &[&[0][..], &layer].concat());
            let message = Message::from_bytes(Cursor::new(compressed)).map_err(error_text)?;
            let mut plain = String::new();
            let read = decompressed(message)?.read_to_string(&mut plain);
            read.map(|_| plain).map_err(|error| error.to_string())
        };
        assert_eq!(open(1_000), Ok("key".to_owned()));
        let error = open(70_000).unwrap_err();
        assert!(error.contains("longer than 65536 bytes"), "{error}");
    }
}
