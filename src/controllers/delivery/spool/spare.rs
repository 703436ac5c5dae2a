//! Files of notifications that have come to their end, for the next ones.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The folder in that of the artifacts.
const FOLDER: &str = ".notifications-spare";

/// How many files are kept.
const MOST: usize = 64;

/// See the module. Where a file cannot be kept it is removed, and where none can be taken one is made.
#[derive(Default)]
pub(super) struct Spare {
    /// None where there is no folder.
    folder: Option<PathBuf>,
    /// The numbers of the files that are there, and those that are not.
    numbers: Mutex<(Vec<usize>, Vec<usize>)>,
}

impl Spare {
    /// In the folder of the artifacts. What a former process left is removed.
    pub(super) fn new(storage: &Path) -> Self {
        let folder = storage.join(FOLDER);
        drop(fs::remove_dir_all(&folder));
        let folder = super::prepare(&folder).is_ok().then_some(folder);
        Self { folder, numbers: Mutex::new((Vec::new(), (0..MOST).collect())) }
    }

    fn path(&self, number: usize) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.join(number.to_string()))
    }

    /// Moves a file to where one is to be written, if there is any.
    pub(super) fn take(&self, to: &Path) {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(number) = numbers.0.pop() else { return };
        if let Some(from) = self.path(number) {
            drop(fs::rename(from, to));
        }
        numbers.1.push(number);
    }

    /// Keeps a file that is not needed any more.
    pub(super) fn put(&self, file: &Path) {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let free = numbers.1.pop();
        match free.and_then(|number| self.path(number)) {
            Some(to) if fs::rename(file, &to).is_ok() => numbers.0.extend(free),
            _ => {
                numbers.1.extend(free);
                drop(numbers);
                drop(fs::remove_file(file));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_kept_up_to_a_number_and_taken_again() {
        let folder = tempfile::tempdir().unwrap();
        let spare = Spare::new(folder.path());
        let count = || fs::read_dir(folder.path().join(FOLDER)).unwrap().count();
        let file = folder.path().join("file");
        for _ in 0..MOST + 3 {
            fs::write(&file, "old").unwrap();
            spare.put(&file);
            assert!(!file.exists());
        }
        assert_eq!(count(), MOST);
        spare.put(&folder.path().join("missing"));
        for _ in 0..MOST {
            spare.take(&file);
            assert!(file.exists());
            fs::remove_file(&file).unwrap();
        }
        spare.take(&file);
        assert!(!file.exists() && count() == 0);
        fs::write(&file, "old").unwrap();
        spare.put(&file);
        Spare::new(folder.path());
        assert_eq!(count(), 0, "what a former process left is there");
    }
}
