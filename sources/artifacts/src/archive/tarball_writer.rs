//! Writes a canonical archive entry by entry.
//!
//! Here: order, bodies, padding, compression.
//! Elsewhere: the header blocks ([`super::header`]), putting entries in order ([`super::ArchiveContents`]).

use std::io::{self, Read, Write};

use flate2::{Compression, GzBuilder, write::GzEncoder};
use tree::RelPath;

use super::{
    Error,
    tar_header::{MAX_SIZE, TAR_BLOCK_BYTES, TarEntryDescription, blocks},
};

/// The modes of all entries in every archive. The modes of the source are dropped.
const FILE_MODE: u32 = 0o600;
const EXECUTABLE_MODE: u32 = 0o700;
const DIR_MODE: u32 = 0o750;

/// The gzip header's value for an unknown operating system.
const UNKNOWN_SYSTEM: u8 = 255;

/// Writes gzip around tar: regular files and folders only, owned by 0, at time zero.
///
/// # Guarantees
/// The same entries give the same bytes. The tar stream is, byte for byte, the one that Go's `archive/tar` writes for Flux.
/// The compressed bytes differ from Flux's, because compressors differ.
#[derive(Debug)]
pub struct TarballWriter<W: Write> {
    out: GzEncoder<W>,
    last: Option<RelPath>,
}

impl<W: Write> TarballWriter<W> {
    /// Begins a compressed archive that is written to `out`.
    pub fn new(out: W) -> Self {
        let gzip = GzBuilder::new().mtime(0).operating_system(UNKNOWN_SYSTEM);
        Self { out: gzip.write(out, Compression::default()), last: None }
    }

    /// Adds a folder. The root is a folder called `.`.
    ///
    /// # Errors
    /// The folder sorts before an entry that is written already, or the inner writer fails.
    pub fn dir(&mut self, path: &RelPath) -> Result<(), Error> {
        self.header(path, TarEntryDescription { flag: b'5', mode: DIR_MODE, size: 0 })
    }

    /// Adds a file of exactly `len` bytes.
    ///
    /// # Errors
    /// The file sorts before an entry that is written already, it is not `len` bytes long or longer than tar allows, or a
    /// reader or writer fails. The archive is then useless.
    pub fn file(
        &mut self,
        path: &RelPath,
        executable: bool,
        len: u64,
        body: &mut dyn Read,
    ) -> Result<(), Error> {
        if len > MAX_SIZE {
            return Err(Error::TooLarge { path: path.clone(), len });
        }
        let mode = if executable { EXECUTABLE_MODE } else { FILE_MODE };
        self.header(path, TarEntryDescription { flag: b'0', mode, size: len })?;
        let mut found = 0;
        let mut buffer = [0; 16 * 1024];
        // One byte more than announced is read, to detect a body that is too long.
        let mut body = body.take(len + 1);
        loop {
            let read = match body.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    return Err(Error::Load { path: path.clone(), source: error.into() });
                }
            };
            found += read as u64;
            if found > len {
                break;
            }
            self.out.write_all(&buffer[..read]).map_err(Error::Write)?;
        }
        if found != len {
            return Err(Error::Length { path: path.clone(), announced: len, found });
        }
        let used = usize::try_from(len % TAR_BLOCK_BYTES as u64).unwrap_or_default();
        let padding = used.next_multiple_of(TAR_BLOCK_BYTES) - used;
        self.out.write_all(&[0; TAR_BLOCK_BYTES][..padding]).map_err(Error::Write)
    }

    /// Ends the archive, and returns the inner writer.
    ///
    /// # Errors
    /// The inner writer fails.
    pub fn finish(mut self) -> Result<W, Error> {
        self.out.write_all(&[0; 2 * TAR_BLOCK_BYTES]).map_err(Error::Write)?;
        self.out.finish().map_err(Error::Write)
    }

    fn header(&mut self, path: &RelPath, entry: TarEntryDescription) -> Result<(), Error> {
        if let Some(after) = self.last.replace(path.clone())
            && after >= *path
        {
            return Err(Error::Order { path: path.clone(), after });
        }
        self.out.write_all(&blocks(path, entry)).map_err(Error::Write)
    }
}
