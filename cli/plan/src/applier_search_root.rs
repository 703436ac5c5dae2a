//! Finds the folder at which the search for appliers begins. It is the folder of the Kustomization that applies itself, as
//! `flux bootstrap` creates it. Or it is the folder in a FluxInstance of the Flux Operator, which creates the Kustomization in
//! the cluster.
//!
//! Elsewhere: the search itself (`applier_discovery.rs`).

use std::collections::BTreeSet;

use anyhow::bail;
use memchr::memmem;
use objects::manifest::{self, LocatedObject};
use objects::{Object, ObjectId};
use tree::{FileMetadata, FileTree as _, MemoryTree, RelPath};

use super::applier_discovery::ApplierKind;
use super::repository_sources::BOOTSTRAP_NAME;

/// The largest file that is searched for appliers, in bytes.
const MAX_MANIFEST_BYTES: u64 = 1 << 20;

/// The maximum number of applier manifests that are kept. Further files are not searched.
const MAX_APPLIER_MANIFESTS: usize = 20_000;

/// The maximum number of folders that a message lists.
const MAX_LISTED_FOLDERS: usize = 20;

/// Strings that a file contains if it declares an applier or a FluxInstance.
const APPLIER_MARKS: [&[u8]; 4] = [
    b"toolkit.fluxcd.io",
    b"helmfile.windlass.dev",
    b"apps.mumoshu.github.io",
    b"fluxcd.controlplane.io",
];

/// The API group of the Flux Operator.
const FLUX_OPERATOR_GROUP: &str = "fluxcd.controlplane.io";

/// The chart that creates a FluxInstance from its values. The OCIRepository of the chart has the same name.
const FLUX_INSTANCE_CHART: &str = "flux-instance";

/// The folder at which the search begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApplierSearchRoot {
    /// The folder that the cluster applies first.
    pub(crate) folder: RelPath,
    /// Whether the root is assumed because no file names the folder.
    pub(crate) is_assumed: bool,
}

impl ApplierSearchRoot {
    /// The folder that the user or a file names.
    pub(crate) fn named(folder: RelPath) -> Self {
        Self { folder, is_assumed: false }
    }
}

/// The manifests of appliers in the files of a revision, before any build.
pub(crate) struct ApplierManifests {
    appliers: Vec<LocatedObject>,
    /// The folders of the revision that FluxInstances name.
    synced_folders: BTreeSet<RelPath>,
}

impl ApplierManifests {
    /// Reads all YAML files up to the maximum. Files that are not manifests, such as templates, are skipped.
    pub(crate) fn of(files: &MemoryTree) -> Self {
        let mut appliers = Vec::new();
        let mut synced_folders = BTreeSet::new();
        for (path, entry) in files.walk() {
            if appliers.len() >= MAX_APPLIER_MANIFESTS {
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
            let read = read.unwrap_or_default();
            synced_folders.extend(read.iter().filter_map(|it| synced_folder(&it.object, files)));
            let is_applier = |it: &LocatedObject| ApplierKind::of(&it.object).is_some();
            appliers.extend(read.into_iter().filter(is_applier));
        }
        Self { appliers, synced_folders }
    }

    /// The folder of the only Kustomization that applies its own file, or of the only FluxInstance. The root if there is
    /// neither.
    ///
    /// # Errors
    /// There are several such objects, because the repository serves several clusters.
    pub(crate) fn entry(&self) -> anyhow::Result<ApplierSearchRoot> {
        let mut folders = self.synced_folders.clone();
        for LocatedObject { file, object, .. } in &self.appliers {
            let is_kustomization = ApplierKind::of(object) == Some(ApplierKind::Kustomization);
            let spec = object.get("spec").filter(|_| is_kustomization);
            let path = spec.and_then(|spec| spec["path"].as_str()).unwrap_or_default();
            let folder = RelPath::parse(path.trim_start_matches('/'));
            if let (Some(_), Ok(folder), Ok(file)) = (spec, folder, RelPath::parse(file))
                && file.starts_with(&folder)
                // A Kustomization for the root of another repository looks the same.
                && (!folder.is_root() || object.name() == BOOTSTRAP_NAME)
            {
                folders.insert(folder);
            }
        }
        let is_inner = |folder: &RelPath| {
            let mut above = std::iter::successors(folder.parent(), RelPath::parent);
            above.any(|it| folders.contains(&it))
        };
        let outer: Vec<&RelPath> = folders.iter().filter(|it| !is_inner(it)).collect();
        match outer[..] {
            [] => Ok(ApplierSearchRoot { folder: RelPath::root(), is_assumed: true }),
            [folder] => Ok(ApplierSearchRoot::named(folder.clone())),
            [..] => {
                let listed = outer.iter().take(MAX_LISTED_FOLDERS);
                let named: Vec<String> = listed.map(|it| format!("--path {it}")).collect();
                let more = if outer.len() > named.len() { ", …" } else { "" };
                let named = named.join(", ");
                bail!("the repository declares several clusters; choose one: {named}{more}")
            }
        }
    }

    /// The file that declares an applier. `None` if several files may declare it.
    pub(crate) fn file_of(&self, id: &ObjectId) -> Option<String> {
        let is_named = |it: &&LocatedObject| {
            let namespace = it.object.namespace();
            (it.object.name() == id.name && it.object.kind() == id.kind)
                && (namespace.is_empty() || namespace == id.namespace)
                && it.object.gvk().group == id.group
        };
        let mut named = self.appliers.iter().filter(is_named);
        let first = named.next()?;
        named.next().is_none().then(|| first.file.clone())
    }
}

/// The folder that a FluxInstance applies, or the values of the chart that creates one. `None` for other objects.
///
/// The root folder is skipped, because it may be that of another repository, and it is the default anyway.
/// The repository address is not compared. A renamed repository has two valid names, and a mirror has another address.
fn synced_folder(object: &Object, files: &MemoryTree) -> Option<RelPath> {
    let spec = object.get("spec")?;
    let gvk = object.gvk();
    let is_instance = gvk.group == FLUX_OPERATOR_GROUP && gvk.kind == "FluxInstance";
    let charts = [&spec["chart"]["spec"]["chart"], &spec["chartRef"]["name"]];
    let is_chart = charts.iter().any(|it| it.as_str() == Some(FLUX_INSTANCE_CHART));
    let sync = match ApplierKind::of(object) {
        None if is_instance => &spec["sync"],
        Some(ApplierKind::HelmRelease) if is_chart => &spec["values"]["instance"]["sync"],
        _ => return None,
    };
    let folder = RelPath::parse(sync["path"].as_str()?.trim_start_matches('/')).ok()?;
    let is_folder = matches!(files.entry(&folder), Some(FileMetadata::Dir));
    (is_folder && !folder.is_root()).then_some(folder)
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
        let folder = RelPath::parse("clusters/prod").unwrap();
        assert_eq!(one.entry().unwrap(), ApplierSearchRoot::named(folder));
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
        let nothing = manifests(&[]).entry().unwrap();
        assert!(nothing.folder.is_root() && nothing.is_assumed);
    }

    #[test]
    fn the_search_begins_where_a_flux_instance_says() {
        let release = |chart: &str, path: &str| {
            format!(
                "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {{name: web}}\nspec:\n  {chart}\n  \
                 values: {{instance: {{sync: {{kind: GitRepository, path: {path}}}}}}}\n"
            )
        };
        let instance = |path: &str| {
            format!(
                "apiVersion: fluxcd.controlplane.io/v1\nkind: FluxInstance\n\
                 metadata: {{name: flux, namespace: flux-system}}\n\
                 spec: {{sync: {{kind: GitRepository, url: \"https://example.com/fleet\", path: {path}}}}}\n"
            )
        };
        let of_registry = "chartRef: {kind: OCIRepository, name: flux-instance}";
        let of_repository = "chart: {spec: {chart: flux-instance}}";
        let apps = ("flux/cluster/apps.yaml", kustomization("apps", "./apps"));
        let entry = |declared: String| {
            manifests(&[apps.clone(), ("flux/instance.yaml", declared)]).entry().unwrap()
        };
        let named = ApplierSearchRoot::named(RelPath::parse("flux/cluster").unwrap());
        assert_eq!(entry(instance("./flux/cluster")), named);
        assert_eq!(entry(release(of_registry, "flux/cluster")), named);
        assert_eq!(entry(release(of_repository, "/flux/cluster/")), named);
        // Another chart, and folders of other repositories.
        for other in [
            release("chartRef: {kind: OCIRepository, name: web}", "flux/cluster"),
            instance("clusters/other"),
            instance("../flux/cluster"),
            instance("./"),
        ] {
            assert!(entry(other.clone()).is_assumed, "{other}");
        }
        let sync = ("clusters/prod/sync.yaml", kustomization("flux-system", "./clusters/prod"));
        let both = manifests(&[apps, ("flux/instance.yaml", instance("flux/cluster")), sync]);
        let error = both.entry().unwrap_err().to_string();
        assert!(error.ends_with("--path clusters/prod, --path flux/cluster"), "{error}");
    }

    #[test]
    fn of_many_clusters_a_few_are_listed_and_inner_folders_are_none() {
        let all: Vec<String> = (0..30).map(|at| format!("clusters/{at:02}")).collect();
        let inner = all.iter().map(|it| format!("{it}/inner/deep"));
        let folders: Vec<String> = all.iter().cloned().chain(inner).collect();
        let files: Vec<(String, String)> = folders
            .iter()
            .map(|it| (format!("{it}/sync.yaml"), kustomization("sync", it)))
            .collect();
        let files: Vec<(&str, String)> =
            files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
        let error = manifests(&files).entry().unwrap_err().to_string();
        assert_eq!(error.matches("--path ").count(), MAX_LISTED_FOLDERS, "{error}");
        assert!(error.ends_with("--path clusters/19, …") && !error.contains("inner"), "{error}");
    }
}
