//! Making the tree of one artifact.
//!
//! Here: the copies one after the other, within the limits of a tree. Elsewhere: one copy (`copy.rs`), the number by which
//! its file is called (`content_hash.rs`), the archive and its digest (`artifacts::archive`).

use std::collections::BTreeMap;

use golang::work_meter::{WorkAllowance, WorkMeter};
use tree::{FileTree, MemoryTree, TreeLimits};

use crate::content_hash::{ContentHashError, content_hash};
use crate::copy::{CopyError, copy};
use crate::spec::OutputArtifact;

/// How much one generator may use up: about a minute, and 256 MiB of strings and extracted files.
pub const BUILD_ALLOWANCE: WorkAllowance =
    WorkAllowance { steps: 20_000_000_000, bytes: 256 << 20 };

/// The trees of sources by their aliases.
pub type SourceTrees<'a> = BTreeMap<&'a str, &'a dyn FileTree>;

/// Takes archives apart, which this engine cannot.
pub trait TarballReader {
    /// The files of an archive of a source, which is not to be trusted.
    ///
    /// # Errors
    /// What is wrong with the archive, a link in it included, or that it exceeds the limits.
    fn read(&self, tarball: &[u8], limits: &TreeLimits) -> Result<MemoryTree, String>;
}

/// What artifacts are made of.
#[derive(Clone, Copy)]
pub struct BuildInputs<'a> {
    /// The trees of all sources.
    pub sources: &'a SourceTrees<'a>,
    /// What takes archives apart.
    pub tarballs: &'a dyn TarballReader,
    /// How much an artifact, or an archive that it is made of, may hold.
    pub limits: TreeLimits,
}

/// A tree that was made.
///
/// Differs(flux): in Flux, an artifact with the name of a source has all files of that source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactTree {
    /// Its files and folders, those that archives leave out by default included.
    pub files: MemoryTree,
    /// A number that depends on its name and the paths and bodies of its files.
    ///
    /// Parity(flux): it has 32 bits, so another number means other files, but the same number not the same files.
    pub content_hash: u32,
}

impl ArtifactTree {
    /// The name of the file with its archive.
    #[must_use]
    pub fn file_name(&self) -> String {
        format!("{}.tar.gz", self.content_hash)
    }

    /// The name of the file where [`ArtifactTree::file_name`] is that of an archive that has another digest, and is offered.
    ///
    /// Differs(flux): the file that is offered is overwritten there, and does not have the digest of its ExternalArtifact until
    /// that is updated.
    #[must_use]
    pub fn other_file_name(&self, digest: &str) -> String {
        let digits: String = digest.rsplit(':').take(1).flat_map(str::chars).take(16).collect();
        format!("{}-{digits}.tar.gz", self.content_hash)
    }

    /// Whether a file name is one that the archive of this artifact can have.
    #[must_use]
    pub fn may_be_in(&self, file_name: &str) -> bool {
        file_name.split(['-', '.']).next() == Some(self.content_hash.to_string().as_str())
    }
}

/// Why an artifact was not made, in Flux's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArtifactBuildError {
    /// A copy failed.
    #[error(
        "failed to apply copy operations: failed to apply copy operation from '{from}' to '{to}': {error}"
    )]
    Copy {
        /// Where it takes its files from.
        from: String,
        /// Where it puts them.
        to: String,
        /// Why it failed.
        error: Box<CopyError>,
    },
    /// A file has a name that the number cannot be made of.
    #[error("failed to hash staging dir: {0}")]
    Hash(#[from] ContentHashError),
}

/// Makes the tree of an artifact.
///
/// # Guarantees
/// The same sources give the same tree. Bodies are shared with the sources where they are not merged or extracted.
///
/// # Errors
/// A copy is refused, matches no file or conflicts with an earlier copy, or it costs more than the meter allows.
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
    let content_hash = content_hash(&artifact.name, &files, meter)?;
    Ok(ArtifactTree { files, content_hash })
}
