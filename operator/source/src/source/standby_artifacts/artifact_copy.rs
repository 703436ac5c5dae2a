//! The copy of one artifact from the storage of the leader.
//!
//! Nothing is taken from the URL in a status, and a digest in a status proves nothing: who may write a status could name bytes of
//! their own, which a new leader would then apply as the artifact of the source. The address of the leader is in windlass's own
//! Lease, and its storage has in the folder of a source only what the leader fetched for this source.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use artifacts::remote_artifact::{ArtifactFetchLimits, RemoteArtifact, fetch_to};
use artifacts::store::{ArtifactStore, server_url};
use crds::Artifact;
use http_client::EgressRules;
use tokio::runtime::Handle;
use tokio::sync::{OwnedRwLockReadGuard, RwLock};
use url::Url;

use super::NamedArtifact;
use crate::source::{SourceKind, executor, linked};
use windlass_cluster::error::chain;
use windlass_cluster::leadership::Leadership;
use windlass_runtime::artifact_files::MAX_ARTIFACT_BYTES;
use windlass_runtime::controller_kind::node_of;
use windlass_runtime::source_catalog::artifact_owner;

/// The copies that are being written to the store. They go on for a moment after this process has begun to lead.
#[derive(Debug, Default)]
pub(in crate::source) struct CopiesInFlight(Arc<RwLock<()>>);

impl CopiesInFlight {
    /// Waits until a copy may begin. The copy ends when the guard is dropped.
    pub(super) async fn begin(&self) -> OwnedRwLockReadGuard<()> {
        self.0.clone().read_owned().await
    }

    /// Waits until no copy is in flight. Afterwards a leader is the only one that writes to the store.
    pub(in crate::source) async fn ended(&self) {
        drop(self.0.write().await);
    }
}

/// The store of a standby, and the storage of the leader from which it is filled.
pub(super) struct StandbyStorage {
    pub(super) store: Arc<ArtifactStore>,
    pub(super) leadership: Leadership,
    /// The address from which the leader serves artifacts, as in `--storage-adv-addr`.
    pub(super) leader: String,
    /// The time limit of a download.
    pub(super) time: Duration,
    pub(super) runtime: Handle,
}

impl StandbyStorage {
    /// Stores the artifact of a status in the place where the leader has it, unless the store has it. `held` is the artifact of
    /// the source that was copied last. Blocks.
    ///
    /// # Errors
    /// Says why the store does not have the artifact.
    pub(super) fn copy<K: SourceKind>(
        &self,
        object: &K,
        artifact: &Artifact,
        held: Option<&NamedArtifact>,
    ) -> Result<(), String> {
        artifact_owner::check(&node_of(object), artifact, false)?;
        if self.store.verify(&artifact.path, &artifact.digest).map_err(|error| chain(&error))? {
            return Ok(());
        }
        let size = artifact.size.and_then(|size| u64::try_from(size).ok());
        if let (Some(size), Some(room)) = (size, self.store.room())
            && size > room
        {
            return Err(format!(
                "its {size} bytes do not fit into the storage, which has room for {room}; increase `--storage-size-limit`"
            ));
        }
        let limit = size.unwrap_or(MAX_ARTIFACT_BYTES).min(MAX_ARTIFACT_BYTES);
        let name = artifact.path.rsplit('/').next().unwrap_or_default();
        self.check_standby()?;
        let kept = executor::keep(&self.store, object, name, &artifact.revision, |out| {
            self.fill(out, artifact, limit, held)?;
            self.check_standby()
        });
        let kept = kept.map_err(|outcome| outcome.text().to_owned())?;
        if let Some(latest) = K::LATEST_LINK {
            drop(linked(&self.store, &kept, latest));
        }
        Ok(())
    }

    /// Writes the bytes of an artifact: from the store, if it has them under another name, or else from the leader.
    fn fill(
        &self,
        out: &mut dyn io::Write,
        artifact: &Artifact,
        limit: u64,
        held: Option<&NamedArtifact>,
    ) -> Result<(), String> {
        if let Some(mut file) = held.and_then(|held| self.same_bytes(held, artifact)) {
            return io::copy(&mut file, out).map(drop).map_err(|error| error.to_string());
        }
        let url = url_of(&self.leader, &artifact.path).ok_or_else(|| {
            format!("the leader serves artifacts at `{}`, which is no host or URL", self.leader)
        })?;
        let digest = artifact.digest.clone();
        // The leader is a server that the operator of this program has named.
        let remote = RemoteArtifact { url, digest, egress: EgressRules::Anywhere };
        let limits = ArtifactFetchLimits { bytes: limit, time: self.time };
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                () = self.leadership.begun() => self.check_standby(),
                fetched = fetch_to(&remote, &limits, out) => fetched.map_err(|error| chain(&error)),
            }
        })
    }

    /// The file of an earlier copy, if it has the bytes of an artifact. Otherwise `None`.
    fn same_bytes(&self, held: &NamedArtifact, artifact: &Artifact) -> Option<File> {
        let is_same = held.digest == artifact.digest
            && self.store.verify(&held.path, &held.digest).is_ok_and(|is_intact| is_intact);
        if is_same { self.store.open_file(&held.path).ok() } else { None }
    }

    /// Checks that this process has not begun to lead. From then on, the runs of sources write to the store.
    fn check_standby(&self) -> Result<(), String> {
        if self.leadership.has_begun() {
            return Err("this process leads by now".to_owned());
        }
        Ok(())
    }
}

/// The URL of an artifact in the storage of the leader. No path leads out of the address, and no part of it is a query. `None`
/// if the leader's address is not valid.
fn url_of(leader: &str, path: &str) -> Option<String> {
    let mut url = Url::parse(&server_url(leader)).ok()?;
    url.path_segments_mut().ok()?.pop_if_empty().extend(path.split('/'));
    Some(url.into())
}

#[cfg(test)]
mod tests;
