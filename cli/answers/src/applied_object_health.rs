//! Examines the current state of the objects that other objects have applied. An applied object can fail although its applier
//! was reconciled successfully.
//!
//! windlass lists the applied objects by kind, using the labels of their appliers. It reads whole objects only for kinds that
//! have a health status, and only the metadata for other kinds.
//! An object that is missing in the lists is read by name. So an object without labels is not mistaken for a deleted one.
//! Elsewhere: why an object fails (engine `cause`), fetching facts (`cause_facts.rs`).

use std::collections::{BTreeMap, BTreeSet};

use cause::object_owners::{ExpectedOwnerMetadata, OtherOwner};
use cause::object_references::{self, owner_labels};
use cause::{FactAnswer, FactQuery, condition, health_of};
use objects::{Gvk, Object, ObjectId};
use reconcile::Time;

use super::cause_facts::{ClusterFactReader, unserved};
use super::command_scope::CommandScope;
use super::kind_argument::ResourceArgument;
use windlass_cluster::ClusterError;
use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::object_decode::DepthPrunedObject;
use windlass_cluster::object_pages::ObjectQuery;

/// The maximum number of applied objects that are examined.
const MOST_APPLIED: usize = 100_000;

/// The maximum number of objects that are missing in the lists and are read by name.
const MOST_READ: usize = 1_000;

/// The maximum number of namespaces that are listed one by one if the user may not list all namespaces.
const MOST_NAMESPACES: usize = 100;

/// A kind, regardless of its version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct GroupKind {
    group: String,
    kind: String,
}

impl GroupKind {
    fn of(id: &ObjectId) -> Self {
        Self { group: id.group.clone(), kind: id.kind.clone() }
    }

    /// Whether objects of the kind are healthy as soon as they exist. For these kinds, windlass avoids reading whole objects,
    /// because some are large or secret.
    fn is_by_existence(&self) -> bool {
        match self.group.as_str() {
            "" => !matches!(self.kind.as_str(), "Pod" | "PersistentVolumeClaim" | "Service"),
            "batch" => self.kind == "CronJob",
            "policy"
            | "admissionregistration.k8s.io"
            | "apiextensions.k8s.io"
            | "networking.k8s.io"
            | "rbac.authorization.k8s.io"
            | "scheduling.k8s.io"
            | "storage.k8s.io" => true,
            _ => false,
        }
    }
}

/// The version and the namespaces in which objects of a kind were applied.
#[derive(Debug, Default)]
struct AppliedVersionAndNamespaces {
    /// The version in which they were applied.
    version: String,
    namespaces: BTreeSet<String>,
}

/// The objects that a command reports itself. If such an object fails, the command does not also report its applier.
#[derive(Debug, Default)]
pub(super) struct AlreadyReportedObjects {
    kinds: BTreeSet<GroupKind>,
    /// Empty for all namespaces.
    namespace: String,
}

impl AlreadyReportedObjects {
    /// The objects of some kinds. Empty if labels select only some of these objects.
    pub(super) fn of(site: &CommandScope, targets: &[ResourceArgument], labels: &str) -> Self {
        let all = targets.iter().filter(|_| labels.is_empty()).map(|it| &it.resource.gvk);
        let kinds = all
            .map(|Gvk { group, kind, .. }| GroupKind { group: group.clone(), kind: kind.clone() });
        Self { kinds: kinds.collect(), namespace: site.namespace.clone() }
    }

    fn has_all(&self, kind: &GroupKind) -> bool {
        self.namespace.is_empty() && self.kinds.contains(kind)
    }

    fn has(&self, id: &ObjectId) -> bool {
        let is_here = self.namespace.is_empty() || self.namespace == id.namespace;
        is_here && self.kinds.contains(&GroupKind::of(id))
    }
}

/// An object that applied other objects.
#[derive(Debug)]
struct InventoryOwner {
    id: ObjectId,
    /// The labels and annotations that mark this object as the owner. `None` if the object is suspended, because then it does
    /// not claim its objects.
    marks: Option<ExpectedOwnerMetadata>,
}

impl InventoryOwner {
    fn of(object: &Object) -> Self {
        let is_suspended = cause::suspension(object, jiff::Timestamp::now()).is_some();
        let marks = ExpectedOwnerMetadata::of(object).filter(|_| !is_suspended);
        Self { id: object.id(), marks }
    }
}

/// The applied objects, and the objects that applied them.
#[derive(Debug, Default)]
pub(super) struct AppliedObjects {
    appliers: Vec<InventoryOwner>,
    /// The applied objects, each with the index of its applier.
    objects: BTreeMap<ObjectId, usize>,
    /// The indexes of further appliers, for objects with several appliers.
    further: BTreeMap<ObjectId, Vec<usize>>,
    kinds: BTreeMap<GroupKind, AppliedVersionAndNamespaces>,
    /// How many appliers apply to other clusters.
    elsewhere: usize,
    /// How many objects exceed the maximum.
    beyond: usize,
}

/// The result of the examination.
#[derive(Debug, Default)]
pub(super) struct AppliedObjectFindings {
    /// The appliers of objects that do not exist, are not healthy, or name another owner.
    pub(super) suspects: BTreeSet<ObjectId>,
    /// Deployments during a rollout. Kubernetes ends the rollout after the deadline of the Deployment.
    pub(super) rolling_out: BTreeSet<ObjectId>,
    /// How many applied objects were examined.
    pub(super) examined: usize,
    /// Messages about objects that were not examined because of a maximum.
    pub(super) remarks: Vec<String>,
    /// Messages about objects that this user may not list.
    pub(super) left_out: Vec<String>,
}

impl AppliedObjects {
    /// Adds the inventory of an object. An object that is being deleted together with its inventory is skipped.
    pub(super) fn add(&mut self, object: &Object) {
        if object.meta("deletionTimestamp").is_some() {
            return;
        }
        let inventory = object_references::versioned_inventory(object);
        let is_elsewhere = object_references::is_elsewhere(object) && !inventory.is_empty();
        self.elsewhere +=
            usize::from(is_elsewhere || !object_references::in_contexts(object).is_empty());
        if is_elsewhere || inventory.is_empty() {
            return;
        }
        let own = object.id();
        for id in inventory.ids().filter(|id| **id != own) {
            if self.objects.len() >= MOST_APPLIED {
                self.beyond += 1;
                continue;
            }
            let place = self.appliers.len();
            if *self.objects.entry(id.clone()).or_insert(place) != place {
                self.further.entry(id.clone()).or_default().push(place);
            }
            let kind = self.kinds.entry(GroupKind::of(id)).or_default();
            kind.namespaces.insert(id.namespace.clone());
            inventory.version(id).unwrap_or_default().clone_into(&mut kind.version);
        }
        self.appliers.push(InventoryOwner::of(object));
    }

    /// Examines the applied objects.
    ///
    /// # Errors
    /// The API server did not respond.
    pub(super) async fn examine(
        self,
        facts: &mut ClusterFactReader<'_>,
        site: &CommandScope,
        reported: &AlreadyReportedObjects,
    ) -> anyhow::Result<AppliedObjectFindings> {
        let Self { appliers, objects, further, kinds, elsewhere, beyond } = self;
        let is_of = |id: &ObjectId, group: &str, kind: &str| id.group == group && id.kind == kind;
        let labels =
            owner_labels().filter(|of| appliers.iter().any(|it| is_of(&it.id, of.group, of.kind)));
        let selectors: Vec<String> = labels.map(|of| of.name).collect();
        let mut examination = AppliedObjectExaminer {
            selectors,
            facts,
            appliers,
            objects,
            further,
            reported,
            now: jiff::Timestamp::now(),
            state: AppliedObjectFindings::default(),
        };
        for (kind, applied) in &kinds {
            examination.list(kind, applied, site.namespace.is_empty()).await?;
        }
        examination.read().await?;
        let mut state = examination.state;
        if elsewhere > 0 {
            let noun = if elsewhere == 1 { "object" } else { "objects" };
            state.remarks.push(format!(
                "what {elsewhere} {noun} applied in other clusters was not examined"
            ));
        }
        if beyond > 0 {
            state.remarks.push(format!(
                "{beyond} applied objects were not examined, beyond the first {MOST_APPLIED}: name a namespace or a kind"
            ));
        }
        Ok(state)
    }
}

/// A running examination of the objects that appliers have applied. It collects findings about their health.
struct AppliedObjectExaminer<'e, 'c> {
    facts: &'e mut ClusterFactReader<'c>,
    /// The label selectors of the applied objects, one for each kind of applier.
    selectors: Vec<String>,
    appliers: Vec<InventoryOwner>,
    /// The applied objects that were not found so far.
    objects: BTreeMap<ObjectId, usize>,
    /// The indexes of further appliers.
    further: BTreeMap<ObjectId, Vec<usize>>,
    reported: &'e AlreadyReportedObjects,
    now: Time,
    state: AppliedObjectFindings,
}

impl AppliedObjectExaminer<'_, '_> {
    /// Lists the objects of a kind, in all namespaces at once or in each namespace that has some.
    async fn list(
        &mut self,
        kind: &GroupKind,
        applied: &AppliedVersionAndNamespaces,
        is_everywhere: bool,
    ) -> anyhow::Result<()> {
        let GroupKind { group, kind: name } = kind.clone();
        let gvk = Gvk { group, version: applied.version.clone(), kind: name };
        let Some(resource) = self.facts.applied_kind(&gvk).await? else {
            let count = self.forget(kind, "");
            let why = unserved(&gvk.kind);
            self.state.remarks.push(format!("{count} applied objects were not examined: {why}"));
            return Ok(());
        };
        let each: Vec<String> = applied.namespaces.iter().cloned().collect();
        let is_at_once = is_everywhere || !resource.namespaced;
        let is_whole = !kind.is_by_existence() && !self.reported.has_all(kind);
        let mut places = if is_at_once { vec![String::new()] } else { each.clone() };
        while let Some(place) = places.pop() {
            match self.list_at(&resource, &place, is_whole).await {
                Ok(()) => {}
                Err(error @ ClusterError::NoAnswer(_)) => return Err(error.into()),
                Err(error)
                    if error.code() == Some(403)
                        && place.is_empty()
                        && resource.namespaced
                        && each.len() <= MOST_NAMESPACES =>
                {
                    places.clone_from(&each);
                }
                Err(error) => {
                    let count = self.forget(kind, &place);
                    let within = if place.is_empty() { "" } else { " in namespace " };
                    self.state.left_out.push(format!(
                        "{count} applied {}{within}{place}: {error}",
                        resource.plural
                    ));
                }
            }
        }
        Ok(())
    }

    async fn list_at(
        &mut self,
        resource: &ApiResourceLocation,
        namespace: &str,
        is_whole: bool,
    ) -> Result<(), ClusterError> {
        let cluster = self.facts.cluster();
        for label_selector in &self.selectors.clone() {
            if is_whole {
                let query = ObjectQuery { resource, namespace, label_selector, field_selector: "" };
                let mut pages = cluster.object_pages(query);
                while let Some(page) = pages.next().await? {
                    page.objects.into_iter().for_each(|object| self.take(object, Some(resource)));
                }
                continue;
            }
            let mut pages = cluster.metadata_pages(resource, namespace, label_selector)?;
            while let Some(page) = pages.next().await? {
                for DepthPrunedObject(mut item) in page {
                    item["apiVersion"] = resource.gvk.api_version().into();
                    item["kind"] = resource.gvk.kind.clone().into();
                    if let Ok(object) = Object::new(item) {
                        self.take(object, None);
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads the objects by name that were missing in the lists.
    async fn read(&mut self) -> anyhow::Result<()> {
        let ids: Vec<ObjectId> = self.objects.keys().take(MOST_READ).cloned().collect();
        let more = self.objects.len() - ids.len();
        if more > 0 {
            self.state.remarks.push(format!(
                "{more} applied objects were not examined, since they do not have the labels of what applied them"
            ));
        }
        self.facts.ask(ids.iter().cloned().map(FactQuery::Object).collect()).await?;
        let mut jobs = 0;
        let mut hidden = Vec::new();
        for id in ids {
            match self.facts.known().get(&FactQuery::Object(id.clone())).cloned() {
                Some(FactAnswer::Objects(found)) => match found.into_iter().next() {
                    Some(object) => self.take(object, None),
                    // A Job may be deleted as soon as it has ended.
                    None if id.group == "batch" && id.kind == "Job" => jobs += 1,
                    None => self.suspect(&id),
                },
                Some(FactAnswer::Refused(why)) => {
                    hidden.push(format!("{} cannot be read: {why}", id.subject()));
                }
                Some(FactAnswer::Lines(_)) | None => {}
            }
        }
        if jobs > 0 {
            self.state.remarks.push(format!(
                "applied Jobs that do not exist: {jobs}; one that has ended may be deleted (ttlSecondsAfterFinished)"
            ));
        }
        if let Some(first) = hidden.first() {
            let count = hidden.len();
            self.state.left_out.push(format!("{count} applied objects, such as {first}"));
        }
        Ok(())
    }

    /// Examines an object that exists. `listed` is the resource if the list contained the whole object, so that the object can
    /// be reused.
    fn take(&mut self, object: Object, listed: Option<&ApiResourceLocation>) {
        let id = object.id();
        if !self.objects.contains_key(&id) {
            return;
        }
        self.state.examined += 1;
        let is_leaving = object.meta("deletionTimestamp").is_some();
        let has_health = !GroupKind::of(&id).is_by_existence() && !self.reported.has(&id);
        let is_well = match has_health {
            true => health_of(&object, self.now).is_ok_and(|report| report.is_current()),
            false => !is_leaving,
        };
        if is_well && self.is_of_others(&id, &object) {
            self.objects.remove(&id);
            if let Some(resource) = listed {
                self.facts.knows(resource, object);
            }
            return;
        }
        if is_well {
            self.objects.remove(&id);
            // The command reports this object itself, so the health of the object is already known.
            if !self.reported.has(&id) {
                self.facts.knows_well(id);
            }
            return;
        }
        if is_rolling_out(&object) {
            self.state.rolling_out.insert(id.clone());
        }
        self.suspect(&id);
        if let Some(resource) = listed {
            self.facts.knows(resource, object);
        }
    }

    /// Whether an object names another owner than one of its appliers. Such appliers become suspects.
    fn is_of_others(&mut self, id: &ObjectId, object: &Object) -> bool {
        let appliers: Vec<&InventoryOwner> = self.appliers_of(id).collect();
        // Labels remain on an object after its owner has given it away. Then the inventory of that owner does not contain the
        // object.
        let is_left = |other: &OtherOwner| {
            let owner = other.applier().filter(|_| other.needs_inventory);
            owner.is_some_and(|owner| {
                self.reported.has_all(&GroupKind::of(owner))
                    && !appliers.iter().any(|it| it.id == *owner)
            })
        };
        let mut losers: Vec<ObjectId> = Vec::new();
        for applier in &appliers {
            let marks = applier.marks.as_ref();
            let others = marks.map(|marks| marks.others(object)).unwrap_or_default();
            if others.iter().any(|other| !is_left(other)) {
                losers.push(applier.id.clone());
            }
        }
        let is_any = !losers.is_empty();
        self.state.suspects.extend(losers);
        is_any
    }

    /// Marks the appliers of an object as suspects, because the object does not exist or is not healthy.
    fn suspect(&mut self, id: &ObjectId) {
        let appliers: Vec<ObjectId> = self.appliers_of(id).map(|it| it.id.clone()).collect();
        self.objects.remove(id);
        self.state.suspects.extend(appliers);
    }

    /// The appliers of an object.
    fn appliers_of(&self, id: &ObjectId) -> impl Iterator<Item = &InventoryOwner> {
        let further = self.further.get(id).into_iter().flatten();
        let places = self.objects.get(id).into_iter().chain(further);
        places.filter_map(|place| self.appliers.get(*place))
    }

    /// Skips the objects of a kind in a namespace, or in all namespaces. Returns how many were skipped.
    fn forget(&mut self, kind: &GroupKind, namespace: &str) -> usize {
        let before = self.objects.len();
        let is_it = |id: &ObjectId| {
            GroupKind::of(id) == *kind && (namespace.is_empty() || namespace == id.namespace)
        };
        self.objects.retain(|id, _| !is_it(id));
        before - self.objects.len()
    }
}

/// Whether a Deployment is in a rollout, according to its condition.
fn is_rolling_out(object: &Object) -> bool {
    let said = condition(object, "Progressing").filter(|said| said.status == "True");
    object.kind() == "Deployment"
        && said.is_some_and(|said| said.reason != "NewReplicaSetAvailable")
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use serde_json::{Value, json};

    use super::*;
    use fake_cluster::{answering, with_objects};

    fn applier(name: &str, ids: &[&str]) -> Object {
        let entries: Vec<Value> = ids.iter().map(|id| json!({"id": id, "v": "v1"})).collect();
        Object::new(json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": name, "namespace": "apps"},
            "status": {"inventory": {"entries": entries}}}))
        .unwrap()
    }

    fn live(api_version: &str, kind: &str, name: &str) -> Value {
        json!({"apiVersion": api_version, "kind": kind,
            "metadata": {"name": name, "namespace": "apps"}, "spec": {"replicas": 1}})
    }

    async fn examined(site: &CommandScope, appliers: &[Object]) -> AppliedObjectFindings {
        let mut applied = AppliedObjects::default();
        appliers.iter().for_each(|object| applied.add(object));
        let mut facts = ClusterFactReader::new(&site.cluster);
        applied.examine(&mut facts, site, &AlreadyReportedObjects::default()).await.unwrap()
    }

    #[tokio::test]
    async fn what_is_gone_or_not_healthy_is_found_by_what_applied_it() {
        let objects = vec![
            live("apps/v1", "Deployment", "web"),
            live("v1", "ConfigMap", "a"),
            live("batch/v1", "Job", "other"),
        ];
        let (cluster, _) = with_objects(objects).await;
        let site = CommandScope { cluster, namespace: String::new() };
        let appliers = [
            applier("well", &["apps_a__ConfigMap"]),
            applier("web", &["apps_web_apps_Deployment"]),
            applier("gone", &["apps_gone__ConfigMap"]),
            applier("ended", &["apps_ended_batch_Job"]),
        ];
        let state = examined(&site, &appliers).await;
        let suspects: Vec<&str> = state.suspects.iter().map(|id| id.name.as_str()).collect();
        assert_eq!(suspects, ["gone", "web"]);
        assert_eq!((state.examined, state.left_out.len()), (2, 0));
        assert!(state.remarks[0].starts_with("applied Jobs that do not exist: 1"));
    }

    #[tokio::test]
    async fn what_names_another_owner_is_found_by_what_lost_it() {
        let labelled = |name: &str, owner: &str| {
            let mut map = live("v1", "ConfigMap", name);
            map["metadata"]["labels"] = json!({"kustomize.toolkit.fluxcd.io/name": owner,
                "kustomize.toolkit.fluxcd.io/namespace": "apps"});
            map
        };
        let objects = vec![labelled("a", "two"), labelled("b", "three")];
        let (cluster, _) = with_objects(objects).await;
        let site = CommandScope { cluster, namespace: String::new() };
        let mut appliers =
            ["one", "two"].map(|name| applier(name, &["apps_a__ConfigMap"])).to_vec();
        appliers.push(applier("three", &["apps_b__ConfigMap"]));
        let state = examined(&site, &appliers).await;
        let suspects: Vec<&str> = state.suspects.iter().map(|id| id.name.as_str()).collect();
        assert_eq!((suspects, state.examined), (vec!["one"], 2));
        // A suspended applier may give its objects to another owner.
        appliers[0].fields_mut().insert("spec".to_owned(), json!({"suspend": true}));
        assert!(examined(&site, &appliers).await.suspects.is_empty());
    }

    #[tokio::test]
    async fn what_is_gone_is_missed_by_all_that_applied_it() {
        let (cluster, _) = with_objects(Vec::new()).await;
        let site = CommandScope { cluster, namespace: String::new() };
        let appliers = ["one", "two"].map(|name| applier(name, &["apps_gone__ConfigMap"]));
        assert_eq!(examined(&site, &appliers).await.suspects.len(), 2);
    }

    #[tokio::test]
    async fn what_may_not_be_listed_is_named_and_not_taken_for_gone() {
        let cluster = answering(|(request, _)| {
            let resources = json!([{"name": "configmaps", "singularName": "", "kind": "ConfigMap",
                "namespaced": true, "verbs": ["list"]}]);
            let (code, answer) = match request.contains("/configmaps") {
                true => (
                    403,
                    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403,
                        "reason": "Forbidden", "message": "no list"}),
                ),
                false => (
                    200,
                    json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": resources}),
                ),
            };
            (code, Body::from(answer.to_string()))
        });
        let site = CommandScope { cluster: cluster.await, namespace: String::new() };
        let state = examined(&site, &[applier("app", &["apps_a__ConfigMap"])]).await;
        assert!(state.suspects.is_empty() && state.examined == 0);
        let begin = "1 applied configmaps in namespace apps: ";
        assert!(state.left_out.len() == 1 && state.left_out[0].starts_with(begin), "{state:?}");
    }

    #[tokio::test]
    async fn what_is_in_another_cluster_is_named_and_not_searched_here() {
        let (cluster, _) = with_objects(Vec::new()).await;
        let site = CommandScope { cluster, namespace: String::new() };
        let mut far = applier("far", &["apps_a__ConfigMap"]);
        far.fields_mut().insert("spec".to_owned(), json!({"kubeConfig": {}}));
        let state = examined(&site, &[far]).await;
        assert!(state.suspects.is_empty());
        assert_eq!(state.remarks, ["what 1 object applied in other clusters was not examined"]);
    }
}
