//! Reads and writes single DER elements, as far as signatures need it.
//! Elsewhere: whole certificates (`x509`).

/// An element of DER: its tag and its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DerElement<'a> {
    pub(crate) tag: u8,
    pub(crate) content: &'a [u8],
    /// The element including its tag and length.
    pub(crate) whole: &'a [u8],
}

/// The first element, and the bytes after it. Tags have one byte, and lengths have at most three. `None` if the bytes
/// do not begin with such an element.
pub(crate) fn read(bytes: &[u8]) -> Option<(DerElement<'_>, &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    if tag & 0x1f == 0x1f {
        return None;
    }
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x83 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    let whole = bytes.get(..bytes.len() - rest.len())?;
    Some((DerElement { tag, content, whole }, rest))
}

/// All elements in some bytes; `None` if there are other bytes between or after them.
pub(crate) fn all(mut bytes: &[u8]) -> Option<Vec<DerElement<'_>>> {
    let mut elements = Vec::new();
    while !bytes.is_empty() {
        let (element, rest) = read(bytes)?;
        elements.push(element);
        bytes = rest;
    }
    Some(elements)
}

/// An element with a tag.
pub(crate) fn write(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut whole = vec![tag];
    let digits = content.len().to_be_bytes();
    let at = digits.iter().position(|digit| *digit != 0).unwrap_or(digits.len() - 1);
    let digits = digits.get(at..).unwrap_or_default();
    match digits {
        [short @ 0..0x80] => whole.push(*short),
        digits => {
            whole.push(0x80 | u8::try_from(digits.len()).unwrap_or_default());
            whole.extend_from_slice(digits);
        }
    }
    whole.extend_from_slice(content);
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for length in [0, 1, 127, 128, 255, 256, 70_000] {
            let content = vec![7; length];
            let whole = write(0x30, &content);
            let (element, rest) = read(&whole).unwrap();
            assert_eq!((element.content, element.whole), (content.as_slice(), whole.as_slice()));
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn what_ends_too_early_is_nothing() {
        for bytes in
            [&b""[..], b"\x30", b"\x30\x05a", b"\x30\x82\x01", b"\x30\x84\0\0\0\0", b"\x1f\x01a"]
        {
            assert_eq!(read(bytes), None, "{bytes:?}");
        }
    }
}
