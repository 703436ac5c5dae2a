//! Why something was not decrypted.

use crate::format::SopsFormat;

/// Why a file or an object was not decrypted.
///
/// Displays in the words of Flux. No text has a plain value or a key in it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The data are not what sops writes in this format.
    #[error("failed to load encrypted {0} data: {1}")]
    Load(SopsFormat, String),
    /// No master key, or too few, decrypt the data key.
    #[error("cannot get sops data key: {0}")]
    DataKey(String),
    /// A value does not decrypt.
    #[error("error decrypting sops tree: Error walking tree: {0}")]
    Decrypt(String),
    /// The MAC is not that of the content, and the policy asks for it.
    #[error("failed to verify sops data integrity: {0}")]
    Integrity(String),
    /// The plain content cannot be written in this format.
    #[error("failed to emit encrypted {0} file as decrypted {1}: {2}")]
    Emit(SopsFormat, SopsFormat, String),
    /// The caller ended it.
    #[error("decrypting takes too long")]
    Stopped,
    /// A key of the Secret is not valid.
    #[error("failed to import '{name}' data from sops decryption Secret '{secret}': {problem}")]
    Import {
        /// The name of the entry.
        name: String,
        /// Namespace and name of the Secret.
        secret: String,
        /// What is wrong with it.
        problem: String,
    },
    /// An encrypted object.
    #[error("failed to decrypt and format '{namespace}/{name}' {what}: {error}")]
    Object {
        /// Its namespace, which may be empty.
        namespace: String,
        /// Its name.
        name: String,
        /// Which part of it.
        what: String,
        /// Why it was not decrypted.
        error: Box<Self>,
    },
}
