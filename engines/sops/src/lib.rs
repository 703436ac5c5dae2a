//! Decrypts files and objects that SOPS encrypted, in the same places as Flux.
//!
//! ```
//! use sops::{SopsDecryptor, DecryptionKeys, SopsFormat};
//!
//! let keys = DecryptionKeys::default();
//! let decryptor = SopsDecryptor::new(&keys);
//! let error = decryptor.decrypt(b"a: 1\n", SopsFormat::Yaml, SopsFormat::Yaml).unwrap_err();
//! assert_eq!(error.to_string(), "failed to load encrypted YAML data: sops metadata not found");
//! ```
//!
//! # A tour
//! The reference is sops 3.13 as kustomize-controller 1.9 calls it; where this differs, a comment says so.
//! 1. `store/` reads the five formats into the tree of `value.rs`, and writes them from it.
//! 2. `metadata.rs` is the metadata of a file: master keys, rules, MAC.
//! 3. `keys/` reads private keys of a Secret: age, OpenPGP; `key_service.rs` has the requests to services for other keys.
//! 4. `key_group.rs` finds the data key; `shamir.rs` combines a data key that was split.
//! 5. `tree_decryption.rs` decrypts a tree: `encryption_rule.rs` chooses the values, `encrypted_value.rs` decrypts one of them.
//! 6. `encrypted_object.rs` decrypts objects, and `kustomization_file_decryption.rs` the files of a kustomization.
//!
//! Nothing is read from a disk, a network or a clock, and nothing is logged. Plain strings and keys are overwritten in memory
//! when they are dropped, and never appear in an error or in `Debug`.

mod aes_256_gcm;
mod decryptor;
mod encrypted_object;
mod encrypted_value;
mod encryption_rule;
mod error;
mod file_codec;
mod format;
mod key_group;
mod key_service;
mod keys;
mod kustomization_file_decryption;
mod limits;
mod metadata;
mod shamir;
#[cfg(test)]
mod tests;
mod tree_decryption;
mod value;

pub use decryptor::{MacPolicy, SopsDecryptor};
pub use encrypted_object::DecryptionOutcome;
pub use error::Error;
pub use format::SopsFormat;
pub use key_service::{DataKeyServices, KeyServiceMasterKey, NoDataKeyServices};
pub use keys::{DecryptionKeys, KeyServiceCredentials};
pub use kustomization_file_decryption::{DecryptedFiles, EncryptedFilesError};
pub use limits::SopsLimits;
