//! resourceVersions as numbers: Kubernetes' can be compared (1.35), those of other API servers may be any text.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::Value;

/// Marks the hash of a version that is not a number. etcd's revisions do not reach this bit.
const OPAQUE_BIT: u64 = 1 << 63;

/// Nothing is later than this.
pub const LATEST_VERSION: u64 = u64::MAX;

/// The number for a version: its value, or a hash if it is not a number; 0 if there is none.
pub fn number_of(version: &str) -> u64 {
    if version.is_empty() {
        return 0;
    }
    match version.parse() {
        Ok(number) if number & OPAQUE_BIT == 0 => number,
        Ok(_) | Err(_) => {
            let mut hash = DefaultHasher::new();
            version.hash(&mut hash);
            // Not the latest.
            (hash.finish() | OPAQUE_BIT) & !1
        }
    }
}

/// The version in an object's metadata.
pub fn of_metadata(metadata: &Value) -> u64 {
    number_of(metadata.get("resourceVersion").and_then(Value::as_str).unwrap_or_default())
}

/// Whether one version may be later than another: if one of them is not a number, every other version may.
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
