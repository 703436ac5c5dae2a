//! A file without a name that holds downloaded objects until they are packed.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicU64, Ordering};

/// An unnamed temporary file that holds downloaded bodies until they are packed.
/// Several threads may write bodies at once.
#[derive(Debug)]
pub(super) struct DownloadSpool {
    file: File,
    end: AtomicU64,
}

/// A body in a spool.
#[derive(Debug, Clone, Copy)]
pub(super) struct DownloadSpoolRange {
    offset: u64,
    len: usize,
}

impl DownloadSpool {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { file: tempfile::tempfile()?, end: AtomicU64::new(0) })
    }

    /// Adds a body to the file. Blocks.
    pub(super) fn put(&self, body: &[u8]) -> io::Result<DownloadSpoolRange> {
        let offset = self.end.fetch_add(body.len() as u64, Ordering::Relaxed);
        self.file.write_all_at(body, offset)?;
        Ok(DownloadSpoolRange { offset, len: body.len() })
    }

    /// A body that was put in. Blocks.
    pub(super) fn read(&self, place: DownloadSpoolRange) -> io::Result<Vec<u8>> {
        let mut body = vec![0; place.len];
        self.file.read_exact_at(&mut body, place.offset)?;
        Ok(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_come_back_as_they_were_put_in() {
        let spool = DownloadSpool::new().unwrap();
        let bodies: [&[u8]; 3] = [b"one", b"", b"three"];
        let places = bodies.map(|body| spool.put(body).unwrap());
        assert_eq!(places.map(|place| spool.read(place).unwrap()), bodies.map(<[u8]>::to_vec));
    }
}
