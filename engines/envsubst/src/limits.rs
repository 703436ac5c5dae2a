//! Limits for the cost of substituting one text.

use crate::error::LimitError;

/// Limits of one substitution of variables, so that a text cannot use too much memory or time.
#[derive(Debug, Clone, Copy)]
pub struct SubstitutionLimits {
    /// How deep expressions may be nested, up to [`SubstitutionLimits::MAX_DEPTH`]. Each level takes space on the
    /// stack.
    pub depth: usize,
    /// How many bytes the output and all intermediate strings may have together.
    pub output: usize,
    /// How many characters of values may be examined or compared.
    pub steps: u64,
}

impl SubstitutionLimits {
    /// The greatest depth for which the stack of any thread is large enough. A greater [`SubstitutionLimits::depth`] is
    /// lowered to it.
    pub const MAX_DEPTH: usize = 256;
}

impl Default for SubstitutionLimits {
    fn default() -> Self {
        Self { depth: Self::MAX_DEPTH, output: 32 << 20, steps: 50_000_000 }
    }
}

/// The used part of the limits.
#[derive(Debug)]
pub(crate) struct SubstitutionBudget {
    limits: SubstitutionLimits,
    output: usize,
    steps: u64,
}

impl SubstitutionBudget {
    pub(crate) fn new(limits: SubstitutionLimits) -> Self {
        Self { limits, output: 0, steps: 0 }
    }

    /// Charges for bytes. The caller does so before it creates them.
    pub(crate) fn produce(&mut self, bytes: usize) -> Result<(), LimitError> {
        self.output = self.output.saturating_add(bytes);
        if self.output > self.limits.output {
            return Err(LimitError::Output(self.limits.output));
        }
        Ok(())
    }

    pub(crate) fn spend(&mut self, steps: usize) -> Result<(), LimitError> {
        self.steps = self.steps.saturating_add(steps as u64);
        if self.steps > self.limits.steps {
            return Err(LimitError::Steps(self.limits.steps));
        }
        Ok(())
    }
}
