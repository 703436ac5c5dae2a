//! Reads the files of a source's artifact, from the local store or from the shard that has the artifact.
//!
//! Elsewhere: whether an artifact belongs to its source (`source_catalog::artifact_owner`, called by `source_catalog.rs`).

use std::io::Read as _;
use std::sync::Arc;

use artifacts::archive::ExtractOptions;
use artifacts::remote_artifact::{ArtifactFetchLimits, RemoteArtifact};
use artifacts::store;
use crds::Artifact;
use reconcile::{NextRunTrigger, ObjectKey, RunOutcome, Time, condition_reason};

use super::run_context::RunContext;
use windlass_cluster::error::chain;

/// Parity(flux): the annotation by which the maker of an OCI artifact says from which revision it was made.
pub const ORIGIN_REVISION: &str = "org.opencontainers.image.revision";

/// The origin revision in the metadata of an artifact. Empty if the artifact has none.
pub fn origin_revision(artifact: &Artifact) -> &str {
    artifact.metadata.get(ORIGIN_REVISION).map_or("", String::as_str)
}

/// The largest archive that is downloaded from another shard or from the leader. Flux has no such limit.
pub const MAX_ARTIFACT_BYTES: u64 = 1 << 30;

/// The reason why an artifact cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArtifactError {
    /// The store does not have the artifact, for example after a start with an empty volume. The source has to be reconciled
    /// first.
    #[error("{0}")]
    NotInStorage(String),
    /// The artifact cannot be used, or its store cannot be reached.
    #[error("{0}")]
    Unusable(String),
}

impl ArtifactError {
    fn of_store(error: &store::Error) -> Self {
        match error {
            store::Error::Missing(_) => Self::NotInStorage(chain(error)),
            _ => Self::Unusable(chain(error)),
        }
    }

    fn of_remote(error: &artifacts::remote_artifact::Error) -> Self {
        match error {
            artifacts::remote_artifact::Error::Status { status: 404, .. } => {
                Self::NotInStorage(chain(error))
            }
            _ => Self::Unusable(chain(error)),
        }
    }

    fn interrupted() -> Self {
        Self::Unusable("reading it was interrupted".to_owned())
    }

    /// The outcome of a run that needs the artifact. The message begins with `what`. If the artifact is missing, a change of
    /// the source starts the next run, or the time `again` does.
    ///
    /// Parity(flux): the object waits for an artifact that is not in the storage yet. The log reports the wait and no
    /// event does, because after a start on an empty volume every object waits.
    pub fn ends(self, source: &ObjectKey, what: &str, again: Time) -> RunOutcome {
        let text = format!("{what}: {self}");
        match self {
            Self::NotInStorage(_) => {
                let wake = NextRunTrigger::on([source.clone()]).and_at(again);
                RunOutcome::Blocked(condition_reason::ARTIFACT_FAILED, text, wake)
            }
            Self::Unusable(_) => RunOutcome::Failed(
                condition_reason::ARTIFACT_FAILED,
                text,
                NextRunTrigger::default(),
            ),
        }
    }
}

/// The files of an artifact. If the artifact is `elsewhere`, windlass downloads them from the URL in the status of its source.
///
/// # Errors
/// The reason why the artifact cannot be read.
pub async fn files(
    context: &RunContext,
    artifact: &Artifact,
    elsewhere: bool,
) -> Result<Arc<tree::MemoryTree>, ArtifactError> {
    let store = context.artifacts.clone();
    let time = context.settings.http_timeout;
    let egress = context.remotes.artifacts.clone();
    let Artifact { path, digest, url, .. } = artifact.clone();
    let runtime = tokio::runtime::Handle::current();
    let loaded = tokio::task::spawn_blocking(move || {
        let options = ExtractOptions::default();
        if elsewhere {
            let limits = ArtifactFetchLimits { bytes: MAX_ARTIFACT_BYTES, time };
            let remote = RemoteArtifact { url, digest, egress };
            artifacts::remote_artifact::load(&store, &remote, &options, &limits, &runtime)
                .map_err(|error| ArtifactError::of_remote(&error))
        } else {
            let loaded = store.load(&path, &digest, &options);
            loaded.map_err(|error| ArtifactError::of_store(&error))
        }
    });
    loaded.await.unwrap_or_else(|_| Err(ArtifactError::interrupted()))
}

/// The bytes of an artifact that is no archive, or that the caller unpacks. At most `limit` bytes.
///
/// # Errors
/// The reason why the artifact cannot be read.
pub async fn bytes(
    context: &RunContext,
    artifact: &Artifact,
    elsewhere: bool,
    limit: u64,
) -> Result<Vec<u8>, ArtifactError> {
    let store = context.artifacts.clone();
    let time = context.settings.http_timeout;
    let Artifact { path, digest, url, .. } = artifact.clone();
    if elsewhere {
        let egress = context.remotes.artifacts.clone();
        let remote = RemoteArtifact { url, digest, egress };
        let limits = ArtifactFetchLimits { bytes: limit, time };
        let file = artifacts::remote_artifact::fetch(&remote, &limits).await;
        return read(file.map_err(|error| ArtifactError::of_remote(&error))?, limit).await;
    }
    let open = move || {
        let of_store = |error| ArtifactError::of_store(&error);
        if !store.verify(&path, &digest).map_err(of_store)? {
            return Err(of_store(store::Error::Missing(path)));
        }
        store.open_file(&path).map_err(of_store)
    };
    let opened = tokio::task::spawn_blocking(open).await;
    read(opened.unwrap_or_else(|_| Err(ArtifactError::interrupted()))?, limit).await
}

async fn read(file: std::fs::File, limit: u64) -> Result<Vec<u8>, ArtifactError> {
    let read = move || {
        let mut bytes = Vec::new();
        let read = file.take(limit + 1).read_to_end(&mut bytes);
        let read = read.map_err(|error| ArtifactError::Unusable(error.to_string()))?;
        if read as u64 > limit {
            return Err(ArtifactError::Unusable(format!("it is larger than {limit} bytes")));
        }
        Ok(bytes)
    };
    let read = tokio::task::spawn_blocking(read).await;
    read.unwrap_or_else(|_| Err(ArtifactError::interrupted()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_in_storage_yet_is_waited_for_and_what_is_damaged_is_a_failure() {
        let source = ObjectKey::new("source.toolkit.fluxcd.io", "GitRepository", "apps", "app");
        let path = || "gitrepository/apps/app/a.tar.gz".to_owned();
        let missing = ArtifactError::of_store(&store::Error::Missing(path()));
        let outcome = missing.ends(&source, "artifact of revision main", Time::UNIX_EPOCH);
        let text = "artifact of revision main: artifact `gitrepository/apps/app/a.tar.gz` not found in storage";
        let wake = NextRunTrigger::on([source.clone()]).and_at(Time::UNIX_EPOCH);
        assert_eq!(
            outcome,
            RunOutcome::Blocked(condition_reason::ARTIFACT_FAILED, text.to_owned(), wake)
        );

        let of_status =
            |status| artifacts::remote_artifact::Error::Status { url: "u".to_owned(), status };
        let is_waiting = |error: ArtifactError| {
            matches!(error.ends(&source, "a", Time::UNIX_EPOCH), RunOutcome::Blocked(..))
        };
        assert!(is_waiting(ArtifactError::of_remote(&of_status(404))));
        for status in [403, 500] {
            assert!(!is_waiting(ArtifactError::of_remote(&of_status(status))), "{status}");
        }
        let damaged = store::Error::Mismatch { path: path(), expected: "sha256:0".to_owned() };
        assert!(!is_waiting(ArtifactError::of_store(&damaged)));
    }
}
