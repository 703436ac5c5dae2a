//! Replaces digests of archives and sources by labels. The bytes of an archive depend on the compressor, so only the
//! equality of digests can be compared.
//!
//! Labels are numbered by the first appearance of the digest. Both sides have these values in the same order.

use serde_json::Value;

/// The beginning of a label in the recording.
const RECORDED_LABEL: &str = "<sha256-";

/// The beginning of a digest.
const DIGEST: &str = "sha256:";

/// The text for a digest without a label.
const UNKNOWN_DIGEST: &str = "<digest>";

/// The end of an archive's name, after its number.
const ARCHIVE_SUFFIX: &str = ".tar.gz";

/// Replaces each digest and each recorded label in a text.
fn with_each_digest(text: &str, mut replaced: impl FnMut(&str) -> String) -> String {
    let mut written = String::new();
    let mut rest = text;
    while let Some(at) = [rest.find(RECORDED_LABEL), rest.find(DIGEST)].into_iter().flatten().min()
    {
        let (before, digest) = rest.split_at(at);
        let length = match digest.starts_with(RECORDED_LABEL) {
            true => digest.find('>').map_or(digest.len(), |end| end + 1),
            false => {
                let digits = digest.chars().skip(DIGEST.len());
                DIGEST.len() + digits.take_while(char::is_ascii_hexdigit).count()
            }
        };
        let (digest, behind) = digest.split_at(length);
        written.push_str(before);
        written.push_str(&replaced(digest));
        rest = behind;
    }
    written.push_str(rest);
    written
}

/// All digests and recorded labels in a value, each once, in their order.
pub(super) fn digests(value: &Value) -> Vec<String> {
    let mut digests: Vec<String> = Vec::new();
    with_each_digest(&value.to_string(), |digest| {
        if !digests.iter().any(|known| known == digest) {
            digests.push(digest.to_owned());
        }
        String::new()
    });
    digests
}

/// The value with labels in the places of its digests. With `hides_files`, the numbers of archives are removed.
pub(super) fn labelled(value: &Value, digests: &[String], hides_files: bool) -> Value {
    let text = with_each_digest(&value.to_string(), |digest| {
        let number = digests.iter().position(|known| known == digest);
        number.map_or_else(|| UNKNOWN_DIGEST.to_owned(), |number| format!("<digest-{number}>"))
    });
    let text = if hides_files { without_file_numbers(&text) } else { text };
    serde_json::from_str(&text).unwrap_or_default()
}

fn without_file_numbers(text: &str) -> String {
    let (names, end) = text.rsplit_once(ARCHIVE_SUFFIX).unwrap_or(("", text));
    let is_digit = |c: char| c.is_ascii_digit();
    let mut written = String::new();
    for name in names.split(ARCHIVE_SUFFIX).filter(|_| end.len() < text.len()) {
        written.push_str(name.trim_end_matches(is_digit));
        written.push_str(ARCHIVE_SUFFIX);
    }
    written.push_str(end);
    written
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_same_labels_stand_for_what_is_equal_on_both_sides() {
        let recorded = json!(["<sha256-2>", "latest@<sha256-1>", "<sha256-2>", "é <sha256-9>"]);
        let digest = |digit: &str| format!("sha256:{}", digit.repeat(64));
        let got = json!([
            digest("a"),
            format!("latest@{}", digest("b")),
            digest("a"),
            format!("é {}", digest("c"))
        ]);
        let parts = |value: &Value| json!(value.as_array().unwrap()[..3]);
        let labels = |value: &Value| labelled(value, &digests(&parts(value)), false);
        assert_eq!(labels(&recorded), labels(&got));
        assert_eq!(labels(&got)[0], "<digest-0>");
        let other = json!([digest("a"), format!("latest@{}", digest("a")), digest("a"), ""]);
        assert_ne!(labels(&recorded), labels(&other));
    }

    #[test]
    fn numbers_of_files_are_hidden_where_flux_has_others() {
        let value = json!(["apps/a1/12.tar.gz", "http://h/34.tar.gz", "5"]);
        let hidden = json!(["apps/a1/.tar.gz", "http://h/.tar.gz", "5"]);
        assert_eq!(labelled(&value, &[], true), hidden);
        assert_eq!(labelled(&value, &[], false), value);
        assert_eq!(labelled(&json!("5"), &[], true), json!("5"));
    }
}
