//! The activity of windlass at one time, by its metrics. No message and no log is read.
//!
//! `super::session` waits until windlass is idle, and `crate::metrics_page` reads the page.

use super::tenant_workload::TenantWorkload;
use crate::metrics_page::MetricsPage;

/// The activity of windlass at one time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct OperatorActivity {
    /// How many runs are in progress.
    pub(super) running: f64,
    /// How many objects are queued for a run.
    pub(super) queued: f64,
    /// How many runs of Kustomizations and of HelmReleases have ended.
    kustomizations: f64,
    releases: f64,
    /// How many runs of any kind have ended.
    pub(super) runs: f64,
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
