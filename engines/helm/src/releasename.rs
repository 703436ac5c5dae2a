//! Names of releases.

use sha2::{Digest as _, Sha256};

/// The longest name of a release, in bytes.
pub const MAX_NAME: usize = 53;

/// How many hexadecimal digits of its digest stand for the rest of a name.
const DIGITS: usize = 12;

/// A name that fits: one that is too long keeps its beginning, and the digest of the whole tells it from others.
///
/// As the helm-controller does it. Names are ASCII; where that cuts a character, U+FFFD stands for what is left of it.
pub fn shorten(name: &str) -> String {
    if name.len() <= MAX_NAME {
        return name.to_owned();
    }
    let begin = String::from_utf8_lossy(&name.as_bytes()[..MAX_NAME - DIGITS - 1]);
    let digest = hex::encode(Sha256::digest(name));
    format!("{begin}-{}", &digest[..DIGITS])
}

#[cfg(test)]
mod tests {
    use super::shorten;

    #[test]
    fn only_names_that_are_too_long_change_and_stay_different() {
        assert_eq!(shorten(&"a".repeat(53)), "a".repeat(53));
        let (a, b) = (shorten(&"a".repeat(54)), shorten(&"a".repeat(55)));
        assert_eq!((a.len(), b.len()), (53, 53));
        assert_ne!(a, b);
        assert_eq!(shorten(&format!("{}é{}", "a".repeat(39), "b".repeat(20))).len(), 55);
    }
}
