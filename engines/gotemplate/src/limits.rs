//! How much a template may cost.

use std::sync::atomic::{AtomicUsize, Ordering};

use golang::work_meter::{StopSignal, WorkAllowance, WorkMeter};

use crate::error::TemplateLimitError;

/// How many bytes the parts of templates and strings that the errors of a run quote have together: each template on the
/// way to an error quotes its own.
const MAX_QUOTED_BYTES: usize = 4 << 20;

/// How many bytes are written in a step.
const WRITTEN_BYTES_PER_STEP: u64 = 8;

/// How many bytes each of them has when the others have used up all.
const MIN_QUOTED_BYTES: usize = 64;

/// Stack in bytes that a thread needs so that neither parsing nor running within [`FormatLimits::default`] overflows
/// it. Little of it is touched unless a template nests expressions or includes as deep as the limits allow.
pub const REQUIRED_STACK_BYTES: usize = 256 << 20;

/// Bounds of parsing and of one run.
#[derive(Debug, Clone, Copy)]
pub struct TemplateLimits {
    /// How deep blocks (`if`, `range`, `with`, `define`, `block`) may be nested in a text.
    pub nesting: usize,
    /// How deep `template` actions may run each other; Go's own limit.
    pub templates: usize,
    /// How deep expressions in parentheses and templates run by functions may be nested in a run. Each level takes
    /// stack.
    pub calls: usize,
    /// Actions, calls and iterations, and what functions do by the length of what they are given.
    pub steps: u64,
    /// Bytes of the output, together with those of all strings, lists and maps that are made on the way.
    pub output: usize,
}

impl Default for TemplateLimits {
    fn default() -> Self {
        Self {
            nesting: 2_000,
            templates: 100_000,
            calls: 12_000,
            steps: 200_000_000,
            output: 256 << 20,
        }
    }
}

/// The rest of the limits, in one run or in several that share it.
#[derive(Debug)]
pub struct TemplateBudget {
    pub(crate) limits: TemplateLimits,
    meter: WorkMeter,
    calls: usize,
    /// Bytes that are reserved for error texts: errors are reported even when all else is used up.
    words: AtomicUsize,
}

impl TemplateBudget {
    /// A new budget: nothing is used up, and the caller has no stop signal.
    pub fn new(limits: TemplateLimits) -> Self {
        Self::with_stop(limits, StopSignal::default())
    }

    /// Nothing is used up; the run ends when the caller's signal is set.
    pub fn with_stop(limits: TemplateLimits, stop: StopSignal) -> Self {
        let allowance = WorkAllowance { steps: limits.steps, bytes: limits.output as u64 };
        Self {
            limits,
            meter: WorkMeter::new(allowance, stop),
            calls: 0,
            words: MAX_QUOTED_BYTES.into(),
        }
    }

    /// One of so many equal parts of what is left, for runs at the same time; [`TemplateBudget::join`] takes it back.
    #[must_use]
    pub fn part(&self, of: usize) -> Self {
        let Self { limits, meter, calls, words } = self;
        Self {
            limits: *limits,
            meter: meter.part(of),
            calls: *calls,
            words: words.load(Ordering::Relaxed).into(),
        }
    }

    /// Uses up what was used of a part.
    pub fn join(&mut self, part: &Self) {
        self.meter.join(&part.meter);
    }

    /// The meter of the run, for work before and after the templates, too.
    pub fn meter(&mut self) -> &mut WorkMeter {
        &mut self.meter
    }

    pub(crate) fn steps(&mut self, steps: usize) -> Result<(), TemplateLimitError> {
        Ok(self.meter.steps(steps as u64)?)
    }

    pub(crate) fn produce(&mut self, bytes: usize) -> Result<(), TemplateLimitError> {
        Ok(self.meter.bytes(bytes as u64)?)
    }

    /// How many bytes may still be made.
    pub(crate) fn room(&self) -> usize {
        let WorkAllowance { steps, bytes } = self.meter.left();
        // A function that makes these bytes takes a step for each few of them.
        usize::try_from(bytes.min(steps.saturating_mul(WRITTEN_BYTES_PER_STEP)))
            .unwrap_or(usize::MAX)
    }

    /// For a text that comes next.
    pub(crate) fn text(&self) -> golang::fmt::FormatLimits {
        let usual = golang::fmt::FormatLimits::default();
        golang::fmt::FormatLimits { bytes: self.room().min(usual.bytes), ..usual }
    }

    /// How many of so many bytes an error may quote.
    pub(crate) fn words(&self, wanted: usize) -> usize {
        let left = self.words.load(Ordering::Relaxed);
        self.words.store(left.saturating_sub(wanted), Ordering::Relaxed);
        wanted.min(left.max(MIN_QUOTED_BYTES))
    }

    /// Goes so many levels deeper; [`TemplateBudget::leave`] goes back.
    pub(crate) fn enter(&mut self) -> Result<(), TemplateLimitError> {
        if self.calls >= self.limits.calls {
            return Err(TemplateLimitError::Calls(self.limits.calls));
        }
        self.calls += 1;
        Ok(())
    }

    pub(crate) fn leave(&mut self) {
        self.calls -= 1;
    }
}
