//! The number in the name of an artifact's file, which depends on its content.
//!
//! Source of the semantics: source-watcher 2.2 `internal/builder/dirhash.go`, golang.org/x/mod `sumdb/dirhash`.

use std::fmt::Write as _;

use golang::work_meter::{WorkLimitExceeded, WorkMeter};
use tree::{FileKind, FileTree as _, MemoryTree, TreeError};

/// The largest prime below 2^16.
const ADLER_MODULUS: u32 = 65_521;

/// How many bytes can be added before a sum has to be reduced.
const ADLER_CHUNK_BYTES: usize = 5_552;

/// Why the content of a tree could not be hashed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContentHashError {
    /// A file's name has a line break.
    #[error("filenames with newlines are not supported")]
    LineBreak,
    /// A file of the artifact cannot be read.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The computation costs more than the meter allows.
    #[error(transparent)]
    Work(#[from] WorkLimitExceeded),
}

/// The number for a name and the files of a tree. Folders do not count.
pub(crate) fn file_name_hash(
    name: &str,
    files: &MemoryTree,
    meter: &mut WorkMeter,
) -> Result<u32, ContentHashError> {
    let mut paths = Vec::new();
    for (path, metadata) in files.walk() {
        if metadata.kind() != FileKind::File {
            continue;
        }
        if path.as_str().contains('\n') {
            return Err(ContentHashError::LineBreak);
        }
        paths.push(path);
    }
    // Paths are sorted as strings. A walk over the tree would put `a/b` before `a-b`.
    paths.sort_by(|a, b| a.as_str().cmp(b.as_str()));
    let mut sum = Adler32::default();
    let mut line = String::new();
    for path in paths {
        let body = files.read(path)?;
        meter.steps(1 + body.len() as u64)?;
        line.clear();
        // Writing to a String cannot fail.
        let _ = writeln!(line, "{:x}  {name}/{path}", Adler32::of(&body));
        sum.add(line.as_bytes());
    }
    Ok(sum.value())
}

/// The checksum of RFC 1950.
#[derive(Debug)]
struct Adler32 {
    low: u32,
    high: u32,
}

impl Default for Adler32 {
    fn default() -> Self {
        Self { low: 1, high: 0 }
    }
}

impl Adler32 {
    fn of(bytes: &[u8]) -> u32 {
        let mut sum = Self::default();
        sum.add(bytes);
        sum.value()
    }

    fn add(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(ADLER_CHUNK_BYTES) {
            for byte in chunk {
                self.low += u32::from(*byte);
                self.high += self.low;
            }
            self.low %= ADLER_MODULUS;
            self.high %= ADLER_MODULUS;
        }
    }

    fn value(&self) -> u32 {
        self.high << 16 | self.low
    }
}

#[cfg(test)]
mod tests {
    use golang::work_meter::{StopSignal, WorkAllowance};

    use super::*;

    #[test]
    fn checksums_are_those_of_the_standard() {
        assert_eq!(Adler32::of(b""), 1);
        assert_eq!(Adler32::of(b"Wikipedia"), 0x11e6_0398);
        assert_eq!(Adler32::of(&[0xff; 100_000]), 0x149a_302c);
    }

    #[test]
    fn a_name_with_a_line_break_has_no_number() {
        let files = MemoryTree::from_files([("a\nb", "")]).unwrap();
        let mut meter = WorkMeter::new(WorkAllowance::UNLIMITED, StopSignal::default());
        assert_eq!(file_name_hash("x", &files, &mut meter), Err(ContentHashError::LineBreak));
    }
}
