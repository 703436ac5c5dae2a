//! Finds the Flux sources that are this repository. Their artifacts consist of the compared files.
//!
//! Elsewhere: the files (`revision_files.rs`), the declared sources (`applier_discovery.rs`).

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, ensure};
use crds::source::{GitRepository, GitRepositorySpec};
use objects::{Object, ObjectId};
use serde_json::Value;

/// The API group of sources.
pub(crate) const SOURCE_GROUP: &str = "source.toolkit.fluxcd.io";

/// The kinds of sources whose artifacts contain manifests.
const ARTIFACT_KINDS: [&str; 4] = ["GitRepository", "OCIRepository", "Bucket", "ExternalArtifact"];

/// The name and namespace of the objects that `flux bootstrap` creates.
pub(crate) const BOOTSTRAP_NAME: &str = "flux-system";

/// The host and path of a Git repository, regardless of the protocol.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct GitRepositoryIdentity {
    /// The host in lower case, without the port.
    host: String,
    /// The path without slashes at its ends and without `.git`.
    path: String,
}

impl GitRepositoryIdentity {
    /// Parses an address such as `https://host/org/repo.git`, `ssh://git@host:22/org/repo` or `git@host:org/repo`.
    fn parse(address: &str) -> Option<Self> {
        let (authority, path) = match address.split_once("://") {
            Some((_, rest)) => rest.split_once('/')?,
            None => address.split_once(':').filter(|(host, _)| !host.contains('/'))?,
        };
        let host = authority.rsplit('@').next().unwrap_or(authority);
        let host = match host.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => host,
        };
        let path = path.trim_matches('/');
        let path = path.strip_suffix(".git").unwrap_or(path).trim_end_matches('/');
        let is_whole = !host.is_empty() && !path.is_empty();
        is_whole.then(|| Self { host: host.to_ascii_lowercase(), path: path.to_owned() })
    }
}

/// The origin of a source's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SourceOrigin {
    /// The files are those of the compared repository, except those that match these patterns.
    ThisRepository {
        /// The patterns in `spec.ignore`.
        ignore: Option<String>,
    },
    /// The files come from another place and are not compared, for this reason.
    Elsewhere(String),
}

/// The sources that a revision declares.
pub(crate) type DeclaredSources = BTreeMap<ObjectId, Object>;

/// The place of a source's files.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SourceAddress {
    repository: Option<GitRepositoryIdentity>,
    /// The URL, if the source is not a Git repository.
    url: String,
    /// The reference in `spec.ref`.
    reference: String,
}

impl SourceAddress {
    /// The place of a source. `None` if the source is not declared.
    pub(crate) fn of(id: &ObjectId, declared: &DeclaredSources) -> Option<Self> {
        let spec = declared.get(id)?.get("spec")?;
        let url = spec["url"].as_str().unwrap_or_default();
        let repository = GitRepositoryIdentity::parse(url);
        let url = if repository.is_some() { String::new() } else { url.to_owned() };
        Some(Self { repository, url, reference: spec["ref"].to_string() })
    }
}

/// The data by which windlass recognizes sources that are this repository.
#[derive(Debug, Default)]
pub(crate) struct RepositorySources {
    /// The Git remotes of the checkout.
    places: BTreeSet<GitRepositoryIdentity>,
    /// The sources that the user named.
    named: BTreeSet<ObjectId>,
}

impl RepositorySources {
    /// Uses the remotes of a checkout, and sources that the user named as `Kind/namespace/name`.
    ///
    /// # Errors
    /// A source does not have this form.
    pub(crate) fn new(remotes: &[String], named: &[String]) -> anyhow::Result<Self> {
        let places = remotes.iter().filter_map(|it| GitRepositoryIdentity::parse(it)).collect();
        let named = named.iter().map(|it| named_source(it)).collect::<anyhow::Result<_>>()?;
        Ok(Self { places, named })
    }

    /// Whether an address of a Git repository is one of the remotes.
    pub(crate) fn is_remote(&self, address: &str) -> bool {
        GitRepositoryIdentity::parse(address).is_some_and(|place| self.places.contains(&place))
    }

    /// The origin of a source's files. `own` are sources that have to be this repository because of the entry point.
    pub(crate) fn origin(
        &self,
        id: &ObjectId,
        declared: &DeclaredSources,
        own: &BTreeSet<ObjectId>,
    ) -> SourceOrigin {
        let object = declared.get(id);
        let spec = object.and_then(|object| object.get("spec"));
        if self.named.contains(id) || own.contains(id) {
            let ignore = spec.and_then(|spec| spec["ignore"].as_str()).map(str::to_owned);
            return SourceOrigin::ThisRepository { ignore };
        }
        let subject = id.subject();
        let advice = "if it is this repository, say so with --source";
        let Some(object) = object else {
            let is_bootstrap = id.kind == "GitRepository"
                && (id.name.as_str(), id.namespace.as_str()) == (BOOTSTRAP_NAME, BOOTSTRAP_NAME);
            return match is_bootstrap {
                true => SourceOrigin::ThisRepository { ignore: None },
                false => SourceOrigin::Elsewhere(format!(
                    "the repository does not declare {subject}; {advice}={subject}"
                )),
            };
        };
        if id.kind != "GitRepository" {
            return SourceOrigin::Elsewhere(format!(
                "the artifact of {subject} is not fetched; {advice}={subject}"
            ));
        }
        match serde_json::from_value::<GitRepository>(object.clone().into_value()) {
            Ok(repository) => self.origin_of_git(&subject, repository.spec),
            Err(error) => SourceOrigin::Elsewhere(format!("{subject} cannot be read: {error}")),
        }
    }

    fn origin_of_git(&self, subject: &str, spec: GitRepositorySpec) -> SourceOrigin {
        if !self.is_remote(&spec.url) {
            return SourceOrigin::Elsewhere(format!(
                "{subject} is another repository, which is not fetched; if it is this one, add its URL as a remote, or use \
                 --source={subject}"
            ));
        }
        let reference = spec.reference.clone().unwrap_or_default();
        let pinned = [reference.commit, reference.name, reference.tag, reference.semver];
        let has_more =
            !spec.include.is_empty() || !spec.sparse_checkout.is_empty() || spec.recurse_submodules;
        if let Some(pinned) = pinned.into_iter().flatten().next() {
            return SourceOrigin::Elsewhere(format!(
                "{subject} stays at `{pinned}` of this repository, whatever is committed"
            ));
        }
        match has_more {
            true => SourceOrigin::Elsewhere(format!(
                "{subject} has more or less than the files of this repository: spec.include, spec.sparseCheckout or \
                 spec.recurseSubmodules is set"
            )),
            false => SourceOrigin::ThisRepository { ignore: spec.ignore },
        }
    }
}

/// Parses a source that the user named.
fn named_source(text: &str) -> anyhow::Result<ObjectId> {
    let shape =
        || format!("--source {text}: write Kind/namespace/name, such as OCIRepository/apps/web");
    let (kind, rest) = text.split_once('/').with_context(shape)?;
    let (namespace, name) = rest.split_once('/').with_context(shape)?;
    let is_whole = !namespace.is_empty() && !name.is_empty() && !name.contains('/');
    ensure!(is_whole, shape());
    let known = ARTIFACT_KINDS.iter().find(|it| it.eq_ignore_ascii_case(kind));
    let known = known
        .with_context(|| format!("--source {text}: the kinds are {}", ARTIFACT_KINDS.join(", ")))?;
    Ok(ObjectId::new(namespace, name, SOURCE_GROUP, known))
}

/// The source in a reference. `namespace` is the namespace of the object that contains the reference.
pub(crate) fn referenced_source(reference: &Value, namespace: &str) -> Option<ObjectId> {
    let namespace = reference["namespace"].as_str().unwrap_or(namespace);
    let kind = reference["kind"].as_str()?;
    Some(ObjectId::new(namespace, reference["name"].as_str()?, SOURCE_GROUP, kind))
}

/// Whether an object is a source or a HelmChart.
pub(crate) fn is_source(object: &Object) -> bool {
    object.id().group == SOURCE_GROUP
}

/// The spec of a declared source, for comparing it. Null if the source is not declared.
pub(crate) fn spec_of(id: &ObjectId, declared: &DeclaredSources) -> Value {
    declared.get(id).and_then(|object| object.get("spec")).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn id(kind: &str, namespace: &str, name: &str) -> ObjectId {
        ObjectId::new(namespace, name, SOURCE_GROUP, kind)
    }

    #[test]
    fn a_repository_is_the_same_however_it_is_reached() {
        let expected = GitRepositoryIdentity::parse("https://github.com/org/fleet");
        assert!(expected.is_some());
        for address in [
            "https://token@GitHub.com/org/fleet.git",
            "ssh://git@github.com/org/fleet",
            "ssh://git@github.com:22/org/fleet.git/",
            "git@github.com:org/fleet.git",
        ] {
            assert_eq!(GitRepositoryIdentity::parse(address), expected, "{address}");
        }
        for other in ["https://github.com/org/other", "https://gitlab.com/org/fleet", "", "/a/b"] {
            assert_ne!(GitRepositoryIdentity::parse(other), expected, "{other}");
        }
    }

    #[test]
    fn a_source_is_the_repository_by_a_remote_by_name_or_as_what_bootstrap_makes() {
        let remotes = ["git@github.com:org/fleet.git".to_owned()];
        let named = ["ocirepository/apps/web".to_owned()];
        let sources = RepositorySources::new(&remotes, &named).unwrap();
        let git = |name: &str, spec: Value| {
            let object = Object::new(json!({"apiVersion": "source.toolkit.fluxcd.io/v1",
                "kind": "GitRepository", "metadata": {"name": name, "namespace": "apps"}, "spec": spec}));
            (id("GitRepository", "apps", name), object.unwrap())
        };
        let url = "https://github.com/org/fleet";
        let declared: DeclaredSources = [
            git("here", json!({"url": url, "interval": "1m", "ignore": "docs/"})),
            git("pinned", json!({"url": url, "interval": "1m", "ref": {"tag": "v1"}})),
            git("other", json!({"url": "https://github.com/org/other", "interval": "1m"})),
        ]
        .into();
        let own = BTreeSet::from([id("Bucket", "apps", "built")]);
        let origin = |id: ObjectId| sources.origin(&id, &declared, &own);
        let this = |ignore: Option<&str>| SourceOrigin::ThisRepository {
            ignore: ignore.map(str::to_owned),
        };
        assert_eq!(origin(id("GitRepository", "apps", "here")), this(Some("docs/")));
        assert_eq!(origin(id("OCIRepository", "apps", "web")), this(None));
        assert_eq!(origin(id("Bucket", "apps", "built")), this(None));
        assert_eq!(origin(id("GitRepository", "flux-system", "flux-system")), this(None));
        for (elsewhere, why) in [
            (id("GitRepository", "apps", "pinned"), "stays at `v1`"),
            (id("GitRepository", "apps", "other"), "is another repository"),
            (id("GitRepository", "apps", "flux-system"), "does not declare"),
        ] {
            let SourceOrigin::Elsewhere(text) = origin(elsewhere) else { panic!("{why}") };
            assert!(text.contains(why), "{text}");
        }
    }

    #[test]
    fn a_source_is_named_with_its_kind_and_namespace() {
        for wrong in ["GitRepository/apps", "Helm/apps/web", "Bucket//web", "Bucket/a/b/c"] {
            assert!(RepositorySources::new(&[], &[wrong.to_owned()]).is_err(), "{wrong}");
        }
    }
}
