//! Reads the appliers in a cluster below an entry point, as far as the user may read them, and the objects that each has
//! applied.
//!
//! The search starts with the appliers that the repository declares, and follows their inventories. It reads single objects, so
//! the user needs no right to list.
//! An applier that cannot be read fails as a side of the comparison, so none of its objects count as added or removed.
//! Elsewhere: predicting the objects (`live_comparison.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apply::ObjectInventory;
use apply::deletion_budget::is_applier_kind;
use crds::helm::HelmRelease;
use crds::kustomize::Kustomization;
use futures::stream::{self, StreamExt as _};
use helm_controller::helm_release::validated_spec::read_without_chart;
use helm_controller::release_runner::manifest_objects::ManifestObject;
use helm_controller::release_runner::storage::ReleaseStorage;
use helmfile_controller::helmfile::plan::ReleaseKey;
use helmfile_controller::helmfile::suspended_releases::ReleaseSuspensions;
use objects::{Object, ObjectId};
use plan::{RenderedApplier, UnknownValue};
use release::ReleaseRecord;
use release::release_target::ReleaseTarget;
use serde_json::Value;
use tree::RelPath;
use windlass_runtime::approval_plan::DELETION_BUDGET;

use super::applier_discovery::{
    ApplierKind, DeclaredApplier, MAX_APPLIERS, builds, release_applier, typed,
};
use super::cluster_facts_file::references_of;
use super::cluster_facts_reading::MAX_CONCURRENT_REQUESTS;
use super::helmfile_plan_without_cluster::DeclaredHelmfile;
use super::helmfile_releases::release_id;
use super::kustomization_build::kustomization_applier;
use super::object_prediction::helm_release::LiveReleaseObjects;
use windlass_cluster::{ClusterConnection, ClusterError};
use windlass_serve::settings::OperatorSettings;

/// An applier in the cluster.
pub(crate) struct LiveApplier {
    /// The known facts about the applier, without its objects.
    pub(crate) rendered: RenderedApplier,
    /// The inventory of objects that the applier has applied to this cluster.
    pub(crate) entries: ObjectInventory,
    /// The owner of the objects in the inventory.
    pub(crate) owner: LiveInventoryOwner,
    /// The applier's own deletion budget.
    pub(crate) deletion_budget: Option<String>,
    /// The Secrets that the applier names. Its objects may contain their values.
    pub(crate) secrets: Vec<ObjectId>,
}

/// The owner of the objects in an inventory.
pub(crate) enum LiveInventoryOwner {
    /// A Kustomization owns the objects.
    Kustomization(Box<Kustomization>),
    /// A Helm release owns the objects.
    Release(Box<LiveRelease>),
    /// There are no such objects. The applier is a Helmfile, whose releases are separate appliers, or it cannot be read.
    Nothing,
}

/// A Helm release in the cluster.
pub(crate) struct LiveRelease {
    pub(crate) name: String,
    pub(crate) namespace: String,
    /// The record of its current revision. `None` if there is no revision, or if the user may not read it.
    pub(crate) record: Option<Arc<ReleaseRecord>>,
    /// The objects in the manifest of the current revision.
    pub(crate) members: BTreeMap<ObjectId, ManifestObject>,
}

/// The appliers that were found.
#[derive(Default)]
pub(crate) struct ClusterAppliers {
    pub(crate) appliers: BTreeMap<ObjectId, LiveApplier>,
    /// Why there may be further appliers.
    pub(crate) incomplete: Option<String>,
}

impl ClusterAppliers {
    /// The releases that are installed.
    pub(crate) fn installed_releases(&self) -> BTreeSet<ObjectId> {
        let installed = self.appliers.iter().filter(|(_, it)| it.is_installed());
        installed.map(|(id, _)| id.clone()).collect()
    }

    /// The Secrets that the appliers name.
    pub(crate) fn secrets(&self) -> BTreeSet<ObjectId> {
        self.appliers.values().flat_map(|it| it.secrets.iter().cloned()).collect()
    }
}

/// A release in the status of a Helmfile.
pub(crate) struct HelmfileStatusRow {
    pub(crate) key: ReleaseKey,
    /// The helmfile that contains the release.
    pub(crate) file: String,
    /// The status of the release, in the format of a HelmRelease's status.
    status: Value,
}

/// The releases in the status of a Helmfile of either kind.
pub(crate) fn helmfile_rows(helmfile: &Object) -> Vec<HelmfileStatusRow> {
    let releases = helmfile.get("status").map(|status| &status["releases"]);
    let rows = releases.and_then(Value::as_array).into_iter().flatten();
    let text = |row: &Value, field: &str| row[field].as_str().unwrap_or_default().to_owned();
    let row = |row: &Value| HelmfileStatusRow {
        key: ReleaseKey {
            context: text(row, "kubeContext"),
            namespace: text(row, "namespace"),
            name: text(row, "name"),
        },
        file: text(row, "helmfile"),
        status: row["status"].clone(),
    };
    rows.map(row).collect()
}

impl LiveApplier {
    fn of(rendered: RenderedApplier, entries: ObjectInventory, owner: LiveInventoryOwner) -> Self {
        Self { rendered, entries, owner, deletion_budget: None, secrets: Vec::new() }
    }

    fn failed(failure: String) -> Self {
        let rendered = RenderedApplier { failure: Some(failure), ..RenderedApplier::default() };
        Self::of(rendered, ObjectInventory::default(), LiveInventoryOwner::Nothing)
    }

    /// Whether the release is installed, so the next operation is an upgrade.
    pub(crate) fn is_installed(&self) -> bool {
        let LiveInventoryOwner::Release(release) = &self.owner else { return false };
        release.record.is_some() || !self.entries.is_empty()
    }

    /// Whether the search follows the appliers among its objects. It treats them like those of a repository.
    fn is_followed(&self) -> bool {
        let RenderedApplier { failure, target_cluster, is_part_of_parent, .. } = &self.rendered;
        failure.is_none() && target_cluster.is_empty() && !is_part_of_parent
    }
}

/// Reads the appliers of a cluster.
pub(crate) struct ApplierReader<'c> {
    pub(crate) cluster: &'c ClusterConnection,
    pub(crate) settings: &'c OperatorSettings,
    /// The generated Kustomization for a folder. An existing Kustomization with this name counts only if it applies the same
    /// folder.
    pub(crate) made_entry: Option<(ObjectId, RelPath)>,
}

impl ApplierReader<'_> {
    /// Reads the declared appliers, each in an API version, and all appliers that they have applied.
    ///
    /// # Errors
    /// The API server does not respond.
    pub(crate) async fn read(
        &self,
        declared: BTreeMap<ObjectId, String>,
    ) -> anyhow::Result<ClusterAppliers> {
        let mut found = ClusterAppliers::default();
        let mut parents: BTreeMap<ObjectId, ObjectId> = BTreeMap::new();
        let mut seen: BTreeSet<ObjectId> = declared.keys().cloned().collect();
        let mut wave: Vec<(ObjectId, String)> = declared.into_iter().collect();
        while !wave.is_empty() {
            let asked: Vec<_> =
                wave.iter().map(|(id, version)| self.read_one(id, version)).collect();
            let answers: Vec<_> =
                stream::iter(asked).buffered(MAX_CONCURRENT_REQUESTS).collect().await;
            let mut next = Vec::new();
            for answer in answers {
                for (id, applier) in answer? {
                    for child in children(&id, &applier) {
                        parents.entry(child.clone()).or_insert_with(|| id.clone());
                        if seen.contains(child) {
                            continue;
                        }
                        if seen.len() >= MAX_APPLIERS {
                            let text = format!("the cluster has more than {MAX_APPLIERS} appliers");
                            found.incomplete = Some(text);
                            continue;
                        }
                        seen.insert(child.clone());
                        let version = applier.entries.version(child).unwrap_or_default();
                        next.push((child.clone(), version.to_owned()));
                    }
                    found.appliers.insert(id, applier);
                }
            }
            wave = next;
        }
        for (id, applier) in &mut found.appliers {
            if applier.rendered.parent.is_none() {
                applier.rendered.parent = parents.get(id).cloned();
            }
        }
        Ok(found)
    }

    /// Reads an applier. If it is a Helmfile, its releases are included. Returns nothing if it does not exist.
    async fn read_one(
        &self,
        id: &ObjectId,
        version: &str,
    ) -> anyhow::Result<Vec<(ObjectId, LiveApplier)>> {
        let object = match self.cluster.get_by_id(id, version).await {
            Ok(Some(object)) => object,
            Ok(None) => return Ok(Vec::new()),
            Err(error @ ClusterError::NoAnswer(_)) => return Err(error.into()),
            Err(error) => {
                let failure = format!("it cannot be read in the cluster: {error}");
                return Ok(vec![(id.clone(), LiveApplier::failed(failure))]);
            }
        };
        let is_another = self
            .made_entry
            .as_ref()
            .is_some_and(|(made, folder)| made == id && !builds(&object, folder));
        if is_another {
            return Ok(Vec::new());
        }
        let mut appliers = match ApplierKind::of(&object) {
            Some(ApplierKind::Kustomization) => vec![(id.clone(), kustomization(&object))],
            Some(ApplierKind::HelmRelease) => vec![(id.clone(), self.helm_release(&object).await)],
            Some(ApplierKind::Helmfile) => self.helmfile(id, &object).await,
            None => Vec::new(),
        };
        let budget = object.annotation(DELETION_BUDGET);
        let secrets = named_secrets(&object);
        for (_, applier) in &mut appliers {
            applier.deletion_budget = budget.map(str::to_owned);
            applier.secrets.clone_from(&secrets);
        }
        Ok(appliers)
    }

    async fn helm_release(&self, object: &Object) -> LiveApplier {
        let release: HelmRelease = match typed(object) {
            Ok(release) => release,
            Err(text) => return LiveApplier::failed(text),
        };
        let target = read_without_chart(&release, self.settings).release.target;
        let status = object.get("status").unwrap_or(&Value::Null);
        let rendered = RenderedApplier {
            source_revision: chart_text(status),
            ..release_applier(&release, self.settings)
        };
        self.release(rendered, &target, status).await
    }

    async fn helmfile(&self, id: &ObjectId, object: &Object) -> Vec<(ObjectId, LiveApplier)> {
        let read = DeclaredHelmfile::read(object);
        let own = DeclaredApplier::helmfile(object);
        let (helmfile, own) = match (read, own) {
            (Ok(helmfile), Ok(own)) => (helmfile, own),
            (Err(text), _) | (_, Err(text)) => {
                return vec![(id.clone(), LiveApplier::failed(text))];
            }
        };
        let none = ObjectInventory::default();
        let own = LiveApplier::of(own.rendered, none, LiveInventoryOwner::Nothing);
        let mut appliers = vec![(id.clone(), own)];
        let suspensions = ReleaseSuspensions::new(&helmfile.spec, jiff::Timestamp::now());
        for HelmfileStatusRow { key, status, .. } in helmfile_rows(object) {
            let ReleaseKey { namespace, name, .. } = &key;
            let target = ReleaseTarget::of(name, namespace, name, namespace, namespace);
            let rendered = helmfile.release_applier(&key, &suspensions);
            let release = self.release(rendered, &target, &status).await;
            // The status lists a release before it is installed.
            if release.rendered.failure.is_some() || !release.entries.is_empty() {
                appliers.push((release_id(id, &key), release));
            }
        }
        appliers
    }

    /// Reads a release from its record. If the user may not read the record, the inventory in the status is used.
    async fn release(
        &self,
        mut rendered: RenderedApplier,
        target: &ReleaseTarget,
        status: &Value,
    ) -> LiveApplier {
        let mut release = LiveRelease {
            name: target.name.clone(),
            namespace: target.namespace.clone(),
            record: None,
            members: BTreeMap::new(),
        };
        let mut entries = ObjectInventory::default();
        if rendered.target_cluster.is_empty() {
            let recorded = match self.record(target).await {
                Ok(record) => self.members(record, &mut release, &mut rendered).await,
                Err(text) => entries_without_record(&text, status, &mut rendered),
            };
            match recorded {
                Ok(recorded) => entries = recorded,
                Err(text) => rendered.failure = Some(text),
            }
        }
        LiveApplier::of(rendered, entries, LiveInventoryOwner::Release(Box::new(release)))
    }

    /// The record of a release's current revision.
    async fn record(&self, target: &ReleaseTarget) -> Result<Option<Arc<ReleaseRecord>>, String> {
        let ReleaseTarget { storage_namespace, name, .. } = target;
        let storage = ReleaseStorage::new(self.cluster, storage_namespace, name, "").await;
        let storage = storage.map_err(|error| error.to_string())?;
        let revisions = storage.revisions().await.map_err(|error| error.to_string())?;
        if let Some(broken) = revisions.unreadable_last() {
            return Err(format!("release record {}: {}", broken.secret, broken.problem));
        }
        Ok(revisions.current().map(|it| it.record.clone()))
    }

    /// The objects of a revision. The error of a manifest may quote secret values, so it is not shown.
    async fn members(
        &self,
        record: Option<Arc<ReleaseRecord>>,
        release: &mut LiveRelease,
        rendered: &mut RenderedApplier,
    ) -> Result<ObjectInventory, String> {
        let recorded = LiveReleaseObjects::of(self.cluster, record.as_deref()).await;
        let LiveReleaseObjects { members, unread } =
            recorded.map_err(|_| "the manifest of its release record is invalid".to_owned())?;
        let unknown = unread.into_iter().map(|(id, error)| UnknownValue {
            what: id.subject(),
            reason: format!("the release record has it, and it cannot be read: {error}"),
        });
        rendered.unread_objects.extend(unknown);
        let entries = members.values().map(|it| (it.id.clone(), it.object.gvk().version));
        let entries: ObjectInventory = entries.collect();
        release.record = record;
        release.members = members;
        Ok(entries)
    }
}

/// The Secrets in the spec of an applier.
fn named_secrets(object: &Object) -> Vec<ObjectId> {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    let named = references_of(spec, object.namespace()).into_iter().map(|it| it.id);
    named.filter(|id| id.kind == "Secret").collect()
}

/// The appliers among the objects that an applier has applied.
fn children<'a>(id: &'a ObjectId, applier: &'a LiveApplier) -> impl Iterator<Item = &'a ObjectId> {
    let entries = applier.entries.ids().filter(move |_| applier.is_followed());
    entries.filter(move |child| is_applier_kind(child) && *child != id)
}

fn kustomization(object: &Object) -> LiveApplier {
    let own: Kustomization = match typed(object) {
        Ok(own) => own,
        Err(text) => return LiveApplier::failed(text),
    };
    let status = object.get("status").unwrap_or(&Value::Null);
    let revision = status["lastAppliedRevision"].as_str().unwrap_or_default();
    let mut rendered = kustomization_applier(&own, revision);
    let mut entries = ObjectInventory::default();
    if rendered.target_cluster.is_empty() {
        match recorded_entries(status) {
            Ok(recorded) => entries = recorded,
            Err(text) => rendered.failure = Some(text),
        }
    }
    LiveApplier::of(rendered, entries, LiveInventoryOwner::Kustomization(Box::new(own)))
}

/// The inventory in a status.
fn recorded_entries(status: &Value) -> Result<ObjectInventory, String> {
    let entries = status["inventory"]["entries"].as_array().into_iter().flatten();
    let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    let entries: Vec<(String, String)> =
        entries.map(|entry| (text(entry, "id"), text(entry, "v"))).collect();
    let (recorded, unreadable) = ObjectInventory::from_entries(&entries);
    match unreadable.is_empty() {
        true => Ok(recorded),
        false => Err(format!(
            "status.inventory has invalid entries: {}; correct or remove them",
            unreadable.join(", ")
        )),
    }
}

/// The inventory of a release whose record the user may not read.
fn entries_without_record(
    text: &str,
    status: &Value,
    rendered: &mut RenderedApplier,
) -> Result<ObjectInventory, String> {
    if status["inventory"].is_null() {
        return Err(format!(
            "its release record cannot be read, and its status has no inventory: {text}"
        ));
    }
    rendered.unread_objects.push(UnknownValue {
        what: "the release record".to_owned(),
        reason: format!("it cannot be read, so status.inventory counts: {text}"),
    });
    recorded_entries(status)
}

/// The name and version of the chart in the last release of a HelmRelease.
fn chart_text(status: &Value) -> String {
    let last = &status["history"][0];
    match (last["chartName"].as_str(), last["chartVersion"].as_str()) {
        (Some(name), Some(version)) => format!("{name}@{version}"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ids(inventory: &ObjectInventory) -> Vec<String> {
        inventory.ids().map(ObjectId::subject).collect()
    }

    fn inventory(ids: &[&str]) -> Value {
        let entries: Vec<Value> = ids.iter().map(|id| json!({"id": id, "v": "v1"})).collect();
        json!({"inventory": {"entries": entries}, "lastAppliedRevision": "main@sha1:1"})
    }

    fn object(spec: &Value, status: &Value) -> Object {
        let mut spec = spec.clone();
        spec["interval"] = "10m".into();
        spec["sourceRef"] = json!({"kind": "GitRepository", "name": "flux-system"});
        Object::new(json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": "apps", "namespace": "flux-system"}, "spec": spec,
            "status": status}))
        .unwrap()
    }

    const CHILD_ENTRY: &str = "flux-system_child_kustomize.toolkit.fluxcd.io_Kustomization";

    #[test]
    fn the_appliers_in_an_inventory_are_followed_but_not_itself_and_not_in_another_cluster() {
        let own = "flux-system_apps_kustomize.toolkit.fluxcd.io_Kustomization";
        let status = inventory(&["shop_web__ConfigMap", CHILD_ENTRY, own]);
        let applier = kustomization(&object(&json!({"prune": true}), &status));
        let id =
            ObjectId::new("flux-system", "apps", "kustomize.toolkit.fluxcd.io", "Kustomization");
        let followed: Vec<String> = children(&id, &applier).map(ObjectId::subject).collect();
        assert_eq!(followed, ["Kustomization/flux-system/child"]);
        assert_eq!(applier.rendered.source_revision, "main@sha1:1");
        assert_eq!(applier.entries.len(), 3);
        let spec = json!({"prune": true, "kubeConfig": {"secretRef": {"name": "west"}}});
        let elsewhere = kustomization(&object(&spec, &status));
        assert!(elsewhere.entries.is_empty() && !elsewhere.rendered.target_cluster.is_empty());
        assert_eq!(children(&id, &elsewhere).count(), 0);
    }

    #[test]
    fn the_secrets_are_named_whose_values_may_be_in_objects() {
        let sources = json!([{"kind": "Secret", "name": "db"}, {"kind": "ConfigMap", "name": "a"}]);
        let spec = json!({"prune": true, "postBuild": {"substituteFrom": sources}});
        let named: Vec<String> =
            named_secrets(&object(&spec, &json!({}))).iter().map(ObjectId::subject).collect();
        assert_eq!(named, ["Secret/flux-system/db"]);
    }

    #[test]
    fn a_release_is_installed_once_it_has_a_revision_or_an_inventory() {
        let release = |entries: ObjectInventory| {
            let release = LiveRelease {
                name: "web".to_owned(),
                namespace: "shop".to_owned(),
                record: None,
                members: BTreeMap::new(),
            };
            let owner = LiveInventoryOwner::Release(Box::new(release));
            LiveApplier::of(RenderedApplier::default(), entries, owner)
        };
        let entries = recorded_entries(&inventory(&["shop_web__ConfigMap"])).unwrap();
        assert!(release(entries).is_installed());
        assert!(!release(ObjectInventory::default()).is_installed());
    }

    #[test]
    fn an_inventory_that_cannot_be_read_is_a_failure_and_not_empty() {
        let applier = kustomization(&object(&json!({"prune": true}), &inventory(&["nonsense"])));
        assert!(applier.rendered.failure.unwrap().contains("invalid entries: nonsense"));
    }

    #[test]
    fn a_release_without_a_readable_record_has_its_inventory_or_is_not_compared() {
        let mut rendered = RenderedApplier::default();
        let status = inventory(&["shop_web__ConfigMap"]);
        let entries = entries_without_record("forbidden", &status, &mut rendered).unwrap();
        assert_eq!(ids(&entries), ["ConfigMap/shop/web"]);
        assert_eq!(rendered.unread_objects[0].what, "the release record");
        let none = entries_without_record("forbidden", &json!({}), &mut rendered).unwrap_err();
        assert!(none.contains("forbidden"), "{none}");
    }

    #[test]
    fn the_releases_of_a_helmfile_are_in_its_status() {
        let row = json!({"name": "web", "namespace": "shop", "kubeContext": "east",
            "helmfile": "helmfile.yaml", "status": {"inventory": {"entries": []}}});
        let helmfile = Object::new(json!({"apiVersion": "helmfile.windlass.dev/v1alpha1",
            "kind": "Helmfile", "metadata": {"name": "all", "namespace": "apps"},
            "status": {"releases": [row]}}));
        let rows = helmfile_rows(&helmfile.unwrap());
        let shown: Vec<String> = rows.iter().map(|it| format!("{} {}", it.key, it.file)).collect();
        assert_eq!(shown, ["east/shop/web helmfile.yaml"]);
    }
}
