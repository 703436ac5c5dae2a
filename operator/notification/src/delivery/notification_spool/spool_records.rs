//! The records in the file of waiting notifications, as bytes.
//!
//! A record is a line: a checksum, whether a notification waits (`+`) or has come to its end (`-`), the number of the
//! notification, and if it waits, the notification as JSON. JSON contains no line feed, so damage ends with its line. As in
//! RFC 7464, a record also begins with a control character that JSON does not contain, so that a damaged line feed does not
//! take the next record with it.

use std::io::{self, BufRead, Read as _};

use sha2::{Digest as _, Sha256};

/// The byte before each record, and the byte after it.
const RECORD_START: u8 = 0x1e;
const RECORD_END: u8 = b'\n';

/// How many bytes of the SHA-256 digest a record has.
const CHECKSUM_BYTES: usize = 8;

/// The most bytes of a line that are read at once. Longer lines are damaged, since no notification is that long.
const MAX_LINE_BYTES: u64 = 4 << 20;

/// A record in the file of the spool: a notification began to wait, or its delivery ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SpoolRecord<'r> {
    /// A notification waits. It is given as JSON.
    Added { number: u64, text: &'r [u8] },
    /// A notification has come to its end.
    Ended { number: u64 },
}

/// Where the content of a record is in a file: what is between the first and the last byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecordPlace {
    pub(super) offset: u64,
    pub(super) len: usize,
}

impl RecordPlace {
    /// The place of a record that begins at an offset.
    pub(super) fn of_record(record: &[u8], offset: u64) -> Self {
        Self { offset: offset + 1, len: record.len().saturating_sub(2) }
    }

    /// How many bytes the record takes.
    pub(super) fn record_bytes(self) -> u64 {
        self.len as u64 + 2
    }
}

/// A part of a file between two marks. It is a record, or it is damaged.
pub(super) struct SpoolFilePart<'p> {
    pub(super) place: RecordPlace,
    pub(super) content: &'p [u8],
    /// Whether its line has an end. Without one, the process ended while it wrote the line.
    pub(super) has_end: bool,
}

/// The record that says that a notification waits.
pub(super) fn added(number: u64, text: &[u8]) -> Vec<u8> {
    let mut content = format!("+ {number} ").into_bytes();
    content.extend_from_slice(text);
    with_checksum(&content)
}

/// The record that says that a notification has come to its end.
pub(super) fn ended(number: u64) -> Vec<u8> {
    with_checksum(format!("- {number}").as_bytes())
}

fn with_checksum(content: &[u8]) -> Vec<u8> {
    framed(&[checksum(content).as_bytes(), b" ", content].concat())
}

/// The record with a content that was read from a file.
pub(super) fn framed(content: &[u8]) -> Vec<u8> {
    [&[RECORD_START][..], content, &[RECORD_END][..]].concat()
}

fn checksum(content: &[u8]) -> String {
    let digest: [u8; 32] = Sha256::digest(content).into();
    hex::encode(&digest[..CHECKSUM_BYTES])
}

/// Reads the content of a record. `None` if it is damaged.
pub(super) fn parse(content: &[u8]) -> Option<SpoolRecord<'_>> {
    let (sum, content) = content.split_at_checked(2 * CHECKSUM_BYTES)?;
    let content = content.strip_prefix(b" ")?;
    if checksum(content).as_bytes() != sum {
        return None;
    }
    if let Some(digits) = content.strip_prefix(b"- ") {
        return Some(SpoolRecord::Ended { number: number(digits)? });
    }
    let content = content.strip_prefix(b"+ ")?;
    let space = content.iter().position(|byte| *byte == b' ')?;
    let (digits, text) = content.split_at(space);
    Some(SpoolRecord::Added { number: number(digits)?, text: text.strip_prefix(b" ")? })
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Passes each part of a file to a function, in their order.
///
/// # Errors
/// The file cannot be read. Parts before that were passed.
pub(super) fn scan(
    mut file: impl BufRead,
    mut each: impl FnMut(SpoolFilePart<'_>),
) -> io::Result<()> {
    let mut begin = 0;
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = file.by_ref().take(MAX_LINE_BYTES).read_until(RECORD_END, &mut line)?;
        if read == 0 {
            return Ok(());
        }
        let has_end = line.ends_with(&[RECORD_END]);
        let mut offset = begin;
        for content in line.split(|byte| [RECORD_START, RECORD_END].contains(byte)) {
            let place = RecordPlace { offset, len: content.len() };
            if !content.is_empty() {
                each(SpoolFilePart { place, content, has_end });
            }
            offset += content.len() as u64 + 1;
        }
        begin += read as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of the whole records, and how many parts are damaged.
    fn read(file: &[u8]) -> (Vec<u64>, usize) {
        let mut numbers = Vec::new();
        let mut damaged = 0;
        scan(file, |part| match parse(part.content) {
            Some(SpoolRecord::Added { number, text }) => {
                let RecordPlace { offset, len } = part.place;
                let begin = usize::try_from(offset).unwrap();
                assert_eq!(&file[begin..begin + len], part.content);
                assert_eq!(text, b"{\"a\":1}");
                numbers.push(number);
            }
            Some(SpoolRecord::Ended { number }) => numbers.push(number),
            None => damaged += 1,
        })
        .unwrap();
        (numbers, damaged)
    }

    fn three() -> [Vec<u8>; 3] {
        [added(7, b"{\"a\":1}"), ended(8), added(9, b"{\"a\":1}")]
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        assert_eq!(read(&three().concat()), (vec![7, 8, 9], 0));
        assert_eq!(read(b""), (vec![], 0));
        let record = added(7, b"{}");
        let place = RecordPlace::of_record(&record, 100);
        assert_eq!((place.offset, place.record_bytes()), (101, record.len() as u64));
        assert_eq!(framed(&record[1..record.len() - 1]), record);
    }

    #[test]
    fn any_changed_byte_loses_the_record_that_it_is_in_and_no_other() {
        let [first, second, third] = three();
        let file = [&first[..], &second, &third].concat();
        for at in 0..file.len() {
            for changed in [0, b'\n', RECORD_START, b'x', file[at] ^ 1] {
                let mut file = file.clone();
                if std::mem::replace(&mut file[at], changed) == changed {
                    continue;
                }
                let hit = if at < first.len() {
                    7
                } else if at < first.len() + second.len() {
                    8
                } else {
                    9
                };
                let (numbers, _) = read(&file);
                let others: Vec<u64> = [7, 8, 9].into_iter().filter(|it| *it != hit).collect();
                let left: Vec<u64> = numbers.iter().copied().filter(|it| *it != hit).collect();
                assert_eq!(left, others, "byte {at} became {changed}");
            }
        }
    }

    #[test]
    fn a_file_that_ends_anywhere_has_the_records_that_were_written_to_their_end() {
        let [first, second, third] = three();
        let file = [&first[..], &second, &third].concat();
        for end in 0..=file.len() {
            let (numbers, damaged) = read(&file[..end]);
            // The line feed alone may be missing.
            let ends = [first.len(), first.len() + second.len(), file.len()];
            let whole = ends.iter().filter(|it| **it <= end + 1).count();
            assert_eq!(numbers, [7, 8, 9][..whole], "{end}");
            assert!(damaged <= 1, "{end}");
        }
    }

    #[test]
    fn a_line_without_an_end_is_read_in_pieces() {
        let file = [vec![b'x'; 9 << 20], b"\n".to_vec(), ended(3)].concat();
        let mut longest = 0;
        scan(&*file, |part| longest = longest.max(part.content.len())).unwrap();
        assert!(longest <= 4 << 20, "{longest}");
        assert_eq!(read(&file).0, [3]);
    }
}
