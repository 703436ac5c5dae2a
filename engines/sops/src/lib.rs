//! Encrypted files and objects: what SOPS decrypts, where Flux decrypts it.
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
//! 1. `store/` reads and writes the five formats; between them is the tree of `value.rs`.
//! 2. `metadata.rs` is the metadata of a file: master keys, rules, MAC.
//! 3. `keys/` are the private keys of a Secret: age, OpenPGP; `key_service.rs` asks services for the rest.
//! 4. `key_group.rs` finds the data key, with `shamir.rs` where it is split.
//! 5. `tree_decryption.rs` decrypts a tree: `encryption_rule.rs` chooses the values, `cipher.rs` decrypts one of them.
//! 6. `encrypted_object.rs` and `encrypted_files.rs` choose what is decrypted: objects, and the files of a
//!    kustomization.
//!
//! Nothing is read from a disk, a network or a clock, and nothing is logged. Plain strings and keys are overwritten when
//! they are dropped; neither is part of an error or of `Debug`.

mod aes_256_gcm;
mod cipher;
mod decryptor;
mod encrypted_files;
mod encrypted_object;
mod encryption_rule;
mod error;
mod format;
mod key_group;
mod key_service;
mod keys;
mod limits;
mod metadata;
mod shamir;
mod store;
#[cfg(test)]
mod tests;
mod tree_decryption;
mod value;

pub use decryptor::{MacPolicy, SopsDecryptor};
pub use encrypted_files::{DecryptedFiles, EncryptedFilesError};
pub use encrypted_object::DecryptionOutcome;
pub use error::Error;
pub use format::SopsFormat;
pub use key_service::{DataKeyServices, KeyServiceMasterKey, NoDataKeyServices};
pub use keys::{DecryptionKeys, KeyServiceCredentials};
pub use limits::SopsLimits;
