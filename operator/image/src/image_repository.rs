//! The kind ImageRepository: windlass lists the tags of an image at an interval.
//!
//! Here: its run. In the folder: listing tags (`scan`). Elsewhere: whether a scan is due, and its result in the status (engine
//! `image`), the tags themselves (`tag_store`).

mod scan;

use std::sync::Arc;
use std::time::Duration;

use crds::image::ImageRepository;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube_core::Resource as _;
use parking_lot::Mutex;
use reconcile::ObjectKey;
use windlass_cluster::ClusterError;
use windlass_cluster::object_store::StateCache;
use windlass_cluster::throttled_requests::{ThrottledRequests, ThrottledRunBackoff};
use windlass_runtime::controller_kind::{ControllerKind, log_failed_request, node_of};
use windlass_runtime::object_status::LatestWrittenObject;
use windlass_runtime::run_context::RunContext;

use self::scan::{ScanRun, ScanRunResult};
use crate::image_kind_run::{
    SuspendedReconcileRequest, begin, next_run, publish, report, retry_after_refusal,
};
use crate::{registry_access, tag_store};

/// The state of an ImageRepository that this process keeps between runs.
#[derive(Default)]
pub struct ImageRepositoryState {
    latest: Arc<LatestWrittenObject<ImageRepository>>,
    /// Runs in a row that failed, for the growing delay.
    failures: u32,
    /// Runs in a row that the API server throttled.
    throttled_run_backoff: ThrottledRunBackoff,
}

/// Runs ImageRepositories.
pub struct ImageRepositoryController;

impl ControllerKind for ImageRepositoryController {
    type Object = ImageRepository;

    type ControllerState = ImageRepositoryState;

    fn unsupported(object: &ImageRepository) -> Vec<&'static str> {
        registry_access::unsupported(&object.spec)
    }

    /// Policies depend on the tags, and on who may have them.
    ///
    /// Differs(flux): there a policy is not woken when the image changes and its tags do not.
    fn announcement(object: &ImageRepository) -> String {
        let status = object.status.as_ref();
        let image = status.and_then(|it| it.canonical_image_name.as_deref());
        let scanned = status.and_then(|it| it.last_scan_result.as_ref());
        let revision = scanned.and_then(|it| it.revision.as_deref());
        format!("{:?} {image:?} {revision:?}", object.metadata.generation)
    }

    fn run(
        object: Arc<ImageRepository>,
        context: Arc<RunContext>,
    ) -> BoxFuture<'static, Option<Duration>> {
        async move { run(object, &context).await }.boxed()
    }
}

/// One run. Returns the time until the next run.
async fn run(seen: Arc<ImageRepository>, context: &Arc<RunContext>) -> Option<Duration> {
    let node = node_of(&*seen);
    let memory = context.shared::<StateCache<ImageRepositoryState>>().of(&node);
    let latest = memory.lock().latest.clone();
    let object = latest.or_seen(seen);
    let is_deleted = object.meta().deletion_timestamp.is_some();
    let outcome = if is_deleted {
        delete(context, &latest, &object).await
    } else {
        let attempt = attempt(context, &node, &memory, &latest, &object);
        let requests = ThrottledRequests::of_namespace(&node.namespace);
        requests.watch(Box::pin(attempt)).await
    };
    outcome.unwrap_or_else(|error| {
        log_failed_request(&node, &error);
        Some(retry_after_refusal(&context.settings, is_deleted, &mut memory.lock().failures))
    })
}

/// Handles the deletion of the object: deletes its tags, then removes windlass's finalizer.
async fn delete(
    context: &RunContext,
    latest: &LatestWrittenObject<ImageRepository>,
    object: &Arc<ImageRepository>,
) -> Result<Option<Duration>, ClusterError> {
    let store = context.artifacts.clone();
    let slot = tag_store::slot(object);
    let remove = move || slot.and_then(|slot| store.remove(&slot));
    if let Ok(Err(error)) = tokio::task::spawn_blocking(remove).await {
        let node = node_of(&**object);
        tracing::error!(
            name = node.name,
            namespace = node.namespace,
            error = %error,
            "failed to remove the tags of an image"
        );
    }
    latest.set_finalizer(context, object, false).await?;
    Ok(None)
}

async fn attempt(
    context: &Arc<RunContext>,
    node: &ObjectKey,
    memory: &Mutex<ImageRepositoryState>,
    latest: &LatestWrittenObject<ImageRepository>,
    object: &Arc<ImageRepository>,
) -> Result<Option<Duration>, ClusterError> {
    let begun = begin(context, latest, object, SuspendedReconcileRequest::Answered).await?;
    let Some(object) = begun else {
        // Earlier retries do not count after the object is resumed.
        memory.lock().throttled_run_backoff = ThrottledRunBackoff::default();
        return Ok(None);
    };
    let scanning = ScanRun { context, node, latest, object: &object };
    let (found, settled, outcome) = match scanning.run().await {
        Ok(ScanRunResult::Done { found, interval }) => {
            let outcome = found.outcome();
            (Some(found), Some(interval), outcome)
        }
        Ok(ScanRunResult::NotDue { outcome, wait }) => (None, Some(wait), outcome),
        Err(outcome) => (None, None, outcome),
    };
    let postponed = memory.lock().throttled_run_backoff.postpone(&*object, &outcome);
    if let (None, Some(delay)) = (&found, postponed) {
        return Ok(Some(delay));
    }
    let again = next_run(&context.settings, &outcome, settled, &mut memory.lock().failures);
    // The status contains the progress messages of the scan by now.
    let object = latest.begun(&object);
    let announcement = context.failure_announcement(node);
    let now = jiff::Timestamp::now();
    let report = report(&*object, &outcome, announcement, now, |status| {
        if let Some(found) = found {
            found.show(status);
        }
    });
    publish(context, latest, &object, report).await?;
    Ok(again)
}

#[cfg(test)]
mod tests {
    use reconcile::{NextRunTrigger, RunOutcome, condition_reason};
    use serde_json::{Value, json};
    use sources::source_condition_reasons::READ_OPERATION_FAILED;
    use windlass_cluster::announced_failures::FailureAnnouncement;
    use windlass_cluster::events::EventSeverity;

    use super::*;

    fn repository(status: &Value) -> ImageRepository {
        serde_json::from_value(json!({
            "metadata": {"name": "app", "namespace": "apps", "generation": 2,
                "annotations": {"reconcile.fluxcd.io/requestedAt": "now"}},
            "spec": {"image": "ghcr.io/acme/app", "interval": "5m"},
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn a_failed_scan_leaves_what_the_last_one_found() {
        let scanned = json!({"observedGeneration": 1, "canonicalImageName": "ghcr.io/acme/app",
            "lastScanResult": {"revision": "1", "tagCount": 2}});
        let object = repository(&scanned);
        let now = "2026-11-24T10:00:00Z".parse().unwrap();
        let text = "scan failed: 429".to_owned();
        let failed =
            RunOutcome::Failed(READ_OPERATION_FAILED, text.clone(), NextRunTrigger::default());
        let announced = FailureAnnouncement::Made;
        let reported = report(&object, &failed, announced, now, |_| {});
        assert_eq!(reported.after.last_scan_result, reported.before.last_scan_result);
        assert_eq!(reported.after.observed_generation, Some(1));
        assert_eq!(reported.after.last_handled_reconcile_at.as_deref(), Some("now"));
        let event = reported.event.unwrap();
        assert_eq!((event.severity, event.message), (EventSeverity::Error, text));
        // A failure that lasts is reported once.
        let again = repository(&json!(reported.after));
        assert_eq!(report(&again, &failed, announced, now, |_| {}).event, None);
        // The process that reported it may have ended before it sent the event.
        let sent_again = report(&again, &failed, FailureAnnouncement::Due, now, |_| {}).event;
        assert_eq!(sent_again.map(|event| event.severity), Some(EventSeverity::Error));
        // That a registry asks for more time is the same failure, and another refusal is not.
        let refused = |text: &str, wake: NextRunTrigger| {
            let outcome = RunOutcome::Failed(READ_OPERATION_FAILED, text.to_owned(), wake);
            report(&again, &outcome, announced, now, |_| {})
        };
        let paused = refused("scan failed: next request at 11:00", NextRunTrigger::at(now));
        assert_eq!(paused.event, None);
        assert_ne!(paused.before, paused.after, "the status has the time");
        assert!(refused("scan failed: 404", NextRunTrigger::default()).event.is_some());
        let settled =
            RunOutcome::Settled(condition_reason::SUCCEEDED, "successful scan".to_owned());
        let reported = report(&again, &settled, announced, now, |_| {});
        assert_eq!(reported.after.observed_generation, Some(2));
        assert_eq!(reported.event.map(|event| event.severity), Some(EventSeverity::Info));
    }

    #[test]
    fn policies_are_woken_by_other_tags_another_image_and_another_spec_only() {
        let announced =
            |status: &Value| ImageRepositoryController::announcement(&repository(status));
        let scanned = json!({"canonicalImageName": "a",
            "lastScanResult": {"revision": "1", "tagCount": 1, "scanTime": "2026-11-24T10:00:00Z"}});
        let mut later = scanned.clone();
        later["lastScanResult"]["scanTime"] = json!("2026-11-24T11:00:00Z");
        assert_eq!(announced(&scanned), announced(&later));
        later["lastScanResult"]["revision"] = json!("2");
        assert_ne!(announced(&scanned), announced(&later));
        let mut other = scanned.clone();
        other["canonicalImageName"] = json!("b");
        assert_ne!(announced(&scanned), announced(&other));
        let mut edited = repository(&scanned);
        edited.metadata.generation = Some(3);
        assert_ne!(announced(&scanned), ImageRepositoryController::announcement(&edited));
    }
}
