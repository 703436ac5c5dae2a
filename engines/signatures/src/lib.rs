//! Verifies signatures of commits, charts and images, and reports their signers. Also signs commits.
//!
//! ```
//! use signatures::git::{CheckedOutCommit, GitVerificationKeys, GitVerificationMode, verify};
//!
//! let commit = b"tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\n\nunsigned\n";
//! let checkout = CheckedOutCommit { commit: ("2f1d", commit), tag: None };
//! let refused = verify(GitVerificationMode::Head, &checkout, &GitVerificationKeys::default(), 1_800_000_000).unwrap_err();
//! assert_eq!(refused.reason, "InvalidCommitSignature");
//! ```
//!
//! # A tour
//! The references are source-controller 1.9 and Helm 4.2; where this differs, a comment says so.
//! 1. `git.rs` extracts the signature of a commit or tag, and decides which of them is verified in each mode.
//! 2. `chart_provenance.rs` compares a chart with its signed provenance file.
//! 3. `pgp.rs` verifies OpenPGP signatures: `pgp/armor.rs` reads the armor, `pgp/keyring.rs` the keys,
//!    `pgp/signature_validity.rs` decides which keys and signatures are valid now, `pgp/verifying_key.rs` and
//!    `pgp/brainpool.rs` verify signatures that rPGP does not support.
//! 4. `ssh.rs` verifies and makes SSH signatures, `pem.rs` reads their armor. `commit_signing.rs` signs commits;
//!    `pgp/signing_key.rs` signs with OpenPGP keys, `pgp/secret_key_bounds.rs` limits the cost of using one.
//! 5. `image_verification.rs` knows the required signers of an image, `referrers.rs` the requests that find its signatures.
//! 6. `cosign.rs` verifies signatures of cosign: by keys, or by identities with `sigstore.rs`.
//! 7. `notation.rs` verifies signatures of Notation by a trust policy.
//! 8. `public_key.rs`, `x509.rs`, `der.rs` and `protobuf_json.rs` read the formats of keys, certificates and messages.
//!
//! Nothing is read from a disk, a network or a clock, and nothing is logged. A signature that is missing, unreadable or made
//! with an unsupported algorithm is rejected.

pub mod chart_provenance;
pub mod commit_signing;
pub mod cosign;
mod der;
pub mod git;
pub mod image_verification;
pub mod notation;
mod pem;
mod pgp;
mod protobuf_json;
mod public_key;
pub mod referrers;
pub mod sigstore;
mod ssh;
#[cfg(test)]
mod tests;
mod x509;

pub use crate::pgp::secret_key_bounds;

pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    use sha2::Digest as _;
    sha2::Sha256::digest(bytes).into()
}
