//! Stores the charts of plans in files of the storage folder. A plan that waits for its next run keeps the digests of its
//! charts in memory, and not their bytes.
//!
//! Equal charts of all Helmfiles are one file. The file is deleted with the last plan that has the chart. Elsewhere: what a
//! chart is (engine `helm`), charts that are in use (`helm_controller::release_runner::chart_cache`).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};
use std::{fs, io};

use helm::chart::{Chart, ChartFile, load};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

/// The folder in the storage folder.
const FOLDER: &str = "helmfile-charts";

/// The most bytes of the charts of all plans.
const MAX_STORED_BYTES: usize = 4 << 30;

/// The files of a chart, or its archive.
pub(super) enum ChartFilesOrArchive {
    /// The files of the chart, relative to the chart.
    Files(Vec<ChartFile>),
    /// The archive of the chart.
    Archive(Arc<[u8]>),
}

impl ChartFilesOrArchive {
    /// All bytes of the chart, piece by piece: names and contents with their lengths, or the archive.
    fn pieces(&self, mut each: impl FnMut(&[u8])) {
        match self {
            Self::Files(files) => {
                for file in files {
                    for part in [file.name.as_bytes(), file.data.as_ref()] {
                        each(&(part.len() as u64).to_le_bytes());
                        each(part);
                    }
                }
            }
            Self::Archive(archive) => each(archive.as_ref()),
        }
    }

    /// The digest of the content: `sha256:…`.
    pub(super) fn digest(&self) -> String {
        let mut hash = Sha256::new();
        self.pieces(|piece| hash.update(piece));
        format!("sha256:{}", hex::encode(hash.finalize()))
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.pieces(|piece| bytes.extend_from_slice(piece));
        bytes
    }

    /// The chart. `place` names it in errors.
    ///
    /// # Errors
    /// The messages are Helm's.
    pub(super) fn chart(self, place: &str) -> Result<Chart, String> {
        let loaded = match self {
            Self::Files(files) => load::folder(place, files),
            Self::Archive(archive) => load::archive_file(place, &archive),
        };
        loaded.map(|it| it.chart).map_err(|error| error.to_string())
    }
}

/// Parses the files that [`ChartFilesOrArchive::bytes`] joined. `None` if the bytes have another form.
fn files_of(mut bytes: &[u8]) -> Option<Vec<ChartFile>> {
    fn part<'b>(bytes: &mut &'b [u8]) -> Option<&'b [u8]> {
        let (length, rest) = bytes.split_first_chunk()?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        let (part, rest) = rest.split_at_checked(length)?;
        *bytes = rest;
        Some(part)
    }
    let mut files = Vec::new();
    while !bytes.is_empty() {
        let name = String::from_utf8(part(&mut bytes)?.to_vec()).ok()?;
        files.push(ChartFile { name, data: part(&mut bytes)?.into() });
    }
    Some(files)
}

/// The charts of all plans of a process. Each is in a file as long as a plan has it.
#[derive(Default)]
pub(super) struct ChartFolder {
    folder: OnceLock<PathBuf>,
    stored: Mutex<StoredCharts>,
}

#[derive(Default)]
struct StoredCharts {
    by_digest: BTreeMap<String, Weak<StoredChart>>,
    bytes: usize,
    /// The number of written files, from which each gets a name of its own.
    written: u64,
}

/// A chart in a file.
pub(super) struct StoredChart {
    folder: Weak<ChartFolder>,
    path: PathBuf,
    digest: String,
    bytes: usize,
    is_archive: bool,
    /// Names the chart in errors.
    place: String,
}

impl Drop for StoredChart {
    fn drop(&mut self) {
        // The storage folder is swept when the process starts.
        fs::remove_file(&self.path).ok();
        if let Some(folder) = self.folder.upgrade() {
            let mut stored = folder.stored.lock();
            stored.bytes = stored.bytes.saturating_sub(self.bytes);
            if stored.by_digest.get(&self.digest).is_some_and(|it| it.strong_count() == 0) {
                stored.by_digest.remove(&self.digest);
            }
        }
    }
}

impl ChartFolder {
    /// This folder, below the folder for scratch files of the process.
    pub(super) fn below(self: Arc<Self>, scratch: PathBuf) -> Arc<Self> {
        self.folder.get_or_init(|| scratch.join(FOLDER));
        self
    }

    /// Writes a chart to a file, unless another plan has already stored the same chart.
    ///
    /// # Errors
    /// There is no room for it, or it cannot be written.
    pub(super) fn store(
        self: &Arc<Self>,
        digest: &str,
        place: &str,
        input: &ChartFilesOrArchive,
    ) -> Result<Arc<StoredChart>, String> {
        let known = || self.stored.lock().by_digest.get(digest).and_then(Weak::upgrade);
        if let Some(known) = known() {
            return Ok(known);
        }
        let bytes = input.bytes();
        let number = self.reserve(bytes.len())?;
        let folder =
            self.folder.get().cloned().unwrap_or_else(|| std::env::temp_dir().join(FOLDER));
        let chart = Arc::new(StoredChart {
            folder: Arc::downgrade(self),
            path: folder.join(number.to_string()),
            digest: digest.to_owned(),
            bytes: bytes.len(),
            is_archive: matches!(input, ChartFilesOrArchive::Archive(_)),
            place: place.to_owned(),
        });
        let written = fs::create_dir_all(&folder).and_then(|()| fs::write(&chart.path, &bytes));
        written
            .map_err(|error| format!("{place}: cannot be kept in the storage folder: {error}"))?;
        self.stored.lock().by_digest.insert(digest.to_owned(), Arc::downgrade(&chart));
        Ok(chart)
    }

    /// The number of the next file, which has so many bytes.
    fn reserve(&self, bytes: usize) -> Result<u64, String> {
        let mut stored = self.stored.lock();
        let all = stored.bytes.saturating_add(bytes);
        if all > MAX_STORED_BYTES {
            return Err(format!(
                "the charts of all Helmfiles take more than {} GiB of the storage folder; use fewer or smaller charts",
                MAX_STORED_BYTES >> 30
            ));
        }
        stored.bytes = all;
        stored.written += 1;
        Ok(stored.written)
    }
}

impl StoredChart {
    /// Reads the chart. It blocks.
    ///
    /// # Errors
    /// The file cannot be read, or is another than was written.
    pub(super) fn load(&self) -> Result<Chart, String> {
        let failed = |error: io::Error| format!("{}: {error}", self.place);
        let bytes = fs::read(&self.path).map_err(failed)?;
        let changed = || format!("{}: its file in the storage folder was changed", self.place);
        if format!("sha256:{}", hex::encode(Sha256::digest(&bytes))) != self.digest {
            return Err(changed());
        }
        let input = match self.is_archive {
            true => ChartFilesOrArchive::Archive(bytes.into()),
            false => ChartFilesOrArchive::Files(files_of(&bytes).ok_or_else(changed)?),
        };
        input.chart(&self.place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(version: &str) -> ChartFilesOrArchive {
        let yaml = format!("apiVersion: v2\nname: web\nversion: {version}\n");
        let file = |name: &str, data: &str| ChartFile {
            name: name.to_owned(),
            data: data.as_bytes().into(),
        };
        ChartFilesOrArchive::Files(vec![
            file("Chart.yaml", &yaml),
            file("templates/a.yaml", "a: b\n"),
        ])
    }

    fn stored(folder: &Arc<ChartFolder>, input: &ChartFilesOrArchive) -> Arc<StoredChart> {
        folder.store(&input.digest(), "/charts/web", input).unwrap()
    }

    fn files(folder: &tempfile::TempDir) -> usize {
        fs::read_dir(folder.path().join(FOLDER)).unwrap().count()
    }

    #[test]
    fn a_chart_is_read_from_its_file_as_it_was_and_the_file_goes_with_the_last_plan() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = Arc::new(ChartFolder::default()).below(scratch.path().to_owned());
        let first = stored(&folder, &chart("1.0.0"));
        let same = stored(&folder, &chart("1.0.0"));
        let other = stored(&folder, &chart("2.0.0"));
        assert!(Arc::ptr_eq(&first, &same));
        assert_eq!(files(&scratch), 2);
        let loaded = other.load().unwrap();
        assert_eq!((&*loaded.metadata.version, loaded.templates.len()), ("2.0.0", 1));
        assert_eq!(*loaded.templates[0].data, *b"a: b\n");
        drop((first, other));
        assert_eq!(files(&scratch), 1, "another plan has it");
        drop(same);
        assert_eq!((files(&scratch), folder.stored.lock().bytes), (0, 0));
        assert!(folder.stored.lock().by_digest.is_empty());
        assert_eq!(stored(&folder, &chart("1.0.0")).load().unwrap().metadata.version, "1.0.0");
    }

    #[test]
    fn a_file_that_was_changed_is_no_chart() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = Arc::new(ChartFolder::default()).below(scratch.path().to_owned());
        let chart = stored(&folder, &chart("1.0.0"));
        fs::write(&chart.path, b"other").unwrap();
        assert!(chart.load().unwrap_err().contains("was changed"));
        fs::remove_file(&chart.path).unwrap();
        assert!(chart.load().unwrap_err().starts_with("/charts/web: "));
    }

    #[test]
    fn what_all_charts_may_take_is_bounded() {
        let folder = ChartFolder::default();
        assert_eq!(folder.reserve(MAX_STORED_BYTES), Ok(1));
        assert!(folder.reserve(1).unwrap_err().contains("4 GiB"));
    }

    #[test]
    fn bytes_that_are_no_files_are_refused() {
        assert_eq!(files_of(&chart("1.0.0").bytes()).map(|files| files.len()), Some(2));
        assert!(files_of(b"").is_some_and(|files| files.is_empty()));
        for broken in [&b"a"[..], &[255; 8], &[1, 0, 0, 0, 0, 0, 0, 0, 255]] {
            assert!(files_of(broken).is_none());
        }
    }
}
