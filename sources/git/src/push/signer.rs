//! What commits are signed with, from the keys that Flux reads in a Secret.

use std::collections::BTreeMap;
use std::fmt;

use russh::keys::PrivateKey;
use signatures::sign::{OpenPgpSigningKey, SigningError, sign_with_ssh_key};

use crate::Error;
use crate::private_key::parse_private_key;

/// A private key that signs commits.
pub enum CommitSigner {
    /// An OpenPGP key.
    OpenPgp(Box<OpenPgpSigningKey>),
    /// An SSH key; Git verifies with `gpg.format=ssh`.
    Ssh(Box<PrivateKey>),
}

impl fmt::Debug for CommitSigner {
    /// Which kind of key it is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OpenPgp(key) => fmt::Debug::fmt(key, f),
            Self::Ssh(key) => f.debug_tuple("Ssh").field(&key.algorithm().to_string()).finish(),
        }
    }
}

impl CommitSigner {
    /// Reads `git.asc`, an armored private key, and its `passphrase`.
    ///
    /// # Errors
    /// [`Error::BadSecret`] naming the key that is missing or cannot be used.
    pub fn open_pgp(data: &BTreeMap<String, Vec<u8>>) -> Result<Self, Error> {
        let armored = data.get("git.asc").filter(|value| !value.is_empty());
        let armored = armored.ok_or_else(|| {
            Error::BadSecret(
                "signing requires `git.asc`, the private key, in the Secret".to_owned(),
            )
        })?;
        let passphrase = text(data, "passphrase")?;
        let key = OpenPgpSigningKey::read(armored, passphrase.as_deref())
            .map_err(|error| Error::BadSecret(format!("`git.asc`: {error}")))?;
        Ok(Self::OpenPgp(Box::new(key)))
    }

    /// Reads `identity`, a private key as for SSH remotes, and the `password` that it is encrypted with.
    ///
    /// # Errors
    /// [`Error::BadSecret`] naming the key that is missing or cannot be used.
    pub fn ssh(data: &BTreeMap<String, Vec<u8>>) -> Result<Self, Error> {
        let identity = text(data, "identity")?.ok_or_else(|| {
            Error::BadSecret(
                "signing requires `identity`, the private key, in the Secret".to_owned(),
            )
        })?;
        let key = parse_private_key(&identity, text(data, "password")?.as_deref())?;
        Ok(Self::Ssh(Box::new(key)))
    }

    /// The armored signature of a commit that is given without one; `now` is in seconds since 1970.
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
