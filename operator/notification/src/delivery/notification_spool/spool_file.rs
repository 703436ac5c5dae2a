//! The file of waiting notifications: appending, reading at a place, and writing it anew without what has come to its end.
//!
//! What is appended is flushed to the disk later, once for many records ([`SpoolFile::unflushed`]). Everything here may block.
//! Elsewhere: the bytes of a record (`spool_records`), which notifications wait (`notification_spool`).

use std::fs::{self, File, TryLockError};
use std::io::{self, BufReader, BufWriter, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, FileExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::spool_records::{self, RecordPlace, SpoolFilePart};

/// The name of the file.
const FILE_NAME: &str = "waiting.records";

/// The name of the file that is written anew, until it is complete.
const UNFINISHED_NAME: &str = "waiting.unfinished";

/// How many bytes of ended notifications may be in the file, also if fewer bytes wait.
const MIN_DEAD_BYTES: u64 = 1 << 20;

/// After a failed write, the file is not written anew before this time.
const WRITE_RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// The file of waiting notifications, which this process alone writes.
pub(super) struct SpoolFile {
    folder: PathBuf,
    /// The opened folder. It is locked, so that no other process writes the file.
    directory: File,
    file: Arc<File>,
    /// How many bytes the file has. The next record is written there.
    end: u64,
    is_unflushed: bool,
    /// Whether records could not be appended. The file lacks them until it is written anew.
    lacks_records: bool,
    /// When the file may be written anew at the earliest. `None` if no write has failed.
    replaceable_at: Option<Instant>,
}

impl SpoolFile {
    /// Opens the file, or creates it.
    ///
    /// # Errors
    /// The folder cannot be used. If another process uses it, the kind is [`io::ErrorKind::WouldBlock`].
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
        let directory = File::open(folder)?;
        // File systems without locks are used by one process all the same.
        if matches!(directory.try_lock(), Err(TryLockError::WouldBlock)) {
            let text = "another process uses the folder";
            return Err(io::Error::new(io::ErrorKind::WouldBlock, text));
        }
        let mut options = File::options();
        let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(folder.join(FILE_NAME))?;
        Ok(Self {
            folder: folder.to_owned(),
            directory,
            end: file.metadata()?.len(),
            file: Arc::new(file),
            is_unflushed: false,
            lacks_records: false,
            replaceable_at: None,
        })
    }

    /// Whether a path in the folder is that of the file.
    pub(super) fn is_at(path: &Path) -> bool {
        path.file_name().is_some_and(|name| name == FILE_NAME)
    }

    /// The file for readers. It stays as it is when the file is written anew.
    pub(super) fn reader(&self) -> Arc<File> {
        self.file.clone()
    }

    /// Passes each part of the file to a function. It is called once, after the file was opened.
    ///
    /// # Errors
    /// The file cannot be read to its end.
    pub(super) fn scan(&self, each: impl FnMut(SpoolFilePart<'_>)) -> io::Result<()> {
        spool_records::scan(BufReader::new(&*self.file), each)
    }

    /// Appends records, and returns where they begin.
    ///
    /// # Errors
    /// The disk does not take them. The file is as before, and [`Self::lacks_records`] from then on.
    pub(super) fn append(&mut self, records: &[u8]) -> io::Result<u64> {
        let begin = self.end;
        if let Err(error) = self.file.write_all_at(records, begin) {
            // On a full disk, what was written of them has to be removed to make room.
            drop(self.file.set_len(begin));
            self.lacks_records = true;
            self.pause_replacements();
            return Err(error);
        }
        self.end += records.len() as u64;
        self.is_unflushed = true;
        Ok(begin)
    }

    /// Removes all records, since no notification waits.
    ///
    /// # Errors
    /// The disk does not do it.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        if self.end > 0 {
            self.file.set_len(0)?;
        }
        self.end = 0;
        self.lacks_records = false;
        self.replaceable_at = None;
        Ok(())
    }

    /// Whether records could not be appended, and the file was not written anew since then.
    pub(super) fn lacks_records(&self) -> bool {
        self.lacks_records
    }

    /// Notifications wait whose records are not in the file, so it has to be written anew.
    pub(super) fn needs_records(&mut self) {
        self.lacks_records = true;
    }

    /// Whether the file may be written anew now. After a write that failed it may not for a while.
    pub(super) fn may_be_replaced(&self) -> bool {
        self.replaceable_at.is_none_or(|at| at <= Instant::now())
    }

    fn pause_replacements(&mut self) {
        self.replaceable_at = Some(Instant::now() + WRITE_RETRY_INTERVAL);
    }

    /// Whether most of the file is about notifications that have come to their end. `live` is how many bytes the records of
    /// waiting ones have.
    pub(super) fn is_mostly_dead(&self, live: u64) -> bool {
        self.end.saturating_sub(live) > live.max(MIN_DEAD_BYTES)
    }

    /// Writes the file anew with these records, which are on the disk then. Until that is done, the file stays as it is.
    ///
    /// # Errors
    /// The disk does not take them, or a record cannot be read.
    pub(super) fn replace(
        &mut self,
        records: impl Iterator<Item = io::Result<Vec<u8>>>,
    ) -> io::Result<()> {
        let unfinished = self.folder.join(UNFINISHED_NAME);
        let written = self.write_replacement(&unfinished, records);
        match written {
            Ok(ReplacementFile { file, bytes }) => {
                self.file = Arc::new(file);
                self.end = bytes;
                self.is_unflushed = false;
                self.lacks_records = false;
                self.replaceable_at = None;
                Ok(())
            }
            Err(error) => {
                drop(fs::remove_file(&unfinished));
                self.pause_replacements();
                Err(error)
            }
        }
    }

    fn write_replacement(
        &self,
        path: &Path,
        records: impl Iterator<Item = io::Result<Vec<u8>>>,
    ) -> io::Result<ReplacementFile> {
        let mut options = File::options();
        let options = options.read(true).write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(path)?;
        let mut bytes = 0;
        let mut buffered = BufWriter::new(&file);
        for record in records {
            let record = record?;
            buffered.write_all(&record)?;
            bytes += record.len() as u64;
        }
        buffered.flush()?;
        drop(buffered);
        file.sync_all()?;
        fs::rename(path, self.folder.join(FILE_NAME))?;
        // From here on the new file is the one that counts, also if the folder cannot be flushed.
        drop(self.directory.sync_all());
        Ok(ReplacementFile { file, bytes })
    }

    /// The file, if records were appended that are not flushed to the disk. They count as flushed from then on. `None` if all
    /// records are flushed.
    pub(super) fn unflushed(&mut self) -> Option<Arc<File>> {
        std::mem::take(&mut self.is_unflushed).then(|| self.file.clone())
    }
}

/// A file in place of the former one.
struct ReplacementFile {
    file: File,
    bytes: u64,
}

/// Reads the content of a record.
///
/// # Errors
/// The file ends before, or cannot be read.
pub(super) fn read_content(file: &File, place: RecordPlace) -> io::Result<Vec<u8>> {
    let mut content = vec![0; place.len];
    file.read_exact_at(&mut content, place.offset)?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(folder: &Path) -> Vec<u8> {
        fs::read(folder.join(FILE_NAME)).unwrap()
    }

    #[test]
    fn readers_of_a_file_that_is_written_anew_read_what_they_did_before() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = SpoolFile::open(folder.path()).unwrap();
        assert_eq!(file.append(b"first").unwrap(), 0);
        assert_eq!(file.append(b"second").unwrap(), 5);
        let reader = file.reader();
        let second = RecordPlace { offset: 5, len: 6 };
        file.replace([Ok(b"second".to_vec())].into_iter()).unwrap();
        assert_eq!(read_content(&reader, second).unwrap(), b"second");
        assert!(read_content(&file.reader(), second).is_err(), "it is elsewhere now");
        assert_eq!(file.append(b"third").unwrap(), 6);
        assert_eq!(bytes(folder.path()), b"secondthird");
    }

    #[test]
    fn a_replacement_that_fails_changes_nothing_and_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = SpoolFile::open(folder.path()).unwrap();
        file.append(b"first").unwrap();
        let broken = [Ok(b"new".to_vec()), Err(io::Error::other("broken"))];
        assert!(file.replace(broken.into_iter()).is_err());
        assert!(!file.lacks_records() && !file.may_be_replaced());
        assert_eq!(file.append(b"second").unwrap(), 5);
        assert_eq!(bytes(folder.path()), b"firstsecond");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_second_process_does_not_write_the_same_file() {
        let folder = tempfile::tempdir().unwrap();
        let first = SpoolFile::open(folder.path()).unwrap();
        let refused = SpoolFile::open(folder.path()).err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock, "{refused}");
        drop(first);
        assert!(SpoolFile::open(folder.path()).is_ok());
    }

    #[test]
    fn only_what_was_appended_since_is_flushed() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = SpoolFile::open(folder.path()).unwrap();
        assert!(file.unflushed().is_none());
        file.append(b"first").unwrap();
        file.append(b"second").unwrap();
        assert!(file.unflushed().is_some());
        assert!(file.unflushed().is_none(), "once for both");
    }
}
