//! Converts Flux v1 where it committed new images. For each repository and namespace, the result is an ImageUpdateAutomation.
//!
//! Here: the flags of Flux v1's Deployment, and the automations. Elsewhere: reading Deployments (`convert.rs`).
//! Source of the flags: Flux 1.25, `cmd/fluxd/main.go`.

use std::collections::{BTreeMap, BTreeSet};

use objects::Object;
use serde_json::{Value, json};

use super::super::{ConversionResult, IMAGE, object};
use super::git_url;
use super::image_annotations::{object_name, unique};

/// The branch of Flux v1 unless a flag names another. Parity(flux).
const DEFAULT_BRANCH: &str = "master";
/// The name of the GitRepository that `windlass bootstrap` and `flux bootstrap` create.
const BOOTSTRAPPED_SOURCE: &str = "flux-system";
/// The name of an automation whose repository is unknown.
const DEFAULT_NAME: &str = "helm-releases";
/// How often an automation runs. Flux v1 used the same interval.
const DEFAULT_INTERVAL: &str = "5m";
/// The text that Flux v1 appended to commit messages with `--git-ci-skip`.
const SKIPS_CI: &str = "[ci skip]";
/// A commit message that ends with a value of the template.
const MESSAGE_TEMPLATE: &str = "Update images of {{ .AutomationObject }}\n\n{{ .Values.ciSkip }}\n";

/// Flags of Flux v1 about images and commits that are not converted, with advice for each.
const OTHER_FLAGS: [(&str, &str); 11] = [
    ("git-readonly", "Flux committed nothing: suspend the ImageUpdateAutomation to keep it so"),
    ("git-signing-key", "put the key into a Secret, and name it in spec.git.commit.signingKey"),
    ("git-set-author", "automations have one author"),
    (
        "manifest-generation",
        "values that .flux.yaml commands updated have no markers: add them by hand",
    ),
    (
        "registry-disable-scanning",
        "Flux updated no images: suspend the ImageRepositories to keep it so",
    ),
    ("registry-exclude-image", "suspend the ImageRepositories of these images"),
    ("registry-include-image", "suspend the ImageRepositories of all other images"),
    ("registry-insecure-host", "set spec.insecure of the ImageRepositories of these registries"),
    (
        "docker-config",
        "put it into a Secret, and name it in spec.secretRef of the ImageRepositories",
    ),
    ("registry-ecr-region", "set spec.provider of the ImageRepositories of ECR to aws"),
    ("registry-ecr-include-id", "set spec.provider of the ImageRepositories of ECR to aws"),
];

/// A Deployment of Flux v1: the repository that it applied, and how it committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::migrate::convert) struct FluxDaemon {
    url: String,
    /// `None` if the branch comes from an environment variable.
    branch: Option<String>,
    /// The applied folders. Empty for the whole repository.
    paths: BTreeSet<String>,
    flags: FluxDaemonFlags,
}

/// The flags of a command line, each with its values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct FluxDaemonFlags {
    values: BTreeMap<String, Vec<String>>,
}

impl FluxDaemon {
    /// Reads the settings of Flux v1 from its Deployment. `None` for other objects, and if no container names a Git repository.
    pub(in crate::migrate::convert) fn of(found: &Object) -> Option<Self> {
        if found.kind() != "Deployment" {
            return None;
        }
        let spec = found.get("spec")?;
        let containers = spec["template"]["spec"]["containers"].as_array()?;
        containers.iter().find_map(|container| {
            let arguments =
                ["command", "args"].into_iter().filter_map(|it| container[it].as_array());
            let flags = FluxDaemonFlags::of(arguments.flatten().filter_map(Value::as_str));
            let url = repository_url(flags.last("git-url")?)?;
            let branch = known(flags.last("git-branch").unwrap_or(DEFAULT_BRANCH));
            let paths = flags.all("git-path").flat_map(|it| it.split(','));
            let paths = paths.filter_map(known).map(|it| it.trim_matches('/').to_owned()).collect();
            Some(Self { url, branch, paths, flags })
        })
    }

    /// How often Flux v1 committed new images.
    fn interval(&self) -> &str {
        let is_duration = |text: &&str| {
            let is_of_duration = |it: u8| it.is_ascii_digit() || b".smh".contains(&it);
            text.starts_with(|it: char| it.is_ascii_digit()) && text.bytes().all(is_of_duration)
        };
        self.flags.last("automation-interval").filter(is_duration).unwrap_or(DEFAULT_INTERVAL)
    }

    /// The text that Flux v1 appended to its commit messages, so that CI skips them. `None` if the flags request no such text.
    fn message_end(&self) -> Option<&str> {
        let flag = self.flags.last("git-ci-skip").filter(|it| *it == "true");
        self.flags.last("git-ci-skip-message").or(flag.map(|_| SKIPS_CI))
    }
}

impl FluxDaemonFlags {
    /// Reads `--flag=value` and `--flag value`.
    fn of<'a>(arguments: impl Iterator<Item = &'a str>) -> Self {
        let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut arguments = arguments.peekable();
        while let Some(argument) = arguments.next() {
            let Some(flag) = argument.strip_prefix("--") else { continue };
            let (flag, value) = match flag.split_once('=') {
                Some(pair) => pair,
                None => (flag, arguments.next_if(|it| !it.starts_with('-')).unwrap_or("true")),
            };
            values.entry(flag.to_owned()).or_default().push(value.to_owned());
        }
        Self { values }
    }

    fn all(&self, flag: &str) -> impl Iterator<Item = &str> {
        self.values.get(flag).into_iter().flatten().map(String::as_str)
    }

    /// The last value of a command-line flag, which is the effective one. `None` if the flag is missing.
    fn last(&self, flag: &str) -> Option<&str> {
        self.values.get(flag)?.last().map(String::as_str)
    }
}

/// The URL of a Git repository, without user name and password. `None` if the Deployment does not contain the whole URL.
fn repository_url(text: &str) -> Option<String> {
    let url = git_url(text);
    match url.split_once("://") {
        Some((scheme @ ("http" | "https"), rest)) => {
            let host = rest.split('/').next().unwrap_or_default();
            let credentials = host.rfind('@').map_or(0, |at| at + 1);
            known(&format!("{scheme}://{}", rest.get(credentials..)?))
        }
        _ => known(&url),
    }
}

/// A value of a flag as it is. `None` if it is empty or uses an environment variable, whose value the Deployment does not
/// contain.
fn known(text: &str) -> Option<String> {
    (!text.is_empty() && !text.contains("$(")).then(|| text.to_owned())
}

/// Makes one automation for each repository and namespace with ImagePolicies. An automation uses only the ImagePolicies in its
/// namespace.
pub(in crate::migrate::convert) fn automations(
    namespaces: &BTreeSet<&str>,
    daemons: &[FluxDaemon],
    windlass_namespace: &str,
) -> ConversionResult {
    let mut done = ConversionResult::default();
    if namespaces.is_empty() {
        return done;
    }
    let repositories = repositories(daemons);
    if repositories.is_empty() {
        done.notes.push(format!(
            "no Deployment of Flux v1 says which repository the HelmReleases are in: GitRepository {BOOTSTRAPPED_SOURCE} of \
             namespace {windlass_namespace} is assumed; change spec.sourceRef of the ImageUpdateAutomations to that of the \
             repository, and set spec.git.checkout and spec.git.push if the branch is another one"
        ));
        let skeleton = ImageAutomationTemplate {
            name: DEFAULT_NAME,
            source: BOOTSTRAPPED_SOURCE,
            windlass_namespace,
            daemon: None,
        };
        done.objects.extend(namespaces.iter().map(|namespace| skeleton.in_namespace(namespace)));
    }
    let mut names = BTreeSet::new();
    for daemon in &repositories {
        let path = daemon.url.trim_end_matches('/').trim_end_matches(".git");
        let last = path.rsplit('/').next().unwrap_or_default();
        let name = unique(&mut names, &object_name(last));
        let source = if repositories.len() == 1 { BOOTSTRAPPED_SOURCE } else { name.as_str() };
        note_daemon(daemon, source, windlass_namespace, &mut done.notes);
        let skeleton = ImageAutomationTemplate {
            name: &name,
            source,
            windlass_namespace,
            daemon: Some(daemon),
        };
        done.objects.extend(namespaces.iter().map(|namespace| skeleton.in_namespace(namespace)));
    }
    done.notes.push(
        "the author of the ImageUpdateAutomations is an example: set spec.git.commit.author. They find the markers once the \
         objects above are in the repository"
            .to_owned(),
    );
    done
}

/// The applied repositories and branches, each once.
fn repositories(daemons: &[FluxDaemon]) -> Vec<FluxDaemon> {
    let mut all: Vec<FluxDaemon> = Vec::new();
    for daemon in daemons {
        let same = all.iter_mut().find(|it| it.url == daemon.url && it.branch == daemon.branch);
        match same {
            Some(known) if known.paths.is_empty() || daemon.paths.is_empty() => known.paths.clear(),
            Some(known) => known.paths.extend(daemon.paths.iter().cloned()),
            None => all.push(daemon.clone()),
        }
    }
    all
}

/// Adds remarks about the source that has to exist, and about flags that are not converted.
fn note_daemon(
    daemon: &FluxDaemon,
    source: &str,
    windlass_namespace: &str,
    notes: &mut Vec<String>,
) {
    let FluxDaemon { url, branch, paths, flags } = daemon;
    let place = match branch {
        Some(branch) => format!("branch {branch}"),
        None => "its branch is in a variable: set spec.git.checkout and spec.git.push".to_owned(),
    };
    notes.push(format!(
        "Flux committed to {url} ({place}): GitRepository {source} of namespace {windlass_namespace} has to be that \
         repository, with a Secret that may push; change spec.sourceRef of the ImageUpdateAutomations if its name is another"
    ));
    if paths.len() > 1 {
        let all: Vec<&str> = paths.iter().map(String::as_str).collect();
        notes.push(format!(
            "Flux applied several folders of {url} ({}): the ImageUpdateAutomations have the whole repository, of which only \
             values with markers change",
            all.join(", ")
        ));
    }
    for (flag, advice) in OTHER_FLAGS {
        for value in flags.all(flag).filter(|it| *it != "false") {
            notes.push(format!("flag --{flag}={value} of Flux is not converted: {advice}"));
        }
    }
}

/// The common fields of a repository's automations.
struct ImageAutomationTemplate<'d> {
    name: &'d str,
    /// The name of the GitRepository.
    source: &'d str,
    windlass_namespace: &'d str,
    daemon: Option<&'d FluxDaemon>,
}

impl ImageAutomationTemplate<'_> {
    fn in_namespace(&self, namespace: &str) -> Value {
        let interval = self.daemon.map_or(DEFAULT_INTERVAL, FluxDaemon::interval);
        let mut spec = json!({
            "interval": interval,
            "sourceRef": {"kind": "GitRepository", "name": self.source},
            "git": {"commit": {"author": {"name": "image-updates", "email": "image-updates@example.com"}}},
            "update": {"strategy": "Setters"},
        });
        if namespace != self.windlass_namespace {
            spec["sourceRef"]["namespace"] = json!(self.windlass_namespace);
        }
        if let Some(daemon) = self.daemon {
            if let Some(branch) = &daemon.branch {
                spec["git"]["checkout"] = json!({"ref": {"branch": branch}});
                spec["git"]["push"] = json!({"branch": branch});
            }
            if let (Some(path), 1) = (daemon.paths.first(), daemon.paths.len()) {
                spec["update"]["path"] = json!(format!("./{}", path.trim_start_matches("./")));
            }
            if let Some(end) = daemon.message_end() {
                spec["git"]["commit"]["messageTemplate"] = json!(MESSAGE_TEMPLATE);
                spec["git"]["commit"]["messageTemplateValues"] = json!({"ciSkip": end});
            }
        }
        object(IMAGE, "ImageUpdateAutomation", namespace, self.name, &spec)
    }
}
