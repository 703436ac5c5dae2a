//! Reads what the API server logged since a position in its audit log.
//!
//! The API server starts a new file when the old one is too long, and keeps one old file. A log of many stories has some
//! hundred megabytes, so a story reads only what was logged since it began.
//! Elsewhere: what the lines say (`super::audit`, `super::requests`), the settings of the audit log (`crate::control_plane`).

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// A position in an audit log. It stays valid while the API server starts one new file.
#[derive(Debug, Clone)]
pub(super) struct AuditLogPosition {
    path: PathBuf,
    inode: u64,
    offset: u64,
}

impl AuditLogPosition {
    /// The position before the first line of the file that the API server now writes.
    ///
    /// # Errors
    /// The log cannot be read.
    pub(super) fn at_begin_of(path: &Path) -> Result<Self> {
        let file = std::fs::metadata(path).with_context(|| path.display().to_string())?;
        Ok(Self { path: path.to_owned(), inode: file.ino(), offset: 0 })
    }

    /// The position after what has been logged so far.
    ///
    /// # Errors
    /// The log cannot be read.
    pub(super) fn at_end_of(path: &Path) -> Result<Self> {
        let file = std::fs::metadata(path).with_context(|| path.display().to_string())?;
        Ok(Self { path: path.to_owned(), inode: file.ino(), offset: file.len() })
    }

    /// The lines that were logged since this position. A line that is not complete yet is left out.
    ///
    /// # Errors
    /// The log cannot be read, or the API server has started more than one new file.
    pub(super) fn logged_since(&self) -> Result<String> {
        Ok(self.read()?.0)
    }

    /// The same as [`Self::logged_since`]. Moves the position behind the lines.
    pub(super) fn advance(&mut self) -> Result<String> {
        let (text, position) = self.read()?;
        *self = position;
        Ok(text)
    }

    /// The lines that were logged since this position, and the position after them.
    fn read(&self) -> Result<(String, Self)> {
        let mut bytes = Vec::new();
        let mut current = open(&self.path)?;
        let inode = current.metadata()?.ino();
        let mut offset = self.offset;
        if inode != self.inode {
            let mut old = self.old_file()?;
            old.seek(SeekFrom::Start(self.offset))?;
            old.read_to_end(&mut bytes)?;
            offset = 0;
        }
        let old_length = bytes.len();
        current.seek(SeekFrom::Start(offset))?;
        current.read_to_end(&mut bytes)?;
        let complete = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        bytes.truncate(complete);
        offset += u64::try_from(complete.saturating_sub(old_length))?;
        let text = String::from_utf8(bytes).context("the audit log is not UTF-8")?;
        Ok((text, Self { path: self.path.clone(), inode, offset }))
    }

    /// The file of this position, which the API server has renamed.
    fn old_file(&self) -> Result<File> {
        let folder = self.path.parent().context("the audit log is in no folder")?;
        for entry in folder.read_dir()? {
            let entry = entry?;
            if entry.metadata()?.ino() == self.inode {
                return open(&entry.path());
            }
        }
        bail!("{}: the API server has removed lines that a story asks for", self.path.display())
    }
}

fn open(path: &Path) -> Result<File> {
    File::open(path).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn append(path: &Path, text: &str) {
        let mut file = File::options().create(true).append(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn only_what_was_logged_since_the_position_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("audit.log");
        append(&log, "one\n");
        let position = AuditLogPosition::at_end_of(&log).unwrap();
        append(&log, "two\nthr");
        assert_eq!(position.logged_since().unwrap(), "two\n");
    }

    #[test]
    fn what_was_logged_before_the_log_was_renamed_is_read_too() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("audit.log");
        append(&log, "one\n");
        let position = AuditLogPosition::at_end_of(&log).unwrap();
        append(&log, "two\n");
        std::fs::rename(&log, folder.path().join("audit-old.log")).unwrap();
        append(&log, "three\n");
        assert_eq!(position.logged_since().unwrap(), "two\nthree\n");
        std::fs::remove_file(folder.path().join("audit-old.log")).unwrap();
        assert!(position.logged_since().is_err());
    }

    #[test]
    fn an_incomplete_line_is_read_with_the_next_ones() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("audit.log");
        append(&log, "one\ntw");
        let mut position = AuditLogPosition::at_begin_of(&log).unwrap();
        assert_eq!(position.advance().unwrap(), "one\n");
        append(&log, "o\n");
        assert_eq!(position.advance().unwrap(), "two\n");
        assert_eq!(position.advance().unwrap(), "");
    }
}
