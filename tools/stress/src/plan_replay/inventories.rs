//! The objects of appliers in the cluster, and their changes from one commit to the next.
//!
//! This module reads inventories and objects, and compares them. `verdict` compares the changes with the plan.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use e2e::harness::flux_objects::{condition, inventory};
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::ApiResource;
use kube::discovery::Discovery;
use objects::ObjectId;
use serde_json::{Value, json};

use crate::inventory_ownership::{helm_releases, kustomizations, served_kind};

/// How many objects a page of a list has.
const LIST_PAGE_OBJECTS: u32 = 500;

/// How many changed fields of an object are printed.
const MAX_SHOWN_FIELDS: usize = 5;

/// An applier as the cluster has it.
#[derive(Debug, Clone)]
pub(super) struct ApplierInCluster {
    /// The ids in the inventory of the applier.
    pub(super) entries: BTreeSet<ObjectId>,
    /// The status of the condition `Ready`: `True`, `False`, `Unknown`, or empty.
    pub(super) ready: String,
    /// The reason of the condition `Ready`.
    pub(super) reason: String,
    /// The message of the condition `Ready`.
    pub(super) message: String,
    /// The revision that the applier applied last.
    pub(super) applied: String,
    /// The revision that was attempted.
    pub(super) attempted: String,
    /// Whether the status is about the present spec.
    pub(super) is_current: bool,
    /// Whether the applier is suspended.
    pub(super) is_suspended: bool,
    /// Whether the applier is being deleted.
    pub(super) is_terminating: bool,
    /// The resource version.
    pub(super) version: String,
    /// The spec of the applier.
    pub(super) spec: Value,
    /// Whether the status names a commit. A HelmRelease names the version of a chart, and a Kustomization of an
    /// ExternalArtifact the digest of its files.
    pub(super) names_commit: bool,
}

impl ApplierInCluster {
    fn of(object: &DynamicObject) -> anyhow::Result<Self> {
        let ready = condition(object, "Ready");
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let status = &object.data["status"];
        let entries: Result<BTreeSet<ObjectId>, _> =
            inventory(object).into_iter().map(str::parse).collect();
        Ok(Self {
            entries: entries.context("an inventory has an id that cannot be read")?,
            ready: word(&ready["status"]),
            reason: word(&ready["reason"]),
            message: word(&ready["message"]),
            applied: word(&status["lastAppliedRevision"]),
            attempted: word(&status["lastAttemptedRevision"]),
            is_current: ready["observedGeneration"].as_i64() == object.metadata.generation,
            is_suspended: object.data["spec"]["suspend"] == true,
            is_terminating: object.metadata.deletion_timestamp.is_some(),
            version: object.metadata.resource_version.clone().unwrap_or_default(),
            spec: object.data["spec"].clone(),
            names_commit: object.data["spec"]["sourceRef"]["kind"] == "GitRepository",
        })
    }

    /// Whether the applier is Ready with a revision. A suspended one counts as well, because it applies nothing.
    pub(super) fn has_applied(&self, revision: &str) -> bool {
        let is_applied = !self.names_commit || self.applied == revision;
        self.is_suspended || (self.ready == "True" && self.is_current && is_applied)
    }

    /// An applier with a condition `Ready` and an empty inventory.
    #[cfg(test)]
    pub(super) fn for_tests(ready: &str, reason: &str, applied: &str) -> Self {
        Self {
            entries: BTreeSet::new(),
            ready: ready.to_owned(),
            reason: reason.to_owned(),
            message: String::new(),
            applied: applied.to_owned(),
            attempted: applied.to_owned(),
            is_current: true,
            is_suspended: false,
            is_terminating: false,
            version: String::new(),
            spec: Value::Null,
            names_commit: true,
        }
    }
}

/// An object as the cluster has it.
#[derive(Debug, Clone)]
struct LiveObject {
    uid: String,
    is_terminating: bool,
    /// The object without its status.
    content: Value,
    /// For each client, what it wrote last and when.
    writes: Value,
}

impl LiveObject {
    fn of(object: DynamicObject) -> Self {
        let mut content = object.data;
        if let Some(fields) = content.as_object_mut() {
            fields.remove("status");
        }
        let metadata = object.metadata;
        // Controllers of Kubernetes write to objects, too. No plan predicts their writes.
        let is_of_applier = |it: &Value| {
            let manager = it["manager"].as_str().unwrap_or_default();
            !manager.starts_with("kube-") && it["subresource"].is_null()
        };
        let writes = serde_json::to_value(metadata.managed_fields).unwrap_or_default();
        let writes = writes.as_array().into_iter().flatten().filter(|it| is_of_applier(it));
        Self {
            uid: metadata.uid.unwrap_or_default(),
            is_terminating: metadata.deletion_timestamp.is_some(),
            writes: writes.cloned().collect(),
            content: json!({
                "labels": metadata.labels,
                "annotations": metadata.annotations,
                "manifest": content,
            }),
        }
    }

    /// Whether an applier changed this object.
    fn differs_from(&self, before: &Self) -> bool {
        self.uid != before.uid || (self.content != before.content && self.writes != before.writes)
    }
}

/// All appliers and their objects at one time.
#[derive(Debug, Default)]
pub(super) struct ClusterInventories {
    /// The Kustomizations and HelmReleases of the cluster.
    pub(super) appliers: BTreeMap<ObjectId, ApplierInCluster>,
    /// The objects that inventories name, and further ones that the caller named.
    objects: BTreeMap<ObjectId, LiveObject>,
}

impl ClusterInventories {
    /// Reads the Kustomizations and HelmReleases of the cluster, and the objects in their inventories. The objects in `further`
    /// are read even if no inventory has them.
    pub(super) async fn read(
        client: &Client,
        further: &BTreeSet<ObjectId>,
    ) -> anyhow::Result<Self> {
        let appliers = appliers(client).await?;
        let mut ids = further.clone();
        ids.extend(appliers.values().flat_map(|it| it.entries.iter().cloned()));
        let discovery = Discovery::new(client.clone()).run_aggregated().await;
        let discovery = discovery.context("the API server does not list its kinds")?;
        let mut by_kind = BTreeMap::<(String, String), BTreeSet<ObjectId>>::new();
        for id in ids {
            by_kind.entry((id.group.clone(), id.kind.clone())).or_default().insert(id);
        }
        let mut objects = BTreeMap::new();
        for ((group, kind), ids) in by_kind {
            let Some(resource) = served_kind(&discovery, &group, &kind) else { continue };
            for object in all_objects(client, &resource).await? {
                let id = id_of(&object, &resource);
                if ids.contains(&id) {
                    objects.insert(id, LiveObject::of(object));
                }
            }
        }
        Ok(Self { appliers, objects })
    }

    /// All ids in the inventories.
    pub(super) fn all_entries(&self) -> BTreeSet<ObjectId> {
        self.appliers.values().flat_map(|it| it.entries.iter().cloned()).collect()
    }

    /// For each applier, the changes of its objects until a later time.
    pub(super) fn changes_until(&self, after: &Self) -> BTreeMap<ObjectId, InventoryChanges> {
        let had = self.all_entries();
        let has = after.all_entries();
        let names: BTreeSet<&ObjectId> =
            self.appliers.keys().chain(after.appliers.keys()).collect();
        let mut all = BTreeMap::new();
        for name in names {
            let entries = |side: &Self| side.appliers.get(name).map(|it| it.entries.clone());
            let before = entries(self).unwrap_or_default();
            let now = entries(after).unwrap_or_default();
            let mut changes = InventoryChanges::default();
            for id in now.difference(&before) {
                let list = if had.contains(id) { &mut changes.moved } else { &mut changes.added };
                list.insert(id.clone());
            }
            for id in before.intersection(&now) {
                let sides = self.objects.get(id).zip(after.objects.get(id));
                if let Some((old, new)) = sides.filter(|(old, new)| new.differs_from(old)) {
                    let mut fields = Vec::new();
                    differing_fields(&old.content, &new.content, String::new(), &mut fields);
                    changes.changed.insert(id.clone(), fields);
                }
            }
            for id in before.difference(&now).filter(|id| !has.contains(*id)) {
                let stays = after.objects.get(id).is_some_and(|it| !it.is_terminating);
                let list = if stays { &mut changes.left } else { &mut changes.deleted };
                list.insert(id.clone());
            }
            all.insert(name.clone(), changes);
        }
        all
    }
}

/// The changes of the objects of one applier.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct InventoryChanges {
    /// Objects that no applier had before.
    pub(super) added: BTreeSet<ObjectId>,
    /// Objects that changed, each with the fields that differ.
    pub(super) changed: BTreeMap<ObjectId, Vec<String>>,
    /// Objects that no applier has any more, and that were deleted.
    pub(super) deleted: BTreeSet<ObjectId>,
    /// Objects that no applier has any more, and that still exist.
    pub(super) left: BTreeSet<ObjectId>,
    /// Objects that another applier had before.
    pub(super) moved: BTreeSet<ObjectId>,
}

/// Reads all appliers of the cluster.
///
/// # Errors
/// The API server does not list the appliers, or an inventory cannot be read.
pub(super) async fn appliers(
    client: &Client,
) -> anyhow::Result<BTreeMap<ObjectId, ApplierInCluster>> {
    let mut found = BTreeMap::new();
    for kind in [kustomizations(), helm_releases()] {
        for object in all_objects(client, &kind).await? {
            let id = id_of(&object, &kind);
            let applier = ApplierInCluster::of(&object).with_context(|| id.subject())?;
            found.insert(id, applier);
        }
    }
    Ok(found)
}

/// Lists all objects of a kind.
///
/// # Errors
/// The API server does not list the objects.
pub(super) async fn all_objects(
    client: &Client,
    resource: &ApiResource,
) -> anyhow::Result<Vec<DynamicObject>> {
    let api = Api::<DynamicObject>::all_with(client.clone(), resource);
    let mut params = ListParams::default().limit(LIST_PAGE_OBJECTS);
    let mut objects = Vec::new();
    loop {
        let page = match api.list(&params).await {
            // The API server may no longer serve a kind, because a commit removed it after the discovery.
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(objects),
            page => page.with_context(|| format!("cannot list {}", resource.kind))?,
        };
        objects.extend(page.items);
        match page.metadata.continue_.filter(|it| !it.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(objects),
        }
    }
}

fn id_of(object: &DynamicObject, resource: &ApiResource) -> ObjectId {
    let word = |text: &Option<String>| text.clone().unwrap_or_default();
    let meta = &object.metadata;
    ObjectId::new(&word(&meta.namespace), &word(&meta.name), &resource.group, &resource.kind)
}

/// The paths of the fields in which two values differ. Values are left out, because they may be those of Secrets.
fn differing_fields(one: &Value, other: &Value, path: String, fields: &mut Vec<String>) {
    if one == other || fields.len() >= MAX_SHOWN_FIELDS {
        return;
    }
    let (Value::Object(before), Value::Object(after)) = (one, other) else {
        fields.push(path);
        return;
    };
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for name in names {
        differing_fields(&one[name], &other[name], format!("{path}/{name}"), fields);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> ObjectId {
        ObjectId::new("apps", name, "", "ConfigMap")
    }

    fn applier(entries: &[&str]) -> ApplierInCluster {
        let entries: Vec<Value> =
            entries.iter().map(|it| json!({"id": id(it).to_string()})).collect();
        let object =
            json!({"metadata": {"name": "a"}, "status": {"inventory": {"entries": entries}}});
        ApplierInCluster::of(&serde_json::from_value(object).unwrap()).unwrap()
    }

    fn object(value: &str, manager: &str, time: &str) -> LiveObject {
        let object = json!({
            "metadata": {"name": "a", "uid": "1", "managedFields": [{"manager": manager, "time": time}]},
            "data": {"a": value}, "status": {"seen": time},
        });
        LiveObject::of(serde_json::from_value(object).unwrap())
    }

    fn inventories(
        appliers: &[(&str, &[&str])],
        objects: &[(&str, LiveObject)],
    ) -> ClusterInventories {
        ClusterInventories {
            appliers: appliers.iter().map(|(name, it)| (id(name), applier(it))).collect(),
            objects: objects.iter().map(|(name, it)| (id(name), it.clone())).collect(),
        }
    }

    #[test]
    fn objects_are_added_changed_deleted_left_and_moved() {
        let time = "2026-01-01T00:00:00Z";
        let old = object("1", "kustomize-controller", time);
        let new = object("2", "kustomize-controller", "2026-01-01T00:00:09Z");
        let before = inventories(
            &[("one", &["same", "changed", "gone", "left", "moved"]), ("two", &[])],
            &["same", "changed", "gone", "left", "moved"].map(|name| (name, old.clone())),
        );
        let after = inventories(
            &[("one", &["same", "changed", "new"]), ("two", &["moved"])],
            &[
                ("same", old.clone()),
                ("changed", new),
                ("left", old.clone()),
                ("moved", old.clone()),
            ],
        );
        let changes = before.changes_until(&after);
        let expected = InventoryChanges {
            added: [id("new")].into(),
            changed: [(id("changed"), vec!["/manifest/data/a".to_owned()])].into(),
            deleted: [id("gone")].into(),
            left: [id("left")].into(),
            moved: BTreeSet::new(),
        };
        assert_eq!(changes[&id("one")], expected);
        let moved = InventoryChanges { moved: [id("moved")].into(), ..InventoryChanges::default() };
        assert_eq!(changes[&id("two")], moved);
        let nothing = before.changes_until(&before);
        assert!(nothing.values().all(|it| *it == InventoryChanges::default()));
    }

    #[test]
    fn what_a_controller_of_kubernetes_writes_is_no_change_of_an_applier() {
        let time = "2026-01-01T00:00:00Z";
        let old = object("1", "kube-controller-manager", time);
        assert!(!object("2", "kube-controller-manager", "2026-01-01T00:00:09Z").differs_from(&old));
        assert!(object("2", "windlass", time).differs_from(&old));
    }
}
