//! Notes each status with `Ready=False`, and compares the times with those of faults.
//!
//! A watch of its own, which no fault disturbs, sees the statuses that windlass writes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use e2e::cluster_with_operator::{ObjectWatch, WatchSelection, WatchedObject};
use kube::Client;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::AbortHandle;

/// How long the watch may see no change. It is longer than any soak test.
const LONGEST_SILENCE: Duration = Duration::from_secs(24 * 3600);

/// How far the clocks of a fault and of a status may differ.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(1);

/// How many objects an error names.
const MAX_SHOWN_OBJECTS: usize = 10;

/// The time of a fault.
#[derive(Debug, Clone, Copy)]
pub(super) struct FaultInterval {
    pub(super) begun: Instant,
    pub(super) ended: Instant,
}

impl FaultInterval {
    fn has(&self, at: Instant, slack: Duration) -> bool {
        at + CLOCK_TOLERANCE >= self.begun && at <= self.ended + slack
    }
}

/// A status of an object that says `Ready=False`, and when it was seen.
#[derive(Debug, Clone)]
struct UnreadyStatus {
    at: Instant,
    /// The kind and the name of the object, and the condition.
    text: String,
}

#[derive(Debug, Default)]
struct SeenStatuses {
    unready: Vec<UnreadyStatus>,
    /// Why the watch ended.
    ended: Option<String>,
}

/// The statuses with `Ready=False` since the begin. The watch ends when this is dropped.
pub(super) struct UnreadyObjects {
    seen: Arc<Mutex<SeenStatuses>>,
    task: AbortHandle,
}

impl Drop for UnreadyObjects {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The condition `Ready` of an object, if it is `False`. Otherwise `None`.
fn unready(seen: &WatchedObject) -> Option<UnreadyStatus> {
    let conditions = seen.value("/status/conditions").as_array().filter(|_| seen.exists)?;
    let is_unready = |it: &&Value| it["type"] == "Ready" && it["status"] == "False";
    let ready = conditions.iter().find(is_unready)?;
    Some(UnreadyStatus { at: seen.at, text: format!("{} {}: {ready}", seen.kind, seen.name) })
}

impl UnreadyObjects {
    /// Watches the Kustomizations and GitRepositories of a namespace, which are ready now.
    ///
    /// # Errors
    /// The watch does not open.
    pub(super) async fn watch(client: &Client, namespace: &str) -> anyhow::Result<Self> {
        let kinds = [
            WatchSelection::of("kustomize.toolkit.fluxcd.io/v1", "Kustomization").within(namespace),
            WatchSelection::of("source.toolkit.fluxcd.io/v1", "GitRepository").within(namespace),
        ];
        let mut watch = ObjectWatch::begin(client, &kinds).await?;
        watch.forget();
        let seen = Arc::<Mutex<SeenStatuses>>::default();
        let shared = seen.clone();
        let follow = async move {
            loop {
                match watch.next("a status", Instant::now() + LONGEST_SILENCE).await {
                    Ok(object) => shared.lock().unready.extend(unready(&object)),
                    Err(error) => {
                        shared.lock().ended = Some(format!("{error:#}"));
                        return;
                    }
                }
            }
        };
        Ok(Self { seen, task: tokio::spawn(follow).abort_handle() })
    }

    /// How many statuses had `Ready=False`.
    pub(super) fn count(&self) -> usize {
        self.seen.lock().unready.len()
    }

    /// Fails if an object was not ready at a time that is in no fault, nor within `slack` after one.
    ///
    /// # Errors
    /// The first of these objects, or that the watch has ended.
    pub(super) fn judge(&self, faults: &[FaultInterval], slack: Duration) -> anyhow::Result<()> {
        let seen = self.seen.lock();
        if let Some(ended) = &seen.ended {
            bail!("the statuses are not seen any more: {ended}");
        }
        let wrong = outside(&seen.unready, faults, slack);
        if wrong.is_empty() {
            return Ok(());
        }
        let shown: Vec<&str> = wrong.iter().take(MAX_SHOWN_OBJECTS).copied().collect();
        bail!(
            "{} statuses had Ready=False while the API server had no fault:\n{}",
            wrong.len(),
            shown.join("\n")
        )
    }
}

/// The statuses that are in no fault.
fn outside<'s>(
    statuses: &'s [UnreadyStatus],
    faults: &[FaultInterval],
    slack: Duration,
) -> Vec<&'s str> {
    let is_excused = |at: Instant| faults.iter().any(|fault| fault.has(at, slack));
    let wrong = statuses.iter().filter(|it| !is_excused(it.at));
    wrong.map(|it| it.text.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_excused_in_a_fault_and_shortly_after_it() {
        let start = Instant::now();
        let at = |second: u64| start + Duration::from_secs(second);
        let faults = [
            FaultInterval { begun: at(100), ended: at(160) },
            FaultInterval { begun: at(300), ended: at(310) },
        ];
        let slack = Duration::from_secs(45);
        for (second, is_excused) in [
            (98, false),
            (100, true),
            (160, true),
            (205, true),
            (206, false),
            (298, false),
            (355, true),
            (356, false),
        ] {
            let status = UnreadyStatus { at: at(second), text: "Kustomization a".to_owned() };
            let wrong = outside(std::slice::from_ref(&status), &faults, slack);
            assert_eq!(wrong.is_empty(), is_excused, "second {second}");
        }
    }
}
