//! The tree of an object: its source, the objects that it applied, down to Pods, and the health of each. For a Freeze, the tree
//! contains the objects that the Freeze holds.
//!
//! Elsewhere: finding the Pods of a workload (`owned_pods.rs`), references between objects (engine `cause`).

use std::collections::BTreeMap;

use apply::health;
use cause::object_owners::{ExpectedOwnerMetadata, OtherOwner};
use cause::{object_references, pod};
use crds::windlass_release::ChangeSet;
use futures::stream::{self, StreamExt as _};
use objects::{Gvk, Object, ObjectId};
use serde::Serialize;

use super::cause_facts::{self, AT_ONCE};
use super::change_sets::verdict;
use super::command_scope::CommandScope;
use super::failed_change_hints;
use super::frozen_objects::{FrozenObjects, is_freeze};
use super::kind_argument::ResourceArgument;
use super::object_row::{ObjectRow, short};
use super::owned_pods;
use windlass_cluster::ClusterError;

/// The maximum number of objects in a tree.
const MAX_TREE_OBJECTS: usize = 5000;

/// The maximum depth of a tree.
const MAX_TREE_DEPTH: usize = 16;

/// An object and the objects below it.
#[derive(Debug, Serialize)]
pub struct ObjectTreeBranch {
    /// The identity of the object. `None` if the branch stands for several objects.
    #[serde(skip)]
    pub id: Option<ObjectId>,
    /// The object as `Kind/namespace/name`, or a text for several objects.
    pub object: String,
    /// A word such as `Ready` or `Suspended` for kinds of windlass and Flux. For other kinds, the health that kstatus defines.
    pub health: String,
    /// The revision that the object has or applied.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub revision: String,
    /// The reason of the health, unless all is well.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The objects that this object applied or owns.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub below: Vec<Self>,
}

impl ObjectTreeBranch {
    /// Adds a text to the message.
    fn add(&mut self, text: &str) {
        self.message = match self.message.as_str() {
            "" => text.to_owned(),
            message => format!("{text}; {message}"),
        };
    }
}

/// Reads the tree of an object. Its source is above it, and a generated HelmChart is below its HelmRelease.
/// Below a source is the newest change that it brought. Below a Freeze are the objects that it holds, without their own trees.
/// `is_compact` leaves out objects that neither windlass nor Flux reconciles.
///
/// # Errors
/// The API server did not respond.
pub async fn read(
    site: &CommandScope,
    object: Object,
    is_compact: bool,
) -> anyhow::Result<ObjectTreeBranch> {
    if is_freeze(&object.gvk()) {
        return frozen(site, object).await;
    }
    let mut reader = ObjectTreeReader { site, is_compact, left: MAX_TREE_OBJECTS, way: Vec::new() };
    let made = object_references::made_chart(&object);
    let change = newest_change(site, &object).await;
    let source = object_references::sources(&object).into_iter().next();
    let mut top = Box::pin(reader.grow(object)).await?;
    if let Some(change) = change {
        top.below.insert(0, describe_change(&change));
    }
    // A generated HelmChart is already below its HelmRelease.
    let Some(id) = source.filter(|id| made.as_ref() != Some(id)) else { return Ok(top) };
    let source = cause_facts::read(&site.cluster, &id).await;
    Ok(ObjectTreeBranch { below: vec![top], ..describe(&id, source) })
}

/// The tree of a Freeze and the objects that it holds.
async fn frozen(site: &CommandScope, freeze: Object) -> anyhow::Result<ObjectTreeBranch> {
    let now = jiff::Timestamp::now();
    let found = FrozenObjects::read(site).await?;
    let held = found.held_by(&freeze, now);
    let described = held.iter().take(MAX_TREE_OBJECTS);
    let mut below: Vec<ObjectTreeBranch> =
        described.map(|it| describe(&it.id(), Ok(Some((*it).clone())))).collect();
    let more = held.len().saturating_sub(MAX_TREE_OBJECTS);
    below.extend((more > 0).then(|| unread(more)));
    let unlisted = |why: &String| without_id("objects that are not listed".to_owned(), why.clone());
    below.extend(found.left_out.iter().map(unlisted));
    // The message of the Freeze is useful even if its times can be read.
    let message = ObjectRow::of(&freeze, now).message;
    Ok(ObjectTreeBranch { below, message, ..describe(&freeze.id(), Ok(Some(freeze))) })
}

/// Whether the kind of the object is a source.
fn is_source(id: &ObjectId) -> bool {
    crds::names().any(|it| it.category == "fluxcd-sources" && it.kind == id.kind)
}

/// The newest change that a source brought. `None` for other objects.
async fn newest_change(site: &CommandScope, object: &Object) -> Option<ChangeSet> {
    if !is_source(&object.id()) {
        return None;
    }
    let changes = failed_change_hints::newest(site, Some(object.namespace())).await;
    changes.into_iter().find(|it| it.spec.source.uid == object.uid())
}

/// The branch of a change, with its verdict. If the change failed, it contains the command that rolls it back.
fn describe_change(change: &ChangeSet) -> ObjectTreeBranch {
    let metadata = &change.metadata;
    let name = metadata.name.as_deref().unwrap_or_default();
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let message = change.status.as_ref().and_then(|it| it.message.clone()).unwrap_or_default();
    let command = failed_change_hints::way_back(change);
    let command = command.map(|it| format!("; to take it back: {it}")).unwrap_or_default();
    ObjectTreeBranch {
        // A change has no page of its own.
        id: None,
        object: format!("ChangeSet/{namespace}/{name}"),
        health: verdict(change).to_string(),
        revision: short(&change.spec.revision),
        message: format!("{message}{command}"),
        below: Vec::new(),
    }
}

/// Reads the objects below an object.
struct ObjectTreeReader<'s> {
    site: &'s CommandScope,
    is_compact: bool,
    left: usize,
    way: Vec<ObjectId>,
}

type ObjectReadResult = Result<Option<Object>, String>;

impl ObjectTreeReader<'_> {
    async fn grow(&mut self, object: Object) -> anyhow::Result<ObjectTreeBranch> {
        let id = object.id();
        self.way.push(id.clone());
        let mut below = Vec::new();
        if object_references::is_reconciled(&id) {
            below.extend(self.made_chart(&object).await);
            let mut ids = object_references::applied(&object);
            if object_references::is_elsewhere(&object) {
                below.extend(self.elsewhere(std::mem::take(&mut ids)));
            }
            below.extend(self.elsewhere(object_references::in_contexts(&object)));
            let (users, unreadable) = self.users(&id).await?;
            below.extend(unreadable);
            ids.extend(users);
            ids.retain(|id| {
                !self.way.contains(id) && (!self.is_compact || object_references::is_reconciled(id))
            });
            let more = ids.len().saturating_sub(self.left);
            ids.truncate(self.left);
            self.left -= ids.len();
            let cluster = &self.site.cluster;
            let reads = ids.into_iter().map(|id| async move {
                let read = cause_facts::read(cluster, &id).await;
                (id, read)
            });
            let found: Vec<(ObjectId, ObjectReadResult)> =
                stream::iter(reads).buffered(AT_ONCE).collect().await;
            let inventory = object_references::versioned_inventory(&object);
            let marks = ExpectedOwnerMetadata::of(&object);
            let mut owners = BTreeMap::new();
            for (id, read) in found {
                let other = match (&marks, &read) {
                    (Some(marks), Ok(Some(live))) if inventory.contains(&id) => {
                        self.other_owner(marks, live, &mut owners).await
                    }
                    _ => None,
                };
                let goes_on = self.way.len() < MAX_TREE_DEPTH;
                let mut branch = match read {
                    Ok(Some(object)) if goes_on => Box::pin(self.grow(object)).await?,
                    read => describe(&id, read),
                };
                if let Some(other) = other {
                    branch.add(&other.words());
                }
                below.push(branch);
            }
            if more > 0 {
                below.push(unread(more));
            }
        } else if let Some(selector) = pod::selector(&object).filter(|_| !self.is_compact) {
            below = self.pods(&object, &selector).await?;
        }
        self.way.pop();
        Ok(ObjectTreeBranch { below, ..describe(&id, Ok(Some(object))) })
    }

    /// The tree branch of the HelmChart that was generated for a HelmRelease, in any namespace. `None` if there is none, if the
    /// tree already contains it, or if the tree is full.
    async fn made_chart(&mut self, object: &Object) -> Option<ObjectTreeBranch> {
        // The tree of a HelmChart contains its HelmReleases. This check keeps the tree from returning to the HelmChart.
        let is_new = |id: &ObjectId| self.left > 0 && !self.way.contains(id);
        let id = object_references::made_chart(object).filter(is_new)?;
        self.left -= 1;
        let chart = cause_facts::read(&self.site.cluster, &id).await;
        Some(describe(&id, chart))
    }

    /// The other owner that an object of an inventory names. `owners` caches the owners that were already read. `None` if no
    /// other owner is named or confirmed.
    async fn other_owner(
        &self,
        marks: &ExpectedOwnerMetadata,
        live: &Object,
        owners: &mut BTreeMap<ObjectId, ObjectReadResult>,
    ) -> Option<OtherOwner> {
        for other in marks.others(live) {
            let Some(id) = other.applier().cloned() else { return Some(other) };
            let is_unread = !owners.contains_key(&id);
            if is_unread {
                let read = cause_facts::read(&self.site.cluster, &id).await;
                owners.insert(id.clone(), read);
            }
            let is_owner = match owners.get(&id) {
                Some(Ok(Some(owner))) => other.is_confirmed_by(owner, &live.id()),
                Some(Err(_)) => !other.needs_inventory,
                Some(Ok(None)) | None => false,
            };
            if is_owner {
                return Some(other);
            }
        }
        None
    }

    /// The objects that were applied to the clusters of `spec.kubeConfig` and `spec.kubeContexts`. windlass does not read them.
    fn elsewhere(&mut self, mut ids: Vec<ObjectId>) -> Vec<ObjectTreeBranch> {
        ids.retain(|id| !self.is_compact || object_references::is_reconciled(id));
        ids.truncate(self.left);
        self.left -= ids.len();
        let why = "is in another cluster (spec.kubeConfig or spec.kubeContexts), which is not read";
        ids.iter().map(|id| describe(id, Err(why.to_owned()))).collect()
    }

    /// The objects that use a source, and branches with messages about kinds that could not be listed.
    async fn users(&self, id: &ObjectId) -> anyhow::Result<(Vec<ObjectId>, Vec<ObjectTreeBranch>)> {
        let mut found = Vec::new();
        let mut unreadable = Vec::new();
        // If the tree began at an object that uses the source, it does not list the users of the source.
        if !is_source(id) || self.way.len() > 1 {
            return Ok((found, unreadable));
        }
        for names in crds::names().filter(|it| !it.is_record() && !it.is_gate()) {
            let gvk = Gvk {
                group: names.group.to_owned(),
                version: names.version.to_owned(),
                kind: names.kind.to_owned(),
            };
            let resource = match self.site.cluster.resource(&gvk).await {
                Ok(resource) => resource,
                // A kind whose CRD is not installed has no objects.
                Err(ClusterError::NoSuchKind { .. }) => continue,
                Err(error) => return Err(error.into()),
            };
            let mut keep = |objects: Vec<Object>| {
                let users = objects.iter().filter(|it| object_references::sources(it).contains(id));
                found.extend(users.map(Object::id));
                Ok(())
            };
            // Objects in other namespaces may also refer to a source.
            let mut target =
                ResourceArgument { resource, namespace: Some(String::new()), name: None };
            let left_out = self.site.list(&target, "", &mut keep).await?;
            if !left_out.is_empty() {
                target.namespace = Some(id.namespace.clone());
                self.site.list(&target, "", &mut keep).await?;
            }
            unreadable.extend(left_out.into_iter().map(|why| left_out_of(&target, why)));
        }
        found.sort();
        found.dedup();
        Ok((found, unreadable))
    }

    /// The Pods of a workload, and branches with messages about Pods that could not be listed.
    async fn pods(
        &mut self,
        workload: &Object,
        selector: &str,
    ) -> anyhow::Result<Vec<ObjectTreeBranch>> {
        let resource = self.site.cluster.resource(&Gvk::new("v1", "Pod")).await?;
        let namespace = Some(workload.namespace().to_owned());
        let target = ResourceArgument { resource, namespace, name: None };
        let mut pods = Vec::new();
        let left_out = self.site.list(&target, selector, |found| {
            pods.extend(found.into_iter().take(self.left - pods.len()));
            Ok(())
        });
        let left_out = left_out.await?;
        let pods = owned_pods::owned(&self.site.cluster, workload, pods).await;
        self.left -= pods.len();
        let branches = pods.into_iter().map(|pod| describe(&pod.id(), Ok(Some(pod))));
        let left_out = left_out.into_iter().map(|why| left_out_of(&target, why));
        Ok(branches.chain(left_out).collect())
    }
}

/// The branch that stands for objects beyond the maximum.
fn unread(more: usize) -> ObjectTreeBranch {
    let message = format!("a tree has {MAX_TREE_OBJECTS} objects at most, and these were not read");
    without_id(format!("{more} more objects"), message)
}

fn left_out_of(target: &ResourceArgument, message: String) -> ObjectTreeBranch {
    without_id(target.resource.plural.clone(), message)
}

/// A branch for objects that windlass does not read.
fn without_id(object: String, message: String) -> ObjectTreeBranch {
    ObjectTreeBranch {
        id: None,
        object,
        health: "Unknown".to_owned(),
        revision: String::new(),
        message,
        below: Vec::new(),
    }
}

/// The branch of an object, without the objects below it.
fn describe(id: &ObjectId, read: ObjectReadResult) -> ObjectTreeBranch {
    let now = jiff::Timestamp::now();
    let (health, message, revision) = match &read {
        Err(error) => ("Unknown".to_owned(), error.clone(), String::new()),
        Ok(None) => ("NotFound".to_owned(), "does not exist".to_owned(), String::new()),
        Ok(Some(object)) if object_references::is_reconciled(id) => {
            let row = ObjectRow::of(object, now);
            let health = match row.ready.as_str() {
                _ if row.is_suspended() => "Suspended",
                "True" => "Ready",
                "False" => "NotReady",
                _ => "Unknown",
            };
            let is_fine = row.ready == "True" && !row.is_suspended();
            let message = if is_fine { String::new() } else { row.message };
            (health.to_owned(), message, row.revision)
        }
        Ok(Some(object)) => match health::third_party_kind_rules::compute_refined(object, now) {
            Ok(report) if report.is_current() => {
                ("Current".to_owned(), String::new(), String::new())
            }
            Ok(report) => {
                let trouble = pod::trouble(object).map(|it| it.within_pod());
                (
                    report.status.to_string(),
                    trouble.unwrap_or_else(|| report.words().to_owned()),
                    String::new(),
                )
            }
            Err(error) => ("Unknown".to_owned(), error.to_string(), String::new()),
        },
    };
    let object = id.subject();
    ObjectTreeBranch { id: Some(id.clone()), object, health, revision, message, below: Vec::new() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reader(site: &CommandScope) -> ObjectTreeReader<'_> {
        let left = MAX_TREE_OBJECTS;
        ObjectTreeReader { site, is_compact: false, left, way: Vec::new() }
    }

    #[tokio::test]
    async fn pods_are_below_the_workload_that_owns_them() {
        let owned = |version: &str, kind: &str, name: &str, by: [&str; 2]| {
            let owner =
                json!({"apiVersion": "apps/v1", "kind": by[0], "name": by[1], "controller": true});
            json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "apps",
                "labels": {"app": "web"}, "ownerReferences": [owner]}})
        };
        let deployment = |name: &str| {
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "apps"},
                "spec": {"selector": {"matchLabels": {"app": "web"}}}})
        };
        let objects = vec![
            deployment("web"),
            deployment("other"),
            owned("apps/v1", "ReplicaSet", "web-1", ["Deployment", "web"]),
            owned("apps/v1", "ReplicaSet", "other-1", ["Deployment", "other"]),
            owned("v1", "Pod", "web-1-a", ["ReplicaSet", "web-1"]),
            owned("v1", "Pod", "other-1-a", ["ReplicaSet", "other-1"]),
            owned("v1", "Pod", "db-0", ["StatefulSet", "db"]),
        ];
        let (cluster, _) = fake_cluster::with_objects(objects).await;
        let site = CommandScope { cluster, namespace: "apps".to_owned() };
        let mut reader = reader(&site);
        let tree = reader.grow(Object::new(deployment("web")).unwrap()).await.unwrap();
        let below: Vec<&str> = tree.below.iter().map(|it| it.object.as_str()).collect();
        assert_eq!(below, ["Pod/apps/web-1-a"]);
    }

    #[tokio::test]
    async fn an_object_that_another_owner_has_names_it() {
        let kustomization = |name: &str| {
            let entries = json!([{"id": "apps_a__ConfigMap", "v": "v1"}, {"id": "apps_b__ConfigMap", "v": "v1"}]);
            json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
                "metadata": {"name": name, "namespace": "apps"}, "status": {"inventory": {"entries": entries}}})
        };
        let map = |name: &str, owner: &str| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "apps",
                "labels": {"kustomize.toolkit.fluxcd.io/name": owner, "kustomize.toolkit.fluxcd.io/namespace": "apps"}}})
        };
        let objects =
            vec![kustomization("one"), kustomization("two"), map("a", "two"), map("b", "one")];
        let (cluster, _) = fake_cluster::with_objects(objects).await;
        let site = CommandScope { cluster, namespace: "apps".to_owned() };
        let mut reader = reader(&site);
        let one = Object::new(kustomization("one")).unwrap();
        let tree = reader.grow(one).await.unwrap();
        let messages: Vec<&str> = tree.below.iter().map(|it| it.message.as_str()).collect();
        assert_eq!(messages, ["belongs to Kustomization/apps/two now", ""]);
    }

    #[tokio::test]
    async fn below_a_source_stands_its_newest_change_with_the_command_that_takes_it_back() {
        let change = |sequence: i64, uid: &str| {
            json!({"apiVersion": "release.windlass.dev/v1alpha1", "kind": "ChangeSet",
                "metadata": {"name": format!("fleet-{sequence}-{uid}"), "namespace": "apps"},
                "spec": {"source": {"kind": "GitRepository", "name": "fleet", "uid": uid},
                    "revision": "main@sha1:2", "digest": "d", "sequence": sequence},
                "status": {"verdict": "Failed", "message": "1 member: 1 failed (ks/shop)",
                    "members": ["Failed ks/shop"], "counts": {"members": 1, "failed": 1}}})
        };
        let source = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": {"name": "fleet", "namespace": "apps", "uid": "u"}, "spec": {}});
        let objects = vec![source.clone(), change(1, "u"), change(2, "u"), change(3, "other")];
        let (cluster, _) = fake_cluster::with_objects(objects).await;
        let site = CommandScope { cluster, namespace: "apps".to_owned() };
        let tree = read(&site, Object::new(source).unwrap(), false).await.unwrap();
        let change = &tree.below[0];
        assert_eq!(
            (change.object.as_str(), change.health.as_str()),
            ("ChangeSet/apps/fleet-2-u", "Failed")
        );
        let expected = "1 member: 1 failed (ks/shop); to take it back: windlass rollback change/fleet-2-u -n apps";
        assert_eq!(change.message, expected);
    }

    #[tokio::test]
    async fn what_a_freeze_holds_is_below_it() {
        let freeze = json!({"apiVersion": "release.windlass.dev/v1alpha1", "kind": "Freeze",
            "metadata": {"name": "sale"}, "spec": {"reason": "the sales week", "namespaceSelector": {}}});
        let ready =
            json!({"type": "Ready", "status": "False", "reason": "Frozen", "message": "it waits"});
        let app = json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": "app", "namespace": "apps"}, "status": {"conditions": [ready]}});
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "apps"}});
        let objects = vec![freeze.clone(), app, namespace];
        let (cluster, _) = fake_cluster::with_objects(objects).await;
        let site = CommandScope { cluster, namespace: "apps".to_owned() };
        let tree = read(&site, Object::new(freeze).unwrap(), false).await.unwrap();
        assert_eq!(tree.object, "Freeze/sale");
        assert_eq!(tree.message, "denies without a known end: the sales week");
        let below: Vec<[&str; 2]> =
            tree.below.iter().map(|it| [it.object.as_str(), it.message.as_str()]).collect();
        assert_eq!(below, [["Kustomization/apps/app", "it waits"]]);
    }

    #[tokio::test]
    async fn a_source_is_above_what_uses_it_and_a_chart_below_each_release_that_it_is_made_for() {
        let helm = |name: &str| {
            json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
                "metadata": {"name": name, "namespace": "apps"},
                "spec": {"chart": {"spec": {"chart": "web", "sourceRef": {"kind": "HelmRepository", "name": "charts"}}}}})
        };
        let of_source = |kind: &str, name: &str| {
            json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": kind,
                "metadata": {"name": name, "namespace": "apps"}})
        };
        let entries = json!([{"id": "apps_web_helm.toolkit.fluxcd.io_HelmRelease", "v": "v2"}]);
        let app = json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": "app", "namespace": "apps"},
            "spec": {"sourceRef": {"kind": "GitRepository", "name": "git"}},
            "status": {"inventory": {"entries": entries}}});
        let objects = vec![
            helm("web"),
            of_source("HelmChart", "apps-web"),
            of_source("GitRepository", "git"),
            app.clone(),
        ];
        let (cluster, _) = fake_cluster::with_objects(objects).await;
        let site = CommandScope { cluster, namespace: "apps".to_owned() };
        let chart = |tree: &ObjectTreeBranch| tree.below[0].object.clone();
        let release = read(&site, Object::new(helm("web")).unwrap(), false).await.unwrap();
        assert_eq!(
            (release.object.as_str(), chart(&release).as_str()),
            ("HelmRelease/apps/web", "HelmChart/apps/apps-web")
        );
        let of_chart = Object::new(of_source("HelmChart", "apps-web")).unwrap();
        let of_chart = read(&site, of_chart, false).await.unwrap();
        assert_eq!(chart(&of_chart), "HelmRelease/apps/web");
        assert!(of_chart.below[0].below.is_empty(), "the chart is above the release already");
        let tree = read(&site, Object::new(app).unwrap(), true).await.unwrap();
        assert_eq!(tree.object, "GitRepository/apps/git");
        let applied = &tree.below[0];
        assert_eq!(applied.object, "Kustomization/apps/app");
        assert_eq!(chart(applied), "HelmRelease/apps/web");
        assert_eq!(chart(&applied.below[0]), "HelmChart/apps/apps-web");
    }
}
