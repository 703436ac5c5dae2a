//! The files that a source makes of the repository, and what was found out of folders of them: each is read once.
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

/// What a chart has if its templates or values may make Kustomizations or HelmReleases.
pub(crate) const APPLIER_GROUPS: &str = "toolkit.fluxcd.io";

/// How a chart names a dependency in another folder.
const FOLDER_DEPENDENCY: &str = "file://";

/// The most folders and files elsewhere that are followed for one build; with more, all files count.
const MAX_FOLDERS: usize = 64;

/// The fields of a kustomization that name configurations.
const CONFIGURATION_FIELDS: [&str; 3] = ["generators", "transformers", "validators"];

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

    /// Identifies the files that a build of some folders may read: those in them, and in what their kustomizations name
    /// elsewhere. All files count where that is not known.
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

/// What a folder of an artifact has.
pub(crate) struct FolderContent {
    /// Identifies the paths and the bodies of its files.
    pub(crate) digest: String,
    /// Whether a chart in it may have dependencies in other folders.
    pub(crate) names_folders: bool,
    /// Whether a chart in it may make Kustomizations or HelmReleases.
    pub(crate) may_declare_appliers: bool,
    /// The files and folders elsewhere that kustomizations in it name; none if they may name any.
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
            // A file of a walk can be read.
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

/// The paths that a kustomization may name: all that its strings are from its folder. None if it cannot be read, or if it names
/// configurations, which name paths themselves.
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
                // A file of a generator may have another name: `NAME=PATH`.
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
            // What is not known may be read.
            ("transformers: [t.yaml]", "other/d.yaml", true),
            ("resources: [", "other/d.yaml", true),
        ] {
            assert_eq!(changes(kustomization, path), is_read, "{kustomization}: {path}");
        }
    }
}
