//! Copies the artifacts of sources from the leader to the store of a standby, so that a new leader does not have to fetch every
//! source before it can apply anything.
//!
//! A standby writes nothing to the cluster, and asks no remote. What it could not copy is fetched when it leads
//! (`lost_artifact`). Artifacts of sources that require signatures are not copied: a leader trusts only what it verified itself.
//! Artifacts of ArtifactGenerators are not copied either.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use artifacts::store::{ArtifactStore, ObjectFolder};
use crds::Artifact;
use crds::source::{Bucket, GitRepository, HelmChart, HelmRepository, OCIRepository};
use crds::windlass_source::HTTPArchive;
use futures::stream::{self, StreamExt as _};
use kube_core::ResourceExt as _;
use reconcile::{ObjectKey, RunOutcome};

use super::{SourceKind, executor, linked};
use windlass_runtime::artifact_files::{self, ArtifactError, MAX_ARTIFACT_BYTES};
use windlass_runtime::controller_kind::node_of;
use windlass_runtime::run_context::RunContext;
use windlass_runtime::source_catalog::artifact_owner;

/// How often the statuses of sources are compared with the copies. This sends no request.
const COMPARISON_INTERVAL: Duration = Duration::from_secs(1);

/// The delay before an artifact is copied again that could not be copied.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// How many artifacts of a kind are copied at the same time.
const COPIES_AT_ONCE: usize = 4;

/// Copies the artifacts of all sources until this process leads.
pub async fn follow(context: &RunContext) {
    let copies = async {
        tokio::join!(
            follow_kind::<Bucket>(context),
            follow_kind::<GitRepository>(context),
            follow_kind::<HTTPArchive>(context),
            follow_kind::<HelmChart>(context),
            follow_kind::<HelmRepository>(context),
            follow_kind::<OCIRepository>(context),
        );
    };
    tokio::select! {
        biased;
        () = context.cluster.leadership.begun() => {}
        () = copies => {}
    }
}

async fn follow_kind<K: SourceKind>(context: &RunContext) {
    if !context.kept.listed::<K>().await {
        return;
    }
    let mut copies = ArtifactCopies::default();
    loop {
        let mut objects: Vec<Arc<K>> = context.store::<K>().state();
        objects.retain(|object| context.settings.selects(object.labels()));
        for node in copies.forget_gone(&objects) {
            remove::<K>(context, node).await;
        }
        let due = copies.due(&objects, Instant::now());
        let copying: Vec<_> = due.into_iter().map(|due| copy_due(context, due)).collect();
        let ended: Vec<EndedCopy> =
            stream::iter(copying).buffer_unordered(COPIES_AT_ONCE).collect().await;
        for copy in ended {
            copies.note(copy, Instant::now());
        }
        tokio::time::sleep(COMPARISON_INTERVAL).await;
    }
}

/// The last copy of each source of a kind.
#[derive(Debug, Default)]
struct ArtifactCopies(BTreeMap<ObjectKey, LastCopy>);

#[derive(Debug)]
struct LastCopy {
    /// The digest of the artifact.
    digest: String,
    /// When it could not be copied. `None` if the store has it.
    failed_at: Option<Instant>,
}

/// A source whose artifact is to be copied.
struct DueCopy<K> {
    object: Arc<K>,
    artifact: Artifact,
}

/// The end of an attempt to copy an artifact.
struct EndedCopy {
    node: ObjectKey,
    digest: String,
    /// Whether the store has the artifact.
    is_held: bool,
}

impl ArtifactCopies {
    /// The sources whose artifact was not copied yet, or could not be copied a while ago.
    fn due<K: SourceKind>(&self, objects: &[Arc<K>], now: Instant) -> Vec<DueCopy<K>> {
        let due = objects.iter().filter_map(|object| {
            let artifact = object.artifact()?;
            let is_wanted = object.meta().deletion_timestamp.is_none() && !object.is_verified();
            let is_due = self.0.get(&node_of(&**object)).is_none_or(|last| {
                let is_over = |at| now.saturating_duration_since(at) >= RETRY_INTERVAL;
                last.digest != artifact.digest || last.failed_at.is_some_and(is_over)
            });
            let due = DueCopy { object: object.clone(), artifact: artifact.clone() };
            (is_wanted && is_due).then_some(due)
        });
        due.collect()
    }

    fn note(&mut self, copy: EndedCopy, now: Instant) {
        let EndedCopy { node, digest, is_held } = copy;
        let failed_at = (!is_held).then_some(now);
        self.0.insert(node, LastCopy { digest, failed_at });
    }

    /// Forgets the sources that are gone, and returns them.
    fn forget_gone<K: SourceKind>(&mut self, objects: &[Arc<K>]) -> Vec<ObjectKey> {
        let present: BTreeSet<ObjectKey> =
            objects.iter().map(|object| node_of(&**object)).collect();
        let gone = self.0.extract_if(.., |node, _| !present.contains(node));
        gone.map(|(node, _)| node).collect()
    }
}

async fn copy_due<K: SourceKind>(context: &RunContext, due: DueCopy<K>) -> EndedCopy {
    let DueCopy { object, artifact } = due;
    let download = artifact_files::download(context, &artifact, MAX_ARTIFACT_BYTES);
    let copied = copy(&context.artifacts, &object, &artifact, download).await;
    if let Err(error) = &copied {
        tracing::debug!(
            controller_kind = %K::kind(&()),
            name = object.name_any(),
            namespace = object.namespace(),
            url = artifact.url,
            error,
            "the artifact was not copied from the leader; this process fetches the source when it leads"
        );
    }
    EndedCopy { node: node_of(&*object), digest: artifact.digest, is_held: copied.is_ok() }
}

/// Stores the artifact of a status, unless the store has it.
///
/// # Errors
/// Says why the store does not have the artifact.
async fn copy<K: SourceKind>(
    store: &Arc<ArtifactStore>,
    object: &Arc<K>,
    artifact: &Artifact,
    download: impl Future<Output = Result<File, ArtifactError>>,
) -> Result<(), String> {
    let node = node_of(&**object);
    for elsewhere in [false, true] {
        artifact_owner::check(&node, artifact, elsewhere)?;
    }
    let held_in = store.clone();
    let Artifact { path, digest, revision, .. } = artifact.clone();
    let name = path.rsplit('/').next().unwrap_or_default().to_owned();
    let verify = move || held_in.verify(&path, &digest);
    if matches!(tokio::task::spawn_blocking(verify).await, Ok(Ok(true))) {
        return Ok(());
    }
    let mut file = download.await.map_err(|error| error.to_string())?;
    let store = store.clone();
    let object = object.clone();
    let keep = move || {
        let kept = executor::keep(&store, &*object, &name, &revision, |out| {
            io::copy(&mut file, out).map(drop)
        })?;
        if let Some(latest) = K::LATEST_LINK {
            drop(linked(&store, &kept, latest));
        }
        Ok::<(), RunOutcome>(())
    };
    match tokio::task::spawn_blocking(keep).await {
        Ok(kept) => kept.map_err(|outcome| outcome.text().to_owned()),
        Err(_) => Err("storing it was interrupted".to_owned()),
    }
}

/// Removes the copies of a source that is gone.
async fn remove<K: SourceKind>(context: &RunContext, node: ObjectKey) {
    let store = context.artifacts.clone();
    let remove = move || {
        let slot = ObjectFolder::new(K::FOLDER, &node.namespace, &node.name)?;
        store.remove(&slot)
    };
    if let Ok(Err(error)) = tokio::task::spawn_blocking(remove).await {
        tracing::info!(error = %error, "failed to remove the copied artifacts of a deleted source");
    }
}

#[cfg(test)]
mod tests;
