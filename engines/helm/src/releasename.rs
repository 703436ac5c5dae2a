//! The names of Helm releases.

use sha2::{Digest as _, Sha256};

/// The longest name of a release, in bytes.
pub const MAX_NAME: usize = 53;

/// How many hexadecimal digits of its digest a shortened name ends with.
const DIGEST_DIGIT_COUNT: usize = 12;

/// Shortens a name that is too long: it keeps its beginning, followed by a digest of the whole name.
///
/// The helm-controller does the same. Names are ASCII. If a character is cut, U+FFFD replaces it.
pub fn shorten(name: &str) -> String {
    if name.len() <= MAX_NAME {
        return name.to_owned();
    }
    let begin = String::from_utf8_lossy(&name.as_bytes()[..MAX_NAME - DIGEST_DIGIT_COUNT - 1]);
    let digest = hex::encode(Sha256::digest(name));
    format!("{begin}-{}", &digest[..DIGEST_DIGIT_COUNT])
}

/// Why a text is not a name of a release. The messages are Helm's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReleaseName {
    /// The name is empty.
    #[error("no name provided")]
    Missing,
    /// The name is too long, or has invalid characters.
    #[error(
        "invalid release name, must match regex ^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$ and the length must not be longer than 53"
    )]
    Form,
}

/// Checks whether a text can be the name of a release. It has to consist of labels of small letters, digits and dashes,
/// separated by dots.
///
/// # Errors
/// Why the text is not a valid name.
pub fn check(name: &str) -> Result<(), InvalidReleaseName> {
    if name.is_empty() {
        return Err(InvalidReleaseName::Missing);
    }
    let is_small = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        bytes.first().is_some_and(|byte| is_small(*byte))
            && bytes.last().is_some_and(|byte| is_small(*byte))
            && bytes.iter().all(|byte| is_small(*byte) || *byte == b'-')
    };
    if name.len() > MAX_NAME || !name.split('.').all(is_label) {
        return Err(InvalidReleaseName::Form);
    }
    Ok(())
}

/// A name as messages show it.
pub(crate) fn quoted(name: &str) -> String {
    let quoted = golang::strconv::quote(name.as_bytes(), golang::strconv::QuotingStyle::Printable);
    String::from_utf8_lossy(&quoted).into_owned()
}

#[cfg(test)]
mod tests {
    use super::{InvalidReleaseName, check, shorten};

    #[test]
    fn a_name_is_made_of_labels() {
        for name in ["a", "a-b.c", "0.1", &"a".repeat(53)] {
            assert_eq!(check(name), Ok(()), "{name}");
        }
        for name in ["A", "-a", "a-", "a..b", ".a", "a_b", "a b", &"a".repeat(54)] {
            assert_eq!(check(name), Err(InvalidReleaseName::Form), "{name}");
        }
        assert_eq!(check(""), Err(InvalidReleaseName::Missing));
    }

    #[test]
    fn only_names_that_are_too_long_change_and_stay_different() {
        assert_eq!(shorten(&"a".repeat(53)), "a".repeat(53));
        let (a, b) = (shorten(&"a".repeat(54)), shorten(&"a".repeat(55)));
        assert_eq!((a.len(), b.len()), (53, 53));
        assert_ne!(a, b);
        assert_eq!(shorten(&format!("{}é{}", "a".repeat(39), "b".repeat(20))).len(), 55);
    }
}
