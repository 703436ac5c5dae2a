//! Read-only file trees that cannot be escaped.
//!
//! Here: the path that stays inside ([`RelPath`]), the way to examine files ([`FileTree`]), a tree in memory ([`MemoryTree`]),
//! and a note of everything that a build examined ([`Recorder`]).
//! Elsewhere: how a tree comes out of an archive (`sources::archive`), and everything that touches a disk.
//!
//! There are no symbolic links in a tree: callers that fill one leave them out.

mod files;
mod memory;
mod path;
mod recorder;

pub use files::{FileKind, FileMetadata, FileTree, TreeError};
pub use memory::{BuildError, Builder, MemoryTree, TreeLimits};
pub use path::{PathError, RelPath};
pub use recorder::{Digest, Look, Recorder, Trace};
