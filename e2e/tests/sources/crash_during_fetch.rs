//! windlass is killed while it fetches. The artifacts that it serves are always complete, and it removes leftover files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::{Story, WindlassProcess};
use e2e::operator_process::OperatorProcess;

use super::remote_servers::{RelayedUpstream, SourceFetchMethod};

/// The size of a version's contents, in bytes. Packing them has to take long enough to be noticed.
const BYTES: usize = 4 << 20;

/// How many bytes of a version are sent before the crash. It is in the middle of the version.
const MIDDLE: u64 = 1 << 20;

/// Old artifacts are kept longer than any story lasts.
const KEEP: &str = "--artifact-retention-ttl=1h";

/// All files in a folder and its subfolders, sorted by path.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Whether a file was still being written.
fn is_temporary(path: &Path) -> bool {
    let names = path.iter().filter_map(|name| name.to_str());
    names.into_iter().any(|name| name == ".scratch" || name.starts_with(".unfinished-"))
}

/// The unfinished files in the storage and in the folder for temporary files.
fn temporary(operator: &OperatorProcess) -> Result<Vec<PathBuf>> {
    let mut found = files(&operator.folder().join("storage"))?;
    found.retain(|path| is_temporary(path));
    found.extend(files(&operator.temporary_files())?);
    Ok(found)
}

/// Kills windlass, and returns the unfinished files. Checks that all finished files are complete.
fn kill(
    upstream: &RelayedUpstream,
    story: &Story,
    windlass: &mut WindlassProcess,
) -> Result<Vec<PathBuf>> {
    windlass.operator.kill()?;
    let slot = upstream.slot(story, &windlass.storage());
    for path in if slot.exists() { files(&slot)? } else { Vec::new() } {
        let is_note = path.file_name().is_some_and(|name| name == ".note");
        if !is_temporary(&path) && !path.is_symlink() && !is_note {
            let whole = upstream.version(&std::fs::read(&path)?);
            whole.with_context(|| format!("half of an artifact at {}", path.display()))?;
        }
    }
    temporary(&windlass.operator)
}

/// Starts windlass again, and waits until it has repeated the interrupted work. Checks that no unfinished files are left.
async fn finish(
    upstream: &RelayedUpstream,
    story: &Story,
    windlass: &mut WindlassProcess,
    version: u32,
) -> Result<()> {
    upstream.relay.open();
    windlass.resume().await?;
    upstream.await_version(story, version).await?;
    story
        .await_until("everything to be put away", DEFAULT_WAIT_TIMEOUT, async || {
            let left = temporary(&windlass.operator)?;
            ensure!(left.is_empty(), "{left:?}");
            Ok(Some(()))
        })
        .await
}

/// The file names in the folder of the artifacts.
fn names(slot: &Path) -> Result<BTreeSet<String>> {
    let entries = std::fs::read_dir(slot)?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect())
}

fn is_unfinished(name: &str) -> bool {
    name.starts_with(".unfinished-")
}

/// Pauses windlass while it writes a new artifact. Returns whether it was still writing. On a busy machine, it may have
/// finished before the pause.
fn freeze_while_it_writes(
    operator: &OperatorProcess,
    slot: &Path,
    before: &BTreeSet<String>,
) -> Result<bool> {
    let deadline = Instant::now() + DEFAULT_WAIT_TIMEOUT;
    loop {
        let now = names(slot)?;
        if now.iter().any(|name| is_unfinished(name)) {
            break;
        }
        if !now.is_subset(before) {
            return Ok(false);
        }
        ensure!(Instant::now() < deadline, "nothing is written");
        std::thread::sleep(Duration::from_micros(100));
    }
    operator.freeze()?;
    // The signal reaches each thread separately.
    std::thread::sleep(Duration::from_millis(20));
    Ok(names(slot)?.iter().any(|name| is_unfinished(name)))
}

/// Publishes versions until windlass is paused while it writes one. Returns that version.
async fn caught_writing(
    upstream: &RelayedUpstream,
    story: &Story,
    windlass: &WindlassProcess,
    first: u32,
) -> Result<u32> {
    let slot = upstream.slot(story, &windlass.storage());
    for version in first..first + 20 {
        upstream.publish(version).await?;
        upstream.reconcile(story, Some(MIDDLE)).await?;
        upstream.relay.held(DEFAULT_WAIT_TIMEOUT).await?;
        let before = names(&slot)?;
        upstream.relay.open();
        if freeze_while_it_writes(&windlass.operator, &slot, &before)? {
            return Ok(version);
        }
        windlass.operator.thaw()?;
        upstream.await_version(story, version).await?;
    }
    anyhow::bail!("it was never caught writing")
}

async fn recovers(way: SourceFetchMethod, name: &str) -> Result<()> {
    let story = Story::begin(name).await?;
    let upstream = RelayedUpstream::start(way, BYTES).await?;
    let mut windlass = WindlassProcess::start_for(&story, &[KEEP]).await?;
    let is_git = matches!(way, SourceFetchMethod::GitHttp | SourceFetchMethod::GitSsh);

    // The first version is interrupted in the middle of its transfer.
    upstream.publish(1).await?;
    upstream.relay.hold_after(MIDDLE);
    upstream.create(&story).await?;
    upstream.relay.held(DEFAULT_WAIT_TIMEOUT).await?;
    ensure!(upstream.served(&story).await?.is_none(), "half an artifact is offered");
    let left = kill(&upstream, &story, &mut windlass)?;
    // Only a Git repository needs a folder.
    ensure!(left.is_empty() != is_git, "{left:?}");
    finish(&upstream, &story, &mut windlass, 1).await?;

    // Later versions are interrupted before their first byte and in the middle, while an older version exists.
    for (version, bytes) in [(2, 0), (3, MIDDLE)] {
        upstream.publish(version).await?;
        upstream.reconcile(&story, Some(bytes)).await?;
        upstream.relay.held(DEFAULT_WAIT_TIMEOUT).await?;
        let served = upstream.served(&story).await?;
        ensure!(served == Some(version - 1), "{served:?} is served in place of {}", version - 1);
        kill(&upstream, &story, &mut windlass)?;
        finish(&upstream, &story, &mut windlass, version).await?;
    }

    // windlass is paused after the last byte, while it packs the artifact.
    let version = caught_writing(&upstream, &story, &windlass, 4).await?;
    let left = kill(&upstream, &story, &mut windlass)?;
    ensure!(!left.is_empty(), "nothing was left of what it was writing");
    finish(&upstream, &story, &mut windlass, version).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_over_http_is_never_half_an_artifact() -> Result<()> {
    recovers(SourceFetchMethod::GitHttp, "killed-git-http").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_over_ssh_is_never_half_an_artifact() -> Result<()> {
    recovers(SourceFetchMethod::GitSsh, "killed-git-ssh").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_is_never_half_an_artifact() -> Result<()> {
    recovers(SourceFetchMethod::Bucket, "killed-bucket").await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_registry_has_is_never_half_an_artifact() -> Result<()> {
    recovers(SourceFetchMethod::OciRepository, "killed-oci").await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_of_charts_is_never_half_an_artifact() -> Result<()> {
    recovers(SourceFetchMethod::HelmRepository, "killed-helm-repository").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_is_never_half_an_artifact() -> Result<()> {
    recovers(SourceFetchMethod::HelmChart, "killed-helm-chart").await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_on_a_web_server_is_never_half_an_artifact() -> Result<()> {
    recovers(SourceFetchMethod::HttpArchive, "killed-http-archive").await
}
