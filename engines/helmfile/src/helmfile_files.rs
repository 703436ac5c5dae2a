//! The files that a helmfile can read: the files of its source, and the files that were fetched for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use helm::chart::ChartFile;
use parking_lot::{Mutex, MutexGuard};
use tree::{FileKind, FileMetadata, FileTree, MemoryTree, RelPath, TreeError, TreeLimits};

/// The directory for fetched files. A directory of this name in the source is hidden.
const BESIDE: &str = ".windlass";

/// The files that a helmfile can read: the files of its source, and the files that were fetched for it.
#[derive(Debug)]
pub struct HelmfileFiles {
    source: Arc<MemoryTree>,
    more: Mutex<BTreeMap<String, Arc<MemoryTree>>>,
}

impl HelmfileFiles {
    /// Only the files of a source.
    pub fn new(source: Arc<MemoryTree>) -> Self {
        Self { source, more: Mutex::default() }
    }

    fn more(&self) -> MutexGuard<'_, BTreeMap<String, Arc<MemoryTree>>> {
        self.more.lock()
    }

    /// Adds fetched files and returns their directory as an absolute path.
    ///
    /// # Errors
    /// A path leads out of the directory, or a limit is exceeded.
    pub fn put<'f>(
        &self,
        name: &str,
        files: impl IntoIterator<Item = (&'f str, &'f [u8])>,
    ) -> Result<String, String> {
        let mut builder = MemoryTree::builder(TreeLimits::default());
        for (path, data) in files {
            let path = RelPath::parse(path).map_err(|error| error.to_string())?;
            builder.file(&path, data, false).map_err(|error| error.to_string())?;
        }
        Ok(self.put_tree(name, builder.build()))
    }

    /// Adds a fetched tree and returns its directory as an absolute path.
    pub fn put_tree(&self, name: &str, tree: MemoryTree) -> String {
        self.more().insert(name.to_owned(), Arc::new(tree));
        format!("/{BESIDE}/{name}")
    }

    /// The tree that contains a path, and the path within that tree. `None` if there is no such tree.
    fn find(&self, path: &RelPath) -> Option<(Arc<MemoryTree>, RelPath)> {
        let Some(rest) = path.as_str().strip_prefix(BESIDE) else {
            return Some((self.source.clone(), path.clone()));
        };
        let Some(rest) = rest.strip_prefix('/') else {
            let is_other = !rest.is_empty();
            return is_other.then(|| (self.source.clone(), path.clone()));
        };
        let (name, rest) = rest.split_once('/').unwrap_or((rest, ""));
        let tree = self.more().get(name).cloned()?;
        Some((tree, RelPath::parse(rest).ok()?))
    }

    /// The files in a chart's directory.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn chart(&self, directory: &RelPath) -> Result<Vec<ChartFile>, TreeError> {
        let mut found = Vec::new();
        let mut left = vec![(directory.clone(), String::new())];
        while let Some((at, shown)) = left.pop() {
            // Entries are taken from the end, so they are added in reverse.
            for (name, kind) in self.list(&at)?.into_iter().rev() {
                let path = at.join(&name).map_err(|_| TreeError::NotFound(at.clone()))?;
                let shown = if shown.is_empty() { name } else { format!("{shown}/{name}") };
                match kind {
                    FileKind::Dir => left.push((path, shown)),
                    FileKind::File => {
                        found.push(ChartFile { name: shown, data: self.read(&path)? });
                    }
                }
            }
        }
        found.sort_by(|one, other| one.name.split('/').cmp(other.name.split('/')));
        Ok(found)
    }
}

impl FileTree for HelmfileFiles {
    fn read(&self, path: &RelPath) -> Result<Arc<[u8]>, TreeError> {
        let missing = || TreeError::NotFound(path.clone());
        let (tree, path) = self.find(path).ok_or_else(missing)?;
        tree.read(&path)
    }

    fn list(&self, path: &RelPath) -> Result<Vec<(String, FileKind)>, TreeError> {
        let missing = || TreeError::NotFound(path.clone());
        let (tree, path) = self.find(path).ok_or_else(missing)?;
        tree.list(&path)
    }

    fn entry(&self, path: &RelPath) -> Option<FileMetadata> {
        let (tree, path) = self.find(path)?;
        tree.entry(&path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(path: &str) -> RelPath {
        RelPath::parse(path).unwrap()
    }

    #[test]
    fn what_was_fetched_is_beside_the_source_and_hides_nothing_of_it() {
        let source = MemoryTree::from_files([("a/b.yaml", "source"), (".windlass/x/f", "hidden")]);
        let files = HelmfileFiles::new(Arc::new(source.unwrap()));
        assert_eq!(files.read(&at(".windlass/x/f")), Err(TreeError::NotFound(at(".windlass/x/f"))));
        let place = files.put("x", [("c/Chart.yaml", b"fetched".as_slice())]).unwrap();
        assert_eq!(place, "/.windlass/x");
        assert_eq!(&*files.read(&at(".windlass/x/c/Chart.yaml")).unwrap(), b"fetched");
        assert_eq!(&*files.read(&at("a/b.yaml")).unwrap(), b"source");
        assert_eq!(files.entry(&at(".windlass/x")), Some(FileMetadata::Dir));
        assert_eq!(files.entry(&at(".windlass")), None);
        assert!(files.put("y", [("../out", b"".as_slice())]).is_err());
        let chart = files.chart(&at(".windlass/x/c")).unwrap();
        assert_eq!(chart.iter().map(|file| file.name.as_str()).collect::<Vec<_>>(), ["Chart.yaml"]);
    }
}
