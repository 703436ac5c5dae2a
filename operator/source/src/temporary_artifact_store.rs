//! A temporary artifact store for tests. Its folder is deleted with it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use artifacts::store::{ArtifactStore, StoreOptions};

/// An artifact store that is empty at first.
pub(crate) struct TemporaryArtifactStore {
    pub(crate) store: Arc<ArtifactStore>,
    pub(crate) folder: PathBuf,
}

impl TemporaryArtifactStore {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("windlass-store-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        let store = ArtifactStore::open(&folder, StoreOptions::default()).unwrap();
        Self { store: Arc::new(store), folder }
    }
}

impl Drop for TemporaryArtifactStore {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).unwrap_or_default();
    }
}
