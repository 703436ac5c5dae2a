//! Surveys a cluster with Flux: its controllers, its objects, and obstacles to a migration.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use objects::{Gvk, Object, ObjectId};
use serde_json::{Value, json};

use super::super::cluster_operators::{flux_deployments, replaced, replicas};
use super::super::install::name;
use super::deletion_budget_preview::DeletionBudgetPreview;
use windlass_cluster::object_pages::ObjectQuery;
use windlass_cluster::{ClusterConnection, ClusterError};

/// The operator that keeps Flux in the state that its FluxInstance describes.
const INSTANCES: (&str, &str) = ("fluxcd.controlplane.io/v1", "FluxInstance");

/// The installation of Flux in a cluster.
#[derive(Debug, Default)]
pub(super) struct FluxInstallationSurvey {
    /// The Deployments of the controllers that windlass replaces, including their shards.
    pub(super) controllers: Vec<Object>,
    /// The other Deployments of Flux, which windlass does not replace.
    pub(super) others: Vec<Object>,
    /// All objects of the kinds that windlass serves, shortened by [`without_bulk`].
    pub(super) objects: Vec<Object>,
    /// The kinds of the objects that Kustomizations apply.
    pub(super) applied_kinds: BTreeSet<Gvk>,
    /// The Kustomization that applies the controllers from a repository, if there is one.
    pub(super) bootstrap: Option<Object>,
    /// Why windlass cannot replace Flux.
    pub(super) obstacles: Vec<String>,
    /// The deletions that windlass would hold, although Flux carries them out at once.
    pub(super) deletions: DeletionBudgetPreview,
}

/// The number of objects of a kind.
#[derive(Debug, Default)]
struct SurveyedKindCount {
    all: usize,
    /// The number of objects with the condition `Ready`.
    reporting: usize,
    ready: usize,
    suspended: usize,
}

impl FluxInstallationSurvey {
    /// Surveys the cluster.
    ///
    /// # Errors
    /// The API server refuses to list something.
    pub(super) async fn of(cluster: &ClusterConnection, namespace: &str) -> anyhow::Result<Self> {
        let deployments = flux_deployments(cluster, namespace).await?;
        let (controllers, others): (Vec<_>, Vec<_>) =
            deployments.into_iter().partition(|it| replaced(it).is_some());
        let mut survey = Self { controllers, others, ..Self::default() };
        for (_, crd) in crds::all() {
            let Some(version) = crd.spec.versions.iter().find(|it| it.storage) else { continue };
            let kind = &crd.spec.names.kind;
            let gvk = Gvk::new(&format!("{}/{}", crd.spec.group, version.name), kind);
            let read = survey.read(cluster, &gvk).await;
            read.with_context(|| format!("cannot list objects of kind {kind}"))?;
        }
        let instances = Gvk::new(INSTANCES.0, INSTANCES.1);
        for instance in cluster.list_of_kind(&instances, "", "").await? {
            let is_disabled = instance.annotation("fluxcd.controlplane.io/reconcile");
            if is_disabled != Some("disabled") {
                survey.obstacles.push(format!(
                    "{} keeps the controllers of Flux running: annotate it with \
                     fluxcd.controlplane.io/reconcile=disabled first",
                    name(&instance)
                ));
            }
        }
        Ok(survey)
    }

    /// Reads all objects of a kind. A kind that the cluster does not serve has none.
    async fn read(&mut self, cluster: &ClusterConnection, gvk: &Gvk) -> Result<(), ClusterError> {
        let resource = match cluster.resource(gvk).await {
            Err(ClusterError::NoSuchKind { .. }) => return Ok(()),
            found => found?,
        };
        let mut pages = cluster.object_pages(ObjectQuery::all(&resource));
        while let Some(page) = pages.next().await? {
            for object in page.objects {
                self.add(object);
            }
        }
        Ok(())
    }

    fn add(&mut self, object: Object) {
        self.obstacles.extend(obstacle(&object));
        self.applied_kinds.extend(applied_kinds(&object));
        let ids =
            entries(&object).filter_map(|entry| entry["id"].as_str()?.parse::<ObjectId>().ok());
        self.deletions.add(&object, ids);
        if self.bootstrap.is_none() && holds(&object, &self.controllers) {
            self.bootstrap = Some(object.clone());
        }
        self.objects.push(without_bulk(&object));
    }

    /// Whether Flux is installed and active.
    pub(super) fn is_active(&self) -> bool {
        self.controllers.iter().any(|it| replicas(it) > 0)
    }

    /// The objects of a kind.
    pub(super) fn of_kind<'s>(&'s self, kind: &'s str) -> impl Iterator<Item = &'s Object> {
        self.objects.iter().filter(move |object| object.kind() == kind)
    }

    /// The table that the user sees before anything is changed.
    pub(super) fn table(&self) -> String {
        let mut counts: BTreeMap<&str, SurveyedKindCount> = BTreeMap::new();
        for object in &self.objects {
            let count = counts.entry(object.kind()).or_default();
            count.all += 1;
            count.reporting += usize::from(ready(object).is_some());
            count.ready += usize::from(is_ready(object));
            let spec = object.get("spec");
            count.suspended += usize::from(spec.is_some_and(|spec| spec["suspend"] == true));
        }
        let mut text =
            format!("{:<20} {:>7} {:>7} {:>9}\n", "KIND", "OBJECTS", "READY", "SUSPENDED");
        for (kind, SurveyedKindCount { all, reporting, ready, suspended }) in counts {
            // The objects of some kinds, such as Alert, do not report whether they are ready. So none of them counts as not
            // ready.
            let ready = if reporting > 0 { ready.to_string() } else { "-".to_owned() };
            text.push_str(&format!("{kind:<20} {all:>7} {ready:>7} {suspended:>9}\n"));
        }
        text
    }
}

/// Whether the condition `Ready` of an object is true.
pub(super) fn is_ready(object: &Object) -> bool {
    ready(object).is_some_and(|condition| condition["status"] == "True")
}

/// The condition `Ready` in the status of an object. `None` if the object has no such condition.
pub(super) fn ready(object: &Object) -> Option<&Value> {
    let conditions = object.get("status")?["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == "Ready")
}

/// The inventory entries of a Kustomization or a HelmRelease.
fn entries(object: &Object) -> impl Iterator<Item = &Value> {
    let entries = object.get("status").map(|status| &status["inventory"]["entries"]);
    entries.and_then(Value::as_array).into_iter().flatten()
}

/// The kinds of the objects that a Kustomization applies.
fn applied_kinds(object: &Object) -> impl Iterator<Item = Gvk> {
    let is_kustomization = object.kind() == "Kustomization";
    entries(object).filter(move |_| is_kustomization).filter_map(|entry| {
        let id = entry["id"].as_str()?.parse::<ObjectId>().ok()?;
        let version = entry["v"].as_str()?.to_owned();
        Some(Gvk { group: id.group, version, kind: id.kind })
    })
}

/// Keeps only the fields that a migration compares later: identity, suspension, state and last applied revision. Specs and
/// inventories are large, and a cluster may have thousands of objects.
fn without_bulk(object: &Object) -> Object {
    let mut kept = object.clone();
    kept.metadata_mut().remove("managedFields");
    if let Some(spec) = object.get("spec") {
        kept.fields_mut().insert("spec".to_owned(), json!({"suspend": spec["suspend"]}));
    }
    if let Some(status) = object.get("status") {
        let newest = json!({"version": status["history"][0]["version"]});
        let status = json!({
            "conditions": status["conditions"],
            "lastAppliedRevision": status["lastAppliedRevision"],
            "history": [newest],
        });
        kept.fields_mut().insert("status".to_owned(), status);
    }
    kept
}

/// Whether a Kustomization applies one of the controllers.
fn holds(object: &Object, controllers: &[Object]) -> bool {
    entries(object).any(|entry| {
        let id = entry["id"].as_str().unwrap_or_default();
        controllers.iter().any(|controller| controller.id().to_string() == id)
    })
}

/// Why windlass cannot reconcile an object. `None` if it can.
fn obstacle(object: &Object) -> Option<String> {
    match windlass_kinds::unsupported(&object.clone().into_value())? {
        Ok(fields) if fields.is_empty() => None,
        Ok(fields) => Some(format!(
            "{} uses {}, which this version of windlass does not support",
            name(object),
            fields.join(", ")
        )),
        Err(error) => Some(format!("{} cannot be read: {error}", name(object))),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;
    use fake_cluster::answering;

    fn object(value: Value) -> Object {
        Object::new(value).unwrap()
    }

    fn kustomization(more: Value) -> Object {
        let mut value = json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1",
            "kind": "Kustomization",
            "metadata": {"name": "app", "namespace": "team"},
            "spec": {
                "interval": "5m", "prune": true, "path": "./",
                "sourceRef": {"kind": "GitRepository", "name": "app"},
            },
        });
        for (key, field) in more.as_object().unwrap() {
            value["spec"][key] = field.clone();
        }
        object(value)
    }

    #[test]
    fn what_windlass_does_not_support_is_named_with_its_object() {
        assert_eq!(obstacle(&kustomization(json!({}))), None);
        let decryption = json!({"provider": "sops", "serviceAccountName": "keys"});
        let text = obstacle(&kustomization(json!({"decryption": decryption}))).unwrap();
        assert_eq!(
            text,
            "Kustomization/team/app uses spec.decryption.serviceAccountName, which this version of windlass does not support"
        );
        let text = obstacle(&kustomization(json!({"prune": "yes"}))).unwrap();
        assert!(text.starts_with("Kustomization/team/app cannot be read: "), "{text}");
    }

    #[tokio::test]
    async fn objects_of_any_size_in_sum_are_surveyed_and_what_is_large_of_them_is_left() {
        const PAGES: usize = 9;
        let inventory = json!({"entries": [{"id": "team_app_apps_Deployment", "v": "v1"}]});
        let cluster = answering(move |(request, _)| {
            let (path, query) = request.split_once('?').unwrap_or((&request, ""));
            let kinds = |kind: &str, name: &str| {
                let one = json!({"name": name, "kind": kind, "singularName": "", "namespaced": true,
                    "verbs": ["list"]});
                json!({"kind": "APIResourceList", "groupVersion": "", "resources": [one]})
            };
            let answer = match path {
                "GET /apis/apps/v1" => kinds("Deployment", "deployments"),
                "GET /apis/kustomize.toolkit.fluxcd.io/v1" => {
                    kinds("Kustomization", "kustomizations")
                }
                "GET /apis/kustomize.toolkit.fluxcd.io/v1/kustomizations" => {
                    let page: usize =
                        query.rsplit_once("continue=").map_or(0, |it| it.1.parse().unwrap());
                    let next =
                        if page + 1 < PAGES { (page + 1).to_string() } else { String::new() };
                    let large = json!({"text": "x".repeat(8 << 20)});
                    let mut one =
                        kustomization(json!({"postBuild": {"substitute": large}})).into_value();
                    one["metadata"]["name"] = format!("app-{page}").into();
                    one["status"] = json!({"inventory": inventory, "lastAppliedRevision": "main",
                        "conditions": [{"type": "Ready", "status": "True"}]});
                    json!({"metadata": {"continue": next}, "items": [one]})
                }
                path if path.matches('/').count() == 3 => {
                    json!({"kind": "APIResourceList", "groupVersion": "", "resources": []})
                }
                _ => json!({"items": []}),
            };
            (200, Body::from(answer.to_string()))
        })
        .await;
        let survey = FluxInstallationSurvey::of(&cluster, "flux-system").await.unwrap();
        assert_eq!(survey.objects.len(), PAGES);
        assert_eq!(survey.applied_kinds, BTreeSet::from([Gvk::new("apps/v1", "Deployment")]));
        let kept = &survey.objects[0];
        assert!(is_ready(kept) && kept.get("status").unwrap()["lastAppliedRevision"] == "main");
        assert!(kept.clone().into_value().to_string().len() < 1_000);
    }

    #[test]
    fn objects_that_do_not_report_are_not_counted_as_not_ready() {
        let mut survey = FluxInstallationSurvey::default();
        let ready = json!([{"type": "Ready", "status": "True"}]);
        let mut app = kustomization(json!({}));
        app.fields_mut().insert("status".to_owned(), json!({"conditions": ready}));
        let audit = json!({"apiVersion": "release.windlass.dev/v1alpha1", "kind": "ReleaseAudit",
            "metadata": {"name": "a", "namespace": "apps"}});
        survey.objects.extend([app, object(audit)]);
        let expected = "KIND                 OBJECTS   READY SUSPENDED\n\
                        Kustomization              1       1         0\n\
                        ReleaseAudit               1       -         0\n";
        assert_eq!(survey.table(), expected);
    }

    #[test]
    fn a_kubeconfig_of_a_config_map_is_an_obstacle() {
        let remote = json!({"kubeConfig": {"configMapRef": {"name": "east"}}});
        let text = obstacle(&kustomization(remote)).unwrap();
        assert!(text.contains("uses spec.kubeConfig.configMapRef"), "{text}");
        let usual = json!({"kubeConfig": {"secretRef": {"name": "east"}}});
        assert_eq!(obstacle(&kustomization(usual)), None);
    }

    #[test]
    fn a_kustomization_that_applies_the_controllers_is_known_by_its_inventory() {
        let controller = object(json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "source-controller", "namespace": "flux-system"},
        }));
        let with = |id: &str| {
            let mut value = kustomization(json!({})).into_value();
            value["status"] = json!({"inventory": {"entries": [{"id": id, "v": "v1"}]}});
            object(value)
        };
        let controllers = [controller];
        assert!(holds(&with("flux-system_source-controller_apps_Deployment"), &controllers));
        assert!(!holds(&with("flux-system_team-controller_apps_Deployment"), &controllers));
        assert!(!holds(&kustomization(json!({})), &controllers));
    }
}
