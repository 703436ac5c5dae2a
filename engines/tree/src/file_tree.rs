//! The interface through which engines read files.
//!
//! Here: the trait, and the types of its results.
//! Elsewhere: a tree in memory ([`crate::MemoryTree`]), a tree that records all requests ([`crate::TreeRecorder`]).

use std::sync::Arc;

use crate::RelPath;

/// Whether something in a tree is a file or a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A folder.
    Dir,
}

/// The metadata of a file or folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileMetadata {
    /// A regular file.
    File {
        /// The size of the file in bytes.
        len: u64,
        /// Whether the file was executable in its source.
        executable: bool,
    },
    /// A folder.
    Dir,
}

impl FileMetadata {
    /// Whether the entry is a file or a folder.
    #[must_use]
    pub fn kind(self) -> FileKind {
        match self {
            Self::File { .. } => FileKind::File,
            Self::Dir => FileKind::Dir,
        }
    }
}

/// Why a request to a tree failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// The path does not exist.
    #[error("`{0}` does not exist")]
    NotFound(RelPath),
    /// A file was wanted.
    #[error("`{0}` is a directory")]
    IsDirectory(RelPath),
    /// A folder was wanted.
    #[error("`{0}` is not a directory")]
    NotDirectory(RelPath),
}

/// A read-only tree of files.
///
/// # Guarantees
/// The root always exists, every parent of an entry is a folder, and repeated requests get the same result.
pub trait FileTree {
    /// The content of a file.
    ///
    /// # Errors
    /// The path does not exist, or it is a folder.
    fn read(&self, path: &RelPath) -> Result<Arc<[u8]>, TreeError>;

    /// The names and types of the entries in a folder, sorted bytewise by name.
    ///
    /// # Errors
    /// The path does not exist, or it is a file.
    fn list(&self, dir: &RelPath) -> Result<Vec<(String, FileKind)>, TreeError>;

    /// The metadata of the entry at a path. `None` if there is no entry.
    fn entry(&self, path: &RelPath) -> Option<FileMetadata>;
}

impl<F: FileTree + ?Sized> FileTree for &F {
    fn read(&self, path: &RelPath) -> Result<Arc<[u8]>, TreeError> {
        (**self).read(path)
    }

    fn list(&self, dir: &RelPath) -> Result<Vec<(String, FileKind)>, TreeError> {
        (**self).list(dir)
    }

    fn entry(&self, path: &RelPath) -> Option<FileMetadata> {
        (**self).entry(path)
    }
}
