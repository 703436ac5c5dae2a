//! Selects the highest version in a range among the tags of a Git repository, an OCI repository, or a chart.
//!
//! Here: which names count as versions, and which version is the highest. Elsewhere: versions and ranges themselves
//! ([`super::semver`]), and listing the tags (one module for each protocol).

use std::fmt;

use crate::semver::{SemverVersion, VersionConstraint, VersionConstraintError};

/// A range of versions, with its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionRange {
    text: String,
    constraint: VersionConstraint,
}

impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl VersionRange {
    /// Reads a range such as `>=1.2 <2`, `~1.2` or `1.x`.
    ///
    /// # Errors
    /// The text is not a range. An empty text is not a range either.
    pub fn parse(text: &str) -> Result<Self, VersionConstraintError> {
        Ok(Self { text: text.to_owned(), constraint: VersionConstraint::parse(text)? })
    }

    /// The names of the highest version in the range, in the given order.
    ///
    /// There are several names if they only differ in parts that do not count: a leading `v`, leading zeros, or build
    /// metadata.
    pub fn highest<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> Vec<&'n str> {
        highest(names, |version| self.constraint.matches(version))
    }
}

/// The version of a chart for a text. It is the version that equals the text, or else the first of the highest versions
/// in that range. An empty text stands for any release.
///
/// `None` if there is no such version.
///
/// # Errors
/// No version equals the text, and the text is not a range.
pub fn chart_version<'n>(
    text: &str,
    versions: &[&'n str],
) -> Result<Option<&'n str>, VersionConstraintError> {
    if let Some(exact) = versions.iter().find(|version| !text.is_empty() && **version == text) {
        return Ok(Some(exact));
    }
    let range = VersionRange::parse(if text.is_empty() { "*" } else { text })?;
    Ok(range.highest(versions.iter().copied()).first().copied())
}

fn highest<'n>(
    names: impl IntoIterator<Item = &'n str>,
    is_wanted: impl Fn(&SemverVersion) -> bool,
) -> Vec<&'n str> {
    let mut best: Option<SemverVersion> = None;
    let mut found = Vec::new();
    for name in names {
        let Some(version) = version(name).filter(&is_wanted) else { continue };
        match best.as_ref().map(|best| version.cmp(best)) {
            Some(std::cmp::Ordering::Less) => continue,
            Some(std::cmp::Ordering::Equal) => {}
            Some(std::cmp::Ordering::Greater) | None => {
                found.clear();
                best = Some(version);
            }
        }
        found.push(name);
    }
    found
}

/// Reads the name of a tag as a version. `None` if it is not a version.
///
/// Parity(flux): all three numbers have to be there, but they may begin with zeros and a `v`.
fn version(name: &str) -> Option<SemverVersion> {
    if name.split('.').count() < 3 {
        return None;
    }
    SemverVersion::parse(name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn highest(range: &str, names: &[&'static str]) -> Vec<&'static str> {
        VersionRange::parse(range).unwrap().highest(names.iter().copied())
    }

    #[test]
    fn the_highest_version_wins_whatever_the_order_and_other_names_are_passed_over() {
        let names = ["v1.9.0", "latest", "1.10.0", "v2", "1.10", "2.0.0-rc.1"];
        assert_eq!(highest(">=1.0.0", &names), ["1.10.0"]);
        assert_eq!(highest(">=1.0.0-0", &names), ["2.0.0-rc.1"]);
        assert_eq!(highest(">=3", &names), [""; 0]);
    }

    #[test]
    fn names_of_one_version_are_all_given() {
        let names = ["1.0.0+b", "v1.0.0", "0.9.0", "01.0.0"];
        assert_eq!(highest("*", &names), ["1.0.0+b", "v1.0.0", "01.0.0"]);
    }

    #[test]
    fn a_chart_is_taken_by_its_exact_text_first() {
        let versions = ["2.0.0", "main", "1.0.0"];
        assert_eq!(chart_version("main", &versions), Ok(Some("main")));
        assert_eq!(chart_version("", &versions), Ok(Some("2.0.0")));
        assert_eq!(chart_version("<2", &versions), Ok(Some("1.0.0")));
        assert_eq!(chart_version("3.x", &versions), Ok(None));
        assert!(chart_version("nonsense", &versions).is_err());
    }
}
