//! How much one text may cost.

use crate::error::LimitError;

/// Bounds of one substitution.
#[derive(Debug, Clone, Copy)]
pub struct SubstitutionLimits {
    /// How deep expressions may stand within expressions, up to [`SubstitutionLimits::MAX_DEPTH`]. Each level takes stack.
    pub depth: usize,
    /// Bytes of the output, together with those of all strings that are made on the way.
    pub output: usize,
    /// Characters that are examined or compared in values.
    pub steps: u64,
}

impl SubstitutionLimits {
    /// The greatest depth that the stack of any thread has room for; a greater one in [`SubstitutionLimits::depth`] is this one.
    pub const MAX_DEPTH: usize = 256;
}

impl Default for SubstitutionLimits {
    fn default() -> Self {
        Self { depth: Self::MAX_DEPTH, output: 32 << 20, steps: 50_000_000 }
    }
}

/// What is used of the limits.
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

    /// To be called before the bytes are there.
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
