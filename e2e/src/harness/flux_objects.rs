//! The functions with which stories create objects of Flux and wait for them.
//!
//! Here: a Git repository with its GitRepository, Kustomizations, waiting for their results, the standard `flux` command.
//! Elsewhere: windlass itself (`super::windlass`), manifests for repositories (`super::manifests`), reading and waiting in
//! general (`super::story`).
//!
//! Intervals and retries are ten minutes long. So everything that happens within a story happens because an event woke
//! windlass.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use crds::ReconciledObject;
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, ListParams, WatchEvent, WatchParams};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Story, StoryObject};
use crate::git_server::{GitReadAccess, GitServer, StoryGitRepository};
use testbed::upstream_programs::UpstreamProgram;

/// The time limit for events that a story expects soon. It is long because only failing stories reach it, and because a machine
/// that also compiles is many times slower.
pub const DEFAULT_WAIT_TIMEOUT: Duration = Duration::from_secs(120);

/// An interval longer than any story, so nothing happens in the story because of an interval.
pub const NEVER: &str = "10m";

/// The annotation that requests a reconciliation of an object, as `flux reconcile` does.
pub const REQUESTED_AT: &str = "reconcile.fluxcd.io/requestedAt";

impl StoryObject {
    /// A Kustomization of Flux with this name.
    pub fn kustomization(name: &str) -> Self {
        Self::new("kustomize.toolkit.fluxcd.io/v1", "Kustomization", name)
    }

    /// A GitRepository of Flux with this name.
    pub fn git_repository(name: &str) -> Self {
        Self::new("source.toolkit.fluxcd.io/v1", "GitRepository", name)
    }

    /// A ConfigMap with this name.
    pub fn config_map(name: &str) -> Self {
        Self::new("v1", "ConfigMap", name)
    }
}

/// A condition in the status of an object. Null if the object has no condition of that type.
pub fn condition<'a>(object: &'a DynamicObject, kind: &str) -> &'a Value {
    let conditions = object.data["status"]["conditions"].as_array();
    conditions.into_iter().flatten().find(|it| it["type"] == kind).unwrap_or(&Value::Null)
}

/// Collects the statuses of the `Ready` condition from a resourceVersion on, one for each write. It ends when the object
/// satisfies `is_last`. The API server ends each watch after a while, so this continues with another one.
pub async fn ready_until<K>(
    api: Api<K>,
    name: &'static str,
    mut version: String,
    is_last: fn(&K) -> bool,
) -> Result<Vec<String>>
where
    K: ReconciledObject + ResourceExt + Clone + DeserializeOwned + std::fmt::Debug,
{
    let params = WatchParams::default().fields(&format!("metadata.name={name}")).timeout(290);
    let mut statuses = Vec::new();
    loop {
        let mut events = Box::pin(api.watch(&params, &version).await?);
        while let Some(event) = events.try_next().await? {
            match event {
                WatchEvent::Modified(object) if is_last(&object) => return Ok(statuses),
                WatchEvent::Modified(object) => {
                    statuses.extend(object.condition("Ready").map(|ready| ready.status.clone()));
                    version = object.resource_version().context("an object without a version")?;
                }
                WatchEvent::Error(error) => bail!("{error:?}"),
                _ => {}
            }
        }
    }
}

/// The ids in the inventory of an object, or in the inventories of a Helmfile's releases.
pub fn inventory(object: &DynamicObject) -> Vec<&str> {
    let status = &object.data["status"];
    let releases = status["releases"].as_array().into_iter().flatten();
    let parts = releases.map(|release| &release["status"]).chain([status]);
    let entries = parts.filter_map(|part| part["inventory"]["entries"].as_array()).flatten();
    entries.filter_map(|it| it["id"].as_str()).collect()
}

/// The revision of a commit on the branch `main`, in the format of statuses.
pub fn revision(sha: &str) -> String {
    format!("main@sha1:{sha}")
}

/// Files to commit, each with its path and content.
pub type CommitFiles<'a> = [(&'a str, String)];

/// A Git repository, and the GitRepository that follows its branch `main`.
pub struct FollowedGitRepository<'a> {
    story: &'a Story,
    name: String,
    /// The server of the Git repository.
    pub server: GitServer,
    /// The Git repository.
    pub repository: StoryGitRepository,
}

impl FollowedGitRepository<'_> {
    /// Commits files and requests a reconciliation of the source. Returns the revision.
    pub async fn push(&self, files: &CommitFiles<'_>) -> Result<String> {
        let files: Vec<(&str, &str)> = files.iter().map(|(path, it)| (*path, &**it)).collect();
        let sha = self.repository.commit(&files, "a change")?;
        self.story.request(&StoryObject::git_repository(&self.name)).await?;
        Ok(revision(&sha))
    }

    /// Deletes files or folders and requests a reconciliation of the source. Returns the revision.
    pub async fn remove(&self, paths: &[&str]) -> Result<String> {
        let sha = self.repository.delete(paths, "a removal")?;
        self.story.request(&StoryObject::git_repository(&self.name)).await?;
        Ok(revision(&sha))
    }
}

impl Story {
    /// Starts a Git server with one repository that contains the files, and creates a GitRepository for it. Does not wait until
    /// the source is ready.
    pub async fn follow(
        &self,
        name: &str,
        files: &CommitFiles<'_>,
    ) -> Result<FollowedGitRepository<'_>> {
        let server = GitServer::start(GitReadAccess::Open)?;
        let repository = server.repository(name)?;
        let files: Vec<(&str, &str)> = files.iter().map(|(path, it)| (*path, &**it)).collect();
        repository.commit(&files, "the first files")?;
        self.git_repository(name, &server.url(&repository), json!({})).await?;
        Ok(FollowedGitRepository { story: self, name: name.to_owned(), server, repository })
    }

    /// Creates or replaces a GitRepository for the branch `main`. `more` is merged into its spec, and null removes a field.
    pub async fn git_repository(&self, name: &str, url: &str, more: Value) -> Result<()> {
        let spec = json!({"interval": NEVER, "url": url, "ref": {"branch": "main"}});
        self.apply_flux("source.toolkit.fluxcd.io/v1", "GitRepository", name, spec, more).await
    }

    /// Creates or replaces a Kustomization that applies all manifests of a GitRepository to the namespace of the story. `more`
    /// is merged into its spec, and null removes a field.
    pub async fn kustomization(&self, name: &str, source: &str, more: Value) -> Result<()> {
        let spec = json!({
            "interval": NEVER,
            "prune": true,
            "sourceRef": {"kind": "GitRepository", "name": source},
            "targetNamespace": self.namespace,
        });
        self.apply_flux("kustomize.toolkit.fluxcd.io/v1", "Kustomization", name, spec, more).await
    }

    async fn apply_flux(
        &self,
        api_version: &str,
        kind: &str,
        name: &str,
        mut spec: Value,
        more: Value,
    ) -> Result<()> {
        let over = more.as_object().context("what goes over a spec is an object")?;
        for (key, value) in over {
            spec[key] = value.clone();
        }
        if let Some(fields) = spec.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
        }
        let object = json!({
            "apiVersion": api_version, "kind": kind,
            "metadata": {"name": name}, "spec": spec,
        });
        self.apply_value(object).await.map(drop)
    }

    /// Requests a reconciliation of an object. Returns the token that the status contains after windlass has handled the
    /// request.
    pub async fn request(&self, target: &StoryObject) -> Result<String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let token = format!("request {}", COUNT.fetch_add(1, Ordering::Relaxed));
        let patch = json!({"metadata": {"annotations": {REQUESTED_AT: token}}});
        self.merge(target, patch).await?;
        Ok(token)
    }

    /// Requests a reconciliation of an object, and waits until windlass has handled it. Returns the object after that.
    pub async fn rerun(&self, target: &StoryObject) -> Result<DynamicObject> {
        let token = self.request(target).await?;
        let is_handled =
            |object: &DynamicObject| object.data["status"]["lastHandledReconcileAt"] == token;
        self.await_object(target, DEFAULT_WAIT_TIMEOUT, is_handled).await
    }

    /// Waits until an object is Ready for its newest generation.
    pub async fn await_ready(&self, target: &StoryObject) -> Result<DynamicObject> {
        self.await_condition(target, "Ready", "True", DEFAULT_WAIT_TIMEOUT).await
    }

    /// Waits until a Kustomization is Ready with a revision.
    pub async fn await_applied(&self, name: &str, revision: &str) -> Result<DynamicObject> {
        self.await_applied_within(name, revision, DEFAULT_WAIT_TIMEOUT).await
    }

    /// Waits with a time limit until a Kustomization is Ready with a revision.
    pub async fn await_applied_within(
        &self,
        name: &str,
        revision: &str,
        limit: Duration,
    ) -> Result<DynamicObject> {
        let target = StoryObject::kustomization(name);
        let is_applied = |object: &DynamicObject| {
            let status = &object.data["status"];
            condition(object, "Ready")["status"] == "True"
                && status["lastAppliedRevision"] == revision
                && status["observedGeneration"].as_i64() == object.metadata.generation
        };
        let outcome = self.await_object(&target, limit, is_applied).await;
        outcome.with_context(|| format!("{target} was not applied at {revision}"))
    }

    /// Waits until an object is not Ready for a reason, at its newest generation. Returns the message of the condition.
    pub async fn await_failure(&self, target: &StoryObject, reason: &str) -> Result<String> {
        let object = self
            .await_object(target, DEFAULT_WAIT_TIMEOUT, |object| {
                let ready = condition(object, "Ready");
                ready["status"] == "False"
                    && ready["reason"] == reason
                    && ready["observedGeneration"].as_i64() == object.metadata.generation
            })
            .await
            .with_context(|| format!("{target} did not fail with {reason}"))?;
        let message = condition(&object, "Ready")["message"].as_str().unwrap_or_default();
        Ok(message.to_owned())
    }

    /// Waits until a Kustomization waits for the health of a revision and its objects exist. windlass announces the waiting
    /// together with the inventory.
    pub async fn await_waiting(&self, name: &str, revision: &str) -> Result<DynamicObject> {
        let target = StoryObject::kustomization(name);
        let outcome = self
            .await_object(&target, DEFAULT_WAIT_TIMEOUT, |object| {
                let ready = condition(object, "Ready");
                let message = ready["message"].as_str().unwrap_or_default();
                ready["status"] == "Unknown"
                    && message.starts_with("Running health checks")
                    && message.contains(revision)
            })
            .await;
        let object = outcome
            .with_context(|| format!("{target} does not wait for the health of {revision}"))?;
        let entries = object.data["status"]["inventory"]["entries"].as_array();
        for entry in entries.into_iter().flatten() {
            let id = entry["id"].as_str();
            let version = entry["v"].as_str();
            let parts: Vec<&str> = id.unwrap_or_default().split('_').collect();
            let ([namespace, name, group, kind], Some(version)) = (&parts[..], version) else {
                anyhow::bail!("{entry} is not an entry of an inventory");
            };
            let api =
                if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
            let applied = StoryObject::new(&api, kind, name).in_namespace(namespace);
            self.await_until(
                &format!("{applied} to be applied"),
                DEFAULT_WAIT_TIMEOUT,
                async || self.read(&applied).await,
            )
            .await?;
        }
        Ok(object)
    }

    /// Waits until a ConfigMap of [`super::manifests::config_map`] has a value.
    pub async fn await_value(&self, name: &str, value: &str) -> Result<DynamicObject> {
        let holds = |object: &DynamicObject| object.data["data"]["value"] == value;
        let outcome =
            self.await_object(&StoryObject::config_map(name), DEFAULT_WAIT_TIMEOUT, holds).await;
        outcome.with_context(|| format!("ConfigMap {name} did not come to hold {value}"))
    }

    /// Reads an object. It is an error if the object does not exist.
    pub async fn expect(&self, target: &StoryObject) -> Result<DynamicObject> {
        self.read(target).await?.with_context(|| format!("there is no {target}"))
    }

    /// The events about an object, each as `Type Reason: message`.
    pub async fn events(&self, kind: &str, name: &str) -> Result<Vec<String>> {
        let api = Api::<Event>::namespaced(self.client.clone(), &self.namespace);
        let about = format!("involvedObject.kind={kind},involvedObject.name={name}");
        let mut items = api.list(&ListParams::default().fields(&about)).await?.items;
        items.sort_by_key(ResourceExt::name_any);
        let word = |text: Option<String>| text.unwrap_or_default();
        let tell =
            |it: Event| format!("{} {}: {}", word(it.type_), word(it.reason), word(it.message));
        Ok(items.into_iter().map(tell).collect())
    }

    /// Waits until an event about an object contains a text.
    pub async fn await_event(&self, kind: &str, name: &str, text: &str) -> Result<()> {
        self.await_until(
            &format!("an event of {kind} {name} with `{text}`"),
            DEFAULT_WAIT_TIMEOUT,
            async || {
                let events = self.events(kind, name).await?;
                if events.iter().any(|it| it.contains(text)) {
                    return Ok(Some(()));
                }
                Err(anyhow!("its events are {events:#?}"))
            },
        )
        .await
    }

    /// Runs the standard `flux` in the namespace of the story and returns its output.
    ///
    /// # Errors
    /// The command fails. The error contains its output.
    pub fn flux(&self, arguments: &[&str]) -> Result<String> {
        self.flux_in(&self.namespace, arguments)
    }

    /// Runs the standard `flux` in another namespace and returns its output.
    ///
    /// # Errors
    /// The command fails. The error contains its output.
    pub fn flux_in(&self, namespace: &str, arguments: &[&str]) -> Result<String> {
        let home = tempfile::tempdir()?;
        let output = Command::new(UpstreamProgram::Flux.ensure()?)
            .env_clear()
            .env("HOME", home.path())
            .env("KUBECONFIG", self.kubeconfig())
            .args(arguments)
            .args(["--namespace", namespace, "--timeout", "30s"])
            .output()
            .context("cannot run flux")?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        ensure!(output.status.success(), "flux {arguments:?}: {text}");
        Ok(text)
    }
}
