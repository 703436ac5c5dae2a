//! The file with facts that only a cluster knows, which users commit to the repository. This module defines its format, and
//! compares two such files.
//!
//! Elsewhere: reading a cluster (`cluster_facts_reading.rs`), the command that writes the file (`cluster_facts_command.rs`), using the facts
//! in a plan (`applier_discovery.rs`, `kustomization_build.rs`, `release_inputs.rs`).
//!
//! The file is a manifest that kustomize ignores, because its folder may be built without a `kustomization.yaml`. In that case,
//! kustomize builds all manifests below the folder.
//! The maps are sorted, so two exports of the same state have the same bytes.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, ensure};
use goyaml::emit_with_escapes;
use helm::capabilities::{Capabilities, KubeVersion};
use objects::{Object, ObjectId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tree::RelPath;

use super::resource_scope::DeclaredKindScopes;
use windlass_cluster::referenced_secrets_and_config_maps::DeclaredConfigMapsAndSecrets;

/// The path of the file, below the folder that the cluster applies first.
pub(crate) const FACTS_PATH: &str = ".windlass/facts.yaml";

/// The API version of the format.
const API_VERSION: &str = "plan.windlass.dev/v1alpha1";

const KIND: &str = "ClusterFacts";

/// The kinds whose objects put labels on the applied objects, with their API groups.
pub(crate) const LABELLING_APPLIERS: [(&str, &str); 2] =
    [("kustomize.toolkit.fluxcd.io", "Kustomization"), ("helm.toolkit.fluxcd.io", "HelmRelease")];

/// kustomize leaves out an object with this annotation.
const LOCAL_CONFIG: &str = "config.kubernetes.io/local-config";

/// The largest file that is read or written, in bytes.
pub(crate) const MAX_FACTS_BYTES: usize = 4 << 20;

/// The maximum number of keys that are named if a value is unknown.
const MAX_NAMED_KEYS: usize = 20;

/// The maximum number of lines about differences.
const MAX_DIFFERENCES: usize = 200;

const HEADER: &str = "# What only the cluster knows, for `windlass plan`. Written by `windlass plan facts`, which compares it with \
                      --check.\n";

/// The facts of a cluster when the file was written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ClusterFacts {
    /// The version of the API server. Empty if it is unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) kubernetes_version: String,
    /// The served API versions and kinds, such as `apps/v1` and `apps/v1/Deployment`.
    #[serde(default)]
    pub(crate) api_versions: BTreeSet<String>,
    /// The scopes of kinds that are not built in, such as `Widget.acme.io`.
    #[serde(default)]
    pub(crate) scopes: BTreeMap<String, KindScope>,
    /// The ConfigMaps and Secrets that Kustomizations and HelmReleases name, by `Kind/namespace/name`.
    #[serde(default)]
    pub(crate) references: BTreeMap<String, ReferencedObjectFact>,
    /// The parts that could not be read, so nothing is known about them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) not_read: BTreeSet<String>,
}

/// The scope of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum KindScope {
    /// The objects are in namespaces.
    Namespaced,
    /// The objects are cluster-scoped.
    Cluster,
}

/// The facts about a ConfigMap or Secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ReferencedObjectFact {
    /// Whether the object exists in the cluster.
    pub(crate) exists: bool,
    /// The Kustomization or HelmRelease that applied it, as `Kind/namespace/name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) applied_by: Option<String>,
    /// The keys of the object.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) keys: BTreeSet<String>,
    /// The values of a ConfigMap. `None` if they were not exported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<BTreeMap<String, String>>,
}

impl ClusterFacts {
    /// Parses a file.
    ///
    /// # Errors
    /// The file is too large, has another API version, or contains a field that no export writes.
    pub(crate) fn parse(text: &[u8]) -> anyhow::Result<Self> {
        let most = MAX_FACTS_BYTES;
        ensure!(text.len() <= most, "the facts have more than {most} bytes");
        let mut value = goyaml::to_json(text).context("the facts are not YAML")?;
        let fields = value.as_object_mut().context("the facts are not a map")?;
        let mut text = |field: &str| {
            let value = fields.remove(field).unwrap_or_default();
            value.as_str().unwrap_or_default().to_owned()
        };
        let api_version = text("apiVersion");
        let kind = text("kind");
        ensure!(
            api_version == API_VERSION && kind == KIND,
            "the facts are `{kind}` of `{api_version}`, and this version reads `{KIND}` of `{API_VERSION}`: export them \
             with `windlass plan facts`"
        );
        fields.remove("metadata");
        let facts: Self = serde_json::from_value(value).context("the facts cannot be read")?;
        facts.add_to(&mut Capabilities::default())?;
        for (subject, fact) in &facts.references {
            let id = reference_id(subject)
                .with_context(|| format!("references: `{subject}` is no ConfigMap or Secret"))?;
            let has_values = id.kind == "Secret" && fact.data.is_some();
            ensure!(!has_values, "references: {subject} has data: no value of a Secret is read");
        }
        Ok(facts)
    }

    /// The text of the file. `folder` is the folder that the cluster applies first, if it is known.
    ///
    /// # Errors
    /// The text would be larger than the maximum.
    pub(crate) fn text(&self, folder: &RelPath) -> anyhow::Result<String> {
        let letter =
            |it: char| if it.is_ascii_alphanumeric() { it.to_ascii_lowercase() } else { '-' };
        let name: String = folder.as_str().chars().map(letter).collect();
        // A build may contain the files of several clusters, and two objects with the same name would be an error.
        let name = if name.is_empty() { "cluster".to_owned() } else { name };
        let mut value = serde_json::to_value(self)?;
        value["apiVersion"] = API_VERSION.into();
        value["kind"] = KIND.into();
        value["metadata"] = json!({"name": name, "annotations": {LOCAL_CONFIG: "true"}});
        let text = format!("{HEADER}{}", emit_with_escapes(&value)?);
        let most = MAX_FACTS_BYTES;
        ensure!(
            text.len() <= most,
            "the facts would have more than {most} bytes; leave out --with-values, or choose a --namespace"
        );
        Ok(text)
    }

    /// The facts about a ConfigMap or Secret.
    pub(crate) fn reference(&self, id: &ObjectId) -> Option<&ReferencedObjectFact> {
        self.references.get(&id.subject())
    }

    /// Why the values of a ConfigMap or Secret are unknown. `field` is the field of the applier that names the object.
    pub(crate) fn unknown_reason(&self, id: &ObjectId, field: &str) -> String {
        let mut reason =
            format!("{field} names it, and the repository does not declare it, or encrypted it");
        if let Some(fact) = self.reference(id).filter(|fact| fact.exists) {
            let keys: Vec<&str> =
                fact.keys.iter().take(MAX_NAMED_KEYS).map(String::as_str).collect();
            let more = if fact.keys.len() > keys.len() { ", …" } else { "" };
            reason += &match keys.is_empty() {
                true => "; the cluster has it, without values".to_owned(),
                false => format!("; the cluster has it, with values for {}{more}", keys.join(", ")),
            };
        }
        if self.not_read.contains(&id.subject()) {
            reason += "; it could not be read in the cluster";
        }
        reason
    }

    /// Whether values of ConfigMaps are known.
    pub(crate) fn has_values(&self) -> bool {
        self.references.values().any(|it| it.data.is_some())
    }

    /// Adds the Kubernetes version and the API versions of the cluster to the capabilities for charts.
    ///
    /// # Errors
    /// The Kubernetes version is not valid.
    pub(crate) fn add_to(&self, capabilities: &mut Capabilities) -> anyhow::Result<()> {
        if !self.kubernetes_version.is_empty() {
            let version = &self.kubernetes_version;
            let parsed = KubeVersion::parse(version);
            capabilities.kube_version =
                parsed.with_context(|| format!("kubernetesVersion `{version}` of the facts"))?;
        }
        capabilities.api_versions.extend(self.api_versions.iter().cloned());
        Ok(())
    }

    /// The scopes of kinds that are not built in.
    pub(crate) fn kind_scopes(&self) -> DeclaredKindScopes {
        let mut kinds = DeclaredKindScopes::default();
        for (name, scope) in &self.scopes {
            let (kind, group) = name.split_once('.').unwrap_or((name.as_str(), ""));
            kinds.add_scope(group, kind, *scope == KindScope::Namespaced);
        }
        kinds
    }

    /// The ConfigMaps and Secrets whose data is known. They either have exported values, or they do not exist.
    pub(crate) fn known_references(&self) -> DeclaredConfigMapsAndSecrets {
        let mut known = DeclaredConfigMapsAndSecrets::default();
        for (subject, fact) in &self.references {
            let Some(id) = reference_id(subject) else { continue };
            let data = match &fact.data {
                Some(data) => json!(data),
                None if !fact.exists => json!({}),
                None => continue,
            };
            let object = Object::new(json!({"apiVersion": "v1", "kind": id.kind,
                "metadata": {"name": id.name, "namespace": id.namespace}, "data": data}));
            if let Ok(object) = object {
                known.add(&object);
            }
        }
        DeclaredConfigMapsAndSecrets::with_cluster_objects(known)
    }

    /// Removes ConfigMaps and Secrets of other namespaces.
    pub(crate) fn keep_namespace(&mut self, namespace: &str) {
        self.references
            .retain(|subject, _| reference_id(subject).is_some_and(|id| id.namespace == namespace));
    }

    /// The differences between the file and the cluster, one per line. `-` marks facts of the file only, `+` facts of the
    /// cluster only, and `~` facts that differ. Parts of the cluster that could not be read count as equal.
    pub(crate) fn differences(&self, cluster: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.kubernetes_version != cluster.kubernetes_version {
            let [file, live] = [self, cluster].map(|it| it.kubernetes_version.as_str());
            lines.push(format!("~ the version of Kubernetes: {file} -> {live}"));
        }
        let gone = self.api_versions.difference(&cluster.api_versions);
        // If an API server of an extension does not respond, discovery may lack its versions.
        let is_read = |version: &&String| !cluster.is_version_not_read(version);
        lines.extend(gone.filter(is_read).map(|it| format!("- API version {it}")));
        let new = cluster.api_versions.difference(&self.api_versions);
        lines.extend(new.map(|it| format!("+ API version {it}")));
        for (kind, scope) in &self.scopes {
            match cluster.scopes.get(kind) {
                None if cluster.is_group_not_read(kind) => {}
                None => lines.push(format!("- kind {kind}")),
                Some(live) if live != scope => {
                    lines.push(format!("~ the scope of {kind}: {scope:?} -> {live:?}"));
                }
                Some(_) => {}
            }
        }
        let new = cluster.scopes.keys().filter(|it| !self.scopes.contains_key(*it));
        lines.extend(new.map(|kind| format!("+ kind {kind}")));
        for (subject, fact) in &self.references {
            match cluster.references.get(subject) {
                _ if cluster.not_read.contains(subject) => {}
                None if cluster.lacks_appliers() => {}
                None => lines.push(format!("- {subject}, which no applier names any more")),
                Some(live) => lines.extend(fact.differences(subject, live)),
            }
        }
        let new = cluster.references.keys().filter(|it| !self.references.contains_key(*it));
        lines.extend(new.map(|subject| format!("+ {subject}, which an applier names")));
        if lines.len() > MAX_DIFFERENCES {
            let more = lines.len() - MAX_DIFFERENCES;
            lines.truncate(MAX_DIFFERENCES);
            lines.push(format!("… {more} more"));
        }
        lines
    }

    /// Whether some appliers could not be read. For that reason, references may be missing.
    fn lacks_appliers(&self) -> bool {
        self.not_read.iter().any(|it| !it.contains('/'))
    }

    fn is_version_not_read(&self, version: &str) -> bool {
        let is_of = |not_read: &String| {
            version
                .strip_prefix(not_read.as_str())
                .is_some_and(|it| it.is_empty() || it.starts_with('/'))
        };
        self.not_read.iter().any(is_of)
    }

    fn is_group_not_read(&self, kind: &str) -> bool {
        let group = kind.split_once('.').map_or("", |(_, group)| group);
        self.not_read.iter().any(|it| it.split_once('/').is_some_and(|(of, _)| of == group))
    }
}

impl ReferencedObjectFact {
    /// The fact about an object that does not exist.
    pub(crate) fn absent() -> Self {
        Self { exists: false, applied_by: None, keys: BTreeSet::new(), data: None }
    }

    /// The Kustomization or HelmRelease that applied the object.
    pub(crate) fn applier(&self) -> Option<ObjectId> {
        let (kind, rest) = self.applied_by.as_deref()?.split_once('/')?;
        let (namespace, name) = rest.split_once('/')?;
        let (group, _) = LABELLING_APPLIERS.iter().find(|(_, known)| *known == kind)?;
        Some(ObjectId::new(namespace, name, group, kind))
    }

    /// The differences of this fact in the cluster. Values are not printed.
    fn differences(&self, subject: &str, live: &Self) -> Vec<String> {
        match (self.exists, live.exists) {
            (true, false) => return vec![format!("- {subject}, which does not exist any more")],
            (false, true) => return vec![format!("+ {subject}, which did not exist")],
            (true, true) | (false, false) => {}
        }
        let mut lines = Vec::new();
        if self.applied_by != live.applied_by {
            let [file, live] =
                [self, live].map(|it| it.applied_by.as_deref().unwrap_or("no applier"));
            lines.push(format!("~ what applies {subject}: {file} -> {live}"));
        }
        let gone = self.keys.difference(&live.keys);
        lines.extend(gone.map(|key| format!("- key {key} of {subject}")));
        let new = live.keys.difference(&self.keys);
        lines.extend(new.map(|key| format!("+ key {key} of {subject}")));
        if let (Some(file), Some(live)) = (&self.data, &live.data) {
            let changed = file
                .iter()
                .filter(|(key, value)| live.get(*key).is_some_and(|live| live != *value));
            lines.extend(changed.map(|(key, _)| format!("~ the value of {key} of {subject}")));
        }
        lines
    }
}

/// The ConfigMap or Secret for a key of `references`.
fn reference_id(subject: &str) -> Option<ObjectId> {
    let (kind, rest) = subject.split_once('/')?;
    let (namespace, name) = rest.split_once('/')?;
    let is_reference = matches!(kind, "ConfigMap" | "Secret");
    let is_whole = !namespace.is_empty() && !name.is_empty() && !name.contains('/');
    (is_reference && is_whole).then(|| ObjectId::new(namespace, name, "", kind))
}

/// A reference from an applier to an object.
pub(crate) struct ReferenceFromApplier {
    /// The object.
    pub(crate) id: ObjectId,
    /// The field that contains the reference.
    pub(crate) field: &'static str,
    /// Whether the object may be missing.
    pub(crate) is_optional: bool,
}

/// The ConfigMaps and Secrets that an applier with this spec names.
pub(crate) fn references_of(spec: &Value, namespace: &str) -> Vec<ReferenceFromApplier> {
    let fields = [
        ("spec.postBuild.substituteFrom", &spec["postBuild"]["substituteFrom"]),
        ("spec.valuesFrom", &spec["valuesFrom"]),
        // A field of Helmfiles.
        ("spec.envFrom", &spec["envFrom"]),
    ];
    let mut found = Vec::new();
    for (field, references) in fields {
        for reference in references.as_array().into_iter().flatten() {
            let text = |key: &str| reference[key].as_str().unwrap_or_default();
            let id = ObjectId::new(namespace, text("name"), "", text("kind"));
            let is_optional = reference["optional"] == Value::Bool(true);
            if reference_id(&id.subject()).is_some() {
                found.push(ReferenceFromApplier { id, field, is_optional });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(keys: &[&str], data: Option<&[(&str, &str)]>) -> ReferencedObjectFact {
        let owned = |text: &str| text.to_owned();
        let data =
            data.map(|data| data.iter().map(|(key, value)| (owned(key), owned(value))).collect());
        let keys = keys.iter().map(|key| owned(key)).collect();
        ReferencedObjectFact { exists: true, applied_by: None, keys, data }
    }

    fn sample() -> ClusterFacts {
        ClusterFacts {
            kubernetes_version: "v1.35.0".to_owned(),
            api_versions: ["v1", "acme.io/v1", "old.io/v1"].map(str::to_owned).into(),
            scopes: [("Widget.acme.io".to_owned(), KindScope::Cluster)].into(),
            references: [
                ("ConfigMap/shop/vars".to_owned(), reference(&["zone"], Some(&[("zone", "eu")]))),
                ("ConfigMap/shop/gone".to_owned(), ReferencedObjectFact::absent()),
                ("Secret/shop/db".to_owned(), reference(&["password"], None)),
            ]
            .into(),
            not_read: BTreeSet::new(),
        }
    }

    #[test]
    fn what_is_written_is_read_again_and_is_sorted() {
        let text = sample().text(&RelPath::parse("clusters/prod").unwrap()).unwrap();
        assert_eq!(ClusterFacts::parse(text.as_bytes()).unwrap(), sample());
        expect_test::expect![[r#"
            # What only the cluster knows, for `windlass plan`. Written by `windlass plan facts`, which compares it with --check.
            apiVersion: plan.windlass.dev/v1alpha1
            apiVersions:
            - acme.io/v1
            - old.io/v1
            - v1
            kind: ClusterFacts
            kubernetesVersion: v1.35.0
            metadata:
              annotations:
                config.kubernetes.io/local-config: "true"
              name: clusters-prod
            references:
              ConfigMap/shop/gone:
                exists: false
              ConfigMap/shop/vars:
                data:
                  zone: eu
                exists: true
                keys:
                - zone
              Secret/shop/db:
                exists: true
                keys:
                - password
            scopes:
              Widget.acme.io: Cluster
        "#]]
        .assert_eq(&text);
    }

    #[test]
    fn other_files_are_refused_and_so_are_values_of_secrets() {
        let error = |text: &str| format!("{:#}", ClusterFacts::parse(text.as_bytes()).unwrap_err());
        assert!(error("kind: ConfigMap").contains("export them with `windlass plan facts`"));
        let next = "apiVersion: plan.windlass.dev/v2\nkind: ClusterFacts\n";
        assert!(error(next).contains("plan.windlass.dev/v2"));
        let of =
            |fields: &str| error(&format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{fields}\n"));
        assert!(of("kubeVersion: v1.35.0").contains("unknown field"));
        assert!(of("kubernetesVersion: latest").contains("kubernetesVersion `latest`"));
        assert!(of("references: {Pod/a/b: {exists: true}}").contains("no ConfigMap or Secret"));
        let secret = "references: {Secret/a/b: {exists: true, keys: [x], data: {x: hunter2}}}";
        let refused = of(secret);
        assert!(
            refused.contains("no value of a Secret") && !refused.contains("hunter2"),
            "{refused}"
        );
    }

    #[test]
    fn what_differs_in_the_cluster_is_named_without_values() {
        let mut live = sample();
        live.kubernetes_version = "v1.36.0".to_owned();
        live.api_versions.remove("old.io/v1");
        live.scopes.insert("Widget.acme.io".to_owned(), KindScope::Namespaced);
        live.references.insert("ConfigMap/shop/gone".to_owned(), reference(&[], None));
        live.references.insert(
            "ConfigMap/shop/vars".to_owned(),
            reference(&["zone"], Some(&[("zone", "us")])),
        );
        live.references.remove("Secret/shop/db");
        assert_eq!(
            sample().differences(&live),
            [
                "~ the version of Kubernetes: v1.35.0 -> v1.36.0",
                "- API version old.io/v1",
                "~ the scope of Widget.acme.io: Cluster -> Namespaced",
                "+ ConfigMap/shop/gone, which did not exist",
                "~ the value of zone of ConfigMap/shop/vars",
                "- Secret/shop/db, which no applier names any more",
            ]
        );
        assert!(sample().differences(&sample()).is_empty());
    }

    #[test]
    fn what_the_cluster_does_not_let_read_does_not_differ() {
        let mut live = sample();
        live.references.remove("Secret/shop/db");
        live.not_read.insert("Secret/shop/db".to_owned());
        assert!(sample().differences(&live).is_empty());
        live.not_read = BTreeSet::from(["HelmRelease".to_owned()]);
        assert!(
            sample().differences(&live).is_empty(),
            "an applier may name it that was not listed"
        );
        let mut stale = sample();
        stale.api_versions.remove("old.io/v1");
        stale.not_read.insert("old.io/v1".to_owned());
        assert!(sample().differences(&stale).is_empty());
    }
}
