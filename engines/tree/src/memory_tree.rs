//! A tree of files in memory.
//!
//! Here: filling the tree within limits, and reading from it.
//! Elsewhere: unpacking an archive into a tree (`artifacts::archive`).

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use crate::{FileKind, FileMetadata, FileTree, RelPath, RelPathError, TreeError};

/// A tree of files in memory. Clones share its content.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryTree {
    /// Every file and every folder but the root.
    nodes: Arc<BTreeMap<RelPath, MemoryTreeNode>>,
    bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum MemoryTreeNode {
    File { body: Arc<[u8]>, executable: bool },
    Dir,
}

impl MemoryTreeNode {
    fn entry(&self) -> FileMetadata {
        match self {
            Self::File { body, executable } => {
                FileMetadata::File { len: body.len() as u64, executable: *executable }
            }
            Self::Dir => FileMetadata::Dir,
        }
    }

    fn len(&self) -> u64 {
        match self {
            Self::File { body, .. } => body.len() as u64,
            Self::Dir => 0,
        }
    }
}

/// The limits of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TreeLimits {
    /// Bytes in all bodies and all paths together.
    pub total_bytes: u64,
    /// The most bytes of one file.
    pub file_bytes: u64,
    /// The most files and folders. A folder counts even if it only occurs in the path of a file.
    pub entries: usize,
    /// Parts of a path.
    pub depth: usize,
}

impl Default for TreeLimits {
    /// 256 MiB, 64 MiB a file, 200 000 entries, 128 levels.
    fn default() -> Self {
        Self { total_bytes: 256 << 20, file_bytes: 64 << 20, entries: 200_000, depth: 128 }
    }
}

/// Why an entry was not added to a tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TreeBuildError {
    /// The path is not valid inside a tree.
    #[error(transparent)]
    Path(#[from] RelPathError),
    /// A folder is where the file should go.
    #[error("`{0}` is a directory, so it cannot be a file too")]
    IsDirectory(RelPath),
    /// A file is where a folder should go.
    #[error("`{0}` is a file, so it cannot be a directory too")]
    NotDirectory(RelPath),
    /// One file is too big.
    #[error("`{path}` has {len} bytes, more than the {max} allowed for one file")]
    FileTooLarge {
        /// The file.
        path: RelPath,
        /// The size of the file in bytes.
        len: u64,
        /// [`TreeLimits::file_bytes`].
        max: u64,
    },
    /// Everything together is too big.
    #[error("with `{path}` the files and their paths are larger than the {max} bytes allowed")]
    TooLarge {
        /// The path that exceeded the limit.
        path: RelPath,
        /// [`TreeLimits::total_bytes`].
        max: u64,
    },
    /// There are too many files and folders.
    #[error("`{path}` is one more than the {max} files and directories allowed")]
    TooMany {
        /// The path that exceeded the limit.
        path: RelPath,
        /// [`TreeLimits::entries`].
        max: usize,
    },
    /// A path has too many parts.
    #[error("`{path}` lies deeper than {max} directories")]
    TooDeep {
        /// The path.
        path: RelPath,
        /// [`TreeLimits::depth`].
        max: usize,
    },
}

/// Builds a [`MemoryTree`] entry by entry, within limits.
#[derive(Debug)]
pub struct MemoryTreeBuilder {
    nodes: BTreeMap<RelPath, MemoryTreeNode>,
    bytes: u64,
    limits: TreeLimits,
}

impl MemoryTreeBuilder {
    /// An empty tree that will not grow beyond `limits`.
    #[must_use]
    pub fn new(limits: TreeLimits) -> Self {
        Self { nodes: BTreeMap::new(), bytes: 0, limits }
    }

    /// Adds a file and its parent folders to the tree. An existing file at the path is replaced.
    ///
    /// # Errors
    /// The path is a folder, a parent of the path is a file, or a limit is reached.
    pub fn file(
        &mut self,
        path: &RelPath,
        body: impl Into<Arc<[u8]>>,
        executable: bool,
    ) -> Result<(), TreeBuildError> {
        let body = body.into();
        self.admits(path, body.len() as u64)?;
        self.parents(path)?;
        self.insert(path, MemoryTreeNode::File { body, executable })
    }

    /// Adds a folder and its missing parent folders. An existing folder is not changed.
    ///
    /// # Errors
    /// The path or a parent of it is a file, or a limit is reached.
    pub fn dir(&mut self, path: &RelPath) -> Result<(), TreeBuildError> {
        self.is_shallow(path)?;
        self.parents(path)?;
        if path.is_root() {
            return Ok(());
        }
        match self.nodes.get(path) {
            Some(MemoryTreeNode::Dir) => Ok(()),
            Some(MemoryTreeNode::File { .. }) => Err(TreeBuildError::NotDirectory(path.clone())),
            None => self.insert(path, MemoryTreeNode::Dir),
        }
    }

    /// Checks whether a file of `len` bytes would be accepted at `path`. The caller can then skip a file without reading its
    /// body.
    ///
    /// # Errors
    /// The path is a folder, or a limit is reached.
    pub fn admits(&self, path: &RelPath, len: u64) -> Result<(), TreeBuildError> {
        self.is_shallow(path)?;
        if path.is_root() || matches!(self.nodes.get(path), Some(MemoryTreeNode::Dir)) {
            return Err(TreeBuildError::IsDirectory(path.clone()));
        }
        let max = self.limits.file_bytes;
        let total = self.limits.total_bytes;
        if len > max {
            return Err(TreeBuildError::FileTooLarge { path: path.clone(), len, max });
        }
        let replaced = self.nodes.get(path).map_or(0, |node| node.len() + weight(path));
        if (self.bytes - replaced).saturating_add(len).saturating_add(weight(path)) > total {
            return Err(TreeBuildError::TooLarge { path: path.clone(), max: total });
        }
        Ok(())
    }

    /// The metadata of an entry that was already added. `None` if no entry was added at the path.
    #[must_use]
    pub fn entry(&self, path: &RelPath) -> Option<FileMetadata> {
        entry(&self.nodes, path)
    }

    /// The content of a file that was already added.
    ///
    /// # Errors
    /// The path does not exist, or it is a folder.
    pub fn read(&self, path: &RelPath) -> Result<Arc<[u8]>, TreeError> {
        read(&self.nodes, path)
    }

    /// The finished tree with all added entries.
    #[must_use]
    pub fn build(self) -> MemoryTree {
        MemoryTree { nodes: Arc::new(self.nodes), bytes: self.bytes }
    }

    fn is_shallow(&self, path: &RelPath) -> Result<(), TreeBuildError> {
        let max = self.limits.depth;
        if path.depth() > max {
            return Err(TreeBuildError::TooDeep { path: path.clone(), max });
        }
        Ok(())
    }

    /// Adds the folders above `path`.
    fn parents(&mut self, path: &RelPath) -> Result<(), TreeBuildError> {
        let mut missing = Vec::new();
        let mut above = path.parent();
        while let Some(dir) = above.filter(|dir| !dir.is_root()) {
            match self.nodes.get(&dir) {
                Some(MemoryTreeNode::Dir) => break,
                Some(MemoryTreeNode::File { .. }) => return Err(TreeBuildError::NotDirectory(dir)),
                None => above = dir.parent(),
            }
            missing.push(dir);
        }
        missing.iter().rev().try_for_each(|dir| self.insert(dir, MemoryTreeNode::Dir))
    }

    fn insert(&mut self, path: &RelPath, node: MemoryTreeNode) -> Result<(), TreeBuildError> {
        let TreeLimits { total_bytes, entries, .. } = self.limits;
        let replaced = self.nodes.get(path);
        if replaced.is_none() && self.nodes.len() >= entries {
            return Err(TreeBuildError::TooMany { path: path.clone(), max: entries });
        }
        let kept = self.bytes - replaced.map_or(0, |node| node.len() + weight(path));
        let bytes = kept.saturating_add(node.len()).saturating_add(weight(path));
        if bytes > total_bytes {
            return Err(TreeBuildError::TooLarge { path: path.clone(), max: total_bytes });
        }
        self.bytes = bytes;
        self.nodes.insert(path.clone(), node);
        Ok(())
    }
}

/// The size that a path adds to the total.
fn weight(path: &RelPath) -> u64 {
    path.as_str().len() as u64
}

fn entry(nodes: &BTreeMap<RelPath, MemoryTreeNode>, path: &RelPath) -> Option<FileMetadata> {
    if path.is_root() {
        return Some(FileMetadata::Dir);
    }
    nodes.get(path).map(MemoryTreeNode::entry)
}

fn read(nodes: &BTreeMap<RelPath, MemoryTreeNode>, path: &RelPath) -> Result<Arc<[u8]>, TreeError> {
    match nodes.get(path) {
        Some(MemoryTreeNode::File { body, .. }) => Ok(Arc::clone(body)),
        Some(MemoryTreeNode::Dir) => Err(TreeError::IsDirectory(path.clone())),
        None if path.is_root() => Err(TreeError::IsDirectory(path.clone())),
        None => Err(TreeError::NotFound(path.clone())),
    }
}

impl MemoryTree {
    /// An empty builder with these limits.
    #[must_use]
    pub fn builder(limits: TreeLimits) -> MemoryTreeBuilder {
        MemoryTreeBuilder::new(limits)
    }

    /// A tree of plain files, within the default limits.
    ///
    /// # Errors
    /// A path is not valid inside a tree, two collide, or a limit is reached.
    pub fn from_files<P: AsRef<str>, B: AsRef<[u8]>>(
        files: impl IntoIterator<Item = (P, B)>,
    ) -> Result<Self, TreeBuildError> {
        let mut builder = Self::builder(TreeLimits::default());
        for (path, body) in files {
            builder.file(&RelPath::parse(path.as_ref())?, body.as_ref(), false)?;
        }
        Ok(builder.build())
    }

    /// A builder that begins with everything in this tree, sharing the bodies.
    #[must_use]
    pub fn to_builder(&self, limits: TreeLimits) -> MemoryTreeBuilder {
        MemoryTreeBuilder { nodes: (*self.nodes).clone(), bytes: self.bytes, limits }
    }

    /// The bytes of files and paths, as counted for [`TreeLimits::total_bytes`].
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The number of files and folders, without the root.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether the tree has only its root.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Every file and folder except the root. Each folder comes before its entries.
    pub fn walk(&self) -> impl Iterator<Item = (&RelPath, FileMetadata)> {
        self.nodes.iter().map(|(path, node)| (path, node.entry()))
    }
}

impl FileTree for MemoryTree {
    fn read(&self, path: &RelPath) -> Result<Arc<[u8]>, TreeError> {
        read(&self.nodes, path)
    }

    fn list(&self, dir: &RelPath) -> Result<Vec<(String, FileKind)>, TreeError> {
        match self.entry(dir) {
            Some(FileMetadata::Dir) => {}
            Some(FileMetadata::File { .. }) => return Err(TreeError::NotDirectory(dir.clone())),
            None => return Err(TreeError::NotFound(dir.clone())),
        }
        let mut found = Vec::new();
        // The first path after the folder is its first child. From there, each step skips a whole subtree.
        let mut from = Bound::Excluded(dir.clone());
        while let Some((path, node)) = self.nodes.range((from, Bound::Unbounded)).next() {
            let Some(name) = path.name().filter(|_| path.starts_with(dir)) else { break };
            found.push((name.to_owned(), node.entry().kind()));
            from = Bound::Included(path.after_subtree());
        }
        Ok(found)
    }

    fn entry(&self, path: &RelPath) -> Option<FileMetadata> {
        entry(&self.nodes, path)
    }
}

#[cfg(test)]
mod tests;
