//! The activity of windlass at one time, by its metrics, and the wait until windlass is idle. No message and no log is
//! read.
//!
//! windlass is idle if its gauge of runs is zero, and its queues and its number of runs do not change.
//! `crate::metrics_page` reads the page.

use std::time::{Duration, Instant};

use anyhow::ensure;
use testbed::progress::{note, spell};

use super::tenant_workload::TenantWorkload;
use crate::metrics_page::{MetricsEndpoint, MetricsPage};

/// For how long windlass must be idle until a step is over.
const QUIET_PERIOD: Duration = Duration::from_secs(3);

/// How often the metrics are read. A page about two thousand objects costs windlass some milliseconds.
const GAUGE_INTERVAL: Duration = Duration::from_millis(500);

/// How often a step prints its progress.
pub(super) const REPORT_INTERVAL: Duration = Duration::from_secs(15);

/// The activity of windlass at one time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct OperatorActivity {
    /// How many runs are in progress.
    running: f64,
    /// How many objects are queued for a run.
    queued: f64,
    /// How many runs of Kustomizations and of HelmReleases have ended.
    kustomizations: f64,
    releases: f64,
    /// How many runs of any kind have ended.
    runs: f64,
}

/// Waits until windlass has been idle for a while and `is_enough` holds. It returns the time from `begun` to the
/// beginning of the idle time.
///
/// # Errors
/// When windlass is not idle before the deadline, or does not respond.
pub(crate) async fn until_quiet(
    metrics: &MetricsEndpoint,
    begun: Instant,
    deadline: Instant,
    is_enough: impl Fn(&OperatorActivity) -> bool,
) -> anyhow::Result<Duration> {
    let mut before = OperatorActivity::of(&metrics.page().await?);
    let mut since = None;
    let mut reported = Instant::now();
    loop {
        tokio::time::sleep(GAUGE_INTERVAL).await;
        let now = OperatorActivity::of(&metrics.page().await?);
        if now.is_quiet_since(&before) && is_enough(&now) {
            // The previous reading was already idle, or only its last run had not ended.
            let since = *since.get_or_insert_with(Instant::now);
            if since.elapsed() >= QUIET_PERIOD {
                return Ok(since.saturating_duration_since(begun));
            }
        } else {
            since = None;
        }
        if reported.elapsed() >= REPORT_INTERVAL {
            reported = Instant::now();
            let OperatorActivity { running, queued, runs, .. } = now;
            note(&format!("{runs} runs have ended, {running} go on, {queued} are queued"));
        }
        ensure!(
            Instant::now() < deadline,
            "windlass does not come to rest: {now:?} after {}",
            spell(begun.elapsed())
        );
        before = now;
    }
}

impl OperatorActivity {
    /// Reads the activity from a metrics page.
    pub(super) fn of(page: &MetricsPage) -> Self {
        let runs = "windlass_reconcile_duration_seconds_count";
        Self {
            running: page.sum("windlass_running"),
            queued: page.sum("windlass_queue_depth"),
            kustomizations: page.of_kind(runs, "Kustomization"),
            releases: page.of_kind(runs, "HelmRelease"),
            runs: page.sum(runs),
        }
    }

    /// Whether nothing runs, and no object was queued and no run has ended since the earlier activity.
    pub(super) fn is_quiet_since(&self, before: &Self) -> bool {
        self.running == 0.0 && self.queued == before.queued && self.runs == before.runs
    }

    /// Whether each object has had a run since the process started.
    pub(super) fn has_run_all(&self, workload: &TenantWorkload) -> bool {
        self.kustomizations >= workload.kustomizations as f64
            && self.releases >= workload.helm_releases as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: OperatorActivity = OperatorActivity {
        running: 0.0,
        queued: 0.0,
        kustomizations: 10.0,
        releases: 2.0,
        runs: 14.0,
    };

    #[test]
    fn windlass_is_quiet_when_nothing_runs_or_was_queued_or_has_run_since() {
        assert!(QUIET.is_quiet_since(&QUIET));
        assert!(!OperatorActivity { running: 1.0, ..QUIET }.is_quiet_since(&QUIET));
        assert!(!OperatorActivity { queued: 1.0, ..QUIET }.is_quiet_since(&QUIET));
        assert!(!OperatorActivity { runs: 15.0, ..QUIET }.is_quiet_since(&QUIET));
    }

    #[test]
    fn a_restart_is_over_when_both_kinds_have_had_their_runs() {
        let workload = TenantWorkload {
            kustomizations: 10,
            helm_releases: 2,
            objects: 12,
            namespaces: 1,
            shares_variables: false,
        };
        assert!(QUIET.has_run_all(&workload));
        assert!(!OperatorActivity { releases: 1.0, ..QUIET }.has_run_all(&workload));
        assert!(!OperatorActivity { kustomizations: 9.0, ..QUIET }.has_run_all(&workload));
    }
}
