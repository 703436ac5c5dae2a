//! Finds and reads the chart of a HelmRelease: its source, a digest of its content, and its files.
//!
//! Elsewhere: the HelmChart of a chart template (`helm_controller::helm_release::chart_template`), chart files
//! (`sources::charts`), fetching (`chart_fetch.rs`).

use std::sync::Arc;

use crds::helm::{ChartRefKind, HelmRelease};
use crds::source::{
    ChartSourceKind, HelmChart, HelmChartSpec, HelmRepository, OCIRepository, ReconcileStrategy,
};
use helm::chart::Chart;
use helm_controller::helm_release::chart_template;
use helm_controller::release_runner::chart_cache::of_archive;
use objects::ObjectId;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use sources::charts::dependency::{self, ChartDependencyLocation};
use sources::charts::{LoadedChartFiles, values_merge};
use tree::{FileKind, FileMetadata, FileTree as _, RelPath};

use super::applier_discovery::{RepositoryDeclarations, Revision};
use super::chart_fetch::ChartFetcher;
use super::render_failure::RenderFailure;
use super::repository_sources::{DeclaredSources, SOURCE_GROUP, referenced_source, spec_of};
use super::source_artifact::SourceArtifact;

/// The place of a chart.
pub(crate) enum ChartLocation {
    /// The chart is in the repository.
    Folder {
        /// The artifact of the chart's source.
        files: Arc<SourceArtifact>,
        /// The path of the chart's folder or archive.
        path: RelPath,
    },
    /// The chart is in a chart repository or a registry.
    Remote {
        /// The address of the repository, or of the folder in the registry.
        url: String,
        /// The name of the chart.
        name: String,
        /// A version or a version range.
        range: String,
    },
}

/// The chart of a HelmRelease.
pub(crate) struct ReleaseChart {
    location: ChartLocation,
    /// The values files that replace the default values of the chart.
    values_files: Vec<String>,
    ignores_missing_files: bool,
    /// Whether a changed chart counts only with a new version. This is `ChartVersion`, the default of `spec.reconcileStrategy`.
    is_kept_by_version: bool,
}

/// A chart in the repository. The cluster keeps using the old chart until the version changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChartVersionAndDigest {
    /// The version of the chart.
    pub(crate) version: String,
    /// A digest of the chart's content.
    pub(crate) digest: String,
}

/// The sources of a HelmRelease's chart: the named source, and the source of a HelmChart.
pub(crate) fn chart_sources(
    spec: &Value,
    namespace: &str,
    declared: &DeclaredSources,
) -> Vec<ObjectId> {
    let template = &spec["chart"]["spec"]["sourceRef"];
    let reference = if template.is_object() { template } else { &spec["chartRef"] };
    let Some(named) = referenced_source(reference, namespace) else { return Vec::new() };
    let chart = if named.kind == "HelmChart" { spec_of(&named, declared) } else { Value::Null };
    let inner = referenced_source(&chart["sourceRef"], &named.namespace);
    [Some(named), inner].into_iter().flatten().collect()
}

impl ReleaseChart {
    /// Finds the chart that a HelmRelease names.
    ///
    /// # Errors
    /// The reason why the chart is unknown.
    pub(crate) fn of(
        release: &HelmRelease,
        declarations: &RepositoryDeclarations,
        revision: &Revision<'_>,
    ) -> Result<Self, RenderFailure> {
        let declared = &declarations.sources;
        if let Some((_, chart)) = chart_template::wanted(release) {
            let namespace = chart.metadata.namespace.clone().unwrap_or_default();
            return Self::of_spec(&namespace, &chart.spec, declarations, revision);
        }
        let Some(named) = &release.spec.chart_ref else {
            let why = "neither spec.chart nor spec.chartRef is set; set one of them".to_owned();
            return Err(RenderFailure::Failed(why));
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
                let files = declarations.artifact(&id, revision)?;
                let path = only_folder(&files, &id)?;
                Ok(Self {
                    location: ChartLocation::Folder { files, path },
                    values_files: Vec::new(),
                    ignores_missing_files: false,
                    is_kept_by_version: false,
                })
            }
        }
    }

    fn of_spec(
        namespace: &str,
        spec: &HelmChartSpec,
        declarations: &RepositoryDeclarations,
        revision: &Revision<'_>,
    ) -> Result<Self, RenderFailure> {
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
                let files = declarations.artifact(&id, revision)?;
                let path = RelPath::parse(spec.chart.trim_start_matches('/'));
                let path = path.map_err(|error| format!("spec.chart: {error}"))?;
                ChartLocation::Folder { files, path }
            }
        };
        Ok(Self {
            location,
            values_files: spec.values_files.clone(),
            ignores_missing_files: spec.ignore_missing_values_files,
            is_kept_by_version: spec.reconcile_strategy != Some(ReconcileStrategy::Revision),
        })
    }

    /// A digest of the chart's content that needs no fetch. Equal digests mean equal charts.
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
                let chart = files.content(path);
                add(chart.digest.as_bytes());
                for file in &self.values_files {
                    let file = RelPath::parse(file.trim_start_matches('/')).ok();
                    let text = file.and_then(|file| files.files.read(&file).ok());
                    add(&[u8::from(text.is_some())]);
                    add(text.as_deref().unwrap_or_default());
                }
                if chart.names_folders {
                    // The values files may be anywhere in the source.
                    add(files.content(&RelPath::root()).digest.as_bytes());
                }
            }
        }
        hex::encode(hash.finalize())
    }

    /// Whether the chart is in the repository.
    pub(crate) fn is_in_repository(&self) -> bool {
        matches!(self.location, ChartLocation::Folder { .. })
    }

    /// The name and version of the chart, for people.
    pub(crate) fn text(&self) -> String {
        match &self.location {
            ChartLocation::Folder { path, .. } => format!("chart {path} of this repository"),
            ChartLocation::Remote { name, range, .. } if range.is_empty() => name.clone(),
            ChartLocation::Remote { name, range, .. } => format!("{name}@{range}"),
        }
    }

    /// Whether the chart may render objects of Flux. This is known only for a chart in the repository.
    pub(crate) fn may_declare_appliers(&self) -> bool {
        match &self.location {
            ChartLocation::Remote { .. } => false,
            ChartLocation::Folder { files, path } => files.content(path).may_declare_appliers,
        }
    }

    /// Whether the chart is in the repository, or may be fetched.
    pub(crate) fn is_readable(&self, fetcher: &ChartFetcher) -> bool {
        match &self.location {
            ChartLocation::Remote { url, .. } => fetcher.may_fetch(url),
            ChartLocation::Folder { .. } => true,
        }
    }

    /// The version and digest of a chart in the repository whose changes count only with a new version.
    pub(crate) fn versioned(&self) -> Option<ChartVersionAndDigest> {
        let ChartLocation::Folder { files, path } = &self.location else { return None };
        let text = files.files.read(&path.join("Chart.yaml").ok()?).ok()?;
        let version = goyaml::to_json(&text).ok()?["version"].as_str()?.to_owned();
        self.is_kept_by_version.then(|| ChartVersionAndDigest { version, digest: self.digest() })
    }

    /// Reads or fetches the chart, with its dependencies.
    ///
    /// # Errors
    /// The reason why the chart is not available.
    pub(crate) fn load(&self, fetcher: &ChartFetcher) -> Result<Chart, RenderFailure> {
        let files = match &self.location {
            ChartLocation::Remote { url, name, range } => {
                let archive = fetcher.archive(url, name, range)?;
                LoadedChartFiles::in_archive(&archive)
            }
            ChartLocation::Folder { files, path } => LoadedChartFiles::in_tree(&files.files, path),
        };
        let mut files = files.map_err(|error| error.to_string())?;
        self.merge_values(&mut files)?;
        if let ChartLocation::Folder { files: tree, path } = &self.location
            && matches!(tree.files.entry(path), Some(FileMetadata::Dir))
        {
            add_dependencies(&mut files, tree, path, fetcher)?;
        }
        // The operator reads the chart from the archive of a HelmChart, so this packs the same archive.
        let mut archive = Vec::new();
        files.write(&mut archive).map_err(|error| error.to_string())?;
        let chart = of_archive(&archive, "HelmChart", "", false);
        chart.map(|(chart, _)| chart).map_err(|error| RenderFailure::Failed(error.to_string()))
    }

    /// Replaces the default values of the chart with the values files of the spec.
    fn merge_values(&self, files: &mut LoadedChartFiles) -> Result<(), String> {
        if self.values_files.is_empty() {
            return Ok(());
        }
        let read = |path: &str| {
            let path = RelPath::parse(path.trim_start_matches('/')).ok()?;
            match &self.location {
                ChartLocation::Remote { .. } => files.read(path.as_str()).map(<[u8]>::to_vec),
                ChartLocation::Folder { files, .. } => {
                    files.files.read(&path).ok().map(|it| it.to_vec())
                }
            }
        };
        let merged = values_merge::merge(&self.values_files, self.ignores_missing_files, read);
        let merged = merged.map_err(|error| error.to_string())?;
        files.set_values(merged.text).map_err(|error| error.to_string())
    }
}

/// The chart of an OCIRepository.
fn of_registry(id: &ObjectId, source: &OCIRepository) -> Result<ReleaseChart, RenderFailure> {
    let subject = id.subject();
    let bare = source.spec.url.trim_end_matches('/');
    let (url, name) =
        bare.rsplit_once('/').ok_or_else(|| format!("spec.url of {subject} names no chart"))?;
    let reference = source.spec.reference.clone().unwrap_or_default();
    if reference.digest.is_some() {
        let why = format!("{subject} names its chart by digest, which is not fetched");
        return Err(RenderFailure::NotFetched(why));
    }
    if reference.semver.is_some() && reference.semver_filter.is_some() {
        let why =
            format!("{subject} has spec.ref.semverFilter, by which no version is chosen here");
        return Err(RenderFailure::NotFetched(why));
    }
    let range = reference.semver.or(reference.tag).unwrap_or_default();
    Ok(ReleaseChart {
        location: ChartLocation::Remote { url: url.to_owned(), name: name.to_owned(), range },
        values_files: Vec::new(),
        ignores_missing_files: false,
        is_kept_by_version: false,
    })
}

/// The only top-level folder of an artifact. Chart archives contain one such folder.
fn only_folder(artifact: &SourceArtifact, id: &ObjectId) -> Result<RelPath, String> {
    let entries = artifact.files.list(&RelPath::root()).unwrap_or_default();
    let folders = entries.iter().filter(|(_, kind)| *kind == FileKind::Dir);
    let folders: Vec<&String> = folders.map(|(name, _)| name).collect();
    match folders[..] {
        [folder] => RelPath::parse(folder).map_err(|error| error.to_string()),
        _ => Err(format!("{} is no chart: it has not exactly one folder", id.subject())),
    }
}

/// Finds a declared source. If it is not declared, only the cluster may know its location.
fn typed<K: DeserializeOwned>(
    id: &ObjectId,
    declared: &DeclaredSources,
) -> Result<K, RenderFailure> {
    let subject = id.subject();
    let undeclared =
        || RenderFailure::NotFetched(format!("the repository does not declare {subject}"));
    let object = declared.get(id).ok_or_else(undeclared)?;
    serde_json::from_value(object.clone().into_value())
        .map_err(|error| RenderFailure::Failed(format!("{subject} cannot be read: {error}")))
}

/// Adds the dependencies that a chart lists but does not contain.
fn add_dependencies(
    files: &mut LoadedChartFiles,
    tree: &SourceArtifact,
    path: &RelPath,
    fetcher: &ChartFetcher,
) -> Result<(), RenderFailure> {
    for missing in files.missing() {
        let failed = |why: String| format!("dependency {}: {why}", missing.name);
        let place = dependency::place(&missing, path);
        let added = match place.map_err(|error| failed(error.to_string()))? {
            ChartDependencyLocation::Folder(path) => LoadedChartFiles::in_tree(&tree.files, &path),
            ChartDependencyLocation::Repository(url) | ChartDependencyLocation::Registry(url) => {
                let archive = fetcher.archive(&url, &missing.name, &missing.version);
                let archive = archive.map_err(|failure| failure.with_text(failed))?;
                LoadedChartFiles::in_archive(&archive)
            }
            ChartDependencyLocation::Git(_) => {
                let why = failed("repositories of Git are not fetched".to_owned());
                return Err(RenderFailure::NotFetched(why));
            }
        };
        let added = added.map_err(|error| failed(error.to_string()))?;
        files.add(added).map_err(|error| failed(error.to_string()))?;
    }
    Ok(())
}
