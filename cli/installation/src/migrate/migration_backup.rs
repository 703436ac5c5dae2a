//! Records the state of the cluster before a migration, in a ConfigMap that is kept until Flux is restored.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use objects::{Gvk, Object};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::check::OURS;
use super::super::cluster_operators::replicas;
use super::super::install::{MANAGER, POLL_INTERVAL, crd_replacement, name};
use super::flux_installation::FluxInstallationSurvey;
use super::scale;
use windlass_cli_runtime::connection::{ProgressGlyph, say};
use windlass_cluster::{ClusterConnection, ClusterError};

/// The name of the ConfigMap, in the namespace of windlass.
const NAME: &str = "windlass-migration";
/// The only key of the ConfigMap.
const KEY: &str = "before.json";
/// The kind that windlass and Flux share. Objects of this kind are kept.
const SHARED: &str = "CustomResourceDefinition";
/// The fields that the API server sets.
const SERVER_FIELDS: [&str; 5] =
    ["managedFields", "resourceVersion", "generation", "creationTimestamp", "uid"];

/// The objects of Flux and others that a migration changes, in their state before it.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MigrationBackup {
    /// The replicas of Flux's controllers, by name.
    replicas: BTreeMap<String, i64>,
    /// The objects of others that the installation overwrites.
    overwritten: Vec<Value>,
    /// The namespace and name of the Kustomization that applies Flux's controllers, if the migration suspends it.
    suspended: Option<(String, String)>,
}

impl MigrationBackup {
    /// Records the current state. `installed` are the objects that an installation writes.
    ///
    /// # Errors
    /// The API server refuses to read something.
    pub(super) async fn of(
        cluster: &ClusterConnection,
        survey: &FluxInstallationSurvey,
        installed: &[Object],
    ) -> anyhow::Result<Self> {
        let counted = survey.controllers.iter().map(|it| (it.name().to_owned(), replicas(it)));
        let mut overwritten = Vec::new();
        for wanted in installed.iter().filter(|it| it.kind() != SHARED) {
            let found = crd_replacement::read(cluster, wanted).await;
            let Some(found) = found.with_context(|| name(wanted))? else { continue };
            let (key, value) = OURS.split_once('=').unwrap_or((OURS, ""));
            if found.label(key) != Some(value) {
                overwritten.push(portable(found).into_value());
            }
        }
        let suspended = survey
            .bootstrap
            .as_ref()
            .filter(|it| it.get("spec").is_none_or(|spec| spec["suspend"] != true));
        let suspended = suspended.map(|it| (it.namespace().to_owned(), it.name().to_owned()));
        Ok(Self { replicas: counted.collect(), overwritten, suspended })
    }

    /// Reads the record from the cluster.
    ///
    /// # Errors
    /// There is no record, or it cannot be read.
    pub(super) async fn load(
        cluster: &ClusterConnection,
        namespace: &str,
    ) -> anyhow::Result<Option<Self>> {
        let resource = cluster.resource(&Gvk::new("v1", "ConfigMap")).await?;
        let Some(found) = cluster.get(&resource, namespace, NAME).await? else { return Ok(None) };
        let text = found.get("data").and_then(|data| data[KEY].as_str()).unwrap_or_default();
        let record = serde_json::from_str(text);
        record.map(Some).with_context(|| format!("ConfigMap/{namespace}/{NAME} is damaged"))
    }

    /// Writes the record to the cluster.
    ///
    /// # Errors
    /// The API server refuses the write, for example because a record exists.
    pub(super) async fn save(
        &self,
        cluster: &ClusterConnection,
        namespace: &str,
    ) -> anyhow::Result<()> {
        let resource = cluster.resource(&Gvk::new("v1", "ConfigMap")).await?;
        let object = Object::new(json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": NAME,
                "namespace": namespace,
                "labels": {"app.kubernetes.io/part-of": "windlass"},
            },
            "data": {KEY: serde_json::to_string(self)?},
        }))?;
        let created = cluster.create_object(&resource, &object, MANAGER, true).await;
        created.map(drop).context("cannot record what Flux has")
    }

    /// The active controllers of Flux, as text.
    pub(super) fn controllers(&self) -> String {
        let acted = self.replicas.iter().filter(|(_, count)| **count > 0);
        acted.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// The controllers that were active but whose Deployments no longer exist, so they cannot be scaled.
    ///
    /// # Errors
    /// The API server refuses to list Deployments.
    pub(super) async fn missing(
        &self,
        cluster: &ClusterConnection,
        namespace: &str,
    ) -> anyhow::Result<Vec<&str>> {
        let found = cluster.list_of_kind(&Gvk::new("apps/v1", "Deployment"), namespace, "").await?;
        let is_there = |name: &str| found.iter().any(|it| it.name() == name);
        let wanted = self.replicas.iter().filter(|(_, count)| **count > 0);
        Ok(wanted.map(|(name, _)| name.as_str()).filter(|name| !is_there(name)).collect())
    }

    /// Restores the objects, the replicas and the suspended Kustomization, and then deletes the record.
    ///
    /// # Errors
    /// The API server refuses something, or Flux's controllers did not become ready in time.
    pub(super) async fn restore(
        &self,
        cluster: &ClusterConnection,
        namespace: &str,
        deadline: Instant,
    ) -> anyhow::Result<()> {
        for value in &self.overwritten {
            put_back(cluster, Object::new(value.clone())?).await?;
        }
        let gvk = Gvk::new("apps/v1", "Deployment");
        let deployments = cluster.list_of_kind(&gvk, namespace, "").await?;
        for deployment in &deployments {
            if let Some(count) = self.replicas.get(deployment.name()) {
                scale(cluster, deployment, *count).await?;
            }
        }
        let ready = self.await_controllers(cluster, namespace, deadline).await;
        ready.context("windlass is scaled to zero, and nothing reconciles")?;
        if let Some((namespace, name)) = &self.suspended {
            suspend(cluster, namespace, name, false).await?;
        }
        let resource = cluster.resource(&Gvk::new("v1", "ConfigMap")).await?;
        if let Some(found) = cluster.get(&resource, namespace, NAME).await? {
            cluster.delete_unmanaged(&resource, namespace, NAME, found.uid()).await?;
        }
        Ok(())
    }

    async fn await_controllers(
        &self,
        cluster: &ClusterConnection,
        namespace: &str,
        deadline: Instant,
    ) -> anyhow::Result<()> {
        let gvk = Gvk::new("apps/v1", "Deployment");
        let resource = cluster.resource(&gvk).await?;
        for (name, count) in &self.replicas {
            loop {
                let found = cluster.get(&resource, namespace, name).await?;
                let found = found.with_context(|| {
                    format!(
                        "Deployment/{namespace}/{name} does not exist any more: Flux is not back"
                    )
                })?;
                let ready = found.get("status").and_then(|it| it["readyReplicas"].as_i64());
                if ready.unwrap_or(0) >= *count {
                    say(ProgressGlyph::Success, &format!("Deployment/{namespace}/{name} is ready"));
                    break;
                }
                if Instant::now() >= deadline {
                    bail!("Deployment/{namespace}/{name} is not ready in time");
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
        Ok(())
    }
}

/// Suspends or resumes a Kustomization.
pub(super) async fn suspend(
    cluster: &ClusterConnection,
    namespace: &str,
    name: &str,
    is_suspended: bool,
) -> anyhow::Result<()> {
    let gvk = Gvk::new("kustomize.toolkit.fluxcd.io/v1", "Kustomization");
    let resource = cluster.resource(&gvk).await?;
    let patch = json!({"spec": {"suspend": is_suspended}});
    let patched = cluster.merge_patch(&resource, namespace, name, &patch, MANAGER).await;
    patched.with_context(|| format!("Kustomization/{namespace}/{name}"))?;
    let what = if is_suspended { "suspended" } else { "resumed" };
    say(ProgressGlyph::Success, &format!("Kustomization/{namespace}/{name} {what}"));
    Ok(())
}

/// An object without the fields that only fit the object in this cluster.
fn portable(mut object: Object) -> Object {
    for field in SERVER_FIELDS {
        object.metadata_mut().remove(field);
    }
    object.fields_mut().remove("status");
    if let Some(spec) = object.fields_mut().get_mut("spec").and_then(Value::as_object_mut) {
        // The API server assigns other addresses to a Service.
        for field in ["clusterIP", "clusterIPs"] {
            if spec.get(field).is_some_and(|it| *it != "None" && *it != json!(["None"])) {
                spec.remove(field);
            }
        }
    }
    object
}

/// Replaces an object with its recorded state. Server-side apply would keep the fields of both states.
async fn put_back(cluster: &ClusterConnection, object: Object) -> anyhow::Result<()> {
    let id = name(&object);
    let resource = cluster.resource(&object.gvk()).await?;
    if let Some(found) = cluster.get(&resource, object.namespace(), object.name()).await? {
        cluster
            .delete_unmanaged(&resource, object.namespace(), object.name(), found.uid())
            .await
            .with_context(|| id.clone())?;
    }
    let created = cluster.create_object(&resource, &object, MANAGER, false).await;
    match created {
        Err(error) if !is_there(&error) => Err(error).with_context(|| id),
        _ => {
            say(ProgressGlyph::Success, &format!("{id} restored"));
            Ok(())
        }
    }
}

fn is_there(error: &ClusterError) -> bool {
    error.code() == Some(409)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fake_cluster::with_objects;

    #[tokio::test]
    async fn a_controller_that_does_not_exist_any_more_is_not_taken_for_one_that_is_back() {
        let replicas =
            [("helm-controller", 1), ("kustomize-controller", 0), ("source-controller", 2)];
        let replicas = replicas.map(|(name, count)| (name.to_owned(), count)).into();
        let record = MigrationBackup { replicas, ..MigrationBackup::default() };
        let controller = |name: &str| {
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": name, "namespace": "flux-system", "uid": name},
                "spec": {"replicas": 0}, "status": {"readyReplicas": 2},
            })
        };
        let (cluster, _) = with_objects(vec![controller("source-controller")]).await;
        let missing = record.missing(&cluster, "flux-system").await.unwrap();
        assert_eq!(missing, ["helm-controller"]);
        let restored = record.restore(&cluster, "flux-system", Instant::now()).await;
        let text = format!("{:#}", restored.unwrap_err());
        assert!(
            text.contains("Deployment/flux-system/helm-controller does not exist any more"),
            "{text}"
        );
        assert!(text.contains("nothing reconciles"), "{text}");
        assert_eq!(record.controllers(), "helm-controller, source-controller");
    }

    #[test]
    fn what_is_recorded_can_be_created_again() {
        let service = |cluster_ip: &str| {
            Object::new(json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {
                    "name": "source-controller", "namespace": "flux-system", "uid": "1",
                    "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z",
                    "labels": {"app.kubernetes.io/part-of": "flux"}, "managedFields": [],
                },
                "spec": {
                    "clusterIP": cluster_ip, "clusterIPs": [cluster_ip],
                    "selector": {"app": "source-controller"},
                },
                "status": {"loadBalancer": {}},
            }))
            .unwrap()
        };
        let kept = portable(service("10.0.0.7")).into_value();
        assert_eq!(
            kept,
            json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {
                    "name": "source-controller", "namespace": "flux-system",
                    "labels": {"app.kubernetes.io/part-of": "flux"},
                },
                "spec": {"selector": {"app": "source-controller"}},
            })
        );
        let headless = portable(service("None")).into_value();
        assert_eq!(headless["spec"]["clusterIP"], "None");
    }
}
