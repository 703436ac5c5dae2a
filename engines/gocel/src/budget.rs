//! The budget of one evaluation, and errors that end an evaluation early.
//!
//! Here: counting the cost. Elsewhere: the cost of each operation ([`crate::eval`], `functions`), and the counter
//! ([`golang::work_meter`]).

use golang::work_meter::{StopSignal, WorkAllowance, WorkLimitExceeded, WorkMeter};

/// The budget of one evaluation. Steps are examined nodes, and compared or copied elements and entries. Bytes are those
/// of all strings and lists that the evaluation makes or reads.
pub(crate) const EVALUATION: WorkAllowance = WorkAllowance { steps: 1_000_000, bytes: 64 << 20 };

/// Why an evaluation has no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CelError {
    /// A variable does not exist. Other variables that the same dotted name may mean can still be tried.
    NoSuchAttribute(String),
    /// Any other failure, in the words of CEL.
    Failed(String),
    /// The evaluation exceeds its budget. No operator can ignore this error.
    TooExpensive {
        what: WorkLimitExceeded,
        /// Whether other evaluations of the same run have used most of the budget.
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

/// The rest of an evaluation's budget, which is a part of the budget of a run.
#[derive(Debug)]
pub(crate) struct CelBudget {
    meter: WorkMeter,
    /// Whether the run had less left than one evaluation may cost.
    is_short: bool,
}

impl Default for CelBudget {
    fn default() -> Self {
        Self::of(&WorkMeter::new(EVALUATION, StopSignal::default()))
    }
}

impl CelBudget {
    /// The budget for one evaluation of a run.
    pub(crate) fn of(run: &WorkMeter) -> Self {
        let left = run.left();
        let is_short = left.steps < EVALUATION.steps || left.bytes < EVALUATION.bytes;
        Self { meter: run.within(EVALUATION), is_short }
    }

    /// Adds the cost of the evaluation to that of the run.
    pub(crate) fn give_back(&self, run: &mut WorkMeter) {
        run.join(&self.meter);
    }

    pub(crate) fn spend(&mut self, steps: usize) -> Result<(), CelError> {
        let is_short = self.is_short;
        self.meter.steps(steps as u64).map_err(|what| CelError::TooExpensive { what, is_short })
    }

    /// Charges for bytes. The caller does so before it makes or reads them.
    pub(crate) fn spend_bytes(&mut self, bytes: usize) -> Result<(), CelError> {
        let is_short = self.is_short;
        self.meter.bytes(bytes as u64).map_err(|what| CelError::TooExpensive { what, is_short })
    }
}
