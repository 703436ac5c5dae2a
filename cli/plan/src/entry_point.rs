//! Where the search for appliers begins: the folder of the Kustomization that applies itself, as `flux bootstrap` makes it.
//!
//! Elsewhere: from there down (`discovery.rs`).

use std::collections::BTreeSet;

use anyhow::bail;
use memchr::memmem;
use objects::ObjectId;
use objects::manifest::{self, LocatedObject};
use tree::{FileMetadata, FileTree as _, MemoryTree, RelPath};

use super::discovery::ApplierKind;
use super::repository_sources::BOOTSTRAP_NAME;

/// The largest file that is searched for appliers.
const MAX_MANIFEST_BYTES: u64 = 1 << 20;

/// The most manifests of appliers that are kept: what is further on is not searched.
const MAX_APPLIER_MANIFESTS: usize = 20_000;

/// What a file has that declares an applier.
const APPLIER_MARKS: [&[u8]; 3] =
    [b"toolkit.fluxcd.io", b"helmfile.windlass.dev", b"apps.mumoshu.github.io"];

/// The manifests of appliers in the files of a revision, as they are written there.
pub(crate) struct ApplierManifests(Vec<LocatedObject>);

impl ApplierManifests {
    /// Reads all YAML files, up to a bound. Those that are no manifests, such as templates, are left out.
    pub(crate) fn of(files: &MemoryTree) -> Self {
        let mut found = Vec::new();
        for (path, entry) in files.walk() {
            if found.len() >= MAX_APPLIER_MANIFESTS {
                break;
            }
            let is_small =
                matches!(entry, FileMetadata::File { len, .. } if len <= MAX_MANIFEST_BYTES);
            if !is_small || !matches!(path.extension(), Some("yaml" | "yml")) {
                continue;
            }
            let text = files.read(path).unwrap_or_default();
            if !APPLIER_MARKS.into_iter().any(|mark| memmem::find(&text, mark).is_some()) {
                continue;
            }
            let read = manifest::read(path.as_str(), &text, &goyaml::YamlLimits::default());
            let is_applier = |it: &LocatedObject| ApplierKind::of(&it.object).is_some();
            found.extend(read.unwrap_or_default().into_iter().filter(is_applier));
        }
        Self(found)
    }

    /// The folder of the only Kustomization that applies the file that declares it; the root if there is none.
    ///
    /// # Errors
    /// There are several: they are different clusters.
    pub(crate) fn entry(&self) -> anyhow::Result<RelPath> {
        let mut folders = BTreeSet::new();
        for LocatedObject { file, object, .. } in &self.0 {
            let is_kustomization = ApplierKind::of(object) == Some(ApplierKind::Kustomization);
            let spec = object.get("spec").filter(|_| is_kustomization);
            let path = spec.and_then(|spec| spec["path"].as_str()).unwrap_or_default();
            let folder = RelPath::parse(path.trim_start_matches('/'));
            if let (Some(_), Ok(folder), Ok(file)) = (spec, folder, RelPath::parse(file))
                && file.starts_with(&folder)
                // The root of another repository is written in the same way.
                && (!folder.is_root() || object.name() == BOOTSTRAP_NAME)
            {
                folders.insert(folder);
            }
        }
        let is_inner = |folder: &RelPath| {
            folders.iter().any(|other| other != folder && folder.starts_with(other))
        };
        let outer: Vec<&RelPath> = folders.iter().filter(|it| !is_inner(it)).collect();
        match outer[..] {
            [] => Ok(RelPath::root()),
            [folder] => Ok(folder.clone()),
            [..] => {
                let named: Vec<String> = outer.iter().map(|it| format!("--path {it}")).collect();
                bail!("the repository declares several clusters; choose one: {}", named.join(", "))
            }
        }
    }

    /// The file that declares an applier; none if it is not the only one that may.
    pub(crate) fn file_of(&self, id: &ObjectId) -> Option<String> {
        let is_named = |it: &&LocatedObject| {
            let namespace = it.object.namespace();
            (it.object.name() == id.name && it.object.kind() == id.kind)
                && (namespace.is_empty() || namespace == id.namespace)
                && it.object.gvk().group == id.group
        };
        let mut named = self.0.iter().filter(is_named);
        let first = named.next()?;
        named.next().is_none().then(|| first.file.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kustomization(name: &str, path: &str) -> String {
        format!(
            "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\n\
             metadata: {{name: {name}, namespace: flux-system}}\nspec: {{path: {path}}}\n"
        )
    }

    fn manifests(files: &[(&str, String)]) -> ApplierManifests {
        let files = files.iter().map(|(path, text)| (*path, text.as_bytes()));
        ApplierManifests::of(&MemoryTree::from_files(files).unwrap())
    }

    #[test]
    fn the_search_begins_where_a_kustomization_applies_itself() {
        let sync = |cluster: &str| kustomization("flux-system", &format!("./clusters/{cluster}"));
        let prod = ("clusters/prod/flux-system/gotk-sync.yaml", sync("prod"));
        let apps = ("clusters/prod/apps.yaml", kustomization("apps", "./apps"));
        let template = ("chart/templates/a.yaml", "{{ kustomize.toolkit.fluxcd.io".to_owned());
        let other = ("clusters/prod/podinfo.yaml", kustomization("podinfo", "./"));
        let one = manifests(&[prod.clone(), apps.clone(), template, other]);
        assert_eq!(one.entry().unwrap().as_str(), "clusters/prod");
        let id = |name: &str| {
            ObjectId::new("flux-system", name, "kustomize.toolkit.fluxcd.io", "Kustomization")
        };
        assert_eq!(one.file_of(&id("apps")).as_deref(), Some("clusters/prod/apps.yaml"));
        assert_eq!(one.file_of(&id("none")), None);
        let staging = ("clusters/staging/flux-system/gotk-sync.yaml", sync("staging"));
        let two = manifests(&[prod, apps, staging]);
        let error = two.entry().unwrap_err().to_string();
        assert!(error.ends_with("--path clusters/prod, --path clusters/staging"), "{error}");
        assert_eq!(two.file_of(&id("flux-system")), None);
        assert!(manifests(&[]).entry().unwrap().is_root());
    }
}
