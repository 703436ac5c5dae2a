//! Asks a chart repository for its index, and stores the index as an artifact.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::sync::Arc;

use crds::Artifact;
use crds::source::{HelmRepository, HelmRepositoryStatus};
use reconcile::{NextRunTrigger, RunOutcome, condition_reason};
use sources::charts::{self, ChartIndex, ChartIndexFetchResult, ChartRepository};
use sources::fetch_plan::KeptArtifact;
use sources::source_condition_reasons::INDEXATION_FAILED;

use super::LATEST;
use crate::source::executor::{RemoteRevision, SourceRun, StoredArtifact, keep};
use crate::source::{busy, linked};
use windlass_cluster::error::chain;
use windlass_runtime::artifact_files;
use windlass_runtime::blocking_task::blocking;
use windlass_runtime::controller_kind::node_of;
use windlass_runtime::run_context::RunContext;

/// The repository to ask, with its credentials.
pub(crate) struct RepositoryFetchSpec {
    pub(super) repository: ChartRepository,
}

fn failed(why: String) -> RunOutcome {
    let text = format!("failed to fetch Helm repository index: {why}");
    RunOutcome::Failed(condition_reason::FAILED, text, NextRunTrigger::default())
}

/// Asks for the index, unless the stored index is still current.
pub(super) async fn ask(
    run: &Arc<SourceRun<HelmRepository>>,
    kept: Option<&KeptArtifact>,
) -> Result<RemoteRevision<Option<File>>, RunOutcome> {
    let repository = &run.work.repository;
    let who = node_of(&*run.object).to_string();
    let url = repository.url();
    let known = &run.context.shared::<sources::charts::ChartIndexEtagCache>();
    let since = kept.and_then(|kept| known.validators(&who, &url, &kept.revision));
    let answer = repository.index(since.as_ref()).await.map_err(|error| match error {
        charts::repository::Error::Busy(said) => busy(condition_reason::FAILED, &said),
        error => failed(chain(&error)),
    })?;
    match (answer, kept) {
        (ChartIndexFetchResult::Index { file, sealed, validators }, _) => {
            let revision = sealed.digest;
            if validators != charts::HttpEtagAndLastModified::default() {
                known.remember(&who, &url, &revision, validators);
            }
            Ok(RemoteRevision { revision, found: Some(file) })
        }
        (ChartIndexFetchResult::Unchanged, Some(kept)) => {
            Ok(RemoteRevision { revision: kept.revision.clone(), found: None })
        }
        (ChartIndexFetchResult::Unchanged, None) => {
            Err(failed("unexpected response with HTTP status 304".to_owned()))
        }
    }
}

/// Reads the index, and keeps it.
///
/// Differs(flux): it is kept as it came, so that its digest is the revision; there it is written again as JSON.
pub(super) async fn fetch(
    run: &Arc<SourceRun<HelmRepository>>,
    index: Option<File>,
) -> Result<StoredArtifact<HelmRepositoryStatus>, RunOutcome> {
    let run = run.clone();
    let Some(file) = index else {
        return Err(failed("the server did not send the index".to_owned()));
    };
    let store = move || {
        let context = &run.context;
        let object = &run.object;
        let mut file = file;
        let (digest, index) = read(&mut file)?;
        let rewound = file.rewind().map_err(|error| failed(error.to_string()));
        rewound?;
        let hex = digest.strip_prefix("sha256:").unwrap_or(&digest);
        let name = format!("index-{hex}.yaml");
        let artifact = keep(&context.artifacts, &**object, &name, &digest, |out| {
            io::copy(&mut file, out).map(drop)
        })?;
        // HelmCharts of the repository find the index in memory.
        let shared = context
            .shared::<sources::charts::ChartIndexCache>()
            .get(&artifact.digest, || Ok::<_, RunOutcome>(index));
        shared?;
        let size = human_size(artifact.size.unwrap_or_default());
        let remote = run.work.repository.url();
        let url = linked(&context.artifacts, &artifact, LATEST);
        let message = format!("stored fetched index of size {size} from '{remote}'");
        Ok(StoredArtifact::new(artifact, message, move |status: &mut HelmRepositoryStatus| {
            status.url.clone_from(&url);
        }))
    };
    blocking(condition_reason::FAILED, "reading the index", store).await
}

fn read(file: &mut File) -> Result<(String, ChartIndex), RunOutcome> {
    let mut text = Vec::new();
    let read = file.take(charts::MAX_INDEX + 1).read_to_end(&mut text);
    read.map_err(|error| failed(error.to_string()))?;
    let index = ChartIndex::parse(&text).map_err(|error| {
        let text = format!("failed to load Helm repository from index YAML: {}", chain(&error));
        RunOutcome::Failed(INDEXATION_FAILED, text, NextRunTrigger::default())
    })?;
    let mut out = artifacts::archive::DigestingWriter::new(io::sink());
    let digested = io::Write::write_all(&mut out, &text);
    digested.map_err(|error| failed(error.to_string()))?;
    Ok((out.finish().1.digest, index))
}

/// The index in an artifact. It is parsed once for all HelmCharts that use it.
///
/// # Errors
/// The index cannot be read. The text is for people.
pub(crate) async fn index(
    context: &Arc<RunContext>,
    artifact: &Artifact,
    elsewhere: bool,
) -> Result<Arc<ChartIndex>, String> {
    let context = context.clone();
    let artifact = artifact.clone();
    let runtime = tokio::runtime::Handle::current();
    let load = move || {
        context.shared::<sources::charts::ChartIndexCache>().get(&artifact.digest, || {
            let text = runtime.block_on(artifact_files::bytes(
                &context,
                &artifact,
                elsewhere,
                charts::MAX_INDEX,
            ));
            let text = text.map_err(|error| error.to_string())?;
            ChartIndex::parse(&text).map_err(|error| chain(&error))
        })
    };
    let loaded = tokio::task::spawn_blocking(load).await;
    loaded.unwrap_or_else(|_| Err("reading it was interrupted".to_owned()))
}

/// A size in Flux's form: four digits and a decimal unit.
fn human_size(bytes: i64) -> String {
    let units = ["B", "kB", "MB", "GB"];
    #[expect(clippy::cast_precision_loss, reason = "four digits are shown")]
    let mut size = bytes as f64;
    let mut unit = 0;
    while size >= 1000.0 && unit + 1 < units.len() {
        size /= 1000.0;
        unit += 1;
    }
    let digits = [10.0, 100.0, 1000.0].iter().filter(|bound| size < **bound).count();
    let text = format!("{size:.digits$}");
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::human_size;

    #[test]
    fn sizes_have_four_digits() {
        let sizes = [0, 999, 1000, 1234, 43_210_987, 5_000_000].map(human_size);
        assert_eq!(sizes, ["0B", "999B", "1kB", "1.234kB", "43.21MB", "5MB"]);
    }
}
