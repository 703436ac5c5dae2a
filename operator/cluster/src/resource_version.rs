//! resourceVersions as numbers. Those of Kubernetes can be compared since 1.35. Other API servers may use any text.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::Value;

/// The bit that marks the hash of a version that is not a number. The revisions of etcd never reach it.
const OPAQUE_BIT: u64 = 1 << 63;

/// A version that no other version is later than.
pub const LATEST_VERSION: u64 = u64::MAX;

/// The number of a resourceVersion. It is the value itself, a hash if the text is not a number, or 0 if the text is empty.
pub fn number_of(version: &str) -> u64 {
    if version.is_empty() {
        return 0;
    }
    match version.parse() {
        Ok(number) if number & OPAQUE_BIT == 0 => number,
        Ok(_) | Err(_) => {
            let mut hash = DefaultHasher::new();
            version.hash(&mut hash);
            // Never equal to [`LATEST_VERSION`].
            (hash.finish() | OPAQUE_BIT) & !1
        }
    }
}

/// The version in an object's metadata.
pub fn of_metadata(metadata: &Value) -> u64 {
    number_of(metadata.get("resourceVersion").and_then(Value::as_str).unwrap_or_default())
}

/// Whether one version may be later than another. If one of them is not a number, any other version counts as later.
pub(crate) fn is_later(version: u64, than: u64) -> bool {
    if than == LATEST_VERSION || version == than {
        return false;
    }
    if (version | than) & OPAQUE_BIT != 0 { version != 0 } else { version > than }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_and_what_is_none_is_later_than_what_it_is_not() {
        let later = |version: &str, than: &str| is_later(number_of(version), number_of(than));
        let table = [
            ("7", "6", true),
            ("6", "6", false),
            ("5", "6", false),
            ("abc", "abc", false),
            ("abc", "abd", true),
            ("abd", "abc", true),
            ("abc", "6", true),
            ("6", "abc", true),
            ("abc", "", true),
            ("", "abc", false),
            ("18446744073709551615", "1", true),
        ];
        for (version, than, expected) in table {
            assert_eq!(later(version, than), expected, "{version} after {than}");
        }
        assert!(
            !is_later(number_of("abc"), LATEST_VERSION)
                && !is_later(number_of("7"), LATEST_VERSION)
        );
    }
}
