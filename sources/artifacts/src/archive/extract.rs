//! Reads an untrusted archive into a tree.
//!
//! Here: what is accepted, skipped and refused, and the limits.
//! Elsewhere: reading headers ([`super::reader`]), keeping files ([`super::extraction_sink`]).

use std::{
    io::{self, Read},
    path::{Path, PathBuf},
};

use flate2::read::MultiGzDecoder;
use tree::{MemoryTree, RelPath, TreeBuildError, TreeLimits};

use super::{
    extraction_sink::{ExtractionFolder, ExtractionSink},
    tar_reader::{ArchiveEntry, TarReader},
};

/// Decompressed bytes that need no justification by their ratio.
pub(super) const RATIO_FLOOR: u64 = 16 << 20;

/// How an extraction treats symbolic links. It never creates one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SymlinkPolicy {
    /// Links are left out, as Flux does with fetched archives.
    Skip,
    /// Links are an error.
    Refuse,
}

/// The options for unpacking an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExtractOptions {
    /// How symbolic links are treated.
    pub symlinks: SymlinkPolicy,
    /// The most bytes in all entries together, as their headers claim. Flux's `WithMaxUntarSize`.
    pub max_size: Option<u64>,
    /// The limits of the extracted tree, and the most entries that are read.
    pub limits: TreeLimits,
    /// How many times larger than its compressed form an archive may be. An archive may always have 16 MiB.
    pub max_ratio: u64,
}

impl Default for ExtractOptions {
    /// The options for a fetched artifact: links are skipped, trees have the default limits, and the tree has at most 250
    /// times the compressed size.
    fn default() -> Self {
        Self {
            symlinks: SymlinkPolicy::Skip,
            max_size: None,
            limits: TreeLimits::default(),
            max_ratio: 250,
        }
    }
}

/// The reason why an archive was not unpacked.
#[derive(Debug, thiserror::Error)]
pub enum ExtractError {
    /// The input does not begin as gzip does.
    #[error("requires gzip-compressed body")]
    NotGzip,
    /// The input cannot be read or decompressed.
    #[error("cannot read the archive")]
    Read(#[source] io::Error),
    /// The input is not a readable zip archive.
    #[error("zip error: {0}")]
    Zip(String),
    /// The decompressed input is not a tar archive.
    #[error("tar error: {0}")]
    Tar(&'static str),
    /// A file ends before its size.
    #[error("`{path}` should have {size} bytes and has {found}")]
    Truncated {
        /// The file.
        path: RelPath,
        /// The size in its header.
        size: u64,
        /// The actual value.
        found: u64,
    },
    /// The archive contains more than [`ExtractOptions::max_size`].
    #[error("tar {name:?} is bigger than max archive size of {max} bytes")]
    TooLarge {
        /// The entry that was too much.
        name: String,
        /// The limit.
        max: u64,
    },
    /// A name is absolute, climbs, or can be no file name.
    #[error("tar contained invalid name error {0:?}")]
    Name(String),
    /// The archive contains a symbolic link, which the options refuse.
    #[error("tar file entry {0} is a symlink, which is not allowed in this context")]
    Symlink(String),
    /// The archive contains an entry that is not a file, folder or link.
    #[error("tar file entry {name} contained unsupported file type {mode}")]
    Unsupported {
        /// The entry.
        name: String,
        /// The type and permissions as `ls` shows them, or the type flag.
        mode: String,
    },
    /// A folder is where the file should go.
    #[error("open {0}: is a directory")]
    IsDirectory(String),
    /// A file is where the folder should go.
    #[error("mkdir {0}: not a directory")]
    NotDirectory(String),
    /// A limit of the tree is reached.
    #[error(transparent)]
    Limit(TreeBuildError),
    /// The archive expands too much.
    #[error(
        "the archive expands to more than {0} times its size and is rejected as a decompression bomb"
    )]
    Bomb(u64),
    /// There is something in the target directory already.
    #[error("`{}` is not empty", .0.display())]
    NotEmpty(PathBuf),
    /// The disk refused a file.
    #[error("cannot {action} `{}`", path.display())]
    Disk {
        /// The action that failed.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The cause of the failure.
        source: io::Error,
    },
}

impl From<TreeBuildError> for ExtractError {
    fn from(error: TreeBuildError) -> Self {
        match error {
            TreeBuildError::IsDirectory(path) => Self::IsDirectory(path.to_string()),
            TreeBuildError::NotDirectory(path) => Self::NotDirectory(path.to_string()),
            TreeBuildError::Path(_)
            | TreeBuildError::FileTooLarge { .. }
            | TreeBuildError::TooLarge { .. }
            | TreeBuildError::TooMany { .. }
            | TreeBuildError::TooDeep { .. } => Self::Limit(error),
        }
    }
}

impl From<io::Error> for ExtractError {
    fn from(error: io::Error) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref()) {
            Some(CompressionRatioError(ratio)) => Self::Bomb(*ratio),
            None => Self::Read(error),
        }
    }
}

/// Reads an archive into a tree.
///
/// # Guarantees
/// The options limit memory and time. Sizes in the archive are not trusted.
///
/// # Errors
/// The input is not an archive, a name leads out of the tree, an entry has another type, or a limit is reached.
pub fn extract(archive: impl Read, options: &ExtractOptions) -> Result<MemoryTree, ExtractError> {
    let mut tree = MemoryTree::builder(options.limits);
    run(archive, options, &mut tree)?;
    Ok(tree.build())
}

/// Reads an archive into a directory, which must be empty if it exists.
///
/// # Guarantees
/// Nothing is written outside the directory, and no link, device or pipe is made in it.
///
/// # Errors
/// As [`extract`], or the disk refuses a write. The files that were written before stay.
pub fn extract_to_dir(
    archive: impl Read,
    options: &ExtractOptions,
    dir: &Path,
) -> Result<(), ExtractError> {
    run(archive, options, &mut ExtractionFolder::new(dir)?)
}

fn run(
    mut archive: impl Read,
    options: &ExtractOptions,
    sink: &mut dyn ExtractionSink,
) -> Result<(), ExtractError> {
    let mut magic = Vec::new();
    archive.by_ref().take(2).read_to_end(&mut magic).map_err(ExtractError::Read)?;
    if magic != [0x1f, 0x8b] {
        return Err(ExtractError::NotGzip);
    }
    let mut entries =
        TarReader::new(RatioLimitedReader::new(magic.chain(archive), options.max_ratio));
    let mut seen = 0;
    let mut claimed: u64 = 0;
    while let Some(entry) = entries.next()? {
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        seen += 1;
        claimed = claimed.saturating_add(entry.size);
        if let Some(max) = options.max_size.filter(|max| claimed > *max) {
            return Err(ExtractError::TooLarge { name, max });
        }
        let path = place(&entry.name).ok_or_else(|| ExtractError::Name(name.clone()))?;
        is_within(&path, entry.size, seen, claimed, &options.limits)?;
        let mode = u32::try_from(entry.mode & 0o777).unwrap_or_default();
        match sort(&entry) {
            ArchiveEntryKind::File => {
                // Parity(go): a hard link is an empty file, so one with a size is short of all its bytes.
                sink.file(&path, mode, entry.size, &mut entries)?;
            }
            ArchiveEntryKind::Dir => sink.dir(&path, mode)?,
            ArchiveEntryKind::Symlink => match options.symlinks {
                SymlinkPolicy::Skip => {}
                SymlinkPolicy::Refuse => return Err(ExtractError::Symlink(name)),
            },
            ArchiveEntryKind::Other(mode) => return Err(ExtractError::Unsupported { name, mode }),
        }
    }
    Ok(())
}

/// The place of an archive's entry inside the target. `None` for a name that could lead elsewhere.
///
/// Differs(flux): a name that is not UTF-8 or ends in `..` is refused too.
pub(super) fn place(name: &[u8]) -> Option<RelPath> {
    let name = str::from_utf8(name).ok()?;
    if name.is_empty() || name.contains('\\') || name.split('/').any(|part| part == "..") {
        return None;
    }
    RelPath::parse(name).ok()
}

/// Checks the rules for every entry, including skipped ones. `seen` and `claimed` are the numbers of entries and bytes so far,
/// with this entry.
pub(super) fn is_within(
    path: &RelPath,
    size: u64,
    seen: usize,
    claimed: u64,
    limits: &TreeLimits,
) -> Result<(), ExtractError> {
    let path = || path.clone();
    let TreeLimits { total_bytes, file_bytes, entries, depth } = *limits;
    let broken = if seen > entries {
        TreeBuildError::TooMany { path: path(), max: entries }
    } else if size > file_bytes {
        TreeBuildError::FileTooLarge { path: path(), len: size, max: file_bytes }
    } else if claimed > total_bytes {
        TreeBuildError::TooLarge { path: path(), max: total_bytes }
    } else if path().depth() > depth {
        TreeBuildError::TooDeep { path: path(), max: depth }
    } else {
        return Ok(());
    };
    Err(ExtractError::Limit(broken))
}

/// The type of an entry.
enum ArchiveEntryKind {
    File,
    Dir,
    Symlink,
    /// An entry that is never extracted, with its type and permissions in words.
    Other(String),
}

/// Parity(go): the type comes from the type flag and, in old archives, from the mode as well.
fn sort(entry: &ArchiveEntry) -> ArchiveEntryKind {
    let by_flag = match entry.flag {
        b'0' | b'1' | b'7' | b'g' => "",
        b'2' => "L",
        b'3' => "Dc",
        b'4' => "D",
        b'5' => "d",
        b'6' => "p",
        other => {
            return ArchiveEntryKind::Other(format!("`{}`", char::from(other).escape_default()));
        }
    };
    let by_mode = match entry.mode & !0o7777 {
        0o040_000 => "d",
        0o010_000 => "p",
        0o120_000 => "L",
        0o060_000 => "D",
        0o020_000 => "Dc",
        0o140_000 => "S",
        _ => "",
    };
    let letters = [by_flag, by_mode].concat();
    if letters.is_empty() {
        ArchiveEntryKind::File
    } else if letters.contains('d') {
        ArchiveEntryKind::Dir
    } else if letters.contains('L') {
        ArchiveEntryKind::Symlink
    } else {
        ArchiveEntryKind::Other(mode_in_words(&letters, entry.mode))
    }
}

/// As Go prints a mode, for example `prw-r--r--`.
fn mode_in_words(letters: &str, mode: u64) -> String {
    let is_set = |letter: &char| {
        let bit = match letter {
            'u' => 0o4000,
            'g' => 0o2000,
            't' => 0o1000,
            _ => 0,
        };
        mode & bit != 0 || letters.contains(*letter)
    };
    let permission =
        |(at, letter): (usize, char)| if mode & (0o400 >> at) == 0 { '-' } else { letter };
    let kinds = "dLDpSugct".chars().filter(is_set);
    kinds.chain("rwxrwxrwx".chars().enumerate().map(permission)).collect()
}

/// More came out of the decompressor than the ratio allows.
#[derive(Debug, thiserror::Error)]
#[error("more than {0} times the compressed size")]
struct CompressionRatioError(u64);

/// Decompresses while watching the ratio of output to input.
struct RatioLimitedReader<R> {
    gzip: MultiGzDecoder<CountingReader<R>>,
    out: u64,
    max_ratio: u64,
}

struct CountingReader<R> {
    input: R,
    count: u64,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.count += read as u64;
        Ok(read)
    }
}

impl<R: Read> RatioLimitedReader<R> {
    fn new(input: R, max_ratio: u64) -> Self {
        Self { gzip: MultiGzDecoder::new(CountingReader { input, count: 0 }), out: 0, max_ratio }
    }
}

impl<R: Read> Read for RatioLimitedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.gzip.read(buffer)?;
        self.out += read as u64;
        let allowed = self.gzip.get_ref().count.saturating_mul(self.max_ratio).max(RATIO_FLOOR);
        if self.out > allowed {
            return Err(io::Error::other(CompressionRatioError(self.max_ratio)));
        }
        Ok(read)
    }
}
