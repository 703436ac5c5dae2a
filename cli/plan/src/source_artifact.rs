//! The artifact that a source makes from the repository, and facts about its folders. Each folder is read once.
//!
//! Elsewhere: the files of a revision (`revision_files.rs`), charts (`release_chart.rs`), generated artifacts
//! (`source_files.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use memchr::memmem;
use parking_lot::Mutex;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tree::{FileMetadata, FileTree as _, MemoryTree, RelPath};

/// A text that charts contain if they may render Kustomizations or HelmReleases.
pub(crate) const APPLIER_GROUPS: &str = "toolkit.fluxcd.io";

/// The prefix of a chart dependency in another folder.
const FOLDER_DEPENDENCY: &str = "file://";

/// The maximum number of other folders and files that are followed for one build. If there are more, all files of the artifact
/// count.
const MAX_FOLDERS: usize = 64;

/// The fields of a kustomization that name configuration files.
const CONFIGURATION_FIELDS: [&str; 3] = ["generators", "transformers", "validators"];

/// The files of a source's artifact.
pub(crate) struct SourceArtifact {
    pub(crate) files: MemoryTree,
    folders: Mutex<BTreeMap<RelPath, Arc<FolderContent>>>,
}

impl SourceArtifact {
    /// Makes an artifact of these files.
    pub(crate) fn new(files: MemoryTree) -> Self {
        Self { files, folders: Mutex::default() }
    }

    /// The content of a folder or a file.
    pub(crate) fn content(&self, path: &RelPath) -> Arc<FolderContent> {
        let known = self.folders.lock().get(path).cloned();
        if let Some(known) = known {
            return known;
        }
        let content = Arc::new(FolderContent::of(&self.files, path));
        self.folders.lock().insert(path.clone(), content.clone());
        content
    }

    /// A digest of the files that a build of some folders may read. It covers the folders, and the other paths that their
    /// kustomizations name. If these paths are unknown, all files count.
    pub(crate) fn build_digest(&self, mut folders: Vec<RelPath>) -> String {
        let mut found: BTreeMap<RelPath, Arc<FolderContent>> = BTreeMap::new();
        while let Some(folder) = folders.pop() {
            if found.keys().any(|known| folder.starts_with(known)) {
                continue;
            }
            let content = self.content(&folder);
            let Some(named) = content.named_paths.as_ref().filter(|_| found.len() < MAX_FOLDERS)
            else {
                return self.content(&RelPath::root()).digest.clone();
            };
            folders.extend(named.iter().cloned());
            found.insert(folder, content);
        }
        let digests: Vec<&str> = found.values().map(|it| it.digest.as_str()).collect();
        digests.join(" ")
    }
}

/// The content of a folder in an artifact.
pub(crate) struct FolderContent {
    /// A digest of the paths and contents of its files.
    pub(crate) digest: String,
    /// Whether a chart in the folder may have dependencies in other folders.
    pub(crate) names_folders: bool,
    /// Whether a chart in the folder may render Kustomizations or HelmReleases.
    pub(crate) may_declare_appliers: bool,
    /// The other files and folders that kustomizations in this folder name. `None` if they may name any path.
    named_paths: Option<BTreeSet<RelPath>>,
}

impl FolderContent {
    fn of(files: &MemoryTree, folder: &RelPath) -> Self {
        let mut hash = Sha256::new();
        let mut names_folders = false;
        let mut may_declare_appliers = false;
        let mut named_paths: Option<BTreeSet<RelPath>> = Some(BTreeSet::new());
        for (path, entry) in files.walk() {
            if !matches!(entry, FileMetadata::File { .. }) || !path.starts_with(folder) {
                continue;
            }
            // The walk has listed the file, so it can be read.
            let Ok(body) = files.read(path) else { continue };
            for part in [path.as_str().as_bytes(), &body] {
                hash.update(part.len().to_le_bytes());
                hash.update(part);
            }
            let has = |text: &str| memmem::find(&body, text.as_bytes()).is_some();
            names_folders |= has(FOLDER_DEPENDENCY);
            may_declare_appliers |= has(APPLIER_GROUPS);
            if path.name().is_some_and(|name| kustomize::FILE_NAMES.contains(&name)) {
                let is_elsewhere =
                    |it: &RelPath| !it.starts_with(folder) && files.entry(it).is_some();
                let named = paths_of(path, &body);
                named_paths = named_paths.zip(named).map(|(mut known, named)| {
                    known.extend(named.into_iter().filter(is_elsewhere));
                    known
                });
            }
        }
        let digest = hex::encode(hash.finalize());
        Self { digest, names_folders, may_declare_appliers, named_paths }
    }
}

/// The paths that a kustomization may name: each of its strings, relative to its folder. `None` if it cannot be read, or if it
/// names configuration files, which may name further paths.
fn paths_of(kustomization: &RelPath, text: &[u8]) -> Option<BTreeSet<RelPath>> {
    let fields = goyaml::to_json(text).ok()?;
    if CONFIGURATION_FIELDS.iter().any(|field| !fields[*field].is_null()) {
        return None;
    }
    let folder = kustomization.parent().unwrap_or_else(RelPath::root);
    let mut paths = BTreeSet::new();
    let mut values = vec![&fields];
    while let Some(value) = values.pop() {
        match value {
            Value::Array(items) => values.extend(items),
            Value::Object(fields) => values.extend(fields.values()),
            Value::String(text) => {
                // A generator may rename a file: `NAME=PATH`.
                let renamed = text.split_once('=').map(|(_, path)| path);
                let named = [Some(text.as_str()), renamed].into_iter().flatten();
                paths.extend(named.filter_map(|it| folder.join(it).ok()));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    Some(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_depends_on_what_its_kustomizations_name_and_on_nothing_else() {
        let digest = |kustomization: &str, changed: &str| {
            let text = |path: &str| if path == changed { "b: 1" } else { "a: 1" };
            let paths = ["app/a.yaml", "common/b.yaml", "common/deep/c.yaml", "other/d.yaml"];
            let bodies = paths.map(|path| (path, text(path)));
            let bodies = bodies.into_iter().chain([
                ("app/kustomization.yaml", kustomization),
                ("common/kustomization.yaml", "resources: [b.yaml]"),
            ]);
            let files = bodies.map(|(path, text)| (path, text.as_bytes()));
            let artifact = SourceArtifact::new(MemoryTree::from_files(files).unwrap());
            artifact.build_digest(vec![RelPath::parse("app").unwrap()])
        };
        let changes = |kustomization: &str, path: &str| {
            digest(kustomization, "") != digest(kustomization, path)
        };
        let base = "resources: [\"https://git.example.com/x\", ../common]";
        let generator = "configMapGenerator: [{name: m, files: [x=../common/b.yaml]}]";
        for (kustomization, path, is_read) in [
            ("resources: [a.yaml]", "app/a.yaml", true),
            ("resources: [a.yaml]", "common/b.yaml", false),
            (base, "common/b.yaml", true),
            (base, "common/deep/c.yaml", true),
            (base, "other/d.yaml", false),
            (generator, "common/b.yaml", true),
            (generator, "common/deep/c.yaml", false),
            // A path that is not known may be read.
            ("transformers: [t.yaml]", "other/d.yaml", true),
            ("resources: [", "other/d.yaml", true),
        ] {
            assert_eq!(changes(kustomization, path), is_read, "{kustomization}: {path}");
        }
    }
}
