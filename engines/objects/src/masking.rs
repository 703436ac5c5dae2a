//! Masks values of Secrets in texts from other programs, because API servers, webhooks and templates quote rejected values.
//!
//! Here: the forms in which a value may be quoted, and when a short text counts as a value.
//! Elsewhere: values that are never shown at all ([`crate::RedactedValue`]), data of versions that are compared
//! (`apply::mask`).

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::Value;

use crate::Object;

/// The text that replaces a value.
const MASK: &str = "****";

/// A value of at least this many bytes is masked everywhere.
const MIN_ANYWHERE_MASKED_BYTES: usize = 8;

/// A shorter value of at least this many bytes is masked where it is a whole word. A value that is shorter still is masked only
/// where it is quoted.
const MIN_WORD_MASKED_BYTES: usize = 5;

/// The steps that a search for one string takes in addition to reading the text.
const STEPS_PER_NEEDLE: u64 = 64;

/// Common words. They are masked like very short values, only where they are quoted.
const COMMON: [&str; 10] = [
    "false",
    "default",
    "enabled",
    "disabled",
    "always",
    "never",
    "localhost",
    "production",
    "staging",
    "latest",
];

/// Masks the values of Secrets in texts.
///
/// # Guarantees
/// Every value is masked where it is quoted, in quotation marks or as a field's value. A value of at least eight bytes is
/// masked everywhere, even inside a longer word, in base64, or with escapes. The same holds for each line of a value, and for
/// each string in a value that is YAML or JSON. Common words such as `false`, and values of less than five bytes, are masked
/// only where they are quoted.
#[derive(Clone, Default)]
pub struct SecretMasking(Arc<SecretMaskingContents>);

#[derive(Default)]
struct SecretMaskingContents {
    contents: Vec<Vec<u8>>,
    needles: OnceLock<Vec<SecretNeedle>>,
    /// The steps that masking may still take; none if they are not limited.
    steps_left: Option<AtomicU64>,
}

impl SecretMaskingContents {
    fn needles(&self) -> &[SecretNeedle] {
        self.needles.get_or_init(|| needles(&self.contents))
    }

    /// Takes the steps for masking a text from the limit. Returns false if the limit is exceeded, from then on always.
    fn take(&self, text: &str) -> bool {
        let Some(left) = &self.steps_left else { return true };
        if left.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let steps = (text.len() as u64).saturating_add(STEPS_PER_NEEDLE);
        let steps = steps.saturating_mul(self.needles().len() as u64);
        let taken =
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(steps));
        if taken.is_err() {
            left.store(0, Ordering::Relaxed);
        }
        taken.is_ok()
    }
}

struct SecretNeedle {
    text: String,
    /// Where the string is masked.
    place: MatchBoundary,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MatchBoundary {
    Anywhere,
    Word,
    Quoted,
}

impl fmt::Debug for SecretMasking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Masking(****)")
    }
}

impl SecretMasking {
    /// Creates a masking for values of Secrets. The search strings are only computed when a text is masked.
    pub fn new(contents: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let contents = contents.into_iter().filter(|it| !it.is_empty()).collect();
        let needles = OnceLock::new();
        Self(Arc::new(SecretMaskingContents { contents, needles, steps_left: None }))
    }

    /// Adds the values of the Secrets among some manifests.
    #[must_use]
    pub fn with_manifests<'o>(self, manifests: impl IntoIterator<Item = &'o Object>) -> Self {
        self.with(manifests.into_iter().flat_map(contents))
    }

    /// Adds further values of Secrets.
    #[must_use]
    pub fn with(self, more: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let mut contents: Vec<Vec<u8>> = more.into_iter().collect();
        if contents.is_empty() {
            return self;
        }
        contents.extend(self.0.contents.iter().cloned());
        Self::new(contents)
    }

    /// Limits the steps, for texts and Secrets from untrusted users. Each byte of a text is a step for each string that is
    /// searched for. Once the steps are used up, every text is masked completely.
    #[must_use]
    pub fn within(self, steps: u64) -> Self {
        let contents = self.0.contents.clone();
        let steps_left = Some(AtomicU64::new(steps));
        Self(Arc::new(SecretMaskingContents { contents, needles: OnceLock::new(), steps_left }))
    }

    /// A text in which Secret values are masked.
    #[must_use]
    pub fn mask(&self, text: &str) -> String {
        if !self.0.take(text) {
            return MASK.to_owned();
        }
        let mut text = text.to_owned();
        for needle in self.0.needles() {
            needle.mask(&mut text);
        }
        text
    }
}

/// The values of a manifest that is a Secret. Each entry of `data` is included as written and, if possible, decoded.
fn contents(manifest: &Object) -> Vec<Vec<u8>> {
    if (manifest.api_version(), manifest.kind()) != ("v1", "Secret") {
        return Vec::new();
    }
    let values = |field: &str| {
        let entries = manifest.get(field).and_then(Value::as_object);
        entries.into_iter().flat_map(|entries| entries.values()).filter_map(|value| match value {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        })
    };
    let data = values("data").flat_map(|text| {
        let decoded = STANDARD.decode(&text).ok();
        [Some(text.into_bytes()), decoded].into_iter().flatten()
    });
    data.chain(values("stringData").map(String::into_bytes)).collect()
}

/// The strings to search for. Long strings come first, so that masking a part of a long string does not hide the rest of it
/// from the search.
fn needles(contents: &[Vec<u8>]) -> Vec<SecretNeedle> {
    let mut found = BTreeSet::new();
    for bytes in contents {
        found.insert(STANDARD.encode(bytes));
        for text in strings(bytes) {
            found.extend(forms(&text));
        }
    }
    let mut needles: Vec<SecretNeedle> = found.into_iter().filter_map(SecretNeedle::new).collect();
    needles.sort_by_key(|needle| std::cmp::Reverse(needle.text.len()));
    needles
}

/// The strings in a value: the whole value, the strings in its YAML or JSON, or else its lines.
fn strings(bytes: &[u8]) -> Vec<String> {
    let whole = String::from_utf8_lossy(bytes);
    let mut strings = vec![whole.trim().to_owned(), whole.into_owned()];
    let parsed = goyaml::to_json(bytes).unwrap_or_default();
    if !parsed.is_object() && !parsed.is_array() {
        strings.extend(lines(&strings[0]));
    }
    let mut pending = vec![parsed];
    while let Some(value) = pending.pop() {
        match value {
            Value::String(text) => {
                strings.extend(lines(&text));
                strings.push(text);
            }
            Value::Array(items) => pending.extend(items),
            Value::Object(map) => pending.extend(map.into_iter().map(|(_, it)| it)),
            Value::Null => {}
            other => strings.push(other.to_string()),
        }
    }
    strings
}

/// The lines of a text, and the values in assignments such as `PASSWORD=…`.
fn lines(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim);
    let assigned = |line: &'_ str| {
        let (_, value) = line.split_once('=')?;
        Some(value.trim().trim_matches(['"', '\'']).to_owned())
    };
    lines.flat_map(|line| [Some(line.to_owned()), assigned(line)]).flatten().collect()
}

/// The forms in which a text may be quoted: unchanged, without line ends, with escapes, in base64.
fn forms(text: &str) -> [String; 6] {
    let escaped = serde_json::to_string(text).unwrap_or_default();
    let inner = escaped.strip_prefix('"').and_then(|it| it.strip_suffix('"')).unwrap_or_default();
    [
        text.to_owned(),
        text.replace('\n', ""),
        inner.to_owned(),
        // A message in a message.
        inner.replace('\\', "\\\\").replace('"', "\\\""),
        STANDARD.encode(text),
        URL_SAFE_NO_PAD.encode(text),
    ]
}

impl SecretNeedle {
    /// `None` for a text of blanks and stars only.
    fn new(text: String) -> Option<Self> {
        if text.trim_matches('*').trim().is_empty() {
            return None;
        }
        let is_common = COMMON.iter().any(|word| word.eq_ignore_ascii_case(&text));
        let place = match text.len() {
            _ if is_common => MatchBoundary::Quoted,
            MIN_ANYWHERE_MASKED_BYTES.. => MatchBoundary::Anywhere,
            MIN_WORD_MASKED_BYTES.. => MatchBoundary::Word,
            _ => MatchBoundary::Quoted,
        };
        Some(Self { text, place })
    }

    fn mask(&self, text: &mut String) {
        let Some(first) = text.find(&self.text) else { return };
        let mut masked = String::with_capacity(text.len());
        let mut rest = 0;
        let mut next = Some(first);
        while let Some(at) = next {
            let end = at + self.text.len();
            if self.is_at(&text[..at], &text[end..]) {
                masked.push_str(&text[rest..at]);
                masked.push_str(MASK);
                rest = end;
                next = text[end..].find(&self.text).map(|found| end + found);
            } else {
                let step = at + text[at..].chars().next().map_or(1, char::len_utf8);
                next = text[step..].find(&self.text).map(|found| step + found);
            }
        }
        masked.push_str(&text[rest..]);
        *text = masked;
    }

    /// Whether the text between `before` and `after` is the value, and not a part of an unrelated word.
    fn is_at(&self, before: &str, after: &str) -> bool {
        let is_word =
            |letter: Option<char>| letter.is_some_and(|it| it.is_alphanumeric() || it == '_');
        match self.place {
            MatchBoundary::Anywhere => true,
            MatchBoundary::Word => {
                // If the value begins or ends with a sign, that sign is its boundary.
                let begins =
                    !is_word(self.text.chars().next()) || !is_word(before.chars().next_back());
                let ends =
                    !is_word(self.text.chars().next_back()) || !is_word(after.chars().next());
                begins && ends || is_quoted(before, after)
            }
            MatchBoundary::Quoted => is_quoted(before, after),
        }
    }
}

/// Whether a text is quoted as a value: in quotation marks, or in the form in which API servers quote rejected values.
fn is_quoted(before: &str, after: &str) -> bool {
    let left = before.trim_end_matches('\\');
    let right = after.trim_start_matches('\\');
    let is_in_marks = ["\"", "'", "`"].iter().any(|it| left.ends_with(it) && right.starts_with(it));
    let is_at_end = || after.is_empty() || after.starts_with([':', '}', ',', ';', ')', ']', '\n']);
    is_in_marks
        || (["Value:", "nvalid value: ", "nsupported value: "]
            .iter()
            .any(|it| before.ends_with(it))
            && is_at_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn masked(contents: &[&str], text: &str) -> String {
        SecretMasking::new(contents.iter().map(|it| it.as_bytes().to_vec())).mask(text)
    }

    #[test]
    fn a_long_value_is_masked_in_every_form() {
        let value = "pass\"word\n\tline two";
        for form in [
            value.to_owned(),
            format!("x{value}y"),
            "pass\"word\tline two".to_owned(),
            format!("Invalid value: {value:?}: no"),
            serde_json::to_string(&json!({"message": format!("{value:?}")})).unwrap(),
            STANDARD.encode(value),
            "only line two is quoted".to_owned(),
            "only pass\"word is".to_owned(),
        ] {
            let masked = masked(&[value], &form);
            assert!(masked.contains(MASK), "{form}: {masked}");
            assert!(!masked.contains("word") && !masked.contains("line two"), "{form}: {masked}");
        }
    }

    #[test]
    fn a_common_word_or_a_short_value_is_masked_only_where_it_is_a_value() {
        let contents = ["false", "80", "a", "", "****", "true\n"];
        for text in [
            "spec.enabled is false: port 80 of a Service is refused, and so is 8080",
            "Deployment/a/true was **** not found at default",
            "Invalid value: 800: must be a number",
        ] {
            assert_eq!(masked(&contents, text), text);
        }
        for (text, expected) in [
            ("Invalid value: \"false\": no", "Invalid value: \"****\": no"),
            ("Invalid value: 80: no", "Invalid value: ****: no"),
            (
                "spec: Unsupported value: \"a\": supported",
                "spec: Unsupported value: \"****\": supported",
            ),
            (
                "got &value.valueUnstructured{Value:true}",
                "got &value.valueUnstructured{Value:****}",
            ),
            (r#"{"message":"Invalid value: \"a\""}"#, r#"{"message":"Invalid value: \"****\""}"#),
        ] {
            assert_eq!(masked(&contents, text), expected);
        }
    }

    #[test]
    fn a_value_of_some_letters_is_masked_as_a_word() {
        let text = "redis-master uses hunter2, not hunter22 (hunter2)";
        let expected = "redis-master uses ****, not hunter22 (****)";
        assert_eq!(masked(&["hunter2"], text), expected);
    }

    #[test]
    fn what_yaml_and_assignments_hold_is_masked_and_their_keys_are_not() {
        let values = "auth:\n  password: sw0rdfish-1\n  users: [mallory-the-2nd, {pin: 471100}]\n";
        let text = "auth.password: sw0rdfish-1 of mallory-the-2nd with 471100";
        assert_eq!(masked(&[values], text), "auth.password: **** of **** with ****");
        let text = "PASSWORD is sw0rdfish-1, KEY is abcdefgh";
        let expected = "PASSWORD is ****, KEY is ****";
        assert_eq!(masked(&["PASSWORD=sw0rdfish-1\nKEY='abcdefgh'\n"], text), expected);
    }

    #[test]
    fn what_the_secrets_among_manifests_hold_is_masked() {
        let object = |value: Value| Object::new(value).unwrap();
        let secret =
            object(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"},
            "data": {"a": "aHVudGVyMi0x", "b": "%"}, "stringData": {"pin": 4711, "none": null}}));
        let map =
            object(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"},
            "data": {"a": "told-to-all"}}));
        let masking = SecretMasking::new([b"substituted".to_vec()]).with_manifests([&secret, &map]);
        let text = "got hunter2-1, aHVudGVyMi0x, &{Value:4711}, substituted and told-to-all";
        assert_eq!(masking.mask(text), "got ****, ****, &{Value:****}, **** and told-to-all");
        assert_eq!(format!("{masking:?}"), "Masking(****)");
    }

    #[test]
    fn masking_ends_and_keeps_text_that_is_no_secret() {
        assert_eq!(SecretMasking::default().mask("as it is"), "as it is");
        assert_eq!(masked(&["äääääää"], "ä äääääää ääääääää"), "ä **** ****ä");
        let many = "ab".repeat(10_000);
        assert_eq!(masked(&["abababab"], &many), MASK.repeat(2500));
    }

    #[test]
    fn masking_beyond_its_bound_masks_the_whole_text() {
        let secrets = |steps: u64| SecretMasking::new([b"hunter2-and-more".to_vec()]).within(steps);
        let bounded = secrets(10_000);
        assert_eq!(bounded.mask("a hunter2-and-more b"), "a **** b");
        assert_eq!(bounded.mask(&"x".repeat(10_000)), MASK);
        assert_eq!(bounded.mask("a"), MASK);
        assert_eq!(secrets(0).mask("a"), MASK);
    }
}
