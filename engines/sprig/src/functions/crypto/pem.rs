//! Reads and writes PEM like Go's `encoding/pem`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::super::encoding::decode64;

/// The number of base64 characters on a line.
const PEM_LINE_CHARACTERS: usize = 64;

/// A PEM block, decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PemBlock {
    /// The text after `BEGIN`.
    pub(super) label: String,
    pub(super) bytes: Vec<u8>,
}

/// Writes bytes as a PEM block with this label. The block has no header lines.
pub(super) fn encode(label: &str, bytes: &[u8]) -> String {
    let mut out = format!("-----BEGIN {label}-----\n");
    let mut rest = STANDARD.encode(bytes);
    while rest.len() > PEM_LINE_CHARACTERS {
        let after = rest.split_off(PEM_LINE_CHARACTERS);
        out.push_str(&rest);
        out.push('\n');
        rest = after;
    }
    if !rest.is_empty() {
        out.push_str(&rest);
        out.push('\n');
    }
    out.push_str(&format!("-----END {label}-----\n"));
    out
}

/// The first complete block of a text. Text around it is ignored.
pub(super) fn decode(text: &[u8]) -> Option<PemBlock> {
    let mut open: Option<(&[u8], Vec<u8>, bool)> = None;
    for line in text.split(|byte| *byte == b'\n') {
        let line = trimmed_end(line);
        if let Some(label) = marked(line, b"-----BEGIN ") {
            open = Some((label, Vec::new(), true));
        } else if let Some(label) = marked(line, b"-----END ") {
            let Some((begun, digits, _)) = open.take() else { continue };
            if let (true, Ok(bytes)) = (begun == label, decode64(&digits)) {
                let label = String::from_utf8_lossy(label).into_owned();
                return Some(PemBlock { label, bytes });
            }
        } else if let Some((_, digits, in_headers)) = &mut open {
            *in_headers &= line.contains(&b':');
            if !*in_headers {
                digits.extend(line.iter().filter(|byte| !matches!(byte, b' ' | b'\t')));
            }
        }
    }
    None
}

fn trimmed_end(line: &[u8]) -> &[u8] {
    let end = line.iter().rposition(|byte| !matches!(byte, b' ' | b'\t' | b'\r'));
    end.map_or(&[], |end| &line[..=end])
}

/// The label of a line that begins or ends a block.
fn marked<'l>(line: &'l [u8], mark: &[u8]) -> Option<&'l [u8]> {
    line.strip_prefix(mark)?.strip_suffix(b"-----")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_in_other_text() {
        let bytes: Vec<u8> = (0..100).collect();
        let text = encode("X KEY", &bytes);
        assert!(
            text.lines().all(|line| line.len() <= PEM_LINE_CHARACTERS) && text.lines().count() == 5
        );
        let block = PemBlock { label: "X KEY".to_owned(), bytes };
        let around = format!("junk\n-----BEGIN Y-----\n{text}more");
        assert_eq!(decode(around.as_bytes()), Some(block.clone()));
        let headers = text.replace("KEY-----\nAA", "KEY-----\r\nProc-Type: 4\r\n\r\nAA");
        assert_eq!(decode(headers.as_bytes()), Some(block));
        assert_eq!(decode(b"bad"), None);
        assert_eq!(decode(b"-----BEGIN X-----\n!\n-----END X-----\n"), None);
    }
}
