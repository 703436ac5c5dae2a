//! Base64 as Go's `encoding/json` reads and writes bytes.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};

/// Parity(go): bits beyond the last byte may be anything.
const GO: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// Standard Base64 with padding (RFC 4648 §4).
pub(super) fn encode(bytes: &[u8]) -> String {
    GO.encode(bytes)
}

/// Decodes base64, and ignores line breaks anywhere in the text. `None` if the text is not valid base64.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    if !text.contains(['\n', '\r']) {
        return GO.decode(text).ok();
    }
    GO.decode(text.replace(['\n', '\r'], "")).ok()
}
