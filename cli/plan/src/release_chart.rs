//! The chart of a HelmRelease: which source has it, what identifies it, and reading it.
//!
//! Elsewhere: the HelmChart that a template asks for (`helm_controller::helm_release::chart_template`), files of charts
//! (`sources::charts`), fetching (`chart_fetch.rs`).

use std::sync::Arc;

use crds::helm::{ChartRefKind, HelmRelease};
use crds::source::{ChartSourceKind, HelmChart, HelmChartSpec, HelmRepository, OCIRepository};
use helm::chart::Chart;
use helm_controller::helm_release::chart_template;
use helm_controller::release_runner::chart_cache::of_archive;
use memchr::memmem;
use objects::ObjectId;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};
use sources::charts::dependency::{self, ChartDependencyLocation};
use sources::charts::{LoadedChartFiles, values_merge};
use tree::{FileMetadata, FileTree as _, MemoryTree, RelPath};

use super::chart_fetch::ChartFetcher;
use super::discovery::{RepositoryDeclarations, Revision};
use super::repository_sources::{DeclaredSources, SOURCE_GROUP, SourceOrigin};

/// What a chart has if its templates or values may make Kustomizations or HelmReleases.
pub(crate) const APPLIER_GROUPS: &str = "toolkit.fluxcd.io";

/// Where a chart is.
pub(crate) enum ChartLocation {
    /// In the repository.
    Folder {
        /// The artifact of its source.
        files: Arc<MemoryTree>,
        /// The folder, or an archive.
        path: RelPath,
    },
    /// In a chart repository or a registry.
    Remote {
        /// The address of the repository, or of the folder in the registry.
        url: String,
        /// The name of the chart.
        name: String,
        /// A version, or a range of them.
        range: String,
    },
}

/// The chart of a HelmRelease.
pub(crate) struct ReleaseChart {
    location: ChartLocation,
    /// Files that replace its values.
    values_files: Vec<String>,
    ignores_missing_files: bool,
}

impl ReleaseChart {
    /// The chart that a HelmRelease names.
    ///
    /// # Errors
    /// Why it is not known.
    pub(crate) fn of(
        release: &HelmRelease,
        declarations: &RepositoryDeclarations,
        revision: &Revision<'_>,
    ) -> Result<Self, String> {
        let declared = &declarations.sources;
        if let Some((_, chart)) = chart_template::wanted(release) {
            let namespace = chart.metadata.namespace.clone().unwrap_or_default();
            return Self::of_spec(&namespace, &chart.spec, declarations, revision);
        }
        let Some(named) = &release.spec.chart_ref else {
            return Err("neither spec.chart nor spec.chartRef is set; set one of them".to_owned());
        };
        let own = release.metadata.namespace.as_deref().unwrap_or_default();
        let namespace = named.namespace.as_deref().unwrap_or(own);
        let id = ObjectId::new(namespace, &named.name, SOURCE_GROUP, named.kind.as_str());
        match named.kind {
            ChartRefKind::HelmChart => {
                let chart: HelmChart = typed(&id, declared)?;
                Self::of_spec(namespace, &chart.spec, declarations, revision)
            }
            ChartRefKind::OCIRepository => of_registry(&id, &typed(&id, declared)?),
            ChartRefKind::ExternalArtifact => {
                Err(format!("the chart of {} is not fetched", id.subject()))
            }
        }
    }

    fn of_spec(
        namespace: &str,
        spec: &HelmChartSpec,
        declarations: &RepositoryDeclarations,
        revision: &Revision<'_>,
    ) -> Result<Self, String> {
        let kind = spec.source_ref.kind;
        let id = ObjectId::new(namespace, &spec.source_ref.name, SOURCE_GROUP, kind.as_str());
        let location = match kind {
            ChartSourceKind::HelmRepository => {
                let repository: HelmRepository = typed(&id, &declarations.sources)?;
                ChartLocation::Remote {
                    url: repository.spec.url,
                    name: spec.chart.clone(),
                    range: spec.version.clone().unwrap_or_default(),
                }
            }
            ChartSourceKind::GitRepository | ChartSourceKind::Bucket => {
                match revision.origin(&id, declarations) {
                    SourceOrigin::Elsewhere(reason) => return Err(reason),
                    SourceOrigin::ThisRepository { ignore } => {
                        let files = revision.files.artifact(ignore.as_deref());
                        let files = files.map_err(|error| format!("{error:#}"))?;
                        let path = RelPath::parse(spec.chart.trim_start_matches('/'));
                        let path = path.map_err(|error| format!("spec.chart: {error}"))?;
                        ChartLocation::Folder { files, path }
                    }
                }
            }
        };
        Ok(Self {
            location,
            values_files: spec.values_files.clone(),
            ignores_missing_files: spec.ignore_missing_values_files,
        })
    }

    /// Identifies the content of the chart, without fetching it: equal digests stand for the same chart.
    pub(crate) fn digest(&self) -> String {
        let mut hash = Sha256::new();
        let mut add = |part: &[u8]| {
            hash.update(part.len().to_le_bytes());
            hash.update(part);
        };
        self.values_files.iter().for_each(|file| add(file.as_bytes()));
        add(&[u8::from(self.ignores_missing_files)]);
        match &self.location {
            ChartLocation::Remote { url, name, range } => {
                [url, name, range].into_iter().for_each(|part| add(part.as_bytes()));
            }
            ChartLocation::Folder { files, path } => {
                // Dependencies and values files may be anywhere.
                let is_alone = self.values_files.is_empty() && !has_text(files, path, "file://");
                for (file, entry) in files.walk() {
                    let is_counted = !is_alone || file.starts_with(path);
                    if let (true, FileMetadata::File { .. }) = (is_counted, entry) {
                        add(file.as_str().as_bytes());
                        add(&files.read(file).unwrap_or_default());
                    }
                }
            }
        }
        hex::encode(hash.finalize())
    }

    /// Whether the repository has the chart.
    pub(crate) fn is_in_repository(&self) -> bool {
        matches!(self.location, ChartLocation::Folder { .. })
    }

    /// The chart, as people name it.
    pub(crate) fn text(&self) -> String {
        match &self.location {
            ChartLocation::Folder { path, .. } => format!("chart {path} of this repository"),
            ChartLocation::Remote { name, range, .. } if range.is_empty() => name.clone(),
            ChartLocation::Remote { name, range, .. } => format!("{name}@{range}"),
        }
    }

    /// Whether objects of Flux may be among what the chart renders, as far as the repository has the chart.
    pub(crate) fn may_declare_appliers(&self) -> bool {
        match &self.location {
            ChartLocation::Remote { .. } => false,
            ChartLocation::Folder { files, path } => has_text(files, path, APPLIER_GROUPS),
        }
    }

    /// Reads or fetches the chart, with its dependencies.
    ///
    /// # Errors
    /// Why there is no chart.
    pub(crate) fn load(&self, fetcher: &ChartFetcher) -> Result<Chart, String> {
        let files = match &self.location {
            ChartLocation::Remote { url, name, range } => {
                let archive = fetcher.archive(url, name, range)?;
                LoadedChartFiles::in_archive(&archive)
            }
            ChartLocation::Folder { files, path } => LoadedChartFiles::in_tree(files, path),
        };
        let mut files = files.map_err(|error| error.to_string())?;
        self.merge_values(&mut files)?;
        if let ChartLocation::Folder { files: tree, path } = &self.location
            && matches!(tree.entry(path), Some(FileMetadata::Dir))
        {
            add_dependencies(&mut files, tree, path, fetcher)?;
        }
        // As the operator reads it: out of the archive that a HelmChart makes of it.
        let mut archive = Vec::new();
        files.write(&mut archive).map_err(|error| error.to_string())?;
        let chart = of_archive(&archive, "HelmChart", "", false);
        chart.map(|(chart, _)| chart).map_err(|error| error.to_string())
    }

    /// Puts the values files of the spec in the place of the values of the chart.
    fn merge_values(&self, files: &mut LoadedChartFiles) -> Result<(), String> {
        if self.values_files.is_empty() {
            return Ok(());
        }
        let read = |path: &str| {
            let path = RelPath::parse(path.trim_start_matches('/')).ok()?;
            match &self.location {
                ChartLocation::Remote { .. } => files.read(path.as_str()).map(<[u8]>::to_vec),
                ChartLocation::Folder { files, .. } => files.read(&path).ok().map(|it| it.to_vec()),
            }
        };
        let merged = values_merge::merge(&self.values_files, self.ignores_missing_files, read);
        let merged = merged.map_err(|error| error.to_string())?;
        files.set_values(merged.text).map_err(|error| error.to_string())
    }
}

/// The chart of an OCIRepository, which is a chart by itself.
fn of_registry(id: &ObjectId, source: &OCIRepository) -> Result<ReleaseChart, String> {
    let subject = id.subject();
    let bare = source.spec.url.trim_end_matches('/');
    let (url, name) =
        bare.rsplit_once('/').ok_or_else(|| format!("spec.url of {subject} names no chart"))?;
    let reference = source.spec.reference.clone().unwrap_or_default();
    if reference.digest.is_some() {
        return Err(format!("{subject} names its chart by digest, which is not fetched"));
    }
    let range = reference.semver.or(reference.tag).unwrap_or_default();
    Ok(ReleaseChart {
        location: ChartLocation::Remote { url: url.to_owned(), name: name.to_owned(), range },
        values_files: Vec::new(),
        ignores_missing_files: false,
    })
}

/// A source that is declared.
fn typed<K: DeserializeOwned>(id: &ObjectId, declared: &DeclaredSources) -> Result<K, String> {
    let subject = id.subject();
    let object = declared.get(id);
    let object = object.ok_or_else(|| format!("the repository does not declare {subject}"))?;
    serde_json::from_value(object.clone().into_value())
        .map_err(|error| format!("{subject} cannot be read: {error}"))
}

/// Whether a file of a folder has a text.
fn has_text(files: &MemoryTree, folder: &RelPath, text: &str) -> bool {
    let inside = files.walk().filter(|(path, _)| path.starts_with(folder));
    inside.map(|(path, _)| path).any(|path| {
        let content = files.read(path).unwrap_or_default();
        memmem::find(&content, text.as_bytes()).is_some()
    })
}

/// Adds the dependencies that a chart lists and does not have.
fn add_dependencies(
    files: &mut LoadedChartFiles,
    tree: &MemoryTree,
    path: &RelPath,
    fetcher: &ChartFetcher,
) -> Result<(), String> {
    for missing in files.missing() {
        let failed = |why: String| format!("dependency {}: {why}", missing.name);
        let place = dependency::place(&missing, path);
        let added = match place.map_err(|error| failed(error.to_string()))? {
            ChartDependencyLocation::Folder(path) => LoadedChartFiles::in_tree(tree, &path),
            ChartDependencyLocation::Repository(url) | ChartDependencyLocation::Registry(url) => {
                let archive = fetcher.archive(&url, &missing.name, &missing.version);
                LoadedChartFiles::in_archive(&archive.map_err(failed)?)
            }
            ChartDependencyLocation::Git(_) => {
                return Err(failed("repositories of Git are not fetched".to_owned()));
            }
        };
        let added = added.map_err(|error| failed(error.to_string()))?;
        files.add(added).map_err(|error| failed(error.to_string()))?;
    }
    Ok(())
}
