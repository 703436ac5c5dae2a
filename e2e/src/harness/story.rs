//! One story: a namespace of its own on the shared bed.
//!
//! Here: applying, reading, waiting and cleaning up.
//! Elsewhere: the bed (`super::test_bed`), what a failure shows (`super::diagnosis`).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::discovery::{self, Discovery, Scope};
use kube::{Client, Resource, ResourceExt as _};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::flux::DEFAULT_WAIT_TIMEOUT;
use super::test_bed::TestBed;
use super::{await_until, diagnosis, requests};

/// The groups whose objects may carry finalizers of a program that has ended.
const OURS: [&str; 3] = [".toolkit.fluxcd.io", "windlass.dev", "apps.mumoshu.github.io"];

/// An object by kind and name, in the story's namespace unless it says otherwise.
#[derive(Debug, Clone)]
pub struct StoryObject {
    kind: GroupVersionKind,
    name: String,
    namespace: Option<String>,
}

impl StoryObject {
    /// For example `StoryObject::new("apps/v1", "Deployment", "web")`.
    pub fn new(api_version: &str, kind: &str, name: &str) -> Self {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = GroupVersionKind::gvk(group, version, kind);
        Self { kind, name: name.to_owned(), namespace: None }
    }

    /// The object `name` of a type that knows its kind.
    pub fn of<K: Resource<DynamicType = ()>>(name: &str) -> Self {
        Self::new(&K::api_version(&()), &K::kind(&()), name)
    }

    /// The same object of another namespace.
    #[must_use]
    pub fn in_namespace(self, namespace: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..self }
    }
}

impl std::fmt::Display for StoryObject {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} {}", self.kind.kind, self.name)
    }
}

/// A story that is running.
///
/// End it with [`Story::end`]. When a story fails before, its namespace stays until the bed goes,
/// so that a developer who keeps the bed running can inspect it.
pub struct Story {
    /// A client with an administrator's rights.
    pub client: Client,
    /// The namespace that is this story's own.
    pub namespace: String,
    /// The bed on which it runs.
    pub bed: &'static TestBed,
    kinds: Mutex<BTreeMap<String, (ApiResource, Scope)>>,
}

impl Story {
    /// Creates a namespace whose name begins with `name` and has not been used before.
    pub async fn begin(name: &str) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let bed = TestBed::shared().await?;
        let client = bed.client().await?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("{name}-{:06x}{count:02x}", now & 0xff_ffff);
        let object =
            json!({"metadata": {"name": namespace, "labels": {"windlass.dev/story": name}}});
        let object: Namespace = serde_json::from_value(object)?;
        Api::<Namespace>::all(client.clone())
            .create(&Default::default(), &object)
            .await
            .with_context(|| format!("cannot create the namespace {namespace}"))?;
        let story = Self { client, namespace, bed, kinds: Mutex::default() };
        // Pods are refused until the controller manager has made the account they run as.
        let account = StoryObject::new("v1", "ServiceAccount", "default");
        story.await_object(&account, DEFAULT_WAIT_TIMEOUT, |_| true).await?;
        Ok(story)
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        self.bed.kubeconfig()
    }

    /// Server-side applies every document of a YAML text.
    /// Objects that live in namespaces go to the story's, unless they name one.
    pub async fn apply(&self, yaml: &str) -> Result<Vec<DynamicObject>> {
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(yaml).context("the story's YAML is wrong")?;
        let mut applied = Vec::new();
        for document in documents {
            if !document.is_null() {
                applied.push(self.apply_value(document).await?);
            }
        }
        Ok(applied)
    }

    /// Server-side applies one object.
    pub async fn apply_value(&self, object: Value) -> Result<DynamicObject> {
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let name = word(&object["metadata"]["name"]);
        let mut target =
            StoryObject::new(&word(&object["apiVersion"]), &word(&object["kind"]), &name);
        target.namespace = object["metadata"]["namespace"].as_str().map(ToOwned::to_owned);
        let api = self.api(&target).await?;
        let params = PatchParams::apply("story").force();
        let answer = api.patch(&name, &params, &Patch::Apply(&object)).await;
        answer.with_context(|| format!("cannot apply {target}"))
    }

    /// Changes an object by a JSON merge patch.
    pub async fn merge(&self, target: &StoryObject, patch: Value) -> Result<DynamicObject> {
        let api = self.api(target).await?;
        let answer = api.patch(&target.name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        answer.with_context(|| format!("cannot change {target}"))
    }

    /// Changes an object's status by a JSON merge patch.
    pub async fn merge_status(&self, target: &StoryObject, patch: Value) -> Result<DynamicObject> {
        let api = self.api(target).await?;
        let params = PatchParams::default();
        let answer = api.patch_status(&target.name, &params, &Patch::Merge(&patch)).await;
        answer.with_context(|| format!("cannot change the status of {target}"))
    }

    /// Asks for an object's deletion; it may linger until its finalizers are gone.
    pub async fn delete(&self, target: &StoryObject) -> Result<()> {
        let api = self.api(target).await?;
        let answer = api.delete(&target.name, &DeleteParams::background()).await;
        answer.with_context(|| format!("cannot delete {target}"))?;
        Ok(())
    }

    /// Reads an object of the story's namespace.
    pub async fn get<K>(&self, name: &str) -> Result<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        K: Clone + DeserializeOwned + std::fmt::Debug,
    {
        let api = Api::<K>::namespaced(self.client.clone(), &self.namespace);
        let answer = api.get(name).await;
        answer.with_context(|| format!("cannot read {} {name}", K::kind(&())))
    }

    /// Reads an object of any kind; none if it does not exist.
    pub async fn read(&self, target: &StoryObject) -> Result<Option<DynamicObject>> {
        Ok(self.api(target).await?.get_opt(&target.name).await?)
    }

    /// Waits until a status condition has a value, and is about the newest generation where it
    /// says which one it is about.
    pub async fn await_condition(
        &self,
        target: &StoryObject,
        condition: &str,
        status: &str,
        timeout: Duration,
    ) -> Result<DynamicObject> {
        let holds = |object: &DynamicObject| {
            let generation = object.metadata.generation;
            let conditions = object.data["status"]["conditions"].as_array();
            conditions.is_some_and(|all| {
                all.iter().any(|it| {
                    let seen = it["observedGeneration"].as_i64();
                    let is_current = seen.is_none() || generation.is_none() || seen == generation;
                    it["type"] == condition && it["status"] == status && is_current
                })
            })
        };
        let outcome = self.await_object(target, timeout, holds).await;
        outcome.with_context(|| format!("{target} did not come to {condition}={status}"))
    }

    /// Waits until an object exists and is as desired; a failure shows how it was last, the
    /// namespace's events, and the operator's log.
    pub async fn await_object(
        &self,
        target: &StoryObject,
        timeout: Duration,
        is_desired: impl Fn(&DynamicObject) -> bool,
    ) -> Result<DynamicObject> {
        let mut last = None;
        let outcome = await_until(&target.to_string(), timeout, async || {
            last = self.read(target).await?;
            Ok(last.clone().filter(|object| is_desired(object)))
        })
        .await;
        match outcome {
            Ok(object) => Ok(object),
            Err(error) => {
                let state = last.as_ref().map_or("  it does not exist\n".into(), diagnosis::status);
                let around = diagnosis::surroundings(&self.client, &self.namespace).await;
                Err(anyhow!("{error:#}\n{target}:\n{state}{around}"))
            }
        }
    }

    /// Waits until an object is gone.
    pub async fn await_gone(&self, target: &StoryObject, timeout: Duration) -> Result<()> {
        self.await_until(&format!("{target} to be gone"), timeout, async || {
            Ok(self.read(target).await?.is_none().then_some(()))
        })
        .await
    }

    /// [`await_until`], with the namespace's events and the operator's log when it fails.
    pub async fn await_until<T>(
        &self,
        what: &str,
        timeout: Duration,
        ask: impl AsyncFnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        match await_until(what, timeout, ask).await {
            Ok(answer) => Ok(answer),
            Err(error) => {
                let around = diagnosis::surroundings(&self.client, &self.namespace).await;
                Err(anyhow!("{error:#}\n{around}"))
            }
        }
    }

    /// The status of every object of our kinds, the events of the namespace and the end of the operator's log.
    pub async fn diagnosis(&self) -> Result<String> {
        let mut text = String::new();
        for resource in self.our_kinds().await? {
            let api = Api::<DynamicObject>::namespaced_with(
                self.client.clone(),
                &self.namespace,
                &resource,
            );
            for object in api.list(&ListParams::default()).await? {
                text += &format!("{}/{}:\n", resource.kind, object.name_any());
                text += &diagnosis::status(&object);
            }
        }
        Ok(text + &diagnosis::surroundings(&self.client, &self.namespace).await)
    }

    /// Our namespaced kinds.
    async fn our_kinds(&self) -> Result<Vec<ApiResource>> {
        let discovery = Discovery::new(self.client.clone()).run_aggregated().await?;
        let is_ours = |name: &str| OURS.iter().any(|suffix| name.ends_with(suffix));
        let ours = discovery.groups().filter(|group| is_ours(group.name()));
        // A kind that the preferred version of its group lacks is one of ours, too, such as Alert.
        let all = ours.flat_map(|group| group.resources_by_stability());
        let namespaced = all.filter(|(_, abilities)| abilities.scope == Scope::Namespaced);
        Ok(namespaced.map(|(resource, _)| resource).collect())
    }

    /// Asks for the namespace's deletion and takes the finalizers off our own kinds, since the
    /// program that would do so may have ended. Does not wait.
    pub async fn end(self) -> Result<()> {
        if let Some(log) = self.bed.audit_log() {
            requests::collect(log)?;
        }
        let namespaces = Api::<Namespace>::all(self.client.clone());
        namespaces
            .delete(&self.namespace, &DeleteParams::background())
            .await
            .with_context(|| format!("cannot delete the namespace {}", self.namespace))?;
        for resource in self.our_kinds().await? {
            self.release(&resource).await?;
        }
        Ok(())
    }

    async fn release(&self, resource: &ApiResource) -> Result<()> {
        let api =
            Api::<DynamicObject>::namespaced_with(self.client.clone(), &self.namespace, resource);
        let none = json!({"metadata": {"finalizers": null}});
        for object in api.list_metadata(&ListParams::default()).await?.items {
            let Some(name) = object.metadata.name else { continue };
            let patch = Patch::Merge(&none);
            match api.patch_metadata(&name, &PatchParams::default(), &patch).await {
                Err(error) if !is_not_found(&error) => {
                    return Err(error).with_context(|| format!("cannot release {name}"));
                }
                // Gone already is as good.
                _ => {}
            }
        }
        Ok(())
    }

    async fn api(&self, target: &StoryObject) -> Result<Api<DynamicObject>> {
        let (resource, scope) = self.resource(&target.kind).await?;
        let namespace = target.namespace.as_ref().unwrap_or(&self.namespace);
        Ok(match scope {
            Scope::Namespaced => Api::namespaced_with(self.client.clone(), namespace, &resource),
            Scope::Cluster => Api::all_with(self.client.clone(), &resource),
        })
    }

    /// Asks the API server about a kind once a story, and again while it does not know it.
    async fn resource(&self, kind: &GroupVersionKind) -> Result<(ApiResource, Scope)> {
        let key = format!("{}/{}", kind.api_version(), kind.kind);
        let known = self.kinds.lock().get(&key).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let mut found = discovery::pinned_kind(&self.client, kind).await;
        // A kind that was just defined is established before it is served; on a busy machine that takes seconds.
        for _ in 0..100 {
            if found.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
            found = discovery::pinned_kind(&self.client, kind).await;
        }
        let (resource, abilities) =
            found.with_context(|| format!("the API server does not know {key}"))?;
        let entry = (resource, abilities.scope);
        let mut kinds = self.kinds.lock();
        kinds.insert(key, entry.clone());
        Ok(entry)
    }
}

fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}
