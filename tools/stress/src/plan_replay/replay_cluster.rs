//! The test bed that follows the replayed repository.
//!
//! It adds what the objects of the repository need, and waits until all appliers have settled. `replayed_history`
//! makes the commits, and `inventories` reads the objects of appliers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::ensure;
use e2e::git_server::StoryGitRepository;
use e2e::harness::flux_objects::{NEVER, condition};
use e2e::harness::{Story, StoryObject, WindlassProcess};
use kube::core::{ApiResource, GroupVersionKind};
use kube::discovery::Discovery;
use objects::ObjectId;
use plan::{ApplierChange, ChangePlan, PlanObjectReference};
use serde_json::{Value, json};

use super::inventories::{ApplierInCluster, all_objects, appliers};
use super::manifest_rewriting::{KUSTOMIZE_GROUP, ManifestKinds, SOURCE_GROUP};
use super::replayed_history::serve;
use super::verdict::id_of;
use crate::inventory_ownership::{kind, served_kind};

/// The value of each variable that no ConfigMap or Secret of the repository defines.
const VARIABLE_VALUE: &str = "replayed";

/// How long a CustomResourceDefinition may take until its objects can be created.
const ESTABLISH_TIMEOUT: Duration = Duration::from_secs(60);

/// How long all appliers may take to settle after a commit.
const SETTLE_LIMIT: Duration = Duration::from_secs(300);

/// For how long nothing may change after all appliers have reported about the commit.
const QUIET_PERIOD: Duration = Duration::from_secs(3);

/// The same period if an applier waits, for example for a dependency, and so names no commit.
const QUIET_PERIOD_OF_WAITS: Duration = Duration::from_secs(15);

/// The environment variables that turn off the network. A request to another host then fails at once, on every
/// machine.
const NO_NETWORK: [(&str, &str); 6] = [
    ("HTTP_PROXY", "http://127.0.0.1:9"),
    ("http_proxy", "http://127.0.0.1:9"),
    ("HTTPS_PROXY", "http://127.0.0.1:9"),
    ("https_proxy", "http://127.0.0.1:9"),
    ("NO_PROXY", "127.0.0.1,localhost"),
    ("no_proxy", "127.0.0.1,localhost"),
];

/// Objects that the cluster needs in addition to those of the repository.
#[derive(Debug, Default)]
pub(super) struct AddedPrerequisites {
    /// CustomResourceDefinitions that accept everything.
    pub(super) definitions: BTreeSet<String>,
    /// Namespaces.
    pub(super) namespaces: BTreeSet<String>,
    /// ConfigMaps and Secrets for variables.
    pub(super) references: BTreeSet<String>,
}

impl AddedPrerequisites {
    fn count(&self) -> usize {
        self.definitions.len() + self.namespaces.len() + self.references.len()
    }
}

/// The Kustomization that applies the folder of the entry point.
#[derive(Debug, Clone)]
pub(super) struct EntryKustomization {
    /// The namespace of the Kustomization and of its source.
    pub(super) namespace: String,
    /// The name of the Kustomization and of its source.
    pub(super) name: String,
    /// The folder that the Kustomization applies.
    pub(super) path: String,
}

/// The cluster with windlass, and the repository that it follows.
pub(super) struct ReplayCluster<'r> {
    pub(super) story: Story,
    windlass: WindlassProcess,
    repository: &'r StoryGitRepository,
    served_url: String,
    entry: EntryKustomization,
    /// The objects that were added for those of the repository.
    pub(super) added: AddedPrerequisites,
}

impl<'r> ReplayCluster<'r> {
    /// Starts the control plane and windlass, which applies nothing yet.
    ///
    /// # Errors
    /// Something does not start.
    pub(super) async fn begin(
        repository: &'r StoryGitRepository,
        served_url: &str,
        entry: EntryKustomization,
    ) -> anyhow::Result<Self> {
        let story = Story::begin("replay").await?;
        // The original cluster lets Flux apply every kind, so windlass gets all rights here.
        let rights = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "replay"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [
                {"kind": "ServiceAccount", "name": "windlass-controller", "namespace": "flux-system"},
            ],
        });
        story.apply_value(rights).await?;
        let windlass = WindlassProcess::start_with(story.bed, &[], &NO_NETWORK).await?;
        // Deletions are compared, so no deletion budget may hold them.
        let policy = json!({
            "apiVersion": "release.windlass.dev/v1alpha1",
            "kind": "PlanPolicy",
            "metadata": {"name": "replay"},
            "spec": {"namespaceSelector": {}, "deletionBudget": {"enabled": false}},
        });
        story.apply_value(policy).await?;
        let namespace = entry.namespace.clone();
        let mut cluster = Self {
            story,
            windlass,
            repository,
            served_url: served_url.to_owned(),
            entry,
            added: AddedPrerequisites::default(),
        };
        cluster.add_namespace(&namespace).await?;
        Ok(cluster)
    }

    /// Adds missing definitions, namespaces and variables that the objects of a plan need. It returns whether
    /// something was missing.
    ///
    /// # Errors
    /// The API server rejects an object.
    pub(super) async fn prepare(
        &mut self,
        plan: &ChangePlan,
        kinds: &ManifestKinds,
    ) -> anyhow::Result<bool> {
        let count = self.added.count();
        let objects: BTreeSet<ObjectId> = plan.appliers.iter().flat_map(objects_of).collect();
        self.add_definitions(&objects, kinds).await?;
        let declared: BTreeSet<&str> =
            objects.iter().filter(|it| is_namespace(it)).map(|it| it.name.as_str()).collect();
        let used: BTreeSet<&str> = objects.iter().map(|it| it.namespace.as_str()).collect();
        for namespace in used.difference(&declared).filter(|it| !it.is_empty()) {
            self.add_namespace(namespace).await?;
        }
        for change in &plan.appliers {
            if change.applier.kind == "Kustomization" {
                self.add_references(change).await?;
            }
        }
        Ok(self.added.count() > count)
    }

    /// Adds definitions that accept everything. A kind is cluster-scoped if none of its objects has a namespace, or
    /// if its name says so. The name counts because kustomize gives all objects of unknown kinds a namespace.
    async fn add_definitions(
        &mut self,
        objects: &BTreeSet<ObjectId>,
        kinds: &ManifestKinds,
    ) -> anyhow::Result<()> {
        let discovery = Discovery::new(self.story.client.clone()).run_aggregated().await?;
        let mut by_kind = BTreeMap::<(&str, &str), bool>::new();
        for id in objects {
            let is_namespaced = by_kind.entry((id.group.as_str(), id.kind.as_str())).or_default();
            *is_namespaced |= !id.namespace.is_empty();
        }
        for ((group, kind), is_namespaced) in by_kind {
            let is_served = served_kind(&discovery, group, kind).is_some();
            let versions = kinds.undefined_versions(group, kind);
            if is_served || versions.is_empty() || !group.contains('.') {
                continue;
            }
            let is_namespaced = is_namespaced && !is_named_cluster_scoped(kind);
            let definition = permissive_definition(group, kind, &versions, is_namespaced);
            let name = definition["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            self.story.apply_value(definition).await?;
            let crd =
                StoryObject::new("apiextensions.k8s.io/v1", "CustomResourceDefinition", &name);
            self.story.await_condition(&crd, "Established", "True", ESTABLISH_TIMEOUT).await?;
            self.added.definitions.insert(name);
        }
        Ok(())
    }

    async fn add_namespace(&mut self, name: &str) -> anyhow::Result<()> {
        if self.story.read(&StoryObject::new("v1", "Namespace", name)).await?.is_none() {
            let object =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            self.story.apply_value(object).await?;
            self.added.namespaces.insert(name.to_owned());
        }
        Ok(())
    }

    /// Adds the ConfigMaps and Secrets of `postBuild.substituteFrom` that the plan does not know. They get the
    /// variables that the plan does not know.
    async fn add_references(&mut self, change: &ApplierChange) -> anyhow::Result<()> {
        let unknown = change.unknown_values.iter().map(|it| it.what.as_str());
        let variables = unknown.clone().filter_map(|it| {
            it.strip_prefix("variable ${").and_then(|rest| rest.strip_suffix('}'))
        });
        let values: BTreeMap<&str, &str> = variables.map(|it| (it, VARIABLE_VALUE)).collect();
        let references: Vec<&str> = unknown.filter(|it| referenced(it).is_some()).collect();
        for what in references {
            let Some(ReferencedObject { kind, namespace, name }) = referenced(what) else {
                continue;
            };
            // If the repository declares the same object, that one is applied over this one.
            self.add_namespace(namespace).await?;
            let target = StoryObject::new("v1", kind, name).in_namespace(namespace);
            if self.story.read(&target).await?.is_some() {
                continue;
            }
            let data = if kind == "Secret" { "stringData" } else { "data" };
            let object = json!({"apiVersion": "v1", "kind": kind, data: values,
                "metadata": {"name": name, "namespace": namespace}});
            self.story.apply_value(object).await?;
            self.added.references.insert(what.to_owned());
        }
        Ok(())
    }

    /// Makes the cluster follow the repository, beginning with a commit.
    ///
    /// # Errors
    /// Git fails, or the API server rejects an object.
    pub(super) async fn bootstrap(&self, sha: &str) -> anyhow::Result<()> {
        serve(self.repository, sha)?;
        let EntryKustomization { namespace, name, path } = &self.entry;
        let metadata = json!({"name": name, "namespace": namespace});
        let source = json!({
            "apiVersion": format!("{SOURCE_GROUP}/v1"), "kind": "GitRepository", "metadata": metadata,
            "spec": {"interval": NEVER, "url": self.served_url, "ref": {"branch": "main"}},
        });
        let kustomization = json!({
            "apiVersion": format!("{KUSTOMIZE_GROUP}/v1"), "kind": "Kustomization", "metadata": metadata,
            "spec": {
                "interval": NEVER, "path": path, "prune": true,
                "sourceRef": {"kind": "GitRepository", "name": name},
            },
        });
        self.story.apply_value(source).await?;
        self.story.apply_value(kustomization).await.map(drop)
    }

    /// Moves the branch that the cluster follows to a commit.
    ///
    /// # Errors
    /// Git fails, or the source does not exist.
    pub(super) async fn push(&self, sha: &str) -> anyhow::Result<()> {
        serve(self.repository, sha)?;
        for source in self.own_sources().await? {
            let target = StoryObject::git_repository(&source.name).in_namespace(&source.namespace);
            self.story.request(&target).await?;
        }
        Ok(())
    }

    /// The GitRepositories whose URL is that of the replayed repository.
    async fn own_sources(&self) -> anyhow::Result<BTreeSet<ObjectId>> {
        let resource = kind(&format!("{SOURCE_GROUP}/v1"), "GitRepository");
        let objects = all_objects(&self.story.client, &resource).await?;
        let own =
            objects.into_iter().filter(|it| it.data["spec"]["url"] == self.served_url.as_str());
        let word = |text: Option<String>| text.unwrap_or_default();
        Ok(own
            .map(|it| {
                let namespace = word(it.metadata.namespace);
                ObjectId::new(&namespace, &word(it.metadata.name), SOURCE_GROUP, "GitRepository")
            })
            .collect())
    }

    /// Waits until all appliers have reported about a revision, or wait without any change. After the time limit it
    /// returns the appliers that still work.
    ///
    /// # Errors
    /// The API server does not respond, or windlass has ended.
    pub(super) async fn settle(&mut self, revision: &str) -> anyhow::Result<Vec<ObjectId>> {
        let begun = Instant::now();
        let mut quiet_since = Instant::now();
        let mut last = String::new();
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            ensure!(
                self.windlass.operator.is_running()?,
                "windlass has ended; its log ends:\n{}",
                self.windlass.operator.tail(30)
            );
            let sources = self.own_sources().await?;
            let all = appliers(&self.story.client).await?;
            let compared = all.iter().filter(|(id, it)| is_rendered(id, it, &sources));
            let compared: Vec<(&ObjectId, &ApplierInCluster)> = compared.collect();
            let seen = fingerprint(&compared);
            if seen != last {
                last = seen;
                quiet_since = Instant::now();
            }
            let progress = |it: &ApplierInCluster| settle_progress(it, revision);
            let unsettled =
                compared.iter().filter(|(_, it)| progress(it) == SettleProgress::UnderWay);
            let unsettled: Vec<ObjectId> = unsettled.map(|(id, _)| (*id).clone()).collect();
            let waits = compared.iter().any(|(_, it)| progress(it) == SettleProgress::Waiting);
            let quiet = if waits { QUIET_PERIOD_OF_WAITS } else { QUIET_PERIOD };
            let is_fetched = self.is_fetched(revision, &sources).await?;
            let is_settled = is_fetched && unsettled.is_empty() && quiet_since.elapsed() >= quiet;
            if is_settled || begun.elapsed() > SETTLE_LIMIT {
                return Ok(unsettled);
            }
        }
    }

    /// Whether there are sources of the repository, and all of them have a revision.
    async fn is_fetched(
        &self,
        revision: &str,
        sources: &BTreeSet<ObjectId>,
    ) -> anyhow::Result<bool> {
        for source in sources {
            let target = StoryObject::git_repository(&source.name).in_namespace(&source.namespace);
            let object = self.story.read(&target).await?;
            let has_it = object.is_some_and(|it| {
                it.data["status"]["artifact"]["revision"] == revision
                    && condition(&it, "Ready")["status"] == "True"
            });
            if !has_it {
                return Ok(false);
            }
        }
        Ok(!sources.is_empty())
    }

    /// The HelmReleases whose charts are in other sources. Their objects are applied, but their charts are not
    /// rendered.
    ///
    /// # Errors
    /// The API server does not list the sources.
    pub(super) async fn unrendered_appliers(
        &self,
        all: &BTreeMap<ObjectId, ApplierInCluster>,
    ) -> anyhow::Result<BTreeSet<ObjectId>> {
        let sources = self.own_sources().await?;
        let unrendered = all.iter().filter(|(id, it)| !is_rendered(id, it, &sources));
        Ok(unrendered.map(|(id, _)| id.clone()).collect())
    }
}

/// The progress of an applier with a revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SettleProgress {
    /// Its status is about the revision.
    Reported,
    /// Its status names no commit, or it is not ready for another reason than a commit.
    Waiting,
    /// It is still working.
    UnderWay,
}

fn settle_progress(applier: &ApplierInCluster, revision: &str) -> SettleProgress {
    let is_of_revision = applier.attempted == revision;
    match applier.ready.as_str() {
        _ if applier.is_terminating => SettleProgress::UnderWay,
        _ if applier.is_suspended => SettleProgress::Reported,
        "True" if applier.has_applied(revision) && applier.names_commit => SettleProgress::Reported,
        "True" if applier.has_applied(revision) => SettleProgress::Waiting,
        "False" if applier.is_current && is_of_revision => SettleProgress::Reported,
        "False" if applier.is_current => SettleProgress::Waiting,
        _ => SettleProgress::UnderWay,
    }
}

/// Whether an applier is compared: all Kustomizations, and HelmReleases whose chart is in the repository.
fn is_rendered(id: &ObjectId, applier: &ApplierInCluster, sources: &BTreeSet<ObjectId>) -> bool {
    if id.group == KUSTOMIZE_GROUP {
        return true;
    }
    let source = &applier.spec["chart"]["spec"]["sourceRef"];
    let namespace = source["namespace"].as_str().unwrap_or(&id.namespace);
    let name = source["name"].as_str().unwrap_or_default();
    source["kind"] == "GitRepository"
        && sources.contains(&ObjectId::new(namespace, name, SOURCE_GROUP, "GitRepository"))
}

/// A text that stays the same as long as no applier is written.
fn fingerprint(appliers: &[(&ObjectId, &ApplierInCluster)]) -> String {
    appliers.iter().map(|(id, it)| format!("{id} {}\n", it.version)).collect()
}

fn is_namespace(id: &ObjectId) -> bool {
    id.group.is_empty() && id.kind == "Namespace"
}

/// All objects of an applier that a plan names.
fn objects_of(change: &ApplierChange) -> Vec<ObjectId> {
    let added: &[PlanObjectReference] = &change.added;
    let changed = change.changed.iter().map(|it| &it.object);
    let moved = change.moved.iter().map(|it| &it.object);
    added.iter().chain(&change.not_compared).chain(changed).chain(moved).map(id_of).collect()
}

/// A ConfigMap or Secret whose values a plan does not know.
struct ReferencedObject<'t> {
    kind: &'t str,
    namespace: &'t str,
    name: &'t str,
}

/// Parses a reference such as `Secret/namespace/name`. `None` for other unknown parts of a plan.
fn referenced(what: &str) -> Option<ReferencedObject<'_>> {
    let (kind, rest) = what.split_once('/')?;
    let (namespace, name) = rest.split_once('/')?;
    let is_reference = ["ConfigMap", "Secret"].contains(&kind)
        && !name.is_empty()
        && name.chars().all(|it| it.is_ascii_alphanumeric() || ".-".contains(it));
    is_reference.then_some(ReferencedObject { kind, namespace, name })
}

/// Whether the name of a kind is typical of cluster-scoped kinds, such as `ClusterIssuer`. The kind `Cluster` itself
/// counts as namespaced.
fn is_named_cluster_scoped(kind: &str) -> bool {
    let rest = kind.strip_prefix("Cluster").unwrap_or_default();
    rest.starts_with(|first: char| first.is_ascii_uppercase()) || kind.contains("Clusterwide")
}

/// A definition that accepts all objects of a kind.
fn permissive_definition(group: &str, kind: &str, versions: &[&str], is_namespaced: bool) -> Value {
    let version = versions.last().copied().unwrap_or_default();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let versions: Vec<Value> = versions
        .iter()
        .map(|name| {
            json!({
                "name": name, "served": true, "storage": *name == version,
                "schema": {"openAPIV3Schema": schema},
            })
        })
        .collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{}.{group}", resource.plural),
            // The API server protects the groups of Kubernetes, and needs this annotation.
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a replay of commits"},
        },
        "spec": {
            "group": group,
            "scope": if is_namespaced { "Namespaced" } else { "Cluster" },
            "names": {
                "kind": kind, "listKind": format!("{kind}List"),
                "plural": resource.plural, "singular": kind.to_lowercase(),
            },
            "versions": versions,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_recognized_by_their_form() {
        let named = |what: &str| {
            referenced(what).map(|it| format!("{} {} {}", it.kind, it.namespace, it.name))
        };
        assert_eq!(named("Secret/apps/web.env").as_deref(), Some("Secret apps web.env"));
        for other in
            ["Secret/apps/web, key password", "variable ${A}", "Pod/apps/web", "all objects"]
        {
            assert_eq!(named(other), None, "{other}");
        }
    }

    #[test]
    fn a_definition_stores_the_last_version_and_takes_everything() {
        let definition = permissive_definition("acme.io", "Policy", &["v1", "v2"], false);
        assert_eq!(definition["metadata"]["name"], "policies.acme.io");
        assert_eq!(definition["spec"]["scope"], "Cluster");
        let stored = |at: usize| definition["spec"]["versions"][at]["storage"] == true;
        assert!(!stored(0) && stored(1));
        let cluster_scoped = ["ClusterIssuer", "CiliumClusterwideNetworkPolicy"];
        assert!(cluster_scoped.into_iter().all(is_named_cluster_scoped));
        assert!(!["Cluster", "Clusters", "Issuer"].into_iter().any(is_named_cluster_scoped));
    }

    #[test]
    fn an_applier_settles_when_it_reports_about_the_revision_or_waits() {
        let of = |ready: &str, revision: &str| {
            settle_progress(&ApplierInCluster::for_tests(ready, "Any", revision), "two")
        };
        assert_eq!(of("True", "two"), SettleProgress::Reported);
        assert_eq!(of("True", "one"), SettleProgress::UnderWay);
        assert_eq!(of("False", "two"), SettleProgress::Reported);
        assert_eq!(of("False", "one"), SettleProgress::Waiting);
        assert_eq!(of("Unknown", "two"), SettleProgress::UnderWay);
    }
}
