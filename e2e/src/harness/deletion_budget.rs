//! The functions with which stories set a deletion budget, make changes wait for approval, and read the Plans of held changes.
//!
//! Elsewhere: the Kustomizations that apply objects (`flux`).

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use crds::windlass_release::{Plan, PlanChange, PlanPolicy};
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt as _;
use kube::api::{Api, DynamicObject, ListParams};
use serde_json::{Value, json};

use super::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use super::{Story, StoryObject};

/// The API version of Plans.
const API: &str = "release.windlass.dev/v1alpha1";

/// The changes that a Plan lists, in its order. Each text is the action and the name of an object.
pub fn actions(plan: &Plan) -> Vec<String> {
    let changes = plan.spec.changes.iter().flat_map(|it| &it.objects);
    let line = |it: &PlanChange| {
        let name = it.id.split('_').nth(1).unwrap_or_default();
        format!("{} {name}", it.action)
    };
    changes.map(line).collect()
}

impl Story {
    /// Creates a PlanPolicy with a deletion budget for the namespace of the story. The PlanPolicy is cluster-scoped, so the
    /// story has to delete it at its end.
    ///
    /// # Errors
    /// The API server refuses the request.
    pub async fn plan_policy(&self, budget: Value) -> Result<StoryObject> {
        let labels = json!({"kubernetes.io/metadata.name": self.namespace});
        let spec = json!({"namespaceSelector": {"matchLabels": labels}, "deletionBudget": budget});
        let object = json!({"apiVersion": API, "kind": "PlanPolicy",
            "metadata": {"name": self.namespace}, "spec": spec});
        self.apply_value(object).await?;
        Ok(StoryObject::of::<PlanPolicy>(&self.namespace))
    }

    /// Turns the deletion budget off for the Kustomizations and releases of the story, so they delete objects as in Flux.
    /// Stories about other subjects use this. The story has to delete the PlanPolicy at its end.
    ///
    /// # Errors
    /// The API server refuses the request.
    pub async fn without_deletion_budget(&self) -> Result<StoryObject> {
        self.plan_policy(json!({"enabled": false})).await
    }

    /// Creates a PlanPolicy with a mode for the namespace of the story. The PlanPolicy is cluster-scoped, so the story has to
    /// delete it at its end. If the bed has no namespace of windlass for the key of Plans, this creates it.
    ///
    /// # Errors
    /// The API server refuses the request.
    pub async fn plan_mode(&self, mode: &str) -> Result<StoryObject> {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "flux-system"}});
        self.apply_value(namespace).await?;
        let labels = json!({"kubernetes.io/metadata.name": self.namespace});
        let spec = json!({"namespaceSelector": {"matchLabels": labels}, "mode": mode});
        let object = json!({"apiVersion": API, "kind": "PlanPolicy",
            "metadata": {"name": self.namespace}, "spec": spec});
        self.apply_value(object).await?;
        Ok(StoryObject::of::<PlanPolicy>(&self.namespace))
    }

    /// Approves a held change as the administrator of the test bed. Returns the output of the command.
    ///
    /// # Errors
    /// The command fails.
    pub fn approve(&self, what: &str) -> Result<String> {
        self.windlass_says(&["approve", what, "-n", &self.namespace], true)
    }

    /// Waits until an object waits for the approval of its Plan for a revision. Returns that Plan.
    ///
    /// # Errors
    /// The expected state is not reached in time.
    pub async fn await_pending(&self, target: &StoryObject, revision: &str) -> Result<Plan> {
        let what = format!("{target} to wait for its Plan of {revision}");
        self.await_until(&what, DEFAULT_WAIT_TIMEOUT, async || {
            let mut plans = self.plans().await?;
            plans.retain(|it| it.spec.changes.is_some() && it.spec.revision == revision);
            let Some(plan) = plans.pop().filter(|_| plans.is_empty()) else { return Ok(None) };
            let object = self.expect(target).await?;
            let ready = condition(&object, "Ready");
            let command = format!("windlass approve plan/{}", plan.name_any());
            let is_said = ready["reason"] == "PlanPending"
                && ready["status"] == "Unknown"
                && condition(&object, "Reconciling")["status"] == "True"
                && ready["message"].to_string().contains(&command);
            Ok(is_said.then_some(plan))
        })
        .await
    }

    /// Waits until the namespace of the story has no Plan.
    ///
    /// # Errors
    /// An object remains after the time limit.
    pub async fn await_no_plans(&self) -> Result<()> {
        self.await_until("no Plan to be left", DEFAULT_WAIT_TIMEOUT, async || {
            Ok(self.plans().await?.is_empty().then_some(()))
        })
        .await
    }

    /// Checks that no Plan and no event of the story contains a secret text, either as plain text or as base64.
    ///
    /// # Errors
    /// A Plan or an event contains the secret.
    pub async fn ensure_unread(&self, secret: &str, target: &StoryObject) -> Result<()> {
        let encoded = BASE64_STANDARD.encode(secret);
        let object = self.expect(target).await?;
        let events = Api::<Event>::namespaced(self.client.clone(), &self.namespace);
        let mut texts = vec![object.data["status"].to_string()];
        for plan in self.plans().await? {
            texts.push(serde_json::to_string(&plan)?);
        }
        for event in events.list(&ListParams::default()).await?.items {
            texts.push(event.message.unwrap_or_default());
        }
        for text in texts {
            let is_read = text.contains(secret) || text.contains(&encoded);
            ensure!(!is_read, "a value of a Secret is readable in {text}");
        }
        Ok(())
    }

    /// The Plans of the story.
    ///
    /// # Errors
    /// The objects cannot be listed.
    pub async fn plans(&self) -> Result<Vec<Plan>> {
        let api = Api::<Plan>::namespaced(self.client.clone(), &self.namespace);
        Ok(api.list(&ListParams::default()).await?.items)
    }

    /// Waits until a Kustomization holds the deletion of `count` objects and is Ready with a revision. Returns its only Plan.
    ///
    /// # Errors
    /// The expected state is not reached in time.
    pub async fn await_held(&self, name: &str, revision: &str, count: i64) -> Result<Plan> {
        let is_held =
            |object: &DynamicObject| condition(object, "DeletionHeld")["status"] == "True";
        self.await_applied(name, revision).await?;
        self.await_object(&StoryObject::kustomization(name), DEFAULT_WAIT_TIMEOUT, is_held).await?;
        self.await_plan(count).await
    }

    /// Waits until a release is held because it would delete `count` objects. Returns its only Plan.
    ///
    /// # Errors
    /// The expected state is not reached in time.
    pub async fn await_held_release(&self, target: &StoryObject, count: i64) -> Result<Plan> {
        let plan = self.await_plan(count).await?;
        let command = format!("windlass approve plan/{}", plan.name_any());
        let is_held = |object: &DynamicObject| {
            let held = condition(object, "DeletionHeld");
            held["status"] == "True" && held["message"].to_string().contains(&command)
        };
        self.await_object(target, DEFAULT_WAIT_TIMEOUT, is_held).await?;
        Ok(plan)
    }

    /// Waits until the story has exactly one Plan, with `count` objects.
    async fn await_plan(&self, count: i64) -> Result<Plan> {
        self.await_until(&format!("a Plan of {count}"), DEFAULT_WAIT_TIMEOUT, async || {
            let mut plans = self.plans().await?;
            let plan = plans.pop().filter(|_| plans.is_empty());
            Ok(plan.filter(|it| it.spec.count == count))
        })
        .await
    }

    /// Waits until a Kustomization holds no deletion, and the story has no Plan.
    ///
    /// # Errors
    /// An object remains after the time limit.
    pub async fn await_not_held(&self, name: &str) -> Result<()> {
        self.await_free(&StoryObject::kustomization(name)).await
    }

    /// Waits until an object holds no deletion, and the story has no Plan.
    ///
    /// # Errors
    /// An object remains after the time limit.
    pub async fn await_free(&self, target: &StoryObject) -> Result<()> {
        let is_free = |object: &DynamicObject| condition(object, "DeletionHeld").is_null();
        self.await_object(target, DEFAULT_WAIT_TIMEOUT, is_free).await?;
        self.await_no_plans().await
    }

    /// Checks that ConfigMaps exist and are not being deleted.
    ///
    /// # Errors
    /// A ConfigMap is missing or is being deleted.
    pub async fn ensure_config_maps(&self, names: &[String]) -> Result<()> {
        for name in names {
            let object = self.expect(&StoryObject::config_map(name)).await?;
            ensure!(object.metadata.deletion_timestamp.is_none(), "{name} is being deleted");
        }
        Ok(())
    }
}
