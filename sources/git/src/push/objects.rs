//! New Git objects (files, the folders above them, commits), and the pack in which they are sent.
//!
//! Nothing is written to a disk. Folders without a change below them are neither read nor sent. Unchanged entries of a folder
//! stay, including their modes, links and submodules.
//! Elsewhere: which files are changed ([`PushWorkspace`](super::PushWorkspace)), sending (`receive_pack`).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use gix::bstr::BString;
use gix::hash::ObjectId;
use gix::objs::tree::{Entry, EntryKind, EntryMode};
use gix::objs::{FindExt as _, Kind, Tree, TreeRefIter, WriteTo};
use gix::odb::pack::data::{Version, entry::Header, header};
use gix::validate::path;

use super::PushError;
use crate::Error;
use crate::commit_snapshot::{LONGEST_PATH, is_safe};
use crate::error::shown;

const HASH: gix::hash::Kind = gix::hash::Kind::Sha1;

/// The most bytes of all files and folders that one workspace writes. They are held in memory until the push.
const LARGEST_CHANGES: u64 = 64 << 20;
/// The memory of an object besides its bytes.
const OBJECT_OVERHEAD: u64 = 128;

/// Bytes of all names in the folders that one commit changes.
const LARGEST_FOLDER_LIST: usize = 64 << 20;
/// The memory of a name besides its bytes.
const NAME_OVERHEAD: usize = 96;

/// Folders that lead to a file.
const DEEPEST_PATH: usize = 128;

/// The change of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GitFileChange {
    /// The file gets these bytes, whether or not it existed. Missing folders above it are created.
    Write {
        /// The content of the file, or the target of a link.
        bytes: Vec<u8>,
        /// The type of the file.
        mode: GitFileMode,
    },
    /// The file is removed. A missing file is no error. A folder without files is removed, too.
    Remove,
}

/// The type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GitFileMode {
    /// The type stays, and a new file is a regular file. A link is refused.
    #[default]
    AsBefore,
    /// A file that cannot be run.
    Regular,
    /// A file that can be run.
    Executable,
    /// A symbolic link. It is stored, never followed.
    Symlink,
}

/// The entries of a folder by name.
type FolderEntries = BTreeMap<BString, Entry>;

/// How much more of the changed folders may be read.
struct GitFolderReadBudget {
    entries: usize,
    bytes: usize,
}

impl GitFolderReadBudget {
    fn new(entries: usize) -> Self {
        Self { entries, bytes: LARGEST_FOLDER_LIST }
    }

    /// Takes room for one more name of this length. Returns whether there was room.
    fn take(&mut self, name: usize) -> bool {
        let entries = self.entries.checked_sub(1);
        let bytes = self.bytes.checked_sub(name.saturating_add(NAME_OVERHEAD));
        let left = entries.zip(bytes).map(|(entries, bytes)| Self { entries, bytes });
        let has_room = left.is_some();
        if let Some(left) = left {
            *self = left;
        }
        has_room
    }
}

struct NewGitObject {
    kind: Kind,
    data: Vec<u8>,
}

impl NewGitObject {
    /// The memory of an object with this number of bytes.
    fn size(length: usize) -> u64 {
        OBJECT_OVERHEAD.saturating_add(length as u64)
    }
}

/// New objects that the remote does not have, and the objects of the remote on which they are based.
pub(super) struct NewGitObjects<'b> {
    base: Option<&'b gix::odb::Handle>,
    new: BTreeMap<ObjectId, NewGitObject>,
    /// The new objects that belong to no commit yet.
    loose: Vec<ObjectId>,
    /// The remote without credentials, for errors.
    remote: String,
    /// Entries that the folders of one commit may have together.
    most_entries: usize,
    /// The memory of the new objects.
    written: u64,
}

impl<'b> NewGitObjects<'b> {
    pub(super) fn new(
        base: Option<&'b gix::odb::Handle>,
        remote: String,
        most_entries: usize,
    ) -> Self {
        let new = BTreeMap::new();
        Self { base, new, loose: Vec::new(), remote, most_entries, written: 0 }
    }

    /// Adds an object, unless the server is known to have it.
    fn add(
        &mut self,
        kind: Kind,
        data: Vec<u8>,
        known: Option<ObjectId>,
    ) -> Result<ObjectId, PushError> {
        let id = gix::objs::compute_hash(HASH, kind, &data).map_err(|error| self.broken(&error))?;
        if known != Some(id) && !self.new.contains_key(&id) {
            self.written = self.with_object(data.len())?;
            self.loose.push(id);
            self.new.insert(id, NewGitObject { kind, data });
        }
        Ok(id)
    }

    /// Forgets the objects that were added since the last commit.
    pub(super) fn discard(&mut self) {
        for id in self.loose.drain(..) {
            if let Some(object) = self.new.remove(&id) {
                self.written = self.written.saturating_sub(NewGitObject::size(object.data.len()));
            }
        }
    }

    /// The memory of the new objects with one more object.
    fn with_object(&self, length: usize) -> Result<u64, PushError> {
        let written = self.written.saturating_add(NewGitObject::size(length));
        if written > LARGEST_CHANGES {
            let what = "the size of all changed files and folders together";
            return Err(self.too_large(what, &format!("{LARGEST_CHANGES} bytes")));
        }
        Ok(written)
    }

    /// Adds a commit, and keeps the objects that were added for it.
    pub(super) fn add_commit(&mut self, commit: &gix::objs::Commit) -> Result<ObjectId, PushError> {
        let data = self.bytes(commit)?;
        let id = self.add(Kind::Commit, data, None)?;
        self.loose.clear();
        Ok(id)
    }

    /// The stored form of an object, without its header.
    pub(super) fn bytes(&self, object: &impl WriteTo) -> Result<Vec<u8>, PushError> {
        let mut bytes = Vec::new();
        let written = object.write_to(&mut bytes);
        written.map_err(|error| self.broken(&gix::Error::from_error(error)))?;
        Ok(bytes)
    }

    /// Changes files of a tree, or of an empty tree if there is none. `None` if no file differs.
    pub(super) fn edit(
        &mut self,
        root: Option<ObjectId>,
        changes: &BTreeMap<String, GitFileChange>,
    ) -> Result<Option<ObjectId>, PushError> {
        if changes.len() > self.most_entries {
            let limit = self.most_entries.to_string();
            return Err(self.too_large("the number of changed files", &limit));
        }
        let before = root.unwrap_or_else(|| ObjectId::empty_tree(HASH));
        let mut room = GitFolderReadBudget::new(self.most_entries);
        let mut folders = BTreeMap::from([(String::new(), self.folder(before, &mut room)?)]);
        for (path, change) in changes {
            check_path(path, change)?;
            self.open_folders(&mut folders, path, &mut room)?;
            let (parent, name) = split(path);
            let folder = folders.entry(parent.to_owned()).or_default();
            self.change(folder, path, name, change)?;
        }
        // A folder sorts before its content, so the last one has no folders left below it.
        while let Some((path, folder)) = folders.pop_last() {
            if path.is_empty() {
                let tree = self.add_folder(folder, Some(before))?;
                return Ok(Some(tree).filter(|tree| *tree != before));
            }
            let (parent, name) = split(&path);
            let parent = folders.entry(parent.to_owned()).or_default();
            let known = parent.get(name.as_bytes()).map(|entry| entry.oid);
            if folder.is_empty() {
                parent.remove(name.as_bytes());
            } else {
                let oid = self.add_folder(folder, known)?;
                let entry = Entry { mode: EntryKind::Tree.into(), filename: name.into(), oid };
                parent.insert(name.into(), entry);
            }
        }
        Ok(None)
    }

    /// Reads the folders that lead to a path, from the first on.
    fn open_folders(
        &self,
        folders: &mut BTreeMap<String, FolderEntries>,
        path: &str,
        room: &mut GitFolderReadBudget,
    ) -> Result<(), PushError> {
        for (end, _) in path.match_indices('/') {
            let (outer, _) = path.split_at(end);
            if folders.contains_key(outer) {
                continue;
            }
            if !room.take(outer.len()) {
                return Err(self.too_many_entries());
            }
            let (parent, name) = split(outer);
            let known = folders.get(parent).and_then(|folder| folder.get(name.as_bytes()));
            let folder = match known {
                None => FolderEntries::new(),
                Some(entry) if entry.mode.is_tree() => self.folder(entry.oid, room)?,
                Some(entry) => {
                    let what = noun(entry.mode.kind());
                    return Err(unwritable(path, &format!("`{outer}` is {what}, not a folder")));
                }
            };
            folders.insert(outer.to_owned(), folder);
        }
        Ok(())
    }

    fn change(
        &mut self,
        folder: &mut FolderEntries,
        path: &str,
        name: &str,
        change: &GitFileChange,
    ) -> Result<(), PushError> {
        let known = folder.get(name.as_bytes());
        let kind = known.map(|entry| entry.mode.kind());
        if let Some(kind @ (EntryKind::Tree | EntryKind::Commit)) = kind {
            return Err(unwritable(path, &format!("it is {}", noun(kind))));
        }
        let (bytes, mode) = match change {
            GitFileChange::Write { bytes, mode } => (bytes, *mode),
            GitFileChange::Remove => {
                folder.remove(name.as_bytes());
                return Ok(());
            }
        };
        let mode: EntryMode = match (mode, known) {
            (GitFileMode::Symlink, _) => EntryKind::Link.into(),
            (_, Some(_)) if kind == Some(EntryKind::Link) => {
                return Err(unwritable(path, "it is a symbolic link; write the file it leads to"));
            }
            (GitFileMode::AsBefore, Some(entry)) => entry.mode,
            (GitFileMode::AsBefore | GitFileMode::Regular, _) => EntryKind::Blob.into(),
            (GitFileMode::Executable, _) => EntryKind::BlobExecutable.into(),
        };
        self.with_object(bytes.len())?;
        let known = known.map(|entry| entry.oid);
        let oid = self.add(Kind::Blob, bytes.clone(), known)?;
        folder.insert(name.into(), Entry { mode, filename: name.into(), oid });
        Ok(())
    }

    fn folder(
        &self,
        id: ObjectId,
        room: &mut GitFolderReadBudget,
    ) -> Result<FolderEntries, PushError> {
        let mut folder = FolderEntries::new();
        // Servers need not store it.
        if id == ObjectId::empty_tree(HASH) {
            return Ok(folder);
        }
        let mut buffer = Vec::new();
        let entries = match (self.new.get(&id), self.base) {
            (Some(object), _) => TreeRefIter::from_bytes(&object.data, HASH),
            (None, Some(base)) => {
                base.find_tree_iter(&id, &mut buffer).map_err(|error| self.broken(&error))?
            }
            (None, None) => return Ok(folder),
        };
        for entry in entries {
            let entry = entry.map_err(|error| self.broken(&error))?;
            if !room.take(entry.filename.len()) {
                return Err(self.too_many_entries());
            }
            let name: BString = entry.filename.to_owned();
            match folder.entry(name) {
                Slot::Vacant(slot) => drop(slot.insert(entry.into())),
                Slot::Occupied(slot) => {
                    let path = shown(&slot.key().to_string());
                    return Err(Error::BadTree { remote: self.remote.clone(), path }.into());
                }
            }
        }
        Ok(folder)
    }

    fn add_folder(
        &mut self,
        folder: FolderEntries,
        known: Option<ObjectId>,
    ) -> Result<ObjectId, PushError> {
        let mut entries: Vec<Entry> = folder.into_values().collect();
        // Git sorts a folder as if its name ended with a slash.
        entries.sort();
        let data = self.bytes(&Tree { entries })?;
        self.add(Kind::Tree, data, known)
    }

    /// Packs all new objects, each in full. They are small, and the objects that they resemble are not available for deltas.
    pub(super) fn pack(&self) -> Result<Vec<u8>, PushError> {
        self.packed().map_err(|error| self.broken(&error))
    }

    fn packed(&self) -> Result<Vec<u8>, gix::Error> {
        let count = u32::try_from(self.new.len()).map_err(gix::Error::from_error)?;
        let mut pack = header::encode(Version::V2, count).to_vec();
        for object in self.new.values() {
            let kind = match object.kind {
                Kind::Tree => Header::Tree,
                Kind::Blob => Header::Blob,
                Kind::Commit => Header::Commit,
                Kind::Tag => Header::Tag,
            };
            let length = object.data.len() as u64;
            let written = kind.write_to(length, &mut pack).and_then(|_length| {
                let mut deflated = ZlibEncoder::new(&mut pack, Compression::default());
                deflated.write_all(&object.data)?;
                deflated.finish().map(|_pack| ())
            });
            written.map_err(gix::Error::from_error)?;
        }
        let mut hasher = gix::hash::hasher(HASH);
        hasher.update(&pack);
        let trailer = hasher.try_finalize()?;
        pack.extend_from_slice(trailer.as_slice());
        Ok(pack)
    }

    fn too_many_entries(&self) -> PushError {
        let limit = format!("{} entries or {LARGEST_FOLDER_LIST} bytes", self.most_entries);
        self.too_large("the list of entries of all changed folders", &limit)
    }

    fn too_large(&self, what: &str, limit: &str) -> PushError {
        let remote = self.remote.clone();
        Error::TooLarge { remote, what: what.to_owned(), limit: limit.to_owned() }.into()
    }

    fn broken(&self, error: &gix::Error) -> PushError {
        let cause = error.probable_cause().to_string();
        Error::Protocol { remote: self.remote.clone(), cause }.into()
    }
}

/// The folder of a path and its last part.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

fn noun(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::Tree => "a folder",
        EntryKind::Blob | EntryKind::BlobExecutable => "a file",
        EntryKind::Link => "a symbolic link",
        EntryKind::Commit => "a submodule",
    }
}

fn unwritable(path: &str, reason: &str) -> PushError {
    PushError::Unwritable { path: shown(path), reason: reason.to_owned() }
}

fn check_path(path: &str, change: &GitFileChange) -> Result<(), PushError> {
    if path.len() > LONGEST_PATH {
        return Err(unwritable(path, &format!("its path is longer than {LONGEST_PATH} bytes")));
    }
    if path.matches('/').count() > DEEPEST_PATH {
        return Err(unwritable(path, &format!("it is in more than {DEEPEST_PATH} folders")));
    }
    if !path.split('/').all(|part| is_safe(part.as_bytes())) {
        let reason = "its path has a part that is empty, `.`, `..` or `.git`";
        return Err(unwritable(path, reason));
    }
    let is_link = matches!(change, GitFileChange::Write { mode: GitFileMode::Symlink, .. });
    let mode = is_link.then_some(path::component::Mode::Symlink);
    match path.split(['/', '\\']).any(|part| is_reserved(part, mode)) {
        true => Err(unwritable(path, "its path has a part that file systems take for Git's own")),
        false => Ok(()),
    }
}

/// Whether a file system of Windows or macOS takes a name for `.git`, or for a link at `.gitmodules`. Git on these systems
/// does not check out a commit that has one.
fn is_reserved(name: &str, mode: Option<path::component::Mode>) -> bool {
    use path::component::{Error as Problem, Options};
    let options = Options { protect_windows: false, protect_hfs: true, protect_ntfs: true };
    matches!(
        path::component(name.into(), mode, options),
        Err(Problem::DotGitDir | Problem::SymlinkedGitModules)
    )
}

#[cfg(test)]
mod tests;
