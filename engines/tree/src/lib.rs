//! Read-only file trees that cannot be escaped.
//!
//! Here: the path that stays inside ([`RelPath`]), the way to examine files ([`FileTree`]), a tree in memory ([`MemoryTree`]),
//! and a note of everything that a build examined ([`TreeRecorder`]).
//! Elsewhere: how a tree comes out of an archive (`artifacts::archive`), and everything that touches a disk.
//!
//! There are no symbolic links in a tree: callers that fill one leave them out.

mod file_tree;
mod memory_tree;
mod path;
mod tree_recorder;

pub use file_tree::{FileKind, FileMetadata, FileTree, TreeError};
pub use memory_tree::{MemoryTree, MemoryTreeBuilder, TreeBuildError, TreeLimits};
pub use path::{RelPath, RelPathError};
pub use tree_recorder::{Sha256Digest, TreeQuery, TreeRecorder, TreeTrace};
