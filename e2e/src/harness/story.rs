//! One story, with its own namespace on the shared bed.
//!
//! Here: applying, reading, waiting and cleaning up. Elsewhere: the bed (`super::test_bed`), the output after a failure
//! (`super::diagnosis`).

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

use super::audit_log::AuditLogPosition;
use super::flux_objects::DEFAULT_WAIT_TIMEOUT;
use super::test_bed::TestBed;
use super::{await_until, diagnosis, requests_with_own_rights};

/// The API groups whose objects may have finalizers of a program that has ended.
const OURS: [&str; 3] = [".toolkit.fluxcd.io", "windlass.dev", "apps.mumoshu.github.io"];

/// An object by kind and name. It is in the namespace of the story unless it names another one.
#[derive(Debug, Clone)]
pub struct StoryObject {
    kind: GroupVersionKind,
    name: String,
    namespace: Option<String>,
}

impl StoryObject {
    /// Names an object, for example `StoryObject::new("apps/v1", "Deployment", "web")`.
    pub fn new(api_version: &str, kind: &str, name: &str) -> Self {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = GroupVersionKind::gvk(group, version, kind);
        Self { kind, name: name.to_owned(), namespace: None }
    }

    /// Names the object `name` of a Rust type that knows its kind.
    pub fn of<K: Resource<DynamicType = ()>>(name: &str) -> Self {
        Self::new(&K::api_version(&()), &K::kind(&()), name)
    }

    /// Names the same object in another namespace.
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
/// A story ends with [`Story::end`]. If it fails earlier, its namespace stays as long as the bed, so a developer who keeps the
/// bed running can inspect it.
pub struct Story {
    /// A client with the rights of an administrator.
    pub client: Client,
    /// The namespace of this story.
    pub namespace: String,
    /// The bed on which the story runs.
    pub bed: &'static TestBed,
    kinds: Mutex<BTreeMap<String, (ApiResource, Scope)>>,
    /// The position in the audit log at which the story began.
    pub(super) log_begin: Option<AuditLogPosition>,
}

impl Story {
    /// Creates a new namespace whose name begins with `name`.
    pub async fn begin(name: &str) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let bed = TestBed::shared().await?;
        let client = bed.client().await?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("{name}-{:06x}{count:02x}", now & 0xff_ffff);
        let log_begin = bed.audit_log().map(AuditLogPosition::at_end_of).transpose()?;
        let object =
            json!({"metadata": {"name": namespace, "labels": {"windlass.dev/story": name}}});
        let object: Namespace = serde_json::from_value(object)?;
        Api::<Namespace>::all(client.clone())
            .create(&Default::default(), &object)
            .await
            .with_context(|| format!("cannot create the namespace {namespace}"))?;
        let story = Self { client, namespace, bed, kinds: Mutex::default(), log_begin };
        // The API server refuses Pods until the controller manager has created their ServiceAccount.
        let account = StoryObject::new("v1", "ServiceAccount", "default");
        story.await_object(&account, DEFAULT_WAIT_TIMEOUT, |_| true).await?;
        Ok(story)
    }

    /// The kubeconfig of the administrator.
    pub fn kubeconfig(&self) -> &Path {
        self.bed.kubeconfig()
    }

    /// Server-side applies every document of a YAML text. Namespaced objects are created in the namespace of the story, unless
    /// they name another one.
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

    /// Applies one object with server-side apply, and overrides the fields of other managers. Returns the object as it is
    /// stored.
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

    /// Changes an object with a JSON merge patch.
    pub async fn merge(&self, target: &StoryObject, patch: Value) -> Result<DynamicObject> {
        let api = self.api(target).await?;
        let answer = api.patch(&target.name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        answer.with_context(|| format!("cannot change {target}"))
    }

    /// Changes the status of an object with a JSON merge patch.
    pub async fn merge_status(&self, target: &StoryObject, patch: Value) -> Result<DynamicObject> {
        let api = self.api(target).await?;
        let params = PatchParams::default();
        let answer = api.patch_status(&target.name, &params, &Patch::Merge(&patch)).await;
        answer.with_context(|| format!("cannot change the status of {target}"))
    }

    /// Requests the deletion of an object. The object may remain until its finalizers are removed.
    pub async fn delete(&self, target: &StoryObject) -> Result<()> {
        let api = self.api(target).await?;
        let answer = api.delete(&target.name, &DeleteParams::background()).await;
        answer.with_context(|| format!("cannot delete {target}"))?;
        Ok(())
    }

    /// Reads an object in the namespace of the story.
    pub async fn get<K>(&self, name: &str) -> Result<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        K: Clone + DeserializeOwned + std::fmt::Debug,
    {
        let api = Api::<K>::namespaced(self.client.clone(), &self.namespace);
        let answer = api.get(name).await;
        answer.with_context(|| format!("cannot read {} {name}", K::kind(&())))
    }

    /// Reads an object of any kind. Returns `None` if it does not exist.
    pub async fn read(&self, target: &StoryObject) -> Result<Option<DynamicObject>> {
        Ok(self.api(target).await?.get_opt(&target.name).await?)
    }

    /// Reads an object of any kind. Returns `None` if it does not exist, or if its CRD is gone.
    pub async fn read_if_served(&self, target: &StoryObject) -> Result<Option<DynamicObject>> {
        match self.api(target).await?.get(&target.name).await {
            Ok(object) => Ok(Some(object)),
            // About a kind that is not served, the API server answers with a text instead of a Status.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until a status condition has a value. If the condition names a generation, it has to be the newest one.
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

    /// Waits until an object exists and satisfies a check. A failure prints the last state of the object, the events of the
    /// namespace, and the operator's log.
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

    /// Waits until an object no longer exists.
    pub async fn await_gone(&self, target: &StoryObject, timeout: Duration) -> Result<()> {
        self.await_until(&format!("{target} to be gone"), timeout, async || {
            Ok(self.read(target).await?.is_none().then_some(()))
        })
        .await
    }

    /// Calls [`await_until`]. A failure prints the events of the namespace and the operator's log.
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

    /// The status of every object of Flux's and windlass's kinds, the events of the namespace, and the end of the operator's
    /// log.
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

    /// The namespaced kinds of Flux and windlass.
    async fn our_kinds(&self) -> Result<Vec<ApiResource>> {
        let discovery = Discovery::new(self.client.clone()).run_aggregated().await?;
        let is_ours = |name: &str| OURS.iter().any(|suffix| name.ends_with(suffix));
        let ours = discovery.groups().filter(|group| is_ours(group.name()));
        // A kind such as Alert counts even if the preferred version of its group does not contain it.
        let all = ours.flat_map(|group| group.resources_by_stability());
        let namespaced = all.filter(|(_, abilities)| abilities.scope == Scope::Namespaced);
        Ok(namespaced.map(|(resource, _)| resource).collect())
    }

    /// Requests the deletion of the namespace, and removes the finalizers from objects of Flux and windlass. The program that
    /// would remove them may have ended. Does not wait for the deletion.
    pub async fn end(self) -> Result<()> {
        if let Some(log) = self.bed.audit_log() {
            requests_with_own_rights::collect(log)?;
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
                // An object that no longer exists is no error.
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

    /// Discovers a kind once for each story. If the API server does not know the kind, the next call discovers it again.
    async fn resource(&self, kind: &GroupVersionKind) -> Result<(ApiResource, Scope)> {
        let key = format!("{}/{}", kind.api_version(), kind.kind);
        let known = self.kinds.lock().get(&key).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let mut found = discovery::pinned_kind(&self.client, kind).await;
        // A new CRD is established before the API server serves its kind. On a busy machine, that takes seconds.
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
