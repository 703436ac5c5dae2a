//! Limits for the work of a render, a build, or an evaluation of a user's text.
//!
//! Here: counting steps and bytes, and noticing the caller's stop signal. Elsewhere: the cost of each operation (the
//! engine that counts), and the clock (the caller, because engines have none).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The signal by which the caller says that the time is over. Loops check it. Clones share one signal.
#[derive(Debug, Clone, Default)]
pub struct StopSignal(Arc<AtomicBool>);

impl StopSignal {
    /// Stops every loop that checks it.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the time is over.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Why the work on a text was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WorkLimitExceeded {
    /// The work needs more steps than allowed.
    #[error("it takes more than {0} steps")]
    Steps(u64),
    /// The work needs more bytes than allowed.
    #[error("it takes more than {0} bytes of memory")]
    Bytes(u64),
    /// The time of the caller is over.
    #[error("it takes too long")]
    Time,
}

/// The most steps and bytes that one piece of work may use, as a [`WorkMeter`] counts them.
#[derive(Debug, Clone, Copy)]
pub struct WorkAllowance {
    /// The number of steps. A step takes about one to ten nanoseconds, so this is a time limit on any machine.
    pub steps: u64,
    /// The number of bytes that are made, whether they are kept or not.
    pub bytes: u64,
}

impl WorkAllowance {
    /// No limits. It is for work that is known to end.
    pub const UNLIMITED: Self = Self { steps: u64::MAX, bytes: u64::MAX };
}

/// How many steps are counted between two checks of [`StopSignal`].
const STEPS_PER_STOP_CHECK: u64 = 1 << 12;

/// Counts the steps and bytes that one piece of work uses, and fails once they exceed its [`WorkAllowance`] or the
/// [`StopSignal`] is set.
#[derive(Debug, Clone)]
pub struct WorkMeter {
    allowance: WorkAllowance,
    steps: u64,
    bytes: u64,
    look_at: u64,
    stop: StopSignal,
}

impl WorkMeter {
    /// A new meter, of which nothing is used.
    pub fn new(allowance: WorkAllowance, stop: StopSignal) -> Self {
        Self { allowance, steps: 0, bytes: 0, look_at: 0, stop }
    }

    /// Gives bytes back. The caller does so when it frees them.
    pub fn free(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Charges for steps. The caller does so before it takes them. Work that cannot be interrupted is charged before it
    /// begins.
    ///
    /// # Errors
    /// More steps are needed than are left, or the caller's time is over.
    pub fn steps(&mut self, steps: u64) -> Result<(), WorkLimitExceeded> {
        self.steps = self.steps.saturating_add(steps);
        if self.steps > self.allowance.steps {
            return Err(WorkLimitExceeded::Steps(self.allowance.steps));
        }
        if self.steps >= self.look_at {
            self.look_at = self.steps.saturating_add(STEPS_PER_STOP_CHECK);
            if self.stop.is_set() {
                return Err(WorkLimitExceeded::Time);
            }
        }
        Ok(())
    }

    /// Checks the stop signal at once. It is called during work that takes long compared with its steps.
    ///
    /// # Errors
    /// The caller's time is over.
    pub fn look(&self) -> Result<(), WorkLimitExceeded> {
        if self.stop.is_set() { Err(WorkLimitExceeded::Time) } else { Ok(()) }
    }

    /// Charges for bytes. The caller does so before it makes them.
    ///
    /// # Errors
    /// More bytes are needed than are left.
    pub fn bytes(&mut self, bytes: u64) -> Result<(), WorkLimitExceeded> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.allowance.bytes {
            return Err(WorkLimitExceeded::Bytes(self.allowance.bytes));
        }
        Ok(())
    }

    /// A meter for a part of the work, which may use no more than is left here. [`WorkMeter::join`] adds its use to
    /// this meter.
    #[must_use]
    pub fn within(&self, allowance: WorkAllowance) -> Self {
        let left = self.left();
        let steps = allowance.steps.min(left.steps);
        let bytes = allowance.bytes.min(left.bytes);
        Self::new(WorkAllowance { steps, bytes }, self.stop.clone())
    }

    /// One of `of` equal parts of the rest, for work at the same time. [`WorkMeter::join`] adds its use to this meter.
    #[must_use]
    pub fn part(&self, of: usize) -> Self {
        let left = self.left();
        let of = of.max(1);
        let allowance =
            WorkAllowance { steps: left.steps / of as u64, bytes: left.bytes / of as u64 };
        Self::new(allowance, self.stop.clone())
    }

    /// Adds the use of a part to this meter.
    pub fn join(&mut self, part: &Self) {
        self.steps = self.steps.saturating_add(part.steps);
        self.bytes = self.bytes.saturating_add(part.bytes);
    }

    /// The allowance at the beginning.
    pub fn allowance(&self) -> WorkAllowance {
        self.allowance
    }

    /// The rest of the allowance.
    pub fn left(&self) -> WorkAllowance {
        WorkAllowance {
            steps: self.allowance.steps.saturating_sub(self.steps),
            bytes: self.allowance.bytes.saturating_sub(self.bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_up_ends_the_work_and_so_does_the_caller() {
        let allowance = WorkAllowance { steps: 10_000, bytes: 100 };
        let stop = StopSignal::default();
        let mut meter = WorkMeter::new(allowance, stop.clone());
        assert_eq!(meter.steps(4_000).and_then(|()| meter.bytes(100)), Ok(()));
        assert_eq!(meter.bytes(1), Err(WorkLimitExceeded::Bytes(100)));
        stop.set();
        assert_eq!(meter.steps(5_000), Err(WorkLimitExceeded::Time));
        assert_eq!(meter.look(), Err(WorkLimitExceeded::Time));
        assert_eq!(meter.left().steps, 1_000);
        assert_eq!(meter.steps(u64::MAX), Err(WorkLimitExceeded::Steps(10_000)));
    }

    #[test]
    fn a_part_has_no_more_than_is_left_and_counts_for_the_whole() {
        let mut whole =
            WorkMeter::new(WorkAllowance { steps: 10, bytes: 10 }, StopSignal::default());
        let mut part = whole.within(WorkAllowance { steps: 6, bytes: 100 });
        assert_eq!(part.steps(6).and_then(|()| part.bytes(10)), Ok(()));
        assert_eq!(part.steps(1), Err(WorkLimitExceeded::Steps(6)));
        whole.join(&part);
        assert_eq!((whole.left().steps, whole.left().bytes), (3, 0));
        assert_eq!(
            whole.within(WorkAllowance { steps: 6, bytes: 1 }).steps(4),
            Err(WorkLimitExceeded::Steps(3))
        );
    }

    #[test]
    fn parts_have_together_no_more_than_was_left() {
        let mut whole =
            WorkMeter::new(WorkAllowance { steps: 10, bytes: 100 }, StopSignal::default());
        assert_eq!(whole.bytes(40), Ok(()));
        let mut part = whole.part(3);
        assert_eq!(part.bytes(20), Ok(()));
        assert!(part.bytes(1).is_err());
        assert!((0..3).all(|_| part.steps(1).is_ok()) && part.steps(1).is_err());
        whole.join(&part);
        assert_eq!((whole.left().steps, whole.left().bytes), (6, 39));
    }
}
