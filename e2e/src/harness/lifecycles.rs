//! The functions with which stories create Lifecycles and answer LifecycleEvents.
//!
//! Elsewhere: the operations that Lifecycles hold (`charts_and_helm_releases`, `flux`).

use anyhow::{Context as _, Result, ensure};
use crds::operation_lifecycle::{Lifecycle, LifecycleBinding, LifecycleEvent, LifecyclePhase};
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::{Value, json};

use super::flux_objects::DEFAULT_WAIT_TIMEOUT;
use super::{Story, StoryObject};

/// The API version of lifecycles.
pub const API: &str = "lifecycle.windlass.dev/v1alpha1";

impl Story {
    /// Creates a Lifecycle for this story only, and returns its name. The story has to end with [`Story::end_lifecycles`].
    ///
    /// # Errors
    /// The API server refuses the request.
    pub async fn lifecycle(&self, name: &str, phases: &[&str], more: Value) -> Result<String> {
        let full = format!("{}-{name}", self.namespace);
        let mut spec = json!({"key": name, "phases": phases});
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        let object = json!({"apiVersion": API, "kind": "Lifecycle", "metadata": {"name": full}, "spec": spec});
        self.apply_value(object).await?;
        Ok(full)
    }

    /// Makes a Lifecycle hold all HelmReleases of the story.
    ///
    /// # Errors
    /// The API server refuses the request.
    pub async fn bind(&self, lifecycle: &str, more: Value) -> Result<StoryObject> {
        let mut spec = json!({"lifecycle": lifecycle, "subjects": [{"kind": "HelmRelease"}]});
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        let object = json!({"apiVersion": API, "kind": "LifecycleBinding",
            "metadata": {"name": lifecycle}, "spec": spec});
        self.apply_value(object).await?;
        Ok(StoryObject::of::<LifecycleBinding>(lifecycle))
    }

    /// The LifecycleEvents of the story.
    ///
    /// # Errors
    /// The objects cannot be listed.
    pub async fn lifecycle_events(&self) -> Result<Vec<LifecycleEvent>> {
        let api = Api::<LifecycleEvent>::namespaced(self.client.clone(), &self.namespace);
        Ok(api.list(&ListParams::default()).await?.items)
    }

    /// Waits until the only LifecycleEvent of the story has this phase.
    ///
    /// # Errors
    /// The expected state is not reached in time.
    pub async fn await_asked(&self, phase: LifecyclePhase) -> Result<LifecycleEvent> {
        self.await_until(
            &format!("a LifecycleEvent of {phase}"),
            DEFAULT_WAIT_TIMEOUT,
            async || {
                let mut events = self.lifecycle_events().await?;
                let event = events.pop().filter(|_| events.is_empty());
                Ok(event.filter(|it| it.spec.phase == phase))
            },
        )
        .await
    }

    /// Waits until a Lifecycle has a LifecycleEvent.
    ///
    /// # Errors
    /// The expected state is not reached in time.
    pub async fn await_event_of(&self, lifecycle: &str) -> Result<LifecycleEvent> {
        self.await_until(
            &format!("a LifecycleEvent of {lifecycle}"),
            DEFAULT_WAIT_TIMEOUT,
            async || {
                let events = self.lifecycle_events().await?;
                Ok(events.into_iter().find(|it| it.spec.lifecycle == lifecycle))
            },
        )
        .await
    }

    /// Waits until the story has no LifecycleEvent.
    ///
    /// # Errors
    /// An object remains after the time limit.
    pub async fn await_no_events(&self) -> Result<()> {
        self.await_until("no LifecycleEvent to be left", DEFAULT_WAIT_TIMEOUT, async || {
            Ok(self.lifecycle_events().await?.is_empty().then_some(()))
        })
        .await
    }

    /// Answers a LifecycleEvent, as its controller would.
    ///
    /// # Errors
    /// The API server refuses the request.
    pub async fn answer(&self, event: &LifecycleEvent, phase: &str, message: &str) -> Result<()> {
        let name = event.metadata.name.clone().context("an event has a name")?;
        let status = json!({"phase": phase, "answeredBy": "checker", "message": message});
        let target = StoryObject::of::<LifecycleEvent>(&name);
        self.merge_status(&target, json!({"status": status})).await.map(drop)
    }

    /// Ends a story, and deletes its Lifecycles, which are cluster-scoped.
    ///
    /// # Errors
    /// The API server refuses the request.
    pub async fn end_lifecycles(self) -> Result<()> {
        let api = Api::<Lifecycle>::all(self.client.clone());
        let mut gone = 0;
        for object in api.list(&ListParams::default()).await?.items {
            let name = object.metadata.name.unwrap_or_default();
            if name.starts_with(&self.namespace) {
                api.delete(&name, &DeleteParams::default()).await?;
                gone += 1;
            }
        }
        ensure!(gone > 0, "the story had no Lifecycle");
        self.end().await
    }
}
