//! Remembers the events of the last minutes, so that a repeated event is not sent again. It keeps only the digests of the
//! events.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};

/// The most events that are remembered. The oldest is dropped first.
const MAX_REMEMBERED_EVENTS: usize = 20_000;

/// The digest of an event's key, so that keys of any length take the same memory.
type EventKeyDigest = [u8; 32];

/// The events of an interval.
pub(super) struct RepeatedEvents {
    interval: Duration,
    keys: BTreeSet<EventKeyDigest>,
    /// The same digests with their times, the oldest first.
    order: VecDeque<(Instant, EventKeyDigest)>,
}

impl RepeatedEvents {
    /// An empty memory with this interval. Without an interval, no event counts as repeated.
    pub(super) fn within(interval: Duration) -> Self {
        Self { interval, keys: BTreeSet::new(), order: VecDeque::new() }
    }

    /// Whether the same event came within the interval before `now`. The event is remembered.
    pub(super) fn is_repeated(&mut self, event_key: &str, now: Instant) -> bool {
        while let Some((at, _)) = self.order.front() {
            let is_old = now.saturating_duration_since(*at) >= self.interval;
            if !is_old && self.order.len() <= MAX_REMEMBERED_EVENTS {
                break;
            }
            if let Some((_, key)) = self.order.pop_front() {
                self.keys.remove(&key);
            }
        }
        if self.interval.is_zero() {
            return false;
        }
        let key = EventKeyDigest::from(Sha256::digest(event_key));
        if !self.keys.insert(key) {
            return true;
        }
        self.order.push_back((now, key));
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_repeated_once_the_interval_is_over() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut repetitions = RepeatedEvents::within(Duration::from_secs(300));
        let mut repeats = |key: &str, seconds| repetitions.is_repeated(key, at(seconds));
        assert!(!repeats("a", 0));
        assert!(!repeats("b", 1));
        assert!(repeats("a", 299));
        // A repetition does not put off the end of the interval. Parity(flux).
        assert!(!repeats("a", 300));
        assert!(repeats("b", 300));
        assert!(!repeats("b", 301));
    }

    #[test]
    fn no_more_is_remembered_than_there_is_room_for() {
        let now = Instant::now();
        let mut repetitions = RepeatedEvents::within(Duration::from_secs(300));
        for at in 0..MAX_REMEMBERED_EVENTS + 10 {
            assert!(!repetitions.is_repeated(&at.to_string(), now));
        }
        assert!(repetitions.order.len() <= MAX_REMEMBERED_EVENTS + 1);
        assert_eq!(repetitions.order.len(), repetitions.keys.len());
        assert!(!repetitions.is_repeated("0", now), "the oldest made room");
    }

    #[test]
    fn without_an_interval_everything_is_sent() {
        let mut repetitions = RepeatedEvents::within(Duration::ZERO);
        assert!(!repetitions.is_repeated("a", Instant::now()));
        assert!(!repetitions.is_repeated("a", Instant::now()));
    }
}
