//! Builds the file tree of one artifact.
//!
//! Here: the copies of an artifact, one after the other, within the limits of a tree. Elsewhere: one copy (`copy.rs`),
//! the number in the name of the artifact's file (`file_name_hash.rs`), and the archive with its digest
//! (`artifacts::archive`).

use std::collections::BTreeMap;

use golang::work_meter::{WorkAllowance, WorkMeter};
use tree::{FileTree, MemoryTree, TreeLimits};

use crate::copy::{CopyError, copy};
use crate::file_name_hash::{ContentHashError, file_name_hash};
use crate::spec::OutputArtifact;

/// How much work one generator may cause: about a minute, and 256 MiB of strings and extracted files.
pub const BUILD_ALLOWANCE: WorkAllowance =
    WorkAllowance { steps: 20_000_000_000, bytes: 256 << 20 };

/// The file trees of the sources, by the aliases of the sources.
pub type SourceTrees<'a> = BTreeMap<&'a str, &'a dyn FileTree>;

/// Extracts archives, which this engine cannot do itself.
pub trait TarballReader {
    /// Reads the files of an archive of a source. The archive is not trusted.
    ///
    /// # Errors
    /// The archive is malformed, has a link in it, or exceeds the limits.
    fn read(&self, tarball: &[u8], limits: &TreeLimits) -> Result<MemoryTree, String>;
}

/// The inputs of a build.
#[derive(Clone, Copy)]
pub struct BuildInputs<'a> {
    /// The file trees of all sources.
    pub sources: &'a SourceTrees<'a>,
    /// The reader that extracts archives.
    pub tarballs: &'a dyn TarballReader,
    /// The limits of an artifact, and of each archive whose files it gets.
    pub limits: TreeLimits,
}

/// The file tree of a built artifact.
///
/// Differs(flux): in Flux, an artifact with the name of a source has all files of that source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactTree {
    /// The files and folders of the artifact. They include those that archives leave out by default.
    pub files: MemoryTree,
    /// A number that depends on the artifact's name and on the paths and bodies of its files.
    ///
    /// Parity(flux): it has 32 bits, so different numbers mean different files, but the same number does not mean the
    /// same files.
    pub file_name_hash: u32,
}

impl ArtifactTree {
    /// The name of the file that stores the artifact's archive.
    #[must_use]
    pub fn file_name(&self) -> String {
        format!("{}.tar.gz", self.file_name_hash)
    }

    /// Another name for the archive's file. It is needed if the file [`ArtifactTree::file_name`] has an archive with
    /// another digest that is still served.
    ///
    /// Differs(flux): Flux overwrites the served file. Until the ExternalArtifact is updated, the file then does not
    /// have its digest.
    #[must_use]
    pub fn other_file_name(&self, digest: &str) -> String {
        let digits: String = digest.rsplit(':').take(1).flat_map(str::chars).take(16).collect();
        format!("{}-{digits}.tar.gz", self.file_name_hash)
    }

    /// Whether the archive of this artifact can have this file name.
    #[must_use]
    pub fn may_be_in(&self, file_name: &str) -> bool {
        file_name.split(['-', '.']).next() == Some(self.file_name_hash.to_string().as_str())
    }
}

/// Why an artifact was not built, in Flux's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArtifactBuildError {
    /// A copy failed.
    #[error(
        "failed to apply copy operations: failed to apply copy operation from '{from}' to '{to}': {error}"
    )]
    Copy {
        /// The `from` of the copy.
        from: String,
        /// The `to` of the copy.
        to: String,
        /// Why the copy failed.
        error: Box<CopyError>,
    },
    /// The number of the artifact's content could not be computed, for example because of a file name.
    #[error("failed to hash staging dir: {0}")]
    Hash(#[from] ContentHashError),
}

/// Builds the file tree of an artifact.
///
/// # Guarantees
/// The same sources give the same tree. The tree shares the bodies of files with the sources, except merged or
/// extracted ones.
///
/// # Errors
/// A copy is refused, matches no file or conflicts with an earlier copy, or the build costs more than the meter allows.
pub fn build(
    artifact: &OutputArtifact,
    inputs: &BuildInputs<'_>,
    meter: &mut WorkMeter,
) -> Result<ArtifactTree, ArtifactBuildError> {
    let mut builder = MemoryTree::builder(inputs.limits);
    for operation in &artifact.copy {
        copy(operation, inputs, &mut builder, meter).map_err(|error| ArtifactBuildError::Copy {
            from: operation.from.clone(),
            to: operation.to.clone(),
            error: Box::new(error),
        })?;
    }
    let files = builder.build();
    let file_name_hash = file_name_hash(&artifact.name, &files, meter)?;
    Ok(ArtifactTree { files, file_name_hash })
}
