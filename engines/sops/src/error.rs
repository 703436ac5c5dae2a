//! Errors of decryption.

use crate::format::SopsFormat;

/// Why a file or an object was not decrypted.
///
/// It displays Flux's message. No message contains a plain value or a key.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The data is not in the form that sops writes for this format.
    #[error("failed to load encrypted {0} data: {1}")]
    Load(SopsFormat, String),
    /// No master key, or too few, decrypt the data key.
    #[error("cannot get sops data key: {0}")]
    DataKey(String),
    /// A value does not decrypt.
    #[error("error decrypting sops tree: Error walking tree: {0}")]
    Decrypt(String),
    /// The MAC does not match the content, and the policy requires a valid MAC.
    #[error("failed to verify sops data integrity: {0}")]
    Integrity(String),
    /// The plain content cannot be written in this format.
    #[error("failed to emit encrypted {0} file as decrypted {1}: {2}")]
    Emit(SopsFormat, SopsFormat, String),
    /// The caller stopped the decryption.
    #[error("decrypting takes too long")]
    Stopped,
    /// A key of the Secret is not valid.
    #[error("failed to import '{name}' data from sops decryption Secret '{secret}': {problem}")]
    Import {
        /// The name of the entry.
        name: String,
        /// Namespace and name of the Secret.
        secret: String,
        /// The problem of the value.
        problem: String,
    },
    /// An encrypted object.
    #[error("failed to decrypt and format '{namespace}/{name}' {what}: {error}")]
    Object {
        /// The namespace of the object, which may be empty.
        namespace: String,
        /// The name of the object.
        name: String,
        /// The part of the object.
        what: String,
        /// The error of this part.
        error: Box<Self>,
    },
}
