//! Where a build gets its files: what it asks, and an answer from a tree in memory.
//!
//! Elsewhere: which files a kustomization may read (`loader.rs`), disks (outside of engines).

use std::sync::Arc;

use tree::{FileTree as Tree, RelPath, TreeError};

use crate::error::Error;
use crate::kustomization::HelmChart;
use crate::repository::RepositoryAddress;

/// A path without symbolic links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResolvedPath {
    /// A folder, absolute.
    Dir(String),
    /// Anything else.
    File {
        /// The absolute path of its folder.
        dir: String,
        /// Its name there.
        name: String,
    },
}

/// The files, web servers and repositories that a build reads. Paths are absolute and have no `.` or `..`, except the
/// one that [`crate::build`] was given.
pub trait BuildFiles {
    /// Where a path leads when all symbolic links are followed.
    ///
    /// # Errors
    /// What stands behind `evalsymlink failure on '…' : `, such as `lstat /a: no such file or directory`.
    fn resolve(&self, path: &str) -> Result<ResolvedPath, Error>;

    /// Whether it is known that [`Self::resolve`] would fail, so that the caller needs no error text.
    ///
    /// A build looks for every kustomization under three names. `false` means that `resolve` has to be called.
    fn is_missing(&self, path: &str) -> bool {
        let _ = path;
        false
    }

    /// The content of a file.
    ///
    /// # Errors
    /// Such as `open /a: no such file or directory`.
    fn read(&self, path: &str) -> Result<Arc<[u8]>, Error>;

    /// The content of a file on a web server.
    ///
    /// # Errors
    /// [`Error::http`] if the server says that there is none, which ends the build; after any other error the address
    /// is tried as that of a repository.
    fn fetch(&self, url: &str) -> Result<Arc<[u8]>, Error> {
        Err(Error::new(format!("`{url}` is remote, and remote files are not fetched here")))
    }

    /// A folder, absolute and without symbolic links, with a commit of a Git repository.
    ///
    /// # Errors
    /// Why the commit cannot be checked out.
    fn checkout(&self, repository: &RepositoryAddress) -> Result<String, Error> {
        let url = repository.url();
        Err(Error::new(format!("`{url}` is remote, and repositories are not fetched here")))
    }

    /// Fetches a chart whose folder is not there.
    ///
    /// # Errors
    /// Why it could not be fetched.
    fn prepare(&self, chart: &ChartInflation) -> Result<(), Error> {
        let _ = chart;
        Ok(())
    }

    /// The objects of a chart as one YAML stream.
    ///
    /// # Errors
    /// Why the chart cannot be rendered.
    fn inflate(&self, chart: &ChartInflation) -> Result<Vec<u8>, Error> {
        let name = &chart.chart.name;
        Err(Error::new(format!("`helmCharts` names `{name}`, and charts are not rendered here")))
    }
}

/// A chart to be rendered.
#[derive(Debug, Clone, PartialEq)]
pub struct ChartInflation {
    /// The `helmCharts` entry, its namespace filled in.
    pub chart: HelmChart,
    /// The absolute path of the folder that holds the chart's folder, or will when it has been fetched.
    pub home: String,
    /// Helm's configuration; empty for none.
    pub config_home: String,
    /// The file of values, inline ones merged in.
    pub values: Vec<u8>,
}

/// A tree in memory, as an artifact is, with its root at `/`.
#[derive(Debug)]
pub struct TreeBuildFiles<T>(pub T);

impl<T: Tree> TreeBuildFiles<T> {
    fn path(path: &str) -> Result<RelPath, Error> {
        let path = RelPath::parse(path.trim_start_matches('/'));
        path.map_err(|error| Error::new(error.to_string()))
    }
}

impl<T: Tree> BuildFiles for TreeBuildFiles<T> {
    fn resolve(&self, path: &str) -> Result<ResolvedPath, Error> {
        let found = Self::path(path)?;
        let missing = || Error::new(format!("lstat {path}: no such file or directory"));
        Ok(match self.0.entry(&found).ok_or_else(missing)?.kind() {
            tree::FileKind::Dir => ResolvedPath::Dir(golang::path::join("/", &found.to_string())),
            tree::FileKind::File => {
                let path = golang::path::join("/", &found.to_string());
                let (dir, name) = crate::file_path::split(&path);
                ResolvedPath::File { dir: dir.to_owned(), name: name.to_owned() }
            }
        })
    }

    fn read(&self, path: &str) -> Result<Arc<[u8]>, Error> {
        self.0.read(&Self::path(path)?).map_err(|error| {
            Error::new(match error {
                TreeError::IsDirectory(_) => format!("read {path}: is a directory"),
                TreeError::NotFound(_) | TreeError::NotDirectory(_) => {
                    format!("open {path}: no such file or directory")
                }
            })
        })
    }
}
