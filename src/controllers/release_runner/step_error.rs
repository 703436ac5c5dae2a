//! Why a step of a release has no result.

use reconcile::Rest;

/// Why a step of a release has no result.
#[derive(Debug)]
pub(super) enum StepError {
    /// The operation fails with a text, in Helm's words where Helm has some.
    Failed(String),
    /// The run rests, such as where the API server gives no answer: the operation goes on later.
    Rest(Rest),
}

impl StepError {
    /// The text with which the operation fails.
    ///
    /// # Errors
    /// Where the run rests.
    pub(super) fn text(self) -> Result<String, Rest> {
        match self {
            Self::Failed(text) => Ok(text),
            Self::Rest(rest) => Err(rest),
        }
    }
}

impl From<Rest> for StepError {
    fn from(rest: Rest) -> Self {
        Self::Rest(rest)
    }
}
