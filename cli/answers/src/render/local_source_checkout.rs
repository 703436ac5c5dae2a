//! Reads a local checkout as if it were the artifact of a source. It leaves out symbolic links and the files that
//! `.sourceignore` excludes.
//!
//! Elsewhere: ignore patterns (`artifacts::ignore`), building from the files (`kustomization.rs`).

use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use artifacts::ignore::{IGNORE_FILE, IgnoreMatcher};
use tree::{FileKind, FileMetadata, FileTree, RelPath, TreeError};

/// The maximum number of files and folders that are searched for ignore files.
const MAX_ENTRIES: usize = 200_000;

/// The folder of Git, which is never part of an artifact.
const OF_GIT: &str = ".git";

/// A local checkout that is read as the artifact of a source. It leaves out symbolic links and the files that `.sourceignore`
/// excludes.
pub(super) struct LocalSourceCheckout {
    root: PathBuf,
    ignored: IgnoreMatcher,
}

impl LocalSourceCheckout {
    /// Finds the root of the checkout from a folder and the path that the folder has in the checkout. Returns the checkout, and
    /// the folder's path in it.
    ///
    /// # Errors
    /// The folder does not exist, or its ignore files cannot be used.
    pub(super) fn of(folder: &Path, path: &str) -> anyhow::Result<(Self, RelPath)> {
        let shown = folder.display();
        let real = fs::canonicalize(folder).with_context(|| format!("cannot read {shown}"))?;
        ensure!(real.is_dir(), "{shown} is not a directory");
        let wanted = RelPath::parse(path.trim_start_matches('/')).context("spec.path")?;
        let (root, folder) = match root_of(&real, &wanted) {
            Some(root) => (root, wanted),
            None => (real, RelPath::root()),
        };
        let nothing = IgnoreMatcher::without_defaults(None, None)?;
        let all = Self { root, ignored: nothing };
        let ignored = IgnoreMatcher::new(&all.ignore_files(&folder)?, None)?;
        Ok((Self { ignored, ..all }, folder))
    }

    /// The ignore files above a folder, and of all folders below it.
    fn ignore_files(&self, folder: &RelPath) -> anyhow::Result<Vec<(RelPath, String)>> {
        let mut folders = Vec::new();
        let mut above = folder.parent();
        while let Some(dir) = above {
            above = dir.parent();
            folders.push(dir);
        }
        let mut left = vec![folder.clone()];
        let mut seen = 0;
        while let Some(dir) = left.pop() {
            let entries = self.list(&dir)?;
            seen += entries.len();
            ensure!(seen <= MAX_ENTRIES, "more than {MAX_ENTRIES} files in {folder}");
            let inner = entries.iter().filter(|(_, kind)| *kind == FileKind::Dir);
            for (name, _) in inner {
                left.push(dir.join(name)?);
            }
            folders.push(dir);
        }
        let mut found = Vec::new();
        for dir in folders {
            if let Ok(text) = self.read(&dir.join(IGNORE_FILE)?) {
                found.push((dir, String::from_utf8_lossy(&text).into_owned()));
            }
        }
        Ok(found)
    }

    fn path(&self, at: &RelPath) -> PathBuf {
        self.root.join(at.as_str())
    }

    /// The metadata of the file or folder at a path in the checkout. Links are not followed. `None` if the path does not exist,
    /// or if the checkout leaves it out.
    fn known(&self, at: &RelPath) -> Option<Metadata> {
        let mut path = self.root.clone();
        let mut known = fs::metadata(&path).ok()?;
        for part in at.components() {
            path.push(part);
            known = fs::symlink_metadata(&path).ok().filter(|it| is_kept(part, it))?;
        }
        (known.is_dir() || !self.ignored.is_ignored(at, false)).then_some(known)
    }
}

/// Whether an entry is kept. Everything but files, folders and the folder of Git is dropped.
fn is_kept(name: &str, known: &Metadata) -> bool {
    known.is_file() || (known.is_dir() && name != OF_GIT)
}

/// The ancestor folder from which `path` leads to `folder`. `None` if `folder` does not end with `path`.
fn root_of(folder: &Path, path: &RelPath) -> Option<PathBuf> {
    folder.ends_with(path.as_str()).then(|| {
        let above = folder.ancestors().nth(path.depth());
        above.unwrap_or(folder).to_owned()
    })
}

impl FileTree for LocalSourceCheckout {
    fn read(&self, at: &RelPath) -> Result<Arc<[u8]>, TreeError> {
        let missing = || TreeError::NotFound(at.clone());
        if self.known(at).ok_or_else(missing)?.is_dir() {
            return Err(TreeError::IsDirectory(at.clone()));
        }
        fs::read(self.path(at)).map(Into::into).map_err(|_| missing())
    }

    fn list(&self, at: &RelPath) -> Result<Vec<(String, FileKind)>, TreeError> {
        let missing = || TreeError::NotFound(at.clone());
        if self.known(at).ok_or_else(missing)?.is_file() {
            return Err(TreeError::NotDirectory(at.clone()));
        }
        let mut found = Vec::new();
        for entry in fs::read_dir(self.path(at)).map_err(|_| missing())? {
            let entry = entry.map_err(|_| missing())?;
            // A kustomization cannot name files whose names are not UTF-8.
            let Ok(name) = entry.file_name().into_string() else { continue };
            let Some(kind) = at.join(&name).ok().and_then(|it| self.entry(&it)) else { continue };
            found.push((name, kind.kind()));
        }
        found.sort();
        Ok(found)
    }

    fn entry(&self, at: &RelPath) -> Option<FileMetadata> {
        let known = self.known(at)?;
        Some(match known.is_dir() {
            true => FileMetadata::Dir,
            false => FileMetadata::File { len: known.len(), executable: false },
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn at(text: &str) -> RelPath {
        RelPath::parse(text).unwrap()
    }

    fn names(checkout: &LocalSourceCheckout, path: &str) -> Vec<String> {
        checkout.list(&at(path)).unwrap().into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn files_beside_the_folder_belong_to_the_checkout_if_its_path_is_that_of_the_spec() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir_all(top.path().join("deploy/app")).unwrap();
        fs::create_dir_all(top.path().join("base")).unwrap();
        fs::write(top.path().join("base/a.yaml"), "a: 1").unwrap();
        let folder = top.path().join("deploy/app");
        let (checkout, path) = LocalSourceCheckout::of(&folder, "./deploy/app/").unwrap();
        assert_eq!(path, at("deploy/app"));
        assert_eq!(&*checkout.read(&at("base/a.yaml")).unwrap(), b"a: 1");
        for elsewhere in ["./other/app", "y/app"] {
            let (alone, path) = LocalSourceCheckout::of(&folder, elsewhere).unwrap();
            assert_eq!((path, alone.entry(&at("base"))), (RelPath::root(), None));
        }
        let (all, path) = LocalSourceCheckout::of(top.path(), "").unwrap();
        assert_eq!(
            (path, names(&all, "")),
            (RelPath::root(), ["base", "deploy"].map(str::to_owned).into())
        );
        assert!(LocalSourceCheckout::of(&top.path().join("none"), "").is_err());
    }

    #[test]
    fn what_no_artifact_has_is_not_there() {
        let top = tempfile::tempdir().unwrap();
        let path = |name: &str| top.path().join(name);
        fs::create_dir_all(path(".git")).unwrap();
        fs::create_dir_all(path("app")).unwrap();
        for name in [".git/config", ".gitlab-ci.yml", "app/a.yaml", "app/b.yaml"] {
            fs::write(path(name), "x").unwrap();
        }
        symlink("a.yaml", path("app/link.yaml")).unwrap();
        symlink("app", path("folder")).unwrap();
        let (checkout, _) = LocalSourceCheckout::of(top.path(), "").unwrap();
        assert_eq!(names(&checkout, ""), ["app"]);
        assert_eq!(names(&checkout, "app"), ["a.yaml", "b.yaml"]);
        assert!(checkout.read(&at("folder/a.yaml")).is_err());
        fs::write(path("app/.sourceignore"), "b.yaml\n").unwrap();
        let (checkout, _) = LocalSourceCheckout::of(&path("app"), "app").unwrap();
        assert_eq!(names(&checkout, "app"), [".sourceignore", "a.yaml"]);
        assert!(checkout.read(&at("app/b.yaml")).is_err());
    }
}
