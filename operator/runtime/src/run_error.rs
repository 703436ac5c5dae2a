//! The reason why a run ends before it has a result.

use reconcile::RunOutcome;
use windlass_cluster::ClusterError;

/// The reason why a run ends before it has a result.
#[derive(Debug)]
pub enum RunError {
    /// The run has an outcome, which its status shows.
    Outcome(RunOutcome),
    /// A request to the API server failed, so the run is repeated.
    Cluster(ClusterError),
}

impl RunError {
    /// The outcome of the run.
    ///
    /// # Errors
    /// A request to the API server failed.
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
