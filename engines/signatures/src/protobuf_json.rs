//! Reads JSON in the form of protocol buffers: bytes as base64, large numbers as strings, times as RFC 3339.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

/// Decodes base64 in either alphabet. `None` if the text is not base64.
pub(crate) fn base64_of(text: &str) -> Option<Vec<u8>> {
    let engine = if text.contains(['-', '_']) { &URL } else { &STANDARD };
    engine.decode(text).ok()
}

/// Bytes of a message of Protobuf, which are base64 in JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ProtoBytes(pub(crate) Vec<u8>);

impl<'de> Deserialize<'de> for ProtoBytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = Option::<String>::deserialize(from)?.unwrap_or_default();
        base64_of(&text).map(Self).ok_or_else(|| D::Error::custom("it is not base64"))
    }
}

/// A whole number of 64 bits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ProtoInt(pub(crate) i64);

impl<'de> Deserialize<'de> for ProtoInt {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum NumberOrText {
            Number(i64),
            Text(String),
        }
        Ok(Self(match Option::<NumberOrText>::deserialize(from)? {
            None => 0,
            Some(NumberOrText::Number(number)) => number,
            Some(NumberOrText::Text(text)) => text.parse().map_err(D::Error::custom)?,
        }))
    }
}

/// A time of a message of Protobuf, as seconds of Unix time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProtoTime(pub(crate) i64);

impl<'de> Deserialize<'de> for ProtoTime {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let time: jiff::Timestamp = text.parse().map_err(D::Error::custom)?;
        Ok(Self(time.as_second()))
    }
}
