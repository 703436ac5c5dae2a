//! What is in a cluster that Flux runs: its controllers, its objects, and what would stop a migration.

use std::collections::BTreeMap;

use anyhow::Context as _;
use objects::{Gvk, Object};
use serde_json::Value;

use super::super::install::name;
use super::super::operators::{flux_deployments, replaced, replicas};
use crate::controllers::kinds;
use windlass_cluster::Cluster;

/// The operator that keeps Flux as its own object says.
const INSTANCES: (&str, &str) = ("fluxcd.controlplane.io/v1", "FluxInstance");

/// What is there.
#[derive(Debug)]
pub(super) struct Survey {
    /// The Deployments of the controllers that windlass replaces, and of their shards.
    pub(super) controllers: Vec<Object>,
    /// The other Deployments of Flux, such as those of its image controllers.
    pub(super) others: Vec<Object>,
    /// All objects of the kinds that windlass serves.
    pub(super) objects: Vec<Object>,
    /// The Kustomization that keeps the controllers as a repository says, if there is one.
    pub(super) bootstrap: Option<Object>,
    /// Why windlass cannot take over.
    pub(super) obstacles: Vec<String>,
}

impl Survey {
    /// Reads the cluster.
    ///
    /// # Errors
    /// The API server refuses to list something.
    pub(super) async fn of(cluster: &Cluster, namespace: &str) -> anyhow::Result<Self> {
        let deployments = flux_deployments(cluster, namespace).await?;
        let (controllers, others): (Vec<_>, Vec<_>) =
            deployments.into_iter().partition(|it| replaced(it).is_some());
        let mut objects = Vec::new();
        for (_, crd) in crds::all() {
            let Some(version) = crd.spec.versions.iter().find(|it| it.storage) else { continue };
            let kind = &crd.spec.names.kind;
            let gvk = Gvk::new(&format!("{}/{}", crd.spec.group, version.name), kind);
            let found = cluster.list_of_kind(&gvk, "", "").await;
            objects.extend(found.with_context(|| format!("cannot list objects of kind {kind}"))?);
        }
        let bootstrap = objects.iter().find(|it| holds(it, &controllers)).cloned();
        let mut obstacles: Vec<String> = objects.iter().filter_map(obstacle).collect();
        let instances = Gvk::new(INSTANCES.0, INSTANCES.1);
        for instance in cluster.list_of_kind(&instances, "", "").await? {
            let is_disabled = instance.annotation("fluxcd.controlplane.io/reconcile");
            if is_disabled != Some("disabled") {
                obstacles.push(format!(
                    "{} keeps the controllers of Flux running: annotate it with \
                     fluxcd.controlplane.io/reconcile=disabled first",
                    name(&instance)
                ));
            }
        }
        Ok(Self { controllers, others, objects, bootstrap, obstacles })
    }

    /// Whether Flux is there and acts.
    pub(super) fn is_active(&self) -> bool {
        self.controllers.iter().any(|it| replicas(it) > 0)
    }

    /// The objects of a kind.
    pub(super) fn of_kind<'s>(&'s self, kind: &'s str) -> impl Iterator<Item = &'s Object> {
        self.objects.iter().filter(move |object| object.kind() == kind)
    }

    /// What a person reads before anything is changed.
    pub(super) fn table(&self) -> String {
        let mut counts: BTreeMap<&str, (usize, usize, usize)> = BTreeMap::new();
        for object in &self.objects {
            let (all, ready, suspended) = counts.entry(object.kind()).or_default();
            *all += 1;
            *ready += usize::from(is_ready(object));
            let spec = object.get("spec");
            *suspended += usize::from(spec.is_some_and(|spec| spec["suspend"] == true));
        }
        let mut text =
            format!("{:<20} {:>7} {:>7} {:>9}\n", "KIND", "OBJECTS", "READY", "SUSPENDED");
        for (kind, (all, ready, suspended)) in counts {
            text.push_str(&format!("{kind:<20} {all:>7} {ready:>7} {suspended:>9}\n"));
        }
        text
    }
}

/// Whether the condition Ready of an object is true.
pub(super) fn is_ready(object: &Object) -> bool {
    ready(object).is_some_and(|condition| condition["status"] == "True")
}

/// The condition Ready of an object.
pub(super) fn ready(object: &Object) -> Option<&Value> {
    let conditions = object.get("status")?["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == "Ready")
}

/// Whether a Kustomization applies one of the controllers.
fn holds(object: &Object, controllers: &[Object]) -> bool {
    let entries = object.get("status").map(|status| &status["inventory"]["entries"]);
    let mut entries = entries.and_then(Value::as_array).into_iter().flatten();
    entries.any(|entry| {
        let id = entry["id"].as_str().unwrap_or_default();
        controllers.iter().any(|controller| controller.id().to_string() == id)
    })
}

/// Why windlass cannot reconcile an object.
fn obstacle(object: &Object) -> Option<String> {
    match kinds::unsupported(&object.clone().into_value())? {
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
    use serde_json::json;

    use super::*;

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
        assert!(!holds(
            &with("flux-system_image-automation-controller_apps_Deployment"),
            &controllers
        ));
        assert!(!holds(&kustomization(json!({})), &controllers));
    }
}
