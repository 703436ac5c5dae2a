//! A HelmRelease as the owner of its one release: its status, and its events.
//!
//! Elsewhere: the release runner (`release_runner`), what a status says (`report`, `status`).

use std::sync::Arc;
use std::time::Duration;

use crds::ReconciledObject as _;
use crds::ResourceInventory;
use crds::helm::{HelmRelease, HelmReleaseStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube_core::{Resource as _, ResourceExt as _};
use parking_lot::Mutex;
use reconcile::{ObjectKey, Outcome, Wake};
use release::status::{self as words, Event as ReleaseEvent, ReleaseStatus, Report};
use release::{Journal, Record, ReleaseDesiredState};

use super::{OWNERSHIP, report, status};
use crate::release_runner::{self, Owner};
use windlass_cluster::events::Event;
use windlass_runtime::context::Context;
use windlass_runtime::object_watcher::Ownership;
use windlass_runtime::record::{Latest, status_of};
use windlass_runtime::{hold, hold_conditions};

/// The annotation by which the objects of a release get an owner reference to their HelmRelease: `true`.
const OWNER_REFERENCES: &str = "release.windlass.dev/owner-references";

/// When a status is written again that could not be written.
const STATUS_RETRY_DELAY: Duration = Duration::from_secs(2);

/// A status that the next write brings along. How a release ended is mostly all that there is to say of a run, so that one
/// write says both; the journal has it until then.
pub(crate) struct PendingStatus {
    /// The status as the cluster has it.
    pub(super) before: HelmReleaseStatus,
    /// The events to announce once the status is written.
    pub(super) events: Vec<ReleaseEvent>,
}

/// A HelmRelease as the owner of its one Helm release, with its status and its events.
pub(super) struct ReleaseOwner {
    context: Arc<Context>,
    node: ObjectKey,
    latest: Arc<Latest<HelmRelease>>,
    object: Mutex<Arc<HelmRelease>>,
    held: Mutex<Option<PendingStatus>>,
}

impl ReleaseOwner {
    pub(super) fn new(
        context: Arc<Context>,
        node: ObjectKey,
        latest: Arc<Latest<HelmRelease>>,
        object: Arc<HelmRelease>,
    ) -> Self {
        let object = Mutex::new(object);
        let held = Mutex::default();
        Self { context, node, latest, object, held }
    }

    /// The HelmRelease as our last write left it.
    pub(super) fn object(&self) -> Arc<HelmRelease> {
        self.object.lock().clone()
    }

    fn set_object(&self, object: Arc<HelmRelease>) {
        *self.object.lock() = object;
    }

    /// What the end of the run has to write besides its own.
    pub(super) fn held(&self) -> Option<PendingStatus> {
        self.held.lock().take()
    }

    async fn write(
        &self,
        object: &Arc<HelmRelease>,
        held: PendingStatus,
        after: &HelmReleaseStatus,
    ) -> Result<(), Outcome> {
        let written = self.latest.write_status(&self.context, object, &held.before, after).await;
        let failed = |error: windlass_cluster::ClusterError| {
            let soon = jiff::Timestamp::now()
                .saturating_add(STATUS_RETRY_DELAY)
                .unwrap_or(reconcile::Time::MAX);
            Outcome::Failed(words::RECONCILE_ERROR, error.to_string(), Wake::at(soon))
        };
        match written.map_err(failed)? {
            Some(object) => self.set_object(object),
            // The HelmRelease is gone for good, so nothing may be done in its name any more.
            None => {
                let text = "the HelmRelease was deleted".to_owned();
                return Err(Outcome::Stalled(words::RECONCILE_ERROR, text));
            }
        }
        for event in held.events.iter().map(report::event) {
            self.announce(event);
        }
        Ok(())
    }
}

impl Owner for ReleaseOwner {
    const KIND: &'static str = "HelmRelease";
    const OWNERSHIP: Ownership = OWNERSHIP;

    fn status(&self) -> ReleaseStatus {
        status::read(&self.object())
    }

    async fn tell(
        &self,
        release_report: &Report,
        inventory: Option<ResourceInventory>,
        desired: &ReleaseDesiredState,
    ) -> Result<(), Outcome> {
        let object = self.object();
        let now = jiff::Timestamp::now();
        let (before, after) = report::progress(&object, release_report, inventory, desired, now)?;
        let held = self.held().unwrap_or(PendingStatus { before, events: Vec::new() });
        let events = held.events.into_iter().chain(release_report.events.iter().cloned()).collect();
        let held = PendingStatus { before: held.before, events };
        if release_report.ended.is_some() {
            let object = HelmRelease { status: Some(after), ..HelmRelease::clone(&object) };
            self.set_object(Arc::new(object));
            *self.held.lock() = Some(held);
            return Ok(());
        }
        self.write(&object, held, &after).await
    }

    async fn settle(&self) -> Result<(), Outcome> {
        let Some(held) = self.held() else { return Ok(()) };
        let object = self.object();
        self.write(&object, held, &status_of(&*object)).await
    }

    fn is_overtaken(&self, desired: &ReleaseDesiredState) -> bool {
        let ObjectKey { namespace, name, .. } = &self.node;
        let Some(now) = self.context.seen::<HelmRelease>(namespace, name) else { return false };
        let is_deleted = now.meta().deletion_timestamp.is_some();
        let is_suspended = hold::is_suspended(&*now, jiff::Timestamp::now());
        // The watch may lag behind what the run began with, but not be of another generation and older.
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
        journal: Option<&Journal>,
        last: &Record,
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

    fn reference(&self) -> Option<OwnerReference> {
        self.object().owner_ref(&())
    }

    fn is_to_own(&self) -> bool {
        self.object().annotations().get(OWNER_REFERENCES).is_some_and(|it| it == "true")
    }

    fn announce(&self, event: Event) {
        let object = self.object();
        report::log(&object, &event);
        self.context.events.announce(&*object, HelmRelease::CONTROLLER, event);
    }
}
