//! The targets of an extraction, which take the extracted files.
//!
//! Here: a tree in memory, and a fresh directory on disk.
//! Elsewhere: which entries are extracted ([`super::extract`]).

use std::{
    fs::{self, DirBuilder, OpenOptions, Permissions},
    io::{self, Read},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use tree::{MemoryTreeBuilder, RelPath};

use super::ExtractError;

/// The target of an extraction. It gets the entries in the archive's order.
pub(super) trait ExtractionSink {
    fn dir(&mut self, path: &RelPath, mode: u32) -> Result<(), ExtractError>;

    /// Takes a file of exactly `size` bytes.
    fn file(
        &mut self,
        path: &RelPath,
        mode: u32,
        size: u64,
        body: &mut dyn Read,
    ) -> Result<(), ExtractError>;
}

impl ExtractionSink for MemoryTreeBuilder {
    fn dir(&mut self, path: &RelPath, _mode: u32) -> Result<(), ExtractError> {
        Ok(Self::dir(self, path)?)
    }

    fn file(
        &mut self,
        path: &RelPath,
        mode: u32,
        size: u64,
        body: &mut dyn Read,
    ) -> Result<(), ExtractError> {
        self.admits(path, size)?;
        // The size is a claim until the bytes are there, so memory grows with the bytes.
        let mut bytes = Vec::new();
        body.take(size).read_to_end(&mut bytes)?;
        is_whole(path, size, bytes.len() as u64)?;
        Ok(Self::file(self, path, bytes, mode & 0o111 != 0)?)
    }
}

/// A directory that was empty before the extraction, so that no link in it leads elsewhere.
#[derive(Debug)]
pub(super) struct ExtractionFolder<'a> {
    root: &'a Path,
}

impl<'a> ExtractionFolder<'a> {
    /// Creates the directory. An existing directory must be empty.
    pub(super) fn new(root: &'a Path) -> Result<Self, ExtractError> {
        make_dirs(root, 0o750)?;
        let is_empty = fs::read_dir(root).map_err(failed("read", root))?.next().is_none();
        if !is_empty {
            return Err(ExtractError::NotEmpty(root.to_owned()));
        }
        Ok(Self { root })
    }

    fn place(&self, path: &RelPath) -> PathBuf {
        self.root.join(path.as_str())
    }
}

impl ExtractionSink for ExtractionFolder<'_> {
    fn dir(&mut self, path: &RelPath, mode: u32) -> Result<(), ExtractError> {
        // The owner must be able to clean up, so the mode in the archive is not enough.
        make_dirs(&self.place(path), mode | 0o700)
    }

    fn file(
        &mut self,
        path: &RelPath,
        mode: u32,
        size: u64,
        body: &mut dyn Read,
    ) -> Result<(), ExtractError> {
        let place = self.place(path);
        if place.is_dir() {
            return Err(ExtractError::IsDirectory(place.display().to_string()));
        }
        make_dirs(place.parent().unwrap_or(self.root), 0o750)?;
        // The mode for other users does not depend on the umask, and never allows writing.
        let mode = mode & 0o755;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(mode);
        let mut file = options.open(&place).map_err(failed("write", &place))?;
        file.set_permissions(Permissions::from_mode(mode)).map_err(failed("write", &place))?;
        let mut written = 0;
        let mut buffer = [0; 16 * 1024];
        let mut body = body.take(size);
        loop {
            let read = body.read(&mut buffer)?;
            if read == 0 {
                return is_whole(path, size, written);
            }
            io::Write::write_all(&mut file, &buffer[..read]).map_err(failed("write", &place))?;
            written += read as u64;
        }
    }
}

fn make_dirs(place: &Path, mode: u32) -> Result<(), ExtractError> {
    let made = DirBuilder::new().recursive(true).mode(mode).create(place);
    made.map_err(|error| {
        let file = place.ancestors().find(|above| above.is_file());
        match file {
            Some(file) => ExtractError::NotDirectory(file.display().to_string()),
            None => failed("create", place)(error),
        }
    })
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ExtractError {
    let path = path.to_owned();
    move |source| ExtractError::Disk { action, path, source }
}

fn is_whole(path: &RelPath, size: u64, found: u64) -> Result<(), ExtractError> {
    if found == size {
        return Ok(());
    }
    Err(ExtractError::Truncated { path: path.clone(), size, found })
}
