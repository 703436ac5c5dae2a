//! The manifests of windlass. They are embedded in the program, and the flags of `windlass install` modify them.
//!
//! Elsewhere: the files (`deploy/`), building (`kustomize`).

use anyhow::{Context as _, anyhow, ensure};
use clap::{Args, ValueEnum};
use golang::work_meter::{StopSignal, WorkMeter};
use include_dir::{Dir, include_dir};
use kustomize::{
    BuildBudget, KustomizeBuildOptions, KustomizeBuildOutput, LoadRestriction, TreeBuildFiles,
};
use objects::Object;
use serde_json::{Value, json};
use tree::MemoryTree;

use crate::check::arguments;
use windlass_cli_runtime::trailing_serve_flags;
use windlass_kinds::lease_elections::required_lease_elections;

/// The bases, overlays and CRDs of the repository.
static DEPLOY: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../deploy");

/// The folder of the kustomization that is built.
const ROOT: &str = "install";
/// The name of the Deployment or StatefulSet, which flags modify. The names of its Pods begin with it.
pub(crate) const CONTROLLER: &str = "windlass-controller";
/// The label that names the namespace of the installation to which a cluster-scoped object belongs.
pub(crate) const INSTALLATION: &str = "windlass.dev/installation";
/// The kinds whose objects have this label.
const CLUSTER_SCOPED: &str = "ClusterRole|ClusterRoleBinding";
/// The label by which `flux check` and others tell installations apart. Parity(flux): the namespace.
const INSTANCE: &str = "app.kubernetes.io/instance";
/// The image in the manifests.
const IMAGE: &str = "ghcr.io/windlass-dev/windlass";

/// For which use `windlass install` sets up windlass: how many replicas, and with which rights.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum InstallProfile {
    /// One replica with cluster-admin rights
    #[default]
    Single,
    /// Two replicas, each with a volume of its own
    HighAvailability,
    /// Tenants are isolated: objects are applied with the rights of their ServiceAccounts only
    Lockdown,
}

impl InstallProfile {
    /// The folder of the profile's overlay.
    pub(super) fn folder(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::HighAvailability => "high-availability",
            Self::Lockdown => "lockdown",
        }
    }
}

/// What may be changed in the manifests.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct InstallManifestFlags {
    /// How windlass is installed
    #[arg(long, value_enum, default_value_t = InstallProfile::Single, value_name = "PROFILE")]
    pub(super) profile: InstallProfile,
    /// Registry and repository of the image, such as registry.example.com/windlass
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// Tag of the image; by default the version of this command
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
    /// Secret with the credentials of the image's registry
    #[arg(long, value_name = "SECRET")]
    image_pull_secret: Option<String>,
    /// Level of the log
    #[arg(long, value_name = "LEVEL", value_parser = ["trace", "debug", "info", "error"])]
    log_level: Option<String>,
    /// Keys of taints that windlass tolerates
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    toleration_keys: Vec<String>,
    /// Flags of `windlass serve` with which windlass runs, such as --no-cross-namespace-refs
    #[arg(last = true, value_name = "FLAG")]
    pub(crate) serve_flags: Vec<String>,
}

impl InstallManifestFlags {
    /// The objects for a namespace, in the order in which they are applied.
    ///
    /// # Errors
    /// A flag leads to manifests that cannot be built.
    pub(crate) fn objects(&self, namespace: &str) -> anyhow::Result<Vec<Object>> {
        let objects = self.build(namespace)?.into_objects()?;
        let object = |found: kustomize::BuiltObject| {
            let name = found.id.to_string();
            Object::new(found.value).with_context(|| name)
        };
        let objects: Vec<Object> =
            objects.into_iter().map(object).collect::<anyhow::Result<_>>()?;
        if !self.serve_flags.is_empty() {
            workloads(&objects).try_for_each(check_arguments)?;
        }
        Ok(objects)
    }

    /// Checks that windlass has the rights to apply its own manifests.
    ///
    /// # Errors
    /// The installation does not have these rights.
    pub(crate) fn can_manage_itself(&self) -> anyhow::Result<()> {
        ensure!(
            self.profile != InstallProfile::Lockdown,
            "with --profile lockdown windlass applies with the rights of tenants only, which may not change windlass: \
             use `windlass install --profile lockdown`"
        );
        Ok(())
    }

    /// The flags that lead from the default manifests to these, for a command that the user should run. [`Self::serve_flags`]
    /// are left out.
    pub(crate) fn flags(&self) -> String {
        let Self { profile, image, tag, image_pull_secret, log_level, toleration_keys, .. } = self;
        let is_default = *profile == InstallProfile::default();
        let profile = (!is_default).then(|| profile.folder().to_owned());
        let keys = (!toleration_keys.is_empty()).then(|| toleration_keys.join(","));
        let flags = [
            ("profile", &profile),
            ("image", image),
            ("tag", tag),
            ("image-pull-secret", image_pull_secret),
            ("log-level", log_level),
            ("toleration-keys", &keys),
        ];
        let given = flags
            .into_iter()
            .filter_map(|(flag, value)| value.as_ref().map(|value| format!(" --{flag}={value}")));
        given.collect()
    }

    /// The flags of `windlass serve` for the end of the command in [`Self::flags`], quoted for a shell.
    pub(crate) fn serve_flags(&self) -> String {
        let flags = self.serve_flags.iter().map(|flag| format!(" {}", quoted(flag)));
        let flags: String = flags.collect();
        if flags.is_empty() { flags } else { format!(" --{flags}") }
    }

    /// The objects as YAML documents.
    ///
    /// # Errors
    /// A flag leads to manifests that cannot be built.
    pub(crate) fn yaml(&self, namespace: &str) -> anyhow::Result<String> {
        Ok(self.build(namespace)?.yaml()?)
    }

    fn build(&self, namespace: &str) -> anyhow::Result<KustomizeBuildOutput> {
        let top = self.kustomization(namespace).to_string();
        let mut files = embedded();
        files.push((format!("{ROOT}/kustomization.yaml"), top.into_bytes()));
        build(ROOT, files)
    }

    /// The kustomization that applies the flags to the overlay.
    fn kustomization(&self, namespace: &str) -> Value {
        let image = self.image.as_deref().unwrap_or(IMAGE);
        let tag = self.tag.as_deref().unwrap_or(concat!("v", env!("CARGO_PKG_VERSION")));
        let mut patches = Vec::new();
        let mut pod = |path: &str, value: Value| {
            let patch = json!([{"op": "add", "path": format!("/spec/template/spec/{path}"), "value": value}]);
            let target = json!({"group": "apps", "name": CONTROLLER});
            patches.push(json!({"patch": patch.to_string(), "target": target}));
        };
        if let Some(secret) = &self.image_pull_secret {
            pod("imagePullSecrets", json!([{"name": secret}]));
        }
        if !self.toleration_keys.is_empty() {
            let tolerated = |key: &String| json!({"key": key, "operator": "Exists"});
            pod("tolerations", self.toleration_keys.iter().map(tolerated).collect());
        }
        if let Some(level) = &self.log_level {
            pod("containers/0/args/-", json!(format!("--log-level={level}")));
        }
        for flag in &self.serve_flags {
            pod("containers/0/args/-", json!(flag));
        }
        for (kind, fields, label) in [
            (CLUSTER_SCOPED, "/metadata/labels", INSTALLATION),
            (".*", "/metadata/labels", INSTANCE),
            ("Deployment|StatefulSet", "/spec/template/metadata/labels", INSTANCE),
        ] {
            let path = format!("{fields}/{}", label.replace('/', "~1"));
            let patch = json!([{"op": "replace", "path": path, "value": namespace}]);
            patches.push(json!({"patch": patch.to_string(), "target": {"kind": kind}}));
        }
        json!({
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "namespace": namespace,
            "resources": [format!("../kustomize/overlays/{}", self.profile.folder())],
            "images": [{"name": IMAGE, "newName": image, "newTag": tag}],
            "patches": patches,
        })
    }
}

/// The Deployments and StatefulSets that run windlass.
pub(crate) fn workloads(objects: &[Object]) -> impl Iterator<Item = &Object> {
    objects.iter().filter(|it| matches!(it.kind(), "Deployment" | "StatefulSet"))
}

/// Checks the arguments of a workload in the same way as the program.
fn check_arguments(workload: &Object) -> anyhow::Result<()> {
    let arguments: Vec<String> = arguments(workload).map(str::to_owned).collect();
    required_lease_elections(&trailing_serve_flags::settings(&arguments)?).map(drop)
}

/// A word, quoted for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_=./:,@%+".contains(letter);
    match word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

fn build(folder: &str, files: Vec<(String, Vec<u8>)>) -> anyhow::Result<KustomizeBuildOutput> {
    let tree = MemoryTree::from_files(files).map_err(|error| anyhow!("{error}"))?;
    let options = KustomizeBuildOptions {
        restriction: LoadRestriction::None,
        ..KustomizeBuildOptions::default()
    };
    let budget = BuildBudget::new(WorkMeter::new(kustomize::ALLOWED, StopSignal::default()));
    Ok(kustomize::build(&TreeBuildFiles(tree), folder, &options, &budget, &mut Vec::new())?)
}

/// All embedded files that a build may read.
fn embedded() -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![&DEPLOY];
    while let Some(folder) = folders.pop() {
        folders.extend(folder.dirs());
        let file = |file: &include_dir::File<'_>| {
            (file.path().to_string_lossy().into_owned(), file.contents().to_vec())
        };
        found.extend(folder.files().map(file));
    }
    found
}

#[cfg(test)]
mod tests;
