//! ASCII armor as Go reads it: leniently, its first block only, without its checksum.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Padding may be missing where a block is cut off; what was decoded until there counts.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical)
        .with_decode_allow_trailing_bits(true),
);

/// The longest line of a block.
const MAX_LINE_BYTES: usize = 96;

/// A block.
pub(crate) struct ArmorBlock {
    /// Such as `PGP SIGNATURE`.
    pub(crate) kind: String,
    /// Its content, as far as it can be read.
    pub(crate) content: Vec<u8>,
    /// Why the content is not all, if it is not.
    pub(crate) broken: Option<&'static str>,
}

/// The first block of a text; lines may be indented, and text before it is skipped.
pub(crate) fn first(text: &[u8]) -> Option<ArmorBlock> {
    let mut lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    'block: loop {
        let kind = loop {
            let line = lines.next()?;
            let inner = line.strip_prefix(b"-----BEGIN ").filter(|inner| inner.len() > 5);
            if let Some(inner) = inner {
                let kind = inner.get(..inner.len() - 5).unwrap_or_default();
                break String::from_utf8_lossy(kind).into_owned();
            }
        };
        loop {
            match lines.next()? {
                b"" => break,
                header if !header.contains(&b':') => continue 'block,
                _ => {}
            }
        }
        let (content, broken) = body(lines);
        return Some(ArmorBlock { kind, content, broken });
    }
}

fn body<'l>(lines: impl Iterator<Item = &'l [u8]>) -> (Vec<u8>, Option<&'static str>) {
    let mut encoded = Vec::new();
    let mut broken = None;
    for line in lines {
        let is_checksum = line.len() == 5 && line.first() == Some(&b'=');
        if line.starts_with(b"-----END ") || is_checksum {
            break;
        }
        if line.len() > MAX_LINE_BYTES {
            broken = Some("openpgp: invalid data: armor invalid");
            break;
        }
        encoded.extend(line);
    }
    let whole = encoded.len() - encoded.len() % 4;
    if whole < encoded.len() {
        broken = broken.or(Some("unexpected EOF"));
    }
    let decodable = encoded.get(..whole).unwrap_or_default();
    match BASE64.decode(decodable) {
        Ok(content) => (content, broken),
        Err(_) => {
            // What is before the first group that is not base64 counts.
            let good = decodable.chunks(4).take_while(|group| BASE64.decode(group).is_ok());
            let content = good.filter_map(|group| BASE64.decode(group).ok()).flatten().collect();
            (content, Some("the armor is not base64"))
        }
    }
}
