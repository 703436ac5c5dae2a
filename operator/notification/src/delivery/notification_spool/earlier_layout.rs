//! Reads the layout of earlier versions: a file for each notification, named by its number.

use std::fs;
use std::path::{Path, PathBuf};

use super::super::queued_notification::QueuedNotification;
use super::spool_file::SpoolFile;

/// The notifications that an earlier version left, in the order in which they came, and their files, which are removed once
/// the notifications have records.
#[derive(Default)]
pub(super) struct EarlierNotifications {
    pub(super) notifications: Vec<QueuedNotification>,
    paths: Vec<PathBuf>,
}

impl EarlierNotifications {
    /// Reads them. All other files of the folder are removed, except the one with records.
    pub(super) fn read(folder: &Path) -> Self {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        // The names have the same length, so this is the order of their numbers.
        paths.sort();
        let mut earlier = Self::default();
        for path in paths.into_iter().filter(|path| !SpoolFile::is_at(path)) {
            match read(&path) {
                Some(notification) => {
                    earlier.notifications.push(notification);
                    earlier.paths.push(path);
                }
                None => {
                    tracing::info!(file = %path.display(), "removed a file that is no notification");
                    drop(fs::remove_file(&path));
                }
            }
        }
        earlier
    }

    /// Removes their files, once the notifications have records.
    pub(super) fn remove_files(self) {
        self.paths.iter().for_each(|path| drop(fs::remove_file(path)));
    }
}

fn read(path: &Path) -> Option<QueuedNotification> {
    path.file_stem()?.to_str()?.parse::<u64>().ok()?;
    if path.extension()? != "json" {
        return None;
    }
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}
