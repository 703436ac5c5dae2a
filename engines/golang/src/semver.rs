//! Versions and version ranges of Masterminds/semver v3, which Flux and Helm use.
//!
//! Here: the limits on length. Below: [`SemverVersion`] (reading, precedence), [`VersionConstraint`] (ranges), and
//! versions as templates see them (`semver/template_object.rs`). Elsewhere: the available versions (the sources of tags, charts
//! and images).
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
mod template_object;
mod version;

pub use constraint::{VersionConstraint, VersionConstraintError};
pub use version::{SemverVersion, SemverVersionError};

/// How long a version may be, in bytes. Differs(go): it has no limit.
pub const MAX_VERSION: usize = 256;

/// How long a constraint may be, in bytes. Differs(go): it has no limit.
pub(crate) const MAX_CONSTRAINT_BYTES: usize = 1024;

/// Whether a byte may be in a pre-release or in metadata, between the dots.
fn is_identifier(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}
