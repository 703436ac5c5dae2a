//! Why a run ends before it has a result.

use reconcile::Rest;
use windlass_cluster::ClusterError;

/// Why a run ends before it has a result.
#[derive(Debug)]
pub enum RunError {
    /// It rests, and its status says why.
    Rest(Rest),
    /// The API server could not be asked: the run is repeated.
    Cluster(ClusterError),
}

impl RunError {
    /// Where the run rests.
    ///
    /// # Errors
    /// The API server could not be asked.
    pub fn rest(self) -> Result<Rest, ClusterError> {
        match self {
            Self::Rest(rest) => Ok(rest),
            Self::Cluster(error) => Err(error),
        }
    }
}

impl From<Rest> for RunError {
    fn from(rest: Rest) -> Self {
        Self::Rest(rest)
    }
}

impl From<ClusterError> for RunError {
    fn from(error: ClusterError) -> Self {
        Self::Cluster(error)
    }
}
