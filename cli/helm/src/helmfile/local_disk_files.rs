//! Gives helmfiles access to the local disk, as a file tree with the root `/`. Links are followed, because the command may read
//! everything that its user may read.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tree::{FileKind, FileMetadata, FileTree, RelPath, TreeError};

/// The disk of this machine.
pub(crate) struct LocalDiskFiles;

fn path(at: &RelPath) -> PathBuf {
    PathBuf::from(format!("/{}", at.as_str()))
}

impl FileTree for LocalDiskFiles {
    fn read(&self, at: &RelPath) -> Result<Arc<[u8]>, TreeError> {
        match self.entry(at) {
            Some(FileMetadata::Dir) => Err(TreeError::IsDirectory(at.clone())),
            _ => fs::read(path(at)).map(Into::into).map_err(|_| TreeError::NotFound(at.clone())),
        }
    }

    fn list(&self, at: &RelPath) -> Result<Vec<(String, FileKind)>, TreeError> {
        let missing = || TreeError::NotFound(at.clone());
        let mut found = Vec::new();
        for entry in fs::read_dir(path(at)).map_err(|_| missing())?.flatten() {
            // Links without a target, and names that are not UTF-8, are left out.
            let Ok(name) = entry.file_name().into_string() else { continue };
            let Ok(known) = fs::metadata(entry.path()) else { continue };
            found.push((name, if known.is_dir() { FileKind::Dir } else { FileKind::File }));
        }
        found.sort();
        Ok(found)
    }

    fn entry(&self, at: &RelPath) -> Option<FileMetadata> {
        let known = fs::metadata(path(at)).ok()?;
        Some(match known.is_dir() {
            true => FileMetadata::Dir,
            false => FileMetadata::File { len: known.len(), executable: false },
        })
    }
}

/// All files below a folder that this process has written, with their paths in the folder.
///
/// # Errors
/// The error of the operating system.
pub(crate) fn below(top: &Path) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut found = Vec::new();
    let mut left = vec![top.to_owned()];
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                left.push(path);
                continue;
            }
            let name = path.strip_prefix(top).unwrap_or(&path).to_string_lossy().into_owned();
            found.push((name, fs::read(&path)?));
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_lead_to_files_and_those_without_a_target_are_not_listed() {
        let folder = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(folder.path()).unwrap();
        fs::create_dir(top.join("d")).unwrap();
        fs::write(top.join("d/f"), "text").unwrap();
        symlink("d/f", top.join("link")).unwrap();
        symlink("none", top.join("broken")).unwrap();
        let at = |name: &str| {
            RelPath::root().join(top.join(name).to_str().unwrap().trim_start_matches('/')).unwrap()
        };
        assert_eq!(&*LocalDiskFiles.read(&at("link")).unwrap(), b"text");
        assert_eq!(LocalDiskFiles.read(&at("d")), Err(TreeError::IsDirectory(at("d"))));
        assert_eq!(LocalDiskFiles.entry(&at("broken")), None);
        let listed = LocalDiskFiles.list(&at("")).unwrap();
        assert_eq!(listed, [("d".to_owned(), FileKind::Dir), ("link".to_owned(), FileKind::File)]);
        let found = below(&top.join("d")).unwrap();
        assert_eq!(found, [("f".to_owned(), b"text".to_vec())]);
    }
}
