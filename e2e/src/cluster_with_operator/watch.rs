//! Watches objects, and records the time at which each change arrived.
//!
//! Here: watches of several kinds as one stream, waiting for a change, and the last states if the change does not come.
//! Elsewhere: the changes that are expected (`tools/demo`, `tools/bench`).

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use futures::StreamExt as _;
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use testbed::progress;

/// The longest state of an object in a failure message, in characters.
const MAX_STATE_CHARACTERS: usize = 200;

/// Selects the objects of a kind that are watched.
#[derive(Debug, Clone)]
pub struct WatchSelection {
    resource: ApiResource,
    namespace: Option<String>,
    name: Option<String>,
    labels: Option<String>,
}

impl WatchSelection {
    /// Selects all objects of a kind, such as `apps/v1` and `Deployment`.
    pub fn of(api_version: &str, kind: &str) -> Self {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Self { resource, namespace: None, name: None, labels: None }
    }

    /// Selects only the objects in a namespace.
    pub fn within(self, namespace: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..self }
    }

    /// Selects only the object with this name.
    pub fn named(self, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..self }
    }

    /// Selects only the objects with a label.
    pub fn labelled(self, selector: &str) -> Self {
        Self { labels: Some(selector.to_owned()), ..self }
    }

    /// The API client for the selected objects.
    pub fn api(&self, client: &Client) -> Api<DynamicObject> {
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &self.resource),
            None => Api::all_with(client.clone(), &self.resource),
        }
    }

    /// Watches these objects only. Also returns the API client for them. Objects that exist when the watch begins are not
    /// reported.
    ///
    /// # Errors
    /// The same errors as those of [`ObjectWatch::begin`].
    pub async fn watch_alone(
        &self,
        client: &Client,
    ) -> anyhow::Result<(Api<DynamicObject>, ObjectWatch)> {
        let mut watch = ObjectWatch::begin(client, std::slice::from_ref(self)).await?;
        watch.forget();
        Ok((self.api(client), watch))
    }

    fn config(&self) -> watcher::Config {
        // One request returns the list and the following changes, so the watch is open when the list is complete.
        let mut config = watcher::Config::default().streaming_lists();
        if let Some(name) = &self.name {
            config = config.fields(&format!("metadata.name={name}"));
        }
        if let Some(labels) = &self.labels {
            config = config.labels(labels);
        }
        config
    }
}

/// An object as a watch reported it.
#[derive(Debug, Clone)]
pub struct WatchedObject {
    /// When the change arrived.
    pub at: Instant,
    /// The kind, such as `Deployment`.
    pub kind: String,
    /// The name of the object.
    pub name: String,
    /// Whether the object still exists. If not, `object` is its last state.
    pub exists: bool,
    object: DynamicObject,
}

impl WatchedObject {
    /// Whether this is the object with a kind and a name.
    pub fn is(&self, kind: &str, name: &str) -> bool {
        self.kind == kind && self.name == name
    }

    /// The value at a JSON pointer, such as `/spec/replicas`. Null if there is none.
    pub fn value(&self, pointer: &str) -> &Value {
        self.object.data.pointer(pointer).unwrap_or(&Value::Null)
    }

    /// The UID of the object.
    pub fn uid(&self) -> String {
        self.object.uid().unwrap_or_default()
    }

    /// The resourceVersion as a number. Later writes to the cluster, of any object, have higher numbers.
    pub fn version(&self) -> u64 {
        self.object.resource_version().and_then(|version| version.parse().ok()).unwrap_or_default()
    }

    /// Whether the object is Ready for its newest generation.
    pub fn is_ready(&self) -> bool {
        let generation = self.object.metadata.generation;
        self.ready().is_some_and(|ready| {
            ready["status"] == "True" && ready["observedGeneration"].as_i64() == generation
        })
    }

    /// Whether the object is a Ready Kustomization that has applied a commit.
    pub fn has_applied(&self, commit: &str) -> bool {
        let revision = self.value("/status/lastAppliedRevision").as_str();
        self.is_ready() && revision.is_some_and(|revision| revision.ends_with(commit))
    }

    /// Whether the object is a Ready source whose artifact is from a commit.
    pub fn has_fetched(&self, commit: &str) -> bool {
        let revision = self.value("/status/artifact/revision").as_str();
        self.is_ready() && revision.is_some_and(|revision| revision.ends_with(commit))
    }

    /// Whether the object is a Deployment whose Pods are all available and of its newest generation.
    pub fn is_rolled_out(&self) -> bool {
        let number = |pointer: &str| self.value(pointer).as_i64().unwrap_or_default();
        let wanted = number("/spec/replicas");
        self.object.metadata.generation == Some(number("/status/observedGeneration"))
            && ["replicas", "updatedReplicas", "availableReplicas"]
                .iter()
                .all(|it| number(&format!("/status/{it}")) == wanted)
    }

    /// The message of the object's Ready condition.
    pub fn message(&self) -> &str {
        self.ready().and_then(|ready| ready["message"].as_str()).unwrap_or_default()
    }

    fn ready(&self) -> Option<&Value> {
        self.value("/status/conditions").as_array()?.iter().find(|it| it["type"] == "Ready")
    }

    /// A summary of the object for a person, in one line.
    fn describe(&self) -> String {
        let word = self.ready().and_then(|ready| ready["status"].as_str());
        let data = self.object.data.get("spec").unwrap_or(self.value("/data"));
        let text = match (self.exists, word) {
            (false, _) => "it is gone".to_owned(),
            (true, Some(status)) => format!("Ready={status}: {}", self.message()),
            (true, None) => data.to_string(),
        };
        text.chars().take(MAX_STATE_CHARACTERS).collect()
    }
}

/// Watches that run until this is dropped.
pub struct ObjectWatch {
    seen: mpsc::UnboundedReceiver<WatchedObject>,
    last: BTreeMap<String, String>,
    /// The tasks of the watches, which end when this is dropped.
    _tasks: JoinSet<()>,
}

impl ObjectWatch {
    /// Opens a watch for each selection. Existing objects are reported first.
    ///
    /// # Guarantees
    /// After this call returns, no change is missed.
    pub async fn begin(client: &Client, selections: &[WatchSelection]) -> anyhow::Result<Self> {
        let (tell, seen) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        let mut openings = Vec::new();
        for selection in selections {
            let (opened, opening) = oneshot::channel();
            openings.push(opening);
            let kind = selection.resource.kind.clone();
            let api = selection.api(client);
            tasks.spawn(follow(kind, api, selection.config(), tell.clone(), opened));
        }
        for opening in openings {
            let opened = tokio::time::timeout(Duration::from_secs(20), opening).await;
            opened.context("the API server did not open a watch within 20 s")??;
        }
        Ok(Self { seen, last: BTreeMap::new(), _tasks: tasks })
    }

    /// Discards the changes that were reported but not yet read.
    pub fn forget(&mut self) {
        while self.seen.try_recv().is_ok() {}
    }

    /// Returns the next change.
    ///
    /// # Errors
    /// No change arrives before `deadline`. The error contains `what` and the last states of all objects.
    pub async fn next(&mut self, what: &str, deadline: Instant) -> anyhow::Result<WatchedObject> {
        match tokio::time::timeout_at(deadline.into(), self.seen.recv()).await {
            Ok(Some(seen)) => {
                self.last.insert(format!("{} {}", seen.kind, seen.name), seen.describe());
                Ok(seen)
            }
            Ok(None) => bail!("the watch ended while waiting for {what}"),
            Err(_) => {
                let state: String =
                    self.last.iter().map(|(name, state)| format!("\n  {name}: {state}")).collect();
                bail!("waited in vain for {what}; last seen:{state}")
            }
        }
    }

    /// Waits for a change for which `is_it` is true.
    ///
    /// # Errors
    /// The same errors as those of [`ObjectWatch::next`].
    pub async fn until(
        &mut self,
        what: &str,
        limit: Duration,
        is_it: impl Fn(&WatchedObject) -> bool,
    ) -> anyhow::Result<WatchedObject> {
        let deadline = Instant::now() + limit;
        let what = format!("{what} (limit {})", progress::spell(limit));
        loop {
            let seen = self.next(&what, deadline).await?;
            if is_it(&seen) {
                return Ok(seen);
            }
        }
    }

    /// Checks for a while that no change makes `is_broken` true.
    ///
    /// # Errors
    /// A change made `is_broken` true. The error contains `fault` and the change.
    pub async fn stays(
        &mut self,
        fault: &str,
        time: Duration,
        is_broken: impl Fn(&WatchedObject) -> bool,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + time;
        loop {
            match self.next(fault, deadline).await {
                Ok(seen) if is_broken(&seen) => {
                    bail!("{fault}: {} {}: {}", seen.kind, seen.name, seen.describe());
                }
                Ok(_) => {}
                Err(_) if Instant::now() >= deadline => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

async fn follow(
    kind: String,
    api: Api<DynamicObject>,
    config: watcher::Config,
    tell: mpsc::UnboundedSender<WatchedObject>,
    opened: oneshot::Sender<()>,
) {
    let mut opened = Some(opened);
    let mut events = pin!(watcher(api, config).default_backoff());
    while let Some(event) = events.next().await {
        let at = Instant::now();
        let (object, exists) = match event {
            Ok(Event::InitApply(object) | Event::Apply(object)) => (object, true),
            Ok(Event::Delete(object)) => (object, false),
            Ok(Event::InitDone) => {
                if let Some(opened) = opened.take() {
                    opened.send(()).ok();
                }
                continue;
            }
            // After an error, the watch is opened again.
            Ok(Event::Init) | Err(_) => continue,
        };
        let seen =
            WatchedObject { at, kind: kind.clone(), name: object.name_any(), exists, object };
        if tell.send(seen).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn seen(object: Value) -> WatchedObject {
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let at = Instant::now();
        WatchedObject {
            at,
            kind: "Kustomization".into(),
            name: object.name_any(),
            exists: true,
            object,
        }
    }

    fn kustomization(status: &str, observed: i64, revision: &str) -> WatchedObject {
        seen(json!({
            "metadata": {"name": "shop", "generation": 2},
            "status": {
                "lastAppliedRevision": revision,
                "conditions": [{"type": "Ready", "status": status, "observedGeneration": observed, "message": "m"}],
            },
        }))
    }

    #[test]
    fn an_object_is_ready_only_about_its_newest_generation() {
        assert!(kustomization("True", 2, "").is_ready());
        assert!(!kustomization("True", 1, "").is_ready());
        assert!(!kustomization("False", 2, "").is_ready());
        assert!(!seen(json!({"metadata": {"name": "new"}})).is_ready());
    }

    #[test]
    fn a_commit_is_applied_when_it_is_in_the_revision_of_a_ready_object() {
        assert!(kustomization("True", 2, "main@sha1:abc").has_applied("abc"));
        assert!(!kustomization("True", 2, "main@sha1:abc").has_applied("def"));
        assert!(!kustomization("Unknown", 2, "main@sha1:abc").has_applied("abc"));
    }

    #[test]
    fn a_deployment_is_rolled_out_when_only_new_pods_are_left() {
        let deployment = |observed: i64, replicas: i64, updated: i64, available: i64| {
            seen(json!({
                "metadata": {"name": "shop", "generation": 2},
                "spec": {"replicas": 1},
                "status": {
                    "observedGeneration": observed, "replicas": replicas,
                    "updatedReplicas": updated, "availableReplicas": available,
                },
            }))
        };
        assert!(deployment(2, 1, 1, 1).is_rolled_out());
        assert!(!deployment(1, 1, 1, 1).is_rolled_out());
        assert!(!deployment(2, 2, 1, 1).is_rolled_out());
        assert!(!deployment(2, 1, 1, 0).is_rolled_out());
        let none = json!({"metadata": {"name": "shop", "generation": 1}, "spec": {"replicas": 0}});
        assert!(!seen(none).is_rolled_out(), "no controller has observed it yet");
    }

    #[tokio::test]
    async fn a_wait_that_timed_out_is_reported_with_the_last_state() {
        let (tell, receiver) = mpsc::unbounded_channel();
        let mut watch =
            ObjectWatch { seen: receiver, last: BTreeMap::new(), _tasks: JoinSet::new() };
        tell.send(kustomization("False", 2, "")).unwrap();
        let outcome =
            watch.until("shop to be ready", Duration::ZERO, WatchedObject::is_ready).await;
        let text = outcome.unwrap_err().to_string();
        assert!(text.contains("shop to be ready"), "{text}");
        tell.send(kustomization("True", 2, "")).unwrap();
        assert!(watch.until("shop", Duration::from_secs(9), WatchedObject::is_ready).await.is_ok());
    }
}
