//! Selects the files for the archive of a GitRepository: the files of its commit and of its includes, without the ignored
//! ones.
//!
//! Elsewhere: fetching the commit (`git`), finding the included artifacts (`include.rs`), writing the archive
//! (`artifacts::archive`).

use std::sync::Arc;

use artifacts::archive::ArchiveContents;
use artifacts::ignore::{IGNORE_FILE, IgnoreMatcher};
use git::{CheckoutItem, FetchedCheckout, GitLimits, TreeEntryKind};
use reconcile::{NextRunTrigger, RunOutcome};
use sources::source_condition_reasons::{ARCHIVE_OPERATION_FAILED, COPY_FAILURE};
use tree::{FileMetadata, FileTree as _, MemoryTree, RelPath};

use super::include::RepositoryInclude;
use windlass_cluster::error::chain;
use windlass_runtime::git_remote_access::classify;

/// The location of the bytes of a file.
#[derive(Debug, Clone)]
pub(super) enum FileBodyLocation {
    /// The file is in the commit, or in one of its submodules.
    Git(CheckoutItem),
    /// The file is in an included artifact.
    Included(Arc<MemoryTree>, RelPath),
}

fn failed(text: String) -> RunOutcome {
    RunOutcome::Failed(ARCHIVE_OPERATION_FAILED, text, NextRunTrigger::default())
}

/// Puts everything together that the archive is made of.
///
/// Parity(flux): what is included is copied before ignore rules are read, so they hold for it, and its own hold too.
pub(super) fn contents(
    checkout: &FetchedCheckout,
    includes: &[(&RepositoryInclude, Arc<MemoryTree>)],
    ignore: Option<&str>,
    limits: &GitLimits,
) -> Result<ArchiveContents<FileBodyLocation>, RunOutcome> {
    let mut contents = ArchiveContents::new();
    let mut left = CopyBudget::new(limits);
    for item in checkout.items() {
        let path = RelPath::parse(&item.path).map_err(|e| failed(e.to_string()))?;
        let is_executable = match item.kind {
            TreeEntryKind::File { is_executable } => is_executable,
            // Parity(flux): links are not archived, the folders that they leave are, and those of submodules.
            TreeEntryKind::Symlink => {
                contents
                    .dir(path.parent().unwrap_or_else(RelPath::root))
                    .map_err(|e| failed(chain(&e)))?;
                continue;
            }
            TreeEntryKind::Submodule => {
                contents.dir(path).map_err(|e| failed(chain(&e)))?;
                continue;
            }
        };
        left.entries = left.entries.saturating_sub(1);
        contents
            .file(path, is_executable, FileBodyLocation::Git(item.clone()))
            .map_err(|e| failed(chain(&e)))?;
    }
    for (include, tree) in includes {
        copy(&mut contents, include, tree, &mut left).map_err(|why| {
            let text = format!(
                "failed to copy '{}' include from `{}` to `{}`: {why}",
                include.node.name, include.from, include.to
            );
            RunOutcome::Failed(COPY_FAILURE, text, NextRunTrigger::default())
        })?;
    }
    let mut ignore_files = Vec::new();
    for (path, body) in contents.files().filter(|(path, _)| path.name() == Some(IGNORE_FILE)) {
        let text = load(checkout, body)?;
        let folder = path.parent().unwrap_or_else(RelPath::root);
        ignore_files.push((folder, String::from_utf8_lossy(&text).into_owned()));
    }
    let ignored = IgnoreMatcher::new(&ignore_files, ignore).map_err(|e| failed(chain(&e)))?;
    contents.leave_out(&ignored);
    Ok(contents)
}

/// The bytes of a file.
pub(super) fn load(
    checkout: &FetchedCheckout,
    body: &FileBodyLocation,
) -> Result<Arc<[u8]>, RunOutcome> {
    match body {
        FileBodyLocation::Git(item) => checkout.read(item).map(Arc::from).map_err(|e| classify(&e)),
        FileBodyLocation::Included(tree, path) => {
            tree.read(path).map_err(|e| failed(e.to_string()))
        }
    }
}

/// The number of bytes that may still be copied. Nested includes could grow without end.
struct CopyBudget {
    entries: usize,
    bytes: u64,
}

impl CopyBudget {
    fn new(limits: &GitLimits) -> Self {
        Self { entries: limits.entries, bytes: limits.total }
    }

    fn take(&mut self, length: u64) -> Result<(), String> {
        let entries = self.entries.checked_sub(1);
        let bytes = self.bytes.checked_sub(length);
        let (Some(entries), Some(bytes)) = (entries, bytes) else {
            return Err("the archive would exceed the maximum size".to_owned());
        };
        *self = Self { entries, bytes };
        Ok(())
    }
}

/// Copies a file or folder to its place.
///
/// Parity(flux): a folder takes no other's place, unless that is empty; a file takes that of a file.
fn copy(
    contents: &mut ArchiveContents<FileBodyLocation>,
    include: &RepositoryInclude,
    tree: &Arc<MemoryTree>,
    left: &mut CopyBudget,
) -> Result<(), String> {
    let RepositoryInclude { from, to, .. } = include;
    let body = |path: &RelPath| FileBodyLocation::Included(Arc::clone(tree), path.clone());
    match tree.entry(from) {
        None => return Err(format!("`{from}` not found in the artifact")),
        Some(FileMetadata::File { len, executable }) => {
            left.take(len)?;
            return contents.file(to.clone(), executable, body(from)).map_err(|e| chain(&e));
        }
        Some(FileMetadata::Dir) => {}
    }
    if !contents.is_free(to) {
        return Err(format!("`{to}` already exists; choose another toPath"));
    }
    contents.dir(to.clone()).map_err(|e| chain(&e))?;
    for (path, entry) in tree.walk() {
        let Some(inside) = path.strip_prefix(from).filter(|inside| !inside.is_root()) else {
            continue;
        };
        let target = to.join(inside.as_str()).map_err(|e| e.to_string())?;
        match entry {
            FileMetadata::Dir => {
                left.take(0)?;
                contents.dir(target).map_err(|e| chain(&e))?;
            }
            FileMetadata::File { len, executable } => {
                left.take(len)?;
                contents.file(target, executable, body(path)).map_err(|e| chain(&e))?;
            }
        }
    }
    Ok(())
}
