//! How engines examine files.
//!
//! Here: the trait, and what its answers are made of.
//! Elsewhere: a tree that answers from memory ([`crate::MemoryTree`]), one that takes notes ([`crate::TreeRecorder`]).

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
        /// Its size in bytes.
        len: u64,
        /// Whether any of its execute bits was set where it came from.
        executable: bool,
    },
    /// A folder.
    Dir,
}

impl FileMetadata {
    /// File or folder.
    #[must_use]
    pub fn kind(self) -> FileKind {
        match self {
            Self::File { .. } => FileKind::File,
            Self::Dir => FileKind::Dir,
        }
    }
}

/// Why a tree has no such answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// Nothing is at that path.
    #[error("`{0}` does not exist")]
    NotFound(RelPath),
    /// A file was wanted.
    #[error("`{0}` is a directory")]
    IsDirectory(RelPath),
    /// A folder was wanted.
    #[error("`{0}` is not a directory")]
    NotDirectory(RelPath),
}

/// A tree of files that can be examined.
///
/// # Guarantees
/// The root always exists, every parent of an entry is a folder, and repeated questions get the same answer.
pub trait FileTree {
    /// The content of a file.
    ///
    /// # Errors
    /// Nothing is there, or it is a folder.
    fn read(&self, path: &RelPath) -> Result<Arc<[u8]>, TreeError>;

    /// What is directly in a folder, sorted by name, bytewise.
    ///
    /// # Errors
    /// Nothing is there, or it is a file.
    fn list(&self, dir: &RelPath) -> Result<Vec<(String, FileKind)>, TreeError>;

    /// What is at a path, if anything.
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
