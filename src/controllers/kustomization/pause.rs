//! A Kustomization that may not go on now: what it would do, and where it stopped.
//!
//! Elsewhere: the questions (engine `reconcile`, `gate`), what annotations say (`controllers::window`, `hold`).

use crds::Reconciled as _;
use crds::kustomize::Kustomization;
use kube::core::Resource as _;
use reconcile::{Rest, Time, Wake, reason};

use super::{Session, report, resolve};
use crate::controllers::applier::Pending;
use crate::controllers::{hold, marks, window};

/// Why a run that began has to stop before its next step.
pub(super) fn stop(object: &Kustomization, revision: &str, retry_at: Time) -> Option<Rest> {
    if object.meta().deletion_timestamp.is_some() {
        return None;
    }
    let now = jiff::Timestamp::now();
    if hold::is_suspended(object, now) {
        let text =
            format!("suspended while applying revision {revision}, which continues on resume");
        return Some(Rest::Blocked(reason::SUSPENDED, text, Wake::at(retry_at)));
    }
    window::state(object, now)?.rest(&format!("the remainder of revision {revision}"))
}

impl Session {
    /// What a run would do if no window stood in its way.
    pub(super) async fn pending(&self, object: &Kustomization) -> Pending {
        // It is answered at once, and taken when the next window opens.
        if marks::is_asked(object) {
            self.memory().verify_at = None;
        }
        let (own, source) = (&self.node.namespace, &object.spec.source_ref);
        let artifact = resolve::artifact(&self.context, own, source, self.began).ok();
        let revision = artifact.as_ref().map(|artifact| artifact.revision.as_str());
        // What was applied is observed until it is well: that changes nothing. A step would be refused.
        if revision.is_some_and(|revision| awaits_health(object, revision)) {
            return Pending::Observing;
        }
        if is_current(object, revision) {
            return Pending::Nothing;
        }
        if let Some(artifact) = artifact.as_ref().filter(|_| is_current(object, None))
            && let Ok(files) = self.files(object, artifact).await
            && self.reads_the_same(object, &files)
        {
            return Pending::Nothing;
        }
        Pending::Change(revision.map_or_else(
            || "the next revision of its source".to_owned(),
            |revision| format!("revision {revision}"),
        ))
    }

    /// Whether the files that the last build read are the same in a tree, as far as is remembered.
    fn reads_the_same(&self, object: &Kustomization, files: &tree::Memory) -> bool {
        let memory = self.memory();
        let generation = object.meta().generation.unwrap_or_default();
        let settled = memory.settled.as_ref().filter(|settled| settled.generation == generation);
        settled.is_some_and(|settled| settled.trace.is_same_in(files))
    }
}

/// Where a run under way was when its object was suspended.
pub(super) fn where_stopped(object: &Kustomization) -> String {
    let attempted = object.status.as_ref().and_then(|it| it.last_attempted_revision.as_deref());
    // The edit that suspends it makes another generation, and the wait was of the one before.
    let is_awaiting = object.condition("Healthy").is_some_and(|it| it.status == "Unknown");
    let place = match attempted {
        Some(revision) if is_awaiting => {
            format!("while waiting for the health of revision {revision}")
        }
        Some(revision) => {
            format!("during a reconciliation; last attempted revision: {revision}")
        }
        None => "before the first revision was applied".to_owned(),
    };
    format!("suspended {place}")
}

/// Whether a revision is being waited for: all of it was applied, or a stage of it.
fn awaits_health(object: &Kustomization, revision: &str) -> bool {
    let Some(status) = object.status.as_ref() else { return false };
    let is_attempted = status.last_attempted_revision.as_deref() == Some(revision);
    let is_of_this_spec = object
        .condition("Healthy")
        .is_some_and(|it| it.observed_generation == object.meta().generation);
    is_attempted && is_of_this_spec && report::waiting(object).is_some()
}

/// Whether an object is ready, of this spec, and at a revision if one is named.
fn is_current(object: &Kustomization, revision: Option<&str>) -> bool {
    let applied = object.status.as_ref().and_then(|it| it.last_applied_revision.as_deref());
    object.condition("Ready").is_some_and(|it| it.status == "True")
        && object.observed_generation() == object.meta().generation
        && revision.is_none_or(|revision| applied == Some(revision))
}
