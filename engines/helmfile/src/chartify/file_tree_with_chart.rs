//! A tree of files with an additional directory that the tree itself does not contain.

use std::collections::BTreeSet;
use std::sync::Arc;

use tree::{FileKind, FileMetadata, FileTree, RelPath, TreeError};

use super::ChartFileTree;

/// The path of the additional directory. Real trees do not use this name.
pub(super) const ROOT: &str = "/.windlass-chartify";

/// A tree with an additional directory.
pub(super) struct FileTreeWithChartDirectory {
    below: Arc<dyn FileTree + Send + Sync>,
    tree: ChartFileTree,
    directories: BTreeSet<String>,
}

impl FileTreeWithChartDirectory {
    pub(super) fn new(below: Arc<dyn FileTree + Send + Sync>, tree: ChartFileTree) -> Self {
        let mut directories = BTreeSet::from([String::new()]);
        for path in tree.keys() {
            directories.extend(
                path.match_indices('/').filter_map(|(at, _)| path.get(..at)).map(str::to_owned),
            );
        }
        Self { below, tree, directories }
    }
}

/// The path relative to the directory of the chart, which is empty for the directory itself. `None` if the path is
/// elsewhere.
fn within(path: &RelPath) -> Option<&str> {
    let rest = path.as_str().strip_prefix(ROOT.trim_start_matches('/'))?;
    if rest.is_empty() { Some("") } else { rest.strip_prefix('/') }
}

impl FileTree for FileTreeWithChartDirectory {
    fn read(&self, path: &RelPath) -> Result<Arc<[u8]>, TreeError> {
        let Some(own) = within(path) else { return self.below.read(path) };
        if self.directories.contains(own) {
            return Err(TreeError::IsDirectory(path.clone()));
        }
        self.tree.get(own).cloned().ok_or_else(|| TreeError::NotFound(path.clone()))
    }

    fn list(&self, directory: &RelPath) -> Result<Vec<(String, FileKind)>, TreeError> {
        let Some(own) = within(directory) else { return self.below.list(directory) };
        if !self.directories.contains(own) {
            return Err(TreeError::NotFound(directory.clone()));
        }
        let child = |path: &String| {
            let rest =
                if own.is_empty() { path } else { path.strip_prefix(own)?.strip_prefix('/')? };
            (!rest.is_empty() && !rest.contains('/')).then(|| rest.to_owned())
        };
        let files = self.tree.keys().filter_map(child).map(|name| (name, FileKind::File));
        let directories =
            self.directories.iter().filter_map(child).map(|name| (name, FileKind::Dir));
        let mut all: Vec<(String, FileKind)> = files.chain(directories).collect();
        all.sort();
        Ok(all)
    }

    fn entry(&self, path: &RelPath) -> Option<FileMetadata> {
        let Some(own) = within(path) else { return self.below.entry(path) };
        if self.directories.contains(own) {
            return Some(FileMetadata::Dir);
        }
        let len = self.tree.get(own)?.len();
        Some(FileMetadata::File { len: u64::try_from(len).unwrap_or(u64::MAX), executable: false })
    }
}
