//! How often a wait is observed.

use std::time::{Duration, Instant};

/// Shortest time between two observations of the same wait, and what it grows to.
const SHORTEST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_millis(800);

/// A wait that goes on: when it began and when it was last observed, by the clock of this process.
#[derive(Debug, Clone, Copy)]
pub struct Observation {
    began: Instant,
    at: Instant,
}

impl Observation {
    /// An observation now, of a wait that was observed before or begins.
    pub fn again(before: Option<Self>) -> Self {
        let at = Instant::now();
        Self { began: before.map_or(at, |it| it.began), at }
    }

    /// For how much longer it is not observed again: objects on their way move many times a second, and what takes
    /// long moves no sooner for being read more often.
    pub(super) fn pause(self) -> Option<Duration> {
        self.spacing().checked_sub(self.at.elapsed())
    }

    fn spacing(self) -> Duration {
        (self.at.duration_since(self.began) / 5).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_observed_less_often_the_longer_it_takes() {
        let began = Instant::now();
        let spacing = |waited| {
            let at = began + Duration::from_millis(waited);
            Observation { began, at }.spacing().as_millis()
        };
        assert_eq!([0, 900, 2_000, 3_600_000].map(spacing), [200, 200, 400, 800]);
        let first = Observation { began, at: began };
        assert_eq!(Observation::again(Some(first)).began, began);
        assert!(first.pause().is_none_or(|left| left <= SHORTEST_PAUSE));
    }
}
