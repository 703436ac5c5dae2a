//! Writes ChangeSets. A status is written at most every two seconds, but a new verdict at once. Only the newest ChangeSets of
//! each source are kept.
//!
//! The name of a ChangeSet comes from the source and a sequence number. So after a crash, windlass finds the same object and
//! creates no second one. Elsewhere: the content of the status (`followed_change`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use changes::change_verdict::ChangeVerdict;
use crds::windlass_release::{ChangeSet, ChangeSetVerdict};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube_core::ResourceExt as _;
use serde_json::{Value, json};

use windlass_cluster::ClusterError;
use windlass_runtime::lifecycle::watched_object_cache::{WatchedObjectCache, resource};
use windlass_runtime::run_context::RunContext;

use super::followed_change::FollowedChange;

/// The field manager of ChangeSets.
const MANAGER: &str = "windlass";

/// How often the status of a ChangeSet is written while its verdict stays the same.
const STATUS_INTERVAL: Duration = Duration::from_secs(2);

/// How long a ChangeSet is not written after the API server refused a write.
const REFUSAL_DELAY: Duration = Duration::from_secs(10);

/// How long a ChangeSet is not written after a refusal that will repeat, such as for a revision that is too long.
const REJECTION_DELAY: Duration = Duration::from_secs(60);

/// How long nothing is written if the CRD is not installed.
const ABSENT_DELAY: Duration = Duration::from_secs(60);

/// The most writes in one pass, so that each pass ends soon.
const MAX_WRITES_PER_PASS: usize = 64;

/// The most ChangeSets of a source that are kept.
const MAX_KEPT: usize = 10;

/// The status of a ChangeSet that was last written, and when.
#[derive(Debug, Default)]
struct WrittenChangeSetStatus {
    status: Value,
    verdict: Option<ChangeVerdict>,
    at: Option<Instant>,
    /// Until when the ChangeSet is not written.
    paused_until: Option<Instant>,
}

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeSetWrite {
    /// There was nothing to write.
    None,
    /// The status will be written later.
    Later,
    /// The status was written. `is_verdict` says whether its verdict is new.
    Written { is_verdict: bool },
    /// The write failed.
    Failed,
}

/// The writer of all ChangeSets of this process.
pub(crate) struct ChangeSetWriter {
    context: Arc<RunContext>,
    table: Arc<WatchedObjectCache<ChangeSet>>,
    /// The last writes, by namespace and name.
    written: BTreeMap<[String; 2], WrittenChangeSetStatus>,
    /// Until when windlass assumes that the CRD is not installed.
    absent_until: Option<Instant>,
    /// How many more writes this pass may do.
    left: usize,
}

/// The ChangeSets of a source. The oldest is the first.
pub(crate) fn of_source(
    table: &WatchedObjectCache<ChangeSet>,
    namespace: &str,
    uid: &str,
) -> Vec<Arc<ChangeSet>> {
    let mut own = table.of(namespace);
    own.retain(|it| it.spec.source.uid == uid);
    own.sort_by_key(|it| it.spec.sequence);
    own
}

/// The verdict in the status of a ChangeSet. It is [`ChangeSetVerdict::Progressing`] before the first verdict.
pub(crate) fn verdict_of(object: &ChangeSet) -> ChangeSetVerdict {
    object.status.as_ref().map(|it| it.verdict).unwrap_or_default()
}

impl ChangeSetWriter {
    pub(crate) fn new(context: Arc<RunContext>) -> Self {
        let table = context.shared::<WatchedObjectCache<ChangeSet>>();
        let written = BTreeMap::new();
        Self { context, table, written, absent_until: None, left: MAX_WRITES_PER_PASS }
    }

    /// Begins a new pass, in which the number of writes is limited again.
    pub(crate) fn pass(&mut self) {
        self.left = MAX_WRITES_PER_PASS;
        self.absent_until = self.absent_until.filter(|until| *until > Instant::now());
    }

    /// Whether ChangeSets can be written. They were listed, and the API server serves their kind as far as windlass knows.
    pub(crate) fn is_kept(&self) -> bool {
        self.table.current().is_ok() && self.absent_until.is_none()
    }

    /// Whether this pass may still begin a change. That takes two writes: the end of the last change, and the new one.
    pub(crate) fn may_begin(&self) -> bool {
        self.left >= 2
    }

    /// The ChangeSets as the watch last saw them.
    pub(crate) fn table(&self) -> &WatchedObjectCache<ChangeSet> {
        &self.table
    }

    /// Forgets the writes of changes that are no longer followed.
    pub(crate) fn retain(&mut self, is_followed: impl Fn(&[String; 2]) -> bool) {
        self.written.retain(|key, _| is_followed(key));
    }

    /// Writes the ChangeSet of a change, if a write is due.
    pub(crate) async fn write(
        &mut self,
        change: &FollowedChange,
        owner: Option<&OwnerReference>,
    ) -> ChangeSetWrite {
        let key = [change.namespace.clone(), change.name.clone()];
        let status = change.status();
        let verdict = change.verdict();
        let now = Instant::now();
        let known = self.written.entry(key.clone()).or_default();
        let is_verdict = known.verdict.is_some_and(|before| before != verdict)
            || known.verdict.is_none() && verdict != ChangeVerdict::Progressing;
        let is_early = known.at.is_some_and(|at| now.duration_since(at) < STATUS_INTERVAL);
        let is_paused = known.paused_until.is_some_and(|until| until > now);
        if known.status == status {
            return ChangeSetWrite::None;
        }
        if is_paused || self.left == 0 || is_early && !is_verdict {
            return ChangeSetWrite::Later;
        }
        self.left -= 1;
        let outcome = self.write_status(change, owner, &status).await;
        let known = self.written.entry(key).or_default();
        match outcome {
            Ok(had) => {
                // An earlier process has announced its own verdicts.
                let is_verdict = is_verdict && had != Some(verdict_text(verdict));
                *known = WrittenChangeSetStatus {
                    status,
                    verdict: Some(verdict),
                    at: Some(now),
                    paused_until: None,
                };
                ChangeSetWrite::Written { is_verdict }
            }
            Err(error) => {
                // An earlier process created the object, and the watch has not reported it yet.
                let is_early = error.code() == Some(409);
                let pause = match (is_early, error.is_permanent()) {
                    (true, _) => STATUS_INTERVAL,
                    (false, true) => REJECTION_DELAY,
                    (false, false) => REFUSAL_DELAY,
                };
                known.paused_until = Some(now + pause);
                self.refused(change, &error);
                ChangeSetWrite::Failed
            }
        }
    }

    /// Writes the status, and first creates the ChangeSet if it does not exist. Returns the earlier verdict.
    async fn write_status(
        &self,
        change: &FollowedChange,
        owner: Option<&OwnerReference>,
        status: &Value,
    ) -> Result<Option<&'static str>, ClusterError> {
        let object = match self.table.get(&change.namespace, &change.name) {
            Some(object) => object,
            None => Arc::new(self.create(change, owner).await?),
        };
        if !change.is(&object) {
            return Err(ClusterError::Withheld(format!(
                "a ChangeSet of this name exists that is not about sequence {} of the source; find out who created it, and \
                 delete it",
                change.spec.sequence
            )));
        }
        let had = object.status.as_ref().map(|it| it.verdict.as_str());
        let cluster = &self.context.cluster;
        if let Some(written) = cluster.write_status(&*object, MANAGER, status, None).await? {
            drop(self.table.insert(written));
        } else {
            let uid = object.uid().unwrap_or_default();
            drop(self.table.remove(&change.namespace, &change.name, &uid));
        }
        Ok(had)
    }

    async fn create(
        &self,
        change: &FollowedChange,
        owner: Option<&OwnerReference>,
    ) -> Result<ChangeSet, ClusterError> {
        let mut object = ChangeSet::new(&change.name, change.spec.clone());
        object.metadata.namespace = Some(change.namespace.clone());
        object.metadata.owner_references = owner.cloned().map(|owner| vec![owner]);
        let created = self.context.cluster.create(&object, MANAGER).await?;
        drop(self.table.insert(created.clone()));
        Ok(created)
    }

    fn refused(&mut self, change: &FollowedChange, error: &ClusterError) {
        if error.is_of_terminating_namespace() || error.code() == Some(409) {
            return;
        }
        if error.is_unserved() {
            self.absent_until = Some(Instant::now() + ABSENT_DELAY);
            tracing::debug!(error = %error, "ChangeSets are not served");
            return;
        }
        tracing::error!(
            namespace = change.namespace,
            name = change.name,
            error = %error,
            "failed to write a ChangeSet, retrying later"
        );
    }

    /// Marks older changes as superseded if an earlier process left them without a verdict.
    pub(crate) async fn supersede(&mut self, older: &[Arc<ChangeSet>]) {
        for object in older {
            let has_none = matches!(
                verdict_of(object),
                ChangeSetVerdict::Progressing | ChangeSetVerdict::Stalled
            );
            if !has_none || self.left == 0 {
                continue;
            }
            self.left -= 1;
            let mut status = json!({"verdict": ChangeSetVerdict::Superseded});
            if object.status.is_none() {
                status["counts"] = json!({"members": 0});
            }
            match self.context.cluster.write_status(&**object, MANAGER, &status, None).await {
                Ok(Some(written)) => drop(self.table.insert(written)),
                Ok(None) => {}
                Err(error) => {
                    tracing::debug!(error = %error, name = object.name_any(), "cannot end a ChangeSet");
                }
            }
        }
    }

    /// Deletes the oldest ChangeSets of a source that has too many.
    pub(crate) async fn delete_oldest(&mut self, own: &[Arc<ChangeSet>]) {
        let surplus = own.len().saturating_sub(MAX_KEPT);
        for object in own.iter().take(surplus) {
            if self.left == 0 {
                return;
            }
            self.left -= 1;
            let namespace = object.namespace().unwrap_or_default();
            let name = object.name_any();
            let uid = object.uid().unwrap_or_default();
            let resource = resource::<ChangeSet>();
            let deleted =
                self.context.cluster.delete_unmanaged(&resource, &namespace, &name, &uid).await;
            match deleted {
                Ok(()) => drop(self.table.remove(&namespace, &name, &uid)),
                Err(error) => {
                    tracing::debug!(error = %error, namespace, name, "cannot delete an old ChangeSet");
                }
            }
        }
    }
}

/// The name of a verdict in a status.
pub(crate) const fn verdict_text(verdict: ChangeVerdict) -> &'static str {
    match verdict {
        ChangeVerdict::Progressing => ChangeSetVerdict::Progressing.as_str(),
        ChangeVerdict::Succeeded => ChangeSetVerdict::Succeeded.as_str(),
        ChangeVerdict::Failed => ChangeSetVerdict::Failed.as_str(),
        ChangeVerdict::Superseded => ChangeSetVerdict::Superseded.as_str(),
        ChangeVerdict::RolledBack => ChangeSetVerdict::RolledBack.as_str(),
        ChangeVerdict::Stalled => ChangeSetVerdict::Stalled.as_str(),
    }
}
