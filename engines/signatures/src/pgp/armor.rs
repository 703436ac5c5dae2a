//! Reads ASCII armor like Go: leniently, only the first block, and without checking its checksum.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Base64 in which padding may be missing, because a truncated block is still decoded up to its end.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical)
        .with_decode_allow_trailing_bits(true),
);

/// The longest line of a block.
const MAX_LINE_BYTES: usize = 96;

/// A block of ASCII armor of OpenPGP, decoded.
pub(crate) struct ArmorBlock {
    /// The type of the block, such as `PGP SIGNATURE`.
    pub(crate) kind: String,
    /// The content, up to the first unreadable character.
    pub(crate) content: Vec<u8>,
    /// Why the content is incomplete, if it is.
    pub(crate) broken: Option<&'static str>,
}

/// The first armored block of a text. Its lines may be indented, and text before it is skipped. `None` if the text has
/// no block.
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
            // Text after the first group that is not base64 is ignored.
            let good = decodable.chunks(4).take_while(|group| BASE64.decode(group).is_ok());
            let content = good.filter_map(|group| BASE64.decode(group).ok()).flatten().collect();
            (content, Some("the armor is not base64"))
        }
    }
}
