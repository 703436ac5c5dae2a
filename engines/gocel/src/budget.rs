//! What one evaluation may cost, and how it ends early.
//!
//! Here: counting. Elsewhere: what counts how much ([`crate::eval`], `functions`), the counter
//! ([`golang::work_meter`]).

use golang::work_meter::{StopSignal, WorkAllowance, WorkLimitExceeded, WorkMeter};

/// What one evaluation may use up: nodes examined, elements and entries compared or copied; and the bytes of all strings
/// and lists that it makes or reads through.
pub(crate) const EVALUATION: WorkAllowance = WorkAllowance { steps: 1_000_000, bytes: 64 << 20 };

/// Why an evaluation has no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CelError {
    /// A variable that there is not; others of the same spelling may still be tried.
    NoSuchAttribute(String),
    /// Any other failure, in the words of the language.
    Failed(String),
    /// It costs more than an evaluation may; no operator absorbs this one.
    TooExpensive {
        what: WorkLimitExceeded,
        /// Others of the same run have used up the most of it.
        is_short: bool,
    },
}

impl CelError {
    pub(crate) fn failed(text: impl Into<String>) -> Self {
        Self::Failed(text.into())
    }

    pub(crate) fn no_such_overload() -> Self {
        Self::failed("no such overload")
    }
}

impl std::fmt::Display for CelError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoSuchAttribute(names) => write!(f, "no such attribute(s): {names}"),
            Self::Failed(text) => f.write_str(text),
            Self::TooExpensive { what, is_short } => {
                let much = match what {
                    WorkLimitExceeded::Steps(_) => "too many steps",
                    WorkLimitExceeded::Bytes(_) => "too much memory",
                    WorkLimitExceeded::Time => "too much time",
                };
                f.write_str("operation cancelled: ")?;
                match is_short {
                    false => {
                        write!(
                            f,
                            "the expression needs {much}; reduce the number of elements that it reads"
                        )
                    }
                    true => write!(
                        f,
                        "the expressions of one object need {much} in total; use fewer of them, or reduce the number of \
                         elements that they read"
                    ),
                }
            }
        }
    }
}

/// What is left to spend: a part of what a run may.
#[derive(Debug)]
pub(crate) struct CelBudget {
    meter: WorkMeter,
    /// The run had less left than one evaluation may cost.
    is_short: bool,
}

impl Default for CelBudget {
    fn default() -> Self {
        Self::of(&WorkMeter::new(EVALUATION, StopSignal::default()))
    }
}

impl CelBudget {
    /// For one evaluation of a run.
    pub(crate) fn of(run: &WorkMeter) -> Self {
        let left = run.left();
        let is_short = left.steps < EVALUATION.steps || left.bytes < EVALUATION.bytes;
        Self { meter: run.within(EVALUATION), is_short }
    }

    /// What the evaluation used up is used up for the run.
    pub(crate) fn give_back(&self, run: &mut WorkMeter) {
        run.join(&self.meter);
    }

    pub(crate) fn spend(&mut self, steps: usize) -> Result<(), CelError> {
        let is_short = self.is_short;
        self.meter.steps(steps as u64).map_err(|what| CelError::TooExpensive { what, is_short })
    }

    /// To be called before so many bytes are made or read.
    pub(crate) fn spend_bytes(&mut self, bytes: usize) -> Result<(), CelError> {
        let is_short = self.is_short;
        self.meter.bytes(bytes as u64).map_err(|what| CelError::TooExpensive { what, is_short })
    }
}
