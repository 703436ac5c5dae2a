//! Reads a local Git repository: the files of a revision or of the work tree. The files have the form that a source would put
//! into an artifact.
//!
//! Elsewhere: reading Git objects (`git`), ignore patterns (`artifacts::ignore`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use artifacts::ignore::{IGNORE_FILE, IgnoreMatcher};
use git::{GitLimits, GitSnapshot, ReadOnlyLocalRepository, TreeEntryKind};
use parking_lot::Mutex;
use tree::{FileMetadata, FileTree as _, MemoryTree, RelPath, TreeLimits};

use super::source_artifact::SourceArtifact;

/// The folder or file that marks the root of a work tree.
const GIT_FOLDER: &str = ".git";

/// The file with patterns of files that Git does not commit.
const GIT_IGNORE_FILE: &str = ".gitignore";

/// The largest ignore file that is read, in bytes.
const MAX_IGNORE_FILE_BYTES: u64 = 1 << 20;

/// The name of the work tree in place of a revision.
const WORK_TREE: &str = "work tree";

/// The maximum number and size of the files of one revision, because they are in memory.
const FILE_LIMITS: TreeLimits =
    TreeLimits { total_bytes: 512 << 20, file_bytes: 64 << 20, entries: 200_000, depth: 128 };

/// The maximum number of files and folders in all artifacts of a revision. Each artifact has its own list.
const MAX_ARTIFACT_ENTRIES: usize = 4_000_000;

/// The files of a revision.
pub(crate) struct RevisionFiles {
    /// A commit, or the text for the work tree.
    pub(crate) revision: String,
    /// All files except links.
    files: MemoryTree,
    /// The ignore files, with their folders.
    ignore_files: Vec<(RelPath, String)>,
    /// The artifacts of sources, by their `spec.ignore`.
    artifacts: Mutex<BTreeMap<String, Arc<SourceArtifact>>>,
    /// The artifacts of generators, or the reasons why there are none.
    generated: Mutex<BTreeMap<String, Result<Arc<SourceArtifact>, String>>>,
}

impl RevisionFiles {
    fn new(revision: String, files: MemoryTree) -> Self {
        let mut ignore_files = Vec::new();
        for (path, _) in files.walk().filter(|(path, _)| path.name() == Some(IGNORE_FILE)) {
            if let Ok(text) = files.read(path) {
                let folder = path.parent().unwrap_or_else(RelPath::root);
                ignore_files.push((folder, String::from_utf8_lossy(&text).into_owned()));
            }
        }
        Self {
            revision,
            files,
            ignore_files,
            artifacts: Mutex::default(),
            generated: Mutex::default(),
        }
    }

    /// Reads the files of a commit from its Git objects.
    ///
    /// # Errors
    /// An object cannot be read, or there are too many files.
    pub(crate) fn of_snapshot(snapshot: &GitSnapshot) -> anyhow::Result<Self> {
        let mut builder = MemoryTree::builder(FILE_LIMITS);
        for entry in snapshot.entries()?.entries {
            let path = RelPath::parse(&entry.path)?;
            match entry.kind {
                TreeEntryKind::File { is_executable } => {
                    builder.file(&path, snapshot.read(&entry)?, is_executable)?;
                }
                // As in an artifact, the folder of a link exists, and a submodule is an empty folder.
                TreeEntryKind::Symlink => {
                    builder.dir(&path.parent().unwrap_or_else(RelPath::root))?;
                }
                TreeEntryKind::Submodule => builder.dir(&path)?,
            }
        }
        Ok(Self::new(snapshot.commit.sha.clone(), builder.build()))
    }

    /// Reads a file, even if no artifact contains it. Returns `None` if it does not exist.
    pub(crate) fn read(&self, path: &RelPath) -> Option<Vec<u8>> {
        self.files.read(path).ok().map(|content| content.to_vec())
    }

    /// The artifact of a source with this `spec.ignore`.
    ///
    /// # Errors
    /// The patterns are not valid, or there are too many artifacts.
    pub(crate) fn artifact(&self, ignore: Option<&str>) -> anyhow::Result<Arc<SourceArtifact>> {
        let key = ignore.unwrap_or_default().to_owned();
        let mut known = self.artifacts.lock();
        if let Some(artifact) = known.get(&key) {
            return Ok(artifact.clone());
        }
        let entries: usize = known.values().map(|it| it.files.len()).sum();
        ensure!(
            entries + self.files.len() <= MAX_ARTIFACT_ENTRIES,
            "too many sources leave out files of this repository in different ways: their artifacts have more than \
             {MAX_ARTIFACT_ENTRIES} files; give them the same spec.ignore"
        );
        let ignored = IgnoreMatcher::new(&self.ignore_files, ignore)?;
        let mut builder = MemoryTree::builder(FILE_LIMITS);
        for (path, entry) in self.files.walk() {
            match entry {
                FileMetadata::Dir if !ignored.is_ignored(path, true) => builder.dir(path)?,
                FileMetadata::File { executable, .. } if !ignored.is_ignored(path, false) => {
                    builder.file(path, self.files.read(path)?, executable)?;
                }
                FileMetadata::Dir | FileMetadata::File { .. } => {}
            }
        }
        let artifact = Arc::new(SourceArtifact::new(builder.build()));
        known.insert(key, artifact.clone());
        Ok(artifact)
    }

    /// All files of a folder, including those that sources leave out. The paths are relative to the folder.
    ///
    /// # Errors
    /// There are too many files.
    pub(crate) fn folder(&self, folder: &RelPath) -> Result<Arc<SourceArtifact>, String> {
        // The keys of generated artifacts are JSON, so this key is different from all of them.
        self.generated(format!("folder {folder}"), || {
            let mut builder = MemoryTree::builder(FILE_LIMITS);
            for (path, entry) in self.files.walk() {
                let Some(inner) = path.strip_prefix(folder) else { continue };
                let FileMetadata::File { executable, .. } = entry else { continue };
                let body = self.files.read(path).map_err(|error| error.to_string())?;
                builder.file(&inner, body, executable).map_err(|error| error.to_string())?;
            }
            Ok(builder.build())
        })
    }

    /// The artifact of a generator. It is made once, unless it is too large to keep.
    ///
    /// # Errors
    /// The artifact cannot be made, or there are too many artifacts.
    pub(crate) fn generated(
        &self,
        key: String,
        make: impl FnOnce() -> Result<MemoryTree, String>,
    ) -> Result<Arc<SourceArtifact>, String> {
        let known = self.generated.lock().get(&key).cloned();
        if let Some(known) = known {
            return known;
        }
        let made = make().map(|files| Arc::new(SourceArtifact::new(files)));
        let mut known = self.generated.lock();
        let entries: usize = known.values().flatten().map(|it| it.files.len()).sum();
        let more = made.as_ref().map_or(0, |it| it.files.len());
        if entries + more > MAX_ARTIFACT_ENTRIES {
            return Err(format!(
                "the artifacts of generators have more than {MAX_ARTIFACT_ENTRIES} files"
            ));
        }
        known.insert(key, made.clone());
        made
    }
}

/// A local Git repository. It has a work tree, or it is a bare repository, from which only revisions can be read.
pub(crate) struct LocalGitRepository {
    /// The root of the work tree, or the folder of a bare repository.
    root: PathBuf,
    is_bare: bool,
    repository: ReadOnlyLocalRepository,
}

impl LocalGitRepository {
    /// Finds the repository that contains a folder, which is an absolute path. The folder may be missing, because another
    /// revision may contain it. For a bare repository, the folder is a folder in its revisions.
    ///
    /// A folder inside a work tree never counts as a bare repository. A commit could contain the files of one, and must not
    /// choose which repository is read.
    ///
    /// # Errors
    /// The folder is in no repository, or the repository cannot be read.
    pub(crate) fn around(folder: &Path) -> anyhow::Result<Self> {
        let existing = folder.ancestors().find_map(|it| fs::canonicalize(it).ok());
        let outer = |is_root: fn(&Path) -> bool| {
            existing.as_deref().and_then(|it| it.ancestors().find(|it| is_root(it)))
        };
        let work_tree = outer(is_top);
        let is_bare = work_tree.is_none();
        let root = work_tree.or_else(|| outer(is_bare_repository)).with_context(|| {
            format!(
                "{} is not in a Git repository: run the command in one that is checked out or bare, or name a folder of one \
                 with --path",
                folder.display()
            )
        })?;
        let repository = ReadOnlyLocalRepository::open(root)?;
        Ok(Self { root: root.to_owned(), is_bare, repository })
    }

    /// Whether the repository has no work tree.
    pub(crate) fn is_bare(&self) -> bool {
        self.is_bare
    }

    /// Whether this repository is a separate clone inside another one, and no submodule of it.
    pub(crate) fn is_clone_in(&self, outer: &Self) -> bool {
        let is_below = self.root != outer.root && self.root.starts_with(&outer.root);
        let place = fs::symlink_metadata(self.root.join(GIT_FOLDER));
        is_below && place.is_ok_and(|it| it.is_dir())
    }

    /// The path of a folder, relative to the root of the repository.
    ///
    /// # Errors
    /// The folder is outside of the repository.
    pub(crate) fn path_of(&self, folder: &Path) -> anyhow::Result<RelPath> {
        let absolute = std::env::current_dir()?.join(folder);
        let mut plain = PathBuf::new();
        for part in absolute.components() {
            match part {
                Component::ParentDir => {
                    plain.pop();
                }
                Component::CurDir => {}
                part => plain.push(part),
            }
        }
        // Links below the root are in no artifact and must not lead to another folder. So the outermost folder that is the root
        // counts.
        let is_root = |it: &&Path| fs::canonicalize(it).is_ok_and(|real| real == self.root);
        if let Some(top) = plain.ancestors().filter(is_root).last() {
            let inside = plain.strip_prefix(top)?.to_str();
            let unreadable = || format!("{} is not UTF-8", folder.display());
            return Ok(RelPath::parse(inside.with_context(unreadable)?)?);
        }
        // The given path may lead into the work tree through a link from outside.
        let real = plain.ancestors().find_map(|it| {
            let rest = plain.strip_prefix(it).ok()?;
            Some(fs::canonicalize(it).ok()?.join(rest))
        });
        let inside = real.as_deref().and_then(|it| it.strip_prefix(&self.root).ok());
        let outside =
            || format!("{} is not in the repository {}", folder.display(), self.root.display());
        let inside = inside.and_then(Path::to_str).with_context(outside)?;
        Ok(RelPath::parse(inside)?)
    }

    /// The absolute path of a path in the repository.
    pub(crate) fn place_of(&self, path: &RelPath) -> PathBuf {
        self.root.join(path.as_str())
    }

    /// The URLs of the Git remotes.
    pub(crate) fn remote_urls(&self) -> Vec<String> {
        self.repository.remote_urls()
    }

    /// Reads the files of a revision from the Git objects.
    ///
    /// # Errors
    /// The commit does not exist, cannot be read, or has too many files.
    pub(crate) fn revision(&self, revision: &str) -> anyhow::Result<RevisionFiles> {
        let limits = GitLimits {
            entries: FILE_LIMITS.entries,
            file: FILE_LIMITS.file_bytes,
            total: FILE_LIMITS.total_bytes,
            ..GitLimits::default()
        };
        RevisionFiles::of_snapshot(&self.repository.snapshot(revision, limits)?)
    }

    /// Reads the files of the work tree, committed or not. Files that Git ignores are left out, unless the last commit contains
    /// them.
    ///
    /// # Errors
    /// There is no work tree, a file cannot be read, or there are too many files.
    pub(crate) fn work_tree(&self) -> anyhow::Result<RevisionFiles> {
        ensure!(
            !self.is_bare,
            "{} is a bare repository, which has no work tree",
            self.root.display()
        );
        let mut walk =
            WorkTreeWalk { root: &self.root, committed: self.committed()?, ignored: None };
        let mut ignore_files = Vec::new();
        let mut builder = MemoryTree::builder(FILE_LIMITS);
        let mut folders = vec![RelPath::root()];
        while let Some(folder) = folders.pop() {
            builder.dir(&folder)?;
            walk.read_ignore_file(&folder, &mut ignore_files)?;
            for (path, known) in walk.entries(&folder)? {
                if walk.is_left_out(&path, known.is_dir()) {
                    continue;
                }
                if known.is_dir() {
                    folders.push(path);
                } else if known.is_file() {
                    builder.admits(&path, known.len())?;
                    let place = self.root.join(path.as_str());
                    let body = fs::read(&place);
                    let body = body.with_context(|| format!("cannot read {}", place.display()))?;
                    let is_executable = known.permissions().mode() & 0o111 != 0;
                    builder.file(&path, body, is_executable)?;
                }
            }
        }
        Ok(RevisionFiles::new(WORK_TREE.to_owned(), builder.build()))
    }

    /// The paths in the last commit. Empty before the first commit.
    fn committed(&self) -> anyhow::Result<BTreeSet<String>> {
        if self.repository.commit("HEAD").is_err() {
            return Ok(BTreeSet::new());
        }
        let snapshot = self.repository.snapshot("HEAD", GitLimits::default())?;
        Ok(snapshot.entries()?.entries.into_iter().map(|entry| entry.path).collect())
    }
}

/// The state of reading a work tree.
struct WorkTreeWalk<'r> {
    root: &'r Path,
    committed: BTreeSet<String>,
    /// The ignore patterns that were read so far. `None` if there are none.
    ignored: Option<IgnoreMatcher>,
}

impl WorkTreeWalk<'_> {
    /// Adds the patterns in a folder's `.gitignore`. They have the same syntax as `.sourceignore`.
    fn read_ignore_file(
        &mut self,
        folder: &RelPath,
        known: &mut Vec<(RelPath, String)>,
    ) -> anyhow::Result<()> {
        let place = self.root.join(folder.as_str()).join(GIT_IGNORE_FILE);
        let is_small = |it: Metadata| it.is_file() && it.len() <= MAX_IGNORE_FILE_BYTES;
        if !fs::symlink_metadata(&place).is_ok_and(is_small) {
            return Ok(());
        }
        if let Ok(text) = fs::read(&place) {
            known.push((folder.clone(), String::from_utf8_lossy(&text).into_owned()));
            let matcher = IgnoreMatcher::new(known, None);
            self.ignored =
                Some(matcher.with_context(|| format!("{GIT_IGNORE_FILE} in `{folder}`"))?);
        }
        Ok(())
    }

    /// The files and folders directly in a folder, by name. Links and other repositories are left out.
    fn entries(&self, folder: &RelPath) -> anyhow::Result<Vec<(RelPath, Metadata)>> {
        let place = self.root.join(folder.as_str());
        let unread = || format!("cannot read {}", place.display());
        let mut found = Vec::new();
        for entry in fs::read_dir(&place).with_context(unread)? {
            let entry = entry.with_context(unread)?;
            // No path in a spec can name a file whose name is not UTF-8.
            let Ok(name) = entry.file_name().into_string() else { continue };
            let known = entry.metadata().with_context(unread)?;
            if name == GIT_FOLDER || (known.is_dir() && is_top(&entry.path())) {
                continue;
            }
            found.push((folder.join(&name)?, known));
            ensure!(
                found.len() <= FILE_LIMITS.entries,
                "{} has more than {} files",
                place.display(),
                FILE_LIMITS.entries
            );
        }
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(found)
    }

    /// Whether Git ignores a file or folder, and the last commit contains no part of it.
    fn is_left_out(&self, path: &RelPath, is_folder: bool) -> bool {
        let Some(ignored) = &self.ignored else { return false };
        let begin = if is_folder { format!("{path}/") } else { path.to_string() };
        let next = self.committed.range(begin.clone()..).next();
        let is_committed = next.is_some_and(|next| match is_folder {
            true => next.starts_with(&begin),
            false => *next == begin,
        });
        !is_committed && ignored.is_ignored(path, is_folder)
    }
}

/// Whether a folder is the root of a work tree.
fn is_top(folder: &Path) -> bool {
    fs::symlink_metadata(folder.join(GIT_FOLDER)).is_ok()
}

/// Whether a folder contains the files that Git requires of a repository.
fn is_bare_repository(folder: &Path) -> bool {
    folder.join("HEAD").is_file() && ["objects", "refs"].iter().all(|it| folder.join(it).is_dir())
}
