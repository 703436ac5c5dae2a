//! What the Secrets of a Provider hold is not repeated by messages, which may have an answer of its service in them.
//!
//! Elsewhere: the forms in which a value may be quoted (`objects::SecretMasking`), which Secrets these are (the
//! callers).

use std::collections::BTreeMap;

use notify::SecretData;
use objects::SecretMasking;
use url::Url;

/// How much work masking may be: bytes of a message for every string that the Secrets may hold. That is some tenths of a
/// second of a processor.
const MAX_MASKING_WORK_BYTES: usize = 16 << 20;

/// The text that stands in place of one that cannot be masked.
pub const NOT_MASKED: &str =
    "the reason is not shown, because the Secrets of the Provider are too large to mask them in it";

/// The masking of everything in the Secrets, and of those parts of an address that may stand alone in a text.
pub fn masking(secrets: &BTreeMap<String, SecretData>) -> SecretMasking {
    let values = secrets.values().flat_map(|secret| secret.data.iter());
    let values = values.flat_map(|(key, value)| {
        let address = (key == "address").then(|| String::from_utf8_lossy(value));
        let url = address.and_then(|address| Url::parse(address.trim()).ok());
        let path = url.map(|url| url.path().to_owned()).filter(|path| path.len() > 1);
        std::iter::once(value.clone()).chain(path.map(String::into_bytes))
    });
    SecretMasking::new(values)
}

/// A text without what the Secrets hold; `None` where they hold too much to look for all of it. It may take some tenths of
/// a second.
pub fn masked_text(secrets: &BTreeMap<String, SecretData>, text: &str) -> Option<String> {
    let values = secrets.values().flat_map(|secret| secret.data.values());
    if strings(values).saturating_mul(text.len()) > MAX_MASKING_WORK_BYTES {
        return None;
    }
    Some(masking(secrets).mask(text))
}

/// How many strings values have at most: lines, and items of lists and maps.
fn strings<'a>(values: impl Iterator<Item = &'a Vec<u8>>) -> usize {
    let ends = |byte: &&u8| matches!(byte, b'\n' | b'\r' | b',') || !byte.is_ascii();
    values.map(|value| 1 + value.iter().filter(ends).count()).sum()
}
