//! Signing of commits: with OpenPGP keys and with SSH keys.
//!
//! Elsewhere: verifying ([`git`](crate::git)), reading SSH keys and writing commits (the crate `sources`).

pub use crate::pgp::OpenPgpSigningKey;
pub use crate::ssh::sign_with_ssh_key;

/// Why something cannot be signed. No text contains a key or a passphrase.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SigningError(pub(crate) String);

#[cfg(test)]
mod tests;
