//! ChangeSets: the changes of sources, and the results of their members.
//!
//! A change begins when a source gets a new artifact. Its members are the appliers that use the source and have another build
//! than before, and the appliers that these applied. A new ConfigMap or chart alone is no change. All facts come from watched
//! objects, so a process that takes over gets the same result.
//!
//! Here: one pass over all sources. Below: sources and their users (`observed_sources`), states of members
//! (`observed_members`), members that a rolled-back dependency keeps from beginning (`members_without_attempt`), applied objects
//! (`applied_changes_from_audits`), one change (`followed_change`), and writing (`change_set_writer`). Also rollbacks
//! (`requested_rollback`), replaced events ([`withheld_events`]), failed changes ([`failed_changes`]), and why a change failed
//! (`first_failure`).
//! Elsewhere: the decisions (engine `changes`), and Quarantines (`windlass_quarantine`).

mod applied_changes_from_audits;
mod change_set_writer;
pub mod failed_change_advice;
mod first_failure;
mod followed_change;
mod members_without_attempt;
mod observed_members;
mod observed_sources;
mod requested_rollback;
pub mod withheld_events;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use changes::build_change::NewestAndPreviousBuild;
use changes::change_name;
use changes::commit_metadata::CommitDescription;
use crds::Artifact;
use crds::helm::HelmRelease;
use crds::helmfile::Helmfile;
use crds::kustomize::Kustomization;
use crds::windlass_release::{
    ChangeSet, ChangeSetCommit, ChangeSetSource, ChangeSetSpec, Quarantine,
};
use kube_core::ResourceExt as _;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use windlass_runtime::lifecycle::watched_object_cache::{
    self, CachedObjectChange, WatchedObjectCache,
};
use windlass_runtime::run_context::RunContext;

use self::applied_changes_from_audits::applied_changes;
use self::change_set_writer::{ChangeSetWrite, ChangeSetWriter, of_source};
use self::followed_change::FollowedChange;
use self::observed_members::generation_of;
use self::observed_sources::{
    ConsumersBySource, ObservedSource, ObservedSources, SourceConsumer, consumers,
};
use self::withheld_events::{OngoingChangeMembers, announce};

/// How often sources are compared. All changes in between are handled in one pass.
const COMPARISON_INTERVAL: Duration = Duration::from_secs(1);

/// The rest after a slow pass, as a multiple of its duration. It limits the passes to a twentieth of a core.
const COMPARISON_REST_FACTOR: u32 = 20;

/// The longest rest after a pass.
const LONGEST_REST: Duration = Duration::from_secs(10);

/// How long the first pass waits for kinds whose CRDs may be missing.
const OPTIONAL_KINDS_WITHIN: Duration = Duration::from_secs(10);

/// The most reads in one pass, of audit lists and children.
const MAX_READS_PER_PASS: usize = 64;

/// The most failed reads in one pass, because each may take long.
const MAX_FAILED_READS_PER_PASS: usize = 4;

/// The uids of sources with a requested rollback that was not carried out yet.
#[derive(Default)]
struct RollbackRequests(Mutex<BTreeSet<String>>);

/// Watches ChangeSets until `stop`, and records the rollbacks that users request.
pub async fn follow(context: Arc<RunContext>, stop: CancellationToken) {
    let requests = context.shared::<RollbackRequests>();
    let changed = |_: &RunContext, change: CachedObjectChange<ChangeSet>| {
        let is_asked = |it: &Arc<ChangeSet>| {
            it.status.as_ref().is_some_and(|status| status.rollback.is_some())
        };
        let was_asked = change.before.as_ref().is_some_and(is_asked);
        if let Some(after) = change.after.filter(|it| is_asked(it) && !was_asked) {
            requests.0.lock().insert(after.spec.source.uid.clone());
        }
    };
    stop.run_until_cancelled(watched_object_cache::follow(context, changed)).await;
}

/// Follows the changes of sources until `stop`.
pub async fn run(context: Arc<RunContext>, stop: CancellationToken) {
    let work = async {
        context.cluster.leadership.begun().await;
        if !are_listed(&context).await {
            return;
        }
        let mut run = ChangeSetReconcileLoop {
            writer: ChangeSetWriter::new(context.clone()),
            under_way: context.shared::<OngoingChangeMembers>(),
            requests: context.shared::<RollbackRequests>(),
            context,
            builds: BTreeMap::new(),
            changes: BTreeMap::new(),
        };
        loop {
            let began = Instant::now();
            run.pass().await;
            let rest = began.elapsed().saturating_mul(COMPARISON_REST_FACTOR);
            tokio::time::sleep(rest.clamp(COMPARISON_INTERVAL, LONGEST_REST)).await;
        }
    };
    stop.run_until_cancelled(work).await;
}

/// Waits until sources, appliers, ChangeSets and Quarantines were listed, because before that one may only seem to be missing.
/// Returns false if a watch ended before.
async fn are_listed(context: &RunContext) -> bool {
    let appliers = async {
        context.kept.listed::<Kustomization>().await && context.kept.listed::<HelmRelease>().await
    };
    let is_listed = context.sources.listed().await.is_some() && appliers.await;
    // Without the CRD there are no Helmfiles.
    let helmfiles = context.kept.listed::<Helmfile>();
    drop(tokio::time::timeout(OPTIONAL_KINDS_WITHIN, helmfiles).await);
    context.shared::<WatchedObjectCache<ChangeSet>>().known().await;
    context.shared::<WatchedObjectCache<Quarantine>>().known().await;
    is_listed
}

struct ChangeSetReconcileLoop {
    context: Arc<RunContext>,
    writer: ChangeSetWriter,
    under_way: Arc<OngoingChangeMembers>,
    requests: Arc<RollbackRequests>,
    builds: BTreeMap<String, NewestAndPreviousBuild>,
    /// The newest change of each source, by the uid of the source.
    changes: BTreeMap<String, FollowedChange>,
}

/// The description of an artifact's commit, for a ChangeSet. `None` if the artifact does not describe its commit.
fn commit(artifact: &Artifact) -> Option<ChangeSetCommit> {
    let CommitDescription { subject, author, time } =
        CommitDescription::of_metadata(&artifact.metadata)?;
    Some(ChangeSetCommit { subject, author, time })
}

/// Whether a change belongs to this artifact.
fn brought(spec: &ChangeSetSpec, artifact: &Artifact) -> bool {
    spec.revision == artifact.revision && spec.digest == artifact.digest
}

/// The spec of the ChangeSet for the artifact of a source.
fn spec(source: &ObservedSource, sequence: i64) -> ChangeSetSpec {
    let artifact = &source.artifact;
    ChangeSetSpec {
        source: ChangeSetSource {
            kind: source.node.kind.clone(),
            name: source.node.name.clone(),
            uid: source.uid.clone(),
        },
        revision: artifact.revision.clone(),
        digest: artifact.digest.clone(),
        path: artifact.path.clone(),
        sequence,
        commit: commit(artifact),
    }
}

impl ChangeSetReconcileLoop {
    async fn pass(&mut self) {
        self.writer.pass();
        self.observe_builds();
        let asked = self.requests.0.lock().clone();
        let changes = &self.changes;
        let sources = ObservedSources::read(&self.context, |uid, artifact| {
            let known = changes.get(uid).filter(|it| brought(&it.spec, artifact));
            known.is_some_and(FollowedChange::is_settled) && !asked.contains(uid)
        });
        // The changes of a deleted source are deleted with it.
        self.changes.retain(|uid, _| sources.uids.contains(uid));
        self.requests.0.lock().retain(|uid| sources.uids.contains(uid));
        // Without the Quarantines, a member that rolled back would look like a failed one.
        let quarantines = self.context.shared::<WatchedObjectCache<Quarantine>>();
        let is_kept = self.writer.is_kept() && quarantines.ready().is_ok();
        self.under_way.set_kept(is_kept);
        if !is_kept {
            self.under_way.set_members(BTreeSet::new());
            return;
        }
        let consumers = consumers(&self.context, &sources.open);
        let mut reads =
            ReadBudget { left: MAX_READS_PER_PASS, failures: MAX_FAILED_READS_PER_PASS };
        for source in &sources.open {
            self.follow_source(source, &consumers, &mut reads).await;
        }
        self.under_way.set_members(self.changes.values().flat_map(|it| it.under_way()).collect());
        let rejected = self.changes.iter().filter(|(_, it)| it.is_rejected);
        self.under_way.set_rejected(rejected.map(|(uid, _)| uid.clone()).collect());
        let followed: BTreeSet<[String; 2]> =
            self.changes.values().map(|it| [it.namespace.clone(), it.name.clone()]).collect();
        self.writer.retain(|key| followed.contains(key));
    }

    /// Records the last builds of Kustomizations.
    fn observe_builds(&mut self) {
        let mut seen = BTreeSet::new();
        for object in self.context.store::<Kustomization>().state() {
            let Some(uid) = object.uid() else { continue };
            let newest = object.status.as_ref().and_then(|it| it.history.first());
            let revision = newest.and_then(|it| it.metadata.get("revision"));
            if let Some((newest, revision)) = newest.zip(revision) {
                let builds = self.builds.entry(uid.clone()).or_default();
                builds.observe(revision, &newest.digest);
            }
            seen.insert(uid);
        }
        self.builds.retain(|uid, _| seen.contains(uid));
    }

    /// Follows the newest change of a source.
    async fn follow_source(
        &mut self,
        source: &ObservedSource,
        consumers: &ConsumersBySource,
        reads: &mut ReadBudget,
    ) {
        let none = Vec::new();
        let consumers = consumers.get(&source.node).unwrap_or(&none);
        let known = self.changes.get(&source.uid);
        if known.is_none_or(|it| !brought(&it.spec, &source.artifact)) {
            // A source that no applier uses has no change.
            if consumers.is_empty() || !self.writer.may_begin() {
                return;
            }
            self.begin(source).await;
        }
        let Some(mut change) = self.changes.remove(&source.uid) else { return };
        // The next pass sees a request that comes after this read.
        self.requests.0.lock().remove(&source.uid);
        let object = self.writer.table().get(&change.namespace, &change.name);
        let asked = object.as_deref().and_then(requested_rollback::request);
        let asked = asked.filter(|_| change.left_by_rollback.is_none());
        if asked.is_some() || !change.is_settled() {
            self.observe(&mut change, consumers, reads).await;
            let now = jiff::Timestamp::now();
            members_without_attempt::end_members(&self.context, &mut change, consumers, now);
            if let Some(asked) = asked {
                requested_rollback::carry_out(&self.context, &mut change, asked, consumers).await;
                if change.left_by_rollback.is_none() {
                    self.requests.0.lock().insert(source.uid.clone());
                }
            }
            change.judge(jiff::Timestamp::now());
            self.write(&mut change, source).await;
        }
        self.changes.insert(source.uid.clone(), change);
    }

    /// Begins the change of a source's new artifact, or finds the one that an earlier process began.
    async fn begin(&mut self, source: &ObservedSource) {
        let namespace = &source.node.namespace;
        if let Some(mut before) = self.changes.remove(&source.uid) {
            before.is_superseded = true;
            before.judge(jiff::Timestamp::now());
            let written = self.writer.write(&before, source.owner.as_ref()).await;
            tracing::debug!(name = before.name, ?written, "a change was superseded");
        }
        let own = of_source(self.writer.table(), namespace, &source.uid);
        let newest = own.last().filter(|it| brought(&it.spec, &source.artifact));
        let older = match newest {
            Some(_) => own.split_last().map_or(&own[..], |(_, older)| older),
            None => &own[..],
        };
        self.writer.supersede(older).await;
        self.writer.delete_oldest(&own).await;
        let since = source.artifact.last_update_time.0;
        let change = match newest {
            Some(object) => FollowedChange::new(
                namespace,
                &object.name_any(),
                object.spec.clone(),
                object.status.as_ref(),
                since,
            ),
            None => {
                let sequence = own.last().map_or(0, |it| it.spec.sequence).saturating_add(1);
                let name = change_name(&source.node.name, &source.uid, sequence);
                FollowedChange::new(namespace, &name, spec(source, sequence), None, since)
            }
        };
        self.changes.insert(source.uid.clone(), change);
    }

    /// Updates the states of a change's members, and reads the facts that their statuses do not have.
    async fn observe(
        &self,
        change: &mut FollowedChange,
        consumers: &[SourceConsumer],
        reads: &mut ReadBudget,
    ) {
        let now = jiff::Timestamp::now();
        let asked = change.observe(&self.context, consumers, &self.builds, now);
        for consumer in asked {
            let SourceConsumer::Kustomization(object) = &consumer else { continue };
            if !reads.take() {
                return;
            }
            let revision = change.spec.revision.clone();
            match applied_changes(&self.context, object, &revision, change.since).await {
                Ok(found) => change.audited(&consumer.key(), &found),
                Err(error) => {
                    change.audit_failed(&consumer.key());
                    reads.failed(&error);
                }
            }
        }
        for key in change.unread() {
            if !reads.take() {
                return;
            }
            match generation_of(&self.context, &key).await {
                Ok(generation) => change.generation_read(&key, generation, now),
                Err(error) => {
                    change.generation_failed(&key);
                    reads.failed(&error);
                }
            }
        }
    }

    /// Writes the ChangeSet, and announces a new verdict.
    async fn write(&mut self, change: &mut FollowedChange, source: &ObservedSource) {
        let written = self.writer.write(change, source.owner.as_ref()).await;
        change.is_written =
            matches!(written, ChangeSetWrite::None | ChangeSetWrite::Written { .. });
        change.is_rejected = match written {
            ChangeSetWrite::Later => change.is_rejected,
            written => written == ChangeSetWrite::Failed,
        };
        if written == (ChangeSetWrite::Written { is_verdict: true }) {
            tracing::info!(
                controller_kind = "ChangeSet",
                name = change.name,
                namespace = change.namespace,
                verdict = change_set_writer::verdict_text(change.verdict()),
                "{}",
                change.message()
            );
            announce(&self.context, change, source);
        }
    }
}

/// How many more reads a pass may do.
struct ReadBudget {
    left: usize,
    failures: usize,
}

impl ReadBudget {
    fn take(&mut self) -> bool {
        let has_one = self.left > 0 && self.failures > 0;
        self.left -= usize::from(has_one);
        has_one
    }

    fn failed(&mut self, error: &windlass_cluster::ClusterError) {
        self.failures -= 1;
        tracing::debug!(error = %error, "cannot read what a member of a change applied, retrying later");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(revision: &str) -> Artifact {
        Artifact {
            digest: format!("sha256:{revision}"),
            last_update_time: crds::Time(jiff::Timestamp::UNIX_EPOCH),
            metadata: BTreeMap::from([(
                "windlass.dev/CommitSubject".to_owned(),
                "Scale the shop".to_owned(),
            )]),
            path: "gitrepository/shop/fleet/1.tar.gz".to_owned(),
            revision: revision.to_owned(),
            size: None,
            url: String::new(),
        }
    }

    #[test]
    fn a_change_is_known_by_revision_and_digest_and_has_the_commit() {
        let source = ObservedSource {
            node: reconcile::ObjectKey::new("g", "GitRepository", "shop", "fleet"),
            uid: "u".to_owned(),
            artifact: artifact("1"),
            owner: None,
            about: windlass_cluster::events::EventObject::default(),
            controller: "source-controller",
        };
        let spec = spec(&source, 3);
        assert!(brought(&spec, &artifact("1")) && !brought(&spec, &artifact("2")));
        let other_digest = Artifact { digest: "sha256:x".to_owned(), ..artifact("1") };
        assert!(!brought(&spec, &other_digest), "other files of the same revision");
        assert_eq!(spec.commit.map(|it| it.subject).as_deref(), Some("Scale the shop"));
        assert_eq!((spec.sequence, spec.source.uid.as_str()), (3, "u"));
    }

    #[test]
    fn reads_of_a_pass_are_bounded_and_failures_more_so() {
        let mut reads = ReadBudget { left: 2, failures: 1 };
        assert!(reads.take() && reads.take() && !reads.take());
        let mut reads = ReadBudget { left: 9, failures: 1 };
        reads.failed(&windlass_cluster::ClusterError::NoAnswer(String::new()));
        assert!(!reads.take());
    }
}
