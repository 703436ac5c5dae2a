//! Fetches the dependencies of a chart that are missing in its tree.
//!
//! Here: finding the HelmRepository of a dependency's address, and asking it. Elsewhere: which dependencies are missing, and
//! the meaning of their addresses (`sources::charts`), charts of registries (`oci_registry.rs`).

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use crds::ArtifactSource as _;
use crds::source::{HelmChart, HelmRepository, HelmRepositorySpec, HelmRepositoryType};
use helm::chart::ChartDependency;
use kube_core::ResourceExt as _;
use reconcile::{NextRunTrigger, RunOutcome, condition_reason};
use sources::charts::dependency::{self, GitDependencyFolder};
use sources::charts::repository::normalized;
use sources::charts::{
    self, ChartDependencyLocation, ChartIndex, ChartIndexFetchResult, ChartRepository,
    ChartRepositoryCredentials, LoadedChartFiles,
};
use sources::oci::chart;
use sources::source_condition_reasons::DEPENDENCY_BUILD_ERROR;
use tokio_util::sync::CancellationToken;
use tree::{MemoryTree, RelPath};

use super::{chart_package, oci_registry};
use crate::helm_repository::executor;
use crate::source::executor::SourceRun;
use windlass_cluster::error::chain;
use windlass_cluster::referenced_secrets_and_config_maps::RunReferenceReads;
use windlass_runtime::blocking_task::blocking;
use windlass_runtime::chart_repository_access::{self, HelmRepositorySecrets, with_address};
use windlass_runtime::controller_kind::node_named;
use windlass_runtime::source_catalog::artifact_owner;

/// Most dependencies of one chart that are fetched.
const MAX_FETCHED_DEPENDENCIES: usize = 128;

/// The time limit for fetching a dependency without a HelmRepository.
const DEFAULT_FETCH_TIMEOUT: Duration = Duration::from_secs(60);

type HelmChartRun = Arc<SourceRun<HelmChart>>;

/// A repository with its index.
type IndexedRepository = (Arc<ChartRepository>, Arc<ChartIndex>);

/// Adds the charts that are listed and not there.
pub(super) async fn add(
    run: &HelmChartRun,
    mut files: LoadedChartFiles,
    tree: &Arc<MemoryTree>,
    path: &RelPath,
) -> Result<LoadedChartFiles, RunOutcome> {
    let missing = files.missing();
    if missing.len() > MAX_FETCHED_DEPENDENCIES {
        let text = format!(
            "dependency build error: more than {MAX_FETCHED_DEPENDENCIES} dependencies are missing"
        );
        return Err(RunOutcome::Failed(DEPENDENCY_BUILD_ERROR, text, NextRunTrigger::default()));
    }
    let mut opened = BTreeMap::new();
    for dependency in missing {
        let place = dependency::place(&dependency, path);
        let is_local = matches!(place, Ok(ChartDependencyLocation::Folder(_)));
        let failed = |why: String| {
            let what = if is_local { "local" } else { "remote" };
            let text = format!(
                "dependency build error: failed to add {what} dependency '{}': {why}",
                dependency.name
            );
            RunOutcome::Failed(DEPENDENCY_BUILD_ERROR, text, NextRunTrigger::default())
        };
        let found = match place.map_err(|error| failed(chain(&error)))? {
            ChartDependencyLocation::Folder(path) => {
                let found = dependency::from_tree(tree, &path, &dependency);
                found.map_err(|error| chain(&error))
            }
            ChartDependencyLocation::Repository(url) => {
                from_repository(run, &url, &dependency, &mut opened).await
            }
            ChartDependencyLocation::Registry(url) => from_registry(run, &url, &dependency).await,
            ChartDependencyLocation::Git(folder) => from_git(run, folder, &dependency).await,
        };
        files = chart_package::with(files, found.map_err(failed)?)?;
    }
    Ok(files)
}

async fn from_repository(
    run: &HelmChartRun,
    url: &str,
    dependency: &ChartDependency,
    opened: &mut BTreeMap<String, IndexedRepository>,
) -> Result<LoadedChartFiles, String> {
    let ChartDependency { name, version, .. } = dependency;
    let url = normalized(url).map_err(|error| chain(&error))?.to_string();
    let (repository, index) = match opened.get(&url) {
        Some(opened) => opened.clone(),
        None => {
            let new = open(run, &url).await?;
            opened.insert(url.clone(), new.clone());
            new
        }
    };
    let chosen = index.choose(name, version).map_err(|error| {
        format!(
            "failed to get chart '{name}' version '{version}' from '{}': {error}",
            repository.url()
        )
    })?;
    let failed =
        |why: String| format!("chart download of version '{}' failed: {why}", chosen.version);
    let place = chosen.url.ok_or_else(|| failed("it has no downloadable URLs".to_owned()))?;
    let archive = repository.chart(place, chosen.digest).await;
    let archive = archive.map_err(|error| failed(chain(&error)))?;
    let dependency = dependency.clone();
    let at = repository.url();
    reading(move || loaded(&archive, &dependency, &at)).await
}

/// Does something with a chart that blocks.
async fn reading(
    work: impl FnOnce() -> Result<LoadedChartFiles, String> + Send + 'static,
) -> Result<LoadedChartFiles, String> {
    let done = blocking(condition_reason::FAILED, "reading the chart", || Ok(work())).await;
    done.unwrap_or_else(|outcome| Err(outcome.text().to_owned()))
}

/// Reads the chart in an archive, and checks that it is the expected one. Blocks.
fn loaded(
    archive: &[u8],
    dependency: &ChartDependency,
    at: &str,
) -> Result<LoadedChartFiles, String> {
    let files = LoadedChartFiles::in_archive(archive).map_err(|error| chain(&error))?;
    dependency::check(files, dependency, at).map_err(|error| chain(&error))
}

/// Parity(flux): the HelmRepository of the namespace that has the address says how the registry is spoken to; without
/// one, windlass pulls anonymously.
async fn from_registry(
    run: &HelmChartRun,
    url: &str,
    dependency: &ChartDependency,
) -> Result<LoadedChartFiles, String> {
    let ChartDependency { name, version, .. } = dependency;
    let context = &run.context;
    let said = |outcome: RunOutcome| outcome.text().to_owned();
    let found = with_address(context, &namespace_of(run), url);
    let object = found.unwrap_or_else(|| {
        let type_ = Some(HelmRepositoryType::Oci);
        let spec = HelmRepositorySpec { url: url.to_owned(), type_, ..Default::default() };
        Arc::new(HelmRepository::new("", spec))
    });
    // These objects are not watched, because a failed build is repeated anyway.
    let mut references = RunReferenceReads::new(&context.watcher);
    let secrets = HelmRepositorySecrets::read(&object, &mut references).await.map_err(said)?;
    let remote = chart_repository_access::registry(context, &object, &secrets, name).await;
    let remote = remote.map_err(said)?;
    let known = &context.remotes.oci;
    let chosen = chart::choose(&remote, known, version).await.map_err(|error| {
        format!("failed to get chart '{name}' version '{version}' from '{url}': {}", chain(&error))
    })?;
    let layer = chart::fetch(&remote, known, &chosen).await.map_err(|error| {
        format!("chart download of version '{chosen}' failed: {}", chain(&error))
    })?;
    let dependency = dependency.clone();
    let at = url.to_owned();
    reading(move || {
        let archive = oci_registry::read(layer).map_err(|error| error.to_string())?;
        loaded(&archive, &dependency, &at)
    })
    .await
}

/// Parity(flux): the HelmRepository of the namespace that has the address says how it is spoken to, and its index is
/// used; without one, windlass reads it anonymously.
async fn open(run: &HelmChartRun, url: &str) -> Result<IndexedRepository, String> {
    let context = &run.context;
    let found = with_address(context, &namespace_of(run), url);
    let said = |outcome: RunOutcome| outcome.text().to_owned();
    let repository = match &found {
        Some(object) => {
            // These objects are not watched, because a failed build is repeated anyway.
            let mut references = RunReferenceReads::new(&context.watcher);
            let secrets = HelmRepositorySecrets::read(object, &mut references).await;
            let access = chart_repository_access::access(context);
            chart_repository_access::repository(&access, object, &secrets.map_err(said)?)
                .map_err(said)?
        }
        None => {
            let access = chart_repository_access::access(context);
            let opened = ChartRepository::new(
                url,
                ChartRepositoryCredentials::default(),
                false,
                DEFAULT_FETCH_TIMEOUT,
                &access,
            );
            opened.map_err(|error| chain(&error))?
        }
    };
    let index = match found.as_ref().and_then(|object| object.artifact()) {
        Some(artifact) => {
            let labels = found.as_ref().map(|object| object.labels().clone()).unwrap_or_default();
            let is_elsewhere = !context.settings.selects(&labels);
            if let Some(object) = &found {
                let namespace = object.namespace().unwrap_or_default();
                let name = object.name_any();
                let node = node_named::<HelmRepository>(&namespace, &name);
                artifact_owner::check(&node, artifact, is_elsewhere)?;
            }
            executor::index(context, artifact, is_elsewhere).await?
        }
        None => download(&repository).await?,
    };
    Ok((Arc::new(repository), index))
}

fn namespace_of(run: &HelmChartRun) -> String {
    run.object.namespace().unwrap_or_default()
}

async fn download(repository: &ChartRepository) -> Result<Arc<ChartIndex>, String> {
    let answer = repository.index(None).await.map_err(|error| chain(&error))?;
    let ChartIndexFetchResult::Index { file, .. } = answer else {
        return Err("unexpected response with HTTP status 304".to_owned());
    };
    let read = move || {
        let mut text = Vec::new();
        let read = file.take(charts::MAX_INDEX).read_to_end(&mut text);
        read.map_err(|error| error.to_string())?;
        ChartIndex::parse(&text).map(Arc::new).map_err(|error| chain(&error))
    };
    let read = tokio::task::spawn_blocking(read).await;
    read.unwrap_or_else(|_| Err("reading the index was interrupted".to_owned()))
}

async fn from_git(
    run: &HelmChartRun,
    folder: GitDependencyFolder,
    dependency: &ChartDependency,
) -> Result<LoadedChartFiles, String> {
    if run.context.settings.no_remote_bases {
        return Err(
            "charts in Git repositories that a Chart.yaml names are disabled by --no-remote-bases: put the chart into \
             the source"
                .to_owned(),
        );
    }
    let working = git::GitOperationContext {
        runtime: tokio::runtime::Handle::current(),
        cancel: CancellationToken::new(),
        scratch: run.context.artifacts.scratch(),
        known: run.context.remotes.git.clone(),
    };
    let dependency = dependency.clone();
    let fetch = move || {
        dependency::from_git(&folder, &dependency, DEFAULT_FETCH_TIMEOUT, &working)
            .map_err(|error| chain(&error))
    };
    let fetched = tokio::task::spawn_blocking(fetch).await;
    fetched.unwrap_or_else(|_| Err("fetching was interrupted".to_owned()))
}
