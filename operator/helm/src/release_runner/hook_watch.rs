//! Watches the object of a hook, from before windlass creates it until the operation goes on. Windlass therefore learns how a
//! hook ended even if the object is deleted before a run observes it, as with a Job with `ttlSecondsAfterFinished: 0`.
//!
//! The watch is a task of its own and delays no run. It uses windlass's own rights and not the tenant's. It takes note only of
//! an object that carries the mark of this operation, which a request in the tenant's name created.
//! Elsewhere: what a run does when a hook ends (`hooks`, engine `release`).

use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use objects::Object;
use parking_lot::{Mutex, MutexGuard};
use reconcile::ObjectKey;
use release::journal::HOOK_ANNOTATION;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::manifest_objects::ManifestObject;
use windlass_cluster::metrics::WakeReason;
use windlass_cluster::object_decode::FullObject;
use windlass_cluster::watch::WatcherEvent as Event;
use windlass_cluster::work_queue::WorkQueue;
use windlass_cluster::{ClusterConnection, ClusterError};

/// The longest time for which the creation of a hook waits for the first list of the watch.
const LISTED_WITHIN: Duration = Duration::from_secs(10);

/// The state of the object of a hook that a watch has seen.
#[derive(Debug, Clone, Default)]
pub(super) struct HookObservation {
    /// The object as it was seen last, with its status.
    pub(super) object: Option<Object>,
    /// Whether the object was deleted.
    pub(super) is_gone: bool,
    /// Whether the watch has completed a list.
    listed: bool,
    /// Whether the object could have been created and deleted unseen, because the watch had to list again.
    has_gap: bool,
    /// Whether the watch ended or could not begin.
    broken: bool,
}

impl HookObservation {
    fn saw(&mut self, object: Object, is_gone: bool) {
        self.object = Some(object);
        self.is_gone = is_gone;
    }

    /// Notes that a list begins.
    fn lists(&mut self) {
        self.has_gap |= self.listed;
    }

    /// Notes that a list ended, with or without the object.
    fn has_listed(&mut self, is_there: bool) {
        self.listed = true;
        self.is_gone = self.object.is_some() && !is_there;
    }
}

type HookWatchState = Arc<(Mutex<HookObservation>, Notify)>;

fn locked(shared: &HookWatchState) -> MutexGuard<'_, HookObservation> {
    shared.0.lock()
}

/// The hook that is due.
pub(super) struct DueHook {
    pub(super) operation: String,
    /// The place of the hook in the record.
    pub(super) place: usize,
    /// Whether the journal noted its beginning before the watch began.
    pub(super) is_noted: bool,
    /// Whether the hook ends some time after its creation.
    pub(super) follows: bool,
}

/// Watches the object of the hook that is due. The watch records how the hook ended even if its object is deleted at once. It
/// stops when it is dropped.
pub(super) struct HookWatch {
    hook: DueHook,
    shared: HookWatchState,
    /// The task of the watch; `None` for a hook that ends with its creation.
    task: Option<AbortHandle>,
}

impl Drop for HookWatch {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl HookWatch {
    /// Begins to watch the object of a hook, unless the hook ends with its creation or its kind cannot be watched.
    pub(super) fn begin(
        cluster: &ClusterConnection,
        work_queue: Arc<WorkQueue>,
        node: &ObjectKey,
        member: &ManifestObject,
        hook: DueHook,
    ) -> Self {
        let shared = HookWatchState::default();
        let task = (hook.follows && member.resource.watchable).then(|| {
            let namespace = &member.id.namespace;
            let name = &member.id.name;
            let events = cluster.watch_object(&member.resource, namespace, name);
            let node = node.clone();
            let operation = hook.operation.clone();
            let shared = shared.clone();
            let api_version = member.object.api_version().to_owned();
            let kind = member.id.kind.clone();
            let read = move |object| understood(object, &api_version, &kind, &operation);
            tokio::spawn(follow(events, read, shared, move || {
                work_queue.wake(&node, WakeReason::Waiting);
            }))
            .abort_handle()
        });
        Self { hook, shared, task }
    }

    /// Whether the watch is about this hook of this operation.
    pub(super) fn is_of(&self, operation: &str, place: usize) -> bool {
        self.hook.operation == operation && self.hook.place == place
    }

    /// Waits for the first list, so that the watch sees every object that is created afterwards.
    pub(super) async fn began(&self) {
        if self.task.is_none() {
            return;
        }
        let listed = async {
            loop {
                let change = self.shared.1.notified();
                if self.has_begun() {
                    return;
                }
                change.await;
            }
        };
        // If the list does not come, the hook is run all the same, but its end may not be seen.
        tokio::time::timeout(LISTED_WITHIN, listed).await.ok();
    }

    fn has_begun(&self) -> bool {
        let seen = locked(&self.shared);
        seen.listed || seen.broken
    }

    /// The state that the watch has seen so far.
    pub(super) fn seen(&self) -> HookObservation {
        locked(&self.shared).clone()
    }

    /// Whether the watch has seen every change of the object since the journal noted the beginning of the hook.
    pub(super) fn is_whole(&self) -> bool {
        let seen = locked(&self.shared);
        self.task.is_some() && !self.hook.is_noted && seen.listed && !seen.has_gap
    }

    /// Whether the watch wakes the node of the release, so that no poll is needed.
    pub(super) fn wakes(&self) -> bool {
        let seen = locked(&self.shared);
        self.task.is_some() && seen.listed && !seen.broken
    }

    /// Notes the created object, unless the watch has already seen it.
    pub(super) fn created(&self, object: Object) {
        let mut seen = locked(&self.shared);
        if seen.object.is_none() {
            seen.saw(object, false);
        }
    }
}

/// The object of a watch or list, if its annotation names this operation. `None` if the annotation names another operation or
/// is missing.
fn understood(whole: FullObject, api_version: &str, kind: &str, operation: &str) -> Option<Object> {
    let mut value = whole.value?;
    // The objects of a list have no API version and kind.
    value["apiVersion"] = api_version.into();
    value["kind"] = kind.into();
    let object = Object::new(value).ok()?;
    (object.annotation(HOOK_ANNOTATION) == Some(operation)).then_some(object)
}

async fn follow(
    events: impl Stream<Item = Result<Event<FullObject>, ClusterError>>,
    read: impl Fn(FullObject) -> Option<Object>,
    shared: HookWatchState,
    wake: impl Fn(),
) {
    let mut events = std::pin::pin!(events);
    let mut is_there = false;
    while let Some(event) = events.next().await {
        let mut seen = locked(&shared);
        let is_first = !seen.listed;
        match event {
            Ok(Event::Listing) => {
                seen.lists();
                is_there = false;
            }
            Ok(Event::Listed(object)) => {
                if let Some(object) = read(object) {
                    seen.saw(object, false);
                    is_there = true;
                }
            }
            Ok(Event::ListEnded) => {
                seen.has_listed(is_there);
                seen.broken = false;
            }
            Ok(Event::Applied(object)) => {
                let Some(object) = read(object) else { continue };
                seen.saw(object, false);
            }
            Ok(Event::Deleted(object)) => {
                let Some(object) = read(object) else { continue };
                seen.saw(object, true);
            }
            // What happens meanwhile comes after it, or with another list.
            Ok(Event::Live | Event::Interrupted) => continue,
            Err(error) => {
                tracing::debug!(error = %error, "watch of a hook failed, retrying");
                seen.broken = is_first;
            }
        }
        drop(seen);
        shared.1.notify_waiters();
        if !is_first {
            wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use serde_json::json;

    use super::*;

    fn job(operation: &str, status: &str) -> FullObject {
        FullObject::of(json!({"apiVersion": "batch/v1", "kind": "Job", "metadata":
            {"name": "j", "annotations": {HOOK_ANNOTATION: operation}}, "status": {"is": status}}))
    }

    async fn after(events: Vec<Event<FullObject>>) -> HookObservation {
        let shared = HookWatchState::default();
        let read = |object| understood(object, "batch/v1", "Job", "ours");
        follow(stream::iter(events.into_iter().map(Ok)), read, shared.clone(), || {}).await;
        locked(&shared).clone()
    }

    #[tokio::test]
    async fn the_last_state_of_what_is_gone_is_known() {
        let seen = after(vec![
            Event::Listing,
            Event::ListEnded,
            Event::Applied(job("ours", "running")),
            Event::Deleted(job("ours", "done")),
        ])
        .await;
        assert!(seen.is_gone && !seen.has_gap);
        assert_eq!(seen.object.unwrap().get("status").unwrap()["is"], "done");
    }

    #[tokio::test]
    async fn what_another_operation_created_is_not_seen() {
        let seen = after(vec![
            Event::Listing,
            Event::Listed(job("theirs", "running")),
            Event::ListEnded,
            Event::Deleted(job("theirs", "done")),
        ])
        .await;
        assert!(seen.object.is_none() && !seen.is_gone);
    }

    #[tokio::test]
    async fn what_is_missing_in_a_second_list_is_gone_and_its_end_was_not_seen() {
        let seen = after(vec![
            Event::Listing,
            Event::ListEnded,
            Event::Applied(job("ours", "running")),
            Event::Listing,
            Event::ListEnded,
        ])
        .await;
        assert!(seen.is_gone && seen.has_gap);
        assert_eq!(seen.object.unwrap().get("status").unwrap()["is"], "running");
    }
}
