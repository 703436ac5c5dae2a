//! Finds the version of a chart, fetches it, and stores it as an artifact.
//!
//! Here: choosing, fetching from a repository, keeping. Elsewhere: packing (`chart_package.rs`), dependencies
//! (`dependencies.rs`), reading an index (`helm_repository`).

use std::sync::Arc;

use crds::source::{HelmChart, HelmChartStatus};
use crds::{Artifact, ReconciledObject as _};
use parking_lot::Mutex;
use reconcile::{ConditionReason, NextRunTrigger, RunOutcome, condition_reason};
use sources::charts::repository::Error as RepositoryError;
use sources::charts::{LoadedChartFiles, chart_files, with_metadata};
use sources::fetch_plan::KeptArtifact;
use sources::source_condition_reasons::{
    AUTHENTICATION_FAILED, CHART_PACKAGE_ERROR, CHART_PACKAGE_SUCCEEDED, CHART_PULL_ERROR,
    INVALID_CHART_REFERENCE, METADATA_PATCH_ERROR, NO_SOURCE_ARTIFACT, VALUES_FILES_ERROR,
};
use tree::{FileMetadata, FileTree as _, MemoryTree, RelPath};

use super::artifact_metadata::ChartArtifactMetadata;
use super::chart_source::{ChartOrigin, SourceArtifact};
use super::provenance::ProvenanceKeyring;
use super::signed_name::SignedChartName;
use super::{LATEST, chart_package, generation, oci_registry};
use crate::helm_repository::executor::index;
use crate::source::artifact_verification_record::VerificationRecord;
use crate::source::executor::{RemoteRevision, SourceRun, StoredArtifact, keep};
use crate::source::{busy, linked};
use windlass_cluster::error::chain;
use windlass_runtime::blocking_task::blocking;

/// The chart to fetch, and the settings of its artifact.
pub(crate) struct ChartFetchSpec {
    /// The origin of the chart.
    pub(super) origin: ChartOrigin,
    /// The build metadata behind the `+` of the version.
    pub(super) metadata: Option<String>,
    /// The values files that replace the chart's own values.
    pub(super) values_files: Vec<String>,
    /// The public keys for the required provenance file. `None` if none is required.
    pub(super) keyring: Option<ProvenanceKeyring>,
    /// The facts about the chart, once they are known.
    pub(super) built: Mutex<Option<ChartArtifactMetadata>>,
}

impl ChartFetchSpec {
    /// The facts about the chart, as far as they are known.
    pub(super) fn built(&self) -> ChartArtifactMetadata {
        self.built.lock().clone().unwrap_or_default()
    }

    pub(super) fn set_built(&self, built: ChartArtifactMetadata) {
        *self.built.lock() = Some(built);
    }

    /// Whether the packed archive differs from the fetched one.
    fn changes(&self) -> bool {
        self.metadata.is_some() || !self.values_files.is_empty()
    }
}

/// The result of asking for the version of a chart.
pub(crate) enum ChartLookupResult {
    /// Nothing has changed.
    Nothing,
    /// A version in a repository.
    Version {
        /// The URL of the archive.
        url: Option<String>,
        /// The expected digest.
        digest: Option<String>,
        /// The name and the version that the index has.
        chart: [String; 2],
    },
    /// A version in a registry.
    Tag(String),
    /// A chart in a tree.
    Files {
        /// It.
        files: Box<LoadedChartFiles>,
        /// The tree, where its values files and dependencies are.
        tree: Arc<MemoryTree>,
    },
}

/// The outcome of a failure in Flux's words. Like Flux, it distinguishes failures that only another spec or source helps
/// against.
pub(super) fn failed(why: ConditionReason, text: String) -> RunOutcome {
    let summary = match why {
        INVALID_CHART_REFERENCE => "invalid chart reference: ",
        CHART_PULL_ERROR => "chart pull error: ",
        METADATA_PATCH_ERROR => "chart metadata patch error: ",
        VALUES_FILES_ERROR => "values files merge error: ",
        CHART_PACKAGE_ERROR => "chart package error: ",
        _ => "",
    };
    let text = format!("{summary}{text}");
    if [INVALID_CHART_REFERENCE, METADATA_PATCH_ERROR, VALUES_FILES_ERROR].contains(&why) {
        RunOutcome::Stalled(why, text)
    } else {
        RunOutcome::Failed(why, text, NextRunTrigger::default())
    }
}

/// Finds the version of the chart. It reads nothing if neither the source nor the spec changed since the last success.
pub(super) async fn ask(
    run: &Arc<SourceRun<HelmChart>>,
    kept: Option<&KeptArtifact>,
) -> Result<RemoteRevision<ChartLookupResult>, RunOutcome> {
    let work = &run.work;
    let object = &run.object;
    let same = kept.zip(last_time(object, work.origin.artifact()));
    if let Some((kept, reason)) = same {
        let status = object.status.as_ref();
        let observed = status.map(|status| status.observed_values_files.clone());
        let observed = observed.filter(|files| !files.is_empty());
        work.set_built(ChartArtifactMetadata {
            name: status.and_then(|it| it.observed_chart_name.clone()).unwrap_or_default(),
            version: kept.revision.clone(),
            is_packaged: reason == CHART_PACKAGE_SUCCEEDED.as_str(),
            values_files: observed.unwrap_or_else(|| work.values_files.clone()),
        });
        return Ok(RemoteRevision {
            revision: kept.revision.clone(),
            found: ChartLookupResult::Nothing,
        });
    }
    let (found, name, version, is_packaged) = match &work.origin {
        ChartOrigin::Index(held, _) => choose(run, held).await?,
        ChartOrigin::Tree(held) => in_tree(run, held).await?,
        ChartOrigin::Registry(registry) => {
            let known = &run.context.remotes.oci;
            let spec = &object.spec;
            let range = spec.version.as_deref().unwrap_or_default();
            let (found, name, version) =
                oci_registry::choose(&registry.remote, known, &spec.chart, range).await?;
            (found, name, version, work.changes())
        }
    };
    let version = match &work.metadata {
        Some(metadata) => with_metadata(&version, metadata)
            .map_err(|error| failed(METADATA_PATCH_ERROR, chain(&error)))?,
        None => version,
    };
    let observed = object.status.as_ref().and_then(|it| it.observed_chart_name.as_deref());
    // A chart with another name is another chart, even if the version is the same.
    let is_other = kept.is_some() && observed != Some(&name);
    let revision = if is_other { format!("{name} {version}") } else { version.clone() };
    let values_files = work.values_files.clone();
    work.set_built(ChartArtifactMetadata { name, version, is_packaged, values_files });
    Ok(RemoteRevision { revision, found })
}

/// The reason of the condition `Ready` in the status of a HelmChart. `None` if the chart was not ready, or if its spec or its
/// source's artifact changed since.
fn last_time<'o>(object: &'o HelmChart, artifact: Option<&Artifact>) -> Option<&'o str> {
    let artifact = artifact?;
    let observed = object.status.as_ref();
    let revision = observed.and_then(|it| it.observed_source_artifact_revision.as_deref());
    let ready = object.condition("Ready").filter(|ready| ready.status == "True")?;
    let is_seen = object.observed_generation() == generation(object);
    let is_same = is_seen && revision == Some(artifact.revision.as_str());
    is_same.then_some(ready.reason.as_str())
}

/// The version of a repository.
async fn choose(
    run: &Arc<SourceRun<HelmChart>>,
    held: &SourceArtifact,
) -> Result<(ChartLookupResult, String, String, bool), RunOutcome> {
    let work = &run.work;
    let spec = &run.object.spec;
    let index = index(&run.context, &held.artifact, held.is_elsewhere).await;
    let index = index.map_err(|why| {
        failed(CHART_PULL_ERROR, format!("failed to get chart version for remote reference: {why}"))
    })?;
    let range = spec.version.as_deref().unwrap_or_default();
    let chosen = index.choose(&spec.chart, range).map_err(|error| {
        let text = format!("failed to get chart version for remote reference: {error}");
        failed(INVALID_CHART_REFERENCE, text)
    })?;
    let found = ChartLookupResult::Version {
        url: chosen.url.map(str::to_owned),
        digest: chosen.digest.map(str::to_owned),
        chart: [chosen.name.to_owned(), chosen.version.to_owned()],
    };
    Ok((found, chosen.name.to_owned(), chosen.version.to_owned(), work.changes()))
}

/// The chart of a tree.
async fn in_tree(
    run: &Arc<SourceRun<HelmChart>>,
    held: &SourceArtifact,
) -> Result<(ChartLookupResult, String, String, bool), RunOutcome> {
    let SourceArtifact { artifact, is_elsewhere } = held;
    let tree = windlass_runtime::artifact_files::files(&run.context, artifact, *is_elsewhere).await;
    let tree = tree.map_err(|why| {
        let text = format!("failed to open source artifact: {why}");
        RunOutcome::Failed(NO_SOURCE_ARTIFACT, text, NextRunTrigger::default())
    })?;
    let run = run.clone();
    let read = move || {
        let refused = |why: String| failed(INVALID_CHART_REFERENCE, why);
        let path = RelPath::parse(&run.object.spec.chart).map_err(|e| refused(e.to_string()))?;
        let files = LoadedChartFiles::in_tree(&tree, &path).map_err(|error| match error {
            chart_files::Error::Load(_) | chart_files::Error::NotFound(_) => refused(chain(&error)),
            error => failed(CHART_PACKAGE_ERROR, chain(&error)),
        })?;
        let metadata = &files.chart().metadata;
        let name = metadata.name.clone();
        let version = metadata.version.clone();
        let is_folder = matches!(tree.entry(&path), Some(FileMetadata::Dir));
        let is_packaged = is_folder || run.work.changes();
        Ok((ChartLookupResult::Files { files: Box::new(files), tree }, name, version, is_packaged))
    };
    blocking(condition_reason::FAILED, "reading the chart", read).await
}

/// Fetches or packs the chart, and keeps it.
pub(super) async fn fetch(
    run: &Arc<SourceRun<HelmChart>>,
    found: ChartLookupResult,
) -> Result<StoredArtifact<HelmChartStatus>, RunOutcome> {
    match found {
        ChartLookupResult::Nothing => {
            let text = "the artifact changed while it was being read".to_owned();
            Err(failed(CHART_PULL_ERROR, text))
        }
        ChartLookupResult::Version { url, digest, chart } => {
            let (archive, verified) = pull(run, url.as_deref(), digest.as_deref()).await?;
            let [name, version] = chart;
            let named = SignedChartName { place: "the index of the repository", name, version };
            let stored = pulled(run, archive, verified.is_some().then_some(named)).await?;
            Ok(StoredArtifact { verified, ..stored })
        }
        ChartLookupResult::Tag(version) => {
            let ChartOrigin::Registry(registry) = &run.work.origin else {
                return Err(failed(CHART_PULL_ERROR, "no registry configured".to_owned()));
            };
            let (archive, verified) = oci_registry::pull(run, registry, &version).await?;
            let name = oci_registry::name_of(&run.object.spec.chart).to_owned();
            let named = SignedChartName { place: "the registry", name, version };
            // A trust policy that demands no signature demands no name either.
            let is_signed = verified.as_ref().is_some_and(|verified| !verified.text.is_empty());
            let stored = pulled(run, archive, is_signed.then_some(named)).await?;
            Ok(StoredArtifact { verified, ..stored })
        }
        ChartLookupResult::Files { files, tree } => {
            let files = chart_package::local(run, *files, &tree).await?;
            let run = run.clone();
            let pack = move || {
                let path = RelPath::parse(&run.object.spec.chart).unwrap_or_default();
                match tree.read(&path) {
                    // The fetched file is an archive already, and is stored unchanged.
                    Ok(archive) if !run.work.changes() => {
                        store(&run, |out| out.write_all(&archive))
                    }
                    _ => store(&run, |out| files.write(out)),
                }
            };
            blocking(CHART_PACKAGE_ERROR, "packing the chart", pack).await
        }
    }
}

/// Stores a fetched archive, unchanged or with other values. If a signature is required, it has to cover the archive's name
/// and version.
async fn pulled(
    run: &Arc<SourceRun<HelmChart>>,
    archive: Vec<u8>,
    named: Option<SignedChartName>,
) -> Result<StoredArtifact<HelmChartStatus>, RunOutcome> {
    let run = run.clone();
    let pack = move || {
        let files = LoadedChartFiles::in_archive(&archive)
            .map_err(|error| failed(CHART_PULL_ERROR, chain(&error)))?;
        if let Some(named) = &named {
            named.check(&files.chart().metadata)?;
        }
        if !run.work.changes() {
            return store(&run, |out| out.write_all(&archive));
        }
        let files = chart_package::pulled(&run, files)?;
        store(&run, |out| files.write(out))
    };
    blocking(CHART_PACKAGE_ERROR, "packing the chart", pack).await
}

/// Fetches an archive of a repository, and finds its signer if a signature is required.
async fn pull(
    run: &SourceRun<HelmChart>,
    url: Option<&str>,
    digest: Option<&str>,
) -> Result<(Vec<u8>, Option<VerificationRecord>), RunOutcome> {
    let pull_failed = |why: String| {
        failed(CHART_PULL_ERROR, format!("failed to download chart for remote reference: {why}"))
    };
    let ChartOrigin::Index(_, repository) = &run.work.origin else {
        return Err(pull_failed("no repository configured".to_owned()));
    };
    let no_url =
        || pull_failed(format!("chart '{}' has no downloadable URLs", run.work.built().name));
    let url = url.ok_or_else(no_url)?;
    let pulled = repository.chart(url, digest).await;
    let archive = pulled.map_err(|error| match error {
        error if error.is_about_credentials() => {
            let text = format!("failed to authenticate with the Helm repository: {error}");
            RunOutcome::Failed(AUTHENTICATION_FAILED, text, NextRunTrigger::default())
        }
        RepositoryError::Busy(said) => busy(CHART_PULL_ERROR, &said),
        error => pull_failed(chain(&error)),
    })?;
    let verified = match &run.work.keyring {
        Some(keyring) => Some(keyring.verify(repository, url, &archive).await?),
        None => None,
    };
    Ok((archive, verified))
}

/// Stores the archive of a chart that `write` writes. It blocks its thread until the archive is stored.
fn store<E>(
    run: &SourceRun<HelmChart>,
    write: impl FnOnce(&mut dyn std::io::Write) -> Result<(), E>,
) -> Result<StoredArtifact<HelmChartStatus>, RunOutcome>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let built = run.work.built();
    let file = format!("{}-{}.tgz", built.name, built.version);
    let store = &run.context.artifacts;
    let artifact = keep(store, &*run.object, &file, &built.version, write)?;
    let latest = linked(store, &artifact, LATEST);
    let message = built.summary();
    // Parity(flux): the status lists them only where they may differ from those of the spec.
    let is_listed = run.object.spec.ignore_missing_values_files;
    let files = if is_listed { built.values_files.clone() } else { Vec::new() };
    Ok(StoredArtifact::new(artifact, message, move |status: &mut HelmChartStatus| {
        status.url.clone_from(&latest);
        status.observed_chart_name = Some(built.name.clone());
        status.observed_values_files.clone_from(&files);
    }))
}
