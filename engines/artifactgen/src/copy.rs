//! One copy from the file tree of a source into an artifact.
//!
//! Here: which files of a source are copied, to which paths, and by which strategy: Overwrite, Merge or Extract.
//! Elsewhere: reading `from` and `to` (`copy_path.rs`), finding paths (`glob.rs`), excluded paths (`copy_exclude.rs`),
//! and YAML (`yaml_file_merge.rs`).
//!
//! Source of the semantics: source-watcher 2.2.3 `internal/builder`. The artifact shares the bodies of files with the
//! sources.

use golang::work_meter::{WorkLimitExceeded, WorkMeter};
use tree::{
    FileKind, FileMetadata, FileTree, MemoryTree, MemoryTreeBuilder, RelPath, TreeBuildError,
    TreeError, TreeLimits,
};

use crate::copy_exclude::CopyExclusion;
use crate::copy_path::{self, CopyDestination, CopyPathError, CopySource};
use crate::doublestar::{PatternMatchError, PatternSyntaxCheck, is_match};
use crate::glob::{self, GlobError};
use crate::spec::{CopyOperation, CopyStrategy};
use crate::validate::quoted;
use crate::yaml_file_merge::{YamlFileMergeError, merged};
use crate::{BuildInputs, TarballReader};

/// About how many steps it takes to put a file or folder into a tree.
const STEPS_PER_ENTRY: u64 = 64;

/// Why a copy failed, in Flux's words up to the messages of the operating system.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CopyError {
    /// The `from` of the copy is invalid.
    #[error("invalid copy source '{from}': {problem}")]
    Source {
        /// The value of `from`.
        from: String,
        /// Why it is invalid.
        problem: CopyPathError,
    },
    /// The `to` of the copy is invalid.
    #[error("invalid copy destination '{to}': {problem}")]
    Destination {
        /// The value of `to`.
        to: String,
        /// Why it is invalid.
        problem: CopyPathError,
    },
    /// No source has this alias.
    #[error("source alias '{0}' not found")]
    UnknownAlias(String),
    /// An exclude pattern is malformed.
    #[error("invalid exclude pattern '{0}'")]
    Exclude(String),
    /// Matching an exclude pattern costs too much.
    #[error("invalid exclude pattern '{pattern}': {problem}")]
    CostlyExclude {
        /// The pattern, or its beginning.
        pattern: String,
        /// Why.
        problem: CopyPathError,
    },
    /// The pattern of `from` is malformed.
    #[error("invalid glob pattern '{0}': {error}", error = GlobError::Malformed)]
    Pattern(String),
    /// The pattern of `from` matches no file.
    #[error("no files match pattern '{pattern}' in source '{alias}'")]
    NoMatch {
        /// The pattern.
        pattern: String,
        /// The alias of the source.
        alias: String,
    },
    /// A folder of the source cannot be listed.
    #[error("failed to list the files of source '{alias}': {error}")]
    List {
        /// The alias of the source.
        alias: String,
        /// Why.
        error: TreeError,
    },
    /// All files that the pattern of `from` matches are excluded.
    #[error("all files matching pattern '{pattern}' in source '{alias}' were excluded")]
    AllExcluded {
        /// The pattern.
        pattern: String,
        /// The alias of the source.
        alias: String,
    },
    /// The source has no file or folder at the path in `from`.
    #[error("source '{0}' does not exist")]
    NotFound(String),
    /// The path in `from` cannot exist, for example because it goes through a file.
    #[error("failed to stat source '{path}': statat {path}: {reason}")]
    Unreachable {
        /// The path.
        path: String,
        /// Why.
        reason: String,
    },
    /// `from` names a folder, and the strategy Extract needs an archive.
    #[error("extract strategy is not supported for directories, got '{0}'")]
    FolderAsArchive(String),
    /// The name of the file does not end like that of an archive.
    #[error("extract strategy requires tarball file (.tar.gz or .tgz), got '{0}'")]
    NoArchive(String),
    /// One of several files was not copied.
    #[error("failed to copy file '{path}' to '{to}': {error}")]
    File {
        /// The file or folder of the source.
        path: String,
        /// The path in the artifact.
        to: String,
        /// Why.
        error: Box<ArtifactPlacementError>,
    },
    /// One of several archives was not extracted.
    #[error("failed to extract tarball '{path}' to '{to}': {error}")]
    Tarball {
        /// The archive.
        path: String,
        /// The folder in the artifact.
        to: String,
        /// Why.
        error: Box<ArtifactPlacementError>,
    },
    /// The only file, folder or archive of the copy was not copied.
    #[error(transparent)]
    Place(Box<ArtifactPlacementError>),
    /// The copy costs more than the meter allows.
    #[error(transparent)]
    Work(#[from] WorkLimitExceeded),
}

/// Why a file, folder or archive was not put into an artifact.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArtifactPlacementError {
    /// The parent folder of a file cannot be created, because a file is in its place or a limit is reached.
    #[error("failed to create destination directory: {0}")]
    Parent(TreeBuildError),
    /// The file or folder cannot be created, because another one is in its place or a limit is reached.
    #[error(transparent)]
    Entry(#[from] TreeBuildError),
    /// A file cannot be read although the source or the archive lists it.
    #[error("failed to read what is to be copied: {0}")]
    Read(#[from] TreeError),
    /// A file was not merged.
    #[error(transparent)]
    Merge(#[from] YamlFileMergeError),
    /// The folder for the content of an archive cannot be created.
    #[error("failed to create destination directory {to}: {error}")]
    ArchiveFolder {
        /// The folder, in quotes.
        to: String,
        /// Why.
        error: TreeBuildError,
    },
    /// An archive was not extracted.
    #[error("failed to extract tarball {path} to {to}: {reason}")]
    Archive {
        /// The archive, in quotes.
        path: String,
        /// The folder, in quotes.
        to: String,
        /// Why.
        reason: String,
    },
    /// The copy costs more than the meter allows.
    #[error(transparent)]
    Work(#[from] WorkLimitExceeded),
}

impl CopyError {
    fn place(error: ArtifactPlacementError) -> Self {
        Self::Place(Box::new(error))
    }
}

/// Does one copy into an artifact.
///
/// # Errors
/// The copy is refused, matches no file, conflicts with a file of the artifact, or exceeds a limit.
pub(crate) fn copy(
    operation: &CopyOperation,
    inputs: &BuildInputs<'_>,
    artifact: &mut MemoryTreeBuilder,
    meter: &mut WorkMeter,
) -> Result<(), CopyError> {
    let CopyOperation { from, to, .. } = operation;
    let source = CopySource::parse(from)
        .map_err(|problem| CopyError::Source { from: from.clone(), problem })?;
    let destination = CopyDestination::parse(to)
        .map_err(|problem| CopyError::Destination { to: to.clone(), problem })?;
    let unknown = || CopyError::UnknownAlias(source.alias.to_owned());
    let tree = *inputs.sources.get(source.alias).ok_or_else(unknown)?;
    for pattern in &operation.exclude {
        check_exclude(pattern, meter)?;
    }
    let mut copy = PreparedCopy {
        strategy: operation.strategy,
        tree,
        destination,
        tarballs: inputs.tarballs,
        limits: inputs.limits,
        artifact,
        meter,
    };
    match source.is_glob() {
        true => copy.all_matches(source, &operation.exclude),
        false => copy.single(source, &operation.exclude),
    }
}

fn check_exclude(pattern: &str, meter: &mut WorkMeter) -> Result<(), CopyError> {
    copy_path::check_pattern(pattern).map_err(|problem| CopyError::CostlyExclude {
        pattern: pattern.chars().take(copy_path::MAX_PATTERN_BYTES).collect(),
        problem,
    })?;
    match is_match(pattern, ".", PatternSyntaxCheck::WholePattern, meter) {
        Ok(_) => Ok(()),
        Err(PatternMatchError::Malformed) => Err(CopyError::Exclude(pattern.to_owned())),
        Err(PatternMatchError::Work(error)) => Err(error.into()),
    }
}

/// Whether a file name ends like that of an archive.
fn is_tarball(path: &RelPath) -> bool {
    let path = path.as_str().to_lowercase();
    path.ends_with(".tar.gz") || path.ends_with(".tgz")
}

/// A copy whose `from` and `to` were read.
struct PreparedCopy<'a> {
    strategy: CopyStrategy,
    tree: &'a dyn FileTree,
    destination: CopyDestination<'a>,
    tarballs: &'a dyn TarballReader,
    limits: TreeLimits,
    artifact: &'a mut MemoryTreeBuilder,
    meter: &'a mut WorkMeter,
}

impl PreparedCopy<'_> {
    /// Copies all files that a pattern matches. They keep their paths in the source. With `folder/**`, the folder is
    /// not part of these paths.
    fn all_matches(&mut self, source: CopySource<'_>, exclude: &[String]) -> Result<(), CopyError> {
        let pattern = source.pattern;
        let found = match self.strategy {
            CopyStrategy::Extract => glob::with_double_stars(self.tree, pattern, self.meter),
            CopyStrategy::Overwrite | CopyStrategy::Merge => {
                glob::simple(self.tree, pattern, self.meter)
            }
        };
        let alias = || source.alias.to_owned();
        let found = found.map_err(|error| match error {
            GlobError::Malformed => CopyError::Pattern(pattern.to_owned()),
            GlobError::Tree(error) => CopyError::List { alias: alias(), error },
            GlobError::Work(error) => error.into(),
        })?;
        if found.is_empty() {
            return Err(CopyError::NoMatch { pattern: pattern.to_owned(), alias: alias() });
        }
        let exclusion = CopyExclusion::new(exclude, source.folder());
        let mut wanted = Vec::new();
        for path in found {
            if !path.is_root() && !exclusion.excludes(&path, self.meter)? {
                wanted.push(path);
            }
        }
        if wanted.is_empty() {
            return Err(CopyError::AllExcluded { pattern: pattern.to_owned(), alias: alias() });
        }
        for path in wanted {
            if self.strategy == CopyStrategy::Extract {
                if is_tarball(&path) {
                    self.extract(&path).map_err(|error| CopyError::Tarball {
                        path: path.to_string(),
                        to: self.destination.text.to_owned(),
                        error: Box::new(error),
                    })?;
                }
                continue;
            }
            let to = self.place_of_match(pattern, &path).map_err(|error| CopyError::File {
                path: path.to_string(),
                to: self.destination.text.to_owned(),
                error: Box::new(error),
            })?;
            self.copy_to(&path, &to, &exclusion).map_err(|error| CopyError::File {
                path: path.to_string(),
                to: to.to_string(),
                error: Box::new(error),
            })?;
        }
        Ok(())
    }

    fn place_of_match(
        &self,
        pattern: &str,
        path: &RelPath,
    ) -> Result<RelPath, ArtifactPlacementError> {
        let inner = pattern
            .strip_suffix("/**")
            .and_then(|folder| path.as_str().strip_prefix(folder)?.strip_prefix('/'));
        self.below(inner.unwrap_or(path.as_str()))
    }

    /// The path in the artifact for a path below the destination of the copy.
    fn below(&self, path: &str) -> Result<RelPath, ArtifactPlacementError> {
        self.destination
            .path
            .join(path)
            .map_err(|error| ArtifactPlacementError::Entry(error.into()))
    }

    /// Copies one file, or a folder with its name, as `cp -r` does.
    fn single(&mut self, source: CopySource<'_>, exclude: &[String]) -> Result<(), CopyError> {
        let text = golang::path::clean(source.pattern);
        let unreachable = |reason: String| CopyError::Unreachable { path: text.clone(), reason };
        let path = RelPath::parse(&text).map_err(|error| {
            unreachable(match error {
                tree::RelPathError::Absolute(_) | tree::RelPathError::Leaves { .. } => {
                    "path escapes from parent".to_owned()
                }
                error => error.to_string(),
            })
        })?;
        match self.tree.entry(&path) {
            Some(FileMetadata::Dir) => {
                if self.strategy == CopyStrategy::Extract {
                    return Err(CopyError::FolderAsArchive(text));
                }
                let exclusion = CopyExclusion::new(exclude, Some(path.clone()));
                let to = self.below(path.name().unwrap_or_default()).map_err(CopyError::place)?;
                self.copy_to(&path, &to, &exclusion).map_err(CopyError::place)
            }
            Some(FileMetadata::File { .. }) => self.single_file(&path, exclude),
            None => {
                let is_below_file =
                    std::iter::successors(path.parent(), RelPath::parent).any(|above| {
                        self.tree.entry(&above).map(FileMetadata::kind) == Some(FileKind::File)
                    });
                match is_below_file {
                    true => Err(unreachable("not a directory".to_owned())),
                    false => Err(CopyError::NotFound(text)),
                }
            }
        }
    }

    fn single_file(&mut self, path: &RelPath, exclude: &[String]) -> Result<(), CopyError> {
        let exclusion = CopyExclusion::new(exclude, None);
        if exclusion.excludes(path, self.meter)? {
            return Ok(());
        }
        if self.strategy == CopyStrategy::Extract {
            return match is_tarball(path) {
                true => self.extract(path).map_err(CopyError::place),
                false => Err(CopyError::NoArchive(path.to_string())),
            };
        }
        let is_folder = self.destination.is_folder
            || matches!(self.artifact.entry(&self.destination.path), Some(FileMetadata::Dir));
        let to = match is_folder {
            true => self.below(path.name().unwrap_or_default()).map_err(CopyError::place)?,
            false => self.destination.path.clone(),
        };
        self.copy_to(path, &to, &exclusion).map_err(CopyError::place)
    }

    /// Copies or merges a file, or copies a folder with everything in it that is not excluded.
    fn copy_to(
        &mut self,
        path: &RelPath,
        to: &RelPath,
        exclusion: &CopyExclusion<'_>,
    ) -> Result<(), ArtifactPlacementError> {
        match self.tree.entry(path) {
            Some(FileMetadata::File { executable, .. }) => {
                if self.strategy == CopyStrategy::Merge && self.artifact.entry(to).is_some() {
                    return self.merge_to(path, to);
                }
                self.place_file(path, to, executable)
            }
            Some(FileMetadata::Dir) | None => self.copy_folder(path, to, exclusion),
        }
    }

    /// Parity(flux): files in folders are overwritten with every strategy.
    fn copy_folder(
        &mut self,
        folder: &RelPath,
        to: &RelPath,
        exclusion: &CopyExclusion<'_>,
    ) -> Result<(), ArtifactPlacementError> {
        self.place_folder(to)?;
        let mut waiting = vec![folder.clone()];
        while let Some(path) = waiting.pop() {
            let mut folders = Vec::new();
            for (name, kind) in self.tree.list(&path)? {
                self.meter.steps(STEPS_PER_ENTRY)?;
                let path = path.join(&name).map_err(TreeBuildError::from)?;
                if exclusion.excludes(&path, self.meter)? {
                    continue;
                }
                let inner = path.strip_prefix(folder).unwrap_or_default();
                let to = to.join(inner.as_str()).map_err(TreeBuildError::from)?;
                match kind {
                    FileKind::Dir => {
                        self.place_folder(&to)?;
                        folders.push(path);
                    }
                    FileKind::File => {
                        let executable = matches!(
                            self.tree.entry(&path),
                            Some(FileMetadata::File { executable: true, .. })
                        );
                        self.place_file(&path, &to, executable)?;
                    }
                }
            }
            waiting.extend(folders.into_iter().rev());
        }
        Ok(())
    }

    /// Parity(flux): a file in the place of a folder is not an error until something goes into the folder.
    fn place_folder(&mut self, to: &RelPath) -> Result<(), ArtifactPlacementError> {
        self.meter.steps(STEPS_PER_ENTRY)?;
        match self.artifact.entry(to) {
            Some(FileMetadata::File { .. }) => Ok(()),
            Some(FileMetadata::Dir) | None => Ok(self.artifact.dir(to)?),
        }
    }

    fn place_file(
        &mut self,
        path: &RelPath,
        to: &RelPath,
        executable: bool,
    ) -> Result<(), ArtifactPlacementError> {
        self.meter.steps(STEPS_PER_ENTRY)?;
        let body = self.tree.read(path)?;
        self.artifact.file(to, body, executable).map_err(|error| {
            // Parity(flux): a file in the place of the folder itself is noticed by the file that goes into it.
            let parent = to.parent();
            match &error {
                TreeBuildError::NotDirectory(file) if Some(file) != parent.as_ref() => {
                    ArtifactPlacementError::Parent(error)
                }
                _ => ArtifactPlacementError::Entry(error),
            }
        })
    }

    fn merge_to(&mut self, path: &RelPath, to: &RelPath) -> Result<(), ArtifactPlacementError> {
        let overlay = self.tree.read(path).map_err(|error| unreadable(&error))?;
        let base = self.artifact.read(to).map_err(|error| unreadable(&error))?;
        let executable =
            matches!(self.artifact.entry(to), Some(FileMetadata::File { executable: true, .. }));
        let text = merged(&base, &overlay, self.meter)?;
        Ok(self.artifact.file(to, text.into_bytes(), executable)?)
    }

    /// Extracts an archive into the destination of the copy.
    fn extract(&mut self, path: &RelPath) -> Result<(), ArtifactPlacementError> {
        let folder = self.destination.path.clone();
        let to = || quoted(self.destination.text);
        self.meter.steps(STEPS_PER_ENTRY)?;
        let no_folder = |error| ArtifactPlacementError::ArchiveFolder { to: to(), error };
        self.artifact.dir(&folder).map_err(no_folder)?;
        let failed = |reason| ArtifactPlacementError::Archive {
            path: quoted(path.as_str()),
            to: to(),
            reason,
        };
        let tarball = self.tree.read(path);
        let tarball =
            tarball.map_err(|error| failed(format!("requires gzip-compressed body: {error}")))?;
        self.meter.steps(tarball.len() as u64)?;
        // The extraction gets only as many bytes as the meter still allows.
        let total_bytes = self.limits.total_bytes.min(self.meter.left().bytes);
        let limits = TreeLimits { total_bytes, ..self.limits };
        let content = self.tarballs.read(&tarball, &limits).map_err(failed)?;
        self.meter.steps(content.bytes())?;
        self.meter.bytes(content.bytes())?;
        for (inner, metadata) in content.walk() {
            self.meter.steps(STEPS_PER_ENTRY)?;
            let placed = place_extracted(&content, inner, metadata, &folder, self.artifact);
            placed.map_err(|error| failed(error.to_string()))?;
        }
        Ok(())
    }
}

fn place_extracted(
    content: &MemoryTree,
    path: &RelPath,
    metadata: FileMetadata,
    folder: &RelPath,
    artifact: &mut MemoryTreeBuilder,
) -> Result<(), ArtifactPlacementError> {
    let to = folder.join(path.as_str()).map_err(TreeBuildError::from)?;
    let FileMetadata::File { executable, .. } = metadata else { return Ok(artifact.dir(&to)?) };
    // Parity(flux): a file that is overwritten keeps its mode.
    let executable = match artifact.entry(&to) {
        Some(FileMetadata::File { executable, .. }) => executable,
        Some(FileMetadata::Dir) | None => executable,
    };
    let body = content.read(path)?;
    Ok(artifact.file(&to, body, executable)?)
}

/// The error of a merge that finds a folder in the place of a file.
fn unreadable(error: &TreeError) -> ArtifactPlacementError {
    ArtifactPlacementError::Merge(YamlFileMergeError::Read(error.to_string()))
}
