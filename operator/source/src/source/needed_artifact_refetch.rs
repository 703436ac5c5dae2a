//! Fetches artifacts of earlier revisions again, byte for byte, if other objects need them and the store has lost them.
//!
//! A rollback that stays applies the artifact of the last good revision. The storage may be an `emptyDir`, so the artifact is
//! lost with the Pod. Windlass fetches it by its commit or digest, with the credentials, proxies, signatures and limits of the
//! present spec. It counts only if it has the digest that was recorded when it was applied.
//!
//! Elsewhere: which artifacts are needed (`last_good_artifacts` of Kustomizations), the artifact of the status
//! (`lost_artifact`).

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use artifacts::store::{self, ArtifactStore, NeededArtifact};
use kube_core::ResourceExt as _;
use parking_lot::Mutex;
use reconcile::{NextRunTrigger, ObjectKey, RunOutcome};
use sources::source_condition_reasons::ARCHIVE_OPERATION_FAILED;

use super::executor::{SourceRun, slot};
use super::{SourceKind, SourceState};
use windlass_cluster::error::chain;

/// The delay before an artifact is fetched again that could not be fetched, or that was deleted for want of room.
const RETRY_INTERVAL: Duration = Duration::from_secs(600);

/// Delays the next fetch of a lost artifact. It has the times of the last fetches, by the paths of the artifacts.
#[derive(Debug, Default)]
pub(super) struct RefetchBackoff(BTreeMap<String, Instant>);

impl RefetchBackoff {
    /// The artifacts that may be fetched now. They are noted as fetched.
    fn due(&mut self, lost: Vec<NeededArtifact>, now: Instant) -> Vec<NeededArtifact> {
        self.0.retain(|_, at| now.saturating_duration_since(*at) < RETRY_INTERVAL);
        let due: Vec<_> = lost.into_iter().filter(|it| !self.0.contains_key(&it.path)).collect();
        self.0.extend(due.iter().map(|it| (it.path.clone(), now)));
        due
    }
}

/// Fetches lost artifacts that other objects need. If an artifact is stored again, it wakes these objects.
pub(super) async fn fetch_lost<K: SourceKind>(
    run: &Arc<SourceRun<K>>,
    node: &ObjectKey,
    memory: &Mutex<SourceState<K>>,
) {
    let store = run.context.artifacts.clone();
    let slot = slot(&*run.object);
    let lost = tokio::task::spawn_blocking(move || slot.map(|slot| store.lost(&slot))).await;
    let Ok(Ok(lost)) = lost else { return };
    let due = memory.lock().refetched.due(lost, Instant::now());
    let mut is_there = false;
    for artifact in due {
        let _permit = run.context.fetching.acquire(&node.namespace).await;
        let fetched = K::fetch_again(run, &artifact).await;
        let name = node.name.as_str();
        let namespace = node.namespace.as_str();
        let NeededArtifact { path, revision, .. } = &artifact;
        match fetched {
            Ok(true) => {
                is_there = true;
                tracing::info!(
                    controller_kind = %K::kind(&()),
                    name,
                    namespace,
                    path,
                    revision,
                    "fetched an earlier artifact again, which is needed for a rollback"
                );
            }
            Ok(false) => {}
            Err(outcome) => tracing::error!(
                controller_kind = %K::kind(&()),
                name,
                namespace,
                path,
                revision,
                error = outcome.text(),
                "failed to fetch an earlier artifact again, which is needed for a rollback"
            ),
        }
    }
    if is_there {
        run.context.work_queue.changed(node);
    }
}

/// The name of the file of an artifact in the folder of its source.
pub(crate) fn file_of(artifact: &NeededArtifact) -> &str {
    artifact.path.rsplit_once('/').map_or(artifact.path.as_str(), |(_, file)| file)
}

/// Stores the output of `write` as an earlier artifact of an object, if its bytes are the same as before. Blocks.
///
/// # Errors
/// The disk refuses, `write` fails, or the bytes differ.
pub(crate) fn keep_again<K: SourceKind, E>(
    store: &ArtifactStore,
    object: &K,
    artifact: &NeededArtifact,
    write: impl FnOnce(&mut dyn io::Write) -> Result<(), E>,
) -> Result<(), RunOutcome>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let failed = |text: String| {
        RunOutcome::Failed(ARCHIVE_OPERATION_FAILED, text, NextRunTrigger::default())
    };
    let refused = |error: store::Error| failed(chain(&error));
    let slot = slot(object).map_err(refused)?;
    let now = jiff::Timestamp::now();
    let kept = store.put(&slot, file_of(artifact), &artifact.revision, now, write);
    let kept = kept.map_err(refused)?;
    if kept.digest == artifact.digest {
        return Ok(());
    }
    store.remove_file(&kept.path).map_err(refused)?;
    Err(failed(format!(
        "{} {} makes another artifact of revision {} than before: what it selects of its files may have changed",
        K::kind(&()),
        object.name_any(),
        artifact.revision
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(file: &str) -> NeededArtifact {
        NeededArtifact {
            path: format!("gitrepository/apps/app/{file}"),
            digest: "sha256:1".to_owned(),
            revision: "main@sha1:1".to_owned(),
        }
    }

    #[test]
    fn what_was_fetched_again_in_vain_is_not_fetched_at_once_once_more() {
        let mut times = RefetchBackoff::default();
        let begin = Instant::now();
        assert_eq!(times.due(vec![artifact("1")], begin).len(), 1);
        assert_eq!(times.due(vec![artifact("1"), artifact("2")], begin), [artifact("2")]);
        assert_eq!(times.due(vec![artifact("1")], begin + RETRY_INTERVAL).len(), 1);
    }

    #[test]
    fn the_file_of_an_artifact_is_the_last_part_of_its_path() {
        assert_eq!(file_of(&artifact("1.tar.gz")), "1.tar.gz");
    }
}
