//! The rows of a Helmfile's status while its releases are reconciled, and the Helmfile as the owner of one release.
//!
//! Many releases are reconciled at a time, and one write carries the changes and the events of all of them.
//! Elsewhere: the release runner (`helm_controller::release_runner`), the conditions of the whole Helmfile (`report.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use apply::planned_changes::PlannedChanges;
use crds::ResourceInventory;
use crds::helm::HelmReleaseStatus;
use crds::helmfile::{HelmfileReleaseStatus, HelmfileStatus, ReleaseState};
use helmfile::ManifestHookTime;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube_core::ResourceExt as _;
use objects::SecretMasking;
use parking_lot::{Mutex, MutexGuard};
use reconcile::{ObjectKey, RunOutcome};
use release::status::{HelmReleaseStatusFields, ReleaseReport};
use release::{OperationJournal, ReleaseDesiredState, ReleaseRecord};

use super::helmfile_kind_differences::{self, HelmfileCustomResource};
use super::hook_approval_plan::hook_changes;
use super::hooks::{HookApplyOutcome, ReleaseHooks, UnansweredHookWrites};
use super::plan::ReleaseKey;
use super::release_specification;
use super::status_limits::fitted;
use helm_controller::helm_release::report;
use helm_controller::release_runner::change_judgement::OwnerHooks;
use helm_controller::release_runner::{self, ReleaseStatusOwner};
use windlass_cluster::events::ObjectEvent;
use windlass_cluster::object_watcher::OwnershipMarks;
use windlass_cluster::run_permits::RunPermit;
use windlass_runtime::approval_plan::DELETION_BUDGET;
use windlass_runtime::approval_plan::change_approval::PLAN_MODE;
use windlass_runtime::cluster_target::ClusterTarget;
use windlass_runtime::controller_kind::{REQUESTED_AT, node_of};
use windlass_runtime::object_status::{LatestWrittenObject, status_of};
use windlass_runtime::run_context::RunContext;
use windlass_runtime::{hold_conditions, object_hold};

/// How often a run writes progress at most. Each write contains the rows of all releases, however many there are.
const PROGRESS_WRITE_INTERVAL: Duration = Duration::from_secs(1);

/// Writes the status rows of a Helmfile during a run. It combines the changes of many releases in one status write.
pub(super) struct ReleaseStatusWriter<K: HelmfileCustomResource> {
    pub(super) context: Arc<RunContext>,
    latest: Arc<LatestWrittenObject<K>>,
    /// The request that the run has seen.
    pub(super) requested: Option<String>,
    pages: Mutex<ReleaseStatusContents<K>>,
    /// Permits one write at a time. A caller that waited for a write finds its own change written, too.
    writing: tokio::sync::Mutex<()>,
}

struct ReleaseStatusContents<K> {
    /// The Helmfile as our last write left it.
    object: Arc<K>,
    rows: Vec<HelmfileReleaseStatus>,
    /// The events to announce once the rows are written.
    events: Vec<ObjectEvent>,
    /// The number of changes, and of written changes.
    changed: u64,
    written: u64,
    /// The time of this run's last write.
    written_at: Option<Instant>,
}

impl<K: HelmfileCustomResource> ReleaseStatusWriter<K> {
    pub(super) fn new(
        context: Arc<RunContext>,
        latest: Arc<LatestWrittenObject<K>>,
        object: Arc<K>,
    ) -> Self {
        let rows = status_of(&*object).releases;
        let requested = object.annotations().get(REQUESTED_AT).cloned();
        let pages = ReleaseStatusContents {
            object,
            rows,
            events: Vec::new(),
            changed: 0,
            written: 0,
            written_at: None,
        };
        let pages = Mutex::new(pages);
        let writing = tokio::sync::Mutex::default();
        Self { context, latest, requested, pages, writing }
    }

    fn pages(&self) -> MutexGuard<'_, ReleaseStatusContents<K>> {
        self.pages.lock()
    }

    /// The Helmfile as our last write left it.
    pub(super) fn object(&self) -> Arc<K> {
        self.pages().object.clone()
    }

    /// All rows, in their order.
    pub(super) fn rows(&self) -> Vec<HelmfileReleaseStatus> {
        self.pages().rows.clone()
    }

    /// The events to announce at the end of the run.
    pub(super) fn take_events(&self) -> Vec<ObjectEvent> {
        std::mem::take(&mut self.pages().events)
    }

    pub(super) fn row(&self, key: &ReleaseKey) -> Option<HelmfileReleaseStatus> {
        self.pages().rows.iter().find(|row| key.is_of(row)).cloned()
    }

    /// Replaces all rows.
    pub(super) fn set_rows(&self, rows: Vec<HelmfileReleaseStatus>) {
        let mut pages = self.pages();
        if pages.rows != rows {
            pages.rows = rows;
            pages.changed += 1;
        }
    }

    /// Changes an existing row.
    pub(super) fn update(&self, key: &ReleaseKey, change: impl FnOnce(&mut HelmfileReleaseStatus)) {
        let mut pages = self.pages();
        let Some(row) = pages.rows.iter_mut().find(|row| key.is_of(row)) else { return };
        let before = row.clone();
        change(row);
        if *row != before {
            pages.changed += 1;
        }
    }

    pub(super) fn remove(&self, key: &ReleaseKey) {
        let mut pages = self.pages();
        pages.rows.retain(|row| !key.is_of(row));
        pages.changed += 1;
    }

    /// Queues an event for the next write.
    pub(super) fn tell(&self, event: ObjectEvent) {
        self.pages().events.push(event);
    }

    /// Writes the progress of releases, unless a write was made a moment ago. The progress is then part of the next write, or
    /// of the one at the end of the run.
    async fn flush_progress(&self) -> Result<(), RunOutcome> {
        let is_recent =
            self.pages().written_at.is_some_and(|at| at.elapsed() < PROGRESS_WRITE_INTERVAL);
        if is_recent { Ok(()) } else { self.flush().await }
    }

    /// Writes the present rows to the status, unless another call has written them since this call began.
    ///
    /// # Errors
    /// The API server refuses to write the status, or does not respond; or the Helmfile is gone.
    pub(super) async fn flush(&self) -> Result<(), RunOutcome> {
        let wanted = self.pages().changed;
        let _writing = self.writing.lock().await;
        let (object, rows, events, changed) = {
            let mut pages = self.pages();
            if pages.written >= wanted && pages.events.is_empty() {
                return Ok(());
            }
            let events = std::mem::take(&mut pages.events);
            (pages.object.clone(), pages.rows.clone(), events, pages.changed)
        };
        let before = status_of(&*object);
        let after = HelmfileStatus { releases: fitted(rows), ..before.clone() };
        let written =
            release_runner::write_status(&self.context, &self.latest, &object, &before, &after);
        let written = written.await?;
        {
            let mut pages = self.pages();
            pages.object = written;
            pages.written = changed;
            pages.written_at = Some(Instant::now());
        }
        for event in events {
            self.announce(event);
        }
        Ok(())
    }

    /// Logs and announces an event at once.
    pub(super) fn announce(&self, event: ObjectEvent) {
        let object = self.object();
        let name = object.name_any();
        let namespace = object.namespace().unwrap_or_default();
        tracing::info!(
            controller_kind = "Helmfile",
            name,
            namespace,
            reason = event.reason,
            "{}",
            event.message
        );
        self.context.events.announce(&*object, K::CONTROLLER, event);
    }
}

/// An event of a release with its `kubeContext`, which its name lacks.
pub(super) fn placed<K: HelmfileCustomResource>(
    mut event: ObjectEvent,
    context: &str,
) -> ObjectEvent {
    if !context.is_empty() {
        event.message = format!("kubeContext {context}: {}", event.message);
        event.metadata.insert(
            format!("{}/kubeContext", helmfile_kind_differences::group::<K>()),
            context.to_owned(),
        );
    }
    event
}

/// A Helmfile as the owner of one of its releases.
pub(super) struct HelmfileReleaseOwner<K: HelmfileCustomResource> {
    pub(super) book: Arc<ReleaseStatusWriter<K>>,
    pub(super) key: ReleaseKey,
    /// Other releases of the plan with its namespace and name.
    pub(super) namesakes: Vec<ReleaseKey>,
    /// The manifests that its hooks apply.
    pub(super) hooks: Arc<ReleaseHooks>,
    /// The timeout for applying the manifests of a hook.
    pub(super) timeout: Duration,
    /// The values from Secrets, which no status, event or log may show.
    pub(super) secrets: SecretMasking,
    /// Whether the hooks before an operation were applied.
    pub(super) has_begun: AtomicBool,
    /// Writes of its hooks that the API server did not answer.
    pub(super) unanswered: Arc<Mutex<UnansweredHookWrites>>,
}

impl<K: HelmfileCustomResource> HelmfileReleaseOwner<K> {
    /// The status in the row of the release.
    fn row_status(&self) -> HelmReleaseStatus {
        self.book.row(&self.key).map(|row| row.status).unwrap_or_default()
    }

    /// The other release of the plan that has the release of a record, by the journal beside it or by its history. Contexts
    /// with different names may be one cluster.
    fn namesake_of(
        &self,
        journal: Option<&OperationJournal>,
        last: &ReleaseRecord,
    ) -> Option<&ReleaseKey> {
        let by_journal =
            |it: &&ReleaseKey| journal.is_some_and(|journal| journal.kube_context == it.context);
        let by_history = |it: &&ReleaseKey| {
            let row = self.book.row(it);
            row.is_some_and(|row| {
                release_runner::release_conflict::has(&row.status.history, false, last)
            })
        };
        let all = &self.namesakes;
        all.iter().find(by_journal).or_else(|| all.iter().find(by_history))
    }
}

impl<K: HelmfileCustomResource> ReleaseStatusOwner for HelmfileReleaseOwner<K> {
    const KIND: &'static str = "Helmfile";
    const OWNERSHIP: OwnershipMarks = K::OWNERSHIP;

    fn labels(&self) -> Vec<(&'static str, String)> {
        let object = self.book.object();
        vec![
            (K::OWNERSHIP.name, object.name_any()),
            (K::OWNERSHIP.namespace, object.namespace().unwrap_or_default()),
        ]
    }

    fn status(&self) -> HelmReleaseStatusFields {
        release_specification::known(&*self.book.object(), self.row_status())
    }

    async fn tell(
        &self,
        release_report: &ReleaseReport,
        inventory: Option<ResourceInventory>,
        desired: &ReleaseDesiredState,
    ) -> Result<(), RunOutcome> {
        let now = jiff::Timestamp::now();
        let before = self.row_status();
        let after = report::progress(&before, release_report, inventory, desired, now)?;
        let progress = release_report.progress.as_ref().map(|progress| progress.text.clone());
        self.book.update(&self.key, |row| {
            row.status = after;
            if let Some(text) = progress {
                row.message = Some(text);
                row.state = match desired.deleted {
                    true => ReleaseState::Uninstalling,
                    false => ReleaseState::Progressing,
                };
            }
        });
        if release_report.events.iter().any(|event| event.warning) {
            // The end of the run need not report the same failure.
            let part = node_of(&*self.book.object()).part(&self.key.to_string());
            self.book.context.note_announced_failure(&part);
        }
        release_report.events.iter().for_each(|release_event| {
            self.book.tell(placed::<K>(report::event::<K>(release_event), &self.key.context));
        });
        // The end of an operation is mostly all that there is to write, so it is written at the end of the run. The journal
        // keeps it until then.
        if release_report.ended.is_some() { Ok(()) } else { self.book.flush_progress().await }
    }

    async fn settle(&self) -> Result<(), RunOutcome> {
        self.book.flush_progress().await
    }

    fn is_overtaken(&self, desired: &ReleaseDesiredState) -> bool {
        let object = self.book.object();
        let namespace = object.namespace().unwrap_or_default();
        let name = object.name_any();
        let Some(now) = self.book.context.seen::<K>(&namespace, &name) else {
            return false;
        };
        let is_deleted = now.meta().deletion_timestamp.is_some();
        let is_suspended = object_hold::is_suspended(&*now, jiff::Timestamp::now());
        let is_newer = now.meta().generation.unwrap_or_default() > desired.generation;
        now.uid().unwrap_or_default() == desired.owner
            && (is_newer
                || (is_deleted && object.meta().deletion_timestamp.is_none())
                || (is_suspended && !desired.suspended && !desired.deleted))
    }

    fn is_asked(&self) -> bool {
        hold_conditions::is_asked(&*self.book.object())
    }

    fn rival(
        &self,
        journal: Option<&OperationJournal>,
        last: &ReleaseRecord,
    ) -> Option<(Option<ObjectKey>, String)> {
        let object = self.book.object();
        let uid = journal.map(|journal| journal.owner.as_str());
        let is_own = uid.is_some_and(|uid| object.uid().as_deref() == Some(uid));
        if (uid.is_none() || is_own)
            && let Some(other) = self.namesake_of(journal, last)
        {
            let text = format!(
                "releases {other} and {} are one, because both contexts name one cluster: remove one of them from the \
                 helmfile",
                self.key
            );
            return Some((None, text));
        }
        if is_own {
            // The context was renamed, and the new release takes over the one that left the helmfile.
            return None;
        }
        let node = release_runner::release_conflict::holder(
            &self.book.context,
            &node_of(&*object),
            uid,
            last,
        )?;
        let text = format!(
            "release {} belongs to {} {}; give it another name or namespace in the helmfile, or remove it there",
            last.full_name(),
            node.kind,
            node.namespaced_name()
        );
        Some((Some(node), text))
    }

    async fn before(
        &self,
        target: &ClusterTarget,
        permit: &RunPermit,
        desired: &ReleaseDesiredState,
    ) -> Result<Option<String>, RunOutcome> {
        Ok(
            match self
                .apply_hooks(&[ManifestHookTime::Before], target, permit, desired, &[])
                .await?
            {
                HookApplyOutcome::Refused(text) => Some(text),
                // The executor checks itself whether the run was overtaken.
                HookApplyOutcome::Overtaken => None,
                HookApplyOutcome::Applied => {
                    self.has_begun.store(true, Ordering::Relaxed);
                    None
                }
            },
        )
    }

    fn prepares(&self) -> bool {
        self.hooks.all.iter().any(|hook| hook.when == ManifestHookTime::Before)
    }

    fn deletion_limit(&self) -> Option<String> {
        self.book.object().annotations().get(DELETION_BUDGET).cloned()
    }

    fn plan_mode(&self) -> Option<String> {
        self.book.object().annotations().get(PLAN_MODE).cloned()
    }

    fn own_hooks(&self) -> OwnerHooks {
        let PlannedChanges { objects, hooks: names, .. } = hook_changes(&self.hooks, &self.secrets);
        OwnerHooks { names, objects, digest: self.hooks.digest.clone() }
    }

    fn reference(&self) -> Option<OwnerReference> {
        self.book.object().owner_ref(&())
    }

    fn announce(&self, event: ObjectEvent) {
        self.book.announce(placed::<K>(event, &self.key.context));
    }
}
