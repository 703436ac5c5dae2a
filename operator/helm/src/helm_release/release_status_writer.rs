//! A HelmRelease as the owner of its one release: its status, and its events.
//!
//! Elsewhere: the release runner (`release_runner`), the content of a status (`report`, `status`).

use std::sync::Arc;

use crds::ReconciledObject as _;
use crds::ResourceInventory;
use crds::helm::{HelmRelease, HelmReleaseStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube_core::{Resource as _, ResourceExt as _};
use parking_lot::Mutex;
use reconcile::{ObjectKey, RunOutcome};
use release::status::{HelmReleaseStatusFields, ReleaseEvent, ReleaseReport};
use release::{OperationJournal, ReleaseDesiredState, ReleaseRecord};

use super::{OWNERSHIP, report, status};
use crate::release_runner::{self, ReleaseStatusOwner};
use windlass_cluster::events::ObjectEvent;
use windlass_cluster::object_watcher::OwnershipMarks;
use windlass_runtime::approval_plan::DELETION_BUDGET;
use windlass_runtime::approval_plan::change_approval::PLAN_MODE;
use windlass_runtime::object_status::{LatestWrittenObject, status_of};
use windlass_runtime::run_context::RunContext;
use windlass_runtime::{hold_conditions, object_hold};

/// The annotation that gives the objects of a release an owner reference to their HelmRelease. Its value is `true`.
const OWNER_REFERENCES: &str = "release.windlass.dev/owner-references";

/// A status that waits for the next write. A run often has nothing else to write than the end of its release, so that one
/// write is enough for both. The journal keeps the end until then.
pub(crate) struct DeferredStatusWrite {
    /// The status as it was decided.
    pub(super) status: HelmReleaseStatus,
    /// The events to announce once the status is written.
    pub(super) events: Vec<ReleaseEvent>,
}

/// A HelmRelease as the owner of its one Helm release, with its status and its events.
pub(super) struct HelmReleaseOwner {
    context: Arc<RunContext>,
    node: ObjectKey,
    latest: Arc<LatestWrittenObject<HelmRelease>>,
    state: Mutex<HelmReleaseOwnerState>,
}

struct HelmReleaseOwnerState {
    /// The HelmRelease as our last write left it.
    object: Arc<HelmRelease>,
    pending: Option<DeferredStatusWrite>,
}

impl HelmReleaseOwner {
    pub(super) fn new(
        context: Arc<RunContext>,
        node: ObjectKey,
        latest: Arc<LatestWrittenObject<HelmRelease>>,
        object: Arc<HelmRelease>,
    ) -> Self {
        let state = Mutex::new(HelmReleaseOwnerState { object, pending: None });
        Self { context, node, latest, state }
    }

    /// The HelmRelease as our last write left it.
    pub(super) fn object(&self) -> Arc<HelmRelease> {
        self.state.lock().object.clone()
    }

    /// The status that the end of the run has to write besides its own.
    pub(super) fn take_pending(&self) -> Option<DeferredStatusWrite> {
        self.state.lock().pending.take()
    }

    /// The decided status, whether or not it is written yet.
    fn decided(&self) -> HelmReleaseStatus {
        let state = self.state.lock();
        let pending = state.pending.as_ref().map(|it| it.status.clone());
        pending.unwrap_or_else(|| status_of(&*state.object))
    }
}

impl ReleaseStatusOwner for HelmReleaseOwner {
    const KIND: &'static str = "HelmRelease";
    const OWNERSHIP: OwnershipMarks = OWNERSHIP;

    fn status(&self) -> HelmReleaseStatusFields {
        status::of(self.decided())
    }

    async fn tell(
        &self,
        release_report: &ReleaseReport,
        inventory: Option<ResourceInventory>,
        desired: &ReleaseDesiredState,
    ) -> Result<(), RunOutcome> {
        let now = jiff::Timestamp::now();
        let status = report::progress(&self.decided(), release_report, inventory, desired, now)?;
        if release_report.events.iter().any(|event| event.warning) {
            // The end of the run need not report the same failure.
            self.context.note_announced_failure(&self.node);
        }
        let mut events = self.take_pending().map(|it| it.events).unwrap_or_default();
        events.extend_from_slice(&release_report.events);
        self.state.lock().pending = Some(DeferredStatusWrite { status, events });
        if release_report.ended.is_some() { Ok(()) } else { self.settle().await }
    }

    async fn settle(&self) -> Result<(), RunOutcome> {
        let Some(DeferredStatusWrite { status, events }) = self.take_pending() else {
            return Ok(());
        };
        let object = self.object();
        let before = status_of(&*object);
        let written =
            release_runner::write_status(&self.context, &self.latest, &object, &before, &status);
        let written = written.await?;
        self.state.lock().object = written;
        for event in events.iter().map(report::event::<HelmRelease>) {
            self.announce(event);
        }
        Ok(())
    }

    fn is_overtaken(&self, desired: &ReleaseDesiredState) -> bool {
        let ObjectKey { namespace, name, .. } = &self.node;
        let Some(now) = self.context.seen::<HelmRelease>(namespace, name) else { return false };
        let is_deleted = now.meta().deletion_timestamp.is_some();
        let is_suspended = object_hold::is_suspended(&*now, jiff::Timestamp::now());
        // The watch may lag behind the object with which the run began. But an object of another generation in the watch is
        // not older.
        let is_newer = now.meta().generation.unwrap_or_default() > desired.generation;
        now.uid().unwrap_or_default() == desired.owner
            && (is_newer
                || (is_deleted && !desired.deleted)
                || (is_suspended && !desired.suspended && !desired.deleted))
    }

    fn is_asked(&self) -> bool {
        hold_conditions::is_asked(&*self.object())
    }

    fn rival(
        &self,
        journal: Option<&OperationJournal>,
        last: &ReleaseRecord,
    ) -> Option<(Option<ObjectKey>, String)> {
        let uid = journal.map(|journal| journal.owner.as_str());
        let node = release_runner::release_conflict::holder(&self.context, &self.node, uid, last)?;
        let text = format!(
            "release {} belongs to {} {}; set another spec.releaseName or spec.targetNamespace in this one, or remove \
             it there",
            last.full_name(),
            node.kind,
            node.namespaced_name()
        );
        Some((Some(node), text))
    }

    fn deletion_limit(&self) -> Option<String> {
        self.object().annotations().get(DELETION_BUDGET).cloned()
    }

    fn plan_mode(&self) -> Option<String> {
        self.object().annotations().get(PLAN_MODE).cloned()
    }

    fn reference(&self) -> Option<OwnerReference> {
        self.object().owner_ref(&())
    }

    fn is_to_own(&self) -> bool {
        self.object().annotations().get(OWNER_REFERENCES).is_some_and(|it| it == "true")
    }

    fn announce(&self, event: ObjectEvent) {
        let object = self.object();
        report::log(&object, &event);
        self.context.events.announce(&*object, HelmRelease::CONTROLLER, event);
    }
}
