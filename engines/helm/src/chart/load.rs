//! Builds a chart from its files.
//!
//! Here: the files of a folder or an archive, and sub-charts. The caller reads the disk. Elsewhere: decoding the files
//! (`chart/decode.rs`), checking them (`chart/validate.rs`), and archives (`chart/archive.rs`).

use std::collections::BTreeMap;

use super::archive::{self, ChartArchiveBudget, ChartArchiveError, MAX_FILE_SIZE};
use super::decode::{self, ChartDecodeError, ChartMetadataDraft, ValuesFileError};
use super::go_path_and_quote::{base, extension, quoted};
use super::validate::InvalidChartMetadata;
use super::{Chart, ChartFile, content_type};
use crate::ignore::{self, HelmIgnoreRules};
use crate::values::empty;

/// How deep charts may be nested. Differs(helm 4): it has no limit.
pub const MAX_DEPTH: usize = 64;

/// The name of the file that lists which files are not part of a chart.
pub const IGNORE_FILE: &str = ".helmignore";

/// How many bytes the values of a chart and its sub-charts may take in memory. Differs(helm 4): it has no limit, and a
/// table takes a hundred times as much memory as its text.
pub const MAX_VALUES: usize = 128 << 20;

/// A loaded chart, with the warnings that Helm would log.
#[derive(Debug, Clone)]
pub struct ChartLoadResult {
    /// The chart.
    pub chart: Chart,
    /// The warnings, one text each.
    pub warnings: Vec<String>,
}

/// Why a chart cannot be loaded. The messages are Helm's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChartLoadError {
    /// The folder has no `Chart.yaml`. The text is the path of the folder.
    #[error(
        "unable to detect chart at {0}/Chart.yaml: open {0}/Chart.yaml: no such file or directory"
    )]
    NotDetected(String),
    /// The archive has no `Chart.yaml`.
    #[error("unable to detect chart version, no Chart.yaml found")]
    NotDetectedInArchive,
    /// No version of Helm knows the `apiVersion` of the chart.
    #[error("unsupported chart version")]
    UnknownVersion,
    /// Helm reads charts of this `apiVersion`, but does not install them.
    #[error("invalid chart apiVersion")]
    NotInstallableVersion,
    /// A sub-chart has no `Chart.yaml`, or `.helmignore` excludes the `Chart.yaml`.
    #[error("Chart.yaml file is missing")]
    NoChartYaml,
    /// The `.helmignore` cannot be used.
    #[error(transparent)]
    Ignore(#[from] ignore::Error),
    /// A file of the folder is too large. The text is its name.
    #[error("chart file {0} is larger than the maximum file size {MAX_FILE_SIZE}")]
    FileTooLarge(String),
    /// A file that describes the chart cannot be read.
    #[error("cannot load {file}: {problem}")]
    File {
        /// The name of the file.
        file: &'static str,
        /// Why it cannot be read.
        problem: ChartDecodeError,
    },
    /// The values of the chart and its sub-charts take too much memory.
    #[error(
        "cannot load values.yaml: the values of the chart and those in it take more than {MAX_VALUES} bytes"
    )]
    TooManyValues,
    /// The values cannot be read.
    #[error("cannot load values.yaml: {0}")]
    Values(#[from] ValuesFileError),
    /// The metadata is not valid.
    #[error(transparent)]
    Invalid(#[from] InvalidChartMetadata),
    /// A sub-chart cannot be loaded.
    #[error("error unpacking subchart {name} in {chart}: {problem}")]
    Inner {
        /// The name of the file or folder below `charts/`.
        name: String,
        /// The chart that contains it.
        chart: String,
        /// Why it cannot be loaded.
        problem: Box<Self>,
    },
    /// A folder below `charts/` has the name of an archive.
    #[error("error unpacking subchart tar in {chart}: expected {expected}, got {found}")]
    FolderAsArchive {
        /// The chart that contains it.
        chart: String,
        /// The name of the folder.
        expected: String,
        /// The file that was found instead.
        found: String,
    },
    /// An archive cannot be unpacked.
    #[error(transparent)]
    Archive(#[from] ChartArchiveError),
    /// A file is YAML and not an archive. The text is its name.
    #[error("file '{0}' seems to be a YAML file, but expected a gzipped archive")]
    IsYaml(String),
    /// A file is not an archive.
    #[error("file '{file}' does not appear to be a gzipped archive; got '{found}'")]
    IsOther {
        /// The name of the file.
        file: String,
        /// The content type of the file, judged by its beginning.
        found: &'static str,
    },
    /// A file begins like an archive, but is not a valid one.
    #[error("file '{file}' does not appear to be a valid chart file (details: {problem})")]
    NotGzip {
        /// The name of the file.
        file: String,
        /// What is wrong with the archive.
        problem: ChartArchiveError,
    },
    /// An archive file cannot be unpacked. Helm does not report the reason.
    #[error("unable to load chart archive")]
    BadArchive(#[source] ChartArchiveError),
    /// A stream is not gzip.
    #[error("stream does not appear to be a valid chart file (details: {0})")]
    StreamNotGzip(#[source] ChartArchiveError),
    /// A stream cannot be unpacked.
    #[error("unable to load chart archive: {0}")]
    BadStream(#[source] ChartArchiveError),
    /// Charts are nested deeper than [`MAX_DEPTH`].
    #[error("charts are nested deeper than {MAX_DEPTH}")]
    TooDeep,
}

/// Loads a chart from the files of a folder, as `helm template FOLDER` does.
///
/// `files` are all files below the folder, with paths relative to the chart. Their order is that of a walk that visits
/// the entries of each folder by name. If there is a `.helmignore`, it is among them and decides which files are left
/// out. The caller may leave out files that [`HelmIgnoreRules`] ignore, but not `Chart.yaml`. `place` is the absolute
/// path of the folder, which only appears in errors.
///
/// # Errors
/// The messages are Helm's.
pub fn folder(place: &str, files: Vec<ChartFile>) -> Result<ChartLoadResult, ChartLoadError> {
    let described = files.iter().find(|file| file.name == "Chart.yaml");
    let described = described.ok_or_else(|| ChartLoadError::NotDetected(place.to_owned()))?;
    let is_known = check_version(&described.data);
    if !matches!(is_known, Ok(()) | Err(ChartLoadError::NotInstallableVersion)) {
        is_known.clone()?;
    }
    let kept = kept(files)?;
    let loaded = ChartLoader::default().load_root(kept)?;
    is_known.map(|()| loaded)
}

/// The files of a folder that are part of its chart. Files that match `.helmignore` are left out, and byte order marks
/// are removed.
///
/// # Errors
/// The rules of `.helmignore` cannot be used, or a file is too large.
pub fn kept(files: Vec<ChartFile>) -> Result<Vec<ChartFile>, ChartLoadError> {
    let rules = files.iter().find(|file| file.name == IGNORE_FILE);
    let rules = rules.map(|file| String::from_utf8_lossy(&file.data));
    let rules = HelmIgnoreRules::parse(&rules.unwrap_or_default())?;
    let mut kept = Vec::with_capacity(files.len());
    // The last folder of which a file was kept. No folder on the path to it is ignored.
    let mut known = String::new();
    for mut file in files {
        let folder = file.name.rfind('/').map_or("", |slash| &file.name[..slash]);
        let is_known = !folder.is_empty() && folder == known;
        if !is_known && is_folder_ignored(&rules, &file.name) || rules.is_ignored(&file.name, false)
        {
            continue;
        }
        if !is_known {
            known = folder.to_owned();
        }
        if file.data.len() as u64 > MAX_FILE_SIZE {
            return Err(ChartLoadError::FileTooLarge(quoted(base(&file.name))));
        }
        let data = archive::without_mark(&file.data);
        if data.len() < file.data.len() {
            file.data = data.into();
        }
        kept.push(file);
    }
    Ok(kept)
}

/// The files of an archive, with their paths in the chart.
///
/// # Errors
/// As for [`archive`](fn@archive), as far as they are about the archive itself.
pub fn archive_entries(bytes: &[u8]) -> Result<Vec<ChartFile>, ChartLoadError> {
    archive::files(bytes, &mut ChartArchiveBudget::new()).map_err(|problem| match problem {
        ChartArchiveError::NotGzip => ChartLoadError::StreamNotGzip(problem),
        problem => ChartLoadError::BadStream(problem),
    })
}

/// Loads a chart from the files that are part of it, such as those of [`archive_entries`] or [`kept`]. The caller may
/// have changed them.
///
/// # Errors
/// The messages are Helm's.
pub fn entries(files: Vec<ChartFile>) -> Result<ChartLoadResult, ChartLoadError> {
    ChartLoader::default().load_archive(files)
}

/// Loads a chart of any `apiVersion` from the files of a folder.
pub(crate) fn any_version(files: Vec<ChartFile>) -> Result<ChartLoadResult, ChartLoadError> {
    ChartLoader::default().load_root(kept(files)?)
}

/// Loads a chart from an archive file, as `helm template FILE` does.
///
/// # Errors
/// The messages are Helm's.
pub fn archive_file(name: &str, bytes: &[u8]) -> Result<ChartLoadResult, ChartLoadError> {
    if !content_type::is_gzip(bytes) {
        let file = name.to_owned();
        if name.ends_with(".yaml") || name.ends_with(".yml") {
            return Err(ChartLoadError::IsYaml(file));
        }
        return Err(ChartLoadError::IsOther { file, found: content_type::content_type(bytes) });
    }
    let mut loader = ChartLoader::default();
    let files = archive::files(bytes, &mut loader.budget).map_err(|problem| match problem {
        ChartArchiveError::NotGzip => ChartLoadError::NotGzip { file: name.to_owned(), problem },
        problem => ChartLoadError::BadArchive(problem),
    })?;
    loader.load_archive(files)
}

/// Loads a chart from the bytes of an archive, as Flux does with Helm.
///
/// # Errors
/// The messages are Helm's.
pub fn archive(bytes: &[u8]) -> Result<ChartLoadResult, ChartLoadError> {
    let mut loader = ChartLoader::default();
    let files = archive::files(bytes, &mut loader.budget).map_err(|problem| match problem {
        ChartArchiveError::NotGzip => ChartLoadError::StreamNotGzip(problem),
        problem => ChartLoadError::BadStream(problem),
    })?;
    loader.load_archive(files)
}

/// Refuses a chart whose `apiVersion` Helm does not install.
fn check_version(chart_yaml: &[u8]) -> Result<(), ChartLoadError> {
    let version = decode::api_version(chart_yaml)
        .map_err(|problem| ChartLoadError::File { file: "Chart.yaml", problem })?;
    match version.as_str() {
        "" | "v1" | "v2" => Ok(()),
        // Differs(helm 4): Helm loads the chart by other rules before it returns this error.
        "v3" => Err(ChartLoadError::NotInstallableVersion),
        _ => Err(ChartLoadError::UnknownVersion),
    }
}

/// Whether one of the folders that contain a file is ignored.
fn is_folder_ignored(rules: &HelmIgnoreRules, path: &str) -> bool {
    let mut folders = path.match_indices('/').map(|(slash, _)| &path[..slash]);
    folders.any(|folder| rules.is_ignored(folder, true))
}

/// Loads a chart with its sub-charts, and counts across all of them.
#[derive(Debug)]
struct ChartLoader {
    budget: ChartArchiveBudget,
    /// How many bytes of memory the values may still take.
    values: usize,
    warnings: Vec<String>,
}

impl Default for ChartLoader {
    fn default() -> Self {
        Self { budget: ChartArchiveBudget::new(), values: MAX_VALUES, warnings: Vec::new() }
    }
}

/// The content of a chart's files before they are checked.
#[derive(Debug, Default)]
struct ChartParts {
    draft: Option<ChartMetadataDraft>,
    chart: Chart,
    /// The files below `charts/`, by the first part of their paths there.
    inner: BTreeMap<String, Vec<ChartFile>>,
}

impl ChartLoader {
    fn load_archive(self, files: Vec<ChartFile>) -> Result<ChartLoadResult, ChartLoadError> {
        let described = files.iter().find(|file| file.name == "Chart.yaml");
        check_version(&described.ok_or(ChartLoadError::NotDetectedInArchive)?.data)?;
        self.load_root(files)
    }

    fn load_root(mut self, files: Vec<ChartFile>) -> Result<ChartLoadResult, ChartLoadError> {
        let chart = self.load(files, 0)?;
        Ok(ChartLoadResult { chart, warnings: self.warnings })
    }

    fn load(&mut self, files: Vec<ChartFile>, depth: usize) -> Result<Chart, ChartLoadError> {
        if depth > MAX_DEPTH {
            return Err(ChartLoadError::TooDeep);
        }
        let mut parts = ChartParts {
            chart: Chart { values: empty(), ..Chart::default() },
            ..ChartParts::default()
        };
        // `Chart.yaml` decides the meaning of the other files, so it is read first.
        for file in files.iter().filter(|file| file.name == "Chart.yaml") {
            let draft = parts.draft.get_or_insert_default();
            draft
                .read(&file.data)
                .map_err(|problem| ChartLoadError::File { file: "Chart.yaml", problem })?;
            if draft.metadata.api_version.is_empty() {
                "v1".clone_into(&mut draft.metadata.api_version);
            }
        }
        for file in files {
            self.take(&mut parts, file)?;
        }
        let ChartParts { draft, mut chart, inner } = parts;
        chart.metadata = draft.ok_or(ChartLoadError::NoChartYaml)?.validated()?;
        // Differs(helm 4): its order is that of a Go map, which is another one each time.
        for (name, files) in inner {
            if !name.starts_with(['_', '.']) {
                let loaded = self.load_inner(&chart.metadata.name, &name, files, depth + 1)?;
                chart.charts.push(loaded);
            }
        }
        Ok(chart)
    }

    fn take(&mut self, parts: &mut ChartParts, mut file: ChartFile) -> Result<(), ChartLoadError> {
        let chart = &mut parts.chart;
        match file.name.as_str() {
            "Chart.yaml" => {}
            "Chart.lock" => {
                chart.lock = decode::lock(&file.data)
                    .map_err(|problem| ChartLoadError::File { file: "Chart.lock", problem })?;
            }
            "values.yaml" => {
                let weight = sprig::weight(&file.data);
                let left = self.values.checked_sub(weight).ok_or(ChartLoadError::TooManyValues)?;
                self.values = left;
                chart.values = decode::values(&file.data)?;
            }
            "values.schema.json" => chart.schema = Some(file.data),
            "requirements.yaml" => {
                let draft = parts.draft.get_or_insert_default();
                self.check_first_version(draft, "Dependencies are handled in Chart.yaml since apiVersion \"v2\". We recommend migrating dependencies to Chart.yaml.");
                draft.read(&file.data).map_err(|problem| ChartLoadError::File {
                    file: "requirements.yaml",
                    problem,
                })?;
                if draft.metadata.api_version == "v1" {
                    chart.files.push(file);
                }
            }
            "requirements.lock" => {
                chart.lock = decode::lock(&file.data).map_err(|problem| ChartLoadError::File {
                    file: "requirements.lock",
                    problem,
                })?;
                let draft = parts.draft.get_or_insert_default();
                self.check_first_version(draft, "Dependency locking is handled in Chart.lock since apiVersion \"v2\". We recommend migrating to Chart.lock.");
                if draft.metadata.api_version == "v1" {
                    chart.files.push(file);
                }
            }
            name if name.starts_with("templates/") => chart.templates.push(file),
            name => match name.strip_prefix("charts/") {
                Some(inner) if extension(name) != ".prov" => {
                    let inner = inner.to_owned();
                    let first = inner.split('/').next().unwrap_or_default().to_owned();
                    file.name = inner;
                    parts.inner.entry(first).or_default().push(file);
                }
                _ => chart.files.push(file),
            },
        }
        Ok(())
    }

    fn check_first_version(&mut self, draft: &ChartMetadataDraft, advice: &str) {
        if draft.metadata.api_version != "v1" {
            self.warnings.push(format!("Warning: {advice}"));
        }
    }

    /// Loads the sub-chart with this name below `charts/`.
    fn load_inner(
        &mut self,
        chart: &str,
        name: &str,
        files: Vec<ChartFile>,
        depth: usize,
    ) -> Result<Chart, ChartLoadError> {
        let loaded = if extension(name) == ".tgz" {
            let first = files.into_iter().next().unwrap_or_default();
            if first.name != name {
                return Err(ChartLoadError::FolderAsArchive {
                    chart: chart.to_owned(),
                    expected: name.to_owned(),
                    found: first.name,
                });
            }
            archive::files(&first.data, &mut self.budget)
                .map_err(ChartLoadError::from)
                .and_then(|files| self.load(files, depth))
        } else {
            // A file directly in `charts/` is a chart without files.
            let inner = files.into_iter().filter_map(|file| {
                let (_, inner) = file.name.split_once('/')?;
                Some(ChartFile { name: inner.to_owned(), data: file.data })
            });
            self.load(inner.collect(), depth)
        };
        loaded.map_err(|problem| ChartLoadError::Inner {
            name: name.to_owned(),
            chart: chart.to_owned(),
            problem: Box::new(problem),
        })
    }
}
