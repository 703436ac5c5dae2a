//! Limits for the cost of a template.

use std::sync::atomic::{AtomicUsize, Ordering};

use golang::work_meter::{StopSignal, WorkAllowance, WorkMeter};

use crate::error::TemplateLimitError;

/// How many bytes of templates and strings the errors of a run may quote together. Each template in the trace of an
/// error quotes its own part.
const MAX_QUOTED_BYTES: usize = 4 << 20;

/// How many bytes are written in a step.
const WRITTEN_BYTES_PER_STEP: u64 = 8;

/// How many bytes each error may still quote after the others have used the total.
const MIN_QUOTED_BYTES: usize = 64;

/// How much stack a thread needs, in bytes, to parse and run any template within [`FormatLimits::default`]. Most of it
/// stays unused, unless a template nests expressions or includes as deep as the limits allow.
pub const REQUIRED_STACK_BYTES: usize = 256 << 20;

/// Limits of parsing a text, and of one run.
#[derive(Debug, Clone, Copy)]
pub struct TemplateLimits {
    /// How deep blocks (`if`, `range`, `with`, `define`, `block`) may be nested in a text.
    pub nesting: usize,
    /// How deep `template` actions may be nested. The number is Go's.
    pub templates: usize,
    /// How deep expressions in parentheses, and templates run by functions, may be nested. Each level takes space on
    /// the stack.
    pub calls: usize,
    /// How many actions, calls and iterations a run may take. Functions are charged by the length of their arguments,
    /// too.
    pub steps: u64,
    /// How many bytes the output and all intermediate strings, lists and maps may have together.
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

/// The rest of the limits, for one run or for several that share it.
#[derive(Debug)]
pub struct TemplateBudget {
    pub(crate) limits: TemplateLimits,
    meter: WorkMeter,
    calls: usize,
    /// How many bytes are reserved for texts of errors. Errors are reported even if all other limits are used up.
    words: AtomicUsize,
}

impl TemplateBudget {
    /// An unused budget without a stop signal.
    pub fn new(limits: TemplateLimits) -> Self {
        Self::with_stop(limits, StopSignal::default())
    }

    /// An unused budget. The run ends when the caller sets the signal.
    pub fn with_stop(limits: TemplateLimits, stop: StopSignal) -> Self {
        let allowance = WorkAllowance { steps: limits.steps, bytes: limits.output as u64 };
        Self {
            limits,
            meter: WorkMeter::new(allowance, stop),
            calls: 0,
            words: MAX_QUOTED_BYTES.into(),
        }
    }

    /// One of `of` equal parts of the rest, for runs at the same time. [`TemplateBudget::join`] adds its use to this
    /// budget.
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

    /// Adds the use of a part to this budget.
    pub fn join(&mut self, part: &Self) {
        self.meter.join(&part.meter);
    }

    /// The meter of the run. It also counts work before and after the templates.
    pub fn meter(&mut self) -> &mut WorkMeter {
        &mut self.meter
    }

    pub(crate) fn steps(&mut self, steps: usize) -> Result<(), TemplateLimitError> {
        Ok(self.meter.steps(steps as u64)?)
    }

    pub(crate) fn produce(&mut self, bytes: usize) -> Result<(), TemplateLimitError> {
        Ok(self.meter.bytes(bytes as u64)?)
    }

    /// How many bytes the run may still make.
    pub(crate) fn room(&self) -> usize {
        let WorkAllowance { steps, bytes } = self.meter.left();
        // A function that makes these bytes takes a step for every few of them.
        usize::try_from(bytes.min(steps.saturating_mul(WRITTEN_BYTES_PER_STEP)))
            .unwrap_or(usize::MAX)
    }

    /// The limits for the next text.
    pub(crate) fn text(&self) -> golang::fmt::FormatLimits {
        let usual = golang::fmt::FormatLimits::default();
        golang::fmt::FormatLimits { bytes: self.room().min(usual.bytes), ..usual }
    }

    /// How many of these bytes an error may quote.
    pub(crate) fn words(&self, wanted: usize) -> usize {
        let left = self.words.load(Ordering::Relaxed);
        self.words.store(left.saturating_sub(wanted), Ordering::Relaxed);
        wanted.min(left.max(MIN_QUOTED_BYTES))
    }

    /// Enters one level deeper. [`TemplateBudget::leave`] leaves it.
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
