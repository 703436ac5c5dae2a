//! Time limits for renders and builds of text from sources, which cannot read a clock themselves. Also the limit for requests
//! to remotes.
//!
//! Elsewhere: the signal that such work checks ([`golang::work_meter::StopSignal`]), and its memory limit (its meter).

use std::sync::Arc;
use std::time::{Duration, Instant};

use golang::work_meter::StopSignal;
use parking_lot::{Condvar, Mutex, MutexGuard};

/// How long a render or a build may take, without its waits.
pub const TIME_LIMIT: Duration = Duration::from_secs(20);

/// How long a request to a remote or a fetch may take. A longer `spec.timeout` counts as this one.
///
/// A fetch holds one of a few permits for that time. Differs(flux): it has no limit.
pub const LONGEST_TIMEOUT: Duration = Duration::from_secs(600);

/// Sets a [`StopSignal`] when the time is over. Dropping the limit ends it.
#[derive(Debug)]
pub struct TimeLimit {
    shared: Option<Arc<TimeLimitState>>,
}

#[derive(Debug)]
struct TimeLimitState {
    clock: Mutex<TimeLimitClock>,
    changed: Condvar,
}

#[derive(Debug)]
struct TimeLimitClock {
    left: Duration,
    /// When the clock was started. `None` while it is paused.
    since: Option<Instant>,
    is_over: bool,
}

impl TimeLimitState {
    fn clock(&self) -> MutexGuard<'_, TimeLimitClock> {
        self.clock.lock()
    }

    fn change(&self, change: impl FnOnce(&mut TimeLimitClock)) {
        change(&mut self.clock());
        self.changed.notify_all();
    }

    /// Waits until the time is over or the limit is dropped.
    fn watch(&self, stop: &StopSignal) {
        let mut clock = self.clock();
        while !clock.is_over {
            let Some(since) = clock.since else {
                self.changed.wait(&mut clock);
                continue;
            };
            let left = clock.left.saturating_sub(since.elapsed());
            if left.is_zero() {
                stop.set();
                return;
            }
            self.changed.wait_for(&mut clock, left);
        }
    }
}

impl TimeLimit {
    /// Starts a time limit. A limit of zero means no limit.
    ///
    /// If the thread for the clock cannot start, the work is stopped at once, because nothing could stop it later.
    pub fn start(limit: Duration, stop: &StopSignal) -> Self {
        if limit.is_zero() {
            return Self { shared: None };
        }
        let clock = TimeLimitClock { left: limit, since: Some(Instant::now()), is_over: false };
        let shared = Arc::new(TimeLimitState { clock: Mutex::new(clock), changed: Condvar::new() });
        let watched = shared.clone();
        let watching = stop.clone();
        let thread = std::thread::Builder::new().name("time-limit".to_owned());
        if thread.stack_size(64 << 10).spawn(move || watched.watch(&watching)).is_err() {
            stop.set();
        }
        Self { shared: Some(shared) }
    }

    /// Calls `wait`, which waits for others, with the clock paused.
    pub fn pause<T>(&self, wait: impl FnOnce() -> T) -> T {
        let Some(shared) = &self.shared else { return wait() };
        shared.change(|clock| {
            if let Some(since) = clock.since.take() {
                clock.left = clock.left.saturating_sub(since.elapsed());
            }
        });
        let done = wait();
        shared.change(|clock| clock.since = Some(Instant::now()));
        done
    }
}

impl Drop for TimeLimit {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            shared.change(|clock| clock.is_over = true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn await_stop(stop: &StopSignal) {
        while !stop.is_set() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn the_time_ends_but_not_during_a_wait() {
        let stop = StopSignal::default();
        let limit = TimeLimit::start(Duration::from_millis(200), &stop);
        limit.pause(|| {
            std::thread::sleep(Duration::from_millis(400));
            assert!(!stop.is_set());
        });
        await_stop(&stop);
    }

    #[test]
    fn who_is_done_in_time_is_not_stopped_and_no_limit_is_none() {
        let stop = StopSignal::default();
        let none = StopSignal::default();
        drop(TimeLimit::start(Duration::from_millis(20), &stop));
        let _none = TimeLimit::start(Duration::ZERO, &none);
        std::thread::sleep(Duration::from_millis(60));
        assert!(!stop.is_set() && !none.is_set());
    }
}
