//! Limits how often windlass corrects the same drift before it pauses, because another client may keep undoing the correction.
//!
//! Here: a token bucket for each corrected thing. Elsewhere: detecting drift, and timers (the program).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Time;

/// How many corrections in a row are allowed without a pause.
const MAX_CORRECTION_BURST: u32 = 10;

/// The time after which one more correction is allowed.
const CORRECTION_REFILL_INTERVAL: Duration = Duration::from_secs(60);

/// Shortest time for which corrections of something contested are paused. A shorter one would hardly be a pause.
const SHORTEST_PAUSE: Duration = Duration::from_secs(10);

/// Longest time for which corrections of something contested are paused.
const LONGEST_PAUSE: Duration = Duration::from_secs(15 * 60);

/// One token bucket for each thing that is corrected.
///
/// # Guarantees
/// Ten corrections of one thing are allowed at once, and one a minute after that. A thing that needs more is contested: there
/// is a pause before each further correction. The contest ends after a whole pause without a correction. A new desired state is
/// applied at once but does not end the contest, since the other client may undo it too.
#[derive(Debug, Clone)]
pub struct CorrectionBudget<K> {
    buckets: BTreeMap<K, TokenBucket>,
}

#[derive(Debug, Clone)]
struct TokenBucket {
    /// The desired state of the thing. A new desired state starts a new bucket.
    desired: String,
    tokens: u32,
    /// Since when the next token fills.
    filling_since: Time,
    /// The end of the pause, if the thing is contested. Until then the thing is not corrected.
    contested_until: Option<Time>,
}

impl<K> Default for CorrectionBudget<K> {
    fn default() -> Self {
        Self { buckets: BTreeMap::new() }
    }
}

/// How long corrections of a contested thing are paused. `retry` is the delay after a failed run.
pub fn contested_pause(retry: Duration) -> Duration {
    retry.clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
}

fn later(time: Time, by: Duration) -> Time {
    time.saturating_add(by).unwrap_or(Time::MAX)
}

impl TokenBucket {
    fn full(desired: &str, now: Time) -> Self {
        let desired = desired.to_owned();
        Self { desired, tokens: MAX_CORRECTION_BURST, filling_since: now, contested_until: None }
    }

    fn refill(&mut self, now: Time) {
        let refill = CORRECTION_REFILL_INTERVAL;
        let since = Duration::try_from(now.duration_since(self.filling_since)).unwrap_or_default();
        let filled = u32::try_from(since.as_nanos() / refill.as_nanos()).unwrap_or(u32::MAX);
        self.tokens = self.tokens.saturating_add(filled).min(MAX_CORRECTION_BURST);
        if self.tokens == MAX_CORRECTION_BURST {
            self.filling_since = now;
        } else {
            self.filling_since = later(self.filling_since, refill * filled);
        }
    }

    /// Whether the thing is contested. It still counts as contested for one more pause after the last one.
    fn is_contested(&self, now: Time, pause: Duration) -> bool {
        self.contested_until.is_some_and(|until| now < later(until, pause))
    }

    /// Ends a pause no later than one that begins now, since pauses may have become shorter, or the clock may have been set
    /// back.
    fn limit(&mut self, now: Time, pause: Duration) {
        let latest = later(now, pause);
        self.contested_until = self.contested_until.map(|until| until.min(latest));
        self.filling_since = self.filling_since.min(now);
    }

    /// Takes one correction from the budget of an object; see [`CorrectionBudget::take`].
    fn take(&mut self, desired: &str, now: Time, pause: Duration) -> Result<(), Time> {
        if !self.is_contested(now, pause) {
            self.contested_until = None;
        }
        self.limit(now, pause);
        if self.desired != desired {
            let contested_until = self.contested_until.map(|until| until.min(now));
            *self = Self { contested_until, ..Self::full(desired, now) };
        }
        match self.contested_until {
            Some(until) if now < until => return Err(until),
            Some(_) => {
                self.pause(now, pause);
                return Ok(());
            }
            None => self.refill(now),
        }
        match self.tokens.checked_sub(1) {
            Some(left) => {
                self.tokens = left;
                Ok(())
            }
            None => {
                let until = later(now, pause);
                self.contested_until = Some(until);
                Err(until)
            }
        }
    }

    /// Records a correction of a contested thing. A whole pause follows.
    fn pause(&mut self, now: Time, pause: Duration) {
        self.contested_until = Some(later(now, pause));
        // The pause stands for this correction, so tokens that filled during the pause do not count in addition.
        (self.tokens, self.filling_since) = (0, now);
    }

    /// Whether the bucket can be dropped, because it is full and the thing is not contested.
    fn is_over(&self, now: Time, pause: Duration) -> bool {
        !self.is_contested(now, pause)
            && later(self.filling_since, CORRECTION_REFILL_INTERVAL * MAX_CORRECTION_BURST) <= now
    }
}

impl<K: Ord + Clone> CorrectionBudget<K> {
    /// Asks whether a thing may be corrected to the state `desired`. On `Ok` the caller makes the correction.
    ///
    /// # Errors
    /// The time until which corrections of the thing are paused.
    pub fn take(&mut self, key: &K, desired: &str, now: Time, pause: Duration) -> Result<(), Time> {
        self.buckets.retain(|_, bucket| !bucket.is_over(now, pause));
        let bucket =
            self.buckets.entry(key.clone()).or_insert_with(|| TokenBucket::full(desired, now));
        bucket.take(desired, now, pause)
    }

    /// Whether a thing is contested after [`Self::take`] with the same arguments.
    pub fn would_be_contested(&self, key: &K, desired: &str, now: Time, pause: Duration) -> bool {
        self.buckets.get(key).is_some_and(|bucket| {
            let mut bucket = bucket.clone();
            bucket.take(desired, now, pause).is_err() || bucket.contested_until.is_some()
        })
    }

    /// Records a correction that takes no token. A contested thing then stays contested for another pause.
    pub fn corrected(&mut self, key: &K, now: Time, pause: Duration) {
        let bucket = self.buckets.get_mut(key).filter(|bucket| bucket.is_contested(now, pause));
        if let Some(bucket) = bucket {
            bucket.pause(now, pause);
        }
    }

    /// Ends that something is contested. Corrections before that still count.
    pub fn end_contest(&mut self, key: &K) {
        if let Some(bucket) = self.buckets.get_mut(key) {
            bucket.contested_until = None;
        }
    }

    /// Forgets the corrections of things that `is_kept` does not choose.
    pub fn retain(&mut self, is_kept: impl Fn(&K) -> bool) {
        self.buckets.retain(|key, _| is_kept(key));
    }

    /// Whether no correction is remembered.
    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    /// Whether a bucket exists for a thing.
    pub fn has(&self, key: &K) -> bool {
        self.buckets.contains_key(key)
    }

    /// The time until which corrections of a thing are paused because it is contested; `None` if it is not.
    pub fn contested_until(&self, key: &K, now: Time) -> Option<Time> {
        self.buckets.get(key)?.contested_until.filter(|until| now < *until)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAUSE: Duration = Duration::from_secs(60);

    fn at(millis: i64) -> Time {
        Time::from_millisecond(1_800_000_000_000 + millis).unwrap()
    }

    fn take(corrections: &mut CorrectionBudget<u8>, millis: i64) -> Result<(), Time> {
        corrections.take(&1, "a", at(millis), PAUSE)
    }

    #[test]
    fn a_rival_that_never_stops_is_answered_ten_times_and_then_once_a_pause() {
        let mut corrections = CorrectionBudget::default();
        // An hour of a rival that writes ten times a second.
        let done = (0..36_000).filter(|tick| take(&mut corrections, tick * 100).is_ok()).count();
        assert_eq!(done, 10 + 59);
    }

    #[test]
    fn something_is_contested_until_it_was_left_alone_for_a_whole_pause() {
        let mut corrections = CorrectionBudget::default();
        let contested =
            |it: &CorrectionBudget<u8>, millis| it.contested_until(&1, at(millis)).is_some();
        for millis in 0..10 {
            assert_eq!(take(&mut corrections, millis), Ok(()));
            assert!(!contested(&corrections, millis));
        }
        assert_eq!(take(&mut corrections, 10), Err(at(60_010)));
        assert_eq!(take(&mut corrections, 20), Err(at(60_010)));
        assert!(contested(&corrections, 20));
        assert_eq!(take(&mut corrections, 60_010), Ok(()));
        assert_eq!(take(&mut corrections, 60_011), Err(at(120_010)));
        assert!(contested(&corrections, 119_999));
        assert!(!contested(&corrections, 120_010), "nobody touched it for a minute");
        assert_eq!(take(&mut corrections, 600_000), Ok(()));
        assert!(!contested(&corrections, 600_000), "a single edit later on is none");
    }

    #[test]
    fn one_edit_a_minute_is_corrected_for_ever() {
        let mut corrections = CorrectionBudget::default();
        assert!((0..1000).all(|minute| take(&mut corrections, minute * 60_000).is_ok()));
    }

    #[test]
    fn another_desired_state_of_the_same_thing_is_not_delayed() {
        let mut corrections = CorrectionBudget::default();
        while take(&mut corrections, 0).is_ok() {}
        assert_eq!(corrections.take(&1, "b", at(1), PAUSE), Ok(()));
        assert_eq!(corrections.take(&2, "a", at(1), PAUSE), Ok(()));
    }

    #[test]
    fn what_is_contested_stays_so_for_another_desired_state() {
        let mut corrections = CorrectionBudget::default();
        while take(&mut corrections, 0).is_ok() {}
        assert_eq!(corrections.take(&1, "b", at(30_000), PAUSE), Ok(()));
        assert_eq!(corrections.contested_until(&1, at(30_000)), Some(at(90_000)));
        assert_eq!(corrections.take(&1, "b", at(30_001), PAUSE), Err(at(90_000)));
        // One that comes when a pause is over finds it contested as well, until another pause has gone by.
        assert_eq!(corrections.take(&1, "c", at(100_000), PAUSE), Ok(()));
        assert_eq!(corrections.contested_until(&1, at(100_000)), Some(at(160_000)));
        assert_eq!(corrections.take(&1, "d", at(220_000), PAUSE), Ok(()));
        assert_eq!(corrections.contested_until(&1, at(220_000)), None);
    }

    #[test]
    fn a_correction_that_nothing_holds_back_prolongs_a_contest_and_begins_none() {
        let mut corrections = CorrectionBudget::default();
        corrections.corrected(&1, at(0), PAUSE);
        assert!(!corrections.has(&1));
        assert_eq!(take(&mut corrections, 0), Ok(()));
        corrections.corrected(&1, at(1), PAUSE);
        assert_eq!(corrections.contested_until(&1, at(1)), None);
        while take(&mut corrections, 2).is_ok() {}
        // At the very end of the pause nothing is contested, but the correction shows that it is.
        assert_eq!(corrections.contested_until(&1, at(60_002)), None);
        corrections.corrected(&1, at(60_002), PAUSE);
        assert_eq!(corrections.contested_until(&1, at(60_002)), Some(at(120_002)));
        assert_eq!(take(&mut corrections, 60_003), Err(at(120_002)));
    }

    #[test]
    fn a_contest_that_has_ended_leaves_no_further_corrections() {
        let mut corrections = CorrectionBudget::default();
        while take(&mut corrections, 0).is_ok() {}
        corrections.end_contest(&1);
        assert_eq!(corrections.contested_until(&1, at(1)), None);
        assert_eq!(take(&mut corrections, 1), Err(at(60_001)));
    }

    #[test]
    fn a_pause_ends_no_later_than_one_that_begins_now() {
        let short = PAUSE / 6;
        let mut corrections = CorrectionBudget::default();
        while take(&mut corrections, 0).is_ok() {}
        assert_eq!(corrections.take(&1, "a", at(1), short), Err(at(10_001)), "pauses are shorter");
        let mut corrections = CorrectionBudget::default();
        while take(&mut corrections, 3_600_000).is_ok() {}
        assert_eq!(take(&mut corrections, 0), Err(at(60_000)), "the clock was set back");
        assert_eq!(take(&mut corrections, 60_000), Ok(()));
    }

    #[test]
    fn corrections_of_what_is_not_kept_are_forgotten() {
        let mut corrections = CorrectionBudget::default();
        while take(&mut corrections, 0).is_ok() {}
        corrections.retain(|key| *key == 1);
        assert_eq!(take(&mut corrections, 1), Err(at(60_000)));
        corrections.retain(|_| false);
        assert!(corrections.is_empty());
        assert_eq!(take(&mut corrections, 1), Ok(()));
    }

    #[test]
    fn the_pause_is_the_retry_but_ten_seconds_at_least_and_a_quarter_of_an_hour_at_most() {
        let seconds = |retry| contested_pause(Duration::from_secs(retry)).as_secs();
        assert_eq!([0, 1, 90, 600, 3600].map(seconds), [10, 10, 90, 600, 900]);
    }

    proptest! {
        #[test]
        fn corrections_never_exceed_the_burst_and_one_a_pause(
            steps in prop::collection::vec(0..90_000_i64, 1..200),
        ) {
            let mut corrections = CorrectionBudget::default();
            let mut now = 0_i64;
            let mut done = 0_i64;
            for step in steps {
                now += step;
                let would_be = corrections.would_be_contested(&1, "a", at(now), PAUSE);
                let taken = take(&mut corrections, now);
                prop_assert_eq!(would_be, corrections.contested_until(&1, at(now)).is_some());
                done += i64::from(taken.is_ok());
                prop_assert!(done <= 10 + 1 + now / 60_000);
                if let Err(until) = taken {
                    prop_assert!(until > at(now) && until <= at(now + 60_000));
                }
            }
        }
    }
}
