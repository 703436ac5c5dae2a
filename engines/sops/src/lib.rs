//! Encrypted files and objects: what SOPS decrypts, where Flux decrypts it.
//!
//! ```
//! use sops::{Decryptor, Keys, SopsFormat};
//!
//! let keys = Keys::default();
//! let decryptor = Decryptor::new(&keys);
//! let error = decryptor.decrypt(b"a: 1\n", SopsFormat::Yaml, SopsFormat::Yaml).unwrap_err();
//! assert_eq!(error.to_string(), "failed to load encrypted YAML data: sops metadata not found");
//! ```
//!
//! # A tour
//! The reference is sops 3.13 as kustomize-controller 1.9 calls it; where this differs, a comment says so.
//! 1. `store/` reads and writes the five formats; between them is the tree of `value.rs`.
//! 2. `metadata.rs` is the metadata of a file: master keys, rules, MAC.
//! 3. `keys/` are the private keys of a Secret: age, OpenPGP; `service.rs` asks services for the rest.
//! 4. `group.rs` finds the data key, with `shamir.rs` where it is split.
//! 5. `walk.rs` decrypts a tree: `rule.rs` chooses the values, `cipher.rs` decrypts one of them.
//! 6. `resource.rs` and `sources.rs` choose what is decrypted: objects, and the files of a kustomization.
//!
//! Nothing is read from a disk, a network or a clock, and nothing is logged. Plain strings and keys are overwritten when
//! they are dropped; neither is part of an error or of `Debug`.

mod cipher;
mod decryptor;
mod error;
mod format;
mod gcm;
mod group;
mod keys;
mod limits;
mod metadata;
mod resource;
mod rule;
mod service;
mod shamir;
mod sources;
mod store;
#[cfg(test)]
mod tests;
mod value;
mod walk;

pub use decryptor::{Decryptor, MacPolicy};
pub use error::Error;
pub use format::SopsFormat;
pub use keys::{Credentials, Keys};
pub use limits::SopsLimits;
pub use resource::DecryptionOutcome;
pub use service::{NoServices, ServiceKey, Services};
pub use sources::{DecryptedFiles, SourceError};
