//! Whether the event of a failure that a status has already is sent once more. It is, once, after a takeover.
//!
//! An event is announced after the status is written, and what could not be sent yet is in the storage of the process. If that
//! process is killed, its successor finds the failure in the status, and users may not know of it.
//!
//! Here: the rule, for all kinds, and the failures that this process has announced. Elsewhere: whether this process waited for
//! another one ([`crate::leadership`]), and whether the status has a failure already (the reports of the kinds).

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use reconcile::{ObjectKey, RunOutcome};

use crate::leadership::Leadership;

/// Whether a failure that the status of an object has already was announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureAnnouncement {
    /// This process has announced it, or an earlier process whose storage it has.
    Made,
    /// The process that led before may have ended before it sent the event.
    Due,
}

impl FailureAnnouncement {
    /// Whether an outcome needs no event. `is_in_status` is whether the status had this outcome before the run.
    pub fn is_reported(self, is_in_status: bool, outcome: &RunOutcome) -> bool {
        is_in_status && (self == Self::Made || !is_failure(outcome))
    }
}

/// Only failures are announced once more. Users can wait for what is in progress or waits.
fn is_failure(outcome: &RunOutcome) -> bool {
    match outcome {
        RunOutcome::Failed(..) | RunOutcome::Stalled(..) => true,
        RunOutcome::Settled(..) | RunOutcome::Running(..) | RunOutcome::Blocked(..) => false,
    }
}

/// The objects, and the parts of objects, of which this process has announced a failure since it took over. Empty in a process
/// that took over from no other.
#[derive(Default)]
pub struct AnnouncedFailures {
    /// The failed parts of each object, of which the object itself may be one.
    announced: Mutex<BTreeMap<ObjectKey, BTreeSet<ObjectKey>>>,
}

impl AnnouncedFailures {
    /// Whether a failure of an object, or of a part of it, that the status has already was announced.
    pub fn announcement(&self, node: &ObjectKey, leadership: &Leadership) -> FailureAnnouncement {
        if !leadership.has_waited() {
            return FailureAnnouncement::Made;
        }
        let announced = self.announced.lock();
        match announced.get(&node.whole()).is_some_and(|parts| parts.contains(node)) {
            true => FailureAnnouncement::Made,
            false => FailureAnnouncement::Due,
        }
    }

    /// Notes that a failure of an object, or of a part of it, is announced.
    pub fn note(&self, node: &ObjectKey, leadership: &Leadership) {
        if leadership.has_waited() {
            self.announced.lock().entry(node.whole()).or_default().insert(node.clone());
        }
    }

    /// Forgets a part of an object that is gone, or an object with all its parts.
    pub fn forget(&self, node: &ObjectKey) {
        let mut announced = self.announced.lock();
        if !node.is_part() {
            announced.remove(node);
            return;
        }
        let whole = node.whole();
        if let Some(parts) = announced.get_mut(&whole) {
            parts.remove(node);
            if parts.is_empty() {
                announced.remove(&whole);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use reconcile::{NextRunTrigger, condition_reason};

    use super::*;

    fn node() -> ObjectKey {
        ObjectKey::new("helmfile.windlass.dev", "Helmfile", "shop", "app")
    }

    /// The leadership of a process that waited while another one led.
    fn after_takeover() -> Leadership {
        let leadership = Leadership::standby();
        leadership.note_wait();
        leadership
    }

    #[test]
    fn only_a_failure_that_may_not_have_been_sent_needs_an_event_although_the_status_has_it() {
        let text = || "it".to_owned();
        let wake = NextRunTrigger::default;
        let failed = RunOutcome::Failed(condition_reason::FAILED, text(), wake());
        let stalled = RunOutcome::Stalled(condition_reason::FAILED, text());
        for outcome in [&failed, &stalled] {
            assert!(!FailureAnnouncement::Due.is_reported(true, outcome));
            assert!(FailureAnnouncement::Made.is_reported(true, outcome));
        }
        let others = [
            RunOutcome::Settled(condition_reason::SUCCEEDED, text()),
            RunOutcome::Running(condition_reason::PROGRESSING, text(), wake()),
            RunOutcome::Blocked(condition_reason::DEPENDENCY_NOT_READY, text(), wake()),
        ];
        for outcome in &others {
            assert!(FailureAnnouncement::Due.is_reported(true, outcome), "{outcome:?}");
        }
        for outcome in others.iter().chain([&failed, &stalled]) {
            assert!(!FailureAnnouncement::Made.is_reported(false, outcome), "{outcome:?}");
            assert!(!FailureAnnouncement::Due.is_reported(false, outcome), "{outcome:?}");
        }
    }

    #[test]
    fn a_process_that_took_over_announces_each_object_and_each_part_once() {
        let failures = AnnouncedFailures::default();
        let leadership = after_takeover();
        let web = node().part("web");
        let db = node().part("db");
        let is_due =
            |of: &ObjectKey| failures.announcement(of, &leadership) == FailureAnnouncement::Due;
        assert!(is_due(&node()) && is_due(&web) && is_due(&db));
        failures.note(&web, &leadership);
        assert!(is_due(&node()) && !is_due(&web) && is_due(&db));
        failures.note(&node(), &leadership);
        assert!(!is_due(&node()) && !is_due(&web) && is_due(&db));
        failures.forget(&web);
        assert!(!is_due(&node()) && is_due(&web));
        failures.note(&web, &leadership);
        // Another object of the same name has no failure of this one.
        failures.forget(&node());
        assert!(is_due(&node()) && is_due(&web));
        assert!(failures.announced.lock().is_empty());
    }

    #[test]
    fn a_process_that_took_over_from_no_other_announces_nothing_again() {
        let failures = AnnouncedFailures::default();
        for leadership in [Leadership::unlimited(), Leadership::standby()] {
            let announcement = failures.announcement(&node(), &leadership);
            assert_eq!(announcement, FailureAnnouncement::Made);
            failures.note(&node(), &leadership);
        }
        assert!(failures.announced.lock().is_empty(), "it keeps nothing");
    }
}
