//! Limits how often a run observes the objects that it waits for.

use std::time::{Duration, Instant};

/// The time between two observations of a wait. It grows from the shortest to the longest pause.
const SHORTEST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_millis(800);

/// The last observation of a wait, with the begin of the wait, by the clock of this process.
#[derive(Debug, Clone, Copy)]
pub struct WaitObservation {
    began: Instant,
    at: Instant,
}

impl WaitObservation {
    /// An observation at the current time. If there is no observation `before`, the wait begins now.
    pub fn again(before: Option<Self>) -> Self {
        let at = Instant::now();
        Self { began: before.map_or(at, |it| it.began), at }
    }

    /// The time until the next observation. `None` if it is due. During a rollout, objects change many times a second, and
    /// more reads would not make it faster.
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
            WaitObservation { began, at }.spacing().as_millis()
        };
        assert_eq!([0, 900, 2_000, 3_600_000].map(spacing), [200, 200, 400, 800]);
        let first = WaitObservation { began, at: began };
        assert_eq!(WaitObservation::again(Some(first)).began, began);
        assert!(first.pause().is_none_or(|left| left <= SHORTEST_PAUSE));
    }
}
