//! A commit: its metadata, and the files of its tree.
//!
//! Here: reading them from the scratch repository of a fetch, or from a repository on this disk. Limits hold even for a
//! hostile tree.
//! Elsewhere: which of the files become an artifact (`artifacts::ignore`, `artifacts::archive`).

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use gix::hash::ObjectId;
use gix::objs::tree::EntryKind;
use gix::objs::{FindExt, TreeRefIter};
use gix::odb::HeaderExt;
use gix::odb::pack::cache::lru::StaticLinkedList;
use jiff::Timestamp;
use tempfile::TempDir;

use super::operation_limits::GitOperation;
use super::signed_objects::{ResolvedTag, SignableObjects};
use super::{Error, GitLimits, GitRevision};

/// The largest path that Linux takes.
pub(super) const LONGEST_PATH: usize = 4096;
/// Characters of a path that an error repeats.
const LONGEST_SHOWN_PATH: usize = 200;
/// The most bytes of all paths of a tree together. It bounds the memory of the list.
const LONGEST_LISTING: usize = 64 << 20;

/// Characters of a commit's summary in an event.
const SHORT_SUMMARY: usize = 50;

/// The metadata of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitMetadata {
    /// Forty hexadecimal digits in lower case.
    pub sha: String,
    /// First line of its message.
    pub summary: String,
    /// The name of its author, as the commit claims. Empty if it is not known.
    pub author: String,
    /// The time when the author wrote it, by the author's clock. The epoch if it is not known.
    pub authored: Timestamp,
}

impl CommitMetadata {
    /// The metadata of a commit, and its tree.
    fn read(id: ObjectId, objects: &gix::odb::Handle) -> Result<(Self, ObjectId), gix::Error> {
        let mut buffer = Vec::new();
        let commit = objects.find_commit(&id, &mut buffer)?;
        let message = String::from_utf8_lossy(commit.message);
        let summary = message.trim_start().lines().next().unwrap_or_default().trim_end().to_owned();
        let author = commit.author().ok();
        let name = author.map(|it| String::from_utf8_lossy(it.name).into_owned());
        let seconds = author.and_then(|it| it.time().ok()).map(|time| time.seconds);
        let authored = seconds
            .and_then(|seconds| Timestamp::from_second(seconds).ok())
            .unwrap_or(Timestamp::UNIX_EPOCH);
        let author = name.unwrap_or_default();
        Ok((Self { sha: id.to_string(), summary, author, authored }, commit.tree()))
    }

    /// The summary as events quote it: its first 50 characters, with three dots if there are more.
    ///
    /// Parity(flux): `ShortMessage` of its Git package.
    pub fn short_summary(&self) -> String {
        match self.summary.char_indices().nth(SHORT_SUMMARY) {
            Some((end, _)) => format!("{}...", &self.summary[..end]),
            None => self.summary.clone(),
        }
    }
}

/// The kind of an entry of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeEntryKind {
    /// A file.
    File {
        /// May be run.
        is_executable: bool,
    },
    /// A symbolic link, whose bytes are the target.
    Symlink,
    /// Another repository's commit, which is not fetched. Its place is an empty folder.
    Submodule,
}

/// A file, link or submodule of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeEntry {
    /// The path from the root, with `/` between its parts. It is never absolute, and never contains `.`, `..` or `.git`.
    pub path: String,
    /// The type of the entry.
    pub kind: TreeEntryKind,
    id: ObjectId,
}

impl TreeEntry {
    /// The commit of a submodule: forty hexadecimal digits.
    pub(super) fn submodule_commit(&self) -> String {
        self.id.to_string()
    }
}

/// The time of a commit, by the clock of its committer. `None` if the object is not a commit or has no time.
pub(super) fn commit_time(id: ObjectId, objects: &gix::odb::Handle) -> Option<i64> {
    let mut buffer = Vec::new();
    let commit = objects.find_commit(&id, &mut buffer).ok()?;
    Some(commit.committer().ok()?.time().ok()?.seconds)
}

/// Every entry of a commit's tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitTreeListing {
    /// The entries in the order of a walk. The entries of a folder are sorted by the bytes of their names, and a subfolder's
    /// entries come at its place.
    pub entries: Vec<TreeEntry>,
    /// Paths that are not UTF-8, in a readable form. They cannot become files of an artifact.
    pub unreadable: Vec<String>,
}

/// A commit in the scratch repository that received it.
pub(super) struct ReceivedCommit {
    pub(super) id: ObjectId,
    /// The tag by which it was found.
    pub(super) tag: Option<ResolvedTag>,
    pub(super) objects: gix::odb::Handle,
    pub(super) scratch: TempDir,
}

/// A commit that was fetched, or is in a repository on this disk. The scratch repository of a fetch is removed when this is
/// dropped.
pub struct GitSnapshot {
    /// The revision that names the artifact.
    pub revision: GitRevision,
    /// The metadata of the commit.
    pub commit: CommitMetadata,
    /// Bytes that were received for it.
    pub(super) received: u64,
    pub(super) id: ObjectId,
    tag: Option<ResolvedTag>,
    pub(super) tree: ObjectId,
    pub(super) objects: gix::odb::Handle,
    pub(super) limits: GitLimits,
    read: AtomicU64,
    remote: String,
    _scratch: Option<TempDir>,
}

impl std::fmt::Debug for GitSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GitSnapshot")
            .field("revision", &self.revision)
            .field("commit", &self.commit)
            .finish_non_exhaustive()
    }
}

/// Opens the objects of a scratch repository.
pub(super) fn objects(scratch: &TempDir, limits: &GitLimits) -> Result<gix::odb::Handle, Error> {
    objects_in(&scratch.path().join("objects"), limits)
}

/// Opens the objects of a repository: the folder `objects` of its folder.
pub(super) fn objects_in(folder: &Path, limits: &GitLimits) -> Result<gix::odb::Handle, Error> {
    let options = gix::odb::store::init::Options {
        alloc_limit_bytes: Some(usize::try_from(limits.file).unwrap_or(usize::MAX)),
        ..gix::odb::store::init::Options::default()
    };
    let opened = gix::odb::at_opts(folder.to_owned(), gix::hash::Kind::Sha1, None, options);
    let mut objects =
        opened.map_err(|source| Error::Scratch { path: folder.to_owned(), source })?;
    objects.set_pack_cache(|| Box::new(StaticLinkedList::<64>::default()));
    Ok(objects)
}

impl GitSnapshot {
    /// Reads a commit out of a scratch repository.
    pub(super) fn load(
        revision: GitRevision,
        received: ReceivedCommit,
        limits: GitLimits,
        wire: &GitOperation,
    ) -> Result<Self, Error> {
        let ReceivedCommit { id, tag, objects, scratch } = received;
        let read = CommitMetadata::read(id, &objects);
        let (commit, tree) = read.map_err(|error| wire.explain(&error))?;
        Ok(Self {
            revision,
            commit,
            received: wire.received(),
            id,
            tag,
            tree,
            objects,
            limits,
            read: AtomicU64::new(0),
            remote: wire.remote(),
            _scratch: Some(scratch),
        })
    }

    /// Reads a commit of a repository on this disk, which errors name by its path.
    pub(super) fn of_repository(
        id: ObjectId,
        objects: gix::odb::Handle,
        limits: GitLimits,
        path: String,
    ) -> Result<Self, Error> {
        let read = CommitMetadata::read(id, &objects);
        let (commit, tree) = read.map_err(|error| {
            let cause = error.probable_cause().to_string();
            Error::Protocol { remote: path.clone(), cause }
        })?;
        Ok(Self {
            revision: GitRevision { name: None, sha: id.to_string() },
            commit,
            received: 0,
            id,
            tag: None,
            tree,
            objects,
            limits,
            read: AtomicU64::new(0),
            remote: path,
            _scratch: None,
        })
    }

    /// The time of the commit, by the clock of its committer, in seconds since 1970. The epoch if it is not known.
    pub fn committed(&self) -> i64 {
        commit_time(self.id, &self.objects).unwrap_or_default()
    }

    /// The whole message of the commit, with bytes that are not UTF-8 replaced. If it cannot be read, only its first line.
    pub fn message(&self) -> String {
        let mut buffer = Vec::new();
        match self.objects.find_commit(&self.id, &mut buffer) {
            Ok(commit) => String::from_utf8_lossy(commit.message).into_owned(),
            Err(_) => self.commit.summary.clone(),
        }
    }

    /// The parents of the commit, the first parent first: forty hexadecimal digits each. Their files were not fetched with the
    /// commit.
    ///
    /// # Errors
    /// The commit cannot be read.
    pub fn parents(&self) -> Result<Vec<String>, Error> {
        let mut buffer = Vec::new();
        let commit = self.objects.find_commit(&self.id, &mut buffer);
        let commit = commit.map_err(|error| self.broken(&error))?;
        Ok(commit.parents().map(|id| id.to_string()).collect())
    }

    /// The objects of the commit that may be signed.
    ///
    /// # Errors
    /// The objects cannot be read.
    pub fn signable(&self) -> Result<SignableObjects, Error> {
        SignableObjects::read(self.id, self.tag.as_ref(), &self.objects)
            .map_err(|error| self.broken(&error))
    }

    /// Lists the tree. Only the names are read.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for more entries than the limit, [`Error::BadTree`] for names that would
    /// lead out of the tree.
    pub fn entries(&self) -> Result<CommitTreeListing, Error> {
        let mut listing = CommitTreeListing { entries: Vec::new(), unreadable: Vec::new() };
        let mut size = ListingSize::default();
        let mut buffer = Vec::new();
        // The entries that are still to be examined, the next one last.
        let mut left = self.children(&TreeLocation::root(self.tree), &mut size, &mut buffer)?;
        while let Some(TreeLocation { path, mode, id }) = left.pop() {
            let kind = match mode {
                EntryKind::Tree => {
                    let folder = TreeLocation { path, mode, id };
                    left.append(&mut self.children(&folder, &mut size, &mut buffer)?);
                    continue;
                }
                EntryKind::Blob => TreeEntryKind::File { is_executable: false },
                EntryKind::BlobExecutable => TreeEntryKind::File { is_executable: true },
                EntryKind::Link => TreeEntryKind::Symlink,
                EntryKind::Commit => TreeEntryKind::Submodule,
            };
            match String::from_utf8(path) {
                Ok(path) => listing.entries.push(TreeEntry { path, kind, id }),
                Err(error) => {
                    let shown = String::from_utf8_lossy(error.as_bytes()).into_owned();
                    listing.unreadable.push(shown);
                }
            }
        }
        Ok(listing)
    }

    /// The entries of a folder, sorted by name in descending order.
    ///
    /// The entries are counted here and not when they are examined, because waiting entries take as much memory.
    fn children(
        &self,
        folder: &TreeLocation,
        size: &mut ListingSize,
        buffer: &mut Vec<u8>,
    ) -> Result<Vec<TreeLocation>, Error> {
        let tree: TreeRefIter<'_> =
            self.objects.find_tree_iter(&folder.id, buffer).map_err(|error| self.broken(&error))?;
        let mut children = Vec::new();
        for entry in tree {
            let entry = entry.map_err(|error| self.broken(&error))?;
            let mut path = folder.path.clone();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(entry.filename);
            if !is_safe(entry.filename) {
                let path = String::from_utf8_lossy(&path);
                let path = path.chars().take(LONGEST_SHOWN_PATH).flat_map(char::escape_debug);
                let path = path.collect();
                return Err(Error::BadTree { remote: self.remote.clone(), path });
            }
            if path.len() > LONGEST_PATH {
                return Err(self.too_large("a path", LONGEST_PATH as u64, "bytes"));
            }
            size.entries += 1;
            if size.entries > self.limits.entries {
                return Err(self.too_large(
                    "the number of entries",
                    self.limits.entries as u64,
                    "entries",
                ));
            }
            size.path_bytes += path.len();
            if size.path_bytes > LONGEST_LISTING {
                return Err(self.too_large("the list of paths", LONGEST_LISTING as u64, "bytes"));
            }
            children.push(TreeLocation { path, mode: entry.mode.kind(), id: entry.oid.to_owned() });
        }
        children.sort_by(|a, b| b.path.cmp(&a.path));
        Ok(children)
    }

    /// Restarts the count of read bytes, for another object that reads the files of the same commit with a limit of its own.
    pub fn restart_reading(&self) {
        self.read.store(0, Ordering::Relaxed);
    }

    /// Reads an entry: the content of a file, the target of a link, or no bytes for a submodule.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if a file, or all read files together, exceed the limit.
    pub fn read(&self, entry: &TreeEntry) -> Result<Vec<u8>, Error> {
        if entry.kind == TreeEntryKind::Submodule {
            return Ok(Vec::new());
        }
        let size = self.size(entry)?;
        if size > self.limits.file {
            return Err(self.too_large(
                &format!("file `{}`", entry.path),
                self.limits.file,
                "bytes",
            ));
        }
        let before = self.read.fetch_add(size, Ordering::Relaxed);
        if before.saturating_add(size) > self.limits.total {
            return Err(self.too_large("all files together", self.limits.total, "bytes"));
        }
        let mut bytes = Vec::new();
        self.objects.find_blob(&entry.id, &mut bytes).map_err(|error| self.broken(&error))?;
        Ok(bytes)
    }

    /// The size of an entry in bytes. A submodule has no size.
    pub(super) fn size(&self, entry: &TreeEntry) -> Result<u64, Error> {
        if entry.kind == TreeEntryKind::Submodule {
            return Ok(0);
        }
        Ok(self.objects.header(entry.id).map_err(|error| self.broken(&error))?.size())
    }

    fn too_large(&self, what: &str, limit: u64, unit: &str) -> Error {
        let remote = self.remote.clone();
        let what = what.to_owned();
        Error::TooLarge { remote, what, limit: format!("{limit} {unit}") }
    }

    fn broken(&self, error: &gix::Error) -> Error {
        let cause = error.probable_cause().to_string();
        Error::Protocol { remote: self.remote.clone(), cause }
    }
}

/// The size of the listing so far.
#[derive(Default)]
struct ListingSize {
    entries: usize,
    path_bytes: usize,
}

/// A location in a tree.
struct TreeLocation {
    path: Vec<u8>,
    mode: EntryKind,
    id: ObjectId,
}

impl TreeLocation {
    fn root(id: ObjectId) -> Self {
        Self { path: Vec::new(), mode: EntryKind::Tree, id }
    }
}

/// Whether Git's own checks accept a name. They refuse names that lead out of the tree or into `.git`.
pub(super) fn is_safe(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..")
        && !name.eq_ignore_ascii_case(b".git")
        && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_cut_after_fifty_characters_not_bytes() {
        let short = |summary: &str| {
            let sha = String::new();
            let summary = summary.to_owned();
            let author = String::new();
            CommitMetadata { sha, summary, author, authored: Timestamp::UNIX_EPOCH }.short_summary()
        };
        assert_eq!(short(""), "");
        assert_eq!(short(&"é".repeat(50)), "é".repeat(50));
        assert_eq!(short(&"é".repeat(51)), format!("{}...", "é".repeat(50)));
        assert_eq!(
            short("hello world - a long commit message for testing long messages"),
            "hello world - a long commit message for testing lo..."
        );
    }
}
