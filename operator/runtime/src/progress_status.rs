//! Reports the progress of a run in the status of the object.
//!
//! A write costs a request, so only long phases are reported. The status is for users and tools that watch conditions.
//! windlass never reads it back.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crds::{ObjectStatus as _, ReconciledObject};
use kube_core::ResourceExt as _;
use reconcile::{StatusConditions, Time, condition_reason};

use super::object_status::{LatestWrittenObject, conditions_of, listed, status_of};
use super::run_context::RunContext;
use windlass_cluster::windlass_kind::WindlassKind;

/// How long a phase may take before the status reports it.
const PROGRESS_REPORT_DELAY: Duration = Duration::from_secs(2);

/// Does the work of a phase, and runs `tell` at the same time if the work takes long.
pub async fn telling<T>(work: impl Future<Output = T>, tell: impl Future<Output = ()>) -> T {
    telling_after(tokio::time::sleep(PROGRESS_REPORT_DELAY), work, tell).await
}

async fn telling_after<T>(
    patience: impl Future<Output = ()>,
    work: impl Future<Output = T>,
    tell: impl Future<Output = ()>,
) -> T {
    let mut work = pin!(work);
    tokio::select! {
        biased;
        done = &mut work => done,
        () = patience => tokio::join!(work, tell).0,
    }
}

/// Writes the current phase to the status of an object. The run continues even if the write fails.
pub async fn tell<K: WindlassKind + ReconciledObject>(
    context: &RunContext,
    latest: &LatestWrittenObject<K>,
    object: &Arc<K>,
    text: &str,
) {
    let object = latest.begun(object);
    let (before, after) = phase(&*object, text, jiff::Timestamp::now());
    if let Err(error) = latest.write_status(context, &object, &before, &after).await {
        let name = object.name_any();
        let namespace = object.namespace().unwrap_or_default();
        tracing::debug!(controller_kind = %K::kind(&()), name, namespace, error = %error,
            "failed to write progress to the status");
    }
}

/// The status before and after. `Reconciling` and `Ready` name the phase, and all other conditions stay.
fn phase<K: WindlassKind + ReconciledObject>(
    object: &K,
    text: &str,
    now: Time,
) -> (K::Status, K::Status) {
    let before = status_of(object);
    let had = conditions_of(before.conditions());
    let generation = object.meta().generation.unwrap_or_default();
    let conditions = StatusConditions::since(&had, generation, now, &[]);
    let mut after = before.clone();
    after.set_conditions(listed(conditions.finish_progress(condition_reason::PROGRESSING, text)));
    (before, after)
}

/// Whether `Ready` shows the result for the current spec.
///
/// Differs(flux): a repetition, be it at the interval or of what failed, leaves `Ready` as it is until it has ended, so
/// that an attempt neither raises nor ends an alarm.
pub fn is_decided<K: WindlassKind + ReconciledObject>(object: &K) -> bool {
    object.condition("Ready").is_some_and(|ready| {
        ready.status != "Unknown" && ready.observed_generation == object.meta().generation
    })
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use crds::source::GitRepository;
    use serde_json::json;
    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn only_a_phase_that_takes_long_is_reported_and_once() {
        let count = AtomicUsize::new(0);
        let tell = async || {
            count.fetch_add(1, Ordering::Relaxed);
        };
        assert_eq!(telling_after(pending(), async { 1 }, tell()).await, 1);
        assert_eq!(
            telling_after(
                pending(),
                async {
                    yield_now().await;
                    2
                },
                tell()
            )
            .await,
            2
        );
        assert_eq!(count.load(Ordering::Relaxed), 0);
        // The work continues while the status is written, even if the API server is slow.
        let (done, waits) = tokio::sync::oneshot::channel();
        let work = async {
            yield_now().await;
            done.send(()).is_ok()
        };
        let slow = async {
            drop(waits.await);
            tell().await;
        };
        assert!(telling_after(ready(()), work, slow).await);
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_phase_is_named_and_everything_else_stays() {
        let condition = |kind: &str, status: &str| {
            json!({"type": kind, "status": status, "reason": "Succeeded", "message": "",
                "observedGeneration": 1, "lastTransitionTime": "2026-11-01T00:00:00Z"})
        };
        let object: GitRepository = serde_json::from_value(json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": {"name": "app", "generation": 2},
            "spec": {"interval": "10m", "url": "https://git.test/app"},
            "status": {"observedGeneration": 1,
                "conditions": [condition("Ready", "True"), condition("ArtifactInStorage", "True")]},
        }))
        .unwrap();
        assert!(!is_decided(&object));
        let now = "2026-11-23T12:00:00Z".parse().unwrap();
        let (before, after) = phase(&object, "building artifact", now);
        let conditions = conditions_of(&after.conditions);
        let lines: Vec<String> =
            conditions.iter().map(|c| format!("{}={:?} {}", c.kind, c.status, c.message)).collect();
        assert_eq!(
            lines,
            [
                "Reconciling=True building artifact",
                "Ready=Unknown building artifact",
                "ArtifactInStorage=True ",
            ]
        );
        assert_eq!(after.observed_generation, before.observed_generation);
    }
}
