//! Why a run ends before it has a result.

use reconcile::RunOutcome;
use windlass_cluster::ClusterError;

/// Why a run ends before it has a result.
#[derive(Debug)]
pub enum RunError {
    /// It has an outcome, and its status says why.
    Outcome(RunOutcome),
    /// The API server could not be asked: the run is repeated.
    Cluster(ClusterError),
}

impl RunError {
    /// The outcome of the run.
    ///
    /// # Errors
    /// The API server could not be asked.
    pub fn outcome(self) -> Result<RunOutcome, ClusterError> {
        match self {
            Self::Outcome(outcome) => Ok(outcome),
            Self::Cluster(error) => Err(error),
        }
    }
}

impl From<RunOutcome> for RunError {
    fn from(outcome: RunOutcome) -> Self {
        Self::Outcome(outcome)
    }
}

impl From<ClusterError> for RunError {
    fn from(error: ClusterError) -> Self {
        Self::Cluster(error)
    }
}
