//! Signs commits with OpenPGP keys and SSH keys.
//!
//! Elsewhere: verifying ([`git`](crate::git)), reading SSH keys and writing commits (the crate `sources`).

pub use crate::pgp::OpenPgpSigningKey;
pub use crate::ssh::sign_with_ssh_key;

/// Why a commit cannot be signed. No message contains a key or a passphrase.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SigningError {
    /// The OpenPGP key is encrypted, and no passphrase was given.
    #[error("the OpenPGP key is encrypted: add its `passphrase`")]
    Locked,
    /// The OpenPGP key is encrypted with another passphrase.
    #[error("`passphrase` does not unlock the OpenPGP key")]
    WrongPassphrase,
    /// The armor contains only a public OpenPGP key. The message is go-crypto's.
    #[error("openpgp: invalid argument: signing key doesn't have a private key")]
    PublicKeyOnly,
    /// The armor has several OpenPGP keys.
    #[error("the signing key must be exactly one OpenPGP key")]
    SeveralKeys,
    /// Any other reason.
    #[error("{0}")]
    Refused(String),
}

#[cfg(test)]
mod tests;
