//! The 512-byte blocks that describe an entry of a tar archive.
//!
//! Here: writing them as Go's `archive/tar` does, and reading their numbers.
//! Elsewhere: the order of headers ([`super::writer`], [`super::reader`]).

use tree::RelPath;

/// Everything in a tar archive comes in blocks of this size.
pub(super) const TAR_BLOCK_BYTES: usize = 512;

/// The largest size that the octal field holds.
pub(super) const MAX_SIZE: u64 = 0o77_777_777_777;

const MAX_NAME_BYTES: usize = 100;
const MAX_PREFIX_BYTES: usize = 155;

/// An entry to be written.
#[derive(Debug, Clone, Copy)]
pub(super) struct TarEntryDescription {
    /// `0`: a regular file, `5`: a folder.
    pub(super) flag: u8,
    /// The permission bits.
    pub(super) mode: u32,
    /// Bytes of the body.
    pub(super) size: u64,
}

/// The blocks before the body of an entry. USTAR needs one block, and a name that needs PAX takes three or more.
pub(super) fn blocks(path: &RelPath, entry: TarEntryDescription) -> Vec<u8> {
    let name = match path.as_str() {
        "" => ".",
        name => name,
    };
    if name.is_ascii() && name.len() <= MAX_NAME_BYTES {
        return block(name, "", entry).to_vec();
    }
    if let Some((prefix, rest)) = split(name) {
        return block(rest, prefix, entry).to_vec();
    }
    let record = pax_record("path", name);
    let file = name.rfind('/').map_or(0, |slash| slash + 1);
    let header_name = ascii(&format!("{}PaxHeaders.0/{}", &name[..file], &name[file..]));
    let pax = TarEntryDescription { flag: b'x', mode: 0, size: record.len() as u64 };
    let mut blocks = block(header_name.trim_end_matches('/'), "", pax).to_vec();
    blocks.extend_from_slice(record.as_bytes());
    blocks.resize(blocks.len().next_multiple_of(TAR_BLOCK_BYTES), 0);
    blocks.extend_from_slice(&block(&ascii(name), "", entry));
    blocks
}

/// One header block. A name that does not fit is cut, because a PAX record contains the whole name.
fn block(name: &str, prefix: &str, entry: TarEntryDescription) -> [u8; TAR_BLOCK_BYTES] {
    let mut block = [0; TAR_BLOCK_BYTES];
    let mut put = |at: usize, text: &str| {
        block[at..at + text.len()].copy_from_slice(text.as_bytes());
    };
    // Some readers take a file whose cut name ends in a slash for a folder.
    let cut = if name.len() > MAX_NAME_BYTES {
        name[..MAX_NAME_BYTES].trim_end_matches('/')
    } else {
        name
    };
    put(0, cut);
    put(100, &format!("{:07o}", entry.mode));
    put(108, "0000000");
    put(116, "0000000");
    put(124, &format!("{:011o}", entry.size));
    put(136, "00000000000");
    put(148, "        ");
    put(156, char::from(entry.flag).encode_utf8(&mut [0; 4]));
    put(257, "ustar\x0000");
    if entry.flag != b'x' {
        put(329, "0000000");
        put(337, "0000000");
    }
    put(345, prefix);
    let sum: u32 = block.iter().copied().map(u32::from).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

/// Cuts a long name at a slash, so that both parts fit their fields. `None` if that is not possible.
fn split(name: &str) -> Option<(&str, &str)> {
    if !name.is_ascii() {
        return None;
    }
    let reach = name.len().min(MAX_PREFIX_BYTES + 1);
    let (prefix, _) = name[..reach].rsplit_once('/')?;
    let rest = &name[prefix.len() + 1..];
    (!prefix.is_empty() && !rest.is_empty() && rest.len() <= MAX_NAME_BYTES)
        .then_some((prefix, rest))
}

/// A record of a PAX header, which begins with its own length.
fn pax_record(key: &str, value: &str) -> String {
    let bare = key.len() + value.len() + 3;
    let mut len = bare + bare.to_string().len();
    if bare + len.to_string().len() != len {
        len = bare + len.to_string().len();
    }
    format!("{len} {key}={value}\n")
}

/// The text without characters that are not ASCII.
fn ascii(text: &str) -> String {
    text.chars().filter(char::is_ascii).collect()
}

/// A text field, which ends before the first NUL.
pub(super) fn text(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// A number field, octal or in base 256. `None` if it is neither, negative, or too large.
pub(super) fn number(field: &[u8]) -> Option<u64> {
    if let [first, rest @ ..] = field
        && first & 0x80 != 0
    {
        if first & 0x40 != 0 {
            return None;
        }
        return rest.iter().try_fold(u64::from(first & 0x3f), |value, byte| {
            let value = value.checked_mul(256)? | u64::from(*byte);
            (value <= i64::MAX as u64).then_some(value)
        });
    }
    let is_padding = |byte: &u8| matches!(byte, b' ' | 0);
    let start = field.iter().position(|byte| !is_padding(byte)).unwrap_or(field.len());
    let digits = text(&field[start..]);
    let end = digits.iter().rposition(|byte| !is_padding(byte)).map_or(0, |last| last + 1);
    let digits = str::from_utf8(&digits[..end]).ok()?;
    match digits {
        "" => Some(0),
        signed if signed.starts_with('+') => None,
        digits => u64::from_str_radix(digits, 8).ok().filter(|value| *value <= i64::MAX as u64),
    }
}

/// Whether the checksum field is right, counted with unsigned or, as some old programs did, signed bytes.
pub(super) fn is_sound(block: &[u8; TAR_BLOCK_BYTES]) -> bool {
    let bytes = block.iter().enumerate();
    let counted = bytes.map(|(at, byte)| if (148..156).contains(&at) { b' ' } else { *byte });
    let unsigned: u64 = counted.clone().map(u64::from).sum();
    let signed: i64 = counted.map(|byte| i64::from(byte.cast_signed())).sum();
    let claimed = number(&block[148..156]);
    claimed.is_some_and(|claimed| claimed == unsigned || i64::try_from(claimed) == Ok(signed))
}
