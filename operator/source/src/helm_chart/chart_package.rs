//! A chart with its version, its values and its dependencies, ready to be packed.

use std::sync::Arc;

use crds::source::HelmChart;
use reconcile::RunOutcome;
use sources::charts::LoadedChartFiles;
use sources::charts::values_merge::{self, MergedValues};
use sources::source_condition_reasons::{
    CHART_PACKAGE_ERROR, INVALID_CHART_REFERENCE, METADATA_PATCH_ERROR, VALUES_FILES_ERROR,
};
use tree::{FileMetadata, FileTree as _, MemoryTree, RelPath};

use super::executor::failed;
use super::{artifact_metadata::ChartArtifactMetadata, dependencies};
use crate::source::executor::SourceRun;
use windlass_cluster::error::chain;

/// A chart of a chart repository, whose values files are in the chart. Blocks.
pub(super) fn pulled(
    run: &SourceRun<HelmChart>,
    mut files: LoadedChartFiles,
) -> Result<LoadedChartFiles, RunOutcome> {
    let merged = merge(run, |path| match path {
        "values.yaml" => Some(files.read(path).unwrap_or_default().to_vec()),
        path => {
            let found = files.chart().files.iter().find(|file| file.name == path);
            found.map(|file| file.data.to_vec())
        }
    })?;
    put(run, &mut files, merged)?;
    Ok(files)
}

/// A chart in a tree of files. Its values files, and possibly its dependencies, are in the tree, at their paths from the root.
pub(super) async fn local(
    run: &Arc<SourceRun<HelmChart>>,
    mut files: LoadedChartFiles,
    tree: &Arc<MemoryTree>,
) -> Result<LoadedChartFiles, RunOutcome> {
    let refused = |why: String| failed(INVALID_CHART_REFERENCE, why);
    let path = RelPath::parse(&run.object.spec.chart).map_err(|e| refused(e.to_string()))?;
    let merged = merge(run, |path| {
        let path = RelPath::parse(path).ok()?;
        tree.read(&path).ok().map(|text| text.to_vec())
    })?;
    put(run, &mut files, merged)?;
    if matches!(tree.entry(&path), Some(FileMetadata::Dir)) {
        files = dependencies::add(run, files, tree, &path).await?;
    }
    Ok(files)
}

/// Merges the values files of the spec. `None` if the spec has none. `read` gets normalized paths.
fn merge(
    run: &SourceRun<HelmChart>,
    mut read: impl FnMut(&str) -> Option<Vec<u8>>,
) -> Result<Option<MergedValues>, RunOutcome> {
    let paths = &run.work.values_files;
    if paths.is_empty() {
        return Ok(None);
    }
    let ignore_missing = run.object.spec.ignore_missing_values_files;
    let merged = values_merge::merge(paths, ignore_missing, |path| {
        // Differs(flux): there a path that climbs out is cut off at the root; here there is nothing at it.
        read(RelPath::parse(path.trim_start_matches('/')).ok()?.as_str())
    });
    merged.map(Some).map_err(|error| failed(VALUES_FILES_ERROR, chain(&error)))
}

fn put(
    run: &SourceRun<HelmChart>,
    files: &mut LoadedChartFiles,
    merged: Option<MergedValues>,
) -> Result<(), RunOutcome> {
    let built = run.work.built();
    let version = files.set_version(&built.version);
    version.map_err(|error| failed(METADATA_PATCH_ERROR, chain(&error)))?;
    let Some(MergedValues { text, files: values_files }) = merged else { return Ok(()) };
    let replaced = files.set_values(text);
    replaced.map_err(|error| failed(VALUES_FILES_ERROR, chain(&error)))?;
    run.work.set_built(ChartArtifactMetadata { values_files, ..built });
    Ok(())
}

/// A chart together with others that it needs.
pub(super) fn with(
    mut files: LoadedChartFiles,
    other: LoadedChartFiles,
) -> Result<LoadedChartFiles, RunOutcome> {
    files.add(other).map_err(|error| failed(CHART_PACKAGE_ERROR, chain(&error)))?;
    Ok(files)
}
