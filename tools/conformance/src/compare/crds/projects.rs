//! The projects whose CustomResourceDefinitions are compared. They are fetched as Go modules, or read from Git
//! clones.
//!
//! The repository keeps nothing of these projects. The command fetches them into the user's cache when it runs.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use objects::manifest;
use serde_json::Value;
use testbed::binaries::cache;

/// A project that is released as a Go module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CrdProject {
    pub(super) name: &'static str,
    module: &'static str,
    /// The files or folders of the module with the definitions.
    paths: &'static [&'static str],
}

const fn project(
    name: &'static str,
    module: &'static str,
    paths: &'static [&'static str],
) -> CrdProject {
    CrdProject { name, module, paths }
}

/// The folder in which most projects keep the output of controller-gen.
const BASES: &[&str] = &["config/crd/bases"];

/// How many additional releases are tried, because some cannot be fetched.
const EXTRA_RELEASES: usize = 4;

/// All projects.
pub(super) const PROJECTS: [CrdProject; 34] = [
    project("argo-cd", "github.com/argoproj/argo-cd/v2", &["manifests/crds"]),
    project("argo-events", "github.com/argoproj/argo-events", &["manifests/base/crds"]),
    project("argo-rollouts", "github.com/argoproj/argo-rollouts", &["manifests/crds"]),
    project(
        "argo-workflows",
        "github.com/argoproj/argo-workflows/v3",
        &["manifests/base/crds/full"],
    ),
    project("cert-manager", "github.com/cert-manager/cert-manager", &["deploy/crds"]),
    project("cloudnative-pg", "github.com/cloudnative-pg/cloudnative-pg", BASES),
    project("cluster-api", "sigs.k8s.io/cluster-api", BASES),
    project("contour", "github.com/projectcontour/contour", &["examples/contour/01-crds.yaml"]),
    project("crossplane", "github.com/crossplane/crossplane", &["cluster/crds"]),
    project("elastic-cloud", "github.com/elastic/cloud-on-k8s/v2", &["config/crds/v1"]),
    project(
        "external-secrets",
        "github.com/external-secrets/external-secrets",
        &["config/crds/bases"],
    ),
    project("flagger", "github.com/fluxcd/flagger", &["artifacts/flagger/crd.yaml"]),
    project("gateway-api", "sigs.k8s.io/gateway-api", &["config/crd/standard"]),
    project("grafana-operator", "github.com/grafana/grafana-operator/v5", BASES),
    project("helm-controller", "github.com/fluxcd/helm-controller", BASES),
    project("istio", "istio.io/api", &["kubernetes"]),
    project("jobset", "sigs.k8s.io/jobset", &["config/components/crd/bases"]),
    project("karpenter", "sigs.k8s.io/karpenter", &["pkg/apis/crds"]),
    project("keda", "github.com/kedacore/keda/v2", BASES),
    project("knative-serving", "knative.dev/serving", &["config/core/300-resources"]),
    project("kueue", "sigs.k8s.io/kueue", &["config/components/crd/bases"]),
    project("kustomize-controller", "github.com/fluxcd/kustomize-controller", BASES),
    project("kyverno", "github.com/kyverno/kyverno", &["config/crds"]),
    project("lws", "sigs.k8s.io/lws", BASES),
    project("metallb", "go.universe.tf/metallb", BASES),
    project("notification-controller", "github.com/fluxcd/notification-controller", BASES),
    project("opentelemetry-operator", "github.com/open-telemetry/opentelemetry-operator", BASES),
    project(
        "prometheus-operator",
        "github.com/prometheus-operator/prometheus-operator",
        &["example/prometheus-operator-crd"],
    ),
    project("rabbitmq-operator", "github.com/rabbitmq/cluster-operator/v2", BASES),
    project("rook", "github.com/rook/rook", &["deploy/examples/crds.yaml"]),
    project("source-controller", "github.com/fluxcd/source-controller", BASES),
    project("tekton-pipelines", "github.com/tektoncd/pipeline", &["config"]),
    project("velero", "github.com/vmware-tanzu/velero", &["config/crd/v1/bases"]),
    project("victoriametrics-operator", "github.com/VictoriaMetrics/operator", &["config/crd"]),
];

/// The definitions in one release of a project.
pub(super) struct CrdProjectRelease {
    pub(super) version: String,
    pub(super) definitions: Vec<Value>,
}

/// The releases of a project that could be fetched.
#[derive(Default)]
pub(super) struct ProjectReleases {
    /// The releases, the oldest first.
    pub(super) releases: Vec<CrdProjectRelease>,
    /// Why other releases could not be fetched.
    pub(super) missing: Vec<String>,
}

impl CrdProject {
    /// Fetches the last patch of each of the last minor releases. A module proxy may lack some of them. With a clone,
    /// the tags are the releases.
    pub(super) fn fetch(&self, clone: Option<&Path>, count: usize) -> ProjectReleases {
        let mut fetched = ProjectReleases::default();
        let format = "{{join .Versions \" \"}}";
        let listed = match clone {
            Some(clone) => git(clone, &["tag", "--sort=version:refname", "--list", "v[0-9]*"]),
            None => go(&["list", "-m", "-versions", "-f", format, self.module]),
        };
        let listed = match listed {
            Ok(listed) => listed,
            Err(error) => {
                fetched.missing.push(format!("{error:#}"));
                return fetched;
            }
        };
        let versions: Vec<&str> = listed.split_whitespace().collect();
        for version in minors(&versions).into_iter().rev().take(count + EXTRA_RELEASES) {
            if fetched.releases.len() == count {
                break;
            }
            let release = match clone {
                Some(clone) => self.tagged(clone, version),
                None => self.module(version),
            };
            match release {
                Ok(release) => fetched.releases.insert(0, release),
                Err(error) => fetched.missing.push(format!("{version}: {error:#}")),
            }
        }
        fetched
    }

    /// Reads the definitions from a clone at a tag.
    fn tagged(&self, clone: &Path, version: &str) -> anyhow::Result<CrdProjectRelease> {
        let folder = tempfile::tempdir()?;
        let archive = folder.path().join("release.tar");
        let to = archive.display().to_string();
        // Git fails if the release does not have one of the paths yet.
        git(clone, &[&["archive", "--format=tar", "-o", &to, version], self.paths].concat())?;
        tar::Archive::new(std::fs::File::open(&archive)?).unpack(folder.path())?;
        self.release(version, folder.path())
    }

    fn module(&self, version: &str) -> anyhow::Result<CrdProjectRelease> {
        let module = format!("{}@{version}", self.module);
        let download: Value = serde_json::from_str(&go(&["mod", "download", "-json", &module])?)?;
        let folder = download["Dir"].as_str().with_context(|| format!("{module} is not there"))?;
        self.release(version, Path::new(folder))
    }

    /// Reads the definitions from the folder of a release.
    fn release(&self, version: &str, folder: &Path) -> anyhow::Result<CrdProjectRelease> {
        let mut files = Vec::new();
        for path in self.paths {
            collect(&folder.join(path), &mut files)?;
        }
        files.sort();
        let mut definitions: Vec<Value> = Vec::new();
        for file in files {
            definitions.extend(read(&file)?);
        }
        ensure!(!definitions.is_empty(), "it has no definitions at {:?}", self.paths);
        Ok(CrdProjectRelease { version: version.to_owned(), definitions })
    }
}

/// Collects the YAML files below a path.
fn collect(path: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    if path.is_dir() {
        for entry in std::fs::read_dir(path)? {
            collect(&entry?.path(), files)?;
        }
    } else if path.extension().is_some_and(|it| it == "yaml" || it == "yml") && path.is_file() {
        files.push(path.to_owned());
    }
    Ok(())
}

/// Reads the definitions in a file. Other files of the folder may not be manifests at all.
fn read(file: &Path) -> anyhow::Result<Vec<Value>> {
    let text = std::fs::read(file)?;
    let name = file.display().to_string();
    if !String::from_utf8_lossy(&text).contains("CustomResourceDefinition") {
        return Ok(Vec::new());
    }
    let all = manifest::read(&name, &text, &goyaml::YamlLimits::default()).unwrap_or_default();
    let all = all.into_iter().map(|it| it.object);
    let is_definition = |it: &objects::Object| {
        it.kind() == "CustomResourceDefinition" && it.api_version() == "apiextensions.k8s.io/v1"
    };
    Ok(all.filter(is_definition).map(objects::Object::into_value).collect())
}

/// The last patch of each minor release, in order. Pre-releases do not count.
fn minors<'v>(versions: &[&'v str]) -> Vec<&'v str> {
    let minor = |it: &str| it.rsplit_once('.').map(|it| it.0.to_owned());
    let mut last: Vec<&str> = Vec::new();
    for version in versions.iter().copied().filter(|it| !it.contains(['-', '+'])) {
        match last.last_mut() {
            Some(before) if minor(before) == minor(version) => *before = version,
            _ => last.push(version),
        }
    }
    last
}

fn git(clone: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("git").arg("-C").arg(clone).args(arguments).output();
    let output = output.context("cannot run git")?;
    let message = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git {}: {}", arguments.join(" "), message.trim());
    Ok(String::from_utf8(output.stdout)?)
}

/// Runs `go` with its own module cache, which can be deleted, and returns the output.
fn go(arguments: &[&str]) -> anyhow::Result<String> {
    let modules = cache()?.join("definitions");
    std::fs::create_dir_all(&modules)?;
    let nowhere = tempfile::tempdir()?;
    let output = Command::new("go")
        .args(arguments)
        .current_dir(nowhere.path())
        .env("GOMODCACHE", &modules)
        .env("GOFLAGS", "-mod=mod -modcacherw")
        .output()
        .context("cannot run go; install Go 1.26 (https://go.dev/dl)")?;
    if output.status.success() {
        return Ok(String::from_utf8(output.stdout)?);
    }
    // With `-json`, the error is in the output.
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let message =
        String::from_utf8_lossy(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    bail!("{}", printed["Error"].as_str().unwrap_or(&message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_minor_release_the_last_patch_counts() {
        let versions =
            ["v1.0.0", "v1.1.0", "v1.1.1", "v1.2.0-rc.1", "v1.2.0", "v1.3.0-beta", "v1.10.0"];
        assert_eq!(minors(&versions), ["v1.0.0", "v1.1.1", "v1.2.0", "v1.10.0"]);
        assert_eq!(minors(&[]), Vec::<&str>::new());
    }

    #[test]
    fn the_tags_of_a_clone_are_its_releases() {
        let clone = tempfile::tempdir().unwrap();
        let path = clone.path().join("config/crd/bases");
        std::fs::create_dir_all(&path).unwrap();
        let run = |arguments: &[&str]| git(clone.path(), arguments).unwrap();
        run(&["init", "-q"]);
        for version in ["v1.0.0", "v1.1.0-rc.1", "v1.1.0"] {
            let name = version.replace(['.', '-'], "");
            let text = format!(
                "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n\
                 metadata: {{name: {name}}}\n"
            );
            std::fs::write(path.join("crd.yaml"), text).unwrap();
            run(&["add", "."]);
            let author = ["-c", "user.name=test", "-c", "user.email=test@example.com"];
            run(&[&author[..], &["commit", "-q", "-m", version]].concat());
            run(&["tag", version]);
        }
        let fetched = project("test", "example.com/test", BASES).fetch(Some(clone.path()), 3);
        assert_eq!(fetched.missing, Vec::<String>::new());
        let read: Vec<(&str, &Value)> = fetched
            .releases
            .iter()
            .map(|it| (&*it.version, &it.definitions[0]["metadata"]["name"]))
            .collect();
        assert_eq!(read, [("v1.0.0", &"v100".into()), ("v1.1.0", &"v110".into())]);
    }

    #[test]
    fn no_project_is_listed_twice() {
        let mut names: Vec<&str> = PROJECTS.iter().map(|it| it.name).collect();
        names.dedup();
        assert_eq!(names.len(), PROJECTS.len());
        assert!(names.is_sorted());
    }
}
