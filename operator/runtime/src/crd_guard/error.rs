//! The error of the guard of CRDs.

use windlass_cluster::ClusterError;

/// Why the guard of CRDs refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum CrdGuardError {
    /// The guard refuses, for this reason. A repetition would bring the same error.
    #[error("{0}")]
    Refused(String),
    /// A request to the API server failed.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
}

impl CrdGuardError {
    /// The reason why the guard refuses.
    ///
    /// # Errors
    /// A request to the API server failed, so the guard did not decide.
    pub fn refusal(self) -> Result<String, ClusterError> {
        match self {
            Self::Refused(text) => Ok(text),
            Self::Cluster(error) => Err(error),
        }
    }
}
