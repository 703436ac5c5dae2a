//! Reads the work tree of a Git repository for an image update.
//!
//! Elsewhere: choosing the files to update (engine `image`).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use image::{CheckoutEntryType, CheckoutFiles};

/// The folder or file that marks the root of a work tree.
const GIT_FOLDER: &str = ".git";

/// The maximum number of files and links in a work tree.
const MAX_ENTRIES: usize = 200_000;

/// The largest file that is read, in bytes, because it is kept in memory.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// How many bytes of a Git configuration are read.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// The files of a work tree, committed or not.
pub(super) struct WorkTree {
    root: PathBuf,
    /// The files and links.
    pub(super) files: CheckoutFiles,
    /// Whether files of the commit may be missing because of a sparse checkout.
    pub(super) is_sparse: bool,
}

impl WorkTree {
    /// Finds the work tree that contains a folder.
    ///
    /// # Errors
    /// The folder is in no work tree, cannot be read, or there are too many files.
    pub(super) fn around(folder: &Path) -> anyhow::Result<Self> {
        let shown = folder.display();
        let real = fs::canonicalize(folder).with_context(|| format!("cannot read {shown}"))?;
        let root = real.ancestors().find(|it| has_git_folder(it));
        let root = root.with_context(|| {
            format!(
                "{shown} is not in a work tree of Git: give a folder of the checked out repository with --path"
            )
        })?;
        let files = CheckoutFiles::new(entries(root)?);
        Ok(Self { root: root.to_owned(), files, is_sparse: is_sparse(root) })
    }

    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read, or it is too large.
    pub(super) fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        let unread = |error: std::io::Error| format!("{path} cannot be read: {error}");
        let file = File::open(self.root.join(path)).map_err(unread)?;
        let mut bytes = Vec::new();
        file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(unread)?;
        match bytes.len() as u64 > MAX_FILE_BYTES {
            true => Err(format!("{path} is larger than {MAX_FILE_BYTES} bytes")),
            false => Ok(bytes),
        }
    }
}

fn has_git_folder(folder: &Path) -> bool {
    fs::symlink_metadata(folder.join(GIT_FOLDER)).is_ok()
}

/// Whether the Git configuration of a work tree says that it is a sparse checkout. Its own configuration overrides that of the
/// repository.
fn is_sparse(root: &Path) -> bool {
    let place = root.join(GIT_FOLDER);
    // A linked work tree has a file with the path of its Git folder, which contains the path of the repository.
    let own = match leading(&place, "gitdir: ") {
        Some(folder) => root.join(folder),
        None => place,
    };
    let common = match leading(&own.join("commondir"), "") {
        Some(folder) => own.join(folder),
        None => own.clone(),
    };
    let of_file = |file: PathBuf| sparse_checkout(&beginning(&file)?);
    let of_tree = of_file(own.join("config.worktree"));
    of_tree.or_else(|| of_file(common.join("config"))).unwrap_or_default()
}

/// The path in a Git file that points to another place, without the text `before` at its start. `None` if the file cannot be
/// read or contains no such path.
fn leading(file: &Path, before: &str) -> Option<String> {
    let text = beginning(file)?;
    let path = text.strip_prefix(before)?.trim_end_matches(['\n', '\r']);
    (!path.is_empty()).then(|| path.to_owned())
}

/// The beginning of a Git file. `None` if it cannot be read.
fn beginning(file: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(file).ok()?.take(MAX_CONFIG_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The last value of `core.sparseCheckout` in a configuration. `None` if it is not set.
fn sparse_checkout(config: &str) -> Option<bool> {
    let value = |line: &str| {
        let line = line.trim().to_ascii_lowercase();
        let (key, value) = line.split_once('=').unwrap_or((line.as_str(), "true"));
        let is_on = ["true", "yes", "on", "1"].contains(&value.trim());
        (key.trim() == "sparsecheckout").then_some(is_on)
    };
    config.lines().filter_map(value).next_back()
}

/// All files and links below a folder. Nested repositories, such as submodules, are left out.
fn entries(root: &Path) -> anyhow::Result<BTreeMap<String, CheckoutEntryType>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let place = root.join(&folder);
        let unread = || format!("cannot read {}", place.display());
        for entry in fs::read_dir(&place).with_context(unread)? {
            let entry = entry.with_context(unread)?;
            // No path in a spec can name a file whose name is not UTF-8.
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            let kind = entry.file_type().with_context(unread)?;
            if kind.is_dir() {
                if name != GIT_FOLDER && !has_git_folder(&entry.path()) {
                    folders.push(path);
                }
            } else if kind.is_symlink() {
                let target = fs::read_link(entry.path()).with_context(unread)?;
                let target = target.to_string_lossy().into_owned();
                found.insert(path, CheckoutEntryType::Link(target));
            } else if kind.is_file() {
                found.insert(path, CheckoutEntryType::File);
            }
            ensure!(
                found.len() + folders.len() <= MAX_ENTRIES,
                "{} has more than {MAX_ENTRIES} files",
                root.display()
            );
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(tree: &WorkTree, path: &str) -> Vec<String> {
        tree.files.select("", path).unwrap().files.into_iter().map(|file| file.path).collect()
    }

    #[test]
    fn a_work_tree_is_the_one_that_a_folder_is_in_without_repositories_inside_of_it() {
        let top = tempfile::tempdir().unwrap();
        let path = |name: &str| top.path().join(name);
        for folder in [".git", "apps/deep", "module/.git"] {
            fs::create_dir_all(path(folder)).unwrap();
        }
        for name in [".git/a.yaml", "apps/a.yaml", "apps/deep/b.yml", "module/c.yaml", "text"] {
            fs::write(path(name), name).unwrap();
        }
        symlink("../text", path("apps/link.yaml")).unwrap();
        let tree = WorkTree::around(&path("apps/deep")).unwrap();
        assert_eq!(names(&tree, ""), ["apps/a.yaml", "apps/deep/b.yml", "text"]);
        assert_eq!(names(&tree, "apps/deep"), ["apps/deep/b.yml"]);
        assert_eq!(tree.read("apps/a.yaml").unwrap(), b"apps/a.yaml");
        assert!(tree.read("none").unwrap_err().starts_with("none cannot be read: "));
    }

    #[test]
    fn a_sparse_checkout_is_known_by_the_configuration_of_the_work_tree() {
        let top = tempfile::tempdir().unwrap();
        let path = |name: &str| top.path().join(name);
        for folder in ["main/.git/worktrees/second", "second"] {
            fs::create_dir_all(path(folder)).unwrap();
        }
        let second = path("main/.git/worktrees/second");
        fs::write(path("second/.git"), format!("gitdir: {}\n", second.display())).unwrap();
        fs::write(second.join("commondir"), "../..\n").unwrap();
        let is_sparse = |name: &str| WorkTree::around(&path(name)).unwrap().is_sparse;
        assert!(!is_sparse("main") && !is_sparse("second"));
        fs::write(path("main/.git/config"), "[core]\n\tbare = false\n\tsparseCheckout = true\n")
            .unwrap();
        assert!(is_sparse("main") && is_sparse("second"));
        let own = "[core]\n\tsparseCheckout = true\n\tsparseCheckoutCone = true\n\tsparseCheckout = false\n";
        fs::write(second.join("config.worktree"), own).unwrap();
        assert!(is_sparse("main") && !is_sparse("second"));
    }

    #[test]
    fn a_folder_of_no_repository_is_refused() {
        let top = tempfile::tempdir().unwrap();
        let error = |folder: &Path| WorkTree::around(folder).err().map(|it| it.to_string());
        let text = error(top.path()).unwrap_or_default();
        assert!(text.contains("is not in a work tree of Git"), "{text}");
        let text = error(&top.path().join("none")).unwrap_or_default();
        assert!(text.starts_with("cannot read "), "{text}");
    }
}
