//! Paths in helmfile's notation, relative to a working directory, and the files at these paths.
//!
//! An absolute path begins at the root of the tree. No path leads out of the tree.

use std::collections::BTreeMap;
use std::sync::Arc;

use golang::glob::path_match;
use tree::{FileKind, FileMetadata, FileTree, RelPath};

use crate::error::{Error, Result};
use crate::helmfile_host_environment::HelmfileHostEnvironment;
use crate::helmfile_paths::remote_refusal;
use crate::remote_address::{RemoteAddress, RemoteFetcher};

/// The longest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 32 << 20;

/// The most files that a pattern may match.
const MAX_GLOB_MATCHES: usize = 10_000;

/// The deepest nesting of directories in a chart.
const MAX_DIRECTORY_DEPTH: usize = 128;

/// The most bytes of a chart.
const MAX_CHART_BYTES: usize = 256 << 20;

/// Files, seen from a working directory.
#[derive(Clone)]
pub(crate) struct WorkingDirectory {
    files: Arc<dyn FileTree + Send + Sync>,
    directory: RelPath,
    fetch: Option<Arc<dyn RemoteFetcher>>,
}

impl WorkingDirectory {
    /// The root of the files of an environment.
    pub(crate) fn root(helmfile_environment: &HelmfileHostEnvironment) -> Self {
        let is_off = helmfile_environment.is_on("HELMFILE_DISABLE_INSECURE_FEATURES");
        Self {
            files: Arc::clone(&helmfile_environment.files),
            directory: RelPath::root(),
            fetch: helmfile_environment.fetch.clone().filter(|_| !is_off),
        }
    }

    /// Fetches a remote address and returns the path of its file. `None` if the text is a path, or a file of this name exists.
    pub(crate) fn fetched(&self, text: &str) -> Result<Option<String>> {
        let Some(address) = RemoteAddress::parse(text).filter(|_| !self.exists(text)) else {
            return Ok(None);
        };
        let Some(fetch) = &self.fetch else { return Err(remote_refusal(&address)) };
        let failed = |error: String| Error::from(format!("cannot fetch {address}: {error}"));
        if address.file.split('/').any(|part| part == "..") {
            return Err(failed("its path leads out of what is fetched".to_owned()));
        }
        let directory = fetch.fetch(&address).map_err(failed)?;
        Ok(Some(golang::path::join(&directory, &address.file)))
    }

    /// The same files, with another working directory.
    pub(crate) fn within(&self, path: &str) -> Result<Self> {
        Ok(Self { directory: self.at(path)?, ..self.clone() })
    }

    /// The working directory as an absolute path.
    pub(crate) fn absolute(&self) -> String {
        format!("/{}", self.directory.as_str())
    }

    /// Resolves a path within the tree.
    pub(crate) fn at(&self, path: &str) -> Result<RelPath> {
        let (base, path) = match path.strip_prefix('/') {
            Some(rest) => (&RelPath::root(), rest.trim_start_matches('/')),
            None => (&self.directory, path),
        };
        base.join(path).map_err(|error| error.to_string().into())
    }

    /// Resolves a path to an absolute path.
    pub(crate) fn absolute_of(&self, path: &str) -> Result<String> {
        Ok(format!("/{}", self.at(path)?.as_str()))
    }

    pub(crate) fn is_file(&self, path: &str) -> bool {
        self.at(path)
            .is_ok_and(|at| self.files.entry(&at).is_some_and(|entry| entry != FileMetadata::Dir))
    }

    pub(crate) fn is_directory(&self, path: &str) -> bool {
        self.at(path).is_ok_and(|at| self.files.entry(&at) == Some(FileMetadata::Dir))
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.at(path).is_ok_and(|at| self.files.entry(&at).is_some())
    }

    /// The content of a file.
    pub(crate) fn read(&self, path: &str) -> Result<Arc<[u8]>> {
        let at = self.at(path)?;
        if let Some(FileMetadata::File { len, .. }) = self.files.entry(&at)
            && len > MAX_FILE_BYTES
        {
            return Err(format!("{path} is longer than {MAX_FILE_BYTES} bytes").into());
        }
        match self.files.read(&at) {
            Ok(data) => Ok(data),
            Err(tree::TreeError::NotFound(_)) => {
                Err(format!("open {path}: no such file or directory").into())
            }
            Err(_) => Err(format!("read {path}: is a directory").into()),
        }
    }

    /// The names and types of the entries in a directory, in order.
    pub(crate) fn list(&self, path: &str) -> Result<Vec<(String, FileKind)>> {
        let at = self.at(path)?;
        self.files.list(&at).map_err(|_| format!("open {path}: no such file or directory").into())
    }

    /// The file tree in which the working directory is.
    pub(crate) fn files(&self) -> Arc<dyn FileTree + Send + Sync> {
        Arc::clone(&self.files)
    }

    /// All files below a directory, by their relative paths.
    pub(crate) fn walk(&self, path: &str) -> Result<BTreeMap<String, Arc<[u8]>>> {
        let top = self.at(path)?;
        let mut found = BTreeMap::new();
        let mut left = vec![top.clone()];
        let mut bytes = 0;
        while let Some(directory) = left.pop() {
            let listed = self.files.list(&directory);
            for (name, kind) in
                listed.map_err(|_| format!("open {path}: no such file or directory"))?
            {
                let at = directory.join(&name).map_err(|error| error.to_string())?;
                if kind == FileKind::Dir {
                    if at.depth() > top.depth() + MAX_DIRECTORY_DEPTH {
                        return Err(format!(
                            "{path}: directories are nested more than {MAX_DIRECTORY_DEPTH} deep"
                        )
                        .into());
                    }
                    left.push(at);
                    continue;
                }
                let text = self.files.read(&at).map_err(|error| error.to_string())?;
                bytes += text.len();
                let relative = at.strip_prefix(&top).unwrap_or_else(|| at.clone());
                found.insert(relative.as_str().to_owned(), text);
                if found.len() + left.len() > MAX_GLOB_MATCHES || bytes > MAX_CHART_BYTES {
                    return Err(format!(
                        "{path} has more than {MAX_GLOB_MATCHES} files or {MAX_CHART_BYTES} bytes"
                    )
                    .into());
                }
            }
        }
        Ok(found)
    }

    /// The paths that a pattern matches, as Go's `filepath.Glob` finds and writes them, in order.
    pub(crate) fn glob(&self, pattern: &str) -> Result<Vec<String>> {
        if !pattern.contains(['*', '?', '[', '\\']) {
            return Ok(if self.exists(pattern) { vec![pattern.to_owned()] } else { Vec::new() });
        }
        let (mut found, parts) = match pattern.strip_prefix('/') {
            Some(rest) => (vec!["/".to_owned()], rest),
            None => (vec![String::new()], pattern),
        };
        for part in parts.split('/').filter(|part| !part.is_empty()) {
            let mut next = Vec::new();
            for directory in &found {
                self.matches(directory, part, &mut next)?;
                if next.len() > MAX_GLOB_MATCHES {
                    return Err(
                        format!("{pattern} matches more than {MAX_GLOB_MATCHES} files").into()
                    );
                }
            }
            found = next;
        }
        found.sort();
        Ok(found)
    }

    fn matches(&self, directory: &str, part: &str, found: &mut Vec<String>) -> Result<()> {
        let joined = |name: &str| match directory {
            "" | "/" => format!("{directory}{name}"),
            _ => format!("{directory}/{name}"),
        };
        if !part.contains(['*', '?', '[', '\\']) {
            if self.exists(&joined(part)) {
                found.push(joined(part));
            }
            return Ok(());
        }
        let from = if directory.is_empty() { "." } else { directory };
        for (name, _) in self.list(from).unwrap_or_default() {
            let is_match = path_match(part, &name);
            if is_match.map_err(|_| format!("failed processing {part}: syntax error in pattern"))? {
                found.push(joined(&name));
            }
        }
        Ok(())
    }
}

/// The folder that contains a path, like Go's `filepath.Dir`.
pub(crate) fn parent(path: &str) -> String {
    match path.rfind('/') {
        Some(at) => golang::path::clean(&path[..=at]),
        None => ".".to_owned(),
    }
}

/// The last part of a path, like Go's `filepath.Base`.
pub(crate) fn base(path: &str) -> &str {
    let trimmed = path.trim_end_matches('/');
    match trimmed.rsplit('/').next() {
        Some("") if !path.is_empty() => "/",
        Some("") | None => ".",
        Some(name) => name,
    }
}
