//! Versions and version ranges as Masterminds/semver v3 reads them, which is how Flux and Helm do.
//!
//! Here: the limits on length. Below: [`SemverVersion`] (reading, precedence), [`VersionConstraint`] (ranges), and what
//! templates see of versions (`semver/object.rs`).
//! Elsewhere: which versions there are to choose from (tags, charts and images: their sources).
//!
//! ```
//! use golang::semver::{VersionConstraint, SemverVersion};
//!
//! let range = VersionConstraint::parse("~1.2 || >=2.1")?;
//! assert!(range.matches(&SemverVersion::parse("v1.2.9")?));
//! assert!(!range.matches(&SemverVersion::parse("2.1.0-rc.1")?));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod constraint;
mod object;
mod version;

pub use constraint::{VersionConstraint, VersionConstraintError};
pub use version::{SemverVersion, SemverVersionError};

/// Longest version that is read, in bytes. Differs(go): it has no limit.
pub const MAX_VERSION: usize = 256;

/// Longest constraint that is read, in bytes. Differs(go): it has no limit.
pub(crate) const MAX_CONSTRAINT_BYTES: usize = 1024;

/// What may stand in a pre-release or in metadata, between the dots.
fn is_identifier(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}
