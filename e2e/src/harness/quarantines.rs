//! The functions for stories about failed results that windlass rolls back: requesting a rollback, reading the Quarantine, and
//! lifting it.
//!
//! Elsewhere: rolling back a whole change (`stories::change_sets`).

use anyhow::Result;
use crds::windlass_release::Quarantine;
use kube::api::{Api, DynamicObject, ListParams};
use serde_json::{Value, json};

use super::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use super::manifests::{PodBehavior, config_map, deployment};
use super::{Story, StoryObject};

/// The manifests of the Deployment `web` and the ConfigMap `a`, as files.
pub fn web_and_map(pods: PodBehavior, value: &str) -> [(&'static str, String); 2] {
    [("web.yaml", deployment("web", pods)), ("a.yaml", config_map("a", value))]
}

impl Story {
    /// The Quarantines in the namespace of the story.
    ///
    /// # Errors
    /// The objects cannot be listed.
    pub async fn quarantines(&self) -> Result<Vec<Quarantine>> {
        let api = Api::<Quarantine>::namespaced(self.client.clone(), &self.namespace);
        Ok(api.list(&ListParams::default()).await?.items)
    }

    /// Sets the annotation with which windlass rolls back an applier after a failure.
    ///
    /// # Errors
    /// The API server refuses the request.
    pub async fn roll_back_failures(&self, target: &StoryObject) -> Result<()> {
        let annotations = json!({"windlass.dev/on-failure": "RollBack"});
        self.merge(target, json!({"metadata": {"annotations": annotations}})).await.map(drop)
    }

    /// Creates the Kustomization `app` of the source `app`. It checks the health of the Deployment `web`, and windlass rolls it
    /// back after a failure. `more` is merged into its spec.
    ///
    /// # Errors
    /// The API server refuses the request.
    pub async fn rolling_back_app(&self, more: Value) -> Result<StoryObject> {
        let app = StoryObject::kustomization("app");
        let checks = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web",
            "namespace": self.namespace}]);
        let mut spec = json!({"healthChecks": checks, "timeout": "15s"});
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        self.kustomization("app", "app", spec).await?;
        self.roll_back_failures(&app).await?;
        Ok(app)
    }

    /// Waits until a Kustomization is ready and its status records the artifact of the newest result. Only then can windlass
    /// roll back to this result.
    ///
    /// # Errors
    /// The expected state is not reached in time.
    pub async fn await_good_result(&self, app: &StoryObject) -> Result<DynamicObject> {
        let is_recorded = |object: &DynamicObject| {
            let newest = &object.data["status"]["history"][0];
            condition(object, "Ready")["status"] == "True"
                && newest["metadata"]["windlass.dev/ArtifactPath"].is_string()
        };
        self.await_object(app, DEFAULT_WAIT_TIMEOUT, is_recorded).await
    }

    /// Lifts the Quarantine of a revision, as a user does, and waits until the revision has failed again. `named` is the
    /// argument of the command, such as `ks/app`.
    ///
    /// # Errors
    /// The command fails, or the revision does not fail again.
    pub async fn lift_in_vain(
        &self,
        named: &str,
        target: &StoryObject,
        revision: &str,
    ) -> Result<()> {
        let place = ["-n", self.namespace.as_str(), "--reason", "once more"];
        let line = [&["resume", named, "--revision", revision][..], &place].concat();
        self.windlass_says(&line, true)?;
        let is_repeated = async || {
            let all = self.quarantines().await?;
            let status = all.first().and_then(|it| it.status.clone()).unwrap_or_default();
            Ok((status.repeated == 1 && status.lift.is_none()).then_some(()))
        };
        self.await_until("the second failure", DEFAULT_WAIT_TIMEOUT * 2, is_repeated).await?;
        self.await_failure(target, "Quarantined").await.map(drop)
    }
}
