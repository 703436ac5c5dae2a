//! The tags of a repository in the form stored after a scan: sorted, without excluded tags, and with a checksum.
//!
//! Elsewhere: listing tags (the sources), when a scan is due (`scan_schedule.rs`), choosing a tag (`policy.rs`).

use golang::GoRuntimeValue;
use golang::json::{self, JsonLayout};
use golang::regexp::{self, GoRegexp};
use golang::work_meter::{WorkLimitExceeded, WorkMeter};
use sha2::{Digest as _, Sha256};

/// The pattern that is excluded if `spec.exclusionList` is empty: signatures.
const DEFAULT_EXCLUSION: &str = r"^.*\.sig$";

/// The number of tags in a status.
const LATEST_TAG_COUNT: usize = 10;

/// The approximate steps for compiling a pattern, for each unit of [`GoRegexp::work`].
const STEPS_PER_COMPILED_STATE: u64 = 256;

/// The longest line of the file with the tags, with its line feed, in bytes.
const MAX_STORED_LINE_BYTES: usize = 1024;

/// Why tags were not filtered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TagExclusionError {
    /// A pattern is not a regular expression.
    #[error("failed to compile regex {pattern}: {error}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// The error in the pattern.
        error: regexp::Error,
    },
    /// Filtering this many tags by the patterns costs too much.
    #[error("failed to apply spec.exclusionList: {0}; use simpler patterns")]
    Work(#[from] WorkLimitExceeded),
}

/// Why the file with the tags cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StoredTagsError {
    /// A line is too long for a tag.
    #[error("failed to read tags: bufio.Scanner: token too long")]
    Line,
}

/// The patterns of `spec.exclusionList`, or the default ones if it is empty.
pub fn exclusion_list(list: &[String]) -> Vec<String> {
    if list.is_empty() { vec![DEFAULT_EXCLUSION.to_owned()] } else { list.to_vec() }
}

/// The tags that a scan leaves, in descending order of their bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagList {
    tags: Vec<String>,
}

impl TagList {
    /// The tags of a registry that no pattern excludes. A tag that is listed twice is kept twice.
    ///
    /// # Errors
    /// A pattern is not a regular expression, or matching uses more than `meter` allows.
    pub fn of_scan(
        listed: Vec<String>,
        exclusion_list: &[String],
        meter: &mut WorkMeter,
    ) -> Result<Self, TagExclusionError> {
        let mut tags = listed;
        // Patterns are compiled one after the other, because each one may need much memory.
        for pattern in self::exclusion_list(exclusion_list) {
            let compiled = match GoRegexp::new(&pattern) {
                Ok(compiled) => compiled,
                Err(error) => return Err(TagExclusionError::Pattern { pattern, error }),
            };
            meter.steps((compiled.work() as u64).saturating_mul(STEPS_PER_COMPILED_STATE))?;
            tags = without(tags, &compiled, meter)?;
        }
        tags.sort_by(|a, b| b.cmp(a));
        Ok(Self { tags })
    }

    /// All tags that the scan left.
    pub fn tags(&self) -> &[String] {
        &self.tags
    }

    /// The tags that a status shows.
    pub fn latest(&self) -> &[String] {
        self.tags.get(..LATEST_TAG_COUNT).unwrap_or(&self.tags)
    }

    /// The revision in statuses: a checksum of the list as JSON.
    pub fn checksum(&self) -> String {
        let list = GoRuntimeValue::strings(self.tags.iter().map(String::as_str));
        let form = JsonLayout { escapes_html: true, indent: None };
        // A list of strings can always be written as JSON.
        let text = json::encode(&list, form, usize::MAX).unwrap_or_default();
        adler32(text.as_bytes()).to_string()
    }

    /// The revision that statuses have with Flux's gate `FluxStorage`.
    pub fn digest(&self) -> String {
        format!("sha256:{}", hex::encode(Sha256::digest(self.stored().as_bytes())))
    }

    /// The content of the file with the tags, a line for each.
    pub fn stored(&self) -> String {
        self.tags.iter().flat_map(|tag| [tag.as_str(), "\n"]).collect()
    }
}

/// Reads the file with the tags, in their order.
///
/// # Errors
/// A line is too long.
pub fn read_tags(stored: &str) -> Result<Vec<String>, StoredTagsError> {
    let mut tags = Vec::new();
    for line in stored.split_terminator('\n') {
        if line.len() >= MAX_STORED_LINE_BYTES {
            return Err(StoredTagsError::Line);
        }
        tags.push(line.strip_suffix('\r').unwrap_or(line).to_owned());
    }
    Ok(tags)
}

/// The tags in which a pattern is not found.
fn without(
    tags: Vec<String>,
    pattern: &GoRegexp,
    meter: &mut WorkMeter,
) -> Result<Vec<String>, WorkLimitExceeded> {
    let mut left = Vec::new();
    for tag in tags {
        meter.steps(cost(pattern, &tag))?;
        if !pattern.is_match(&tag) {
            left.push(tag);
        }
    }
    Ok(left)
}

/// The steps for matching a tag.
pub(crate) fn cost(pattern: &GoRegexp, tag: &str) -> u64 {
    (pattern.work() as u64).saturating_mul(tag.len() as u64 + 1)
}

/// The checksum of bytes, like Go's `adler32.Checksum`.
fn adler32(bytes: &[u8]) -> u32 {
    const ADLER_MODULUS: u32 = 65_521;
    let mut low = 1;
    let mut high = 0;
    for byte in bytes {
        low = (low + u32::from(*byte)) % ADLER_MODULUS;
        high = (high + low) % ADLER_MODULUS;
    }
    high << 16 | low
}

#[cfg(test)]
mod tests {
    use golang::work_meter::{StopSignal, WorkAllowance};

    use super::*;

    fn scanned(listed: &[&str], exclusion_list: &[&str]) -> Result<TagList, TagExclusionError> {
        let owned = |list: &[&str]| list.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let mut meter =
            WorkMeter::new(WorkAllowance { steps: 1_000_000, bytes: 0 }, StopSignal::default());
        TagList::of_scan(owned(listed), &owned(exclusion_list), &mut meter)
    }

    #[test]
    fn signatures_are_left_out_unless_a_list_says_otherwise() {
        let listed = ["a", "b.sig", "c", "a"];
        assert_eq!(scanned(&listed, &[]).unwrap().tags(), ["c", "a", "a"]);
        assert_eq!(scanned(&listed, &["^a$"]).unwrap().tags(), ["c", "b.sig"]);
        assert_eq!(scanned(&listed, &["^a$", "^c"]).unwrap().tags(), ["b.sig"]);
        let error = scanned(&listed, &["["]).unwrap_err().to_string();
        assert_eq!(
            error,
            "failed to compile regex [: error parsing regexp: missing closing ]: `[`"
        );
    }

    #[test]
    fn patterns_that_cost_too_much_end_the_scan() {
        let long = "a".repeat(100_000);
        let error = scanned(&[long.as_str()], &["(a|b)*c"]).unwrap_err();
        assert!(matches!(error, TagExclusionError::Work(_)), "{error}");
        // They cost that also where there are no tags.
        let error = scanned(&[], &[r"\pL{20}"]).unwrap_err();
        assert!(matches!(error, TagExclusionError::Work(_)), "{error}");
    }

    #[test]
    fn what_is_stored_is_read_again() {
        let list = scanned(&["b", "a", "é"], &[]).unwrap();
        assert_eq!(read_tags(&list.stored()).unwrap(), list.tags());
        assert_eq!(read_tags("").unwrap(), Vec::<String>::new());
        assert_eq!(read_tags("a\r\n\nb").unwrap(), ["a", "", "b"]);
        assert!(read_tags(&format!("{}\n", "a".repeat(1023))).is_ok());
        assert_eq!(read_tags(&format!("{}\n", "a".repeat(1024))), Err(StoredTagsError::Line));
    }

    #[test]
    fn the_checksum_is_that_of_json_with_escapes() {
        assert_eq!(scanned(&[], &[]).unwrap().checksum(), "18153657");
        let escaped = adler32(b"[\"\\u003c\"]").to_string();
        assert_eq!(scanned(&["<"], &[]).unwrap().checksum(), escaped);
    }
}
