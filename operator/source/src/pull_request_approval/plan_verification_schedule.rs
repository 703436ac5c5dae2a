//! The time at which each Plan is verified: soon if a run waits for the Plan, otherwise less and less often.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The shortest time between two verifications of a Plan.
const SHORTEST_PAUSE: Duration = Duration::from_secs(10);

/// The delay before the second verification if no pull request approves. Each further delay is twice as long.
const FIRST_DELAY: Duration = Duration::from_secs(30);

/// The longest time between two verifications.
const LONGEST_DELAY: Duration = Duration::from_secs(3600);

/// The interval at which an approved Plan is verified again. So a dismissed approval is noticed even if nothing can be deleted
/// now.
const REPEATED_AFTER: Duration = Duration::from_secs(600);

/// A Plan whose verification was interrupted is verified again after so long.
const INTERRUPTED_AFTER: Duration = Duration::from_secs(1800);

/// The result of a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlanVerificationResult {
    /// A pull request approves.
    Approved,
    /// No pull request approves. The forge does not accept another request before this delay is over.
    Refused(Duration),
    /// The result could not be written.
    NotWritten,
}

/// The next verification of a Plan.
struct NextVerification {
    at: Instant,
    /// A run that waits does not make it sooner than this.
    not_before: Instant,
    /// The number of verifications in a row that found no pull request.
    refusals: u32,
}

/// The next verifications, by the uids of the Plans.
#[derive(Default)]
pub(super) struct PlanVerificationSchedule(BTreeMap<String, NextVerification>);

impl PlanVerificationSchedule {
    /// Forgets all Plans but these.
    pub(super) fn keep_only(&mut self, uids: &BTreeSet<&str>) {
        self.0.retain(|uid, _| uids.contains(uid.as_str()));
    }

    /// The time of a Plan's verification, by whether a run waits for it. `None` if it was never verified.
    fn next(&self, uid: &str, is_awaited: bool) -> Option<Instant> {
        let next = self.0.get(uid)?;
        Some(if is_awaited { next.at.min(next.not_before) } else { next.at })
    }

    /// The time until a Plan is verified.
    pub(super) fn time_left(&self, uid: &str, is_awaited: bool, now: Instant) -> Duration {
        let next = self.next(uid, is_awaited);
        next.map(|at| at.saturating_duration_since(now)).unwrap_or_default()
    }

    /// Records that a verification of a Plan begins. It is repeated later if this one does not end.
    pub(super) fn begin(&mut self, uid: &str, now: Instant) {
        let at = now + INTERRUPTED_AFTER;
        let next = self.0.entry(uid.to_owned());
        let next = next.or_insert(NextVerification { at, not_before: at, refusals: 0 });
        next.at = at;
        next.not_before = at;
    }

    /// Records how a verification of a Plan ended, and when the next one is due.
    pub(super) fn end(&mut self, uid: &str, end: PlanVerificationResult, now: Instant) {
        // The Plan does not need to be verified any more.
        let Some(next) = self.0.get_mut(uid) else { return };
        let not_before = now + SHORTEST_PAUSE;
        *next = match end {
            PlanVerificationResult::Approved => {
                NextVerification { at: now + REPEATED_AFTER, not_before, refusals: 0 }
            }
            PlanVerificationResult::Refused(least) => {
                let refusals = next.refusals.saturating_add(1);
                let at = now + delay(refusals).max(least);
                NextVerification { at, not_before: not_before.max(now + least), refusals }
            }
            PlanVerificationResult::NotWritten => {
                NextVerification { at: not_before, not_before, refusals: next.refusals }
            }
        };
    }
}

/// The delay of the verification after this number of refusals.
fn delay(refusals: u32) -> Duration {
    let doublings = refusals.saturating_sub(1).min(16);
    FIRST_DELAY.saturating_mul(1 << doublings).min(LONGEST_DELAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_DELAY: Duration = Duration::ZERO;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn what_is_not_approved_is_verified_less_and_less_often() {
        let mut schedule = PlanVerificationSchedule::default();
        let now = Instant::now();
        assert_eq!(schedule.time_left("plan", false, now), NO_DELAY, "it is new");
        for left in [30, 60, 120] {
            schedule.begin("plan", now);
            assert_eq!(schedule.time_left("plan", true, now), INTERRUPTED_AFTER, "it runs");
            schedule.end("plan", PlanVerificationResult::Refused(NO_DELAY), now);
            assert_eq!(schedule.time_left("plan", false, now), seconds(left));
        }
        assert_eq!(delay(u32::MAX), LONGEST_DELAY);
        schedule.keep_only(&BTreeSet::new());
        assert_eq!(schedule.time_left("plan", false, now), NO_DELAY, "it is forgotten");
    }

    #[test]
    fn a_run_that_waits_makes_it_sooner_but_not_than_the_forge_wants() {
        let mut schedule = PlanVerificationSchedule::default();
        let now = Instant::now();
        schedule.begin("plan", now);
        schedule.end("plan", PlanVerificationResult::Approved, now);
        assert_eq!(schedule.time_left("plan", false, now), REPEATED_AFTER);
        assert_eq!(schedule.time_left("plan", true, now), SHORTEST_PAUSE);
        schedule.begin("plan", now);
        schedule.end("plan", PlanVerificationResult::Refused(seconds(900)), now);
        assert_eq!(schedule.time_left("plan", true, now), seconds(900));
        schedule.begin("plan", now);
        schedule.end("plan", PlanVerificationResult::NotWritten, now);
        assert_eq!(schedule.time_left("plan", false, now), SHORTEST_PAUSE);
    }
}
