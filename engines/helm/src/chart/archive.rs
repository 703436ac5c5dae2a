//! Reads chart archives (gzip and tar) in memory.
//!
//! Like Helm, this code checks file names before it reads contents, and trusts the sizes in the archive. It never
//! writes to a disk. Here: turning bytes into files. Elsewhere: recognizing archives (`chart/content_type.rs`), and the
//! meaning of the files (`chart/load.rs`).

use std::cell::RefCell;
use std::io::{self, Read};
use std::rc::Rc;

use flate2::read::MultiGzDecoder;
use tar::{Archive, Entry, EntryType};

use super::{ChartFile, go_path_and_quote::quoted};

/// How many bytes the files of one archive may have together.
pub(crate) const MAX_CHART_SIZE: u64 = 100 << 20;

/// How many bytes one file may have.
pub const MAX_FILE_SIZE: u64 = 5 << 20;

/// How many entries an archive may have, including the archives in it. Differs(helm 4): it has no limit.
pub const MAX_ENTRIES: usize = 50_000;

/// How many bytes an archive may have when unpacked, including the archives in it. Differs(helm 4): each archive in
/// another may be as large as [`MAX_CHART_SIZE`] again.
pub const MAX_UNPACKED: u64 = 200 << 20;

/// Why an archive cannot be unpacked. The messages are Helm's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChartArchiveError {
    /// The data does not begin like gzip.
    #[error("gzip: invalid header")]
    NotGzip,
    /// The archive ends before its first file.
    #[error("EOF")]
    Empty,
    /// The archive ends too early.
    #[error("unexpected EOF")]
    Truncated,
    /// The checksum of the compressed data does not match.
    #[error("gzip: invalid checksum")]
    Checksum,
    /// The compressed data is damaged. Differs(helm 4): Go reports at which byte.
    #[error("flate: corrupt input")]
    Corrupt,
    /// The tar data is damaged.
    #[error("archive/tar: invalid tar header")]
    NotTar,
    /// A path begins with a slash.
    #[error("chart illegally contains absolute paths")]
    Absolute,
    /// A file is outside the folder of the chart. The text is its name.
    #[error("chart illegally contains content outside the base directory: {0}")]
    OutsideBase(String),
    /// A path leads out of the chart.
    #[error("chart illegally references parent directory")]
    Parent,
    /// A path has the name of a drive.
    #[error("chart contains illegally named files")]
    Drive,
    /// `Chart.yaml` is a folder.
    #[error("chart yaml not in base directory")]
    ChartYamlIsFolder,
    /// The archive is larger than [`MAX_CHART_SIZE`].
    #[error("decompressed chart is larger than the maximum size {MAX_CHART_SIZE}")]
    TooLarge,
    /// A file is larger than [`MAX_FILE_SIZE`]. The text is its name.
    #[error("decompressed chart file {0} is larger than the maximum file size {MAX_FILE_SIZE}")]
    FileTooLarge(String),
    /// The archive has no files.
    #[error("no files in chart archive")]
    NoFiles,
    /// The archives have more than [`MAX_ENTRIES`] entries.
    #[error("the chart's archives have more than {MAX_ENTRIES} entries")]
    TooManyEntries,
    /// The unpacked archives are larger than [`MAX_UNPACKED`].
    #[error("the chart's archives are larger than {MAX_UNPACKED} bytes when they are unpacked")]
    TooMuch,
}

/// How many entries and bytes may still be read from an archive and the archives in it.
#[derive(Debug)]
pub(super) struct ChartArchiveBudget {
    entries: usize,
    bytes: u64,
}

impl ChartArchiveBudget {
    pub(super) fn new() -> Self {
        Self { entries: MAX_ENTRIES, bytes: MAX_UNPACKED }
    }
}

/// Reads the files of an archive. Their names do not include the folder of the chart.
pub(super) fn files(
    archive: &[u8],
    budget: &mut ChartArchiveBudget,
) -> Result<Vec<ChartFile>, ChartArchiveError> {
    check_header(archive)?;
    let fault = Rc::new(RefCell::new(None));
    let gunzipped = MultiGzDecoder::new(archive);
    let left = Rc::new(RefCell::new(budget.bytes));
    let source = ChartArchiveSource { gunzipped, left: Rc::clone(&left), fault: Rc::clone(&fault) };
    let read = read(source, &mut budget.entries);
    budget.bytes = *left.borrow();
    // An error of gzip takes precedence, even if the tar reader fails because of it first.
    match fault.take() {
        Some(fault)
            if matches!(read, Err(ChartArchiveError::NotTar | ChartArchiveError::Truncated)) =>
        {
            Err(fault)
        }
        _ => read,
    }
}

fn read(source: impl Read, entries_left: &mut usize) -> Result<Vec<ChartFile>, ChartArchiveError> {
    let mut archive = Archive::new(source);
    let mut files = Vec::new();
    let mut has_files = false;
    let mut remaining = MAX_CHART_SIZE;
    for entry in archive.entries().map_err(|error| tar_fault(&error))? {
        let mut entry = entry.map_err(|error| tar_fault(&error))?;
        *entries_left = entries_left.checked_sub(1).ok_or(ChartArchiveError::TooManyEntries)?;
        if is_folder(&entry) || entry.header().entry_type() == EntryType::XGlobalHeader {
            continue;
        }
        let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let name = checked_name(&path)?;
        let size = entry.size();
        if size > remaining {
            return Err(ChartArchiveError::TooLarge);
        }
        if size > MAX_FILE_SIZE {
            return Err(ChartArchiveError::FileTooLarge(quoted(&path)));
        }
        let mut data = Vec::new();
        if has_content(entry.header().entry_type()) {
            entry.read_to_end(&mut data).map_err(|error| tar_fault(&error))?;
        }
        let read = data.len() as u64;
        remaining = remaining.saturating_sub(read);
        // Parity(helm 4): a link with a size is reported as too large, and so is a chart of exactly the maximal size.
        if read < size || remaining == 0 {
            return Err(ChartArchiveError::TooLarge);
        }
        // Parity(helm 4): an empty schema in an archive is ignored, and is an error in a folder.
        if data.is_empty() && super::go_path_and_quote::base(&name) == "values.schema.json" {
            has_files = true;
            continue;
        }
        files.push(ChartFile { name, data: without_mark(&data).into() });
    }
    if files.is_empty() && !has_files { Err(ChartArchiveError::NoFiles) } else { Ok(files) }
}

/// The unpacked data of an archive. Reading ends at the budget.
struct ChartArchiveSource<'a> {
    gunzipped: MultiGzDecoder<&'a [u8]>,
    left: Rc<RefCell<u64>>,
    fault: Rc<RefCell<Option<ChartArchiveError>>>,
}

impl Read for ChartArchiveSource<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut left = self.left.borrow_mut();
        let result = match self.gunzipped.read(buffer) {
            Ok(count) => {
                left.checked_sub(count as u64).ok_or(ChartArchiveError::TooMuch).map(|rest| {
                    *left = rest;
                    count
                })
            }
            Err(error) => Err(gzip_fault(&error)),
        };
        result.map_err(|fault| {
            self.fault.replace(Some(fault));
            io::Error::from(io::ErrorKind::InvalidData)
        })
    }
}

fn check_header(archive: &[u8]) -> Result<(), ChartArchiveError> {
    match archive.len() {
        0 => Err(ChartArchiveError::Empty),
        1..10 => Err(ChartArchiveError::Truncated),
        _ if archive.starts_with(b"\x1f\x8b\x08") => Ok(()),
        _ => Err(ChartArchiveError::NotGzip),
    }
}

fn gzip_fault(error: &io::Error) -> ChartArchiveError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => ChartArchiveError::Truncated,
        _ if error.to_string().contains("checksum") => ChartArchiveError::Checksum,
        _ if error.to_string().contains("gzip header") => ChartArchiveError::NotGzip,
        _ => ChartArchiveError::Corrupt,
    }
}

fn tar_fault(error: &io::Error) -> ChartArchiveError {
    // The crate has no error kind for this case, so its message decides.
    match error.kind() {
        io::ErrorKind::UnexpectedEof => ChartArchiveError::Truncated,
        _ if error.to_string().contains("failed to read entire block") => {
            ChartArchiveError::Truncated
        }
        _ => ChartArchiveError::NotTar,
    }
}

fn is_folder(entry: &Entry<'_, impl Read>) -> bool {
    const FILE_TYPE_MASK: u32 = 0o17_0000;
    const DIRECTORY_FILE_TYPE: u32 = 0o4_0000;
    let header = entry.header();
    let old_regular = header.as_bytes()[156] == 0;
    header.entry_type().is_dir()
        || (old_regular && entry.path_bytes().ends_with(b"/"))
        || header.mode().is_ok_and(|mode| mode & FILE_TYPE_MASK == DIRECTORY_FILE_TYPE)
}

fn has_content(kind: EntryType) -> bool {
    !(kind.is_hard_link()
        || kind.is_symlink()
        || kind.is_character_special()
        || kind.is_block_special()
        || kind.is_fifo())
}

/// The path of a file within its chart, or the reason why Helm refuses it.
fn checked_name(path: &str) -> Result<String, ChartArchiveError> {
    let delimiter = if path.contains('\\') { '\\' } else { '/' };
    let (base, rest) = path.split_once(delimiter).unwrap_or((path, ""));
    let rest = rest.replace(delimiter, "/");
    if rest.starts_with('/') {
        return Err(ChartArchiveError::Absolute);
    }
    let name = golang::path::clean(&rest);
    if name == "." {
        return Err(ChartArchiveError::OutsideBase(quoted(path)));
    }
    if name.starts_with("..") {
        return Err(ChartArchiveError::Parent);
    }
    if matches!(name.as_bytes(), [drive, b':', b'/', ..] if drive.is_ascii_alphabetic()) {
        return Err(ChartArchiveError::Drive);
    }
    if base == "Chart.yaml" {
        return Err(ChartArchiveError::ChartYamlIsFolder);
    }
    Ok(name)
}

/// Removes the byte order mark that some editors put before UTF-8.
pub(super) fn without_mark(data: &[u8]) -> &[u8] {
    data.strip_prefix(b"\xef\xbb\xbf").unwrap_or(data)
}
