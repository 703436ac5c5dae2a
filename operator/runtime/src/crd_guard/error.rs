//! Why the guard did not do what it was asked for.

use windlass_cluster::ClusterError;

/// Why the guard did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum CrdGuardError {
    /// It must not, or cannot, for this reason: the same would be said again.
    #[error("{0}")]
    Refused(String),
    /// The API server could not be asked.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
}

impl CrdGuardError {
    /// The reason for which the guard refuses, if it decided so.
    ///
    /// # Errors
    /// The API server could not be asked.
    pub fn refusal(self) -> Result<String, ClusterError> {
        match self {
            Self::Refused(text) => Ok(text),
            Self::Cluster(error) => Err(error),
        }
    }
}
