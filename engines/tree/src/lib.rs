//! Read-only file trees whose paths cannot lead outside of the tree.
//!
//! Here: a path inside a tree ([`RelPath`]), the interface for reading files ([`FileTree`]), a tree in memory ([`MemoryTree`]),
//! and a record of every file that a build read ([`TreeRecorder`]).
//! Elsewhere: unpacking an archive into a tree (`artifacts::archive`), and every access to a disk.
//!
//! A tree has no symbolic links, because callers that fill a tree leave them out.

mod file_tree;
mod memory_tree;
mod path;
mod tree_recorder;

pub use file_tree::{FileKind, FileMetadata, FileTree, TreeError};
pub use memory_tree::{MemoryTree, MemoryTreeBuilder, TreeBuildError, TreeLimits};
pub use path::{RelPath, RelPathError};
pub use tree_recorder::{Sha256Digest, TreeAccessKind, TreeAccessTrace, TreeRecorder};
