//! The interface by which a build reads files, and an implementation for a tree in memory.
//!
//! Elsewhere: which files a kustomization may read (`loader.rs`), disks (outside of engines).

use std::sync::Arc;

use tree::{FileTree as Tree, RelPath, TreeError};

use crate::error::Error;
use crate::kustomization::HelmChart;
use crate::repository_address::RepositoryAddress;

/// A path without symbolic links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResolvedPath {
    /// A folder, absolute.
    Dir(String),
    /// Any path other than a folder.
    File {
        /// The absolute path of its folder.
        dir: String,
        /// The name of the file in that folder.
        name: String,
    },
}

/// Gives a build access to files, web servers and repositories. Paths are absolute and contain no `.` or `..`. Only the path
/// given to [`crate::build`] may contain them.
pub trait BuildFiles {
    /// The path after all symbolic links are followed.
    ///
    /// # Errors
    /// The text that follows `evalsymlink failure on '…' : `, such as `lstat /a: no such file or directory`.
    fn resolve(&self, path: &str) -> Result<ResolvedPath, Error>;

    /// Whether [`Self::resolve`] is known to fail, so that the caller needs no error text.
    ///
    /// A build tries three names for every kustomization. `false` means that the caller must call `resolve`.
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
    /// [`Error::http`] if the server reports that the file does not exist, which ends the build. After any other error, the
    /// build tries the address as a repository.
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

    /// Fetches a chart that has no folder yet.
    ///
    /// # Errors
    /// Why the chart could not be fetched.
    fn prepare(&self, chart: &ChartInflation) -> Result<(), Error> {
        let _ = chart;
        Ok(())
    }

    /// Renders a chart, and returns its objects as one YAML stream.
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
    /// The absolute path of the directory that contains the chart's folder, or will contain it after fetching.
    pub home: String,
    /// The path of Helm's configuration; empty for none.
    pub config_home: String,
    /// The content of the values file, with inline values merged into it.
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
