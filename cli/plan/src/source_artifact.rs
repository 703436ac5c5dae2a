//! The files that a source makes of the repository, and what was found out of folders of them: each is read once.
//!
//! Elsewhere: the files of a revision (`revision_files.rs`), charts (`release_chart.rs`), generated artifacts
//! (`source_files.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;

use memchr::memmem;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tree::{FileMetadata, FileTree as _, MemoryTree, RelPath};

/// What a chart has if its templates or values may make Kustomizations or HelmReleases.
pub(crate) const APPLIER_GROUPS: &str = "toolkit.fluxcd.io";

/// How a chart names a dependency in another folder.
const FOLDER_DEPENDENCY: &str = "file://";

/// The files of a source.
pub(crate) struct SourceArtifact {
    pub(crate) files: MemoryTree,
    folders: Mutex<BTreeMap<RelPath, Arc<FolderContent>>>,
}

impl SourceArtifact {
    /// That with these files.
    pub(crate) fn new(files: MemoryTree) -> Self {
        Self { files, folders: Mutex::default() }
    }

    /// What a folder or a file has.
    pub(crate) fn content(&self, path: &RelPath) -> Arc<FolderContent> {
        let known = self.folders.lock().get(path).cloned();
        if let Some(known) = known {
            return known;
        }
        let content = Arc::new(FolderContent::of(&self.files, path));
        self.folders.lock().insert(path.clone(), content.clone());
        content
    }
}

/// What a folder of an artifact has.
pub(crate) struct FolderContent {
    /// Identifies the paths and the bodies of its files.
    pub(crate) digest: String,
    /// Whether a chart in it may have dependencies in other folders.
    pub(crate) names_folders: bool,
    /// Whether a chart in it may make Kustomizations or HelmReleases.
    pub(crate) may_declare_appliers: bool,
}

impl FolderContent {
    fn of(files: &MemoryTree, folder: &RelPath) -> Self {
        let mut hash = Sha256::new();
        let mut names_folders = false;
        let mut may_declare_appliers = false;
        for (path, entry) in files.walk() {
            if !matches!(entry, FileMetadata::File { .. }) || !path.starts_with(folder) {
                continue;
            }
            // A file of a walk can be read.
            let Ok(body) = files.read(path) else { continue };
            for part in [path.as_str().as_bytes(), &body] {
                hash.update(part.len().to_le_bytes());
                hash.update(part);
            }
            let has = |text: &str| memmem::find(&body, text.as_bytes()).is_some();
            names_folders |= has(FOLDER_DEPENDENCY);
            may_declare_appliers |= has(APPLIER_GROUPS);
        }
        Self { digest: hex::encode(hash.finalize()), names_folders, may_declare_appliers }
    }
}
