//! One version: reading, writing, and precedence. Elsewhere: ranges (`constraint.rs`).

use std::cmp::Ordering;
use std::fmt;

use super::{MAX_VERSION, is_identifier};

/// Why a text is not a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SemverVersionError {
    /// The text does not have the form of a version.
    #[error("it is not a version; write `MAJOR.MINOR.PATCH`, such as `1.2.3`")]
    Invalid,
    /// The text is empty.
    #[error("it is empty; write a version such as `1.2.3`")]
    Empty,
    /// One of the three parts is not a number.
    #[error("major, minor and patch have to be numbers, without a `v` before them")]
    InvalidCharacters,
    /// A number has a leading zero.
    #[error("a number in it begins with 0; leave out leading zeros")]
    LeadingZero,
    /// The pre-release after the `-` is invalid.
    #[error(
        "what follows its `-` is not a pre-release; write letters, digits and `-` between dots"
    )]
    InvalidPrerelease,
    /// The build metadata after the `+` is invalid.
    #[error(
        "what follows its `+` is not build metadata; write letters, digits and `-` between dots"
    )]
    InvalidMetadata,
    /// A number is missing, or does not fit into 64 bits.
    #[error("a number in it is missing or does not fit into 64 bits")]
    InvalidNumber,
    /// The text is longer than [`MAX_VERSION`].
    #[error("it is longer than {MAX_VERSION} bytes")]
    TooLong,
}

/// A version. Equality and order follow its precedence. Build metadata and spelling do not count, so `v1.2` equals
/// `1.2.0+build`.
#[derive(Debug, Clone)]
pub struct SemverVersion {
    pub(super) major: u64,
    pub(super) minor: u64,
    pub(super) patch: u64,
    /// The pre-release without the `-`. It is empty in a release.
    pub(super) prerelease: String,
    pub(super) metadata: String,
    pub(super) original: String,
}

impl SemverVersion {
    /// Reads a version leniently, as `NewVersion` does. It may begin with a `v`, minor and patch may be missing, and
    /// numbers may have leading zeros.
    ///
    /// # Errors
    /// The text is not a version even so, or is too long.
    pub fn parse(text: &str) -> Result<Self, SemverVersionError> {
        if text.len() > MAX_VERSION {
            return Err(SemverVersionError::TooLong);
        }
        let rest = text.strip_prefix('v').unwrap_or(text);
        let (numbers, prerelease, metadata) = split(rest);
        let mut parts = numbers.split('.');
        let mut number = |default: Option<&'static str>| {
            let part = parts.next().or(default).ok_or(SemverVersionError::Invalid)?;
            if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(SemverVersionError::Invalid);
            }
            part.parse().map_err(|_| SemverVersionError::InvalidNumber)
        };
        let major = number(None)?;
        let minor = number(Some("0"))?;
        let patch = number(Some("0"))?;
        if parts.next().is_some() {
            return Err(SemverVersionError::Invalid);
        }
        Self::checked([major, minor, patch], prerelease, metadata, text)
    }

    /// Reads a version strictly by the specification, as `StrictNewVersion` does.
    ///
    /// # Errors
    /// The text is not such a version, or is too long.
    pub fn parse_strict(text: &str) -> Result<Self, SemverVersionError> {
        if text.is_empty() {
            return Err(SemverVersionError::Empty);
        }
        if text.len() > MAX_VERSION {
            return Err(SemverVersionError::TooLong);
        }
        let (numbers, prerelease, metadata) = match text.match_indices('.').nth(1) {
            Some((second, _)) => {
                // Only the part after the second dot may have more than a number.
                let (patch, prerelease, metadata) = split(&text[second + 1..]);
                (&text[..second + 1 + patch.len()], prerelease, metadata)
            }
            None => return Err(SemverVersionError::Invalid),
        };
        let mut values = [0; 3];
        for (value, part) in values.iter_mut().zip(numbers.splitn(3, '.')) {
            if !part.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(SemverVersionError::InvalidCharacters);
            }
            if part.len() > 1 && part.starts_with('0') {
                return Err(SemverVersionError::LeadingZero);
            }
            *value = part.parse().map_err(|_| SemverVersionError::InvalidNumber)?;
        }
        Self::checked(values, prerelease, metadata, text)
    }

    fn checked(
        [major, minor, patch]: [u64; 3],
        prerelease: Option<&str>,
        metadata: Option<&str>,
        original: &str,
    ) -> Result<Self, SemverVersionError> {
        for part in prerelease.into_iter().flat_map(|text| text.split('.')) {
            if part.is_empty() || !part.bytes().all(is_identifier) {
                return Err(SemverVersionError::InvalidPrerelease);
            }
            if part.len() > 1 && part.starts_with('0') && part.bytes().all(|it| it.is_ascii_digit())
            {
                return Err(SemverVersionError::LeadingZero);
            }
        }
        for part in metadata.into_iter().flat_map(|text| text.split('.')) {
            if part.is_empty() || !part.bytes().all(is_identifier) {
                return Err(SemverVersionError::InvalidMetadata);
            }
        }
        let owned = |text: Option<&str>| text.unwrap_or_default().to_owned();
        Ok(Self {
            major,
            minor,
            patch,
            prerelease: owned(prerelease),
            metadata: owned(metadata),
            original: original.to_owned(),
        })
    }

    /// The major number, such as 1 in `1.2.3`.
    pub fn major(&self) -> u64 {
        self.major
    }

    /// The minor number, such as 2 in `1.2.3`.
    pub fn minor(&self) -> u64 {
        self.minor
    }

    /// The patch number, such as 3 in `1.2.3`.
    pub fn patch(&self) -> u64 {
        self.patch
    }

    /// The pre-release, after the `-`. It is empty in a release.
    pub fn prerelease(&self) -> &str {
        &self.prerelease
    }

    /// The build metadata, after the `+`. It is empty if there is none.
    pub fn metadata(&self) -> &str {
        &self.metadata
    }

    /// The text that was read, such as a tag's `v1.2`.
    pub fn original(&self) -> &str {
        &self.original
    }
}

/// Divides a version into its numbers, its pre-release and its metadata.
fn split(text: &str) -> (&str, Option<&str>, Option<&str>) {
    let (text, metadata) = text.split_once('+').map_or((text, None), |(a, b)| (a, Some(b)));
    let (text, prerelease) = text.split_once('-').map_or((text, None), |(a, b)| (a, Some(b)));
    (text, prerelease, metadata)
}

/// Writes all three numbers, without a `v`. [`SemverVersion::original`] has the original text.
impl fmt::Display for SemverVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        if !self.prerelease.is_empty() {
            write!(f, "-{}", self.prerelease)?;
        }
        if !self.metadata.is_empty() {
            write!(f, "+{}", self.metadata)?;
        }
        Ok(())
    }
}

impl Ord for SemverVersion {
    fn cmp(&self, other: &Self) -> Ordering {
        let numbers = |version: &Self| (version.major, version.minor, version.patch);
        numbers(self)
            .cmp(&numbers(other))
            .then_with(|| compare_prereleases(&self.prerelease, &other.prerelease))
    }
}

impl PartialOrd for SemverVersion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for SemverVersion {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for SemverVersion {}

/// Compares two pre-releases. A release, which has an empty one, comes after its pre-releases.
fn compare_prereleases(a: &str, b: &str) -> Ordering {
    match (a.is_empty(), b.is_empty()) {
        (false, false) => compare_parts(a, b),
        (a_is_release, b_is_release) => a_is_release.cmp(&b_is_release),
    }
}

/// Compares two pre-releases part by part. If one begins with the other, the longer one is greater.
pub(super) fn compare_parts(a: &str, b: &str) -> Ordering {
    let key = |part: &'_ str| -> (u8, u64) {
        // Parity(go): digits that 64 bits do not hold are a word.
        part.parse::<u64>().map_or((u8::from(!part.is_empty()) * 2, 0), |number| (1, number))
    };
    let mut a = a.split('.');
    let mut b = b.split('.');
    loop {
        let (one, other) = match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (one, other) => (one.unwrap_or_default(), other.unwrap_or_default()),
        };
        let order = key(one).cmp(&key(other)).then_with(|| one.cmp(other));
        if order.is_ne() {
            return order;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn version(text: &str) -> SemverVersion {
        SemverVersion::parse(text).unwrap()
    }

    #[test]
    fn versions_are_in_the_order_of_the_specification() {
        let ordered = [
            "0.0.0-0",
            "0.0.0",
            "0.9.10",
            "1.0.0-alpha",
            "1.0.0-alpha.1",
            "1.0.0-alpha.beta",
            "1.0.0-beta",
            "1.0.0-beta.2",
            "1.0.0-beta.11",
            "1.0.0-rc.1",
            "1.0.0",
            "1.2.0",
            "1.10.0",
        ];
        for pair in ordered.windows(2) {
            assert!(version(pair[0]) < version(pair[1]), "{pair:?}");
        }
        assert_eq!(version("v1.2"), version("1.2.0+build"));
        // Digits beyond 64 bits are compared as words, so they come after every number.
        assert!(version("1.0.0-9") < version("1.0.0-18446744073709551616"));
    }

    #[test]
    fn a_version_is_written_in_full_and_remembers_its_spelling() {
        for (text, full) in [
            ("v1", "1.0.0"),
            ("1.2-rc.1+a.b", "1.2.0-rc.1+a.b"),
            ("01.002.3", "1.2.3"),
            ("1.2.3-a-b--c", "1.2.3-a-b--c"),
        ] {
            let version = version(text);
            assert_eq!((version.to_string().as_str(), version.original()), (full, text));
        }
    }

    #[test]
    fn what_is_no_version_is_refused_with_the_reason() {
        use SemverVersionError::*;
        let long = "1".repeat(MAX_VERSION + 1);
        for (text, lenient, strict) in [
            ("", Invalid, Empty),
            ("a", Invalid, Invalid),
            ("1.2.3.4", Invalid, InvalidCharacters),
            ("1.2.3-01", LeadingZero, LeadingZero),
            ("1.2.3-a..b", InvalidPrerelease, InvalidPrerelease),
            ("1.2.3-", InvalidPrerelease, InvalidPrerelease),
            ("1.2.3+", InvalidMetadata, InvalidMetadata),
            ("1.2.18446744073709551616", InvalidNumber, InvalidNumber),
            ("1..3", Invalid, InvalidNumber),
            (long.as_str(), TooLong, TooLong),
        ] {
            assert_eq!(SemverVersion::parse(text).unwrap_err(), lenient, "{text}");
            assert_eq!(SemverVersion::parse_strict(text).unwrap_err(), strict, "{text}");
        }
        for (text, strict) in [
            ("1", Invalid),
            ("1.2-a", Invalid),
            ("1.2-a.b", InvalidCharacters),
            ("v1.2.3", InvalidCharacters),
            ("1.02.3", LeadingZero),
        ] {
            assert_eq!(SemverVersion::parse_strict(text).unwrap_err(), strict, "{text}");
        }
        assert_eq!(
            SemverVersion::parse_strict("1.2.3-a.b+c.d").unwrap().to_string(),
            "1.2.3-a.b+c.d"
        );
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_reader(text in "v?[0-9.]{0,8}(-[0-9a-z.-]{0,6})?(\\+[0-9a-z.]{0,4})?|.*") {
            if let Ok(strict) = SemverVersion::parse_strict(&text) {
                prop_assert_eq!(&strict, &SemverVersion::parse(&text).unwrap());
                prop_assert_eq!(strict.to_string(), text);
            } else if let Ok(version) = SemverVersion::parse(&text) {
                prop_assert_eq!(SemverVersion::parse_strict(&version.to_string()), Ok(version));
            }
        }
    }
}
