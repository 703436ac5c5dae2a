//! When a refused request is tried again although nothing has changed that could make it succeed.
//!
//! Here: counting refusals, and the growing delay. Elsewhere: which refusals are permanent (the caller), timers (the program).

use std::time::Duration;

use crate::{Time, backoff, jittered};

/// The longest time between two attempts, unless the spec sets a longer one.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(15 * 60);

/// How much the delay between attempts varies, in percent.
const RETRY_JITTER_PERCENT: u8 = 10;

/// Attempts in a row that were refused for good.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RefusedAttempts {
    /// The text of the refusal.
    of: String,
    refused: u32,
    until: Option<Time>,
}

impl RefusedAttempts {
    /// The time of the next attempt after a refusal. The first delay is `retry`. Each further delay is twice as long, up to the
    /// interval and 15 minutes at most; a longer `retry` stays as it is.
    ///
    /// A retry for another reason in the meantime is not counted and does not delay the next attempt. A refusal with a
    /// different text starts again with `retry`.
    pub fn refused(
        &mut self,
        of: &str,
        now: Time,
        retry: Duration,
        interval: Duration,
        seed: u64,
    ) -> Time {
        if self.of != of {
            *self = Self { of: of.to_owned(), ..Self::default() };
        }
        if let Some(until) = self.until.filter(|until| now < *until) {
            return until;
        }
        self.refused = self.refused.saturating_add(1);
        let longest = retry.max(interval.min(MAX_RETRY_DELAY));
        let delay = jittered(
            backoff(self.refused, retry, longest),
            RETRY_JITTER_PERCENT,
            seed ^ u64::from(self.refused),
        );
        let until = now.saturating_add(delay).unwrap_or(Time::MAX);
        self.until = Some(until);
        until
    }

    /// Resets the delay, because the request succeeded or a user asked for an attempt.
    pub fn end(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRY: Duration = Duration::from_secs(2);
    const INTERVAL: Duration = Duration::from_secs(3600);

    fn at(second: i64) -> Time {
        Time::from_second(1_800_000_000 + second).unwrap()
    }

    /// The delays of attempts that are made whenever they are due.
    fn delays(retry: Duration, seed: u64) -> Vec<f64> {
        let mut retries = RefusedAttempts::default();
        let mut now = at(0);
        let delay = |_| {
            let until = retries.refused("a", now, retry, INTERVAL, seed);
            let delay = until.duration_since(now).as_secs_f64();
            now = until;
            delay
        };
        (0..12).map(delay).collect()
    }

    #[test]
    fn what_is_refused_for_good_is_tried_less_and_less_often() {
        let nominal = [2., 4., 8., 16., 32., 64., 128., 256., 512., 900., 900., 900.];
        let real = delays(RETRY, 7);
        let within = |(real, nominal): (&f64, &f64)| (real - nominal).abs() <= nominal * 0.1;
        assert!(real.iter().zip(&nominal).all(within), "{real:?}");
        assert_eq!(real, delays(RETRY, 7));
        assert_ne!(real, delays(RETRY, 8), "what was created together is not tried together");
        let slow = delays(INTERVAL, 7);
        assert!(slow.iter().all(|delay| (3240. ..=3960.).contains(delay)), "{slow:?}");
    }

    #[test]
    fn retrying_earlier_puts_nothing_off_and_something_new_begins_anew() {
        let mut retries = RefusedAttempts::default();
        let until = retries.refused("a", at(0), RETRY, INTERVAL, 1);
        assert_eq!(retries.refused("a", at(1), RETRY, INTERVAL, 1), until);
        assert!(retries.refused("a", at(3), RETRY, INTERVAL, 1) > at(6));
        assert!(retries.refused("b", at(3), RETRY, INTERVAL, 1) < at(6));
        retries.end();
        assert!(retries.refused("b", at(3), RETRY, INTERVAL, 1) < at(6));
    }
}
