//! Runs in which the API server throttled a request. Such a run is repeated until the timeout of its spec, and counts as
//! failed only after that. The object holds no permit between two such runs.
//!
//! Elsewhere: which requests count as throttled, and when the run is repeated (`windlass_cluster::throttled_requests`).

use std::time::Duration;

use kube_core::ResourceExt as _;
use reconcile::{NextRunTrigger, RunOutcome, condition_reason};

use super::{ApplierKind, ApplierRunReport, ApplierSession};
use windlass_cluster::throttled_requests::ThrottledRunBackoff;

impl<K: ApplierKind> ApplierSession<K> {
    /// If the run failed and one of its requests was throttled, changes its outcome: the run continues later, and has not
    /// failed. Nothing is written unless there is more to report. After `timeout`, such runs count as failed.
    ///
    /// Differs(flux): there, each such run makes `Ready` False, of all objects at once when an API server is busy.
    pub fn postpone(&self, ended: &mut ApplierRunReport<K>, timeout: Duration) {
        let mut memory = self.memory.lock();
        let throttling = self.requests.throttling().filter(|_| !ended.outcome.is_settled());
        let Some(throttling) = throttling else {
            memory.throttled_run_backoff = ThrottledRunBackoff::default();
            return;
        };
        let RunOutcome::Failed(_, text, _) = &ended.outcome else { return };
        let now = jiff::Timestamp::now();
        let seed = reconcile::seed(&ended.object.uid().unwrap_or_default());
        let Some(delay) = memory.throttled_run_backoff.again(now, throttling, timeout, seed) else {
            return;
        };
        drop(memory);
        let wake = NextRunTrigger::at(self.in_future(delay));
        let text = format!(
            "the API server throttled a request or closed its connection, retrying: {text}"
        );
        ended.outcome = RunOutcome::Running(condition_reason::PROGRESSING, text, wake);
        ended.unsaid_for = (!K::has_more_to_report(&ended.came)).then_some(delay);
    }
}
