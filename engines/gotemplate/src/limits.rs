//! How much a template may cost.

use crate::error::LimitError;

/// Stack in bytes that a thread needs so that neither parsing nor running within [`Limits::default`] overflows
/// it. Little of it is touched unless a template nests expressions or includes as deep as the limits allow.
pub const STACK: usize = 256 << 20;

/// Bounds of parsing and of one run.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How deep blocks (`if`, `range`, `with`, `define`, `block`) may be nested in a text.
    pub nesting: usize,
    /// How deep `template` actions may run each other; Go's own limit.
    pub templates: usize,
    /// How deep expressions in parentheses and templates run by functions may be nested in a run. Each level takes
    /// stack.
    pub calls: usize,
    /// Actions, calls and iterations.
    pub steps: u64,
    /// Bytes of the output, together with those of all texts that are made on the way.
    pub output: usize,
}

impl Default for Limits {
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

/// What is left of the limits, in one run or in several that share it.
#[derive(Debug)]
pub struct Budget {
    pub(crate) limits: Limits,
    steps: u64,
    output: usize,
    calls: usize,
    /// The steps and output with which it began.
    begun: (u64, usize),
}

impl Budget {
    /// Nothing is used up.
    pub fn new(limits: Limits) -> Self {
        Self { limits, steps: 0, output: 0, calls: 0, begun: (0, 0) }
    }

    /// One of so many equal parts of what is left, for runs at the same time; [`Budget::join`] takes it back.
    pub fn part(&self, of: usize) -> Self {
        let of = of.max(1);
        let steps = self.limits.steps.saturating_sub(self.steps) / of as u64;
        let output = self.limits.output.saturating_sub(self.output) / of;
        let (steps, output) = (self.limits.steps - steps, self.limits.output - output);
        Self { limits: self.limits, steps, output, calls: self.calls, begun: (steps, output) }
    }

    /// Uses up what was used of a part.
    pub fn join(&mut self, part: &Self) {
        let (steps, output) = part.begun;
        self.steps = self.steps.saturating_add(part.steps.saturating_sub(steps));
        self.output = self.output.saturating_add(part.output.saturating_sub(output));
    }

    pub(crate) fn step(&mut self) -> Result<(), LimitError> {
        self.steps += 1;
        if self.steps > self.limits.steps {
            return Err(LimitError::Steps(self.limits.steps));
        }
        Ok(())
    }

    pub(crate) fn produce(&mut self, bytes: usize) -> Result<(), LimitError> {
        self.output = self.output.saturating_add(bytes);
        if self.output > self.limits.output {
            return Err(LimitError::Output(self.limits.output));
        }
        Ok(())
    }

    /// For a text that comes next.
    pub(crate) fn text(&self) -> golang::fmt::Limits {
        let bytes = self.limits.output.saturating_sub(self.output);
        golang::fmt::Limits { bytes, ..golang::fmt::Limits::default() }
    }

    /// Goes so many levels deeper; [`Budget::leave`] goes back.
    pub(crate) fn enter(&mut self) -> Result<(), LimitError> {
        if self.calls >= self.limits.calls {
            return Err(LimitError::Calls(self.limits.calls));
        }
        self.calls += 1;
        Ok(())
    }

    pub(crate) fn leave(&mut self) {
        self.calls -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::{Budget, Limits};

    #[test]
    fn parts_have_together_no_more_than_was_left() {
        let limits = Limits { steps: 10, output: 100, ..Limits::default() };
        let mut whole = Budget::new(limits);
        whole.produce(40).expect("there is room");
        let mut part = whole.part(3);
        part.produce(20).expect("a third of sixty");
        assert!(part.produce(1).is_err());
        assert!((0..3).all(|_| part.step().is_ok()) && part.step().is_err());
        whole.join(&part);
        assert_eq!((whole.steps, whole.output), (4, 61));
    }
}
