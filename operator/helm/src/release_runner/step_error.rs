//! The reasons for which a step of a release has no result.

use reconcile::RunOutcome;

/// The reason why a step of a release has no result.
#[derive(Debug)]
pub(super) enum StepError {
    /// The operation fails with a text, in Helm's words where Helm has some.
    Failed(String),
    /// The run ends with this outcome, such as when the API server does not answer. The operation goes on later.
    Outcome(RunOutcome),
}

impl StepError {
    /// The text with which the operation fails.
    ///
    /// # Errors
    /// The outcome of the run.
    pub(super) fn text(self) -> Result<String, RunOutcome> {
        match self {
            Self::Failed(text) => Ok(text),
            Self::Outcome(outcome) => Err(outcome),
        }
    }
}

impl From<RunOutcome> for StepError {
    fn from(outcome: RunOutcome) -> Self {
        Self::Outcome(outcome)
    }
}
