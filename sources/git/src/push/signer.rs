//! The signing key for commits, from the entries that Flux reads in a Secret.

use std::collections::BTreeMap;
use std::fmt;

use russh::keys::PrivateKey;
use signatures::commit_signing::{OpenPgpSigningKey, SigningError, sign_with_ssh_key};

use crate::Error;
use crate::private_key::{is_encrypted, parse_private_key};

/// The reason why the key of a Secret cannot sign. The variant tells what the user should do. No text contains a key or a
/// passphrase.
#[derive(Debug, thiserror::Error)]
pub enum SigningKeyError {
    /// The key is encrypted, and its passphrase is not in the Secret.
    #[error("the key is encrypted: add its passphrase")]
    Locked,
    /// The key is encrypted with another passphrase than the one in the Secret.
    #[error("the passphrase does not unlock the key")]
    WrongPassphrase,
    /// The key has no private part. The text is from go-crypto.
    #[error("openpgp: invalid argument: signing key doesn't have a private key")]
    PublicKeyOnly,
    /// There are several keys.
    #[error("there are several keys")]
    SeveralKeys,
    /// The text is not a usable OpenPGP key. The text of the error is from go-crypto, where it has one.
    #[error("{0}")]
    UnusableOpenPgp(String),
    /// The key is missing or cannot be read, or Git does not accept its signatures.
    #[error(transparent)]
    Unusable(#[from] Error),
}

/// A private key that signs commits.
pub enum CommitSigner {
    /// An OpenPGP key.
    OpenPgp(Box<OpenPgpSigningKey>),
    /// An SSH key. Git verifies its signatures with `gpg.format=ssh`.
    Ssh(Box<PrivateKey>),
}

impl fmt::Debug for CommitSigner {
    /// The type of the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OpenPgp(key) => fmt::Debug::fmt(key, f),
            Self::Ssh(key) => f.debug_tuple("Ssh").field(&key.algorithm().to_string()).finish(),
        }
    }
}

impl CommitSigner {
    /// Reads `git.asc`, an armored private key, and its `passphrase`; `now` is in seconds since 1970.
    ///
    /// # Errors
    /// See [`SigningKeyError`].
    pub fn open_pgp(data: &BTreeMap<String, Vec<u8>>, now: u64) -> Result<Self, SigningKeyError> {
        let armored = data.get("git.asc").filter(|value| !value.is_empty());
        let armored = armored.ok_or_else(|| {
            Error::BadSecret(
                "signing requires `git.asc`, the private key, in the Secret".to_owned(),
            )
        })?;
        let passphrase = text(data, "passphrase")?;
        let unusable = |error: SigningError| match error {
            SigningError::Locked => SigningKeyError::Locked,
            SigningError::WrongPassphrase => SigningKeyError::WrongPassphrase,
            SigningError::PublicKeyOnly => SigningKeyError::PublicKeyOnly,
            SigningError::SeveralKeys => SigningKeyError::SeveralKeys,
            SigningError::Refused(why) => SigningKeyError::UnusableOpenPgp(why),
        };
        let key = OpenPgpSigningKey::read(armored, passphrase.as_deref()).map_err(unusable)?;
        key.check_passphrase(now).map_err(unusable)?;
        Ok(Self::OpenPgp(Box::new(key)))
    }

    /// Reads the private key in `identity`, as for SSH remotes. If the key is encrypted, `password` decrypts it.
    ///
    /// # Errors
    /// See [`SigningKeyError`].
    pub fn ssh(data: &BTreeMap<String, Vec<u8>>) -> Result<Self, SigningKeyError> {
        let identity = text(data, "identity")?.ok_or_else(|| {
            Error::BadSecret(
                "signing requires `identity`, the private key, in the Secret".to_owned(),
            )
        })?;
        let passphrase = text(data, "password")?;
        if passphrase.is_none() && is_encrypted(&identity) {
            return Err(SigningKeyError::Locked);
        }
        let key = parse_private_key(&identity, passphrase.as_deref())?;
        // Only a signature shows which sizes and types of keys Git verifies.
        sign_with_ssh_key(&key, b"signing key")
            .map_err(|error| Error::BadSecret(format!("`identity`: {error}")))?;
        Ok(Self::Ssh(Box::new(key)))
    }

    /// The armored signature of a commit. `payload` is the commit without a signature, and `now` is in seconds since 1970.
    pub(super) fn sign(&self, payload: &[u8], now: u64) -> Result<String, SigningError> {
        match self {
            Self::OpenPgp(key) => key.sign(payload, now),
            Self::Ssh(key) => sign_with_ssh_key(key, payload),
        }
    }
}

/// The text of a key, unless it is absent or empty.
fn text(data: &BTreeMap<String, Vec<u8>>, key: &str) -> Result<Option<String>, Error> {
    let value = data.get(key).filter(|value| !value.is_empty()).cloned();
    let value = value.map(String::from_utf8).transpose();
    value.map_err(|_not_utf8| Error::BadSecret(format!("`{key}` is not valid UTF-8")))
}
