//! Decides which files a kustomization may read: files below its folder. It may also use other folders as kustomizations,
//! unless they contain its own folder.

use std::sync::Arc;

use crate::budget::BuildBudget;
use crate::build_files::{BuildFiles, ResolvedPath};
use crate::error::{BuildErrorCause, Error, ErrorContext as _, Result};
use crate::file_path;
use crate::repository_address::RepositoryAddress;

/// Which files a kustomization may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LoadRestriction {
    /// Files in its folder and below.
    #[default]
    RootOnly,
    /// All.
    None,
}

/// How deeply kustomizations may be nested.
///
/// Differs(kustomize): it has no limit but its stack.
const MAX_CHAIN: usize = 50;

/// Steps that finding a file costs.
const LOOKED_UP: usize = 4 << 10;

/// Reads the files of one kustomization.
#[derive(Clone)]
pub(crate) struct KustomizationLoader<'f> {
    files: &'f dyn BuildFiles,
    restriction: LoadRestriction,
    root: String,
    /// The folders of the kustomizations that led here, the outermost first.
    referrers: Vec<String>,
    /// The repositories among these kustomizations, each with its folder.
    repositories: Vec<(String, String)>,
    budget: BuildBudget,
}

impl<'f> KustomizationLoader<'f> {
    /// Creates the loader for the top kustomization.
    ///
    /// # Errors
    /// The path is not a folder.
    pub(crate) fn new(
        files: &'f dyn BuildFiles,
        restriction: LoadRestriction,
        path: &str,
        budget: &BuildBudget,
    ) -> Result<Self> {
        let outside = Self {
            files,
            restriction,
            root: String::new(),
            referrers: Vec::new(),
            repositories: Vec::new(),
            budget: budget.clone(),
        };
        if let Some(repository) = RepositoryAddress::parse(path) {
            return outside.at_repository(&repository);
        }
        let root = outside.dir(path)?;
        Ok(Self { root, ..outside })
    }

    /// The folder, absolute and without symbolic links.
    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    /// The budget for everything that is read here.
    pub(crate) fn budget(&self) -> &BuildBudget {
        &self.budget
    }

    pub(crate) fn files(&self) -> &'f dyn BuildFiles {
        self.files
    }

    /// Creates the loader for another kustomization that this one refers to.
    ///
    /// # Errors
    /// The path is absolute, is not a folder, or leads back to a kustomization that is being loaded.
    pub(crate) fn at(&self, path: &str) -> Result<Self> {
        if path.is_empty() {
            return Err(Error::new("new root cannot be empty"));
        }
        if self.referrers.len() >= MAX_CHAIN {
            let text = format!("'{path}' is more than {MAX_CHAIN} kustomizations deep");
            return Err(Error::new(text));
        }
        if let Some(repository) = RepositoryAddress::parse(path) {
            let repeats = |(known, _): &&(String, String)| known.starts_with(&repository.address);
            if let Some((known, _)) = self.repositories.iter().rev().find(repeats) {
                let address = &repository.address;
                let text =
                    format!("cycle detected: URI '{address}' referenced by previous URI '{known}'");
                return Err(Error::new(text));
            }
            return self.at_repository(&repository);
        }
        if path.starts_with('/') {
            return Err(Error::new(format!("new root '{path}' cannot be absolute")));
        }
        let root = self.dir(&golang::path::join(&self.root, path))?;
        if let Some((_, clone)) = self.repositories.last()
            && !file_path::is_within(&root, clone)
        {
            let text = format!(
                "security; bases in kustomizations found in cloned git repos must be within the repo, but base \
                 '{root}' is outside '{clone}'"
            );
            return Err(Error::new(text));
        }
        let visited = std::iter::once(&self.root).chain(self.referrers.iter().rev());
        for visited in visited.filter(|visited| !visited.is_empty()) {
            if file_path::is_within(visited, &root) {
                let text = format!(
                    "cycle detected: candidate root '{root}' contains visited root '{visited}'"
                );
                return Err(Error::new(text));
            }
        }
        Ok(self.below(root))
    }

    fn below(&self, root: String) -> Self {
        let mut referrers = self.referrers.clone();
        referrers.push(self.root.clone());
        let repositories = self.repositories.clone();
        let budget = self.budget.clone();
        Self { root, referrers, repositories, budget, ..*self }
    }

    fn at_repository(&self, repository: &RepositoryAddress) -> Result<Self> {
        let clone = self.files.checkout(repository)?;
        let path = golang::path::join(&clone, &repository.dir);
        let root = match self.resolve(&path)? {
            ResolvedPath::Dir(dir) => dir,
            ResolvedPath::File { name, .. } => {
                let text = format!("'{path}' refers to file '{name}'; expecting directory");
                return Err(Error::new(text));
            }
        };
        if !file_path::is_within(&root, &clone) {
            let text = format!("{path:?} refers to directory outside of repo {clone:?}");
            return Err(Error::new(text));
        }
        let mut loader = self.below(root);
        loader.restriction = LoadRestriction::RootOnly;
        loader.repositories.push((repository.address.clone(), clone));
        Ok(loader)
    }

    fn resolve(&self, path: &str) -> Result<ResolvedPath> {
        self.files
            .resolve(path)
            .map_err(|error| Error::new(format!("evalsymlink failure on '{path}' : {error}")))
    }

    /// The folder at a path.
    fn dir(&self, path: &str) -> Result<String> {
        let not_dir = || "must build at directory";
        if path.is_empty() {
            return Err(Error::new("directory path cannot be empty")).within(not_dir);
        }
        match self.resolve(path).within(|| "not a valid directory").within(not_dir)? {
            ResolvedPath::Dir(dir) => Ok(dir),
            ResolvedPath::File { .. } => {
                Err(Error::new(format!("'{path}': file is not directory"))).within(not_dir)
            }
        }
    }

    /// The content of a file in the folder, if it exists and may be read.
    ///
    /// # Errors
    /// The build has exceeded its budget.
    pub(crate) fn find(&self, name: &str) -> Result<Option<Arc<[u8]>>> {
        if self.files.is_missing(&golang::path::join(&self.root, name)) {
            return Ok(None);
        }
        match self.load(name) {
            Ok(content) => Ok(Some(content)),
            Err(error) if error.cause() == BuildErrorCause::Exhausted => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// The content of a file.
    ///
    /// # Errors
    /// The file does not exist or may not be read, or the build has exceeded its budget.
    pub(crate) fn load(&self, path: &str) -> Result<Arc<[u8]>> {
        self.budget.steps(LOOKED_UP)?;
        let content = self.content(path)?;
        self.budget.steps(content.len())?;
        Ok(content)
    }

    fn content(&self, path: &str) -> Result<Arc<[u8]>> {
        if is_remote(path) {
            return self.files.fetch(path);
        }
        let path = if path.starts_with('/') {
            path.to_owned()
        } else {
            golang::path::join(&self.root, path)
        };
        if self.restriction == LoadRestriction::None {
            return self.files.read(&path);
        }
        match self.resolve(&path)? {
            ResolvedPath::Dir(_) => Err(Error::new(format!("'{path}' must resolve to a file"))),
            ResolvedPath::File { dir, .. } if !file_path::is_within(&dir, &self.root) => {
                let root = &self.root;
                Err(Error::new(format!("security; file '{path}' is not in or below '{root}'")))
            }
            ResolvedPath::File { dir, name } => self.files.read(&golang::path::join(&dir, &name)),
        }
    }
}

/// Whether a path is the address of a file on a web server.
fn is_remote(path: &str) -> bool {
    let scheme = path.split_once(':').map_or("", |(scheme, _)| scheme);
    scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")
}
