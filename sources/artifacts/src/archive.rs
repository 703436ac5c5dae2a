//! The format of artifacts: tar compressed with gzip. The same files always give the same bytes.
//!
//! Here: the entries of an archive ([`ArchiveContents`]), writing it ([`write()`], [`TarballWriter`]), reading an untrusted
//! archive ([`extract`], [`unzip`]).
//! Elsewhere: which files are left out ([`crate::ignore`]), where archives are kept ([`crate::store`]).

mod contents;
mod digesting_writer;
mod extract;
mod extraction_sink;
mod tar_header;
mod tar_reader;
mod tarball_writer;
mod unzip;

pub use contents::{ArchiveContents, write};
pub use digesting_writer::{ArchiveDigest, DigestingWriter};
pub use extract::{ExtractError, ExtractOptions, SymlinkPolicy, extract, extract_to_dir};
pub use tarball_writer::TarballWriter;
pub use unzip::unzip;

use std::{error::Error as StdError, io};

use tree::RelPath;

/// The reason why no archive was written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The target of the archive refused a write.
    #[error("cannot write the archive")]
    Write(#[source] io::Error),
    /// The source of a file failed.
    #[error("cannot read `{path}` to archive it")]
    Load {
        /// The file.
        path: RelPath,
        /// The error of its source.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// A place is claimed by a file and by a folder.
    #[error("`{0}` is both a file and a directory")]
    Collision(RelPath),
    /// Entries came in another order than that of a walk, which would make the bytes depend on it.
    #[error("`{path}` was archived after `{after}`, but belongs before it")]
    Order {
        /// The entry that came too late.
        path: RelPath,
        /// The entry before it.
        after: RelPath,
    },
    /// A file was shorter or longer than announced.
    #[error("`{path}` was announced with {announced} bytes and has {found}")]
    Length {
        /// The file.
        path: RelPath,
        /// The size in its header.
        announced: u64,
        /// The number of bytes from its source. If there were too many, it is one more than announced.
        found: u64,
    },
    /// A file is too big for the size field of a tar header.
    #[error("`{path}` has {len} bytes, more than an archive can hold in one file")]
    TooLarge {
        /// The file.
        path: RelPath,
        /// The size of the body in bytes.
        len: u64,
    },
}
