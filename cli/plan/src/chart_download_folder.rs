//! A cache of the charts and repository indexes that earlier runs fetched, in a folder of the user.
//!
//! Here: the files of the folder, its maximum size, and removing files. Elsewhere: cache keys and validity
//! (`sources::charts::download_cache`), fetching (`chart_fetch.rs`).
//!
//! Several runs may use the folder at once. A file gets its final name when it is complete, and a file that another run removed
//! is fetched again.
//! The folder can influence which chart version a range selects, if the repository says that its index has not changed. So only
//! trusted users may write to the folder.

use std::env;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use sources::charts::{
    CachedDownload, DownloadCache, DownloadCacheKey, HttpEtagAndLastModified, MAX_INDEX,
};

use windlass_cli_runtime::connection::{ProgressGlyph, say};

/// The name of this folder in the cache folder of the user. It contains a version, because another version of windlass may
/// write other files.
const FOLDER: &str = "charts-v1";

/// The maximum size of all files, in bytes.
const MAX_FOLDER_BYTES: u64 = 512 << 20;

/// The maximum size of one file, in bytes: the largest index and its first line.
const MAX_FILE_BYTES: u64 = MAX_INDEX + (64 << 10);

/// The prefix of files that are still being written.
const UNFINISHED: &str = ".new-";

/// After this time, an unfinished file counts as left behind by a killed run.
const MAX_WRITE_TIME: Duration = Duration::from_secs(3600);

/// The first line of a file, as JSON.
#[derive(Debug, Serialize, Deserialize)]
struct DownloadedFileHeader {
    /// The digest of the rest of the file.
    sha256: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    etag: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    modified: Option<String>,
}

/// The folder with the fetched files. It is created when the first file is stored.
pub(crate) struct ChartDownloadFolder {
    folder: PathBuf,
    most: u64,
    /// Whether the warning that nothing can be stored was already printed.
    is_failure_said: AtomicBool,
}

impl ChartDownloadFolder {
    /// Uses a given folder, or the user's default cache folder. Returns `None` if the environment names no such folder.
    pub(crate) fn new(folder: Option<PathBuf>) -> Option<Self> {
        let folder = folder.or_else(default_folder)?.join(FOLDER);
        Some(Self { folder, most: MAX_FOLDER_BYTES, is_failure_said: AtomicBool::new(false) })
    }

    fn read(&self, key: &DownloadCacheKey) -> Option<CachedDownload> {
        let file = File::open(self.folder.join(key.text())).ok()?;
        let mut content = Vec::new();
        (&file).take(MAX_FILE_BYTES + 1).read_to_end(&mut content).ok()?;
        let end = memchr::memchr(b'\n', &content)?;
        let bytes = content.split_off(end + 1);
        let header: DownloadedFileHeader = serde_json::from_slice(&content).ok()?;
        if hex::encode(Sha256::digest(&bytes)) != header.sha256 {
            return None;
        }
        // The least recently used file is removed first. If the time cannot be updated, the file is removed earlier.
        drop(file.set_modified(SystemTime::now()));
        let validators = HttpEtagAndLastModified { etag: header.etag, modified: header.modified };
        Some(CachedDownload { bytes, validators })
    }

    fn write(&self, key: &DownloadCacheKey, download: &CachedDownload) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let HttpEtagAndLastModified { etag, modified } = download.validators.clone();
        let sha256 = hex::encode(Sha256::digest(&download.bytes));
        let mut content = serde_json::to_vec(&DownloadedFileHeader { sha256, etag, modified })?;
        content.push(b'\n');
        let mut file = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(&self.folder)?;
        file.write_all(&content)?;
        file.write_all(&download.bytes)?;
        file.persist(self.folder.join(key.text())).map_err(|failed| failed.error)?;
        self.remove_excess()
    }

    /// Removes the least recently used files until the rest fits. Files of other programs stay.
    fn remove_excess(&self) -> io::Result<()> {
        let now = SystemTime::now();
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            // Another run may have removed the file.
            let Ok(known) = entry.metadata() else { continue };
            let used = known.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let is_key = name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
            if known.is_file() && is_key {
                files.push((used, entry.path(), known.len()));
            }
            let age = now.duration_since(used).unwrap_or_default();
            if known.is_file() && name.starts_with(UNFINISHED) && age > MAX_WRITE_TIME {
                drop(fs::remove_file(entry.path()));
            }
        }
        files.sort();
        let mut total = 0_u64;
        for (_, path, length) in files.iter().rev() {
            total = total.saturating_add(*length);
            if total > self.most {
                drop(fs::remove_file(path));
            }
        }
        Ok(())
    }
}

impl DownloadCache for ChartDownloadFolder {
    fn download(&self, key: &DownloadCacheKey) -> Option<CachedDownload> {
        self.read(key)
    }

    fn keep(&self, key: &DownloadCacheKey, download: &CachedDownload) {
        let Err(error) = self.write(key, download) else { return };
        if !self.is_failure_said.swap(true, Ordering::Relaxed) {
            let folder = self.folder.display();
            let text = format!(
                "charts are not kept for the next run, because {folder} cannot be written: {error}; --cache-dir names \
                 another folder"
            );
            say(ProgressGlyph::Warning, &plan::clean_line(&text));
        }
    }
}

/// The cache folder of windlass for this user.
fn default_folder() -> Option<PathBuf> {
    // Relative paths are ignored, as the specification of these variables requires.
    let named = |name: &str| env::var_os(name).map(PathBuf::from).filter(|it| it.is_absolute());
    let of_home = || {
        let caches = if cfg!(target_os = "macos") { "Library/Caches" } else { ".cache" };
        named("HOME").map(|home| home.join(caches))
    };
    let caches = named("XDG_CACHE_HOME").or_else(of_home)?;
    Some(caches.join("windlass/plan"))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn folder_of(folder: &TempDir, most: u64) -> ChartDownloadFolder {
        let folder = ChartDownloadFolder::new(Some(folder.path().to_owned())).unwrap();
        ChartDownloadFolder { most, ..folder }
    }

    fn download(text: &str, etag: Option<&str>) -> CachedDownload {
        let validators = HttpEtagAndLastModified { etag: etag.map(str::to_owned), modified: None };
        CachedDownload { bytes: text.as_bytes().to_vec(), validators }
    }

    #[test]
    fn what_is_kept_is_found_by_another_run_until_the_file_is_damaged() {
        let place = tempfile::tempdir().unwrap();
        let key = DownloadCacheKey::of(&["archive", "https://example.com"]);
        assert_eq!(folder_of(&place, 1000).download(&key), None);
        let kept = download("one\ntwo", Some("\"1\""));
        folder_of(&place, 1000).keep(&key, &kept);
        assert_eq!(folder_of(&place, 1000).download(&key), Some(kept));
        let other = DownloadCacheKey::of(&["archive", "https://example.org"]);
        assert_eq!(folder_of(&place, 1000).download(&other), None);
        let file = place.path().join(FOLDER).join(key.text());
        let mut content = fs::read(&file).unwrap();
        *content.last_mut().unwrap() ^= 1;
        fs::write(&file, content).unwrap();
        assert_eq!(folder_of(&place, 1000).download(&key), None);
    }

    #[test]
    fn what_was_used_longest_ago_goes_first_and_files_of_others_stay() {
        let place = tempfile::tempdir().unwrap();
        // Three files fit into the folder.
        let folder = folder_of(&place, 1200);
        let keys = ["a", "b", "c"].map(|part| DownloadCacheKey::of(&[part]));
        let foreign = place.path().join(FOLDER).join("notes.txt");
        for (at, key) in keys.iter().enumerate() {
            folder.keep(key, &download(&"x".repeat(300), None));
            fs::write(&foreign, "y".repeat(5000)).unwrap();
            let used = SystemTime::now() - Duration::from_secs(100 - u64::try_from(at).unwrap());
            let file = File::options().write(true).open(folder.folder.join(key.text())).unwrap();
            file.set_modified(used).unwrap();
        }
        // Using the oldest file makes it the newest.
        assert!(folder.download(&keys[0]).is_some());
        folder.keep(&DownloadCacheKey::of(&["d"]), &download(&"x".repeat(300), None));
        assert!(folder.download(&keys[0]).is_some());
        assert!(folder.download(&keys[1]).is_none());
        assert!(foreign.exists());
    }

    #[test]
    fn a_folder_that_cannot_be_written_keeps_nothing_and_fails_nothing() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        fs::write(&file, "text").unwrap();
        let folder = ChartDownloadFolder::new(Some(file)).unwrap();
        let key = DownloadCacheKey::of(&["a"]);
        folder.keep(&key, &download("x", None));
        assert_eq!(folder.download(&key), None);
        assert!(folder.is_failure_said.load(Ordering::Relaxed));
    }
}
