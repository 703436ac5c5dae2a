//! A Git repository on this disk: the files of a revision or of the work tree, as a source makes an artifact of them.
//!
//! Elsewhere: reading objects of Git (`git`), patterns of files that are left out (`artifacts::ignore`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use artifacts::ignore::{IGNORE_FILE, IgnoreMatcher};
use git::{GitLimits, ReadOnlyLocalRepository, TreeEntryKind};
use parking_lot::Mutex;
use tree::{FileMetadata, FileTree as _, MemoryTree, RelPath, TreeLimits};

use super::source_artifact::SourceArtifact;

/// The folder or file by which Git knows the top of a work tree.
const GIT_FOLDER: &str = ".git";

/// Where Git has the patterns of files that it does not commit.
const GIT_IGNORE_FILE: &str = ".gitignore";

/// A larger one is not read.
const MAX_IGNORE_FILE_BYTES: u64 = 1 << 20;

/// How a rendering of the work tree is called.
const WORK_TREE: &str = "work tree";

/// The most files that are read of one revision, and how large they may be: they are in memory.
const FILE_LIMITS: TreeLimits =
    TreeLimits { total_bytes: 512 << 20, file_bytes: 64 << 20, entries: 200_000, depth: 128 };

/// The most files and folders of all artifacts of a revision: each artifact has a list of its own.
const MAX_ARTIFACT_ENTRIES: usize = 4_000_000;

/// The files of a revision.
pub(crate) struct RevisionFiles {
    /// A commit, or that it is the work tree.
    pub(crate) revision: String,
    /// All of them but links.
    files: MemoryTree,
    /// The ignore files, with their folders.
    ignore_files: Vec<(RelPath, String)>,
    /// The artifacts that sources make of it, by their `spec.ignore`.
    artifacts: Mutex<BTreeMap<String, Arc<SourceArtifact>>>,
    /// The artifacts that generators make of it, or why there is none.
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

    /// A file, whether an artifact has it or not; none if there is no such file.
    pub(crate) fn read(&self, path: &RelPath) -> Option<Vec<u8>> {
        self.files.read(path).ok().map(|content| content.to_vec())
    }

    /// The artifact of a source with this `spec.ignore`.
    ///
    /// # Errors
    /// The patterns cannot be used, or there are too many artifacts.
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

    /// The files of a folder as the repository has them, whatever sources leave out. Paths begin at the folder.
    ///
    /// # Errors
    /// There are too many files.
    pub(crate) fn folder(&self, folder: &RelPath) -> Result<Arc<SourceArtifact>, String> {
        // The keys of generated artifacts are JSON.
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

    /// The artifact that a generator makes; each is made once, or as often as it cannot be kept.
    ///
    /// # Errors
    /// It cannot be made, or there are too many of them.
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

/// A Git repository on this disk: one that is checked out, or a bare one, of which only revisions can be read.
pub(crate) struct LocalGitRepository {
    /// The top of the work tree, or the folder of a bare repository.
    root: PathBuf,
    is_bare: bool,
    repository: ReadOnlyLocalRepository,
}

impl LocalGitRepository {
    /// The repository that a folder is in, which is given by its absolute path. The folder itself may be missing, since another
    /// revision may have it. Below a bare repository, folders are those of its revisions.
    ///
    /// A folder that looks like a bare repository counts only outside of work trees: a commit may have the files of one, and
    /// must not choose which repository is read.
    ///
    /// # Errors
    /// It is in none, or the repository cannot be read.
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

    /// Whether it has no work tree.
    pub(crate) fn is_bare(&self) -> bool {
        self.is_bare
    }

    /// Whether it is a clone of its own below the top of another one, and no submodule.
    pub(crate) fn is_clone_in(&self, outer: &Self) -> bool {
        let is_below = self.root != outer.root && self.root.starts_with(&outer.root);
        let place = fs::symlink_metadata(self.root.join(GIT_FOLDER));
        is_below && place.is_ok_and(|it| it.is_dir())
    }

    /// The path of a folder from the top of the repository.
    ///
    /// # Errors
    /// It is outside.
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
        // Links below the top are in no artifact, and must not lead to another folder: the outermost way to the top counts.
        let is_root = |it: &&Path| fs::canonicalize(it).is_ok_and(|real| real == self.root);
        if let Some(top) = plain.ancestors().filter(is_root).last() {
            let inside = plain.strip_prefix(top)?.to_str();
            let unreadable = || format!("{} is not UTF-8", folder.display());
            return Ok(RelPath::parse(inside.with_context(unreadable)?)?);
        }
        // What was given may lead into the work tree by a link from outside.
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

    /// Where a path from the top is on this disk.
    pub(crate) fn place_of(&self, path: &RelPath) -> PathBuf {
        self.root.join(path.as_str())
    }

    /// The addresses of the remotes.
    pub(crate) fn remote_urls(&self) -> Vec<String> {
        self.repository.remote_urls()
    }

    /// The files of a revision, read out of the objects of Git.
    ///
    /// # Errors
    /// There is no such commit, it cannot be read, or it has too many files.
    pub(crate) fn revision(&self, revision: &str) -> anyhow::Result<RevisionFiles> {
        let limits = GitLimits {
            entries: FILE_LIMITS.entries,
            file: FILE_LIMITS.file_bytes,
            total: FILE_LIMITS.total_bytes,
            ..GitLimits::default()
        };
        let snapshot = self.repository.snapshot(revision, limits)?;
        let mut builder = MemoryTree::builder(FILE_LIMITS);
        for entry in snapshot.entries()?.entries {
            let path = RelPath::parse(&entry.path)?;
            match entry.kind {
                TreeEntryKind::File { is_executable } => {
                    builder.file(&path, snapshot.read(&entry)?, is_executable)?;
                }
                // As in an artifact: the folder of a link stays, and that of a submodule is empty.
                TreeEntryKind::Symlink => {
                    builder.dir(&path.parent().unwrap_or_else(RelPath::root))?;
                }
                TreeEntryKind::Submodule => builder.dir(&path)?,
            }
        }
        Ok(RevisionFiles::new(snapshot.commit.sha.clone(), builder.build()))
    }

    /// The files of the work tree, whether they are committed or not; without those that Git ignores, unless the last
    /// commit has them.
    ///
    /// # Errors
    /// There is none, a file cannot be read, or there are too many.
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

    /// The paths of the last commit; none before the first.
    fn committed(&self) -> anyhow::Result<BTreeSet<String>> {
        if self.repository.commit("HEAD").is_err() {
            return Ok(BTreeSet::new());
        }
        let snapshot = self.repository.snapshot("HEAD", GitLimits::default())?;
        Ok(snapshot.entries()?.entries.into_iter().map(|entry| entry.path).collect())
    }
}

/// What is known of a work tree while it is read.
struct WorkTreeWalk<'r> {
    root: &'r Path,
    committed: BTreeSet<String>,
    /// The patterns that were read so far; none without any.
    ignored: Option<IgnoreMatcher>,
}

impl WorkTreeWalk<'_> {
    /// Adds the patterns that Git has in a folder. They have the notation of `.sourceignore`.
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

    /// Files and folders directly in a folder, by their names; no links, and nothing of other repositories.
    fn entries(&self, folder: &RelPath) -> anyhow::Result<Vec<(RelPath, Metadata)>> {
        let place = self.root.join(folder.as_str());
        let unread = || format!("cannot read {}", place.display());
        let mut found = Vec::new();
        for entry in fs::read_dir(&place).with_context(unread)? {
            let entry = entry.with_context(unread)?;
            // No path of a spec leads to a file whose name is not UTF-8.
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

    /// Whether Git ignores a file or folder, and the last commit has nothing of it.
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

/// Whether a folder is the top of a work tree.
fn is_top(folder: &Path) -> bool {
    fs::symlink_metadata(folder.join(GIT_FOLDER)).is_ok()
}

/// Whether a folder has what Git requires of a repository.
fn is_bare_repository(folder: &Path) -> bool {
    folder.join("HEAD").is_file() && ["objects", "refs"].iter().all(|it| folder.join(it).is_dir())
}
