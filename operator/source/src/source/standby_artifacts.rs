//! Copies the artifacts of sources from the leader to the store of a standby, so that a new leader does not have to fetch every
//! source before it can apply anything.
//!
//! A standby writes nothing to the cluster, and asks no remote. What it could not copy is fetched when it leads
//! (`lost_artifact`). Artifacts of sources that require signatures are not copied: a leader trusts only what it verified itself.
//! Artifacts of ArtifactGenerators are not copied either.
//!
//! Here: which artifacts are copied when, and whose copies are removed. Below: one copy (`artifact_copy`).

mod artifact_copy;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use artifacts::store::ObjectFolder;
use crds::Artifact;
use crds::source::{Bucket, GitRepository, HelmChart, HelmRepository, OCIRepository};
use crds::windlass_source::HTTPArchive;
use futures::stream::{FuturesUnordered, StreamExt as _};
use kube_core::ResourceExt as _;
use reconcile::ObjectKey;

pub(super) use self::artifact_copy::CopiesInFlight;
use self::artifact_copy::StandbyStorage;
use super::SourceKind;
use windlass_runtime::controller_kind::{node_named, node_of};
use windlass_runtime::run_context::RunContext;

/// How often the statuses of sources are compared with the copies. This sends no request.
const COMPARISON_INTERVAL: Duration = Duration::from_secs(1);

/// The delay after an artifact could not be copied for the first time. It doubles with each further failure.
const MIN_RETRY_DELAY: Duration = Duration::from_secs(60);

/// The longest delay until an artifact is copied again that could not be copied.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(15 * 60);

/// How often the log may say that sources are not copied.
const REPORT_INTERVAL: Duration = Duration::from_secs(10 * 60);

/// How many folders of deleted sources are removed after each comparison. Each needs a request to the API server.
const REMOVALS_AT_ONCE: usize = 10;

/// How long no folders are removed after a removal that failed.
const REMOVAL_PAUSE: Duration = Duration::from_secs(60);

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
    let mut gone = GoneSourceFolders::new(folders_without_object::<K>(context).await);
    let mut running = FuturesUnordered::new();
    loop {
        let mut objects: Vec<Arc<K>> = context.store::<K>().state();
        objects.retain(|object| context.settings.selects(object.labels()));
        gone.due.extend(copies.forget_gone(&objects));
        {
            // Copies go on and give back their permits while the API server is slow to say what is gone.
            let removing = remove_gone::<K>(context, &mut gone);
            tokio::pin!(removing);
            loop {
                tokio::select! {
                    () = &mut removing => break,
                    Some(ended) = running.next() => copies.note(ended, Instant::now()),
                }
            }
        }
        let leader = context.cluster.leadership.leader_storage();
        copies.follow_leader(leader.as_deref());
        if leader.is_some() {
            let due = copies.due(&objects, Instant::now());
            running.extend(due.into_iter().map(|due| copy_due(context, due)));
        }
        if let Some(uncopied) = copies.report(Instant::now()) {
            tracing::info!(
                controller_kind = %K::kind(&()),
                sources = uncopied.count,
                error = uncopied.error,
                "artifacts could not be copied from the leader, for example because of this error; if this process leads, \
                 it fetches these sources before it applies them"
            );
        }
        let pause = tokio::time::sleep(COMPARISON_INTERVAL);
        tokio::pin!(pause);
        loop {
            tokio::select! {
                () = &mut pause => break,
                Some(ended) = running.next() => copies.note(ended, Instant::now()),
            }
        }
    }
}

/// An artifact as a status names it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NamedArtifact {
    path: String,
    digest: String,
}

impl NamedArtifact {
    fn of(artifact: &Artifact) -> Self {
        Self { path: artifact.path.clone(), digest: artifact.digest.clone() }
    }
}

/// The copies of the artifacts of a kind.
#[derive(Debug, Default)]
struct ArtifactCopies {
    last: BTreeMap<ObjectKey, LastCopy>,
    /// The sources whose artifact is being copied or waits for its turn.
    running: BTreeSet<ObjectKey>,
    /// The address of the leader's storage.
    leader: Option<String>,
    /// When the log last said that sources are not copied.
    reported_at: Option<Instant>,
}

/// The last copy of a source.
#[derive(Debug, Default)]
struct LastCopy {
    /// The artifact of the source that was copied last.
    held: Option<NamedArtifact>,
    /// Why the artifact of the status could not be copied. `None` if the store has it.
    failed: Option<FailedCopy>,
}

/// An artifact that could not be copied.
#[derive(Debug)]
struct FailedCopy {
    error: String,
    /// Attempts in a row that failed.
    failures: u32,
    /// When it is copied again.
    again: Instant,
}

/// A source whose artifact is to be copied.
struct DueCopy<K> {
    object: Arc<K>,
    /// The artifact of the source that was copied last.
    held: Option<NamedArtifact>,
}

/// The end of an attempt to copy an artifact.
struct EndedCopy {
    node: ObjectKey,
    /// The artifact that is copied now, or why it could not be copied. `None` if there was nothing to copy any more.
    result: Option<Result<NamedArtifact, String>>,
}

/// The sources that are not copied.
#[derive(Debug, PartialEq, Eq)]
struct UncopiedSources {
    count: usize,
    /// The error of one of them.
    error: String,
}

/// The artifact of a source, if standbys copy it. `None` without an artifact, for a deleted source, and for one whose artifacts
/// are verified.
fn artifact_to_copy<K: SourceKind>(object: &K) -> Option<&Artifact> {
    let is_wanted = object.meta().deletion_timestamp.is_none() && !object.is_verified();
    object.artifact().filter(|_| is_wanted)
}

impl ArtifactCopies {
    /// Notes the address of the leader's storage. What another leader could not provide is copied at once.
    fn follow_leader(&mut self, leader: Option<&str>) {
        if self.leader.as_deref() == leader {
            return;
        }
        self.leader = leader.map(str::to_owned);
        self.last.retain(|_, last| {
            last.failed = None;
            last.held.is_some()
        });
    }

    /// The sources whose artifact was not copied yet, or could not be copied a while ago. They count as running.
    ///
    /// A source whose copy failed waits also if its status names another artifact meanwhile: its author must not have the
    /// standby download something each second.
    fn due<K: SourceKind>(&mut self, objects: &[Arc<K>], now: Instant) -> Vec<DueCopy<K>> {
        let mut due = Vec::new();
        for object in objects {
            let Some(artifact) = artifact_to_copy(&**object) else { continue };
            let node = node_of(&**object);
            let last = self.last.get(&node);
            let is_due = last.is_none_or(|last| match &last.failed {
                Some(failed) => now >= failed.again,
                None => last.held != Some(NamedArtifact::of(artifact)),
            });
            if !is_due || self.running.contains(&node) {
                continue;
            }
            let held = last.and_then(|last| last.held.clone());
            due.push(DueCopy { object: object.clone(), held });
            self.running.insert(node);
        }
        due
    }

    fn note(&mut self, copy: EndedCopy, now: Instant) {
        let EndedCopy { node, result } = copy;
        self.running.remove(&node);
        let Some(result) = result else { return };
        let last = self.last.entry(node).or_default();
        match result {
            Ok(held) => *last = LastCopy { held: Some(held), failed: None },
            Err(error) => {
                let before = last.failed.as_ref().map_or(0, |failed| failed.failures);
                let failures = before.saturating_add(1);
                let delay = reconcile::backoff(failures, MIN_RETRY_DELAY, MAX_RETRY_DELAY);
                last.failed = Some(FailedCopy { error, failures, again: now + delay });
            }
        }
    }

    /// Forgets the sources that are gone, and returns them. Those that are being copied follow later.
    fn forget_gone<K: SourceKind>(&mut self, objects: &[Arc<K>]) -> Vec<ObjectKey> {
        let present: BTreeSet<ObjectKey> =
            objects.iter().map(|object| node_of(&**object)).collect();
        let running = &self.running;
        let is_gone = |node: &ObjectKey| !present.contains(node) && !running.contains(node);
        let gone = self.last.extract_if(.., |node, _| is_gone(node));
        gone.map(|(node, _)| node).collect()
    }

    /// The sources that are not copied, if the log has to say this now. `None` if all sources are copied, or if the last report
    /// is recent.
    fn report(&mut self, now: Instant) -> Option<UncopiedSources> {
        let is_recent = |at| now.saturating_duration_since(at) < REPORT_INTERVAL;
        if self.reported_at.is_some_and(is_recent) {
            return None;
        }
        let mut failed = self.last.values().filter_map(|last| last.failed.as_ref());
        let error = failed.next()?.error.clone();
        let count = failed.count() + 1;
        self.reported_at = Some(now);
        Some(UncopiedSources { count, error })
    }
}

/// Copies the artifact of a source in the turn of its namespace.
async fn copy_due<K: SourceKind>(context: &RunContext, due: DueCopy<K>) -> EndedCopy {
    let DueCopy { object, held } = due;
    let node = node_of(&*object);
    let _permit = context.fetching.acquire(&node.namespace).await;
    // The source may have changed while this waited.
    let object = context.newest(object);
    let artifact = object.as_deref().and_then(artifact_to_copy).cloned();
    let leader = context.cluster.leadership.leader_storage();
    let (Some(object), Some(artifact), Some(leader)) = (object, artifact, leader) else {
        return EndedCopy { node, result: None };
    };
    let storage = StandbyStorage {
        store: context.artifacts.clone(),
        leadership: context.cluster.leadership.clone(),
        leader,
        time: context.settings.http_timeout,
        runtime: tokio::runtime::Handle::current(),
    };
    let named = NamedArtifact::of(&artifact);
    let in_flight = context.shared::<CopiesInFlight>().begin().await;
    let copy = move || {
        let copied = storage.copy(&*object, &artifact, held.as_ref());
        drop(in_flight);
        copied
    };
    let copied = tokio::task::spawn_blocking(copy).await;
    let copied = copied.unwrap_or_else(|_| Err("storing it was interrupted".to_owned()));
    if let Err(error) = &copied {
        tracing::debug!(
            controller_kind = %K::kind(&()),
            name = node.name,
            namespace = node.namespace,
            path = named.path,
            error,
            "the artifact was not copied from the leader"
        );
    }
    EndedCopy { node, result: Some(copied.map(|()| named)) }
}

/// The objects of the folders of a kind that are in the store and not in the watch, which may be gone. A process of a shard does
/// not look for them, because the store may have the artifacts of another shard.
async fn folders_without_object<K: SourceKind>(context: &RunContext) -> BTreeSet<ObjectKey> {
    if !context.settings.watch_label_selector.text().is_empty() {
        return BTreeSet::new();
    }
    let store = context.artifacts.clone();
    let listed = tokio::task::spawn_blocking(move || store.slots_of(K::FOLDER)).await;
    let Ok(Ok(slots)) = listed else { return BTreeSet::new() };
    let unseen = slots.iter().filter(|it| context.seen::<K>(it.namespace(), it.name()).is_none());
    unseen.map(|slot| node_named::<K>(slot.namespace(), slot.name())).collect()
}

/// The sources that seem to be gone, and whose copied artifacts are to be removed.
struct GoneSourceFolders {
    due: BTreeSet<ObjectKey>,
    /// Those whose removal failed. They are due again after the others.
    failed: BTreeSet<ObjectKey>,
    /// Until when nothing is removed, because the API server did not respond or the disk failed.
    paused_until: Option<Instant>,
}

impl GoneSourceFolders {
    fn new(due: BTreeSet<ObjectKey>) -> Self {
        Self { due, failed: BTreeSet::new(), paused_until: None }
    }

    /// The next source to remove. `None` if there is none, or during a pause.
    fn next(&mut self, now: Instant) -> Option<ObjectKey> {
        if self.paused_until.is_some_and(|until| now < until) {
            return None;
        }
        if self.due.is_empty() {
            self.due = std::mem::take(&mut self.failed);
        }
        self.due.pop_first()
    }

    /// Notes that a removal failed.
    fn note_failure(&mut self, node: ObjectKey, now: Instant) {
        self.failed.insert(node);
        self.paused_until = Some(now + REMOVAL_PAUSE);
    }
}

/// Removes the folders of some of these sources, those of them that are gone, and takes them from the list.
async fn remove_gone<K: SourceKind>(context: &RunContext, gone: &mut GoneSourceFolders) {
    for _ in 0..REMOVALS_AT_ONCE {
        let Some(node) = gone.next(Instant::now()) else { return };
        if let Err(error) = remove_if_gone::<K>(context, &node).await {
            tracing::info!(
                controller_kind = %K::kind(&()),
                name = node.name,
                namespace = node.namespace,
                error,
                "the copied artifacts of a deleted source were not removed; this is repeated after a minute"
            );
            gone.note_failure(node, Instant::now());
            return;
        }
    }
}

/// Removes the copies of a source if the API server says that it is gone or belongs to another shard. The watch alone does not
/// prove that: objects that cannot be decoded are not in it, nor are those of namespaces that it does not see.
async fn remove_if_gone<K: SourceKind>(
    context: &RunContext,
    node: &ObjectKey,
) -> Result<(), String> {
    let ObjectKey { namespace, name, .. } = node;
    let found = context.cluster.read::<K>(namespace, name).await;
    let found = found.map_err(|error| error.to_string())?;
    if found.is_some_and(|object| context.settings.selects(object.labels())) {
        return Ok(());
    }
    let slot = ObjectFolder::new(K::FOLDER, namespace, name).map_err(|error| error.to_string())?;
    let store = context.artifacts.clone();
    let leadership = context.cluster.leadership.clone();
    let in_flight = context.shared::<CopiesInFlight>().begin().await;
    let remove = move || {
        let removed = if leadership.has_begun() { Ok(()) } else { store.remove(&slot) };
        drop(in_flight);
        removed
    };
    match tokio::task::spawn_blocking(remove).await {
        Ok(removed) => removed.map_err(|error| error.to_string()),
        Err(_) => Err("removing them was interrupted".to_owned()),
    }
}

#[cfg(test)]
mod tests;
