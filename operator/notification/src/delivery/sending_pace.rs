//! How many notifications a worker sends at once, and when it pauses.
//!
//! A service that accepts notifications receives more of them at once, up to a bound. After a failed attempt all of them wait,
//! and then a single one is sent. Elsewhere: how long a pause is (`provider_worker`).

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The most notifications that are sent to a service at once.
const MAX_CONCURRENCY: usize = 8;

/// The pace at which notifications are sent to one service.
pub(super) struct SendingPace {
    /// How many notifications may be sent at once. It begins with one, so that services that do not respond take few of the
    /// permits for requests.
    concurrency: usize,
    /// The end of the pause. No attempt begins before it.
    pause_end: Option<Instant>,
    pauses: u64,
}

/// The end of a pause that a service asked for in an answer, while attempts still run. An attempt may consist of several
/// requests, so it knows of the pause before it ends.
#[derive(Default)]
pub(super) struct RequestedPause(Mutex<Option<Instant>>);

impl RequestedPause {
    /// The service asked for a pause.
    pub(super) fn ask(&self, pause: Duration) {
        let mut end = self.0.lock();
        *end = (*end).max(Some(Instant::now() + pause));
    }
}

/// In which part between two pauses an attempt began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AttemptRound(u64);

impl SendingPace {
    pub(super) fn new() -> Self {
        Self { concurrency: 1, pause_end: None, pauses: 0 }
    }

    /// Whether another attempt may begin while some are running.
    pub(super) fn may_begin(&self, running: usize) -> bool {
        self.pause_end.is_none() && running < self.concurrency
    }

    /// The round of an attempt that begins now.
    pub(super) fn round(&self) -> AttemptRound {
        AttemptRound(self.pauses)
    }

    /// Whether an attempt began before the last pause. It says nothing about the service after the pause, and if it failed,
    /// it failed for the same reason as the one that began the pause.
    pub(super) fn is_late(&self, round: AttemptRound) -> bool {
        round != self.round()
    }

    /// When the pause ends. `None` without a pause.
    pub(super) fn pause_end(&self) -> Option<Instant> {
        self.pause_end
    }

    /// The service accepted a notification.
    pub(super) fn accepted(&mut self) {
        self.concurrency = (self.concurrency + 1).min(MAX_CONCURRENCY);
    }

    /// Takes over a pause that the service asked for. Requests of attempts that run keep it by themselves.
    pub(super) fn keep(&mut self, requested: &RequestedPause) {
        let end = requested.0.lock().take();
        if end.is_some() {
            self.concurrency = 1;
            self.pause_end = self.pause_end.max(end);
        }
    }

    /// An attempt failed, and another may succeed after a pause.
    pub(super) fn pause(&mut self, pause: Duration) {
        self.concurrency = 1;
        self.pauses += 1;
        self.extend(pause);
    }

    /// The service asked for a pause in the answer to a late attempt. A longer pause that has begun stays as it is.
    pub(super) fn extend(&mut self, pause: Duration) {
        self.pause_end = self.pause_end.max(Some(Instant::now() + pause));
    }

    /// Ends the pause, so that notifications may be sent again.
    pub(super) fn resume(&mut self) {
        self.pause_end = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many attempts may run at once.
    fn most(pace: &SendingPace) -> usize {
        (0..100).take_while(|running| pace.may_begin(*running)).count()
    }

    #[test]
    fn a_service_receives_one_request_until_it_accepts_notifications() {
        let mut pace = SendingPace::new();
        assert_eq!(most(&pace), 1);
        for expected in [2, 3, 4, 5, 6, 7, 8, 8] {
            pace.accepted();
            assert_eq!(most(&pace), expected);
        }
        pace.pause(Duration::from_secs(5));
        assert_eq!(most(&pace), 0, "all wait");
        pace.resume();
        assert_eq!(most(&pace), 1);
    }

    #[test]
    fn a_pause_that_a_service_asks_for_holds_for_all_and_the_longest_counts() {
        let mut pace = SendingPace::new();
        pace.accepted();
        let round = pace.round();
        let requested = RequestedPause::default();
        pace.keep(&requested);
        assert_eq!(most(&pace), 2, "it asked for none");
        for seconds in [1, 60, 2] {
            requested.ask(Duration::from_secs(seconds));
        }
        pace.keep(&requested);
        assert_eq!(most(&pace), 0);
        assert!(pace.pause_end().unwrap() > Instant::now() + Duration::from_secs(50));
        assert!(!pace.is_late(round), "the attempt goes on, and its end counts");
        pace.resume();
        pace.keep(&requested);
        assert_eq!(most(&pace), 1, "it is taken over once");
    }

    #[test]
    fn attempts_that_ran_when_a_pause_began_are_late_and_only_extend_it() {
        let mut pace = SendingPace::new();
        let [first, second] = [pace.round(); 2];
        assert!(!pace.is_late(first));
        pace.pause(Duration::from_secs(5));
        assert!(pace.is_late(second));
        let end = pace.pause_end().unwrap();
        pace.extend(Duration::from_secs(1));
        assert_eq!(pace.pause_end(), Some(end), "a shorter one");
        pace.extend(Duration::from_secs(60));
        assert!(pace.pause_end().unwrap() > end + Duration::from_secs(50));
        pace.resume();
        assert!(!pace.is_late(pace.round()) && pace.is_late(second));
    }
}
