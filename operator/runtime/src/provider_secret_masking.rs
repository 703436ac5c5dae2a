//! Masks the values in a Provider's Secrets, because messages may contain an answer of its service with these values.
//!
//! Elsewhere: the forms in which a value may appear (`objects::SecretMasking`), and which Secrets these are (the callers).

use std::collections::BTreeMap;

use notify::SecretData;
use objects::SecretMasking;
use url::Url;

/// The limit of the masking work: the bytes of a message times the strings in the Secrets. It takes some tenths of a second of
/// processor time.
const MAX_MASKING_WORK_BYTES: usize = 16 << 20;

/// The text that replaces a message that cannot be masked.
pub const NOT_MASKED: &str =
    "the reason is not shown, because the Secrets of the Provider are too large to mask them in it";

/// The masking of all values in the Secrets, and of the parts of an address that may appear alone.
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

/// A text with the values of the Secrets masked. `None` if the Secrets are too large for that. It may take some tenths of a
/// second.
pub fn masked_text(secrets: &BTreeMap<String, SecretData>, text: &str) -> Option<String> {
    let values = secrets.values().flat_map(|secret| secret.data.values());
    if strings(values).saturating_mul(text.len()) > MAX_MASKING_WORK_BYTES {
        return None;
    }
    Some(masking(secrets).mask(text))
}

/// The most strings that these values may contain, counted by lines and by the items of lists and maps.
fn strings<'a>(values: impl Iterator<Item = &'a Vec<u8>>) -> usize {
    let ends = |byte: &&u8| matches!(byte, b'\n' | b'\r' | b',') || !byte.is_ascii();
    values.map(|value| 1 + value.iter().filter(ends).count()).sum()
}
