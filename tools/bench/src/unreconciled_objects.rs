//! Kustomizations and HelmReleases that no controller reconciles. They have specs and statuses of usual length, so that
//! programs that only read them have as much to read as in a real cluster.
//!
//! `super::raw_client` writes the objects. `super::get` and `super::web` measure programs that read them.

use anyhow::Result;
use serde_json::{Value, json};

use super::raw_client::RawApiClient;
use super::workload::WorkloadApp;
use super::{test_bed, workload};

/// How many statuses are written at once.
const MAX_WRITES_AT_ONCE: usize = 16;

/// How many objects each namespace has.
pub(crate) const OBJECTS_OF_A_NAMESPACE: u32 = 100;

/// The namespace of the objects in all inventories.
const INVENTORY_NAMESPACE: &str = "apps";

/// The revision in all statuses.
const REVISION: &str = "main@sha1:0123456789abcdef0123456789abcdef01234567";

/// The numbers of the objects. Kustomizations and HelmReleases alternate: objects with an even index are Kustomizations.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnreconciledObjects {
    /// How many objects there are.
    pub(crate) count: u32,
    /// How many objects the inventory of each lists.
    pub(crate) inventory: u16,
    /// How many of them are not ready. They are the last ones.
    pub(crate) failing: u32,
    /// Whether their specs suspend them.
    pub(crate) are_suspended: bool,
}

impl UnreconciledObjects {
    /// Creates the namespaces and the objects, and writes their statuses.
    ///
    /// # Errors
    /// The first request that the API server rejected.
    pub(crate) async fn create(&self, raw: &RawApiClient) -> Result<()> {
        let namespaces: Vec<String> = (0..self.count.div_ceil(OBJECTS_OF_A_NAMESPACE))
            .map(|number| workload::namespace(&namespace(number)))
            .collect();
        raw.apply(&test_bed::prepare(&namespaces)?).await?;
        let ready = self.count.saturating_sub(self.failing);
        for is_release in [false, true] {
            let all = (0..self.count).filter(|at| (at % 2 == 1) == is_release);
            let (good, bad): (Vec<u32>, Vec<u32>) = all.partition(|at| *at < ready);
            let manifests: Vec<String> =
                good.iter().chain(&bad).map(|at| self.object(*at).to_string()).collect();
            raw.apply(&test_bed::prepare(&manifests)?).await?;
            for (chosen, is_ready) in [(good, true), (bad, false)] {
                let paths: Vec<String> = chosen.into_iter().map(status_path).collect();
                let status = json!({"status": self.status(is_release, is_ready)});
                raw.merge(&paths, &status, MAX_WRITES_AT_ONCE).await?;
            }
        }
        Ok(())
    }

    /// Creates the Deployments that all inventories list. Without them, a page of an object would read less than in a real
    /// cluster.
    ///
    /// # Errors
    /// The first request that the API server rejected.
    pub(crate) async fn create_inventory(&self, raw: &RawApiClient) -> Result<()> {
        let namespace = workload::namespace(INVENTORY_NAMESPACE);
        raw.apply(&test_bed::prepare(&[namespace])?).await?;
        let manifest = |at: u16| {
            let namespace = INVENTORY_NAMESPACE.to_owned();
            let work = "inventory".to_owned();
            WorkloadApp { name: deployment_name(at), namespace, work, replicas: 1 }.manifest(1)
        };
        let manifests: Vec<String> = (0..self.inventory).map(manifest).collect();
        raw.apply(&test_bed::prepare(&manifests)?).await?;
        Ok(())
    }

    fn object(&self, at: u32) -> Value {
        let metadata = json!({"name": name(at), "namespace": namespace_of(at),
            "labels": {"team": namespace_of(at)}});
        match is_release(at) {
            true => {
                json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "metadata": metadata,
                "spec": {"interval": "10m", "suspend": self.are_suspended,
                    "chartRef": {"kind": "OCIRepository", "name": "app"},
                    "values": {"replicas": 2, "image": {"repository": "registry.example.com/app", "tag": "1.2.3"}}}})
            }
            false => {
                json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
                "metadata": metadata, "spec": {"interval": "10m", "prune": true, "suspend": self.are_suspended,
                    "path": "./deploy/app", "sourceRef": {"kind": "GitRepository", "name": "app"}}})
            }
        }
    }

    fn status(&self, is_release: bool, is_ready: bool) -> Value {
        let at = "2026-11-24T12:00:00Z";
        let condition = match is_ready {
            true => ready_condition(&format!("Applied revision: {REVISION}")),
            false => json!({"type": "Ready", "status": "False", "reason": "HealthCheckFailed",
                "observedGeneration": 1, "lastTransitionTime": at,
                "message": "Deployment/apps/web: 1 of 2 Pods is not available"}),
        };
        let entries: Vec<Value> = (0..self.inventory)
            .map(|at| {
                let id = format!("{INVENTORY_NAMESPACE}_{}_apps_Deployment", deployment_name(at));
                json!({"id": id, "v": "v1"})
            })
            .collect();
        let mut status = json!({"observedGeneration": 1, "conditions": [condition],
            "lastAttemptedRevision": REVISION, "inventory": {"entries": entries}});
        match is_release {
            true => {
                status["history"] = json!([{"name": "app", "namespace": "apps", "chartName": "app",
                    "chartVersion": "1.2.3", "configDigest": "sha256:0", "digest": "sha256:0",
                    "firstDeployed": at, "lastDeployed": at, "status": "deployed", "version": 1}]);
            }
            false => status["lastAppliedRevision"] = REVISION.into(),
        }
        status
    }
}

/// The condition of an object that is ready.
pub(crate) fn ready_condition(message: &str) -> Value {
    json!({"type": "Ready", "status": "True", "reason": "ReconciliationSucceeded", "observedGeneration": 1,
        "lastTransitionTime": "2026-11-24T12:00:00Z", "message": message})
}

/// The path of the status of an object in the API. The first object has the index 0.
pub(crate) fn status_path(at: u32) -> String {
    let (group, plural) = match is_release(at) {
        true => ("helm.toolkit.fluxcd.io/v2", "helmreleases"),
        false => ("kustomize.toolkit.fluxcd.io/v1", "kustomizations"),
    };
    format!("/apis/{group}/namespaces/{}/{plural}/{}/status", namespace_of(at), name(at))
}

/// The name of an object.
pub(crate) fn name(at: u32) -> String {
    format!("app-{at:05}")
}

/// The namespace of an object.
pub(crate) fn namespace_of(at: u32) -> String {
    namespace(at / OBJECTS_OF_A_NAMESPACE)
}

/// The name of a Deployment that all inventories list.
pub(crate) fn deployment_name(at: u16) -> String {
    format!("deployment-of-usual-length-{at:04}")
}

fn namespace(number: u32) -> String {
    format!("team-{number:04}")
}

fn is_release(at: u32) -> bool {
    at % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_objects_fail_and_all_are_of_two_kinds_in_turn() {
        let objects =
            UnreconciledObjects { count: 4, inventory: 2, failing: 1, are_suspended: false };
        let kinds: Vec<Value> = (0..4).map(|at| objects.object(at)["kind"].clone()).collect();
        assert_eq!(kinds, ["Kustomization", "HelmRelease", "Kustomization", "HelmRelease"]);
        assert_eq!(objects.object(0)["spec"]["suspend"], false);
        let status = objects.status(true, false);
        assert_eq!(status["conditions"][0]["status"], "False");
        let entries = &status["inventory"]["entries"];
        assert_eq!(entries[1]["id"], "apps_deployment-of-usual-length-0001_apps_Deployment");
        assert_eq!(entries.as_array().map(Vec::len), Some(2));
        assert_eq!(objects.status(false, true)["lastAppliedRevision"], REVISION);
    }

    #[test]
    fn a_status_has_the_path_of_its_object() {
        assert_eq!(
            status_path(101),
            "/apis/helm.toolkit.fluxcd.io/v2/namespaces/team-0001/helmreleases/app-00101/status"
        );
    }
}
