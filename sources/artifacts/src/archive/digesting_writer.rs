//! A writer that computes the digest and the size of the bytes that pass through it.
//!
//! Elsewhere: checking a digest later ([`crate::store`]).

use std::io::{self, Write};

use sha2::{Digest as _, Sha256};

/// The digest and size of an artifact that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveDigest {
    /// `sha256:` and 64 hexadecimal digits, over all bytes written.
    pub digest: String,
    /// The number of bytes written.
    pub size: u64,
}

/// A writer that hashes and counts what passes through it.
#[derive(Debug)]
pub struct DigestingWriter<W> {
    out: W,
    hash: Sha256,
    size: u64,
}

impl<W: Write> DigestingWriter<W> {
    /// A writer that has written nothing yet.
    pub fn new(out: W) -> Self {
        Self { out, hash: Sha256::new(), size: 0 }
    }

    /// Returns the inner writer, and the digest and size of the written bytes.
    pub fn finish(self) -> (W, ArchiveDigest) {
        let digest = format!("sha256:{}", hex::encode(self.hash.finalize()));
        (self.out, ArchiveDigest { digest, size: self.size })
    }
}

impl<W: Write> Write for DigestingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
